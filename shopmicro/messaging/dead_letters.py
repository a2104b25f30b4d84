"""Records that could not be handled: set aside with the batch, tried again when due."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import F, QuerySet

from shopmicro.messaging import metrics
from shopmicro.messaging.broker import Headers, Record
from shopmicro.messaging.event import Event
from shopmicro.messaging.handler import Kind, Outcome
from shopmicro.messaging.models import DeadLetter
from shopmicro.messaging.retry import Backoff

log = structlog.get_logger(__name__)

_LEASE = timedelta(seconds=60)
_DEATHS = 3
_MAX_REASON = 1000
_LAST_TIMESTAMP_MS = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record, the event in it if it could be read, and why it is set aside."""

    record: Record
    event: Event | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """After how many tries a letter is parked, and how long it waits between two.

    ``outage_attempts`` holds for letters that wait for something outside to come back.
    """

    attempts: int
    outage_attempts: int
    backoff: Backoff

    def is_used_up(self, outcome: Outcome, attempts: int) -> bool:
        """Say whether a message of this outcome has had all its tries."""
        return attempts >= (self.outage_attempts if outcome.is_outage else self.attempts)

    def next_attempt(self, now: datetime, attempts: int) -> datetime:
        """Say when to try again after this many tries."""
        return now + timedelta(seconds=self.backoff.delay(attempts))


class LetterTaken(Exception):
    """A letter's lease ran out while it was tried again, and it is another's now."""


