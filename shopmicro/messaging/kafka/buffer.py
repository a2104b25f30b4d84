"""Records that the client has given and the caller has not taken yet."""

from collections import deque
from collections.abc import Container

from shopmicro.messaging.broker import Record, TopicPartition

_FULL_RECORDS = 2_000
_FULL_BYTES = 8 * 1024 * 1024


class Buffer:
    """A queue of records that knows its size in bytes of keys and values."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_full(self) -> bool:
        """Whether no more should be asked for."""
        return len(self._records) >= _FULL_RECORDS or self._bytes >= _FULL_BYTES

    def add(self, record: Record) -> None:
        """Append a record."""
        self._records.append(record)
        self._bytes += size_of(record)

    def take(self, max_records: int, max_bytes: int) -> list[Record]:
        """Take up to ``max_records`` from the front, and none after ``max_bytes`` are reached."""
        taken: list[Record] = []
        size = 0
        while self._records and len(taken) < max_records and size < max_bytes:
            record = self._records.popleft()
            size += size_of(record)
            taken.append(record)
        self._bytes -= size
        return taken

    def drop(self, sources: Container[TopicPartition]) -> None:
        """Drop the records of partitions."""
        self._records = deque(record for record in self._records if record.source not in sources)
        self._bytes = sum(map(size_of, self._records))


def size_of(record: Record) -> int:
    """Give a record's size in bytes: key and value."""
    return len(record.value or b"") + len(record.key or b"")
