"""Finds out where the partitions of a member are read on, at once or, if the broker is slow, later."""

from collections.abc import Iterable, Sequence
from time import monotonic

import structlog
from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaException

from shopmicro.messaging.broker import TopicPartition
from shopmicro.messaging.kafka.config import KafkaConfig
from shopmicro.messaging.kafka.noise import Complaints
from shopmicro.messaging.kafka.patience import Deadline
from shopmicro.messaging.kafka.positions import bounds, committed, starting_offset, still_meant
from shopmicro.messaging.kafka.topics import TopicIds

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 1.0


class Placing:
    """The strays of one member: partitions of which no record may be given before they are placed.

    A stray is wanted from an offset, from the log's beginning, or, with the mark `OFFSET_STORED`,
    from where the group has committed. That counts only for the topic it was committed for, so no
    stray is placed before its topic's id is known.
    """

    def __init__(self, config: KafkaConfig, group: str, topics: TopicIds, complaints: Complaints) -> None:
        self._config = config
        self._group = group
        self._topics = topics
        self._complaints = complaints
        self._strays: dict[TopicPartition, int] = {}
        self._next_try = 0.0

    def __contains__(self, source: TopicPartition) -> bool:
        return source in self._strays

    @property
    def is_due(self) -> bool:
        """Whether there are strays, and it is time to try to place them."""
        return bool(self._strays) and monotonic() >= self._next_try

    def strays(self) -> list[TopicPartition]:
        """Give the partitions that are not placed."""
        return list(self._strays)

    def add(self, source: TopicPartition, wanted: int = OFFSET_STORED) -> None:
        """Make a partition a stray, or change what is wanted of one."""
        self._strays[source] = wanted

    def forget(self, sources: Iterable[TopicPartition]) -> None:
        """Take partitions for placed, or for gone."""
        for source in sources:
            self._strays.pop(source, None)

    def place(
        self, consumer: Consumer, sources: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Give the offsets to read on from, as far as they can be found out; the others stay strays."""
        known = [source for source in sources if self._topics.known(source.topic)]
        try:
            placed = self._look_up(consumer, known, deadline)
        except KafkaException as error:
            self._complaints.hear("where to read on is not known yet", error.args[0], group=self._group)
            placed = {}
        self.forget(placed)
        self._next_try = 0.0 if len(placed) == len(sources) else monotonic() + _AGAIN_SECONDS
        return placed

    def _look_up(
        self, consumer: Consumer, sources: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int]:
        wanted = self._wanted(consumer, sources, deadline)
        partitions = [self._config.partition_on_wire(source) for source in sources]
        found = bounds(consumer, partitions, deadline)
        return {
            source: starting_offset(source, wanted[source], log_bounds)
            for source, log_bounds in zip(sources, found, strict=True)
        }

    def _wanted(
        self, consumer: Consumer, sources: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, int | None]:
        """Give the next offsets by the group's own account, None where that is the log's beginning."""
        marks = {source: self._strays.get(source, OFFSET_STORED) for source in sources}
        stored = [source for source in sources if marks[source] == OFFSET_STORED]
        partitions = [self._config.partition_on_wire(source) for source in stored]
        positions = committed(consumer, partitions, deadline.left) if stored else []
        wanted = {source: None if mark == OFFSET_BEGINNING else mark for source, mark in marks.items()}
        for source, position in zip(stored, positions, strict=True):
            wanted[source] = still_meant(source, position, self._topics.known(source.topic))
        return wanted
