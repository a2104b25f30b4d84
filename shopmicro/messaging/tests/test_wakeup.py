"""Notifications on the real database, and the relay with and without them."""

from typing import Any

import pytest
from django.db import connection

from shopmicro.messaging.outbox import CHANNEL
from shopmicro.messaging.tests.test_relay import (
    end_leader,
    in_thread,
    make_relay,
    memory_broker,
    on_topic,
    running,
    write,
)
from shopmicro.messaging.wakeup import Wakeup
from tests.servers import eventually

pytestmark = pytest.mark.django_db(transaction=True)

LONG = 600.0


def notify() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"NOTIFY {CHANNEL}")


def listeners() -> int:
    """How many sessions wait and have read the outbox last."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query LIKE '%%FROM outbox%%'"
        )
        return int(cursor.fetchone()[0])


def test_a_notification_ends_the_wait() -> None:
    wakeup = Wakeup()
    wakeup.listen()
    in_thread(notify)
    assert wakeup.wait(30)


def test_without_a_notification_the_wait_has_its_end() -> None:
    wakeup = Wakeup()
    wakeup.listen()
    assert not wakeup.wait(0.01)


def test_a_notification_that_came_while_a_statement_ran_is_heard_and_one_that_was_cleared_is_not() -> None:
    wakeup = Wakeup()
    wakeup.listen()
    notify()
    assert wakeup.wait(0.01)
    notify()
    wakeup.clear()
    assert not wakeup.wait(0.01)


def test_a_relay_that_waits_long_is_woken_by_a_new_row_and_by_a_request_to_stop() -> None:
    broker = memory_broker()
    with running(make_relay(broker, wakeup=Wakeup(), poll_seconds=LONG)):
        eventually(listeners)
        write("a")
        eventually(lambda: on_topic(broker) == ["a"], timeout=10)


def test_a_session_lost_while_waiting_for_a_notification_is_replaced(postgres: Any) -> None:
    broker = memory_broker()
    with running(make_relay(broker, wakeup=Wakeup(), poll_seconds=LONG)):
        eventually(listeners)
        end_leader(postgres)
        write("a")
        eventually(lambda: on_topic(broker) == ["a"], timeout=10)


def test_the_poll_finds_a_row_of_which_no_notification_tells(settings: Any) -> None:
    settings.OUTBOX_NOTIFY = False
    broker = memory_broker()
    with running(make_relay(broker, wakeup=Wakeup(), poll_seconds=0.05)):
        eventually(listeners)
        write("a")
        eventually(lambda: on_topic(broker) == ["a"], timeout=10)


def test_a_relay_that_only_polls_needs_no_notifications(settings: Any) -> None:
    settings.OUTBOX_NOTIFY = False
    broker = memory_broker()
    with running(make_relay(broker)):
        write("a")
        eventually(lambda: on_topic(broker) == ["a"], timeout=10)
