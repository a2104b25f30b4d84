"""The consumer group ``payment-processor``: new orders are charged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.utils import timezone

from orders import events
from payments.gateway import Charge, Gateway, GatewayUnavailable, configured_gateway
from payments.models import Payment
from payments.operations import NewOrder, judge_orders, record_results, start_payments
from shopmicro.messaging.event import Event, Malformed, amount_member, order_member
from shopmicro.messaging.handler import Call, Group, Outcome, register, retrying

log = structlog.get_logger(__name__)


def parse_created(event: Event) -> NewOrder:
    """Read an ``order.created``. Raises `Malformed`."""
    order_id, amount = order_member(event), amount_member(event.payload)
    if event.id != event.aggregate_id:
        raise Malformed("the id of an order.created is not its aggregate_id")
    return NewOrder(event.id, order_id, amount)


@dataclass(frozen=True, slots=True)
class Charging:
    """The steps of the group. ``gateway`` makes the gateway of a batch, ``now`` gives the time in UTC."""

    gateway: Callable[[], Gateway]
    now: Callable[[], datetime]

    def admit(self, orders: Sequence[NewOrder]) -> Sequence[Outcome | None]:
        """End the orders that are paid, or that the batch holds twice."""
        return judge_orders(orders=orders)

    def prepare(self, orders: Sequence[NewOrder]) -> Sequence[Call]:
        """Commit what is about to be asked, then ask the gateway."""
        payments, gateway = start_payments(orders=orders), self.gateway()
        return [_call(gateway, order, payments[order.order_id]) for order in orders]

    def apply(
        self, orders: Sequence[NewOrder], answers: Sequence[Charge | Exception | None]
    ) -> Sequence[Outcome]:
        """Record the answers; an order whose gateway gave none is tried again, and only that one."""
        failures = [_failure(order, answer) for order, answer in zip(orders, answers, strict=True)]
        answered = [
            (order, answer)
            for order, answer in zip(orders, answers, strict=True)
            if not isinstance(answer, Exception)
        ]
        recorded = iter(record_results(results=answered, now=self.now()))
        return [failure or next(recorded) for failure in failures]


def payment_processor(
    gateway: Callable[[], Gateway] = configured_gateway, now: Callable[[], datetime] = timezone.now
) -> Group:
    """Make the group that charges new orders through this gateway."""
    charging = Charging(gateway, now)
    return Group(
        name="payment-processor",
        topics=(events.TOPIC,),
        types={events.CREATED: parse_created},
        admit=charging.admit,
        prepare=charging.prepare,
        apply=charging.apply,
    )


def _call(gateway: Gateway, order: NewOrder, payment: Payment) -> Call:
    if payment.is_settled or payment.amount_cents != order.amount_cents:
        return _ask_nothing

    def ask() -> Charge:
        return gateway.charge(
            idempotency_key=order.event_id,
            order_id=order.order_id,
            amount_cents=payment.amount_cents,
            currency=payment.currency,
        )

    return ask


def _ask_nothing() -> None:
    """Another worker was faster, or the amount is not the payment's: `record_results` tells which."""


def _failure(order: NewOrder, answer: Charge | Exception | None) -> Outcome | None:
    if not isinstance(answer, Exception):
        return None
    if isinstance(answer, GatewayUnavailable):
        return retrying("gateway_unavailable", str(answer), is_outage=True)
    log.error("the gateway broke", order_id=order.order_id, exc_info=answer)
    return retrying("gateway_broke", f"{type(answer).__name__}: {answer}")


register(payment_processor())
