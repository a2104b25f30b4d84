"""A batch on its way through a group's handler: decoded, admitted, prepared, applied.

Nothing here polls or commits offsets; see `consumer`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from django.db import transaction

from shopmicro.messaging import faults, metrics
from shopmicro.messaging.broker import Record
from shopmicro.messaging.calls import Calls, Task
from shopmicro.messaging.dead_letters import DeadLetters, LetterTaken, SetAside
from shopmicro.messaging.event import Event, Malformed, decode
from shopmicro.messaging.handler import SKIPPED, Call, Group, Outcome, parked, retrying
from shopmicro.messaging.models import DeadLetter
from shopmicro.messaging.retry import Failure, classify
from shopmicro.messaging.shutdown import StopRequested

log = structlog.get_logger(__name__)

_UNREPRODUCED_LIMIT = 3


UNDONE = object()
"""The result of a call that has not ended."""


@dataclass(slots=True, eq=False)
class Item:
    """One record of a batch: what was read from it and, once settled, what became of it.

    ``letter`` is set when the record comes from the dead letters. ``result`` is what the
    handler's call returned or raised, None without one.
    """

    record: Record
    event: Event | None = None
    message: Any = None
    outcome: Outcome | None = None
    letter: DeadLetter | None = None
    result: Any = None

    def take_result(self, result: Any) -> None:
        """Take what the handler's call returned or raised."""
        self.result = result


def read(group: Group, record: Record, letter: DeadLetter | None = None) -> Item:
    """Decode a record; one of a type that the group does not know is settled as skipped."""
    event = None
    try:
        event = decode(record.value)
        parse = group.types.get(event.type)
        if parse is None:
            return Item(record, event, outcome=SKIPPED, letter=letter)
        return Item(record, event, parse(event), letter=letter)
    except Malformed as error:
        return Item(record, event, outcome=parked("malformed", str(error)), letter=letter)


MakeCalls = Callable[[int, Callable[[Item], bool]], Calls]


