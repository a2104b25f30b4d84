"""Orders in the admin: to look at, not to change."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline
from unfold.decorators import display

from orders.models import Order, OrderItem
from shopmicro.admin import ReadOnlyAdmin, format_money

FILTERED = 100_000
_FIRST_ID = UUID(int=0)


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


class ItemInline(TabularInline):
    """What was ordered."""

    model = OrderItem
    fields = ("product_id", "quantity", "unit_price", "line_total")
    readonly_fields = fields
    can_delete = False
    extra = 0

    @display(description="unit price")
    def unit_price(self, item: OrderItem) -> str:
        """One of it."""
        return format_money(item.unit_price_cents, item.order.currency)

    @display(description="total")
    def line_total(self, item: OrderItem) -> str:
        """All of it."""
        return format_money(item.unit_price_cents * item.quantity, item.order.currency)


@admin.register(Order)
class OrderAdmin(ReadOnlyAdmin):
    """Nothing of an order can be changed by hand: its status and money belong to the saga."""

    list_display = ("id", "customer_id", "shown_status", "total", "reason", "created_at")
    list_filter = (StatusFilter,)
    search_fields = ("id", "customer_id")
    search_help_text = "A whole order id or a whole customer id"
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

    @display(
        description="status", label={"pending": "warning", "confirmed": "success", "cancelled": "danger"}
    )
    def shown_status(self, order: Order) -> str:
        """Where the order stands."""
        return order.status

    @display(description="total")
    def total(self, order: Order) -> str:
        """What the order costs."""
        return format_money(order.total_cents, order.currency)
