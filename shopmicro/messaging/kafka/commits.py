"""Commits offsets: quietly while partitions are owned, and for sure before they are let go."""

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic, sleep

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as WirePartition

from shopmicro.messaging.broker import TopicPartition
from shopmicro.messaging.kafka.claims import Claims, names
from shopmicro.messaging.kafka.config import KafkaConfig
from shopmicro.messaging.kafka.noise import Complaints
from shopmicro.messaging.kafka.positions import Committed, committed
from shopmicro.messaging.kafka.topics import TopicIds

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 0.1


class Commits:
    """The commits of one member.

    At most one is on its way, so that no late repeat within the client can pull an offset back.
    What is refused, or handled meanwhile, goes with the next one as long as its partition is owned.
    Each carries the topic's id, which tells whether it still means the same records.
    """

    def __init__(
        self, config: KafkaConfig, group: str, claims: Claims, topics: TopicIds, complaints: Complaints
    ) -> None:
        self._config = config
        self._group = group
        self._claims = claims
        self._topics = topics
        self._complaints = complaints
        self._on_the_way: dict[TopicPartition, int | None] = {}

    def send(self, consumer: Consumer) -> None:
        """Commit what is handled and not committed; returns at once, `hear` gets the answer."""
        if self._on_the_way:
            return
        offsets = self._claims.uncommitted(self._claims.sources())
        if not offsets:
            return
        try:
            consumer.commit(offsets=self._on_wire(offsets), asynchronous=True)
        except KafkaException as error:
            self._complain(error.args[0], offsets)
        else:
            self._on_the_way = {source: self._claims.term(source) for source in offsets}

    def hear(self, error: KafkaError | None, partitions: Sequence[WirePartition]) -> None:
        """Take the broker's answer to a commit."""
        terms, self._on_the_way = self._on_the_way, {}
        for partition in partitions:
            source = self._config.partition_off_wire(partition)
            refusal = error or partition.error
            if refusal is None:
                self._claims.commit(source, terms.get(source), partition.offset)
            else:
                self._complain(refusal, [source])

    def make_safe(self, consumer: Consumer, sources: Iterable[TopicPartition], seconds: float) -> None:
        """Commit what is handled of partitions about to be let go, and wait until the broker holds it.

        A synchronous commit has no time limit; so the offsets are read back, which has one, and
        which the broker answers after all commits that travel before it on the same connection.
        A failure is survived: the records come again, elsewhere.
        """
        offsets = self._claims.uncommitted(sources)
        until = monotonic() + seconds
        refusal = ""
        while offsets and (left := until - monotonic()) > 0:
            partitions = self._on_wire(offsets)
            try:
                consumer.commit(offsets=partitions, asynchronous=True)
                self._note(offsets, committed(consumer, partitions, left))
            except KafkaException as error:
                refusal = str(error.args[0])
            offsets = self._claims.uncommitted(offsets)
            if offsets:
                sleep(_AGAIN_SECONDS)
        if offsets:
            log.warning(
                "the last commit is not confirmed",
                group=self._group,
                partitions=names(offsets),
                error=refusal,
            )

    def _note(self, offsets: Mapping[TopicPartition, int], held: Iterable[Committed]) -> None:
        for (source, offset), known in zip(offsets.items(), held, strict=True):
            if known.offset == offset:
                self._claims.commit(source, self._claims.term(source), offset)

    def _on_wire(self, offsets: Mapping[TopicPartition, int]) -> list[WirePartition]:
        return [
            self._config.partition_on_wire(source, offset, self._topics.known(source.topic))
            for source, offset in offsets.items()
        ]

    def _complain(self, error: KafkaError, sources: Iterable[TopicPartition]) -> None:
        self._complaints.hear(
            "a commit is refused, and goes with the next one",
            error,
            group=self._group,
            partitions=names(sources),
        )
