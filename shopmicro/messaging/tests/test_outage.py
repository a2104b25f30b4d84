import pytest
from structlog.testing import capture_logs

from shopmicro.messaging.outage import Outage
from shopmicro.messaging.retry import Backoff


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_an_outage_is_said_when_it_begins_once_a_minute_and_when_it_is_over(clock: Clock) -> None:
    outage = Outage("runsaga", Backoff(1, 1), clock)
    with capture_logs() as said:
        outage.is_over()
        for _ in range(130):
            outage.failed(OSError("connection\n  refused"))
            clock.now += 1
        outage.is_over()
        outage.is_over()
    assert [(line["event"], line.get("failures"), line.get("error")) for line in said] == [
        ("waiting for the database or the broker", 1, "connection refused"),
        ("waiting for the database or the broker", 61, "connection refused"),
        ("waiting for the database or the broker", 121, "connection refused"),
        ("works again", None, None),
    ]
    assert said[-1]["after_failures"] == 130


def test_another_error_is_said_at_once(clock: Clock) -> None:
    outage = Outage("runsaga", Backoff(1, 1), clock)
    with capture_logs() as said:
        for error in ("away", "away", "permission denied", "away"):
            outage.failed(OSError(error))
    assert [line["error"] for line in said] == ["away", "permission denied", "away"]


def test_the_waits_grow_and_begin_anew_with_the_next_outage(clock: Clock) -> None:
    outage = Outage("runsaga", Backoff(1, 8), clock)
    waits = [outage.failed(OSError("away")) for _ in range(4)]
    assert all(full / 2 <= wait <= full for wait, full in zip(waits, (1, 2, 4, 8), strict=True))
    outage.is_over()
    assert outage.failed(OSError("away")) <= 1
