"""The broker in memory: what the real one promises, without a process, for tests.

It passes the same tests as `kafka`. Beside the port it has hooks for faults: `MemoryBroker.away`,
`reports_are_held`, `refuse`, `recreate`.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Condition
from uuid import uuid4
from zlib import crc32

from shopmicro.messaging.broker import (
    BrokerError,
    Delivery,
    Headers,
    OnDelivery,
    QueueFull,
    Record,
    Refused,
    RefusedTogether,
    TopicPartition,
    TopicSpec,
)

MAX_RECORD_BYTES = 1_000_000


@dataclass(slots=True)
class Topic:
    """A topic: its id, and each partition's records in order."""

    logs: list[list[Record]]
    id: str = field(default_factory=lambda: str(uuid4()))
    is_refusing: bool = False


@dataclass(slots=True)
class Group:
    """A consumer group: members in order of joining, who owns what, committed offsets."""

    members: list["MemorySubscriber"] = field(default_factory=list)
    owners: dict[TopicPartition, "MemorySubscriber"] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class MemoryBroker:
    """Topics and groups, for clients in any threads.

    While ``away`` is true, subscribers and admins raise BrokerError and publishers report one.
    While ``reports_are_held``, records are appended and their reports wait.
    """

    def __init__(self, queue_limit: int = 50_000) -> None:
        self.away = False
        self.reports_are_held = False
        self.queue_limit = queue_limit
        self.changed = Condition()
        self._topics: dict[str, Topic] = {}
        self._groups: dict[str, Group] = {}
        self._spread = count()

    def publisher(self) -> "MemoryPublisher":
        """Give a new publisher."""
        return MemoryPublisher(self)

    def subscriber(self, group: str, topics: Sequence[str]) -> "MemorySubscriber":
        """Give a new member of a group, which joins it with its first poll."""
        with self.changed:
            return MemorySubscriber(self, self._groups.setdefault(group, Group()), topics)

    def admin(self) -> "MemoryAdmin":
        """Give an admin."""
        return MemoryAdmin(self)

    def refuse(self, topic: str, refuse: bool = True) -> None:
        """Refuse all records of a topic, or take them again."""
        with self.changed:
            self.topic(topic).is_refusing = refuse

    def recreate(self, topic: str) -> None:
        """Delete a topic with its records and offsets, and make it again under a new id."""
        with self.changed:
            partitions = len(self.topic(topic).logs)
            self._topics[topic] = Topic([[] for _ in range(partitions)])
            for group in self._groups.values():
                group.owners = {
                    source: owner for source, owner in group.owners.items() if source.topic != topic
                }
                group.offsets = {source: at for source, at in group.offsets.items() if source.topic != topic}
            self.changed.notify_all()

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """Give the offset that a group has committed, None if it has not."""
        with self.changed:
            return self._groups[group].offsets.get(TopicPartition(topic, partition))

    def records(self, topic: str) -> list[Record]:
        """Give all records of a topic, partition by partition."""
        with self.changed:
            return [record for log in self.topic(topic).logs for record in log]

    # --- For the clients, under the lock --------------------------------------------------------

    def require(self) -> None:
        """Raise BrokerError while the broker is away."""
        if self.away:
            raise BrokerError("the broker is away")

    def topic(self, name: str) -> Topic:
        """Give a topic. Raises Refused if there is none."""
        try:
            return self._topics[name]
        except KeyError:
            raise Refused(f"no topic {name}") from None

    def sources(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Give all partitions of those topics that exist."""
        return [
            TopicPartition(name, number)
            for name in sorted(topics)
            if name in self._topics
            for number in range(len(self._topics[name].logs))
        ]

    def log(self, source: TopicPartition) -> list[Record]:
        """Give the records of a partition."""
        return self._topics[source.topic].logs[source.partition]

    def create(self, spec: TopicSpec) -> bool:
        """Make a topic unless it exists; gives whether it was made."""
        if spec.name in self._topics:
            return False
        self._topics[spec.name] = Topic([[] for _ in range(spec.partitions)])
        self.changed.notify_all()
        return True

    def append(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> Delivery:
        """Append a record to the partition of its key; gives the delivery report."""
        try:
            self.require()
            found = self.topic(topic)
            if found.is_refusing:
                raise Refused(f"topic {topic} refuses records")
            if len(value or b"") > MAX_RECORD_BYTES:
                raise RefusedTogether("the record is too large")
        except BrokerError as error:
            return Delivery(error=error)
        number = (next(self._spread) if key is None else crc32(key)) % len(found.logs)
        log = found.logs[number]
        now_ms = time.time_ns() // 1_000_000
        log.append(Record(topic, number, len(log), key, value, tuple(headers), now_ms))
        self.changed.notify_all()
        return Delivery(number, len(log) - 1)


class MemoryPublisher:
    """Appends at once; the reports come from `serve`, as from the real one."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._reports: deque[tuple[OnDelivery, Delivery]] = deque()

    def send(
        self, topic: str, key: str | None, value: bytes | None, headers: Headers, on_delivery: OnDelivery
    ) -> None:
        """Append one record. Raises QueueFull when too many reports wait."""
        with self._broker.changed:
            if len(self._reports) >= self._broker.queue_limit:
                raise QueueFull("the send queue is full")
            delivery = self._broker.append(topic, None if key is None else key.encode(), value, headers)
            self._reports.append((on_delivery, delivery))

    def serve(self, timeout: float) -> int:
        """Deliver the reports that are not held."""
        with self._broker.changed:
            self._broker.changed.wait_for(
                lambda: bool(self._reports) and not self._broker.reports_are_held, timeout
            )
            due: deque[tuple[OnDelivery, Delivery]] = deque()
            if not self._broker.reports_are_held:
                due, self._reports = self._reports, due
        for on_delivery, delivery in due:
            on_delivery(delivery)
        return len(due)

    def close(self, timeout: float) -> None:
        """Deliver what can be delivered, and drop the rest."""
        if self._reports:
            self.serve(timeout)
        self._reports.clear()


class MemoryAdmin:
    """Makes topics."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def create_topics(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make the topics that are missing, and give their names."""
        with self._broker.changed:
            self._broker.require()
            return [spec.name for spec in topics if self._broker.create(spec)]

    def check(self, timeout: float) -> None:
        """Raise BrokerError while the broker is away."""
        self._broker.require()


class MemorySubscriber:
    """A member of a group. Partitions are shared out evenly; each is let go by its owner's own poll."""

    def __init__(self, broker: MemoryBroker, group: Group, topics: Sequence[str]) -> None:
        self._broker = broker
        self._group = group
        self.topics = tuple(topics)
        self._terms: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._handled: dict[TopicPartition, int] = {}
        self._given: dict[str, str] = {}
        self._count = count(1)

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> list[Record]:
        """Take what is there, waiting up to ``timeout`` seconds for the first record."""
        taken: list[Record] = []

        def is_served() -> bool:
            self._broker.require()
            self._rebalance()
            taken.extend(self._take(max_records, max_bytes))
            return bool(taken)

        with self._broker.changed:
            self._broker.changed.wait_for(is_served, timeout)
            self._given = {topic: self._broker.topic(topic).id for topic, _ in self._terms}
        return taken

    def keep_alive(self, timeout: float) -> None:
        """Stay in the group for ``timeout`` seconds without taking records."""

        def is_over() -> bool:
            self._broker.require()
            self._rebalance()
            return False

        with self._broker.changed:
            self._broker.changed.wait_for(is_over, timeout)

    def owns(self, record: Record) -> bool:
        """Whether the record's partition is still assigned as it was when it was polled."""
        return self._terms.get(record.source) == record.term

    def rewind(self, records: Sequence[Record]) -> None:
        """Poll these records again, and all after them."""
        for record in records:
            if self.owns(record):
                self._positions[record.source] = min(record.offset, self._positions[record.source])

    def commit(self, records: Sequence[Record]) -> None:
        """Commit the offset after the last record of each partition still owned."""
        for record in records:
            if self.owns(record):
                self._handled[record.source] = max(record.offset + 1, self._handled.get(record.source, 0))
        with self._broker.changed:
            self._flush()

    def topic_id(self, topic: str) -> str:
        """Give the id that a topic had at the last poll; asks the broker only before the first."""
        if topic in self._given:
            return self._given[topic]
        with self._broker.changed:
            self._broker.require()
            return self._broker.topic(topic).id

    def close(self) -> None:
        """Leave the group."""
        with self._broker.changed:
            self._flush()
            if self in self._group.members:
                self._group.members.remove(self)
            self._let_go(list(self._terms))

    def _flush(self) -> None:
        if not self._broker.away:
            self._group.offsets.update(self._handled)
            self._handled.clear()

    def _rebalance(self) -> None:
        self._flush()
        if self not in self._group.members:
            self._group.members.append(self)
            self._broker.changed.notify_all()
        share, owners = self._share(), self._group.owners
        self._let_go(
            [source for source in self._terms if source not in share or owners.get(source) is not self]
        )
        for source in share:
            if source not in owners:
                owners[source] = self
                self._terms[source] = next(self._count)
                self._positions[source] = self._start(source)

    def _share(self) -> list[TopicPartition]:
        sources = self._broker.sources(self.topics)
        return [source for source in sources if self._reader(source) is self]

    def _reader(self, source: TopicPartition) -> "MemorySubscriber":
        readers = [member for member in self._group.members if source.topic in member.topics]
        return readers[source.partition % len(readers)]

    def _start(self, source: TopicPartition) -> int:
        offset = self._group.offsets.get(source, 0)
        return offset if offset <= len(self._broker.log(source)) else 0

    def _let_go(self, sources: Iterable[TopicPartition]) -> None:
        for source in sources:
            for kept in (self._terms, self._positions, self._handled):
                kept.pop(source, None)
            if self._group.owners.get(source) is self:
                del self._group.owners[source]
                self._broker.changed.notify_all()

    def _take(self, max_records: int, max_bytes: int) -> list[Record]:
        taken: list[Record] = []
        size = 0
        for source, position in self._positions.items():
            for record in self._broker.log(source)[position : position + max_records]:
                if len(taken) == max_records or size >= max_bytes:
                    return taken
                taken.append(record._replace(term=self._terms[source]))
                size += len(record.value or b"") + len(record.key or b"")
                self._positions[source] = record.offset + 1
        return taken
