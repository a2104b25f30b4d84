"""The two guards: what a batch of payment results does to its orders."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from django.db import connection
from django.db.models import TextField
from django.db.models.functions import Cast

from orders import events
from orders.models import Order
from payments.events import PaymentResult
from shopmicro.messaging import faults
from shopmicro.messaging.event import Event
from shopmicro.messaging.handler import (
    APPLIED,
    CONTRADICTION,
    DUPLICATE,
    TERMINAL,
    Outcome,
    parked,
    retrying,
)
from shopmicro.messaging.outbox import publish

_READ_ORDERS = """
SELECT id::text, status, total_cents, customer_id FROM orders WHERE id = ANY(%b::uuid[])
"""

_RECORD_EVENTS = """
INSERT INTO processed_events (event_id)
SELECT event_id FROM unnest(%b::text[]) AS event (event_id) ORDER BY event_id COLLATE "C"
ON CONFLICT DO NOTHING
RETURNING event_id
"""

_FORGET_EVENTS = "DELETE FROM processed_events WHERE event_id = ANY(%b::text[])"

_PROCESSED = "SELECT event_id FROM processed_events WHERE event_id = ANY(%b::text[])"

# Without its second condition the planner scans the whole table for the join.
_RESOLVE_ORDERS = """
UPDATE orders SET status = resolved.status, reason = resolved.reason, updated_at = %s
FROM unnest(%b::uuid[], %b::text[], %b::text[]) AS resolved (id, status, reason)
WHERE orders.id = resolved.id AND orders.id = ANY(%b::uuid[])
"""


class OrderRow(NamedTuple):
    """What is read of an order at the start of the batch."""

    id: str
    status: str
    total_cents: int
    customer_id: str


@dataclass(slots=True)
class Judgement:
    """The first look at a batch: which results may count, and which are to be set aside.

    ``outcomes`` is None for those that may count and for the second of two with one id.
    ``candidates`` are, in polled order, the places of the results whose ids are to be recorded:
    those that may resolve their order and those that find it resolved.
    """

    outcomes: list[Outcome | None]
    candidates: list[int] = field(default_factory=list)


def apply_payment_results(results: Sequence[PaymentResult], now: datetime) -> list[Outcome]:
    """Apply payment results, in polled order, in the caller's transaction; one outcome each.

    Guard 1 records each event's id, once for ever: an id that was there already ends the event.
    Guard 2 locks the orders, in the order of their ids, and lets only a pending one change: the
    first valid result wins. Locks are taken on event ids first, then on orders, each sorted, so
    that two workers cannot deadlock. ``now`` is when the orders are resolved, in UTC.
    """
    orders = _read_orders({result.order_id for result in results})
    judgement = _judge(results, orders, handled=set())
    wanted = {results[place].event_id for place in judgement.candidates}
    recorded = _record_events(wanted)
    faults.reach("after-dedupe-insert")
    if recorded != wanted:
        judgement = _judge(results, orders, handled=wanted - recorded)
        recorded = _keep_records(recorded, {results[place].event_id for place in judgement.candidates})
    fresh = judgement.candidates
    statuses = _lock_orders({results[place].order_id for place in fresh})
    winners = _resolve(results, fresh, statuses, judgement.outcomes)
    _write(winners, orders, now)
    _end_duplicates(results, judgement.outcomes, recorded)
    return [DUPLICATE if outcome is None else outcome for outcome in judgement.outcomes]


def _read_orders(ids: set[str]) -> dict[str, OrderRow]:
    with connection.cursor() as cursor:
        cursor.execute(_READ_ORDERS, (list(ids),))
        return {row[0]: OrderRow(*row) for row in cursor.fetchall()}


def _judge(results: Sequence[PaymentResult], orders: dict[str, OrderRow], handled: set[str]) -> Judgement:
    """Judge a batch by what was read of its orders; ids in ``handled`` are known to have ended before."""
    judgement = Judgement([None] * len(results))
    seen = set(handled)
    resolved = {order.id for order in orders.values() if order.status != Order.Status.PENDING}
    for place, result in enumerate(results):
        if result.event_id in seen:
            continue
        order = orders.get(result.order_id)
        if order is None:
            judgement.outcomes[place] = _unknown_order(result)
        elif order.id not in resolved and result.amount_cents != order.total_cents:
            judgement.outcomes[place] = _amount_differs(result, order)
        else:
            seen.add(result.event_id)
            resolved.add(order.id)
            judgement.candidates.append(place)
    return judgement


def _record_events(ids: set[str]) -> set[str]:
    if not ids:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(_RECORD_EVENTS, (list(ids),))
        return {event_id for (event_id,) in cursor.fetchall()}


def _keep_records(recorded: set[str], judged: set[str]) -> set[str]:
    """Take back the records of ids that are candidates no more, now that the handled ones are known.

    One such: a wrong amount behind an event that seemed to resolve the order, and had ended before.
    """
    if recorded - judged:
        with connection.cursor() as cursor:
            cursor.execute(_FORGET_EVENTS, (list(recorded - judged),))
    return recorded & judged


def _lock_orders(ids: set[str]) -> dict[str, str]:
    if not ids:
        return {}
    locked = Order.objects.among(list(ids)).locked().annotate(key=Cast("id", TextField()))
    return dict(locked.values_list("key", "status"))


def _resolve(
    results: Sequence[PaymentResult],
    fresh: Sequence[int],
    statuses: dict[str, str],
    outcomes: list[Outcome | None],
) -> list[PaymentResult]:
    winners = []
    for place in fresh:
        result = results[place]
        status = Order.Status.CONFIRMED if result.succeeded else Order.Status.CANCELLED
        if statuses[result.order_id] == Order.Status.PENDING:
            statuses[result.order_id] = status
            winners.append(result)
            outcomes[place] = APPLIED
        else:
            outcomes[place] = TERMINAL if statuses[result.order_id] == status else CONTRADICTION
    return winners


def _write(winners: Sequence[PaymentResult], orders: dict[str, OrderRow], now: datetime) -> None:
    if not winners:
        return
    ids = [winner.order_id for winner in winners]
    statuses = [Order.Status.CONFIRMED if winner.succeeded else Order.Status.CANCELLED for winner in winners]
    with connection.cursor() as cursor:
        cursor.execute(
            _RESOLVE_ORDERS,
            (now, ids, [status.value for status in statuses], [winner.reason for winner in winners], ids),
        )
    faults.reach("after-order-update")
    publish(events.TOPIC, [_event_of(winner, orders[winner.order_id], now) for winner in winners])


def _event_of(winner: PaymentResult, order: OrderRow, now: datetime) -> Event:
    if winner.succeeded:
        return events.order_confirmed(
            order_id=order.id,
            customer_id=order.customer_id,
            amount_cents=order.total_cents,
            occurred_at=now,
        )
    return events.order_cancelled(
        order_id=order.id,
        customer_id=order.customer_id,
        amount_cents=order.total_cents,
        reason=winner.reason,
        occurred_at=now,
    )


def _end_duplicates(
    results: Sequence[PaymentResult], outcomes: list[Outcome | None], recorded: set[str]
) -> None:
    """Let a result that would be set aside end as a duplicate if its id was handled before this batch."""
    set_aside = [place for place, outcome in enumerate(outcomes) if outcome and outcome.is_set_aside]
    if not set_aside:
        return
    with connection.cursor() as cursor:
        cursor.execute(_PROCESSED, ([results[place].event_id for place in set_aside],))
        processed = {event_id for (event_id,) in cursor.fetchall()} - recorded
    for place in set_aside:
        if results[place].event_id in processed:
            outcomes[place] = DUPLICATE


def _unknown_order(result: PaymentResult) -> Outcome:
    return retrying("unknown_order", f"there is no order {result.order_id} yet")


def _amount_differs(result: PaymentResult, order: OrderRow) -> Outcome:
    return parked(
        "amount_differs",
        f"{result.amount_cents} cents were paid, the total of order {order.id} is {order.total_cents}",
    )
