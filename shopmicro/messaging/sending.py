"""One batch of outbox rows on its way to the broker: what may fly together, and what became of it."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from time import monotonic
from typing import NamedTuple

from shopmicro.messaging import faults
from shopmicro.messaging.broker import (
    BrokerError,
    Delivery,
    Headers,
    Publisher,
    QueueFull,
    Refused,
    RefusedTogether,
)
from shopmicro.messaging.event import format_time
from shopmicro.messaging.shutdown import Stop

_SERVE_SECONDS = 0.1
_START_SECONDS = 10.0
_GRACE_SECONDS = 3.0


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
class Reports:
    """What the broker has said of rows and the outbox does not know yet."""

    delivered: list[tuple[Row, Delivery]] = field(default_factory=list)
    refused: list[tuple[Row, Refused]] = field(default_factory=list)


class Sending:
    """Sends one batch, with at most one unacknowledged row an aggregate.

    The later rows of an aggregate are held, sent one by one as its earlier ones arrive, and let
    go when one does not: they stay in the outbox. The broker may refuse many records for the
    sake of one among them, so a row that was refused with others is sent again with no other in
    flight, and only what is refused then is reported as refused.

    Reports that come after the end of `run`, from within a later `serve`, are taken too.
    ``meanwhile`` is called about ten times a second while reports are waited for.
    """

    def __init__(
        self,
        publisher: Publisher,
        rows: Sequence[Row],
        reports: Reports,
        *,
        meanwhile: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.outage: BrokerError | None = None
        self._publisher = publisher
        self._reports = reports
        self._meanwhile = meanwhile
        self._clock = clock
        self._start_until = clock() + _START_SECONDS
        self._give_up_at: float | None = None
        self._in_flight = 0
        self._ready: deque[Row] = deque()
        self._alone: deque[Row] = deque()
        self._held: dict[str, deque[Row]] = {}
        for row in rows:
            self._enqueue(row)

    def run(self, stop: Stop) -> None:
        """Send until every row is answered; no row is started after 10 s, a stop or an outage.

        After a stop reports are waited for 3 s longer. Raises BrokerFatal, and what
        ``meanwhile`` raises.
        """
        while (self._start(stop) or self._in_flight) and not self._has_waited_enough(stop):
            self._publisher.serve(_SERVE_SECONDS)
            self._meanwhile()

    def _enqueue(self, row: Row) -> None:
        if row.aggregate_id in self._held:
            self._held[row.aggregate_id].append(row)
        else:
            self._held[row.aggregate_id] = deque()
            self._make_ready(row)

    def _make_ready(self, row: Row) -> None:
        (self._alone if row.attempts else self._ready).append(row)

    def _start(self, stop: Stop) -> bool:
        """Send what may be sent now; gives whether more could be, were the client's queue not full."""
        while self.outage is None and not stop.requested and self._clock() < self._start_until:
            if self._ready:
                queue = self._ready
            elif self._alone and not self._in_flight:
                queue = self._alone
            else:
                return False
            if not self._send(queue[0], is_alone=queue is self._alone):
                return True
            queue.popleft()
        return False

    def _send(self, row: Row, *, is_alone: bool) -> bool:
        report = partial(self._report, row, is_alone)
        try:
            self._publisher.send(row.topic, row.aggregate_id, row.payload.encode(), headers_of(row), report)
        except QueueFull:
            return False
        self._in_flight += 1
        faults.reach("after-produce")
        return True

    def _report(self, row: Row, is_alone: bool, delivery: Delivery) -> None:
        self._in_flight -= 1
        if delivery.error is None:
            self._reports.delivered.append((row, delivery))
            held = self._held[row.aggregate_id]
            if held:
                self._make_ready(held.popleft())
        elif not isinstance(delivery.error, Refused):
            self.outage = delivery.error
        elif is_alone or not isinstance(delivery.error, RefusedTogether):
            self._reports.refused.append((row, delivery.error))
        else:
            self._alone.append(row)

    def _has_waited_enough(self, stop: Stop) -> bool:
        if not stop.requested:
            return False
        if self._give_up_at is None:
            self._give_up_at = self._clock() + _GRACE_SECONDS
        return self._clock() >= self._give_up_at


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
