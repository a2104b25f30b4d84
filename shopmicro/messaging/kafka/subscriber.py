"""One member of a consumer group of Kafka."""

from collections.abc import Collection, Iterable, Sequence
from time import monotonic
from typing import Any

import structlog
from confluent_kafka import (
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as WirePartition

from shopmicro.messaging import faults
from shopmicro.messaging.broker import BrokerError, BrokerFatal, Record, TopicPartition
from shopmicro.messaging.kafka.admin import KafkaAdmin
from shopmicro.messaging.kafka.buffer import Buffer
from shopmicro.messaging.kafka.claims import Claims
from shopmicro.messaging.kafka.commits import Commits
from shopmicro.messaging.kafka.config import KafkaConfig
from shopmicro.messaging.kafka.errors import broker_error, is_fatal
from shopmicro.messaging.kafka.noise import Complaints
from shopmicro.messaging.kafka.patience import within
from shopmicro.messaging.kafka.positions import bounds, committed, starting_offset, still_meant
from shopmicro.messaging.kafka.topics import TopicIds

log = structlog.get_logger(__name__)

_DEFAULTS = {
    "queued.max.messages.kbytes": 8 * 1024,
    "fetch.max.bytes": 8 * 1024 * 1024,
    "fetch.queue.backoff.ms": 20,
    "fetch.wait.max.ms": 100,
}
_ALWAYS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
    "auto.offset.reset": "error",
}
_CLASSIC = {"partition.assignment.strategy": "cooperative-sticky"}
_LOOKUP_SECONDS = 1.5
_PLACING_SECONDS = 5.0
_COMMIT_SECONDS = 2.0
_CLOSE_SECONDS = 3.0


