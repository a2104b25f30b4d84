"""Wiring of the messaging app."""

from django.apps import AppConfig


class MessagingConfig(AppConfig):
    """The path of an event."""

    name = "shopmicro.messaging"
    label = "messaging"
    verbose_name = "Messaging"
    default_auto_field = "django.db.models.BigAutoField"
