"""What is done with orders by those who ask over a door of the shop."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db import connection, transaction

from catalog import queries as catalog
from orders import events
from orders.models import MAX_QUANTITY, MAX_TOTAL_CENTS, Order, new_order_id
from orders.queries import Item, OrderView
from shopmicro.messaging.outbox import publish

_INSERT = """
WITH placed AS (
    INSERT INTO orders (id, customer_id, email, status, total_cents, currency, created_at, updated_at)
    VALUES (%(id)s, %(customer_id)s, %(email)s, %(status)s, %(total_cents)s, %(currency)s, %(now)s, %(now)s)
    RETURNING id
)
INSERT INTO order_items (order_id, product_id, quantity, unit_price_cents)
SELECT placed.id, item.product_id, item.quantity, item.unit_price_cents
FROM placed, unnest(%(products)s::uuid[], %(quantities)s::int[], %(prices)s::bigint[]) WITH ORDINALITY
     AS item (product_id, quantity, unit_price_cents, place)
ORDER BY item.place
"""


class Line(NamedTuple):
    """A wish for so many of a product; the product's id is in lower case."""

    product_id: str
    quantity: int


class OrderRefused(Exception):
    """The shop can't take this order as it was asked for; nothing was written."""


class UnknownProduct(OrderRefused):
    """There are no such products: ``product_ids``. Look them up in the catalogue."""

    def __init__(self, product_ids: frozenset[str]) -> None:
        super().__init__(f"unknown product: {', '.join(sorted(product_ids))}")
        self.product_ids = product_ids


class QuantityTooLarge(OrderRefused):
    """The lines of these products add up to more than one order can hold; ask for fewer."""

    def __init__(self, product_ids: frozenset[str]) -> None:
        super().__init__(f"more than {MAX_QUANTITY} of one product: {', '.join(sorted(product_ids))}")
        self.product_ids = product_ids


class TotalTooLarge(OrderRefused):
    """The order's total is over what an amount can hold; ask for less."""

    def __init__(self) -> None:
        super().__init__(f"the total is over {MAX_TOTAL_CENTS} cents")


def place_order(*, customer_id: str, email: str, lines: Sequence[Line], now: datetime) -> OrderView:
    """Place an order: its row, its items and ``order.created`` are committed together or not at all.

    Lines of the same product become one item, where the first of them stood. Items keep the
    price of this moment. ``email`` is empty where the customer gave none; ``now`` is in UTC.

    Raises UnknownProduct, QuantityTooLarge, TotalTooLarge.
    """
    items = _price(_merge(lines))
    total_cents = sum(item.quantity * item.unit_price_cents for item in items)
    if total_cents > MAX_TOTAL_CENTS:
        raise TotalTooLarge
    order = OrderView(
        id=str(new_order_id()),
        customer_id=customer_id,
        status=Order.Status.PENDING.value,
        total_cents=total_cents,
        currency=settings.CURRENCY,
        reason="",
        created_at=now,
        updated_at=now,
        items=items,
    )
    created = events.order_created(
        order_id=order.id,
        customer_id=customer_id,
        amount_cents=total_cents,
        items=[item._asdict() for item in items],
        occurred_at=now,
    )
    with transaction.atomic(durable=True):
        _insert(order, email)
        publish(events.TOPIC, [created])
    return order


def _merge(lines: Sequence[Line]) -> dict[str, int]:
    quantities: dict[str, int] = {}
    for product_id, quantity in lines:
        quantities[product_id] = quantities.get(product_id, 0) + quantity
    too_large = frozenset(
        product_id for product_id, quantity in quantities.items() if quantity > MAX_QUANTITY
    )
    if too_large:
        raise QuantityTooLarge(too_large)
    return quantities


def _price(quantities: dict[str, int]) -> list[Item]:
    prices = catalog.prices(list(quantities))
    unknown = quantities.keys() - prices.keys()
    if unknown:
        raise UnknownProduct(frozenset(unknown))
    return [Item(product_id, quantity, prices[product_id]) for product_id, quantity in quantities.items()]


def _insert(order: OrderView, email: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            _INSERT,
            {
                "id": order.id,
                "customer_id": order.customer_id,
                "email": email,
                "status": order.status,
                "total_cents": order.total_cents,
                "currency": order.currency,
                "now": order.created_at,
                "products": [item.product_id for item in order.items],
                "quantities": [item.quantity for item in order.items],
                "prices": [item.unit_price_cents for item in order.items],
            },
        )
