"""What Kafka may do to payment events: repeat, reorder, delay, mangle them."""

import json
import re
import uuid

import psycopg
import pytest

from shopmicro.messaging.tests.test_kafka import send_header
from tests.journeys.shop import Shop, payment, payments
from tests.servers import eventually


@pytest.mark.parametrize("times", [1, 2, 500])
def test_the_same_event_many_times_has_one_effect(shop: Shop, times: int) -> None:
    (order,) = shop.insert_orders(1)
    shop.produce("payments", [payment(order)] * times, key=order.encode())
    shop.wait_for_no_lag("order-saga", "payments")
    assert (shop.status(order), shop.outbox(order)) == ("confirmed", [f"{order}:confirmed"])
    assert shop.processed(f"{order}:payment") == [f"{order}:payment"]


@pytest.mark.parametrize("batch", ["1", "7", "1000"], ids=["one by one", "several batches", "one batch"])
def test_the_size_of_the_batches_changes_nothing(closed_shop: Shop, batch: str) -> None:
    same, contradicted = closed_shop.insert_orders(2)
    first = payment(contradicted, "first", succeeded=False)
    second = payment(contradicted, "second")
    closed_shop.produce(
        "payments", [payment(same)] * 20 + [first, second] + [payment(same)] * 20, partition=0
    )
    closed_shop.start("runsaga", SAGA_BATCH=batch)
    closed_shop.wait_for_no_lag("order-saga", "payments")
    assert (closed_shop.status(same), closed_shop.outbox(same)) == ("confirmed", [f"{same}:confirmed"])
    assert closed_shop.status(contradicted) == "cancelled: amount exceeds limit"
    assert closed_shop.outbox(contradicted) == [f"{contradicted}:cancelled"]
    assert closed_shop.processed("first", "second", f"{same}:payment") == sorted(
        ["first", "second", f"{same}:payment"]
    )


@pytest.mark.parametrize("success_first", [True, False])
def test_of_two_different_events_the_first_wins(shop: Shop, success_first: bool) -> None:
    (order,) = shop.insert_orders(1)
    first = payment(order, f"first-{order}", succeeded=success_first)
    second = payment(order, f"second-{order}", succeeded=not success_first)
    shop.produce("payments", [first, second], partition=0)
    eventually(lambda: len(shop.processed(f"first-{order}", f"second-{order}")) == 2)
    expected = "confirmed" if success_first else "cancelled"
    assert shop.status(order).split(":")[0] == expected
    assert shop.outbox(order) == [f"{order}:{expected}"]


def held(shop: Shop, worker: str) -> set[int]:
    """Give the partitions of `payments` that a worker says it has."""
    numbers: set[int] = set()
    for line in shop.log(worker).splitlines():
        named = {int(number) for number in re.findall(r"payments\[(\d+)\]", line)}
        if "partitions assigned" in line:
            numbers |= named
        elif "partitions revoked" in line or "partitions lost" in line:
            numbers -= named
    return numbers


def all_are_shared(shop: Shop, workers: tuple[str, ...]) -> bool:
    shares = [held(shop, worker) for worker in workers]
    return all(shares) and sorted(number for share in shares for number in share) == list(range(6))


def test_two_consumers_at_once_resolve_each_order_once(closed_shop: Shop) -> None:
    orders = closed_shop.insert_orders(200)
    workers = ("runsaga", "runsaga#2")
    closed_shop.start(*workers, SAGA_BATCH="10")
    eventually(lambda: all_are_shared(closed_shop, workers))
    first, second = (min(held(closed_shop, worker)) for worker in workers)
    closed_shop.produce("payments", [payment(order, f"a-{order}") for order in orders], partition=first)
    failures = [payment(order, f"b-{order}", succeeded=False) for order in reversed(orders)]
    closed_shop.produce("payments", failures, partition=second)
    closed_shop.wait_for_no_lag("order-saga", "payments")
    assert closed_shop.is_resolved(*orders)
    assert closed_shop.rows("SELECT count(*), count(DISTINCT aggregate_id) FROM outbox") == [(200, 200)]
    assert closed_shop.rows("SELECT count(*) FROM processed_events") == [(400,)]
    told = """SELECT count(*) FROM orders JOIN outbox ON event_id = orders.id || ':' || status"""
    assert closed_shop.rows(told) == [(200,)]


def test_an_event_for_no_order_is_retried_then_parked_while_the_partition_flows(shop: Shop) -> None:
    missing = str(uuid.uuid4())
    (order,) = shop.insert_orders(1)
    shop.produce("payments", [payment(missing), payment(order)], partition=0)
    eventually(lambda: shop.is_resolved(order))
    assert shop.letters("order-saga", missing) == [("retrying", "unknown_order")]
    eventually(lambda: shop.letters("order-saga", missing) == [("parked", "unknown_order")], timeout=60)
    query = "SELECT attempts FROM dead_letters WHERE aggregate_id = %s AND consumer_group = 'order-saga'"
    assert shop.rows(query, missing) == [(8,)]
    assert shop.processed(f"{missing}:payment") == []


