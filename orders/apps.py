"""Wiring of the orders app."""

from importlib import import_module

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """Orders, and the saga that resolves them."""

    name = "orders"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the consumer group."""
        import_module("orders.handlers")
