"""What a failure is worth: try again, set the one event aside, or wait for the world."""

import errno
import random
from dataclasses import dataclass
from enum import Enum, auto

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError

from shopmicro.messaging.broker import BrokerError
from shopmicro.messaging.event import Malformed

_STATEMENT_TIMEOUT = "57014"
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC})


class Shortage(Exception):
    """This machine has no more of something; later it may."""


class Failure(Enum):
    """The kinds of failure, by what is to be done."""

    POISON = auto()
    """This event will never work: park it."""

    UNKNOWN = auto()
    """Perhaps our own fault: set the event aside, try it again alone, park it in the end."""

    TRANSIENT = auto()
    """Nothing is wrong with the events: wait, and try the same batch again."""


def classify(error: Exception) -> Failure:
    """Tell the kind of a failure by its type and, for the database's, by its SQLSTATE.

    Classes 22 (data) and 23 (integrity), and data that the driver itself refuses, are poison; a
    statement over its time limit and an exception of our own code are unknown; every other
    error of the database or the broker is transient, and so is a shortage of this machine's.
    """
    if isinstance(error, Malformed | UnicodeEncodeError | DataError | IntegrityError):
        return Failure.POISON
    if isinstance(error, DatabaseError | InterfaceError):
        state = sqlstate(error)
        if state[:2] in ("22", "23"):
            return Failure.POISON
        return Failure.UNKNOWN if state == _STATEMENT_TIMEOUT else Failure.TRANSIENT
    return Failure.TRANSIENT if _is_away(error) else Failure.UNKNOWN


def _is_away(error: Exception) -> bool:
    """Say whether the broker, or this machine's memory, threads or files, are what is missing."""
    if isinstance(error, OSError):
        return error.errno in _SHORTAGES
    return isinstance(error, BrokerError | MemoryError | Shortage)


def sqlstate(error: Exception) -> str:
    """Give the five characters of a database error's SQLSTATE, or an empty text."""
    return getattr(error.__cause__, "sqlstate", None) or ""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from ``first`` to ``longest`` seconds, each cut by up to half at random."""

    first: float
    longest: float

    def delay(self, attempt: int) -> float:
        """Give the seconds to wait after the attempt of this number, the first being 1."""
        full = min(self.longest, self.first * 2.0 ** min(attempt - 1, 30))
        return full * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
