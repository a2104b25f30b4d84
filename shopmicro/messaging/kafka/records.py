"""The client's messages as the port's records; nothing that a record can hold makes reading it fail."""

from collections.abc import Sequence
from gc import get_referents
from typing import Any, overload

import structlog
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from shopmicro.messaging.broker import Record, TopicPartition

log = structlog.get_logger(__name__)

Header = tuple[str, bytes | None]


class LazyHeaders(Sequence[Header]):
    """A message's headers, read when they are first asked for: of all records only dead letters need them.

    Headers that the client can't read, as when a name is not UTF-8, are none. They are read once:
    what the client gives after it has failed must not be touched.
    """

    __slots__ = ("_message", "_read")

    def __init__(self, message: Any) -> None:
        self._message = message
        self._read: tuple[Header, ...] | None = None

    def __len__(self) -> int:
        return len(self._headers())

    @overload
    def __getitem__(self, index: int) -> Header: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Header]: ...

    def __getitem__(self, index: int | slice) -> Header | Sequence[Header]:
        return self._headers()[index]

    def __eq__(self, other: object) -> bool:
        return self._headers() == (other._headers() if isinstance(other, LazyHeaders) else other)

    def __hash__(self) -> int:
        return hash(self._headers())

    def __repr__(self) -> str:
        return repr(self._headers())

    def _headers(self) -> tuple[Header, ...]:
        if self._read is None:
            message, self._message, self._read = self._message, None, ()
            self._read = _headers_of(message)
        return self._read


def _headers_of(message: Any) -> tuple[Header, ...]:
    try:
        return tuple(_whole(message.headers() or ()))
    except Exception as error:  # noqa: BLE001 - SystemError or UnicodeDecodeError, by the client's version
        log.warning(
            "a record's headers can't be read, and are taken for none",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            error=str(error.__cause__ or error),
        )
        return ()


def _whole(headers: Sequence[Header]) -> Sequence[Header]:
    """Make sure of the client's headers: for a name that it can't read it may leave a hole in the pair.

    A hole is no object and must not be touched; the collector alone can say that it is there.
    """
    if any(len(get_referents(header)) != 2 for header in headers):
        raise ValueError("a header's name is not UTF-8")
    return headers


def record_of(message: Any, source: TopicPartition, term: int) -> Record:
    """Give the record in a message that is no error."""
    kind, timestamp_ms = message.timestamp()
    return Record(
        source.topic,
        source.partition,
        message.offset(),
        message.key(),
        message.value(),
        LazyHeaders(message),
        -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        term,
    )
