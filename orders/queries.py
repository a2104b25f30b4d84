"""Reads of orders; `contact` is public to the notifications."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db.models import QuerySet

from orders.models import Order

SCANNED_FOR_STATUS = 10_000


class Item(NamedTuple):
    """One product of an order: its id in lower case, how many, and the price of one in cents."""

    product_id: str
    quantity: int
    unit_price_cents: int


@dataclass(frozen=True, slots=True)
class OrderView:
    """An order with its items, as those who placed it may see it."""

    id: str
    customer_id: str
    status: str
    total_cents: int
    currency: str
    reason: str
    created_at: datetime
    updated_at: datetime
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class OrderPage:
    """Some orders, newest first; ``next_cursor`` is where the next page begins, None at the end."""

    orders: Sequence[OrderView]
    next_cursor: str | None


class Contact(NamedTuple):
    """How to tell a customer of an order, and what of it."""

    email: str
    status: str
    total_cents: int
    customer_id: str
    currency: str


def find_order(order_id: str) -> OrderView | None:
    """Give the order of this id (a UUID, in either case), None where there is none."""
    order = Order.objects.prefetch_related("items").filter(id=order_id).first()
    return None if order is None else _view(order)


def list_orders(
    *, customer_id: str | None = None, status: str | None = None, cursor: str | None = None, limit: int
) -> OrderPage:
    """Give up to ``limit`` orders, newest first, those older than the order ``cursor``.

    No index knows the status. Filtering by it looks through a bounded number of orders a page,
    so such a page may be short, even empty, while there is a next one.
    """
    orders = Order.objects.order_by("-id")
    if customer_id is not None:
        orders = orders.filter(customer_id=customer_id)
    if cursor is not None:
        orders = orders.filter(id__lt=cursor)
    found = _newest(orders, status, limit + 1)
    if len(found) > limit:
        return OrderPage([_view(order) for order in found[:limit]], str(found[limit - 1].id))
    return OrderPage([_view(order) for order in found], _end_of_scan(orders) if status else None)


def contact(order_ids: Sequence[str]) -> dict[str, Contact]:
    """Say for each of these orders, by id in lower case, whom to tell what; in one query.

    An id that no order has is absent; ``email`` is empty where the customer gave none.
    """
    rows = Order.objects.among(list(order_ids)).values_list("id", *Contact._fields)
    return {str(row[0]): Contact(*row[1:]) for row in rows}


def _newest(orders: QuerySet[Order], status: str | None, limit: int) -> list[Order]:
    if status is not None:
        scanned = orders.values("id")[:SCANNED_FOR_STATUS]
        orders = Order.objects.order_by("-id").filter(id__in=scanned, status=status)
    return list(orders.prefetch_related("items")[:limit])


def _end_of_scan(orders: QuerySet[Order]) -> str | None:
    ends = orders.values_list("id", flat=True)[SCANNED_FOR_STATUS - 1 : SCANNED_FOR_STATUS + 1]
    return str(ends[0]) if len(ends) > 1 else None


def _view(order: Order) -> OrderView:
    return OrderView(
        id=str(order.id),
        customer_id=order.customer_id,
        status=order.status,
        total_cents=order.total_cents,
        currency=order.currency,
        reason=order.reason,
        created_at=order.created_at,
        updated_at=order.updated_at,
        items=[
            Item(str(item.product_id), item.quantity, item.unit_price_cents) for item in order.items.all()
        ],
    )
