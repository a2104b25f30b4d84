"""Waiting for the database or the broker to come back, and saying so once, not at every try."""

from collections.abc import Callable
from time import monotonic

import structlog

from shopmicro.messaging import metrics
from shopmicro.messaging.retry import Backoff

log = structlog.get_logger(__name__)

_SAY_AGAIN_SECONDS = 60.0


class Outage:
    """What a worker remembers of an outage: how often it has tried, and what it has said.

    It is said when an outage begins, when its error changes, once a minute while it lasts, and
    when it is over.
    """

    def __init__(self, worker: str, backoff: Backoff, clock: Callable[[], float] = monotonic) -> None:
        self._worker = worker
        self._backoff = backoff
        self._clock = clock
        self._failures = 0
        self._said = ""
        self._say_again_at = 0.0

    def failed(self, error: Exception) -> float:
        """Take note of a failure; gives how many seconds to wait before the next try."""
        self._failures += 1
        if self._failures == 1:
            metrics.OUTAGES.labels(self._worker).inc()
        sentence = " ".join(str(error).split())
        if sentence != self._said or self._clock() >= self._say_again_at:
            self._said, self._say_again_at = sentence, self._clock() + _SAY_AGAIN_SECONDS
            log.warning(
                "waiting for the database or the broker",
                worker=self._worker,
                failures=self._failures,
                error=sentence,
            )
        return self._backoff.delay(self._failures)

    def is_over(self) -> None:
        """Take note that the work goes on."""
        if self._failures:
            log.info("works again", worker=self._worker, after_failures=self._failures)
        self._failures, self._said = 0, ""
