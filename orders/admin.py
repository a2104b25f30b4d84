"""Orders in the admin: to look at, not to change."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin, TabularInline  # type: ignore[import-untyped]
from unfold.decorators import display  # type: ignore[import-untyped]

from orders.models import Order, OrderItem
from shopmicro.messaging.event import is_uuid

COUNTED = 10_000
FILTERED = 100_000
_FIRST_ID = UUID(int=0)


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than ``COUNTED`` rows: on a big table a full count takes seconds."""

    @cached_property
    def count(self) -> int:
        """How many rows there are to page through."""
        orders: Any = self.object_list
        return int(orders.order_by()[:COUNTED].count())


class StatusFilter(admin.SimpleListFilter):
    """Filters the newest ``FILTERED`` orders: no index knows the status, and a scan must end."""

    title = f"status (of the newest {FILTERED:,})"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Offer each status."""
        return [(status.value, str(status.label)) for status in Order.Status]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Order]) -> QuerySet[Order]:
        """Keep the orders of the chosen status."""
        if self.value() not in Order.Status.values:
            return queryset
        oldest = Order.objects.order_by("-id").values_list("id", flat=True)[FILTERED - 1 : FILTERED].first()
        return queryset.filter(status=self.value(), id__gte=oldest or _FIRST_ID)


class ItemInline(TabularInline):  # type: ignore[misc]
    """What was ordered."""

    model = OrderItem
    fields = ("product_id", "quantity", "unit_price", "line_total")
    readonly_fields = fields
    can_delete = False
    extra = 0

    @display(description="unit price")  # type: ignore[untyped-decorator]
    def unit_price(self, item: OrderItem) -> str:
        """One of it."""
        return _money(item.unit_price_cents, item.order.currency)

    @display(description="total")  # type: ignore[untyped-decorator]
    def line_total(self, item: OrderItem) -> str:
        """All of it."""
        return _money(item.unit_price_cents * item.quantity, item.order.currency)


@admin.register(Order)
class OrderAdmin(ModelAdmin):  # type: ignore[misc]
    """Nothing of an order can be changed by hand.

    Its status and money belong to the saga, and saving a form writes every column: an order
    resolved while the form was open would go back to pending.
    """

    list_display = ("id", "customer_id", "shown_status", "total", "reason", "created_at")
    list_filter = (StatusFilter,)
    search_fields = ("id", "customer_id")
    search_help_text = "A whole order id or a whole customer id"
    sortable_by = ()
    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50
    fields = (
        "id",
        "customer_id",
        "email",
        "shown_status",
        "reason",
        "total",
        "created_at",
        "updated_at",
    )
    readonly_fields = fields
    inlines = (ItemInline,)

    @display(  # type: ignore[untyped-decorator]
        description="status", label={"pending": "warning", "confirmed": "success", "cancelled": "danger"}
    )
    def shown_status(self, order: Order) -> str:
        """Where the order stands."""
        return order.status

    @display(description="total")  # type: ignore[untyped-decorator]
    def total(self, order: Order) -> str:
        """What the order costs."""
        return _money(order.total_cents, order.currency)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Orders come over the API."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        """Orders are changed by the saga."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        """Orders are kept."""
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Filter by the filters only: any other column of a big table has no index."""
        return lookup == StatusFilter.parameter_name

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Order], search_term: str
    ) -> tuple[QuerySet[Order], bool]:
        """Find by whole id or whole customer id, which have indexes."""
        term = search_term.strip()
        if is_uuid(term):
            return queryset.filter(id=term), False
        return (queryset.filter(customer_id=term) if term else queryset), False


def _money(cents: int, currency: str) -> str:
    return f"{cents // 100:,}.{cents % 100:02} {currency}"
