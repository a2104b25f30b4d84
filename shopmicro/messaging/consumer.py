"""One member of a consumer group: poll, handle a batch in one transaction, then commit offsets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic

import structlog
from django.db import connection

from shopmicro.messaging import faults, metrics
from shopmicro.messaging.batch import Batch, Item, read
from shopmicro.messaging.broker import BrokerError, BrokerFatal, Subscriber
from shopmicro.messaging.calls import Calls
from shopmicro.messaging.dead_letters import DeadLetters, LetterTaken, RetryPolicy, record_of
from shopmicro.messaging.handler import Group
from shopmicro.messaging.models import DeadLetter
from shopmicro.messaging.outage import Outage
from shopmicro.messaging.retry import Backoff, Failure, classify
from shopmicro.messaging.shutdown import Stop, StopRequested

log = structlog.get_logger(__name__)

_RETRY_LOOK_SECONDS = 1.0
_RETRY_WORK_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 0.5
_LAST_CALLS_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may hold, how long a poll may wait, how many calls run side by side.

    After ``call_seconds`` all calls of a batch that have not answered are taken for failed.
    """

    records: int = 1000
    bytes: int = 8 * 1024 * 1024
    poll_seconds: float = 0.5
    concurrency: int = 64
    call_seconds: float = 30.0


class Consumer:
    """Runs one group's handler over what it polls.

    ``connect`` makes a member of the group; it is called again when the client is beyond repair.
    ``now`` gives the time in UTC, ``clock`` a monotonic number of seconds.
    """

    def __init__(
        self,
        group: Group,
        connect: Callable[[], Subscriber],
        *,
        limits: Limits,
        policy: RetryPolicy,
        outage: Backoff,
        now: Callable[[], datetime],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._group = group
        self._connect = connect
        self._limits = limits
        self._clock = clock
        self._outage = Outage(group.name, outage, clock)
        self._subscriber: Subscriber | None = None
        self._dead_letters = DeadLetters(group.name, policy, self._topic_id, now)
        self._next_retry_look = 0.0

    @property
    def subscriber(self) -> Subscriber:
        """The member of the group, made at first use."""
        if self._subscriber is None:
            self._subscriber = self._connect()
        return self._subscriber

    def run(self, stop: Stop) -> None:
        """Handle batches until a stop is requested; outages of database and broker are waited out.

        An error of our own code that cannot be blamed on one event is raised.
        """
        log.info("consumer starts", group=self._group.name, topics=self._group.topics)
        try:
            while not stop.requested:
                self._step_or_wait(stop)
        finally:
            self.close()
        log.info("consumer stopped", group=self._group.name)

    def step(self, stop: Stop) -> int:
        """Try due letters again, then handle one batch; gives how many records were handled.

        When the batch fails its records are rewound, to be polled again, and the error is raised;
        StopRequested when a stop left it undone.
        """
        self._retry_due(stop)
        records = self.subscriber.poll(self._limits.records, self._limits.bytes, self._limits.poll_seconds)
        if not records:
            return 0
        faults.reach("after-poll")
        try:
            with metrics.BATCH_SECONDS.labels(self._group.name).time():
                self._handle([read(self._group, record) for record in records], stop)
        except Exception:
            self.subscriber.rewind(records)
            raise
        faults.reach("before-offset-commit")
        self.subscriber.commit(records)
        faults.reach("after-offset-commit")
        return len(records)

    def close(self) -> None:
        """Leave the group and let go of the database."""
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            subscriber.close()
        connection.close()

    def _step_or_wait(self, stop: Stop) -> None:
        metrics.LAST_STEP.set_to_current_time()
        try:
            self.step(stop)
        except StopRequested:
            return
        except Exception as error:
            if classify(error) is not Failure.TRANSIENT:
                raise
            self._wait_out(error, stop)
        else:
            self._outage.is_over()

    def _handle(self, items: Sequence[Item], stop: Stop) -> None:
        """Take a batch through the handler. Raises StopRequested if some of it was left undone."""
        batch = Batch(self._group, self._dead_letters, items, lambda: self._stay_for_a_trial(stop))
        batch.admit()
        batch.prepare(lambda calls_of: self._run(calls_of(self._limits.concurrency, self._owns), stop))
        batch.apply()
        if batch.is_partial and stop.requested:
            raise StopRequested

    def _owns(self, item: Item) -> bool:
        return item.letter is not None or self.subscriber.owns(item.record)

    def _stay_for_a_trial(self, stop: Stop) -> None:
        if stop.requested:
            raise StopRequested
        self.subscriber.keep_alive(0)

    def _run(self, calls: Calls, stop: Stop) -> None:
        """Run calls while staying in the group; of partitions that are taken away no call begins."""
        calls.start()
        until = self._clock() + self._limits.call_seconds
        try:
            while not calls.wait(_KEEP_ALIVE_SECONDS):
                if self._clock() > until:
                    calls.give_up(TimeoutError(f"no answer within {self._limits.call_seconds:g} s"))
                    return
                if stop.requested:
                    calls.drop_all()
                    calls.wait(_LAST_CALLS_SECONDS)
                    return
                self.subscriber.keep_alive(0)
        finally:
            calls.drop_all()

    def _retry_due(self, stop: Stop) -> None:
        if self._clock() < self._next_retry_look:
            return
        work_until = self._clock() + _RETRY_WORK_SECONDS
        while not stop.requested and self._clock() < work_until:
            letter = self._dead_letters.claim_due()
            if letter is None:
                break
            self._retry(letter, stop)
        self._next_retry_look = self._clock() + _RETRY_LOOK_SECONDS

    def _retry(self, letter: DeadLetter, stop: Stop) -> None:
        try:
            self._handle([read(self._group, record_of(letter), letter)], stop)
        except LetterTaken:
            log.warning("a dead letter was taken over by another worker", letter=letter.id)
        except StopRequested:
            self._dead_letters.give_back(letter)
            raise

    def _wait_out(self, error: Exception, stop: Stop) -> None:
        until = self._clock() + self._outage.failed(error)
        connection.close()
        if isinstance(error, BrokerFatal):
            self._reconnect()
        while not stop.requested and (left := until - self._clock()) > 0:
            self._stay(min(left, _KEEP_ALIVE_SECONDS), stop)

    def _stay(self, seconds: float, stop: Stop) -> None:
        try:
            self.subscriber.keep_alive(seconds)
        except BrokerFatal:
            self._reconnect()
            stop.wait(seconds)
        except BrokerError:
            stop.wait(seconds)

    def _reconnect(self) -> None:
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            subscriber.close()

    def _topic_id(self, topic: str) -> str:
        return self.subscriber.topic_id(topic)
