"""Calls to the world, side by side in threads, those of one aggregate one after another."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from threading import Lock, Thread
from time import monotonic
from typing import Any, NamedTuple

import structlog

from shopmicro.messaging.handler import Call
from shopmicro.messaging.retry import Shortage

log = structlog.get_logger(__name__)


class Task(NamedTuple):
    """One call: the aggregate that it is about, and who gets what it returned or raised."""

    aggregate_id: str
    call: Call
    on_answer: Callable[[Any], None]
    is_wanted: Callable[[], bool]


class Calls:
    """The calls of one batch.

    Threads are daemons: a call that hangs keeps nobody from leaving. A call that nobody wants any
    more does not begin; what has begun is let run.
    """

    def __init__(self, tasks: Iterable[Task], concurrency: int, name: str) -> None:
        chains: dict[str, deque[Task]] = defaultdict(deque)
        for task in tasks:
            chains[task.aggregate_id].append(task)
        self._all = list(chains.values())
        self._waiting = deque(self._all)
        self._running: list[Task] = []
        self._lock = Lock()
        self._threads = [
            Thread(target=self._work, name=f"{name}-call", daemon=True)
            for _ in range(min(concurrency, len(self._all)))
        ]

    def start(self) -> None:
        """Begin. Raises Shortage if not even one thread is to be had; with fewer it takes longer."""
        for number, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:
                self._threads = self._threads[:number]
                if number == 0:
                    raise Shortage(str(error)) from error
                log.warning("fewer threads than wanted", threads=number, error=str(error))
                return

    def wait(self, seconds: float) -> bool:
        """Wait for all calls to end, at most so many seconds; gives whether they have."""
        until = monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def give_up(self, answer: Exception) -> None:
        """Let no further call begin, and take this for the answer of all that have none."""
        with self._lock:
            unanswered = [*self._running, *(task for chain in self._all for task in chain)]
            for chain in self._all:
                chain.clear()
        for task in unanswered:
            task.on_answer(answer)

    def drop_all(self) -> None:
        """Let no further call begin."""
        with self._lock:
            for chain in self._all:
                chain.clear()

    def _work(self) -> None:
        while (chain := self._next_chain()) is not None:
            while (task := self._next_task(chain)) is not None:
                task.on_answer(_answer(task.call))
                self._running.remove(task)

    def _next_chain(self) -> deque[Task] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _next_task(self, chain: deque[Task]) -> Task | None:
        with self._lock:
            while chain:
                task = chain.popleft()
                if task.is_wanted():
                    self._running.append(task)
                    return task
            return None


def _answer(call: Call) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - handed to the handler, which judges it
        return error
