"""Wiring of the messaging app."""

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from shopmicro.messaging import faults


class MessagingConfig(AppConfig):
    """The path of an event."""

    name = "shopmicro.messaging"
    label = "messaging"
    verbose_name = "Messaging"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Arm the crash point, in a test system only."""
        if settings.CRASH_POINT and not settings.TEST_SYSTEM:
            raise ImproperlyConfigured("CRASH_POINT is for a system with TEST_SYSTEM=true: unset it")
        try:
            faults.arm(settings.CRASH_POINT)
        except faults.UnknownPoint as mistake:
            raise ImproperlyConfigured(str(mistake)) from mistake
