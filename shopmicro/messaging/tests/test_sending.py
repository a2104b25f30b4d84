"""What flies together and what becomes of it, without a database."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from shopmicro.messaging.broker import Delivery, Headers, OnDelivery, Publisher, RefusedTogether, TopicSpec
from shopmicro.messaging.sending import Reports, Row, Sending
from shopmicro.messaging.shutdown import Stop
from shopmicro.messaging.tests.worlds import KafkaWorld
from tests.servers import Kafka

NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)


class Broker:
    """A publisher that refuses all it has in flight if one record of it is too large.

    Each `serve` takes ``seconds`` of the clock that this is too. ``sent`` are the payloads of
    each flight.
    """

    def __init__(self, seconds: float = 0.1) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.sent: list[list[str]] = []
        self._flight: list[tuple[str, OnDelivery]] = []

    def send(
        self, topic: str, key: str | None, value: bytes | None, headers: Headers, on_delivery: OnDelivery
    ) -> None:
        self._flight.append(((value or b"").decode(), on_delivery))

    def serve(self, timeout: float) -> int:
        self.now += self.seconds
        flight, self._flight = self._flight, []
        self.sent.append([payload for payload, _ in flight])
        is_refused = any("large" in payload for payload, _ in flight)
        for _, on_delivery in flight:
            on_delivery(Delivery(error=RefusedTogether("too large")) if is_refused else Delivery(0, 0))
        return len(flight)

    def close(self, timeout: float) -> None:
        self._flight.clear()

    def clock(self) -> float:
        return self.now


def row(name: str, aggregate_id: str = "", attempts: int = 0) -> Row:
    """Make a row, of an aggregate of its own unless one is named."""
    return Row(0, name, "orders", aggregate_id or name, "order.created", name, NOW, attempts)


def send(
    broker: Broker,
    rows: Sequence[Row],
    stop: Stop | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[list[str], list[str]]:
    """Send rows; gives the names of those delivered and of those refused."""
    reports = Reports()
    Sending(broker, rows, reports, meanwhile=meanwhile, clock=broker.clock).run(stop or Stop())
    return names(reports)


def names(reports: Reports) -> tuple[list[str], list[str]]:
    return [row.event_id for row, _ in reports.delivered], [row.event_id for row, _ in reports.refused]


def test_a_second_row_of_an_aggregate_waits_for_the_first_ones_acknowledgement() -> None:
    broker = Broker()
    rows = [row("a1", "a"), row("a2", "a"), row("b1", "b"), row("a3", "a")]
    assert send(broker, rows) == (["a1", "b1", "a2", "a3"], [])
    assert broker.sent == [["a1", "b1"], ["a2"], ["a3"]]


def test_rows_refused_for_the_sake_of_one_among_them_pass_at_once_and_only_that_one_is_refused() -> None:
    broker = Broker()
    assert send(broker, [row("a"), row("large"), row("c")]) == (["a", "c"], ["large"])
    assert broker.sent == [["a", "large", "c"], ["a"], ["large"], ["c"]]


def test_a_row_that_was_refused_before_is_sent_alone_after_the_others() -> None:
    broker = Broker()
    rows = [row("large", attempts=1), row("b"), row("c1", "c"), row("c2", "c")]
    assert send(broker, rows) == (["b", "c1", "c2"], ["large"])
    assert broker.sent == [["b", "c1"], ["c2"], ["large"]]


def test_the_later_rows_of_a_refused_one_are_not_sent() -> None:
    broker = Broker()
    rows = [row("large", "a"), row("a2", "a"), row("b")]
    assert send(broker, rows) == (["b"], ["large"])
    assert [flight for flight in broker.sent if "a2" in flight] == []


def test_the_later_rows_of_one_that_passes_alone_follow_it() -> None:
    broker = Broker()
    rows = [row("a1", "a", attempts=3), row("a2", "a"), row("large", "b", attempts=1)]
    assert send(broker, rows) == (["a1", "a2"], ["large"])
    assert broker.sent == [["a1"], ["a2"], ["large"]]


def test_a_long_chain_of_slow_acknowledgements_is_left_for_the_next_batch_after_ten_seconds() -> None:
    broker = Broker(seconds=4)
    assert send(broker, [row(f"a{number}", "a") for number in range(20)]) == (["a0", "a1", "a2"], [])


def test_while_acknowledgements_are_waited_for_the_session_is_kept_talking() -> None:
    broker, at = Broker(seconds=4), []
    send(broker, [row("a1", "a"), row("a2", "a")], meanwhile=lambda: at.append(broker.now))
    assert at == [4, 8]


def test_after_a_stop_nothing_is_started_and_what_is_in_flight_is_taken_in() -> None:
    broker, stop = Broker(), Stop()
    assert send(broker, [row("a1", "a"), row("a2", "a")], stop, stop.request) == (["a1"], [])


def test_a_report_that_comes_after_the_end_is_taken_too() -> None:
    broker, reports = Broker(), Reports()

    def lose_session() -> None:
        raise ConnectionError

    class Slow(Broker):
        def serve(self, timeout: float) -> int:
            return 0 if timeout else super().serve(timeout)

    broker = Slow()
    sending = Sending(broker, [row("a")], reports, meanwhile=lose_session, clock=broker.clock)
    with pytest.raises(ConnectionError):
        sending.run(Stop())
    assert names(reports) == ([], [])
    broker.serve(0)
    assert names(reports) == (["a"], [])


def test_of_a_batch_that_the_real_broker_refuses_only_the_record_that_is_too_large_stays(
    kafka: Kafka,
) -> None:
    with ExitStack() as clients:
        world = KafkaWorld(clients, kafka.bootstrap_servers)
        world.admin().create_topics([TopicSpec("orders", 1, 1, {"max.message.bytes": "2000"})])
        publisher: Publisher = world.publisher()
        rows = [row(f"e{number}") for number in range(8)]
        rows[3] = rows[3]._replace(payload=os.urandom(4000).hex())
        reports = Reports()
        Sending(publisher, rows, reports, meanwhile=lambda: None).run(Stop())
        delivered, refused = names(reports)
    assert sorted(delivered) == ["e0", "e1", "e2", "e4", "e5", "e6", "e7"]
    assert refused == ["e3"]
