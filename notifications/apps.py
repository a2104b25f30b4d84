"""Wiring of the notifications app."""

from django.apps import AppConfig


class NotificationsConfig(AppConfig):
    """The notifications app."""

    name = "notifications"
    default_auto_field = "django.db.models.BigAutoField"
