"""Orders on the wire."""

from datetime import datetime
from typing import Annotated, Literal

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from orders.models import MAX_QUANTITY
from orders.queries import OrderPage, OrderView
from shopmicro.messaging.event import format_time, is_uuid

MAX_ITEMS = 100
MAX_PAGE = 100

Status = Literal["ORDER_STATUS_PENDING", "ORDER_STATUS_CONFIRMED", "ORDER_STATUS_CANCELLED"]
_PREFIX = "ORDER_STATUS_"
_ON_THE_WIRE: dict[str, Status] = {
    "pending": "ORDER_STATUS_PENDING",
    "confirmed": "ORDER_STATUS_CONFIRMED",
    "cancelled": "ORDER_STATUS_CANCELLED",
}


def _lower_uuid(text: str) -> str:
    if not is_uuid(text):
        raise PydanticCustomError("uuid", "Input should be a UUID of the form 8-4-4-4-12")
    return text.lower()


def _customer(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "Input should not be blank")
    if "\0" in text:
        raise PydanticCustomError("nul", "Input should not hold NUL")
    return text


def _address(text: str) -> str:
    try:
        validate_email(text)
    except ValidationError as error:
        raise PydanticCustomError("email", "Input should be an email address") from error
    return text


_UUID_SCHEMA = WithJsonSchema({"type": "string", "format": "uuid"})
Uuid = Annotated[str, AfterValidator(_lower_uuid), _UUID_SCHEMA]
OrderId = Annotated[str, _UUID_SCHEMA]
CustomerId = Annotated[
    str, Field(min_length=1, max_length=255, examples=["cust-1"]), AfterValidator(_customer)
]
Email = Annotated[str, Field(max_length=254, json_schema_extra={"format": "email"}), AfterValidator(_address)]
Time = Annotated[
    datetime,
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class LineIn(BaseModel):
    """So many of a product. Lines of the same product are merged."""

    model_config = ConfigDict(extra="forbid", strict=True)

    product_id: Uuid = Field(examples=["8f14e45f-ceea-4c9d-b2a5-0c1e3f4a9b21"])
    quantity: int = Field(ge=1, le=MAX_QUANTITY, examples=[2])


class OrderIn(BaseModel):
    """An order to be placed. `email` is where to tell the customer; it is never answered."""

    model_config = ConfigDict(extra="forbid", strict=True)

    customer_id: CustomerId
    email: Email | None = None
    items: list[LineIn] = Field(min_length=1, max_length=MAX_ITEMS)


class OrderFilters(BaseModel):
    """Which orders, and where a page of them begins."""

    customer_id: CustomerId | None = None
    status: Status | None = None
    cursor: Uuid | None = Field(None, description="The `next_cursor` of the page before.")
    limit: int = Field(20, ge=1, le=MAX_PAGE)

    @property
    def stored_status(self) -> str | None:
        """The status as the table has it."""
        return None if self.status is None else self.status.removeprefix(_PREFIX).lower()


class ItemOut(BaseModel):
    """One product of an order, at the price that it had when the order was placed."""

    product_id: Uuid
    quantity: int
    unit_price_cents: int


class OrderOut(BaseModel):
    """An order. `reason` says why it was cancelled and is empty otherwise."""

    id: Uuid
    customer_id: str
    status: Status
    total_cents: int
    currency: str
    items: list[ItemOut]
    reason: str
    created_at: Time
    updated_at: Time

    @classmethod
    def of(cls, order: OrderView) -> "OrderOut":
        """Put an order on the wire."""
        return cls.model_construct(
            id=order.id,
            customer_id=order.customer_id,
            status=_ON_THE_WIRE[order.status],
            total_cents=order.total_cents,
            currency=order.currency,
            items=[ItemOut.model_construct(**item._asdict()) for item in order.items],
            reason=order.reason,
            created_at=order.created_at,
            updated_at=order.updated_at,
        )


class OrdersOut(BaseModel):
    """A page of orders, newest first. A page filtered by status may be short while `next_cursor` is set."""

    orders: list[OrderOut]
    next_cursor: Uuid | None

    @classmethod
    def of(cls, page: OrderPage) -> "OrdersOut":
        """Put a page on the wire."""
        return cls.model_construct(
            orders=[OrderOut.of(order) for order in page.orders], next_cursor=page.next_cursor
        )
