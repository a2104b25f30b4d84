import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shopmicro.messaging.event import (
    MAX_AMOUNT_CENTS,
    Event,
    Malformed,
    amount_member,
    canonical_id,
    decode,
    encode,
    order_member,
    text_member,
)

ORDER = "0198c0de-0000-7000-8000-00000000000a"
GOOD: dict[str, Any] = {
    "id": f"{ORDER}:payment",
    "type": "payment.succeeded",
    "aggregate_id": ORDER,
    "payload": {"order_id": ORDER, "amount_cents": 2598},
    "occurred_at": "2026-07-14T09:15:40Z",
}


def value_with(**members: Any) -> bytes:
    return json.dumps({**GOOD, **members}).encode()


def value_without(name: str) -> bytes:
    return json.dumps({key: member for key, member in GOOD.items() if key != name}).encode()


def test_an_event_survives_its_own_encoding() -> None:
    event = Event(
        f"{ORDER}:payment",
        "payment.failed",
        ORDER,
        {"order_id": ORDER, "amount_cents": 7, "reason": "zu groß – 額"},
        datetime(2026, 7, 14, 9, 15, 40, 123456, UTC),
    )
    assert decode(encode(event).encode()) == event


def test_the_encoding_is_the_five_members_of_the_contract_and_no_more() -> None:
    assert json.loads(encode(decode(value_with()))) == GOOD


def test_further_members_are_ignored_in_envelope_and_payload() -> None:
    value = value_with(version=2, payload={**GOOD["payload"], "note": "\ud800", "nested": [1.5, None]})
    event = decode(value)
    assert (event.id, event.payload["amount_cents"]) == (f"{ORDER}:payment", 2598)


def test_an_unknown_type_is_no_fault_of_the_envelope() -> None:
    assert decode(value_with(type="PAYMENT.SUCCEEDED")).type == "PAYMENT.SUCCEEDED"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="no value"),
        pytest.param(b"", id="empty"),
        pytest.param(b"this-is-not-json {{{", id="no JSON"),
        pytest.param(b"\xff\xfe\x00", id="no UTF-8"),
        pytest.param(json.dumps(GOOD).encode("utf-16-le"), id="UTF-16"),
        pytest.param(b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), id="byte-order mark"),
        pytest.param(json.dumps(GOOD).encode() + b"{}", id="something after the JSON"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b"null", id="null"),
        pytest.param(b'"x"', id="a string"),
        pytest.param(b"{}", id="an empty object"),
        pytest.param(b"[" * 20_000 + b"]" * 20_000, id="deep arrays"),
        pytest.param(b'{"a":' * 5_000 + b"1" + b"}" * 5_000, id="deep objects"),
        pytest.param(value_with(id="x")[:-1] + b', "id": "y"}', id="a member twice"),
        pytest.param(value_with()[:-1] + b', "n": {"a": 1, "a": 2}}', id="a member twice further down"),
        pytest.param(value_with()[:-1] + b', "n": NaN}', id="NaN"),
        pytest.param(value_with()[:-1] + b', "n": [-Infinity]}', id="infinity"),
        pytest.param(value_with()[:-1] + b', "n": -1e999}', id="a number that only infinity can hold"),
        pytest.param(value_with()[:-1] + b', "n": ' + b"9" * 5_000 + b"}", id="5000 digits"),
        pytest.param(value_with()[:-1] + b', "n": "\xed\xa0\x80"}', id="an encoded surrogate"),
        *(pytest.param(value_without(name), id=f"without {name}") for name in GOOD),
        *(pytest.param(value_with(**{name: None}), id=f"null {name}") for name in GOOD),
        *(pytest.param(value_with(**{name: 7}), id=f"a number as {name}") for name in GOOD),
        pytest.param(value_with(payload=[]), id="an array as payload"),
        pytest.param(value_with(id=""), id="empty id"),
        pytest.param(value_with(id="x" * 256), id="id over 255 characters"),
        pytest.param(value_with(id="a\0b"), id="NUL in the id"),
        pytest.param(value_with(id="a\ud800"), id="lone surrogate in the id"),
        pytest.param(value_with(aggregate_id="cust-1"), id="aggregate that is no UUID"),
        pytest.param(value_with(aggregate_id=f"{{{ORDER}}}"), id="aggregate in braces"),
        pytest.param(value_with(aggregate_id=f"urn:uuid:{ORDER}"), id="aggregate as urn"),
        pytest.param(value_with(aggregate_id=ORDER.replace("-", "")), id="aggregate without hyphens"),
        pytest.param(value_with(aggregate_id=ORDER + "\n"), id="aggregate and a line end"),
        pytest.param(value_with(aggregate_id=ORDER.replace("0", "٠")), id="aggregate in other digits"),
        pytest.param(value_with(occurred_at="2025-01-01T00:00:00"), id="time without a zone"),
        pytest.param(value_with(occurred_at="2025-W01-1"), id="week date"),
        pytest.param(value_with(occurred_at="2025-01-01"), id="date"),
        pytest.param(value_with(occurred_at="2025-02-30T00:00:00Z"), id="no such day"),
        pytest.param(value_with(occurred_at="0001-01-01T00:00:00+01:00"), id="before the first year"),
        pytest.param(value_with(occurred_at="9999-12-31T23:59:59-01:00"), id="after the last year"),
        pytest.param(value_with(occurred_at="2025-01-01T00:00:00+24:00"), id="no such zone"),
    ],
)
def test_what_is_broken_in_the_envelope_is_malformed(value: bytes | None) -> None:
    with pytest.raises(Malformed) as caught:
        decode(value)
    assert "\n" not in str(caught.value)


