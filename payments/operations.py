"""Charging orders: the intent first, the gateway's answer after, each in a transaction of its own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection, transaction

from payments import events
from payments.gateway import Charge
from payments.models import Payment
from payments.queries import find_payments
from shopmicro.messaging.event import MAX_REASON_LENGTH, Event
from shopmicro.messaging.handler import APPLIED, DUPLICATE, Outcome, parked
from shopmicro.messaging.outbox import publish

_START_PAYMENTS = """
INSERT INTO payments (order_id, event_id, amount_cents, currency)
SELECT order_id, event_id, amount_cents, %s
FROM unnest(%s::uuid[], %s::text[], %s::bigint[]) AS started (order_id, event_id, amount_cents)
ORDER BY order_id
ON CONFLICT ON CONSTRAINT payments_order_unique DO NOTHING
"""

_SETTLE_PAYMENTS = """
UPDATE payments
SET status = settled.status, reason = settled.reason, reference = settled.reference, updated_at = %s
FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) AS settled (order_id, status, reason, reference)
WHERE payments.order_id = settled.order_id
"""


@dataclass(frozen=True, slots=True)
class NewOrder:
    """An order to be paid, as its ``order.created`` tells it."""

    event_id: str
    order_id: str
    amount_cents: int


def judge_orders(*, orders: Sequence[NewOrder]) -> list[Outcome | None]:
    """Say which orders need no charge: those with a settled payment, and the second of two in the batch.

    An order whose payment, settled or not, is of another amount is parked: a redelivery is the
    same event, so this is a mistake that neither charging nor skipping would put right.
    """
    payments = find_payments({order.order_id for order in orders})
    amounts = {order_id: payment.amount_cents for order_id, payment in payments.items()}
    taken = {order_id for order_id, payment in payments.items() if payment.is_settled}
    outcomes: list[Outcome | None] = []
    for order in orders:
        amount = amounts.setdefault(order.order_id, order.amount_cents)
        outcomes.append(_judge(order, amount, order.order_id in taken))
        taken.add(order.order_id)
    return outcomes


def start_payments(*, orders: Sequence[NewOrder]) -> dict[str, Payment]:
    """Commit the intent to charge each order, where there is none, before any gateway is called.

    Gives the payments as they stand, by order id; one may be of another amount, or settled by now.
    """
    if not orders:
        return {}
    columns = (
        [order.order_id for order in orders],
        [events.payment_event_id(order.event_id) for order in orders],
        [order.amount_cents for order in orders],
    )
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(_START_PAYMENTS, (settings.CURRENCY, *columns))
    return find_payments(columns[0])


def record_results(*, results: Sequence[tuple[NewOrder, Charge | None]], now: datetime) -> list[Outcome]:
    """Settle payments by the gateway's answers and tell of it, in the caller's transaction.

    Gives one outcome for each. Rows are locked in the order of their orders' ids; one that
    another worker settled meanwhile is a duplicate, of which nothing is told again. The answer
    is None where the gateway was not asked. ``now`` is when they are settled, in UTC.
    """
    locked = Payment.objects.among([order.order_id for order, _ in results]).locked()
    payments = {str(payment.order_id): payment for payment in locked}
    outcomes, settled = [], []
    for order, charge in results:
        payment = payments[order.order_id]
        outcome = _judge(order, payment.amount_cents, payment.is_settled)
        if outcome is None:
            assert charge is not None, f"{payment} is open, and its gateway was not asked"
            settled.append((order, _settle(payment, charge)))
        outcomes.append(outcome or APPLIED)
    _write([payment for _, payment in settled], now)
    publish(events.TOPIC, [_event_of(order, payment, now) for order, payment in settled])
    return outcomes


def _judge(order: NewOrder, amount_cents: int, taken: bool) -> Outcome | None:
    if order.amount_cents != amount_cents:
        return parked(
            "amount_differs",
            f"the payment of order {order.order_id} is of {amount_cents} cents, not of {order.amount_cents}",
        )
    return DUPLICATE if taken else None


def _settle(payment: Payment, charge: Charge) -> Payment:
    payment.status = Payment.Status.SUCCEEDED if charge.approved else Payment.Status.FAILED
    payment.reason = "" if charge.approved else _tellable(charge.reason)
    payment.reference = _tellable(charge.reference)
    return payment


def _tellable(text: str) -> str:
    """Make a gateway's text one that an event may carry and a row may hold."""
    return text.replace("\0", "").encode(errors="replace").decode()[:MAX_REASON_LENGTH]


def _write(payments: Iterable[Payment], now: datetime) -> None:
    rows = [(str(row.order_id), row.status, row.reason, row.reference) for row in payments]
    if not rows:
        return
    with connection.cursor() as cursor:
        cursor.execute(_SETTLE_PAYMENTS, (now, *map(list, zip(*rows, strict=True))))


def _event_of(order: NewOrder, payment: Payment, now: datetime) -> Event:
    if payment.status == Payment.Status.SUCCEEDED:
        return events.payment_succeeded(
            cause_id=order.event_id,
            order_id=order.order_id,
            amount_cents=payment.amount_cents,
            occurred_at=now,
        )
    return events.payment_failed(
        cause_id=order.event_id,
        order_id=order.order_id,
        amount_cents=payment.amount_cents,
        reason=payment.reason,
        occurred_at=now,
    )
