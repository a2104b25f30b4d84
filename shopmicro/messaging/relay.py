"""From the outbox to the broker: in order per aggregate, marked only on a row's own acknowledgement."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import NamedTuple

import structlog
from django.db import DatabaseError, InterfaceError, connection

from shopmicro.messaging import faults, metrics
from shopmicro.messaging.broker import (
    BrokerError,
    BrokerFatal,
    Delivery,
    Headers,
    Publisher,
    QueueFull,
    Refused,
)
from shopmicro.messaging.event import format_time
from shopmicro.messaging.lease import ShardLease
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop
from shopmicro.messaging.wakeup import Wakeup

log = structlog.get_logger(__name__)

_SERVE_SECONDS = 0.1
_GRACE_SECONDS = 3.0

_READ = """
SELECT id, event_id, topic, aggregate_id::text, type, payload, occurred_at, attempts
FROM outbox
WHERE published_at IS NULL
  AND (%(shards)s = 1
       OR ('x' || left(md5(aggregate_id::text), 8))::bit(32)::bigint %% %(shards)s = %(shard)s)
  AND NOT EXISTS (
      SELECT 1 FROM outbox AS held
      WHERE held.aggregate_id = outbox.aggregate_id AND held.published_at IS NULL
        AND held.failing_since IS NOT NULL AND held.next_attempt_at > now() AND held.id <= outbox.id)
ORDER BY id
LIMIT %(limit)s
"""

_MARK_PUBLISHED = """
UPDATE outbox
SET published_at = now(), partition = delivered.partition, "offset" = delivered.record_offset
FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS delivered (id, partition, record_offset)
WHERE outbox.id = delivered.id
RETURNING extract(epoch FROM now() - created_at)::float8
"""

_MARK_REFUSED = """
UPDATE outbox
SET attempts = attempts + 1, error = refused.error,
    failing_since = coalesce(failing_since, now()),
    next_attempt_at = now() + make_interval(secs => refused.delay)
FROM unnest(%s::bigint[], %s::text[], %s::float8[]) AS refused (id, error, delay)
WHERE outbox.id = refused.id
"""


class Row(NamedTuple):
    """An unpublished row of the outbox."""

    id: int
    event_id: str
    topic: str
    aggregate_id: str
    type: str
    payload: str
    occurred_at: datetime
    attempts: int


@dataclass(slots=True)
class Sending:
    """One batch on its way: at most one unacknowledged row an aggregate.

    ``held`` are the later rows of an aggregate, sent one by one as its earlier ones arrive, and
    let go when one does not: they stay in the outbox.
    """

    in_flight: int = 0
    ready: deque[Row] = field(default_factory=deque)
    held: dict[str, deque[Row]] = field(default_factory=dict)
    delivered: list[tuple[Row, Delivery]] = field(default_factory=list)
    refused: list[tuple[Row, Refused]] = field(default_factory=list)
    outage: BrokerError | None = None

    def enqueue(self, rows: Sequence[Row]) -> None:
        """Make the first row of each aggregate ready, and hold the others."""
        for row in rows:
            held = self.held.get(row.aggregate_id)
            if held is None:
                self.held[row.aggregate_id] = deque()
                self.ready.append(row)
            else:
                held.append(row)

    def report(self, row: Row, delivery: Delivery) -> None:
        """Take the broker's word on one row."""
        self.in_flight -= 1
        if delivery.error is None:
            self.delivered.append((row, delivery))
            held = self.held[row.aggregate_id]
            if held:
                self.ready.append(held.popleft())
        elif isinstance(delivery.error, Refused):
            self.refused.append((row, delivery.error))
        else:
            self.outage = delivery.error


