"""The outbox and the dead letters, to look at."""

from django.contrib import admin
from unfold.decorators import display

from shopmicro.admin import ReadOnlyAdmin
from shopmicro.messaging.models import DeadLetter, OutboxEvent


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


def _text(value: bytes | memoryview | None) -> str:
    return "" if value is None else bytes(value).decode(errors="backslashreplace")
