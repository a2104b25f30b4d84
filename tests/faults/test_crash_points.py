"""A worker dies at each of its crash points; started again, it leaves everything as if it had not."""

import pytest

from shopmicro.messaging.faults import POINTS
from tests.journeys.shop import WORKERS, Shop, payment
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

ONE_EVENT_AN_ORDER = """
    SELECT orders.status, count(told.id), count(DISTINCT processed_events.event_id)
    FROM orders
    LEFT JOIN outbox AS told ON told.event_id = orders.id || ':' || orders.status
    LEFT JOIN processed_events ON processed_events.event_id = orders.id || ':payment'
    GROUP BY orders.id"""


def test_every_point_is_tried() -> None:
    assert set(SAGA) | set(OFFSET) | set(RELAY) | set(PAYMENTS) == POINTS


def crash(shop: Shop, worker: str, point: str) -> None:
    """Run a worker until it dies at the point."""
    shop.start(worker, TEST_SYSTEM="true", CRASH_POINT=point)
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


@pytest.mark.parametrize("point", RELAY)
def test_a_relay_that_dies_may_repeat_but_loses_nothing_and_keeps_each_orders_order(
    closed_shop: Shop, point: str
) -> None:
    orders = closed_shop.insert_orders(20)
    closed_shop.produce("payments", [payment(order) for order in orders])
    closed_shop.start("runsaga")
    closed_shop.wait_for_no_lag("order-saga", "payments")
    crash(closed_shop, "runrelay", f"{point}:1")
    closed_shop.start("runrelay")
    eventually(lambda: closed_shop.rows("SELECT count(*) FROM outbox WHERE published_at IS NULL") == [(0,)])
    on_topic = closed_shop.consume("orders")
    assert {event["id"] for event in on_topic} == {f"{order}:confirmed" for order in orders}
    assert 20 <= len(on_topic) <= 40


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
