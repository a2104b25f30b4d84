#!/usr/bin/env python
"""Django's command line, which says a mistake in the configuration in one line."""

import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    """Read the settings, then run the command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shopmicro.settings")
    try:
        _ = settings.INSTALLED_APPS
    except (ImproperlyConfigured, ValueError) as mistake:
        sys.exit(f"shopmicro: {mistake}; see .env.example")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
