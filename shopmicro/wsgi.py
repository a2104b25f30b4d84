"""The web process: ``gunicorn shopmicro.wsgi``."""

import os
import sys

from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

# With this status gunicorn ends too; with any other it would start its workers again, for ever.
CANNOT_START = 3


def refuse(*mistakes: str) -> None:
    """Say what is wrong with the configuration, and end."""
    for mistake in mistakes:
        sys.stderr.write(f"shopmicro: {mistake}; see .env.example\n")
    sys.exit(CANNOT_START)


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shopmicro.settings")
try:
    application = get_wsgi_application()
except ImproperlyConfigured as mistake:
    refuse(str(mistake))
if found := [check.msg for check in run_checks(tags=["configuration"]) if check.is_serious()]:
    refuse(*found)
