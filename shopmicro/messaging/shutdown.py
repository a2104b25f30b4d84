"""How a worker is asked to stop: a signal sets a flag, the second one kills."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


class StopRequested(Exception):
    """A stop was requested while work waited for the world; what was begun is left undone."""


class Stop:
    """A request to stop that a loop looks at between two steps."""

    def __init__(self) -> None:
        self._event = Event()

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self) -> None:
        """Ask the loop to end after its step."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait, but no longer than until a stop is requested; gives whether it is."""
        return self._event.wait(seconds)

    @contextmanager
    def on_signals(self) -> Iterator["Stop"]:
        """Request a stop at the first SIGTERM or SIGINT; the next one ends the process at once."""
        signals = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._on_signal) for number in signals}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request()
        signal.signal(number, signal.SIG_DFL)