class Relay:
    """Publishes one shard of the outbox; only the relay that holds the shard's lease does.

    It reads by state, never by cursor, since a row with a lower id may commit later. The lease
    is a lock of the very database session that reads and marks, so this connection must be
    direct, not through a transaction-pooling proxy. Without ``wakeup`` it only polls.
    """

    def __init__(
        self,
        connect: Callable[[], Publisher],
        lease: ShardLease,
        *,
        batch: int,
        poll_seconds: float,
        wakeup: Wakeup | None,
        outage: Backoff,
        refusal: Backoff,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._connect = connect
        self._lease = lease
        self._batch = batch
        self._poll_seconds = poll_seconds
        self._wakeup = wakeup
        self._outage = outage
        self._refusal = refusal
        self._clock = clock
        self._publisher: Publisher | None = None
        self._failures = 0

    @property
    def publisher(self) -> Publisher:
        """The client that sends, made at first use."""
        if self._publisher is None:
            self._publisher = self._connect()
        return self._publisher

    def run(self, stop: Stop) -> None:
        """Publish until a stop is requested; outages of database and broker are waited out."""
        log.info("relay starts", shard=self._lease.shard, shards=self._lease.shards)
        try:
            while not stop.requested:
                try:
                    published = self.step(stop)
                    self._recovered()
                    if published == 0 and not stop.requested:
                        self._wait_for_rows(stop)
                except (DatabaseError, InterfaceError, BrokerError) as error:
                    self._wait_out(error, stop)
        finally:
            self.close()
        log.info("relay stopped", shard=self._lease.shard)

    def step(self, stop: Stop) -> int:
        """Publish one batch of rows if this relay leads its shard; gives how many were published.

        Raises BrokerError when the broker could not take them: they stay in the outbox.
        """
        if not self._lease.hold():
            return 0
        if self._wakeup is not None:
            self._wakeup.listen()
            self._wakeup.clear()
        rows = self._read()
        if not rows:
            return 0
        sending = Sending()
        sending.enqueue(rows)
        try:
            self._send_all(sending, stop)
        finally:
            self._mark(sending)
        if sending.outage is not None:
            raise sending.outage
        return len(sending.delivered)

    def close(self) -> None:
        """Let go of the broker, and of the lease with the database session."""
        if self._publisher is not None:
            self._publisher.close(_GRACE_SECONDS)
            self._publisher = None
        connection.close()

    def _read(self) -> list[Row]:
        with connection.cursor() as cursor:
            cursor.execute(
                _READ, {"shards": self._lease.shards, "shard": self._lease.shard, "limit": self._batch}
            )
            return [Row(*row) for row in cursor.fetchall()]

    def _send_all(self, sending: Sending, stop: Stop) -> None:
        give_up_at: float | None = None
        while sending.in_flight or sending.ready:
            while sending.ready and not stop.requested and sending.outage is None:
                self._send(sending)
            if not sending.in_flight:
                return
            self.publisher.serve(_SERVE_SECONDS)
            if stop.requested:
                give_up_at = give_up_at or self._clock() + _GRACE_SECONDS
                if self._clock() > give_up_at:
                    return

    def _send(self, sending: Sending) -> None:
        row = sending.ready[0]
        try:
            self.publisher.send(
                row.topic,
                row.aggregate_id,
                row.payload.encode(),
                headers_of(row),
                lambda delivery: sending.report(row, delivery),
            )
        except QueueFull:
            self.publisher.serve(_SERVE_SECONDS)
            return
        except Refused as error:
            sending.refused.append((row, error))
        else:
            sending.in_flight += 1
            faults.reach("after-produce")
        sending.ready.popleft()

    def _mark(self, sending: Sending) -> None:
        if sending.delivered:
            faults.reach("after-acknowledgement")
        with connection.cursor() as cursor:
            if sending.delivered:
                cursor.execute(
                    _MARK_PUBLISHED,
                    (
                        [row.id for row, _ in sending.delivered],
                        [delivery.partition for _, delivery in sending.delivered],
                        [delivery.offset for _, delivery in sending.delivered],
                    ),
                )
                for (age,) in cursor.fetchall():
                    metrics.PUBLISH_SECONDS.observe(age)
            if sending.refused:
                cursor.execute(
                    _MARK_REFUSED,
                    (
                        [row.id for row, _ in sending.refused],
                        [str(error) for _, error in sending.refused],
                        [self._refusal.delay(row.attempts + 1) for row, _ in sending.refused],
                    ),
                )
        self._count(sending)

    def _count(self, sending: Sending) -> None:
        for row, _ in sending.delivered:
            metrics.PUBLISHED.labels(row.topic).inc()
        for row, error in sending.refused:
            metrics.REFUSED.labels(row.topic).inc()
            log.error(
                "the broker refuses an outbox row, which holds back the later ones of its aggregate",
                outbox_id=row.id,
                event_id=row.event_id,
                topic=row.topic,
                attempts=row.attempts + 1,
                error=str(error),
            )

    def _wait_for_rows(self, stop: Stop) -> None:
        if self._wakeup is None or not self._lease.held:
            stop.wait(self._poll_seconds)
        else:
            self._wakeup.wait(self._poll_seconds)

    def _wait_out(self, error: Exception, stop: Stop) -> None:
        self._failures += 1
        if self._failures == 1:
            metrics.OUTAGES.labels("relay").inc()
            log.warning(
                "waiting for the database or the broker", worker="relay", error=" ".join(str(error).split())
            )
        if isinstance(error, BrokerError):
            self._publisher_failed(error)
        else:
            connection.close()
        stop.wait(self._outage.delay(self._failures))

    def _publisher_failed(self, error: BrokerError) -> None:
        if isinstance(error, BrokerFatal) and self._publisher is not None:
            publisher, self._publisher = self._publisher, None
            publisher.close(0)

    def _recovered(self) -> None:
        if self._failures:
            log.info("works again", worker="relay", after_failures=self._failures)
        self._failures = 0


def headers_of(row: Row) -> Headers:
    """Give the record headers of an event: CloudEvents 1.0, binary mode."""
    return [
        ("ce_id", row.event_id.encode()),
        ("ce_type", row.type.encode()),
        ("ce_source", f"/shopmicro/{row.topic}".encode()),
        ("ce_specversion", b"1.0"),
        ("ce_time", format_time(row.occurred_at).encode()),
        ("content-type", b"application/json"),
    ]