class Batch:
    """The items of one batch, worked on in three steps.

    ``heartbeat`` is called between two trials, since finding one bad event among many takes
    time. The batch is partial once calls of it were left undone: those items are forgotten.
    """

    def __init__(
        self,
        group: Group,
        dead_letters: DeadLetters,
        items: Sequence[Item],
        heartbeat: Callable[[], None],
    ) -> None:
        self.items = items
        self.is_partial = False
        self._group = group
        self._dead_letters = dead_letters
        self._heartbeat = heartbeat

    def open_items(self) -> list[Item]:
        """Items of which nothing is said yet, in polled order."""
        return [item for item in self.items if item.outcome is None]

    def admit(self) -> None:
        """Let the handler end the messages that need no work."""

        def admitted(items: Sequence[Item]) -> Sequence[Outcome | None]:
            return self._group.admit([item.message for item in items])

        self._settle(admitted, admitted)

    def prepare(self, run: Callable[[MakeCalls], None]) -> None:
        """Let the handler speak to the world, outside any transaction.

        ``run`` is given what makes the calls, by how many may run side by side and by which
        items are still ours; it returns when all have ended or been dropped.
        """

        def prepared(items: Sequence[Item]) -> Sequence[Outcome | None]:
            calls = self._group.prepare([item.message for item in items])
            if calls:
                run(lambda concurrency, owns: self._calls(items, calls, concurrency, owns))
            return [None] * len(items)

        self._settle(prepared, prepared)
        done = [item for item in self.items if item.result is not UNDONE]
        self.is_partial = len(done) < len(self.items)
        self.items = done

    def _calls(
        self, items: Sequence[Item], calls: Sequence[Call], concurrency: int, owns: Callable[[Item], bool]
    ) -> Calls:
        def task(item: Item, call: Call) -> Task:
            assert item.event is not None
            item.result = UNDONE
            return Task(item.event.aggregate_id, call, item.take_result, lambda: owns(item))

        return Calls(map(task, items, calls), concurrency, self._group.name)

    def apply(self) -> None:
        """Apply what is left in one transaction, with the dead letters of the batch."""
        if any(item.outcome is not SKIPPED or item.letter for item in self.items):
            self._settle(self._apply_all, self._try_to_apply)
        self._tell()

    def _settle(
        self,
        work: Callable[[Sequence[Item]], Sequence[Outcome | None]],
        trial: Callable[[Sequence[Item]], object],
    ) -> None:
        """Do the work on all open items; an item that makes it fail is set aside, then again.

        A transient failure is raised: nothing is wrong with the items.
        """
        unreproduced = 0
        while True:
            items = self.open_items()
            try:
                outcomes = work(items)
            except (StopRequested, LetterTaken):
                raise
            except Exception as error:
                if classify(error) is Failure.TRANSIENT or unreproduced == _UNREPRODUCED_LIMIT or not items:
                    raise
                unreproduced += not self._set_culprit_aside(items, trial)
            else:
                for item, outcome in zip(items, outcomes, strict=True):
                    item.outcome = outcome
                return

    def _set_culprit_aside(self, items: Sequence[Item], trial: Callable[[Sequence[Item]], object]) -> bool:
        """Find the first item with which the work fails; gives False if it no longer does."""
        error = self._failure(items, trial)
        if error is None:
            return False
        passing, failing = 0, len(items)
        while failing - passing > 1:
            middle = (passing + failing) // 2
            found = self._failure(items[:middle], trial)
            if found is None:
                passing = middle
            else:
                failing, error = middle, found
        culprit = items[failing - 1]
        culprit.outcome = _outcome_of(error)
        if classify(error) is Failure.UNKNOWN:
            log.error("a handler failed", group=self._group.name, record=str(culprit.record), exc_info=error)
        return True

    def _failure(self, items: Sequence[Item], trial: Callable[[Sequence[Item]], object]) -> Exception | None:
        self._heartbeat()
        try:
            trial(items)
        except StopRequested:
            raise
        except Exception as error:
            if classify(error) is Failure.TRANSIENT:
                raise
            return error
        return None

    def _apply_all(self, items: Sequence[Item]) -> Sequence[Outcome]:
        aside = [item for item in self.items if item.outcome is not None]
        topic_ids = self._dead_letters.topic_ids([item.record for item in self.items if not item.letter])
        with transaction.atomic(durable=True):
            outcomes = self._ask(items)
            pairs = [(item, item.outcome) for item in aside if item.outcome]
            self._write_letters([*zip(items, outcomes, strict=True), *pairs], topic_ids)
        faults.reach("after-database-commit")
        return outcomes

    def _try_to_apply(self, items: Sequence[Item]) -> None:
        with transaction.atomic(durable=True):
            self._ask(items)
            transaction.set_rollback(True)

    def _ask(self, items: Sequence[Item]) -> Sequence[Outcome]:
        if not items:
            return []
        return self._group.apply([item.message for item in items], [item.result for item in items])

    def _write_letters(self, pairs: Sequence[tuple[Item, Outcome]], topic_ids: dict[str, str]) -> None:
        """Write what is set aside, and what became of the letters among the items."""
        new = [
            SetAside(item.record, item.event, outcome)
            for item, outcome in pairs
            if outcome.is_set_aside and item.letter is None
        ]
        if new:
            self._dead_letters.set_aside(new, topic_ids)
        for item, outcome in pairs:
            if item.letter is not None:
                self._dead_letters.settle(item.letter, outcome)

    def _tell(self) -> None:
        """Count what became of the items, and say what was set aside; a letter only once it is parked."""
        outcomes = Counter(item.outcome for item in self.items)
        assert None not in outcomes, "a record was left without an outcome"
        for outcome, count in outcomes.items():
            if outcome is not None:
                metrics.MESSAGES.labels(self._group.name, outcome.kind).inc(count)
        if any(outcome is not None and outcome.is_set_aside for outcome in outcomes):
            for item in self.items:
                self._tell_of(item)

    def _tell_of(self, item: Item) -> None:
        outcome, letter = item.outcome, item.letter
        if outcome is None or not outcome.is_set_aside:
            return
        state = outcome.kind.value if letter is None else letter.state
        if letter is not None and state == DeadLetter.State.RETRYING:
            return
        metrics.SET_ASIDE.labels(self._group.name, state, outcome.error).inc()
        log.warning(
            "event set aside",
            group=self._group.name,
            state=state,
            error=outcome.error,
            reason=outcome.reason,
            record=str(item.record),
            event_id=item.event and item.event.id,
        )


def _outcome_of(error: Exception) -> Outcome:
    reason = f"{type(error).__name__}: {error}".strip()
    return parked("poison", reason) if classify(error) is Failure.POISON else retrying("unknown", reason)