def nested(levels: int) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = [inner]
    return inner


def test_nesting_may_be_64_deep_the_envelope_included() -> None:
    assert decode(value_with(further=nested(63))).id == f"{ORDER}:payment"


def test_nesting_may_not_be_65_deep() -> None:
    with pytest.raises(Malformed, match="deeper than 64"):
        decode(value_with(further=nested(64)))


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert decode(value_with(further=[{"a": []}] * 500)).id == f"{ORDER}:payment"


def test_brackets_in_a_text_are_not_deep() -> None:
    assert decode(value_with(further="[" * 500)).id == f"{ORDER}:payment"


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        (ORDER.upper(), ORDER),
        (f"{ORDER.upper()}:Payment", f"{ORDER}:Payment"),
        (f"{ORDER.upper()}-X", f"{ORDER.upper()}-X"),
        (f"X{ORDER.upper()}", f"X{ORDER.upper()}"),
        (f"{{{ORDER.upper()}}}", f"{{{ORDER.upper()}}}"),
        ("Late-Failure-001", "Late-Failure-001"),
        (f"{ORDER.upper()}\n", f"{ORDER.upper()}\n"),
    ],
)
def test_an_id_is_compared_with_a_leading_uuid_in_lower_case(written: str, compared: str) -> None:
    assert canonical_id(written) == compared
    assert decode(value_with(id=written)).id == compared


def test_an_aggregate_in_upper_case_is_the_same_aggregate() -> None:
    assert decode(value_with(aggregate_id=ORDER.upper())).aggregate_id == ORDER


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-14T09:15:40Z", datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)),
        ("2026-07-14t09:15:40z", datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)),
        ("2026-07-14T11:15:40+02:00", datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)),
        ("2026-07-14T09:15:40.123456789Z", datetime(2026, 7, 14, 9, 15, 40, 123456, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_as_utc(text: str, moment: datetime) -> None:
    read = decode(value_with(occurred_at=text)).occurred_at
    assert (read, read.tzinfo) == (moment, UTC)


@pytest.mark.parametrize("amount", [1, 2_147_483_648, MAX_AMOUNT_CENTS])
def test_an_amount_is_an_integer_within_bounds(amount: int) -> None:
    assert amount_member({"amount_cents": amount}) == amount


@pytest.mark.parametrize("amount", [0, -1, MAX_AMOUNT_CENTS + 1, True, "100", 1.0, 1e3, None, [100], {}])
def test_anything_else_is_no_amount(amount: object) -> None:
    with pytest.raises(Malformed, match="amount_cents"):
        amount_member({"amount_cents": amount})


def test_a_missing_amount_is_no_amount() -> None:
    with pytest.raises(Malformed, match="amount_cents"):
        amount_member({})


def test_a_reason_may_be_500_characters_long() -> None:
    assert text_member({"reason": "r" * 500}, "reason", 500) == "r" * 500


@pytest.mark.parametrize("reason", ["r" * 501, "a\0", "\udfff", None, 5])
def test_a_reason_that_the_database_cannot_hold_is_malformed(reason: object) -> None:
    with pytest.raises(Malformed, match="reason"):
        text_member({"reason": reason}, "reason", 500)


def test_the_payload_must_speak_of_the_aggregate() -> None:
    other = ORDER.replace("a", "b")
    with pytest.raises(Malformed, match="order_id is not the aggregate_id"):
        order_member(decode(value_with(payload={"order_id": other})))
    assert order_member(decode(value_with(payload={"order_id": ORDER.upper()}))) == ORDER


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=300, deadline=None)
@given(st.binary() | json_values.map(lambda parsed: json.dumps(parsed).encode()))
def test_nothing_that_bytes_can_hold_raises_anything_but_malformed(value: bytes) -> None:
    with pytest.raises(Malformed):
        decode(value)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(GOOD)), json_values)
def test_any_json_in_any_member_is_read_or_malformed(name: str, member: object) -> None:
    try:
        event = decode(value_with(**{name: member}))
    except Malformed:
        return
    assert decode(encode(event).encode()) == event
