"""Wiring of the payments app."""

from importlib import import_module

from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    """Payments, and the group that charges new orders."""

    name = "payments"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the consumer group."""
        import_module("payments.handlers")
