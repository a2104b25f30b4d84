"""Wiring of the payments app."""

from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    """The payments app."""

    name = "payments"
    default_auto_field = "django.db.models.BigAutoField"
