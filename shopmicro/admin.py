"""The base of every admin that only shows, for the machinery and for the apps."""

from typing import Any
from uuid import UUID

from django.core.paginator import Paginator
from django.db.models import QuerySet, UUIDField
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin

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
            if _is_uuid(term) or not holds_uuids:
                return queryset.filter(**{name: term}), False
        return queryset.none(), False


def format_money(cents: int, currency: str) -> str:
    """Write an amount in cents as people read it."""
    return f"{cents // 100:,}.{cents % 100:02} {currency}"


def _parameter(chosen: Any) -> str:
    """Give what the parameters of an entry of ``list_filter`` begin with."""
    if isinstance(chosen, str | tuple):
        return chosen if isinstance(chosen, str) else chosen[0]
    return str(chosen.parameter_name)


def _is_uuid(term: str) -> bool:
    try:
        return str(UUID(term)) == term.lower()
    except ValueError:
        return False
