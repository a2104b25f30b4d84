"""What a handler is: its three steps, what it may say of a message, and the registry of groups.

Pure Python. An app registers its groups in ``AppConfig.ready()``, as data only; whoever runs,
replays or dry-runs a group looks it up here and needs no import of the app.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shopmicro.messaging.event import Event


class Kind(StrEnum):
    """What became of a message.

    A TERMINAL one found its aggregate in a final state and agrees with it, a CONTRADICTION does
    not; neither changes anything. A SUPPRESSED one is recorded but not acted on, a SKIPPED one
    is of a type that the group does not know.
    """

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    TERMINAL = "terminal"
    CONTRADICTION = "contradiction"
    SUPPRESSED = "suppressed"
    SKIPPED = "skipped"
    RETRYING = "retrying"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one message; ``error`` is a name to group by, ``reason`` a sentence.

    ``is_outage`` says of a RETRYING one that something outside is away, which may last.
    """

    kind: Kind
    error: str = ""
    reason: str = ""
    is_outage: bool = False

    @property
    def is_set_aside(self) -> bool:
        """Whether the record goes to the dead letters, to be tried again or looked at."""
        return self.kind in (Kind.RETRYING, Kind.PARKED)


APPLIED = Outcome(Kind.APPLIED)
DUPLICATE = Outcome(Kind.DUPLICATE)
TERMINAL = Outcome(Kind.TERMINAL)
CONTRADICTION = Outcome(Kind.CONTRADICTION)
SUPPRESSED = Outcome(Kind.SUPPRESSED)
SKIPPED = Outcome(Kind.SKIPPED)


def parked(error: str, reason: str) -> Outcome:
    """Set a message aside for a person: trying it again would change nothing."""
    return Outcome(Kind.PARKED, error, reason)


def retrying(error: str, reason: str, *, is_outage: bool = False) -> Outcome:
    """Set a message aside to be tried again alone, with back-off, and parked in the end.

    With ``is_outage`` the end is that of a long outage (RETRY_OUTAGE_ATTEMPTS), not of a short wait.
    """
    return Outcome(Kind.RETRYING, error, reason, is_outage)


Parser = Callable[[Event], Any]
Call = Callable[[], Any]
Admit = Callable[[Sequence[Any]], Sequence[Outcome | None]]
Prepare = Callable[[Sequence[Any]], Sequence[Call]]
Apply = Callable[[Sequence[Any], Sequence[Any]], Sequence[Outcome]]


def admit_all(messages: Sequence[Any]) -> Sequence[Outcome | None]:
    """Admit every message: for a group whose ``apply`` judges alone."""
    return [None] * len(messages)


def prepare_nothing(messages: Sequence[Any]) -> Sequence[Call]:
    """Ask nothing of the world: for a group that only writes to the database."""
    return []


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group: what it reads, which types it knows, and the steps of its handler.

    ``types`` maps each event type that the group knows to the parser that makes a message of
    the event, or raises `Malformed`; other types are counted and skipped. The steps take the
    messages of one batch, in polled order:

    - ``admit(messages)`` reads, and gives for each message an outcome that ends it, or None.
    - ``prepare(admitted)`` runs outside any transaction and may commit rows of its own (an
      intent); it gives one call for each message, or no calls at all. Calls may speak to the
      world, never to the database; they run side by side in threads, may be repeated, and are
      abandoned when the partition is taken away.
    - ``apply(admitted, results)`` runs in the batch's transaction, touches only the database,
      and gives one outcome for each message. ``results`` holds what each call returned or the
      exception that it raised; it is empty when there were no calls.
    """

    name: str
    topics: tuple[str, ...]
    types: dict[str, Parser]
    apply: Apply
    admit: Admit = admit_all
    prepare: Prepare = prepare_nothing


class UnknownGroup(LookupError):
    """No app registered a consumer group of this name."""


_groups: dict[str, Group] = {}


def register(group: Group) -> None:
    """Make a group known; a second one of the same name is a mistake in the code."""
    if _groups.get(group.name, group) != group:
        raise ValueError(f"consumer group {group.name} is registered twice")
    _groups[group.name] = group


def get_group(name: str) -> Group:
    """Find a registered group."""
    try:
        return _groups[name]
    except KeyError:
        known = ", ".join(sorted(_groups))
        raise UnknownGroup(f"no consumer group {name}; there are: {known}") from None


def groups() -> list[Group]:
    """Give all registered groups, by name."""
    return [_groups[name] for name in sorted(_groups)]
