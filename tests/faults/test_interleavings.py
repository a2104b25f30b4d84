"""What two saga workers may do to each other: every order of their statements, none sampled."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from orders.saga import apply_payment_results
from payments.events import PaymentResult
from tests.faults.interleaving import Rewrite, Schedule, Work, as_it_is, every_schedule

NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)
A = "0198c0de-0000-7000-8000-00000000000a"
B = "0198c0de-0000-7000-8000-00000000000b"
DEDUPE = "INSERT INTO processed_events"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def observer(postgres: Any, settings: Any) -> Iterator[psycopg.Connection]:
    settings.OUTBOX_NOTIFY = False
    with psycopg.connect(postgres.url(connection.settings_dict["NAME"]), autocommit=True) as observer:
        yield observer


def success(order_id: str, event_id: str) -> PaymentResult:
    return PaymentResult(event_id, order_id, 100, True, "", NOW)


def failure(order_id: str, event_id: str) -> PaymentResult:
    return PaymentResult(event_id, order_id, 100, False, "declined", NOW)


def worker(*results: PaymentResult) -> Work:
    """Apply a batch as the consumer does, in one transaction."""

    def work(before_commit: Any) -> None:
        with transaction.atomic():
            apply_payment_results(results, NOW)
            before_commit()

    return work


def without_for_update(sql: str) -> str:
    return sql.replace(" FOR UPDATE", "")


def explore(
    observer: psycopg.Connection, first: Work, second: Work, rewrite: Rewrite = as_it_is
) -> tuple[list[Schedule], list[Schedule]]:
    """Run every schedule; gives all, and those after which the promise is broken."""

    def begin() -> None:
        observer.execute("TRUNCATE orders, order_items, processed_events, outbox")
        observer.execute(
            "INSERT INTO orders (id, customer_id, status, total_cents, currency)"
            " SELECT id::uuid, 'c', 'pending', 100, 'EUR' FROM unnest(%s::text[]) AS wanted (id)",
            ([A, B],),
        )

    schedules, broken = [], []
    for schedule in every_schedule({"first": first, "second": second}, observer, begin, rewrite):
        schedules.append(schedule)
        if schedule.errors or is_broken(observer):
            broken.append(schedule)
    return schedules, broken


def overlaps(schedule: Schedule) -> bool:
    """Say whether the second to insert its event's id did so before the first had committed."""
    names = [line.split(":")[0] for line in schedule.statements if DEDUPE in line]
    first_commit = schedule.statements.index(f"{names[0]}: COMMIT")
    second_insert = [DEDUPE in line for line in schedule.statements].index(
        True, schedule.statements.index(next(line for line in schedule.statements if DEDUPE in line)) + 1
    )
    return second_insert < first_commit


def is_broken(observer: psycopg.Connection) -> bool:
    """Say whether an order with an event on record has not exactly one event told, that of its state."""
    query = """
        SELECT count(*) FROM orders
        WHERE (SELECT array_agg(event_id) FROM outbox WHERE aggregate_id = orders.id)
              IS DISTINCT FROM CASE WHEN status <> 'pending' THEN ARRAY[orders.id || ':' || status] END
           OR (status = 'pending') = EXISTS (
              SELECT FROM processed_events WHERE event_id LIKE orders.id || '%')"""
    return observer.execute(query).fetchone() != (0,)


CASES = {
    "the same event": (worker(success(A, f"{A}:1")), worker(success(A, f"{A}:1"))),
    "contradicting events": (worker(success(A, f"{A}:1")), worker(failure(A, f"{A}:2"))),
    "agreeing events": (worker(success(A, f"{A}:1")), worker(success(A, f"{A}:2"))),
    "two orders in opposite order": (
        worker(success(A, f"{A}:1"), failure(B, f"{B}:1")),
        worker(success(B, f"{B}:2"), failure(A, f"{A}:2")),
    ),
    "the same two events in opposite order": (
        worker(success(A, f"{A}:1"), success(B, f"{B}:1")),
        worker(success(B, f"{B}:1"), success(A, f"{A}:1")),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_order_of_statements_breaks_the_promise(observer: psycopg.Connection, case: str) -> None:
    schedules, broken = explore(observer, *CASES[case])
    assert broken == []
    assert len(schedules) >= 50


def test_without_for_update_some_orders_resolve_an_order_twice(observer: psycopg.Connection) -> None:
    schedules, broken = explore(observer, *CASES["contradicting events"], without_for_update)
    assert (len(schedules), len(broken)) == (350, 294)
    assert [line for line in broken[0].statements if "COMMIT" in line] == ["first: COMMIT", "second: COMMIT"]


def test_the_dedupe_row_makes_the_second_of_two_deliveries_wait_even_without_for_update(
    observer: psycopg.Connection,
) -> None:
    schedules, broken = explore(observer, *CASES["the same event"], without_for_update)
    assert broken == []
    waited = [schedule for schedule in schedules if schedule.waits]
    assert all(len(schedule.waits) == 1 and DEDUPE in schedule.waits[0] for schedule in waited)
    assert waited == [schedule for schedule in schedules if overlaps(schedule)]
    assert 0 < len(waited) < len(schedules)
