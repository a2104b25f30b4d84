"""The event envelope of the contract: five members, encoded and decoded in this one place.

Pure Python: nothing here knows Django, Kafka or the database.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from math import isinf
from typing import Any, NamedTuple, TypeVar

MAX_ID_LENGTH = 255
MAX_REASON_LENGTH = 500
MAX_AMOUNT_CENTS = 2**63 - 1
MAX_DEPTH = 64

Member = TypeVar("Member", str, dict[str, Any])

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_whole_uuid = re.compile(_UUID, re.ASCII).fullmatch
_starts_with_uuid = re.compile(_UUID + r"(?=:|\Z)", re.ASCII).match
_is_rfc3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII).fullmatch
_is_unstorable = re.compile("[\0\ud800-\udfff]").search


class Malformed(ValueError):
    """Bytes that are no event, or an event whose payload breaks the contract.

    Its text says in one line what is wrong; such a record goes to the dead letters.
    """


class Event(NamedTuple):
    """One fact about an aggregate: the five members of the contract.

    ``id`` and ``aggregate_id`` are in the form in which they are compared (`canonical_id`),
    ``occurred_at`` is in UTC, ``payload`` is a JSON object.
    """

    id: str
    type: str
    aggregate_id: str
    payload: Mapping[str, Any]
    occurred_at: datetime


def encode(event: Event) -> str:
    """Write an event as the JSON text of a whole record value, UTF-8 once encoded."""
    return _write_json(
        {
            "id": event.id,
            "type": event.type,
            "aggregate_id": event.aggregate_id,
            "payload": event.payload,
            "occurred_at": format_time(event.occurred_at),
        }
    )


def decode(value: bytes | None) -> Event:
    """Read a record's value; whatever its bytes are, the only error is `Malformed`.

    Members other than the five are ignored.
    """
    envelope = _envelope(value)
    payload = _member(envelope, "payload", dict)
    return Event(
        id=canonical_id(_identifier(envelope)),
        type=_member(envelope, "type", str),
        aggregate_id=uuid_member(envelope, "aggregate_id"),
        payload=payload,
        occurred_at=_time_member(envelope),
    )


def parse_json(value: bytes) -> Any:
    """Read JSON as strictly as the contract asks; whatever the bytes are, the only error is `Malformed`.

    Refused beside what is no UTF-8 JSON: a byte-order mark, a repeated member, NaN or infinity,
    nesting deeper than 64.
    """
    try:
        parsed = _read_json(value.decode())
    except Malformed:
        raise
    except RecursionError:
        raise Malformed(f"the JSON is nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise Malformed(f"the value is not UTF-8 JSON: {error}") from None
    if value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(parsed) > MAX_DEPTH:
        raise Malformed(f"the JSON is nested deeper than {MAX_DEPTH}")
    return parsed


def canonical_id(text: str) -> str:
    """Put an event id in the form in which ids are compared: a leading UUID in lower case."""
    found = _starts_with_uuid(text)
    return text if found is None else text[: found.end()].lower() + text[found.end() :]


def is_uuid(text: str) -> bool:
    """Say whether a text is 8-4-4-4-12 hexadecimal digits with hyphens, in either case, and nothing else."""
    return _whole_uuid(text) is not None


@lru_cache(maxsize=64)
def format_time(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC, with ``Z``, to the microsecond where there is one."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def uuid_member(members: Mapping[str, Any], name: str) -> str:
    """Read a member that must be a UUID (8-4-4-4-12 hexadecimal digits); gives it in lower case."""
    text = _member(members, name, str)
    if not is_uuid(text):
        raise Malformed(f"{name} is no UUID of the form 8-4-4-4-12")
    return text.lower()


def amount_member(members: Mapping[str, Any], name: str = "amount_cents") -> int:
    """Read an amount in cents: an integer from 1 to 2**63 - 1."""
    amount = members.get(name)
    if type(amount) is not int or not 1 <= amount <= MAX_AMOUNT_CENTS:
        raise Malformed(f"{name} is not an integer from 1 to {MAX_AMOUNT_CENTS}")
    return amount


def text_member(members: Mapping[str, Any], name: str, max_length: int) -> str:
    """Read a text that the database can hold: no NUL, no lone surrogate, at most ``max_length`` long."""
    text = _member(members, name, str)
    if len(text) > max_length:
        raise Malformed(f"{name} is over {max_length} characters")
    if _is_unstorable(text):
        raise Malformed(f"{name} holds NUL or a lone surrogate")
    return text


def order_member(event: Event) -> str:
    """Read the payload's ``order_id``, which must be the event's aggregate."""
    if event.payload.get("order_id") == event.aggregate_id:
        return event.aggregate_id
    if uuid_member(event.payload, "order_id") != event.aggregate_id:
        raise Malformed("payload.order_id is not the aggregate_id")
    return event.aggregate_id


def _envelope(value: bytes | None) -> dict[str, Any]:
    if not value:
        raise Malformed("the record has no value")
    parsed = parse_json(value)
    if type(parsed) is not dict:
        raise Malformed("the JSON is no object")
    return parsed


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Malformed("the JSON repeats a member")
    return members


def _refuse_constant(name: str) -> None:
    raise Malformed(f"the JSON holds {name}")


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise Malformed("the JSON holds a number that is too large")
    return number


def _depth(parsed: Any) -> int:
    depth, level = 0, [parsed]
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
    return depth


def _member(members: Mapping[str, Any], name: str, kind: type[Member]) -> Member:
    member = members.get(name)
    if type(member) is not kind:
        wanted = "a string" if kind is str else "an object"
        raise Malformed(f"{name} is not {wanted}" if name in members else f"{name} is missing")
    return member


def _identifier(envelope: Mapping[str, Any]) -> str:
    text = text_member(envelope, "id", MAX_ID_LENGTH)
    if not text:
        raise Malformed("id is empty")
    return text


def _time_member(envelope: Mapping[str, Any]) -> datetime:
    text = _member(envelope, "occurred_at", str)
    if _is_rfc3339(text) is None:
        raise Malformed("occurred_at is no RFC 3339 time with a zone")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Malformed(f"occurred_at is no time: {error}") from None


_write_json = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode
_read_json = json.JSONDecoder(
    object_pairs_hook=_unique_members, parse_float=_finite, parse_constant=_refuse_constant
).decode
