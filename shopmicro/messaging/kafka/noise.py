"""What is said of troubles that repeat: a broker that is away is worth a few lines a minute."""

import logging
from functools import cache
from time import monotonic
from typing import Any

import structlog
from confluent_kafka import KafkaError

log = structlog.get_logger(__name__)

_QUIET_SECONDS = 60.0


class Complaints:
    """Logs one trouble once a minute, however often it is heard."""

    def __init__(self) -> None:
        self._said: dict[tuple[object, ...], float] = {}

    def hear(self, event: str, error: KafkaError, **details: Any) -> None:
        """Log a warning, unless the same was logged in the last minute."""
        if self._is_due((event, error.code(), *details.values())):
            log.warning(event, error=error.name(), reason=error.str(), **details)

    def _is_due(self, trouble: tuple[object, ...]) -> bool:
        now = monotonic()
        if now - self._said.get(trouble, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return False
        self._said = {key: said for key, said in self._said.items() if now - said < _QUIET_SECONDS}
        self._said[trouble] = now
        return True


class _OnceAMinute(logging.Filter):
    """Lets a line of librdkafka pass once a minute for each of its facilities (``FAIL``, …)."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        facility = record.args[0] if isinstance(record.args, tuple) and record.args else record.msg
        now = monotonic()
        if now - self._said.get(facility, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return False
        self._said[facility] = now
        return True


@cache
def client_logger() -> logging.Logger:
    """Give the logger that librdkafka's own lines go to."""
    logger = logging.getLogger("shopmicro.librdkafka")
    logger.addFilter(_OnceAMinute())
    return logger
