"""Limits to waiting: for calls of the client that have none, and for several calls together."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from typing import Any

_LEAST_SECONDS = 0.01


@dataclass(slots=True)
class Answer:
    """What a call gave or raised."""

    result: Any = None
    error: Exception | None = None


def within(seconds: float, call: Callable[[], Any]) -> Answer | None:
    """Make a call in a thread and give its answer, or None if it takes longer.

    Such a call is left behind in a daemon thread, which does not keep the process from ending.
    """
    answers: list[Answer] = []

    def run() -> None:
        try:
            answers.append(Answer(call()))
        except Exception as error:  # noqa: BLE001 - handed to the caller
            answers.append(Answer(error=error))

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None


class Deadline:
    """A time by which several calls, one after the other, have had their answers or go without."""

    def __init__(self, seconds: float) -> None:
        self._until = monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds that the next call may take; hardly any, but some, once the time is over."""
        return max(self._until - monotonic(), _LEAST_SECONDS)
