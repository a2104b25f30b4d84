"""From the outbox to the broker: in order per aggregate, marked only on a row's own acknowledgement."""

from collections import Counter, defaultdict
from collections.abc import Callable
from time import monotonic

import structlog
from django.db import DatabaseError, InterfaceError, connection

from shopmicro.messaging import faults, metrics
from shopmicro.messaging.broker import BrokerError, BrokerFatal, Publisher
from shopmicro.messaging.lease import ShardLease
from shopmicro.messaging.outage import Outage
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.sending import Reports, Row, Sending
from shopmicro.messaging.shutdown import Stop
from shopmicro.messaging.wakeup import Wakeup

log = structlog.get_logger(__name__)

_SLICE_SECONDS = 0.5

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
SET published_at = now(), partition = delivered.partition, "offset" = delivered.record_offset,
    error = '', failing_since = NULL, next_attempt_at = NULL
FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS delivered (id, partition, record_offset)
WHERE outbox.id = delivered.id AND published_at IS NULL
RETURNING extract(epoch FROM now() - created_at)::float8
"""

_MARK_REFUSED = """
UPDATE outbox
SET attempts = attempts + 1, error = refused.error,
    failing_since = coalesce(failing_since, now()),
    next_attempt_at = now() + make_interval(secs => refused.delay)
FROM unnest(%s::bigint[], %s::text[], %s::float8[]) AS refused (id, error, delay)
WHERE outbox.id = refused.id AND published_at IS NULL
"""


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
        outage: Outage,
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
        self._reports = Reports()

    @property
    def publisher(self) -> Publisher:
        """The client that sends, made at first use."""
        if self._publisher is None:
            self._publisher = self._connect()
        return self._publisher

    def run(self, stop: Stop) -> None:
        """Publish until a stop is requested; outages of database and broker are waited out.

        A frozen broker delays the end by 3 s; a frozen database may delay it for good, which
        whoever makes ``stop`` bounds.
        """
        log.info("relay starts", shard=self._lease.shard, shards=self._lease.shards)
        try:
            while not stop.requested:
                self._step_and_wait(stop)
        finally:
            self.close()
        log.info("relay stopped", shard=self._lease.shard)

    def step(self, stop: Stop) -> int:
        """Publish one batch of rows if this relay leads its shard; gives how many were published.

        Raises BrokerError when the broker could not take them: they stay in the outbox. What was
        acknowledged and could not be marked is marked by the next step, before it sends anything.
        """
        leads = self._lease.hold()
        self._mark()
        if not leads:
            return 0
        if self._wakeup is not None:
            self._wakeup.listen()
            self._wakeup.clear()
        rows = self._read()
        return self._publish(rows, stop) if rows else 0

    def close(self) -> None:
        """Let go of the broker, and of the lease with the database session.

        What is still in flight was waited for already, and stays in the outbox.
        """
        if self._publisher is not None:
            self._publisher.close(0)
            self._publisher = None
        connection.close()

    def _step_and_wait(self, stop: Stop) -> None:
        metrics.LAST_STEP.set_to_current_time()
        try:
            published = self.step(stop)
            self._outage.is_over()
            if published == 0:
                self._wait_for_rows(stop)
        except (DatabaseError, InterfaceError, BrokerError) as error:
            self._drop_what_failed(error)
            stop.wait(self._outage.failed(error))

    def _wait_for_rows(self, stop: Stop) -> None:
        until = self._clock() + self._poll_seconds
        while not stop.requested and (left := until - self._clock()) > 0:
            self._lease.keep()
            if self._wakeup is None or not self._lease.held:
                stop.wait(min(left, _SLICE_SECONDS))
            elif self._wakeup.wait(min(left, _SLICE_SECONDS)):
                return

    def _drop_what_failed(self, error: Exception) -> None:
        if not isinstance(error, BrokerError):
            connection.close()
        elif isinstance(error, BrokerFatal) and self._publisher is not None:
            publisher, self._publisher = self._publisher, None
            publisher.close(0)

    def _read(self) -> list[Row]:
        with connection.cursor() as cursor:
            cursor.execute(
                _READ, {"shards": self._lease.shards, "shard": self._lease.shard, "limit": self._batch}
            )
            return [Row(*row) for row in cursor.fetchall()]

    def _publish(self, rows: list[Row], stop: Stop) -> int:
        sending = Sending(self.publisher, rows, self._reports, meanwhile=self._lease.keep, clock=self._clock)
        try:
            sending.run(stop)
        finally:
            published = self._mark()
        if sending.outage is not None:
            raise sending.outage
        return published

    def _mark(self) -> int:
        """Write down what the broker has said; gives how many rows it has acknowledged."""
        published = len(self._reports.delivered)
        if self._reports.delivered:
            self._mark_delivered()
        if self._reports.refused:
            self._mark_refused()
        return published

    def _mark_delivered(self) -> None:
        delivered = self._reports.delivered
        faults.reach("after-acknowledgement")
        with connection.cursor() as cursor:
            cursor.execute(
                _MARK_PUBLISHED,
                (
                    [row.id for row, _ in delivered],
                    [delivery.partition for _, delivery in delivered],
                    [delivery.offset for _, delivery in delivered],
                ),
            )
            ages = cursor.fetchall()
        for (age,) in ages:
            metrics.PUBLISH_SECONDS.observe(age)
        for topic, count in Counter(row.topic for row, _ in delivered).items():
            metrics.PUBLISHED.labels(topic).inc(count)
        delivered.clear()

    def _mark_refused(self) -> None:
        refused = self._reports.refused
        with connection.cursor() as cursor:
            cursor.execute(
                _MARK_REFUSED,
                (
                    [row.id for row, _ in refused],
                    [str(error) for _, error in refused],
                    [self._refusal.delay(row.attempts + 1) for row, _ in refused],
                ),
            )
        self._say_refused()
        refused.clear()

    def _say_refused(self) -> None:
        alike: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row, error in self._reports.refused:
            alike[row.topic, str(error)].append(row)
        for (topic, sentence), rows in alike.items():
            metrics.REFUSED.labels(topic).inc(len(rows))
            log.error(
                "the broker refuses outbox rows, which hold back the later ones of their aggregates",
                topic=topic,
                error=sentence,
                rows=len(rows),
                outbox_id=rows[0].id,
                event_id=rows[0].event_id,
                attempts=rows[0].attempts + 1,
            )
