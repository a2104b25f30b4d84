"""A worker that is asked to stop in the middle of its work ends in time, its batch whole or absent."""

import signal
from collections.abc import Iterator

import psycopg
import pytest

from tests.journeys.shop import Shop, payments
from tests.servers import eventually

BATCH = 10
EFFECTS = """
    SELECT (SELECT count(*) FROM orders WHERE status = 'confirmed'),
           (SELECT count(*) FROM processed_events), (SELECT count(*) FROM outbox)"""
WAITS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
SESSIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'shopmicro'"""
WHOLE, ABSENT = [(BATCH, BATCH, BATCH)], [(0, 0, 0)]


@pytest.fixture
def held(closed_shop: Shop) -> Iterator[psycopg.Connection]:
    """A session that holds the row of one of a batch's orders; the saga waits for it."""
    shop = closed_shop
    orders = shop.insert_orders(BATCH)
    with psycopg.connect(shop.environment["DATABASE_URL"]) as session:
        session.execute("SELECT FROM orders WHERE id = %s FOR UPDATE", [orders[0]])
        shop.produce("payments", payments(orders), partition=0)
        shop.start("runsaga")
        eventually(lambda: shop.rows(WAITS) == [(1,)])
        yield session


def all_are_resolved_once(shop: Shop) -> None:
    shop.start("runsaga")
    shop.wait_for_no_lag("order-saga", "payments")
    assert shop.rows(EFFECTS) == WHOLE


def test_a_saga_that_waits_for_anothers_lock_stops_in_time_and_leaves_nothing_half_done(
    closed_shop: Shop, held: psycopg.Connection
) -> None:
    closed_shop.stop("runsaga")
    assert closed_shop.rows(EFFECTS) == ABSENT
    held.rollback()
    all_are_resolved_once(closed_shop)


def test_a_frozen_saga_that_goes_on_with_a_stop_waiting_leaves_its_batch_whole_or_absent(
    closed_shop: Shop, held: psycopg.Connection
) -> None:
    closed_shop.send("runsaga", signal.SIGSTOP)
    held.rollback()
    closed_shop.stop("runsaga")
    assert closed_shop.rows(EFFECTS) in (WHOLE, ABSENT)
    all_are_resolved_once(closed_shop)


def test_a_saga_frozen_until_the_database_gave_it_up_leaves_nothing_and_its_locks_are_free(
    closed_shop: Shop, held: psycopg.Connection
) -> None:
    closed_shop.send("runsaga", signal.SIGSTOP)
    held.rollback()
    eventually(lambda: closed_shop.rows(SESSIONS) == [(0,)], timeout=60)
    closed_shop.stop("runsaga")
    assert closed_shop.rows(EFFECTS) == ABSENT
    all_are_resolved_once(closed_shop)


def test_a_relay_that_waits_for_anothers_lock_stops_in_time_and_loses_nothing(closed_shop: Shop) -> None:
    shop = closed_shop
    shop.start("web")
    orders = [shop.place() for _ in range(BATCH)]
    with psycopg.connect(shop.environment["DATABASE_URL"]) as session:
        session.execute("SELECT FROM outbox WHERE event_id = %s FOR UPDATE", [orders[0]])
        shop.start("runrelay")
        eventually(lambda: shop.rows(WAITS) == [(1,)])
        shop.stop("runrelay")
    shop.start("runrelay")
    eventually(lambda: shop.rows("SELECT count(*) FROM outbox WHERE published_at IS NULL") == [(0,)])
    assert {event["id"] for event in shop.consume("orders")} == set(orders)
