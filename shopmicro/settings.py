"""All settings, each from the environment; `.env.example` and the README list them."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

from shopmicro.environment import Environment

BASE_DIR = Path(__file__).resolve().parent.parent
env: Any = Environment()  # type: ignore[no-untyped-call]
env.read_env(env.str("ENV_FILE", default=str(BASE_DIR / ".env")))

# --- Django ---------------------------------------------------------------------------------
SECRET_KEY = env.str("SECRET_KEY")
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "ninja",
    "shopmicro.messaging",
    "catalog",
    "orders",
    "payments",
    "notifications",
]
MIDDLEWARE = [
    "shopmicro.problems.problem_middleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "shopmicro.urls"
WSGI_APPLICATION = "shopmicro.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
SESSION_COOKIE_HTTPONLY = True
SECURE_CONTENT_TYPE_NOSNIFF = True
_tls_header = env.str("SECURE_PROXY_SSL_HEADER", default="")
SECURE_PROXY_SSL_HEADER = (f"HTTP_{_tls_header.upper().replace('-', '_')}", "https") if _tls_header else None
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = bool(_tls_header)
UNFOLD = {"SITE_TITLE": "shopmicro", "SITE_HEADER": "shopmicro", "SITE_URL": "/v1/docs"}

# --- PostgreSQL -----------------------------------------------------------------------------
# Seconds and milliseconds. The lock limit keeps a worker's exit within 10 s of SIGTERM, the idle
# limit makes the server take the locks of a frozen process away.
DATABASE_CONN_MAX_AGE = env.int("DATABASE_CONN_MAX_AGE", default=60)
DATABASES: dict[str, Any] = {"default": env.postgres_url("DATABASE_URL")}
DATABASES["default"]["CONN_MAX_AGE"] = DATABASE_CONN_MAX_AGE
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASES["default"].setdefault("OPTIONS", {}).update(
    {
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
        "application_name": "shopmicro",
        "server_side_binding": True,
        "options": "-c lock_timeout=3s -c statement_timeout=30s -c idle_in_transaction_session_timeout=20s",
    }
)

# --- Kafka ----------------------------------------------------------------------------------
KAFKA_BOOTSTRAP_SERVERS = env.str("KAFKA_BOOTSTRAP_SERVERS")
KAFKA_PREFIX = env.str("KAFKA_PREFIX", default="")
KAFKA_GROUP_PROTOCOL = env.str("KAFKA_GROUP_PROTOCOL", default="consumer")
KAFKA_OPTIONS: dict[str, str] = env.dict("KAFKA_OPTIONS", default={})
TOPIC_PARTITIONS = env.int("TOPIC_PARTITIONS", default=6)
TOPIC_REPLICATION = env.int("TOPIC_REPLICATION", default=1)

# --- The shop -------------------------------------------------------------------------------
CURRENCY = env.str("CURRENCY", default="EUR")
PAYMENT_LIMIT_CENTS = env.int("PAYMENT_LIMIT_CENTS", default=100_000)
NOTIFY_MAX_AGE = timedelta(seconds=env.int("NOTIFY_MAX_AGE", default=24 * 3600))
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="orders@localhost")
vars().update(env.mail_url("EMAIL_URL", default="consolemail://"))
EMAIL_TIMEOUT = 5

# --- The workers ----------------------------------------------------------------------------
WORKERS = env.list("WORKERS", default=["runpayments", "runsaga", "runnotifications"])
SAGA_BATCH = env.int("SAGA_BATCH", default=1000)
CONSUMER_BATCH = env.int("CONSUMER_BATCH", default=500)
NOTIFY_BATCH = env.int("NOTIFY_BATCH", default=20)
CONSUMER_BATCH_BYTES = env.int("CONSUMER_BATCH_BYTES", default=8 * 1024 * 1024)
CALL_CONCURRENCY = env.int("CALL_CONCURRENCY", default=64)
RETRY_ATTEMPTS = env.int("RETRY_ATTEMPTS", default=8)
RETRY_OUTAGE_ATTEMPTS = env.int("RETRY_OUTAGE_ATTEMPTS", default=1440)
RETRY_DELAY = env.float("RETRY_DELAY", default=1.0)
RETRY_MAX_DELAY = env.float("RETRY_MAX_DELAY", default=60.0)
OUTBOX_SHARDS = env.int("OUTBOX_SHARDS", default=1)
OUTBOX_BATCH = env.int("OUTBOX_BATCH", default=2000)
OUTBOX_NOTIFY = env.bool("OUTBOX_NOTIFY", default=True)
OUTBOX_POLL_INTERVAL = env.float("OUTBOX_POLL_INTERVAL", default=0.5)
METRICS_ADDRESS = env.str("METRICS_ADDRESS", default="127.0.0.1")
METRICS_PORT = env.int("METRICS_PORT", default=0)

# --- Faults, for tests ----------------------------------------------------------------------
TEST_SYSTEM = env.bool("TEST_SYSTEM", default=False)
CRASH_POINT = env.str("CRASH_POINT", default="")

# --- Logs -----------------------------------------------------------------------------------
LOG_LEVEL = env.str("LOG_LEVEL", default="INFO").upper()
LOG_FORMAT = env.str("LOG_FORMAT", default="console")
_shared_processors: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    structlog.processors.UnicodeDecoder(),
]
structlog.configure(
    processors=[*_shared_processors, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)
_renderer: Any = (
    structlog.processors.JSONRenderer(default=str)
    if LOG_FORMAT == "json"
    else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"], bool_as_flag=False)
)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "structured": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": _shared_processors,
            "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer],
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
    # An unknown level must not keep the system check from naming it.
    "root": {
        "handlers": ["stderr"],
        "level": LOG_LEVEL if LOG_LEVEL in logging.getLevelNamesMapping() else "INFO",
    },
    "loggers": {"django.server": {"handlers": ["stderr"], "propagate": False}},
}
logging.captureWarnings(True)
