"""Notifications in the admin: to look at, not to change."""

from django.contrib import admin
from unfold.decorators import display

from notifications.models import Notification
from shopmicro.admin import ReadOnlyAdmin


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    """Notifications are written by ``runnotifications`` alone; the list shows no addresses."""

    list_display = ("order_id", "kind", "shown_state", "event_id", "error", "created_at", "sent_at")
    search_fields = ("order_id",)
    search_help_text = "A whole order id"
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

    @display(
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
