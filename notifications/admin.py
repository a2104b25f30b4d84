"""Notifications in the admin: to look at, not to change."""

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin  # type: ignore[import-untyped]
from unfold.decorators import display  # type: ignore[import-untyped]

from notifications.models import Notification
from shopmicro.messaging.event import is_uuid

COUNTED = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than ``COUNTED`` rows: on a big table a full count takes seconds."""

    @cached_property
    def count(self) -> int:
        """How many rows there are to page through."""
        notifications: Any = self.object_list
        return int(notifications.order_by()[:COUNTED].count())


@admin.register(Notification)
class NotificationAdmin(ModelAdmin):  # type: ignore[misc]
    """Notifications are written by ``runnotifications`` alone; the list shows no addresses."""

    list_display = ("order_id", "kind", "shown_state", "event_id", "error", "created_at", "sent_at")
    search_fields = ("order_id",)
    search_help_text = "A whole order id"
    sortable_by = ()
    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50
    fields = (
        "order_id",
        "kind",
        "shown_state",
        "event_id",
        "recipient",
        "error",
        "claimed_until",
        "created_at",
        "updated_at",
        "sent_at",
    )
    readonly_fields = fields

    @display(  # type: ignore[untyped-decorator]
        description="state",
        label={
            "sending": "warning",
            "sent": "success",
            "no_address": "info",
            "suppressed": "info",
            "too_old": "info",
        },
    )
    def shown_state(self, notification: Notification) -> str:
        """What became of it."""
        return notification.state

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Notifications begin with a payment result."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Notification | None = None) -> bool:
        """What was told stays."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Notification | None = None) -> bool:
        """They keep a mail from being sent again."""
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Filter by nothing: a column without an index is a scan of a big table."""
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Notification], search_term: str
    ) -> tuple[QuerySet[Notification], bool]:
        """Find by whole order id, which has an index."""
        term = search_term.strip()
        if is_uuid(term):
            return queryset.filter(order_id=term), False
        return (queryset.none() if term else queryset), False
