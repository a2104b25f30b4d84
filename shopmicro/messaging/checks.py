"""Mistakes in the configuration, found before a command starts; each says what would be right."""

import re
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.core.management import get_commands

from shopmicro.messaging import faults

TAG = "configuration"

_DAY = 24 * 3600
# The least and the most that a setting may be; None where it has no upper end.
LIMITS: dict[str, tuple[float, float | None]] = {
    "DATABASE_CONN_MAX_AGE": (0, _DAY),
    "TOPIC_PARTITIONS": (1, 10_000),
    "TOPIC_REPLICATION": (1, 100),
    "PAYMENT_LIMIT_CENTS": (0, None),
    "SAGA_BATCH": (1, 100_000),
    "CONSUMER_BATCH": (1, 100_000),
    "NOTIFY_BATCH": (1, 100_000),
    "CONSUMER_BATCH_BYTES": (1, 2**30),
    "CALL_CONCURRENCY": (1, 10_000),
    "RETRY_ATTEMPTS": (2, 2**31 - 1),
    "RETRY_OUTAGE_ATTEMPTS": (2, 2**31 - 1),
    "RETRY_DELAY": (0.001, _DAY),
    "RETRY_MAX_DELAY": (0.001, _DAY),
    "OUTBOX_SHARDS": (1, 1000),
    "OUTBOX_BATCH": (1, 100_000),
    "OUTBOX_POLL_INTERVAL": (0.001, 10),
    "METRICS_PORT": (0, 65_535),
}
CHOICES = {
    "KAFKA_GROUP_PROTOCOL": ("consumer", "classic"),
    "LOG_LEVEL": ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "LOG_FORMAT": ("console", "json"),
}
# The second must not be less than the first.
ORDERED = (("RETRY_ATTEMPTS", "RETRY_OUTAGE_ATTEMPTS"), ("RETRY_DELAY", "RETRY_MAX_DELAY"))


@register(TAG)
def check_configuration(**_: Any) -> list[CheckMessage]:
    """Find every setting that makes no sense."""
    return [
        *_outside_limits(),
        *_in_wrong_order(),
        *_unknown_choices(),
        *_unknown_currency(),
        *_unwanted_crash_point(),
        *_unknown_workers(),
        *_senseless_age(),
    ]


def _outside_limits() -> Iterator[Error]:
    for name, (least, most) in LIMITS.items():
        value = getattr(settings, name)
        if not (least <= value and (most is None or value <= most)):
            upper = "" if most is None else f" and at most {most}"
            yield _error(1, f"{name} is {value}: set it to at least {least}{upper}")


def _in_wrong_order() -> Iterator[Error]:
    for number, (lower, upper) in enumerate(ORDERED, 2):
        least, value = getattr(settings, lower), getattr(settings, upper)
        if value < least:
            yield _error(number, f"{upper} is {value}: set it to at least {lower}, which is {least}")


def _unknown_choices() -> Iterator[Error]:
    for name, choices in CHOICES.items():
        value = getattr(settings, name)
        if value not in choices:
            yield _error(4, f"{name} is {value}: set it to {' or '.join(choices)}")


def _unknown_currency() -> Iterator[Error]:
    if not re.fullmatch("[A-Z]{3}", settings.CURRENCY):
        yield _error(5, f"CURRENCY is {settings.CURRENCY}: set it to three capitals, such as EUR")


def _unwanted_crash_point() -> Iterator[Error]:
    if settings.CRASH_POINT and not settings.TEST_SYSTEM:
        yield _error(6, "CRASH_POINT is for a system with TEST_SYSTEM=true: unset it")
    points = sorted(faults.POINTS)
    if not re.fullmatch(rf"(({'|'.join(points)})(:\d+)?)?", settings.CRASH_POINT):
        wanted = f"one of {', '.join(points)}, with :3 behind it for the third time"
        yield _error(7, f"CRASH_POINT is {settings.CRASH_POINT}: set it to {wanted}")


def _unknown_workers() -> Iterator[Error]:
    known = sorted(name for name in get_commands() if name.startswith("run"))
    for name in settings.WORKERS:
        if name not in known:
            yield _error(8, f"WORKERS names {name}, which is no command: choose of {', '.join(known)}")


def _senseless_age() -> Iterator[Error]:
    days = settings.NOTIFY_MAX_AGE.total_seconds() / _DAY
    if not 0 <= days <= 3650:
        yield _error(9, f"NOTIFY_MAX_AGE is {days:.0f} days: set it to seconds, from 0 to ten years")


def _error(number: int, sentence: str) -> Error:
    return Error(" ".join(sentence.split()), id=f"shopmicro.E{number:03}")
