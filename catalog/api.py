"""The catalogue over HTTP."""

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router
from ninja.errors import ValidationError

from catalog import queries
from catalog.schemas import Page, ProductOut, ProductsOut

router = Router(tags=["products"])


@router.get("", response=ProductsOut, summary="List the products")
def list_products(request: HttpRequest, page: Query[Page]) -> ProductsOut:
    """Give the products in the order of their ids, a page at a time."""
    for name in request.GET.keys() - Page.model_fields:
        raise ValidationError([{"loc": ("query", name), "msg": "There is no such parameter"}])
    products = queries.products_after(page.cursor, page.limit + 1)
    more = len(products) > page.limit
    shown = [ProductOut.of(product, settings.CURRENCY) for product in products[: page.limit]]
    return ProductsOut(products=shown, next_cursor=shown[-1].id if more else None)
