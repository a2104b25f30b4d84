"""The two guards, on the real database. What a batch does is compared row by row."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from orders.models import Order, ProcessedEvent, new_order_id
from orders.saga import apply_payment_results
from payments.events import PaymentResult
from shopmicro.messaging.event import decode
from shopmicro.messaging.handler import Kind

NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)
pytestmark = pytest.mark.django_db


def pending_order(total_cents: int = 2598) -> str:
    order = Order.objects.create(customer_id="cust-1", total_cents=total_cents, currency="EUR")
    return str(order.id)


def success(order_id: str, event_id: str | None = None, amount_cents: int = 2598) -> PaymentResult:
    return PaymentResult(event_id or f"{order_id}:payment", order_id, amount_cents, True, "", NOW)


def failure(order_id: str, event_id: str | None = None, amount_cents: int = 2598) -> PaymentResult:
    reason = "amount exceeds limit"
    return PaymentResult(event_id or f"{order_id}:payment", order_id, amount_cents, False, reason, NOW)


def apply(*results: PaymentResult) -> list[Kind]:
    with transaction.atomic():
        return [outcome.kind for outcome in apply_payment_results(results, NOW)]


def state() -> dict[str, list[tuple[Any, ...]]]:
    """Everything that the saga may write."""
    return {
        "orders": _rows("SELECT id::text, status, reason FROM orders ORDER BY id"),
        "processed_events": _rows("SELECT event_id FROM processed_events ORDER BY 1"),
        "outbox": _rows("SELECT event_id, topic, type, aggregate_id::text FROM outbox ORDER BY id"),
    }


def _rows(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def confirmed(order_id: str, *event_ids: str) -> dict[str, list[tuple[Any, ...]]]:
    """The state of a database with one order that was confirmed, once."""
    return {
        "orders": [(order_id, "confirmed", "")],
        "processed_events": sorted((event_id,) for event_id in event_ids),
        "outbox": [(f"{order_id}:confirmed", "orders", "order.confirmed", order_id)],
    }


def cancelled(order_id: str, *event_ids: str) -> dict[str, list[tuple[Any, ...]]]:
    """The state of a database with one order that was cancelled, once."""
    return {
        "orders": [(order_id, "cancelled", "amount exceeds limit")],
        "processed_events": sorted((event_id,) for event_id in event_ids),
        "outbox": [(f"{order_id}:cancelled", "orders", "order.cancelled", order_id)],
    }


def test_a_success_confirms_its_order_and_says_so_once() -> None:
    order = pending_order()
    assert apply(success(order)) == [Kind.APPLIED]
    assert state() == confirmed(order, f"{order}:payment")


def test_a_failure_cancels_its_order_with_the_reason() -> None:
    order = pending_order()
    assert apply(failure(order)) == [Kind.APPLIED]
    assert state() == cancelled(order, f"{order}:payment")


def test_the_events_of_a_batch_are_those_of_the_contract() -> None:
    paid, refused = pending_order(), pending_order(100_001)
    apply(success(paid), failure(refused, amount_cents=100_001))
    told = [decode(payload.encode()) for (payload,) in _rows("SELECT payload FROM outbox ORDER BY id")]
    assert [(event.id, event.type, event.payload, event.occurred_at) for event in told] == [
        (
            f"{paid}:confirmed",
            "order.confirmed",
            {"order_id": paid, "customer_id": "cust-1", "amount_cents": 2598},
            NOW,
        ),
        (
            f"{refused}:cancelled",
            "order.cancelled",
            {
                "order_id": refused,
                "customer_id": "cust-1",
                "amount_cents": 100_001,
                "reason": "amount exceeds limit",
            },
            NOW,
        ),
    ]


@pytest.mark.parametrize("times", [2, 500])
def test_the_same_event_many_times_in_one_batch_has_one_effect(times: int) -> None:
    order = pending_order()
    assert apply(*[success(order)] * times) == [Kind.APPLIED] + [Kind.DUPLICATE] * (times - 1)
    assert state() == confirmed(order, f"{order}:payment")


def test_the_same_event_in_a_later_batch_touches_nothing() -> None:
    order = pending_order()
    apply(success(order))
    before = _rows("SELECT xmin::text, * FROM orders"), state()
    assert apply(success(order), success(order)) == [Kind.DUPLICATE, Kind.DUPLICATE]
    assert (_rows("SELECT xmin::text, * FROM orders"), state()) == before


def test_a_late_failure_leaves_a_confirmed_order_confirmed_and_its_id_on_record() -> None:
    order = pending_order()
    apply(success(order))
    assert apply(failure(order, "late-failure-001")) == [Kind.CONTRADICTION]
    assert state() == confirmed(order, f"{order}:payment", "late-failure-001")


def test_a_late_success_leaves_a_cancelled_order_cancelled() -> None:
    order = pending_order()
    apply(failure(order))
    assert apply(success(order, "late-success-001")) == [Kind.CONTRADICTION]
    assert state() == cancelled(order, f"{order}:payment", "late-success-001")


def test_another_event_that_agrees_is_no_contradiction() -> None:
    order = pending_order()
    apply(success(order))
    assert apply(success(order, "again-001")) == [Kind.TERMINAL]
    assert state() == confirmed(order, f"{order}:payment", "again-001")


def test_of_two_events_in_one_batch_the_first_polled_wins() -> None:
    order = pending_order()
    assert apply(failure(order, "b-first"), success(order, "a-second")) == [Kind.APPLIED, Kind.CONTRADICTION]
    assert state() == cancelled(order, "a-second", "b-first")


def test_an_event_for_an_order_not_there_yet_is_to_be_retried_and_leaves_no_row() -> None:
    order, missing = pending_order(), str(new_order_id())
    assert apply(success(missing), success(order)) == [Kind.RETRYING, Kind.APPLIED]
    assert state() == confirmed(order, f"{order}:payment")


def test_an_amount_that_differs_is_parked_and_leaves_the_order_pending() -> None:
    order = pending_order()
    with transaction.atomic():
        (outcome,) = apply_payment_results([success(order, amount_cents=2597)], NOW)
    assert (outcome.kind, outcome.error) == (Kind.PARKED, "amount_differs")
    assert outcome.reason == f"2597 cents were paid, the total of order {order} is 2598"
    assert state() == {"orders": [(order, "pending", "")], "processed_events": [], "outbox": []}


def test_a_parked_event_is_judged_afresh_when_it_comes_again() -> None:
    order = pending_order()
    assert apply(success(order, "e1", 1)) == [Kind.PARKED]
    assert apply(success(order, "e1")) == [Kind.APPLIED]
    assert state() == confirmed(order, "e1")


def test_a_good_event_after_one_with_a_wrong_amount_in_the_same_batch_is_applied() -> None:
    order = pending_order()
    assert apply(success(order, "e1", 1), success(order, "e1"), success(order, "e1", 1)) == [
        Kind.PARKED,
        Kind.APPLIED,
        Kind.DUPLICATE,
    ]
    assert state() == confirmed(order, "e1")


def test_a_wrong_amount_behind_an_event_that_had_ended_before_resolves_nothing() -> None:
    other, order = pending_order(), pending_order()
    apply(success(other, "e1"))
    assert apply(success(order, "e1"), failure(order, "e2", 1), success(order, "e2")) == [
        Kind.DUPLICATE,
        Kind.PARKED,
        Kind.APPLIED,
    ]
    assert apply(success(order, "e1"), success(order, "e3", 1)) == [Kind.DUPLICATE, Kind.TERMINAL]
    assert _rows("SELECT event_id FROM processed_events ORDER BY 1") == [("e1",), ("e2",), ("e3",)]
    pending = pending_order()
    assert apply(success(pending, "e1"), failure(pending, "e4", 1)) == [Kind.DUPLICATE, Kind.PARKED]
    assert _rows("SELECT event_id FROM processed_events ORDER BY 1") == [("e1",), ("e2",), ("e3",)]
    assert Order.objects.get(id=pending).status == "pending"


def test_the_amount_is_not_judged_once_the_order_is_resolved() -> None:
    order = pending_order()
    assert apply(success(order), success(order, "e2", 1)) == [Kind.APPLIED, Kind.TERMINAL]
    assert apply(failure(order, "e3", 1)) == [Kind.CONTRADICTION]
    assert state() == confirmed(order, f"{order}:payment", "e2", "e3")


@pytest.mark.parametrize("strange", ["missing order", "wrong amount"])
def test_an_id_on_record_ends_the_event_whatever_else_it_says(strange: str) -> None:
    order, other = pending_order(), pending_order()
    apply(success(order, "e1"))
    again = success(str(new_order_id()), "e1") if strange == "missing order" else success(other, "e1", 1)
    before = state()
    assert apply(again) == [Kind.DUPLICATE]
    assert state() == before


def test_a_batch_of_a_thousand_orders_resolves_each_once() -> None:
    orders = [pending_order() for _ in range(1000)]
    results: Sequence[PaymentResult] = [
        (success if place % 2 else failure)(order) for place, order in enumerate(orders)
    ]
    assert set(apply(*results, *reversed(results))[:1000]) == {Kind.APPLIED}
    assert ProcessedEvent.objects.count() == 1000
    assert Order.objects.filter(status="confirmed").count() == 500
    assert Order.objects.filter(status="cancelled", reason="amount exceeds limit").count() == 500
    assert len(_rows("SELECT event_id FROM outbox")) == 1000


def test_a_batch_takes_the_same_few_statements_however_large_it_is() -> None:
    few, many = [pending_order() for _ in range(2)], [pending_order() for _ in range(50)]
    counts = []
    for orders in (few, many):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            apply_payment_results([success(order) for order in orders], NOW)
        counts.append([query["sql"].split()[0] for query in queries])
    assert counts[0] == counts[1] == ["SELECT", "INSERT", "SELECT", "UPDATE", "INSERT", "NOTIFY"]


def test_orders_are_locked_in_the_order_of_their_ids() -> None:
    orders = [pending_order() for _ in range(3)]
    with CaptureQueriesContext(connection) as queries:
        apply_payment_results([success(order) for order in reversed(orders)], NOW)
    (lock,) = [query["sql"] for query in queries if "FOR UPDATE" in query["sql"]]
    assert lock.endswith('ORDER BY "orders"."id" ASC FOR UPDATE')


def test_nothing_of_a_batch_stays_when_its_transaction_does_not() -> None:
    order = pending_order()
    with transaction.atomic():
        apply_payment_results([success(order)], NOW)
        transaction.set_rollback(True)
    # the savepoint is gone, the order stays as it was
    assert state() == {"orders": [(order, "pending", "")], "processed_events": [], "outbox": []}
