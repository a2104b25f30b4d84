"""The events that orders emit, on the topic ``orders``."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from shopmicro.messaging.event import Event

TOPIC = "orders"
CREATED = "order.created"
CONFIRMED = "order.confirmed"
CANCELLED = "order.cancelled"


def order_created(
    *,
    order_id: str,
    customer_id: str,
    amount_cents: int,
    items: Sequence[dict[str, Any]],
    occurred_at: datetime,
) -> Event:
    """Tell that an order was placed; ``items`` hold product_id, quantity and unit_price_cents."""
    payload = {
        "order_id": order_id,
        "customer_id": customer_id,
        "amount_cents": amount_cents,
        "items": list(items),
    }
    return Event(order_id, CREATED, order_id, payload, occurred_at)


def order_confirmed(*, order_id: str, customer_id: str, amount_cents: int, occurred_at: datetime) -> Event:
    """Tell that an order's payment succeeded."""
    payload = {"order_id": order_id, "customer_id": customer_id, "amount_cents": amount_cents}
    return Event(f"{order_id}:confirmed", CONFIRMED, order_id, payload, occurred_at)


def order_cancelled(
    *, order_id: str, customer_id: str, amount_cents: int, reason: str, occurred_at: datetime
) -> Event:
    """Tell that an order was given up, and why."""
    payload = {
        "order_id": order_id,
        "customer_id": customer_id,
        "amount_cents": amount_cents,
        "reason": reason,
    }
    return Event(f"{order_id}:cancelled", CANCELLED, order_id, payload, occurred_at)
