"""The events that payments emit, on the topic ``payments``, and what a result of one says."""

from datetime import datetime
from typing import NamedTuple

from shopmicro.messaging.event import MAX_REASON_LENGTH, Event, amount_member, order_member, text_member

TOPIC = "payments"
SUCCEEDED = "payment.succeeded"
FAILED = "payment.failed"


class PaymentResult(NamedTuple):
    """What a payment event says of an order: money came, or it did not and why.

    ``reason`` is empty when the payment succeeded. ``occurred_at`` is in UTC.
    """

    event_id: str
    order_id: str
    amount_cents: int
    succeeded: bool
    reason: str
    occurred_at: datetime


def payment_event_id(cause_id: str) -> str:
    """Name the result of the ``order.created`` of this id: the same cause, the same effect."""
    return f"{cause_id}:payment"


def payment_succeeded(*, cause_id: str, order_id: str, amount_cents: int, occurred_at: datetime) -> Event:
    """Tell that an order was paid."""
    payload = {"order_id": order_id, "amount_cents": amount_cents}
    return Event(payment_event_id(cause_id), SUCCEEDED, order_id, payload, occurred_at)


def payment_failed(
    *, cause_id: str, order_id: str, amount_cents: int, reason: str, occurred_at: datetime
) -> Event:
    """Tell that an order could not be paid, and why."""
    payload = {"order_id": order_id, "amount_cents": amount_cents, "reason": reason}
    return Event(payment_event_id(cause_id), FAILED, order_id, payload, occurred_at)


def parse_succeeded(event: Event) -> PaymentResult:
    """Read a ``payment.succeeded``. Raises `Malformed`."""
    order_id, amount = order_member(event), amount_member(event.payload)
    return PaymentResult(event.id, order_id, amount, True, "", event.occurred_at)


def parse_failed(event: Event) -> PaymentResult:
    """Read a ``payment.failed``. Raises `Malformed`."""
    order_id, amount = order_member(event), amount_member(event.payload)
    reason = text_member(event.payload, "reason", MAX_REASON_LENGTH)
    return PaymentResult(event.id, order_id, amount, False, reason, event.occurred_at)
