from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from shopmicro.messaging.broker import BrokerFatal, QueueFull
from shopmicro.messaging.event import Malformed
from shopmicro.messaging.retry import Backoff, Failure, classify


def failure(sql: str, *parameters: Any) -> Exception:
    """Give the error that a statement fails with."""
    with pytest.raises((DatabaseError, UnicodeEncodeError)) as caught, transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
    return caught.value


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1/0", Failure.POISON),
        ("SELECT 'x'::uuid", Failure.POISON),
        ("SELECT 9223372036854775807 + 1", Failure.POISON),
        ("INSERT INTO dead_letters (consumer_group) VALUES (NULL)", Failure.POISON),
        ("SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(5)", Failure.UNKNOWN),
        ("SELECT * FROM a_table_not_migrated_yet", Failure.TRANSIENT),
        ("SET LOCAL transaction_read_only = on; DELETE FROM outbox", Failure.TRANSIENT),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END $$", Failure.TRANSIENT),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$", Failure.TRANSIENT),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '55P03'; END $$", Failure.TRANSIENT),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53300'; END $$", Failure.TRANSIENT),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END $$", Failure.TRANSIENT),
    ],
)
def test_a_database_error_is_judged_by_its_sqlstate(sql: str, kind: Failure) -> None:
    assert classify(failure(sql)) is kind


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_data_that_the_driver_refuses_is_poison(text: str) -> None:
    assert classify(failure("SELECT %s::text", text)) is Failure.POISON


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Malformed("no order"), Failure.POISON),
        (QueueFull("full"), Failure.TRANSIENT),
        (BrokerFatal("gone"), Failure.TRANSIENT),
        (OperationalError("the connection is closed"), Failure.TRANSIENT),
        (KeyError("our own fault"), Failure.UNKNOWN),
    ],
)
def test_other_errors_are_judged_by_their_type(error: Exception, kind: Failure) -> None:
    assert classify(error) is kind


def test_delays_double_up_to_the_longest_and_are_cut_by_up_to_half() -> None:
    backoff = Backoff(first=1, longest=60)
    for attempt, full in ((1, 1), (2, 2), (4, 8), (7, 60), (1_000_000, 60)):
        delays = [backoff.delay(attempt) for _ in range(200)]
        assert full / 2 <= min(delays) < full * 0.75 < max(delays) <= full
