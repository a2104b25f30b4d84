"""The outbox and the dead letters to look at, and the base of every admin that only shows."""

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet, UUIDField
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin
from unfold.decorators import display

from shopmicro.messaging.event import is_uuid
from shopmicro.messaging.models import DeadLetter, OutboxEvent

COUNTED = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than ``COUNTED`` rows: on a big table a full count takes seconds."""

    @cached_property
    def count(self) -> int:
        """How many rows there are to page through."""
        rows: Any = self.object_list
        return int(rows.order_by()[:COUNTED].count())


class ReadOnlyAdmin(ModelAdmin):
    """Rows that the machinery writes and people only look at, also when there are millions.

    A search is for a whole value of one of ``search_fields``, which have indexes; a term that is
    a UUID is looked for in the first of them that holds UUIDs.
    """

    sortable_by = ()
    paginator = CappedPaginator
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Rows come from the workers and the API."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Saving a form writes every column: what changed while it was open would be undone."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Rows are kept: most of them keep something from happening twice."""
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Filter by the filters only: any other column of a big table may have no index."""
        return any(lookup.startswith(_parameter(chosen)) for chosen in self.list_filter)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find by a whole value."""
        term = search_term.strip()
        if not term:
            return queryset, False
        for name in self.search_fields:
            holds_uuids = isinstance(self.model._meta.get_field(name), UUIDField)
            if is_uuid(term) or not holds_uuids:
                return queryset.filter(**{name: term}), False
        return queryset.none(), False


def format_money(cents: int, currency: str) -> str:
    """Write an amount in cents as people read it."""
    return f"{cents // 100:,}.{cents % 100:02} {currency}"


@admin.register(OutboxEvent)
class OutboxEventAdmin(ReadOnlyAdmin):
    """What was told, and what the broker has not acknowledged yet."""

    list_display = ("id", "event_id", "type", "topic", "occurred_at", "published_at", "attempts", "error")
    list_filter = (
        ("failing_since", admin.EmptyFieldListFilter),
        ("published_at", admin.EmptyFieldListFilter),
    )
    search_fields = ("aggregate_id", "event_id")
    search_help_text = "A whole order id or a whole event id"


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    """What could not be handled, and why. The body may hold anything that came over the topic."""

    list_display = (
        "id",
        "consumer_group",
        "shown_state",
        "error",
        "reason",
        "event_id",
        "position",
        "created_at",
    )
    list_filter = ("state", "consumer_group", "error")
    search_fields = ("aggregate_id", "event_id")
    search_help_text = "A whole order id or a whole event id"
    exclude = ("key", "value", "headers")
    readonly_fields = ("shown_key", "shown_value", "shown_headers")

    @display(
        description="state",
        label={"retrying": "warning", "parked": "danger", "replayed": "success", "discarded": "info"},
    )
    def shown_state(self, letter: DeadLetter) -> str:
        """Where the letter stands."""
        return letter.state

    @display(description="position")
    def position(self, letter: DeadLetter) -> str:
        """Where the record lies."""
        return f"{letter.topic}[{letter.partition}]@{letter.offset}"

    @display(description="key")
    def shown_key(self, letter: DeadLetter) -> str:
        """The record's key."""
        return _text(letter.key)

    @display(description="value")
    def shown_value(self, letter: DeadLetter) -> str:
        """The record's value."""
        return _text(letter.value)

    @display(description="headers")
    def shown_headers(self, letter: DeadLetter) -> str:
        """The record's headers, their values in base64."""
        return _text(letter.headers)


def _parameter(chosen: Any) -> str:
    """Give what the parameters of an entry of ``list_filter`` begin with."""
    if isinstance(chosen, str | tuple):
        return chosen if isinstance(chosen, str) else chosen[0]
    return str(chosen.parameter_name)


def _text(value: bytes | memoryview | None) -> str:
    return "" if value is None else bytes(value).decode(errors="backslashreplace")
