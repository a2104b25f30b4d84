"""What a member of a group has been assigned, and how far it has come there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shopmicro.messaging.broker import Record, TopicPartition


@dataclass(slots=True)
class Claim:
    """One assignment of a partition: the next offset to commit, and the one the broker holds."""

    term: int
    handled: int | None = None
    committed: int | None = None


class Claims:
    """The partitions of one member, each under the term of its latest assignment."""

    def __init__(self) -> None:
        self._claims: dict[TopicPartition, Claim] = {}
        self._terms = 0

    def take(self, source: TopicPartition) -> None:
        """Begin a new term for a partition."""
        self._terms += 1
        self._claims[source] = Claim(self._terms)

    def let_go(self, sources: Iterable[TopicPartition]) -> None:
        """End the terms of partitions."""
        for source in sources:
            self._claims.pop(source, None)

    def sources(self) -> list[TopicPartition]:
        """Give the partitions that are claimed."""
        return list(self._claims)

    def term(self, source: TopicPartition) -> int | None:
        """Give the current term of a partition, None if it is not claimed."""
        claim = self._claims.get(source)
        return None if claim is None else claim.term

    def owns(self, record: Record) -> bool:
        """Whether a record was polled in the current term of its partition."""
        return self.term(record.source) == record.term

    def handle(self, records: Sequence[Record]) -> None:
        """Note that records which are still owned are done with."""
        for record in records:
            claim = self._claims.get(record.source)
            if claim is not None and claim.term == record.term:
                claim.handled = max(record.offset + 1, claim.handled or 0)

    def firsts(self, records: Sequence[Record]) -> dict[TopicPartition, int]:
        """Give the offset of the first of the records in each partition that is still owned."""
        owned = sorted((record for record in records if self.owns(record)), key=lambda record: -record.offset)
        return {record.source: record.offset for record in owned}

    def uncommitted(self, sources: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Give the offsets that the broker is not known to hold yet."""
        claims = ((source, self._claims.get(source)) for source in sources)
        return {
            source: claim.handled
            for source, claim in claims
            if claim is not None and claim.handled is not None and claim.handled != claim.committed
        }

    def commit(self, source: TopicPartition, term: int | None, offset: int) -> None:
        """Note that the broker holds an offset that was committed in this term."""
        claim = self._claims.get(source)
        if claim is not None and claim.term == term:
            claim.committed = offset


def names(sources: Iterable[TopicPartition]) -> str:
    """Name partitions in a line of log."""
    return " ".join(f"{source.topic}[{source.partition}]" for source in sources)
