"""How a worker is asked to stop: a signal sets a flag, the second one kills."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Timer
from types import FrameType


class StopRequested(Exception):
    """A stop was requested while work waited for the world; what was begun is left undone."""


PARENT = "SHOPMICRO_PARENT"
"""Environment variable by which a supervising process tells a child its own process id."""


class Stop:
    """A request to stop that a loop looks at between two steps.

    A child of a supervising process stops too when that process is gone, however it ended.
    ``within`` bounds the seconds from a signal to the end: what has not ended then is left as if
    by kill -9, a transaction in it absent, and the process exits with 0. Without it there is no bound.
    """

    def __init__(self, within: float | None = None) -> None:
        self._event = Event()
        self._within = within
        self._parent = int(os.environ.get(PARENT, "0"))

    @property
    def requested(self) -> bool:
        return self._event.is_set() or self._orphaned()

    def request(self) -> None:
        """Ask the loop to end after its step."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait, but no longer than until a stop is requested; gives whether it is."""
        return self._event.wait(seconds) or self._orphaned()

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

    def _orphaned(self) -> bool:
        return self._parent > 0 and os.getppid() != self._parent

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.request()
        signal.signal(number, signal.SIG_DFL)
        if self._within is not None:
            deadline = Timer(self._within, os._exit, (0,))
            deadline.daemon = True
            deadline.start()
