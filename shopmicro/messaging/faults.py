"""Named points at which a process of a test system can be made to die, as by kill -9.

``CRASH_POINT=after-dedupe-insert`` kills the process when it first gets there,
``CRASH_POINT=after-dedupe-insert:3`` the third time. Without it a point costs one call that does
nothing. A system that is not said to be one for tests (``TEST_SYSTEM``) refuses to start with it.
"""

import os
import signal
from collections.abc import Callable

POINTS = frozenset(
    {
        "after-poll",
        "after-dedupe-insert",
        "after-order-update",
        "after-outbox-insert",
        "after-database-commit",
        "before-offset-commit",
        "after-offset-commit",
        "after-produce",
        "after-acknowledgement",
        "inside-revoke",
    }
)


class UnknownPoint(ValueError):
    """There is no point of this name."""


def reach(point: str) -> None:
    """Say that the process is at this point; it ends here if the point is armed."""
    _on_reach(point)


def arm(crash_point: str) -> None:
    """Let the process die at ``point`` or, with ``point:n``, when it gets there for the nth time.

    An empty text disarms. Raises UnknownPoint.
    """
    global _on_reach
    point, _, times = crash_point.partition(":")
    if crash_point and (point not in POINTS or not (times or "1").isdecimal()):
        known = ", ".join(sorted(POINTS))
        raise UnknownPoint(
            f"CRASH_POINT={crash_point} is no point, or no number after it; there are: {known}"
        )
    _on_reach = _countdown(point, int(times or 1)) if crash_point else _pass


def _pass(point: str) -> None:
    return


def _countdown(armed: str, times: int) -> Callable[[str], None]:
    left = times

    def on_reach(point: str) -> None:
        nonlocal left
        left -= point == armed
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_reach


_on_reach: Callable[[str], None] = _pass