class DeadLetters:
    """The dead letters of one consumer group.

    ``topic_id`` gives the broker's id of a topic; ``now`` the time, in UTC.
    """

    def __init__(
        self,
        group: str,
        policy: RetryPolicy,
        topic_id: Callable[[str], str],
        now: Callable[[], datetime],
    ) -> None:
        self._group = group
        self._policy = policy
        self._topic_id = topic_id
        self._now = now

    def topic_ids(self, records: Sequence[Record]) -> dict[str, str]:
        """Ask the broker for the ids of the records' topics, which is not for inside a transaction."""
        return {topic: self._topic_id(topic) for topic in {record.topic for record in records}}

    def set_aside(self, asides: Sequence[SetAside], topic_ids: dict[str, str]) -> None:
        """Write records to the dead letters in the batch's transaction.

        A record that lies there already (the batch came again after a crash) is left as it is.
        """
        now = self._now()
        DeadLetter.objects.bulk_create(
            [self._row(aside, topic_ids[aside.record.topic], now) for aside in asides],
            ignore_conflicts=True,
        )

    def claim_due(self) -> DeadLetter | None:
        """Take a letter whose time has come, for as long as a lease.

        A claim that never ends (the letter killed its worker) is known by its count: after three
        of them the letter is parked instead.
        """
        now = self._now()
        with transaction.atomic(durable=True):
            letter = (
                DeadLetter.objects.due(self._group, now)
                .select_for_update(skip_locked=True, of=("self",))
                .first()
            )
            if letter is None:
                return None
            if letter.unfinished < _DEATHS:
                letter.unfinished += 1
                letter.next_attempt_at = now + _LEASE
                letter.save(update_fields=["unfinished", "next_attempt_at"])
                return letter
            self._park_deadly(letter, now)
        return self.claim_due()

    def give_back(self, letter: DeadLetter) -> None:
        """Let go of a letter that was claimed and not tried, as if it had not been."""
        claimed = self._claimed(letter)
        claimed.update(unfinished=F("unfinished") - 1, next_attempt_at=self._now())

    def settle(self, letter: DeadLetter, outcome: Outcome) -> None:
        """Write what became of a letter that was tried again, in the transaction of its effect.

        Tries are counted anew when it fails in another way. Raises LetterTaken if the lease ran
        out and somebody else has it now, or a person dealt with it.
        """
        now = self._now()
        fails_otherwise = outcome.is_set_aside and outcome.error != letter.error
        letter.attempts = 1 if fails_otherwise else letter.attempts + 1
        letter.state = self._state_after(letter, outcome)
        changes: dict[str, object] = {
            "state": letter.state,
            "attempts": letter.attempts,
            "unfinished": 0,
            "updated_at": now,
            "resolved_at": now if letter.state == DeadLetter.State.REPLAYED else None,
            "next_attempt_at": self._next_attempt(letter, now),
        }
        if outcome.is_set_aside:
            changes |= {"error": outcome.error, "reason": _storable(outcome.reason)}
        if not self._claimed(letter).update(**changes):
            raise LetterTaken(f"dead letter {letter.id} is no longer ours")

    def _claimed(self, letter: DeadLetter) -> "QuerySet[DeadLetter]":
        return DeadLetter.objects.filter(
            id=letter.id, state=DeadLetter.State.RETRYING, next_attempt_at=letter.next_attempt_at
        )

    def _park_deadly(self, letter: DeadLetter, now: datetime) -> None:
        letter.state, letter.error = DeadLetter.State.PARKED, "killed_its_worker"
        letter.reason = f"{letter.unfinished} tries did not end: the worker died each time"
        letter.next_attempt_at, letter.updated_at = None, now
        letter.save(update_fields=["state", "error", "reason", "next_attempt_at", "updated_at"])
        metrics.SET_ASIDE.labels(self._group, letter.state, letter.error).inc()
        log.error("event parked", group=self._group, letter=letter.id, reason=letter.reason)

    def _next_attempt(self, letter: DeadLetter, now: datetime) -> datetime | None:
        if letter.state != DeadLetter.State.RETRYING:
            return None
        return self._policy.next_attempt(now, letter.attempts)

    def _state_after(self, letter: DeadLetter, outcome: Outcome) -> DeadLetter.State:
        if not outcome.is_set_aside:
            return DeadLetter.State.REPLAYED
        if outcome.kind is Kind.PARKED or self._policy.is_used_up(outcome, letter.attempts):
            return DeadLetter.State.PARKED
        return DeadLetter.State.RETRYING

    def _row(self, aside: SetAside, topic_id: str, now: datetime) -> DeadLetter:
        record, event, outcome = aside.record, aside.event, aside.outcome
        retrying = outcome.kind is Kind.RETRYING
        return DeadLetter(
            consumer_group=self._group,
            topic=record.topic,
            topic_id=topic_id,
            partition=record.partition,
            offset=record.offset,
            state=DeadLetter.State.RETRYING if retrying else DeadLetter.State.PARKED,
            error=outcome.error,
            reason=_storable(outcome.reason),
            event_id=event.id if event else "",
            event_type=_storable(event.type) if event else "",
            aggregate_id=event.aggregate_id if event else None,
            key=record.key,
            value=record.value,
            headers=_dump_headers(record.headers),
            recorded_at=_moment(record.timestamp_ms),
            attempts=1,
            created_at=now,
            updated_at=now,
            next_attempt_at=self._policy.next_attempt(now, 1) if retrying else None,
        )


def record_of(letter: DeadLetter) -> Record:
    """Give a letter's record as it was polled."""
    return Record(
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        key=None if letter.key is None else bytes(letter.key),
        value=None if letter.value is None else bytes(letter.value),
        headers=_load_headers(bytes(letter.headers)),
        timestamp_ms=-1 if letter.recorded_at is None else round(letter.recorded_at.timestamp() * 1000),
    )


def _storable(text: str) -> str:
    """Make any text one that PostgreSQL takes, and no longer than a person would read."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()[:_MAX_REASON]


def _moment(timestamp_ms: int) -> datetime | None:
    if not 0 <= timestamp_ms <= _LAST_TIMESTAMP_MS:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def _dump_headers(headers: Headers) -> bytes:
    return json.dumps(
        [[name, None if value is None else b64encode(value).decode()] for name, value in headers]
    ).encode()


def _load_headers(dumped: bytes) -> Headers:
    return [(name, None if value is None else b64decode(value)) for name, value in json.loads(dumped)]
