"""One member of a consumer group of Kafka."""

from collections.abc import Collection, Iterable, Sequence
from time import monotonic
from typing import Any

import structlog
from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as WirePartition

from shopmicro.messaging import faults
from shopmicro.messaging.broker import BrokerError, Record, TopicPartition
from shopmicro.messaging.kafka.admin import KafkaAdmin
from shopmicro.messaging.kafka.buffer import Buffer
from shopmicro.messaging.kafka.claims import Claims, names
from shopmicro.messaging.kafka.commits import Commits
from shopmicro.messaging.kafka.config import KafkaConfig
from shopmicro.messaging.kafka.errors import broker_errors
from shopmicro.messaging.kafka.noise import Complaints
from shopmicro.messaging.kafka.patience import Deadline, within
from shopmicro.messaging.kafka.placing import Placing
from shopmicro.messaging.kafka.records import record_of
from shopmicro.messaging.kafka.topics import TopicIds
from shopmicro.messaging.kafka.trouble import Trouble

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
# With a broker that does not answer, the look-ups of the last poll and a close end within 5 seconds.
_LOOKUP_SECONDS = 1.5
_COMMIT_SECONDS = 1.5
_CLOSE_SECONDS = 2.0


class KafkaSubscriber:
    """Polls the records of its share of the partitions. For one thread.

    The group's callbacks run within `poll`, `keep_alive` and `close`. ``_buffer`` holds records
    that the client gave and the caller did not take yet.
    """

    def __init__(self, config: KafkaConfig, group: str, topics: Sequence[str]) -> None:
        self._config = config
        self._group = group
        self._topics = TopicIds(KafkaAdmin(config), topics)
        complaints = Complaints()
        self._trouble = Trouble("the consumer has trouble with the broker", complaints, group=group)
        self._names = {config.on_wire(topic): topic for topic in topics}
        self._claims = Claims()
        self._commits = Commits(config, group, self._claims, self._topics, complaints)
        self._buffer = Buffer()
        self._placing = Placing(config, group, self._topics, complaints)
        self._is_paused = False
        self._is_closing = False
        self._consumer = Consumer(self._options())
        self._consumer.subscribe(
            list(self._names),
            on_assign=self._trouble.guarded(self._on_assign),
            on_revoke=self._trouble.guarded(self._on_revoke),
            on_lost=self._trouble.guarded(self._on_lost),
        )

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> list[Record]:
        """Take what is there; at most ``timeout`` seconds pass before the first record or news.

        A size is that of key and value, in bytes. Raises BrokerError.
        """
        self._resume()
        self._look_after_positions()
        self._receive(max_records - len(self._buffer), 0 if self._buffer else timeout)
        self._commits.send(self._consumer)
        self._topics.give()
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
        """Poll these records again, and all after them.

        Raises BrokerFatal if the client does not go back: the next one begins at the last commit.
        """
        firsts = self._claims.firsts(records)
        self._buffer.drop(firsts)
        for source, offset in firsts.items():
            self._go_to(source, offset)

    def commit(self, records: Sequence[Record]) -> None:
        """Commit the offset after the last record of each partition still owned; returns at once."""
        self._claims.handle(records)
        self._commits.send(self._consumer)

    def topic_id(self, topic: str) -> str:
        """Give the id that a topic had at the last poll; asks the broker only before the first.

        Raises BrokerError.
        """
        if given := self._topics.given(topic):
            return given
        if not self._topics.known(topic):
            self._start_over(self._topics.refresh(Deadline(_LOOKUP_SECONDS)))
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
            "on_commit": self._trouble.guarded(self._commits.hear),
            "error_cb": self._trouble.hear,
        }
        if self._config.group_protocol == "classic":
            always["partition.assignment.strategy"] = "cooperative-sticky"
        return self._config.client(_DEFAULTS, always)

    # --- Records in ---------------------------------------------------------------------------

    def _receive(self, wanted: int, timeout: float) -> None:
        """Serve the callbacks, and move up to ``wanted`` records (at least one) into the buffer.

        `consume` waits for its full number: so the first comes by `poll`, the rest if it is there.
        """
        self._trouble.raise_fatal()
        with broker_errors():
            first = self._consumer.poll(timeout)
            if first is not None:
                self._absorb([first])
                if wanted > 1:
                    self._absorb(self._consumer.consume(wanted - 1, 0))
        self._trouble.raise_fatal()

    def _absorb(self, messages: Iterable[Any]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                self._hear_of_partition(error, message)
                continue
            source = self._source(message)
            term = self._claims.term(source)
            if term is not None and source not in self._placing:
                self._buffer.add(record_of(message, source, term))

    def _source(self, message: Any) -> TopicPartition:
        topic = message.topic()
        return TopicPartition(self._names.get(topic, topic), message.partition())

    def _hear_of_partition(self, error: KafkaError, message: Any) -> None:
        if error.code() != KafkaError._AUTO_OFFSET_RESET:
            self._trouble.hear(error)
            return
        source, offset = self._source(message), message.offset()
        if self._claims.term(source) is not None and source not in self._placing:
            self._placing.add(source, offset if offset is not None and offset >= 0 else OFFSET_STORED)

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
        if source in self._placing:
            self._placing.add(source, offset)
            return
        target = self._config.partition_on_wire(source, offset)
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
            self._trouble.give_up(f"a partition can't be taken up again: {error.args[0]}")
            self._trouble.raise_fatal()

    def _look_after_positions(self) -> None:
        """Watch for topics made anew, and put strays where they are to be read on."""
        deadline = Deadline(_LOOKUP_SECONDS)
        if self._placing.is_due or (self._topics.is_due and self._claims.sources()):
            self._look_at_topics(deadline)
        if self._placing.is_due:
            placed = self._placing.place(self._consumer, self._placing.strays(), deadline)
            for source, offset in placed.items():
                self._take_anew(self._config.partition_on_wire(source, offset))

    def _look_at_topics(self, deadline: Deadline) -> None:
        try:
            self._start_over(self._topics.refresh(deadline))
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
            self._placing.add(source, OFFSET_BEGINNING)

    # --- Partitions come and go ---------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[WirePartition]) -> None:
        if not partitions or self._is_closing:
            return
        deadline = Deadline(_LOOKUP_SECONDS)
        self._look_at_topics(deadline)
        sources = self._off_wire(partitions)
        for source in sources:
            self._claims.take(source)
            self._placing.add(source)
        placed = self._placing.place(consumer, sources, deadline)
        consumer.incremental_assign(
            [self._config.partition_on_wire(source, placed.get(source, OFFSET_STORED)) for source in sources]
        )
        if self._is_paused:
            consumer.pause(partitions)
        log.info("partitions assigned", group=self._group, partitions=names(sources))

    def _on_revoke(self, consumer: Consumer, partitions: list[WirePartition]) -> None:
        faults.reach("inside-revoke")
        sources = self._off_wire(partitions)
        try:
            if not self._is_closing:
                self._commits.make_safe(consumer, sources, _COMMIT_SECONDS)
        finally:
            self._let_go(sources)
        log.info("partitions revoked", group=self._group, partitions=names(sources))

    def _on_lost(self, consumer: Consumer, partitions: list[WirePartition]) -> None:
        self._let_go(sources := self._off_wire(partitions))
        log.warning("partitions lost", group=self._group, partitions=names(sources))

    def _let_go(self, sources: Sequence[TopicPartition]) -> None:
        self._buffer.drop(sources)
        self._claims.let_go(sources)
        self._placing.forget(sources)

    def _assigned(self) -> list[WirePartition]:
        return [self._config.partition_on_wire(source) for source in self._claims.sources()]

    def _off_wire(self, partitions: Iterable[WirePartition]) -> list[TopicPartition]:
        return [self._config.partition_off_wire(partition) for partition in partitions]
