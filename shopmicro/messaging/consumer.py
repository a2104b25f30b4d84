"""One member of a consumer group: poll, handle a batch in one transaction, then commit offsets."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Thread
from time import monotonic
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError, connection

from shopmicro.messaging import faults, metrics
from shopmicro.messaging.batch import Batch, Item, read
from shopmicro.messaging.broker import BrokerError, BrokerFatal, Subscriber
from shopmicro.messaging.dead_letters import DeadLetters, RetryPolicy, record_of
from shopmicro.messaging.handler import Call, Group
from shopmicro.messaging.retry import Backoff, Failure, classify
from shopmicro.messaging.shutdown import Stop, StopRequested

log = structlog.get_logger(__name__)

_RETRY_LOOK_SECONDS = 1.0
_RETRY_WORK_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may hold, how long a poll may wait, how many calls run side by side."""

    records: int = 1000
    bytes: int = 8 * 1024 * 1024
    poll_seconds: float = 0.5
    concurrency: int = 64


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
        self._outage = outage
        self._clock = clock
        self._subscriber: Subscriber | None = None
        self._dead_letters = DeadLetters(group.name, policy, self._topic_id, now)
        self._next_retry_look = 0.0
        self._failures = 0

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
                try:
                    self.step(stop)
                except StopRequested:
                    break
                except (DatabaseError, InterfaceError, BrokerError) as error:
                    if classify(error) is not Failure.TRANSIENT:
                        raise
                    self._wait_out(error, stop)
                else:
                    self._recovered()
        finally:
            self.close()
        log.info("consumer stopped", group=self._group.name)

    def step(self, stop: Stop) -> int:
        """Try due letters again, then handle one batch; gives how many records were handled.

        When the batch fails its records are rewound, to be polled again, and the error is raised.
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
        if self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None
        connection.close()

    def _handle(self, items: Sequence[Item], stop: Stop) -> None:
        batch = Batch(self._group, self._dead_letters, items, lambda: self.subscriber.keep_alive(0))
        batch.admit()
        batch.prepare(lambda items, calls: self._run_calls(items, calls, stop))
        batch.keep(self.subscriber.owns)
        batch.apply()

    def _retry_due(self, stop: Stop) -> None:
        if self._clock() < self._next_retry_look:
            return
        self._next_retry_look = self._clock() + _RETRY_LOOK_SECONDS
        work_until = self._clock() + _RETRY_WORK_SECONDS
        while not stop.requested and self._clock() < work_until:
            letter = self._dead_letters.claim_due()
            if letter is None:
                return
            self._handle([read(self._group, record_of(letter), letter)], stop)

    def _run_calls(self, items: Sequence[Item], calls: Sequence[Call], stop: Stop) -> None:
        """Run the calls in threads, those of one aggregate one after another, staying in the group."""
        chains: dict[str, list[tuple[Item, Call]]] = defaultdict(list)
        for item, call in zip(items, calls, strict=True):
            assert item.event is not None
            chains[item.event.aggregate_id].append((item, call))
        waiting = deque(chains.values())
        threads = [
            Thread(target=_run_chains, args=(waiting,), name=f"{self._group.name}-call", daemon=True)
            for _ in range(min(self._limits.concurrency, len(waiting)))
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                self._stay_until_ended(thread, stop)
        finally:
            waiting.clear()

    def _stay_until_ended(self, thread: Thread, stop: Stop) -> None:
        thread.join(_KEEP_ALIVE_SECONDS)
        while thread.is_alive():
            if stop.requested:
                raise StopRequested
            self.subscriber.keep_alive(0)
            thread.join(_KEEP_ALIVE_SECONDS)

    def _wait_out(self, error: Exception, stop: Stop) -> None:
        self._failures += 1
        if self._failures == 1:
            metrics.OUTAGES.labels(self._group.name).inc()
            log.warning("waiting for the database or the broker", group=self._group.name, error=_line(error))
        connection.close()
        if isinstance(error, BrokerFatal):
            self._reconnect()
        until = self._clock() + self._outage.delay(self._failures)
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

    def _recovered(self) -> None:
        if self._failures:
            log.info("works again", group=self._group.name, after_failures=self._failures)
        self._failures = 0

    def _topic_id(self, topic: str) -> str:
        return self.subscriber.topic_id(topic)


def _run_chains(waiting: deque[list[tuple[Item, Call]]]) -> None:
    """Run chains of calls until none waits; a thread that is abandoned ends after its call."""
    while waiting:
        try:
            chain = waiting.popleft()
        except IndexError:
            return
        for item, call in chain:
            item.result = _answer(call)


def _answer(call: Call) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - handed to the handler, which judges it
        return error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
