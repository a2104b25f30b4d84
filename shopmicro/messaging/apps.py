"""Wiring of the messaging app."""

from contextlib import suppress
from importlib import import_module

from django.apps import AppConfig
from django.conf import settings

from shopmicro.messaging import faults


class MessagingConfig(AppConfig):
    """The path of an event."""

    name = "shopmicro.messaging"
    label = "messaging"
    verbose_name = "Messaging"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks of the configuration, and arm the crash point of a test system."""
        import_module("shopmicro.messaging.checks")
        if settings.TEST_SYSTEM:
            with suppress(faults.UnknownPoint):  # a check names it
                faults.arm(settings.CRASH_POINT)
