"""The consumer group ``order-saga``: payment results resolve orders."""

from collections.abc import Sequence
from typing import Any

from django.utils import timezone

from orders.saga import apply_payment_results
from payments import events
from payments.events import PaymentResult
from shopmicro.messaging.handler import Group, Outcome, register


def resolve_orders(results: Sequence[PaymentResult], prepared: Sequence[Any]) -> list[Outcome]:
    """Apply a batch of payment results; see `apply_payment_results`."""
    return apply_payment_results(results, timezone.now())


SAGA = Group(
    name="order-saga",
    topics=(events.TOPIC,),
    types={events.SUCCEEDED: events.parse_succeeded, events.FAILED: events.parse_failed},
    apply=resolve_orders,
)

register(SAGA)
