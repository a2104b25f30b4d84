"""Is the process alive, and can it reach what it needs?

`/healthz` is for whoever restarts the process or sends it requests. `/readyz` asks the database
and the broker too; orders are still taken while the broker is away, so it is for deployments
and people, not for a load balancer.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from threading import Lock, Thread

import structlog
from django.db import DEFAULT_DB_ALIAS, connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from shopmicro.messaging.kafka import KafkaAdmin, KafkaConfig
from shopmicro.problems import problem

log = structlog.get_logger(__name__)

ANSWER_WITHIN = 3.0
FRESH_FOR = 5.0


class Probe:
    """Asks whether one dependency answers.

    One question is under way at a time, in a thread of its own: a dependency that hangs costs
    one thread, and its askers a bounded wait. An answer serves for ``fresh_for`` seconds.
    Nothing is opened or started before the first `answers`.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[], None],
        *,
        fresh_for: float = FRESH_FOR,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._ask = ask
        self._fresh_for = fresh_for
        self._clock = clock
        self._lock = Lock()
        self._asked_at = 0.0
        self._answer: Future[bool] | None = None

    def answers(self, timeout: float) -> bool:
        """Say whether the dependency answers, waiting up to ``timeout`` seconds for it."""
        try:
            return self.ask().result(timeout)
        except TimeoutError:
            log.warning("no answer in time", dependency=self.name, seconds=timeout)
            return False

    def ask(self) -> "Future[bool]":
        """Give the answer under way or, if it is fresh, the last one; else ask again."""
        with self._lock:
            answer = self._answer
            if answer is None or (answer.done() and self._clock() - self._asked_at > self._fresh_for):
                answer = Future()
                Thread(target=self._run, args=(answer,), name=f"probe-{self.name}", daemon=True).start()
                self._answer, self._asked_at = answer, self._clock()
            return answer

    def _run(self, answer: "Future[bool]") -> None:
        try:
            self._ask()
        except Exception as error:  # noqa: BLE001 whatever went wrong, the answer is no
            log.warning("dependency does not answer", dependency=self.name, error=str(error))
            answer.set_result(False)
        else:
            answer.set_result(True)


def ask_database(alias: str = DEFAULT_DB_ALIAS) -> None:
    """Raise OperationalError unless the database answers on a connection made for the question."""
    try:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        connections[alias].close()


@cache
def probes() -> tuple[Probe, ...]:
    """Give this process's probes; made at the first request, after the web server has forked."""
    admin = KafkaAdmin(KafkaConfig.from_settings())
    return (Probe("database", ask_database), Probe("broker", lambda: admin.check(ANSWER_WITHIN)))


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer: the process is alive."""
    return JsonResponse({"status": "alive"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 if database and broker both answer, else a 503 problem that names each."""
    return readiness(probes(), ANSWER_WITHIN)


def readiness(asked: tuple[Probe, ...], timeout: float) -> HttpResponse:
    """Ask all probes side by side, waiting ``timeout`` seconds for each at most."""
    for probe in asked:
        probe.ask()
    answers = {probe.name: probe.answers(timeout) for probe in asked}
    checks = {name: "answers" if answer else "does not answer" for name, answer in answers.items()}
    if all(answers.values()):
        return JsonResponse({"status": "ready", "checks": checks})
    silent = ", ".join(name for name, answer in answers.items() if not answer)
    return problem(503, f"No answer from: {silent}.", checks=checks)
