"""A worker dies at each of its crash points; started again, it leaves everything as if it had not."""

import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from notifications.tests.scene import Mailbox, SmtpServer
from shopmicro.embedded.ports import free_port
from shopmicro.messaging.faults import POINTS
from tests.journeys.shop import WORKERS, Shop, payment, payments
from tests.servers import eventually

SAGA = (
    "after-poll",
    "after-dedupe-insert",
    "after-order-update",
    "after-outbox-insert",
    "after-database-commit",
)
OFFSET = ("before-offset-commit", "after-offset-commit", "inside-revoke")
RELAY = ("after-produce", "after-acknowledgement")
PAYMENTS = ("after-poll", "after-outbox-insert", "after-database-commit", "before-offset-commit")
NOTIFICATIONS = ("after-poll", "after-database-commit", "before-offset-commit", "after-offset-commit")

ONE_EVENT_AN_ORDER = """
    SELECT orders.status, count(told.id), count(DISTINCT processed_events.event_id)
    FROM orders
    LEFT JOIN outbox AS told ON told.event_id = orders.id || ':' || orders.status
    LEFT JOIN processed_events ON processed_events.event_id = orders.id || ':payment'
    GROUP BY orders.id"""

TOLD = "SELECT kind, state, count(*) FROM notifications GROUP BY 1, 2"


def test_every_point_is_tried() -> None:
    assert set(SAGA) | set(OFFSET) | set(RELAY) | set(PAYMENTS) | set(NOTIFICATIONS) == POINTS


def crash(shop: Shop, worker: str, point: str, **environment: str) -> None:
    """Run a worker until it dies at the point."""
    shop.start(worker, TEST_SYSTEM="true", CRASH_POINT=point, **environment)
    if point == "inside-revoke":
        eventually(lambda: "partitions assigned" in shop.log(worker))
        shop.ask_to_stop(worker)
    assert shop.wait(worker) == 137


@pytest.mark.parametrize("point", [*SAGA, *OFFSET])
def test_a_saga_that_dies_has_every_effect_once_when_it_is_back(closed_shop: Shop, point: str) -> None:
    orders = closed_shop.insert_orders(20)
    closed_shop.produce(
        "payments", [payment(order, succeeded=number % 2 == 0) for number, order in enumerate(orders)]
    )
    crash(closed_shop, "runsaga", point)
    closed_shop.start("runsaga")
    closed_shop.wait_for_no_lag("order-saga", "payments")
    assert (
        sorted(closed_shop.rows(ONE_EVENT_AN_ORDER))
        == [("cancelled", 1, 1)] * 10 + [("confirmed", 1, 1)] * 10
    )
    assert closed_shop.rows("SELECT count(*) FROM outbox") == [(20,)]
    assert closed_shop.rows("SELECT count(*) FROM dead_letters") == [(0,)]


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize("point", RELAY)
def test_a_relay_that_dies_may_repeat_but_loses_nothing_and_keeps_each_orders_order(
    closed_shop: Shop, point: str, times: int
) -> None:
    closed_shop.start("web")
    orders = [closed_shop.place() for _ in range(20)]
    closed_shop.produce("payments", payments(orders))
    closed_shop.start("runsaga")
    closed_shop.wait_for_no_lag("order-saga", "payments")
    assert closed_shop.rows("SELECT count(*) FROM outbox") == [(40,)]
    crash(closed_shop, "runrelay", f"{point}:{times}", OUTBOX_BATCH="1" if times > 1 else "2000")
    closed_shop.start("runrelay")
    eventually(lambda: closed_shop.rows("SELECT count(*) FROM outbox WHERE published_at IS NULL") == [(0,)])
    on_topic = closed_shop.consume("orders")
    first_occurrences: dict[str, list[str]] = defaultdict(list)
    for event in on_topic:
        if event["id"] not in first_occurrences[event["aggregate_id"]]:
            first_occurrences[event["aggregate_id"]].append(event["id"])
    assert first_occurrences == {order: [order, f"{order}:confirmed"] for order in orders}
    assert 40 <= len(on_topic) <= 80


