"""Orders over HTTP."""

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Status
from ninja.errors import HttpError, ValidationError

from orders import operations, queries
from orders.operations import Line, QuantityTooLarge, TotalTooLarge, UnknownProduct
from orders.schemas import OrderFilters, OrderId, OrderIn, OrderOut, OrdersOut
from shopmicro.messaging.event import is_uuid

router = Router(tags=["orders"])


@router.post("", response={201: OrderOut}, summary="Place an order")
def place_order(request: HttpRequest, order: OrderIn, response: HttpResponse) -> Status[OrderOut]:
    """Place an order. It is pending until the payment's result has come: poll the `Location`."""
    try:
        placed = operations.place_order(
            customer_id=order.customer_id,
            email=order.email or "",
            lines=[Line(item.product_id, item.quantity) for item in order.items],
            now=timezone.now(),
        )
    except UnknownProduct as error:
        raise _refused_lines(order, error.product_ids, "product_id", "There is no such product") from error
    except QuantityTooLarge as error:
        raise _refused_lines(order, error.product_ids, "quantity", str(error)) from error
    except TotalTooLarge as error:
        raise _refused(("body", "order", "items"), str(error)) from error
    response["Location"] = f"{request.path}/{placed.id}"
    return Status(201, OrderOut.of(placed))


@router.get("/{order_id}", response=OrderOut, summary="Get an order")
def get_order(request: HttpRequest, order_id: OrderId) -> OrderOut:
    """Give an order as it stands."""
    order = queries.find_order(order_id) if is_uuid(order_id) else None
    if order is None:
        raise HttpError(404, "There is no such order.")
    return OrderOut.of(order)


@router.get("", response=OrdersOut, summary="List orders")
def list_orders(request: HttpRequest, filters: Query[OrderFilters]) -> OrdersOut:
    """Give orders, newest first, a page at a time."""
    for name in request.GET.keys() - OrderFilters.model_fields:
        raise _refused(("query", name), "There is no such parameter")
    page = queries.list_orders(
        customer_id=filters.customer_id,
        status=filters.stored_status,
        cursor=filters.cursor,
        limit=filters.limit,
    )
    return OrdersOut.of(page)


def _refused_lines(
    order: OrderIn, product_ids: frozenset[str], member: str, sentence: str
) -> ValidationError:
    places = [place for place, line in enumerate(order.items) if line.product_id in product_ids]
    return ValidationError(
        [{"loc": ("body", "order", "items", place, member), "msg": sentence} for place in places]
    )


def _refused(place: tuple[str, ...], sentence: str) -> ValidationError:
    return ValidationError([{"loc": place, "msg": sentence}])
