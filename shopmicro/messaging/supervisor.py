"""All workers as children of one process: one that dies is started again, a stop stops all."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import structlog

from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1
_STEADY_SECONDS = 30.0


@dataclass(slots=True)
class Child:
    """One worker: its command, and its process while it runs."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = field(default=0.0)
    start_at: float = field(default=0.0)
    deaths: int = 0


class Supervisor:
    """Keeps one process a command running.

    ``commands`` maps a worker's name to its command line. A worker that ends by itself is
    started again after a delay, which grows while it keeps dying young. ``grace_seconds`` is how
    long a stop waits before it kills.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        environment: dict[str, str],
        backoff: Backoff,
        grace_seconds: float = 15.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.children = [Child(name, command) for name, command in commands.items()]
        self._environment = environment
        self._backoff = backoff
        self._grace_seconds = grace_seconds
        self._clock = clock

    def run(self, stop: Stop) -> None:
        """Keep the workers running until a stop is requested, then end them all."""
        log.info("supervisor starts", workers=[child.name for child in self.children])
        try:
            while not stop.requested:
                self.step()
                stop.wait(_LOOK_SECONDS)
        finally:
            self.close()

    def step(self) -> None:
        """Look at each worker once: bury the dead, start those whose time has come."""
        for child in self.children:
            if child.process is not None and child.process.poll() is not None:
                self._bury(child, child.process.returncode)
            if child.process is None and self._clock() >= child.start_at:
                self._start(child)

    def close(self) -> None:
        """Ask all workers to end, and kill those that have not after the grace time."""
        running = [(child, child.process) for child in self.children if child.process is not None]
        for _, process in running:
            process.terminate()
        give_up_at = self._clock() + self._grace_seconds
        for child, process in running:
            try:
                process.wait(max(0.0, give_up_at - self._clock()))
            except subprocess.TimeoutExpired:
                log.error("worker did not end in time and is killed", worker=child.name)
                process.kill()
                process.wait()
            child.process = None

    def _start(self, child: Child) -> None:
        child.process = subprocess.Popen(child.command, env=self._environment)  # noqa: S603 - our own commands
        child.started_at = self._clock()
        log.info("worker started", worker=child.name, pid=child.process.pid)

    def _bury(self, child: Child, code: int) -> None:
        steady = self._clock() - child.started_at >= _STEADY_SECONDS
        child.deaths = 1 if steady else child.deaths + 1
        delay = self._backoff.delay(child.deaths)
        child.process, child.start_at = None, self._clock() + delay
        log.error("worker died", worker=child.name, exit_code=code, again_in_seconds=round(delay, 1))
