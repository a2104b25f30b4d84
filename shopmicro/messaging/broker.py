"""The port between the machinery and a broker, and the errors that cross it.

`kafka` and `memory` implement it and pass the same tests. Topic names here are the project's
own; a prefix, where one is set, is added on the wire only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Headers = Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record as polled; ``timestamp_ms`` is the broker's append time, -1 where there is none.

    ``term`` counts the assignments of its partition to this subscriber: a record whose term
    has passed must neither be handled nor committed.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = -1
    term: int = 0

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


class BrokerError(Exception):
    """The broker refused or could not be reached; trying again later may help."""


class BrokerFatal(BrokerError):
    """The client is beyond repair: close it and make a new one."""


class QueueFull(BrokerError):
    """The client's send queue is full: serve delivery reports, then send again."""


class Refused(BrokerError):
    """The broker will not take this very record: too large, no such topic, not permitted."""


class RefusedTogether(Refused):
    """The broker will not take records that were sent together, perhaps for the sake of one of them."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The broker's word on one sent record: where it lies, or why it does not."""

    partition: int = -1
    offset: int = -1
    error: BrokerError | None = None


OnDelivery = Callable[[Delivery], None]


class Publisher(Protocol):
    """Sends records, in order per key, each answered by one delivery report."""

    def send(
        self, topic: str, key: str | None, value: bytes | None, headers: Headers, on_delivery: OnDelivery
    ) -> None:
        """Queue one record; its report, also of a refusal, comes from within `serve`.

        Raises QueueFull, BrokerFatal.
        """

    def serve(self, timeout: float) -> int:
        """Deliver reports that have come, waiting up to ``timeout`` seconds for the first.

        Gives how many were delivered. Raises BrokerFatal once the client is beyond repair.
        """

    def close(self, timeout: float) -> None:
        """Let go of the broker; what is still queued after ``timeout`` seconds is dropped."""


class Subscriber(Protocol):
    """One member of a consumer group.

    Partitions come and go inside `poll` and `keep_alive` only. Before one is let go, offsets
    committed so far are made safe with the broker.
    """

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> list[Record]:
        """Take what is there, waiting up to ``timeout`` seconds for the first record.

        At most ``max_records``; no further record is taken once ``max_bytes`` are reached.
        """

    def keep_alive(self, timeout: float) -> None:
        """Stay in the group for ``timeout`` seconds without taking records."""

    def owns(self, record: Record) -> bool:
        """Whether the record's partition is still assigned as it was when it was polled."""

    def rewind(self, records: Sequence[Record]) -> None:
        """Poll these records again: go back to the first of each partition still owned."""

    def commit(self, records: Sequence[Record]) -> None:
        """Commit the offset after the last record of each partition still owned.

        Returns at once; a refusal is logged and the offset is committed with the next batch.
        """

    def topic_id(self, topic: str) -> str:
        """The id, not shared by a recreated topic, that a topic had at the last `poll`.

        Asks the broker only for a topic of which nothing was polled. Raises BrokerError.
        """

    def close(self) -> None:
        """Make commits safe, leave the group, let go of the broker."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to be made."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


class Admin(Protocol):
    """What operations need of a broker."""

    def create_topics(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make the topics that are missing; gives the names of those made. Raises BrokerError."""

    def check(self, timeout: float) -> None:
        """Raise BrokerError if the broker does not answer within ``timeout`` seconds."""
