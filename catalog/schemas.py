"""The catalogue on the wire."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from catalog.models import Product
from shopmicro.messaging.event import is_uuid

MAX_PAGE = 100


def _lower_uuid(text: str) -> str:
    if not is_uuid(text):
        raise PydanticCustomError("uuid", "Input should be a UUID of the form 8-4-4-4-12")
    return text.lower()


Uuid = Annotated[str, AfterValidator(_lower_uuid), WithJsonSchema({"type": "string", "format": "uuid"})]


class Page(BaseModel):
    """Where a page of products begins and how long it is."""

    cursor: Uuid | None = Field(None, description="The `next_cursor` of the page before.")
    limit: int = Field(MAX_PAGE, ge=1, le=MAX_PAGE)


class ProductOut(BaseModel):
    """A product. `stock` is how many are left, null where they are not counted."""

    id: Uuid
    name: str
    price_cents: int
    currency: str
    stock: int | None

    @classmethod
    def of(cls, product: Product, currency: str) -> "ProductOut":
        """Put a product on the wire; the shop has one currency."""
        return cls(
            id=str(product.id),
            name=product.name,
            price_cents=product.price_cents,
            currency=currency,
            stock=product.stock,
        )


class ProductsOut(BaseModel):
    """A page of products, in the order of their ids. `next_cursor` is null on the last page."""

    products: list[ProductOut]
    next_cursor: Uuid | None
