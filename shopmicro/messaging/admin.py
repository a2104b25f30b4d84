"""The outbox and the dead letters, to look at."""

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin

from shopmicro.messaging.models import DeadLetter, OutboxEvent

MANY = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than MANY rows: on a big table a full count takes seconds."""

    @cached_property
    def count(self) -> int:
        return self.object_list.order_by()[:MANY].count()  # type: ignore[union-attr]


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """Rows that the machinery writes and people only read."""

    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(OutboxEvent)
class OutboxEventAdmin(ReadOnlyAdmin):
    """What was told, and what the broker has not acknowledged yet."""

    list_display = ("id", "event_id", "type", "topic", "occurred_at", "published_at", "attempts", "error")
    list_filter = ("topic", ("published_at", admin.EmptyFieldListFilter))
    search_fields = ("event_id__exact", "aggregate_id__exact")
    search_help_text = "Event id or order id, whole"


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    """What could not be handled, and why."""

    list_display = (
        "id",
        "consumer_group",
        "state",
        "error",
        "event_id",
        "topic",
        "partition",
        "offset",
        "created_at",
    )
    list_filter = ("state", "consumer_group", "error")
    search_fields = ("event_id__exact", "aggregate_id__exact")
    search_help_text = "Event id or order id, whole"
    readonly_fields = ("value_text", "headers_text")
    exclude = ("value", "headers", "key")

    @admin.display(description="value")
    def value_text(self, letter: DeadLetter) -> str:
        return "" if letter.value is None else bytes(letter.value).decode(errors="backslashreplace")

    @admin.display(description="headers")
    def headers_text(self, letter: DeadLetter) -> str:
        return bytes(letter.headers).decode()
