"""The web process: ``gunicorn shopmicro.wsgi``."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shopmicro.settings")
try:
    application = get_wsgi_application()
except ImproperlyConfigured as mistake:
    sys.exit(f"shopmicro: {mistake}; see .env.example")
