"""Payments in the admin: to look at, not to change."""

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin  # type: ignore[import-untyped]
from unfold.decorators import display  # type: ignore[import-untyped]

from payments.models import Payment
from shopmicro.messaging.event import is_uuid

COUNTED = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than ``COUNTED`` rows: on a big table a full count takes seconds."""

    @cached_property
    def count(self) -> int:
        """How many rows there are to page through."""
        payments: Any = self.object_list
        return int(payments.order_by()[:COUNTED].count())


@admin.register(Payment)
class PaymentAdmin(ModelAdmin):  # type: ignore[misc]
    """Payments are written by ``runpayments`` alone."""

    list_display = ("order_id", "shown_status", "amount", "reason", "reference", "created_at", "updated_at")
    search_fields = ("order_id",)
    search_help_text = "A whole order id"
    sortable_by = ()
    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50
    fields = (
        "order_id",
        "event_id",
        "shown_status",
        "amount",
        "reason",
        "reference",
        "created_at",
        "updated_at",
    )
    readonly_fields = fields

    @display(  # type: ignore[untyped-decorator]
        description="status", label={"started": "warning", "succeeded": "success", "failed": "danger"}
    )
    def shown_status(self, payment: Payment) -> str:
        """Where the payment stands."""
        return payment.status

    @display(description="amount")  # type: ignore[untyped-decorator]
    def amount(self, payment: Payment) -> str:
        """What is charged."""
        return f"{payment.amount_cents // 100:,}.{payment.amount_cents % 100:02} {payment.currency}"

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Payments begin with an order."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        """What the gateway said stays."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Payment | None = None) -> bool:
        """Payments are kept."""
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Filter by nothing: a column without an index is a scan of a big table."""
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Payment], search_term: str
    ) -> tuple[QuerySet[Payment], bool]:
        """Find by whole order id, which has an index."""
        term = search_term.strip()
        if is_uuid(term):
            return queryset.filter(order_id=term), False
        return (queryset.none() if term else queryset), False