class KafkaSubscriber:
    """Polls the records of its share of the partitions. For one thread.

    The group's callbacks run within `poll`, `keep_alive` and `close`. ``_buffer`` holds records
    that the client gave and the caller did not take yet.
    """

    def __init__(self, config: KafkaConfig, group: str, topics: Sequence[str]) -> None:
        self._config = config
        self._group = group
        self._topics = TopicIds(KafkaAdmin(config), topics)
        self._complaints = Complaints()
        self._names = {config.on_wire(topic): topic for topic in topics}
        self._claims = Claims()
        self._commits = Commits(config, group, self._claims, self._topics, self._complaints)
        self._buffer = Buffer()
        self._strays: dict[TopicPartition, int | None] = {}
        self._next_placing = 0.0
        self._is_paused = False
        self._is_closing = False
        self._fatal: BrokerFatal | None = None
        self._consumer = Consumer(self._options())
        self._consumer.subscribe(
            list(self._names), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> list[Record]:
        """Take what is there; at most ``timeout`` seconds pass before the first record or news.

        A size is that of key and value, in bytes. Raises BrokerError.
        """
        self._resume()
        self._watch_topics()
        self._place_strays()
        self._receive(max_records - len(self._buffer), 0 if self._buffer else timeout)
        self._commits.send(self._consumer)
        return self._buffer.take(max_records, max_bytes)

    def keep_alive(self, timeout: float) -> None:
        """Stay in the group without taking records: a few are kept for the next `poll`.

        Partitions are paused only once enough are kept, since the client takes up to a second
        to fetch again after a pause. Raises BrokerError.
        """
        until = monotonic() + timeout
        left = timeout
        while left >= 0:
            if self._buffer.is_full:
                self._pause()
            self._receive(1, left)
            left = until - monotonic()
        self._commits.send(self._consumer)

    def owns(self, record: Record) -> bool:
        """Whether the record's partition is still assigned as it was when it was polled."""
        return self._claims.owns(record)

    def rewind(self, records: Sequence[Record]) -> None:
        """Poll these records again, and all after them."""
        firsts: dict[TopicPartition, int] = {}
        for record in records:
            if self.owns(record):
                firsts[record.source] = min(record.offset, firsts.get(record.source, record.offset))
        self._buffer.drop(firsts)
        for source, offset in firsts.items():
            self._go_to(source, offset)

    def commit(self, records: Sequence[Record]) -> None:
        """Commit the offset after the last record of each partition still owned; returns at once."""
        self._claims.handle(records)
        self._commits.send(self._consumer)

    def topic_id(self, topic: str) -> str:
        """Give the broker's id of a topic, at most ten seconds old. Raises BrokerError."""
        if self._topics.is_due:
            self._start_over(self._topics.refresh())
        return self._topics.require(topic)

    def close(self) -> None:
        """Make commits safe and leave the group; a broker that is away is not waited for long."""
        if self._is_closing:
            return
        self._commits.make_safe(self._consumer, self._claims.sources(), _COMMIT_SECONDS)
        self._is_closing = True
        left = within(_CLOSE_SECONDS, self._consumer.close)
        if left is None:
            log.warning("the group was not told of the leaving member: no answer", group=self._group)
        elif left.error is not None:
            log.warning("leaving the group failed", group=self._group, error=str(left.error))
        self._claims.let_go(self._claims.sources())
        self._buffer = Buffer()

    def _options(self) -> dict[str, Any]:
        always = {
            **_ALWAYS,
            "group.id": self._config.on_wire(self._group),
            "group.protocol": self._config.group_protocol,
            "on_commit": self._commits.hear,
            "error_cb": self._hear,
        }
        classic = _CLASSIC if self._config.group_protocol == "classic" else {}
        return self._config.client({**_DEFAULTS, **classic}, always)

    # --- Records in ---------------------------------------------------------------------------

    def _receive(self, wanted: int, timeout: float) -> None:
        """Serve the callbacks, and move up to ``wanted`` records (at least one) into the buffer.

        `consume` waits for its full number: so the first comes by `poll`, the rest if it is there.
        """
        self._raise_fatal()
        try:
            first = self._consumer.poll(timeout)
            if first is not None:
                self._absorb([first])
                if wanted > 1:
                    self._absorb(self._consumer.consume(wanted - 1, 0))
        except KafkaException as error:
            raise broker_error(error.args[0]) from None
        self._raise_fatal()

    def _absorb(self, messages: Iterable[Any]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                self._hear_of_partition(error, message)
                continue
            source = TopicPartition(self._names[message.topic()], message.partition())
            term = self._claims.term(source)
            if term is not None:
                self._buffer.add(_record(source, term, message))

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._consumer.pause(self._assigned())

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._consumer.resume(self._assigned())

    # --- Positions ----------------------------------------------------------------------------

    def _go_to(self, source: TopicPartition, offset: int) -> None:
        """Read on from an offset. A partition that does not fetch yet refuses to seek: it is taken anew."""
        if source in self._strays:
            self._strays[source] = offset
            return
        target = self._on_wire(source, offset)
        try:
            self._consumer.seek(target)
        except KafkaException:
            self._take_anew(target)

    def _take_anew(self, target: WirePartition) -> None:
        try:
            self._consumer.incremental_unassign([target])
            self._consumer.incremental_assign([target])
            if self._is_paused:
                self._consumer.pause([target])
        except KafkaException as error:
            raise broker_error(error.args[0]) from None

    def _place_strays(self) -> None:
        """Put partitions whose position the log does not hold where they can be read.

        If that can't be found out now, the others flow on and it is tried again later.
        """
        if not self._strays or monotonic() < self._next_placing:
            return
        sources = list(self._strays)
        try:
            found = bounds(self._consumer, [self._on_wire(source) for source in sources], _LOOKUP_SECONDS)
        except KafkaException as error:
            self._next_placing = monotonic() + _PLACING_SECONDS
            self._hear(error.args[0])
            return
        for source, log_bounds in zip(sources, found, strict=True):
            self._take_anew(self._on_wire(source, starting_offset(source, self._strays[source], log_bounds)))
            del self._strays[source]

    def _starting_partitions(self, partitions: Sequence[WirePartition]) -> list[WirePartition]:
        """Give the partitions with the offsets to start from.

        If they can't be found out now, the client looks for the committed ones by itself, and
        tells of each partition where there is none that the log holds: a stray.
        """
        sources = [self._off_wire(partition) for partition in partitions]
        try:
            positions = committed(self._consumer, partitions, _LOOKUP_SECONDS)
            found = bounds(self._consumer, partitions, _LOOKUP_SECONDS)
        except KafkaException as error:
            log.warning("starting offsets are not known yet", group=self._group, error=str(error.args[0]))
            return [self._on_wire(source, OFFSET_STORED) for source in sources]
        return [
            self._on_wire(
                source,
                starting_offset(
                    source, still_meant(source, position, self._topics.known(source.topic)), log_bounds
                ),
            )
            for source, position, log_bounds in zip(sources, positions, found, strict=True)
        ]

    def _watch_topics(self) -> None:
        if self._topics.is_due and self._claims.sources():
            self._look_at_topics()

    def _look_at_topics(self) -> None:
        try:
            self._start_over(self._topics.refresh())
        except BrokerError as error:
            log.debug("topic ids are not known now", group=self._group, error=str(error))

    def _start_over(self, topics: Collection[str]) -> None:
        """Read topics that were made anew from their start, in new terms."""
        anew = [source for source in self._claims.sources() if source.topic in topics]
        if not anew:
            return
        log.error(
            "a topic was made anew, and is read from its start", group=self._group, topics=sorted(topics)
        )
        self._buffer.drop(anew)
        for source in anew:
            self._claims.take(source)
            self._strays[source] = None

    # --- Partitions come and go ---------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[WirePartition]) -> None:
        if not partitions or self._is_closing:
            return
        self._look_at_topics()
        consumer.incremental_assign(self._starting_partitions(partitions))
        for partition in partitions:
            self._claims.take(self._off_wire(partition))
        if self._is_paused:
            consumer.pause(partitions)
        log.info("partitions assigned", group=self._group, partitions=_names(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[WirePartition]) -> None:
        faults.reach("inside-revoke")
        if not self._is_closing:
            sources = [self._off_wire(partition) for partition in partitions]
            self._commits.make_safe(consumer, sources, _COMMIT_SECONDS)
        self._let_go(partitions)
        log.info("partitions revoked", group=self._group, partitions=_names(partitions))

    def _on_lost(self, consumer: Consumer, partitions: list[WirePartition]) -> None:
        self._let_go(partitions)
        log.warning("partitions lost", group=self._group, partitions=_names(partitions))

    def _let_go(self, partitions: Sequence[WirePartition]) -> None:
        gone = [self._off_wire(partition) for partition in partitions]
        self._buffer.drop(gone)
        self._claims.let_go(gone)
        for source in gone:
            self._strays.pop(source, None)

    # --- News ---------------------------------------------------------------------------------

    def _hear_of_partition(self, error: KafkaError, message: Any) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            offset = message.offset()
            source = TopicPartition(self._names[message.topic()], message.partition())
            self._strays[source] = offset if offset is not None and offset >= 0 else None
            return
        self._hear(error)

    def _hear(self, error: KafkaError) -> None:
        if is_fatal(error):
            self._fatal = BrokerFatal(f"{error.name()}: {error.str()}")
        self._complaints.hear("the consumer has trouble with the broker", error, group=self._group)

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    # --- Names --------------------------------------------------------------------------------

    def _assigned(self) -> list[WirePartition]:
        return [self._on_wire(source) for source in self._claims.sources()]

    def _on_wire(self, source: TopicPartition, offset: int = OFFSET_INVALID) -> WirePartition:
        return WirePartition(self._config.on_wire(source.topic), source.partition, offset)

    def _off_wire(self, partition: WirePartition) -> TopicPartition:
        return TopicPartition(self._config.off_wire(partition.topic), partition.partition)


def _record(source: TopicPartition, term: int, message: Any) -> Record:
    kind, timestamp_ms = message.timestamp()
    return Record(
        topic=source.topic,
        partition=source.partition,
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        term=term,
    )


def _names(partitions: Iterable[WirePartition]) -> str:
    return " ".join(f"{partition.topic}[{partition.partition}]" for partition in partitions)
