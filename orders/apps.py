"""Wiring of the orders app."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """The orders app."""

    name = "orders"
    default_auto_field = "django.db.models.BigAutoField"
