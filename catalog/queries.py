"""Reads of the catalogue; `prices` is public to the orders."""

from collections.abc import Sequence

from django.db import connection

from catalog.models import Product

_PRICES = "SELECT id::text, price_cents FROM products WHERE id = ANY(%s::uuid[])"


def prices(product_ids: Sequence[str]) -> dict[str, int]:
    """Give the price in cents of each of these products, by id in lower case, in one query.

    An id that no product has is absent.
    """
    with connection.cursor() as cursor:
        cursor.execute(_PRICES, [list(product_ids)])
        return dict(cursor.fetchall())


def products_after(cursor: str | None, limit: int) -> list[Product]:
    """Give up to ``limit`` products in the order of their ids, those after the id ``cursor``."""
    products = Product.objects.order_by("id")
    if cursor is not None:
        products = products.filter(id__gt=cursor)
    return list(products[:limit])
