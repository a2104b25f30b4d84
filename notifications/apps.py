"""Wiring of the notifications app."""

from importlib import import_module

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    """Mails to customers, and the group that sends them."""

    name = "notifications"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the consumer group."""
        import_module("notifications.handlers")
