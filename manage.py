#!/usr/bin/env python
"""Django's command line, which says a mistake in the configuration in one line."""

import os
import sys

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    """Read the settings and set the apps up, then run the command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shopmicro.settings")
    try:
        django.setup()
    except (ImproperlyConfigured, ValueError) as mistake:
        sys.exit(f"shopmicro: {mistake}; see .env.example")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