@pytest.mark.parametrize("point", PAYMENTS)
def test_a_payment_worker_that_dies_charges_and_tells_once_when_it_is_back(
    closed_shop: Shop, point: str
) -> None:
    closed_shop.start("web", "runrelay")
    orders = [closed_shop.place() for _ in range(5)]
    crash(closed_shop, "runpayments", point)
    closed_shop.start("runpayments", "runsaga")
    eventually(lambda: closed_shop.is_resolved(*orders))
    assert closed_shop.rows("SELECT status, count(*) FROM payments GROUP BY 1") == [("succeeded", 5)]
    assert closed_shop.rows("SELECT count(*) FROM outbox WHERE type = 'payment.succeeded'") == [(5,)]
    assert sorted(closed_shop.rows(ONE_EVENT_AN_ORDER)) == [("confirmed", 1, 1)] * 5


@dataclass
class Post(Mailbox):
    """A mailbox, and what is done when the first mail is in it and its sender has heard nothing yet."""

    on_first: Callable[[], None] | None = field(default=None)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        answer = await super().handle_DATA(server, session, envelope)
        on_first, self.on_first = self.on_first, None
        if on_first:
            on_first()
        return answer


@pytest.fixture
def post(closed_shop: Shop) -> Iterator[Post]:
    """The mail server of the shop."""
    server, post = SmtpServer(free_port()), Post()
    years = str(9 * 365 * 24 * 3600)  # the payment results of these tests are of one day
    closed_shop.environment |= {"EMAIL_URL": f"smtp://127.0.0.1:{server.port}", "NOTIFY_MAX_AGE": years}
    server.start(post)
    yield post
    server.stop()


def paid_orders(shop: Shop, count: int) -> list[str]:
    """Make orders with an address, and a payment result of each."""
    orders = shop.insert_orders(count)
    shop.rows("UPDATE orders SET email = 'ann@customers.test' RETURNING id")
    shop.produce("payments", payments(orders))
    return orders


def mails_of(post: Post, order: str) -> list[str]:
    return [str(mail["Message-ID"]) for mail in post.mails if order in mail["Subject"]]


@pytest.mark.parametrize("point", NOTIFICATIONS)
def test_a_notifier_that_dies_before_or_after_its_batch_mails_once_when_it_is_back(
    closed_shop: Shop, post: Post, point: str
) -> None:
    orders = paid_orders(closed_shop, 5)
    crash(closed_shop, "runnotifications", point)
    closed_shop.start("runnotifications")
    closed_shop.wait_for_no_lag("notifications", "payments")
    assert [len(mails_of(post, order)) for order in orders] == [1] * 5
    assert closed_shop.rows(TOLD) == [("confirmed", "sent", 5)]


@pytest.mark.long
def test_a_notifier_that_dies_while_it_mails_may_mail_again_under_the_same_id_but_records_once(
    closed_shop: Shop, post: Post
) -> None:
    orders = paid_orders(closed_shop, 5)
    post.on_first = lambda: closed_shop.send("runnotifications", signal.SIGKILL)
    closed_shop.start("runnotifications")
    eventually(lambda: not closed_shop.is_running("runnotifications"))
    assert closed_shop.wait("runnotifications") == 137
    closed_shop.start("runnotifications", RETRY_ATTEMPTS="60")
    eventually(lambda: closed_shop.rows(TOLD) == [("confirmed", "sent", 5)], timeout=90)
    ids = [mails_of(post, order) for order in orders]
    assert [len(set(of_order)) for of_order in ids] == [1] * 5
    assert 6 <= len(post.mails) <= 10
    assert closed_shop.rows("SELECT count(*) FROM dead_letters WHERE state <> 'replayed'") == [(0,)]


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"CRASH_POINT": "after-poll"}, "CRASH_POINT is for a system with TEST_SYSTEM=true: unset it"),
        ({"CRASH_POINT": "somewhere", "TEST_SYSTEM": "true"}, "CRASH_POINT is somewhere: set it to"),
        (
            {"CRASH_POINT": "after-poll:often", "TEST_SYSTEM": "true"},
            "CRASH_POINT is after-poll:often: set it to",
        ),
    ],
)
def test_a_point_is_armed_by_its_name_and_in_a_test_system_only(
    closed_shop: Shop, environment: dict[str, str], sentence: str
) -> None:
    for worker in WORKERS:
        code, said = closed_shop.try_command(worker, **environment)
        assert (code, said.count(sentence), "Traceback" in said) == (1, 1, False)
