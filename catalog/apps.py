"""Wiring of the catalog app."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    """The catalog app."""

    name = "catalog"
    default_auto_field = "django.db.models.BigAutoField"
