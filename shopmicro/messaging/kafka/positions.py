"""Where a partition is taken up, and what is said when records were lost on the way there."""

from collections.abc import Sequence
from typing import NamedTuple

import structlog
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer
from confluent_kafka import TopicPartition as WirePartition

from shopmicro.messaging.broker import TopicPartition
from shopmicro.messaging.kafka.errors import raise_first
from shopmicro.messaging.kafka.patience import Deadline

log = structlog.get_logger(__name__)


class Bounds(NamedTuple):
    """The offset of a partition's first record, and the one after its last."""

    low: int
    high: int


def bounds(consumer: Consumer, partitions: Sequence[WirePartition], deadline: Deadline) -> list[Bounds]:
    """Ask for the bounds of partitions, all at once. Raises KafkaException.

    The marks for beginning and end are times to this request, as in the protocol; the calls
    meant for it ask one partition after another, each behind a fetch that waits for records.
    """
    if not partitions:
        return []
    lows, highs = (
        consumer.offsets_for_times(
            [WirePartition(asked.topic, asked.partition, mark) for asked in partitions], timeout=deadline.left
        )
        for mark in (OFFSET_BEGINNING, OFFSET_END)
    )
    raise_first([*lows, *highs])
    ends = {(high.topic, high.partition): high.offset for high in highs}
    begins = {(low.topic, low.partition): low.offset for low in lows}
    return [
        Bounds(begins[asked.topic, asked.partition], ends[asked.topic, asked.partition])
        for asked in partitions
    ]


class Committed(NamedTuple):
    """A group's committed offset, None where there is none, and the id of the topic it was for."""

    offset: int | None
    topic_id: str


def committed(consumer: Consumer, partitions: Sequence[WirePartition], seconds: float) -> list[Committed]:
    """Ask for the group's committed offsets. Raises KafkaException."""
    answers = consumer.committed(list(partitions), timeout=seconds)
    raise_first(answers)
    found = {
        (answer.topic, answer.partition): Committed(
            answer.offset if answer.offset >= 0 else None, answer.metadata or ""
        )
        for answer in answers
    }
    return [found[asked.topic, asked.partition] for asked in partitions]


def still_meant(source: TopicPartition, position: Committed, topic_id: str) -> int | None:
    """Give the committed offset, unless it was one of a topic that has been made anew since."""
    if position.offset is not None and topic_id and position.topic_id not in ("", topic_id):
        _report("the topic was made anew, and is read from its start", source, position.offset, 0)
        return None
    return position.offset


def starting_offset(source: TopicPartition, wanted: int | None, log_bounds: Bounds) -> int:
    """Decide the offset to read on from; ``wanted`` is the next one by the group's own account.

    A new group starts at the first record. Where retention took records that the group had not
    read, what is left is read, and an error says how many are gone. An offset beyond the end
    means that the log was cut or made anew: what it holds now may be unknown to the group, so
    all of it is read again; repeats are harmless to the consumers, a skipped record is not.
    """
    if wanted is None:
        return log_bounds.low
    if wanted < log_bounds.low:
        _report("records are gone that the group had not read", source, wanted, log_bounds.low)
        return log_bounds.low
    if wanted > log_bounds.high:
        _report(
            "the log ends before the group's offset, and is read from its start",
            source,
            wanted,
            log_bounds.low,
        )
        return log_bounds.low
    return wanted


def _report(event: str, source: TopicPartition, old: int, new: int) -> None:
    log.error(
        event,
        topic=source.topic,
        partition=source.partition,
        from_offset=old,
        to_offset=new,
        size=abs(new - old),
    )
