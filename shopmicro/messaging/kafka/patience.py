"""A limit to waiting for calls of the client that have none."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import Any


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