def test_an_event_whose_order_commits_after_four_tries_is_applied(shop: Shop) -> None:
    order = str(uuid.uuid4())
    tries = "SELECT attempts FROM dead_letters WHERE aggregate_id = %s AND consumer_group = 'order-saga'"
    url = shop.environment["DATABASE_URL"]
    with psycopg.connect(url) as late:
        late.execute(
            "INSERT INTO orders (id, customer_id, status, total_cents, currency)"
            " VALUES (%s, 'cust-1', 'pending', 2598, 'EUR')",
            (order,),
        )
        shop.produce("payments", [payment(order)])
        eventually(lambda: shop.letters("order-saga", order) == [("retrying", "unknown_order")])
        eventually(lambda: shop.rows(tries, order)[0] >= (4,))
    eventually(lambda: shop.is_resolved(order))
    assert (shop.status(order), shop.outbox(order)) == ("confirmed", [f"{order}:confirmed"])
    assert [state for state, _ in shop.letters("order-saga", order)] == ["replayed"]


def test_an_amount_that_differs_is_parked_and_the_order_stays_pending(shop: Shop) -> None:
    (order,) = shop.insert_orders(1)
    shop.produce("payments", [payment(order, amount_cents=2597)])
    eventually(lambda: shop.letters("order-saga", order))
    assert shop.letters("order-saga", order) == [("parked", "amount_differs")]
    assert (shop.status(order), shop.outbox(order), shop.processed(f"{order}:payment")) == ("pending", [], [])


def test_an_event_with_no_key_and_no_headers_is_handled_the_same(shop: Shop) -> None:
    (order,) = shop.insert_orders(1)
    shop.produce("payments", [payment(order.upper())])
    eventually(lambda: shop.is_resolved(order))
    assert shop.processed(f"{order}:payment") == [f"{order}:payment"]


def test_malformed_records_are_parked_with_their_reasons_and_hold_nobody_up(shop: Shop) -> None:
    before, after, bystander = shop.insert_orders(3)
    good = json.loads(payment(bystander))
    payload = good["payload"]
    broken: list[tuple[bytes | None, str]] = [
        (b"this-is-not-json {{{", "not UTF-8 JSON"),
        (b"\xff\xfe\x00", "not UTF-8 JSON"),
        (b"[]", "no object"),
        (b"null", "no object"),
        (b"{}", "payload is missing"),
        (b"", "no value"),
        (None, "no value"),
        (b"[" * 20_000 + b"]" * 20_000, "nested deeper than 64"),
        (json.dumps(good).encode()[:-1] + b', "id": "other"}', "repeats a member"),
        (json.dumps({**good, "id": "x" * 5_600}).encode(), "id is over 255 characters"),
        (
            json.dumps({**good, "payload": {**payload, "amount_cents": "2598"}}).encode(),
            "amount_cents is not an integer",
        ),
        (
            json.dumps({**good, "occurred_at": "2026-07-14T09:15:40"}).encode(),
            "occurred_at is no RFC 3339 time",
        ),
    ]
    query = "SELECT count(*) FROM dead_letters WHERE consumer_group = 'order-saga'"
    ((parked_before,),) = shop.rows(query)
    shop.produce("payments", [payment(before), *(value for value, _ in broken), payment(after)], partition=2)
    eventually(lambda: shop.is_resolved(before, after))
    letters = shop.rows(
        """SELECT state, error, reason, value FROM dead_letters
           WHERE consumer_group = 'order-saga' ORDER BY id DESC LIMIT 12"""
    )[::-1]
    assert shop.rows(query) == [(parked_before + 12,)]
    for (state, error, reason, value), (sent, expected) in zip(letters, broken, strict=True):
        assert (state, error, value) == ("parked", "malformed", sent)
        assert expected in reason
    assert shop.status(bystander) == "pending"


def test_a_header_whose_name_is_not_utf_8_stops_no_group_and_its_record_is_judged_by_its_value(
    closed_shop: Shop,
) -> None:
    orders = closed_shop.insert_orders(6)
    send_header(
        closed_shop.environment["KAFKA_BOOTSTRAP_SERVERS"], f"{closed_shop.prefix}payments", b"\xff\xfe", b"x"
    )
    for partition, order in enumerate(orders):
        closed_shop.produce("payments", [payment(order)], partition=partition)
    closed_shop.start("runsaga", "runnotifications")
    closed_shop.wait_for_no_lag("order-saga", "payments")
    closed_shop.wait_for_no_lag("notifications", "payments")
    assert closed_shop.is_resolved(*orders)
    query = "SELECT consumer_group, state, error, value FROM dead_letters ORDER BY 1"
    assert closed_shop.rows(query) == [
        ("notifications", "parked", "malformed", b"raw"),
        ("order-saga", "parked", "malformed", b"raw"),
    ]


def test_a_group_that_starts_for_the_first_time_reads_from_the_beginning(closed_shop: Shop) -> None:
    orders = closed_shop.insert_orders(100)
    closed_shop.produce("payments", payments(orders))
    closed_shop.start("runsaga")
    eventually(lambda: closed_shop.is_resolved(*orders))
    assert closed_shop.rows("SELECT count(*), count(DISTINCT event_id) FROM outbox") == [(100, 100)]
