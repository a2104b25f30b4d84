"""Who publishes a shard, and what a lost session or a death costs, on the real database."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import DatabaseError, connection

from shopmicro.messaging.broker import BrokerError
from shopmicro.messaging.lease import ShardCountDiffers, ShardLease
from shopmicro.messaging.memory import MemoryBroker
from shopmicro.messaging.models import OutboxEvent
from shopmicro.messaging.relay import Relay
from shopmicro.messaging.shutdown import PARENT, Stop
from shopmicro.messaging.tests.test_relay import (
    NOW,
    aggregate,
    database_url,
    end_leader,
    in_thread,
    make_relay,
    memory_broker,
    on_topic,
    running,
    unpublished,
    unwritable,
    write,
)
from tests.servers import eventually

pytestmark = pytest.mark.django_db(transaction=True)

LEADERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"

WAITING = "SELECT pid FROM pg_locks WHERE relation = 'outbox'::regclass AND NOT granted"


@pytest.fixture
def other(postgres: Any) -> Iterator[psycopg.Connection[Any]]:
    """Another session on the same database."""
    with closing(psycopg.connect(database_url(postgres), autocommit=True)) as session:
        yield session


@pytest.fixture
def lease() -> Iterator[ShardLease]:
    yield ShardLease(0, 1)
    connection.close()


def test_only_one_holds_a_shard_and_another_takes_over_when_its_session_ends(lease: ShardLease) -> None:
    second = ShardLease(0, 1)
    assert lease.hold()
    assert lease.hold()
    assert not in_thread(second.hold)
    connection.close()
    assert in_thread(second.hold)


def test_a_relay_that_stands_by_sends_nothing() -> None:
    broker = memory_broker()
    leader, second = make_relay(broker), make_relay(broker)
    write("a")
    assert leader.step(Stop()) == 1
    write("b")
    assert in_thread(lambda: second.step(Stop())) == 0
    assert unpublished() == ["b"]
    leader.close()
    assert in_thread(lambda: second.step(Stop())) == 1
    assert on_topic(broker) == ["a", "b"]


def test_a_relay_whose_session_was_ended_by_the_server_leads_again_and_goes_on(postgres: Any) -> None:
    broker = memory_broker()
    with running(make_relay(broker)):
        write("a")
        eventually(lambda: on_topic(broker) == ["a"])
        end_leader(postgres)
        write("b")
        eventually(lambda: on_topic(broker) == ["a", "b"])


def test_what_was_acknowledged_while_the_session_was_lost_is_marked_by_the_next(postgres: Any) -> None:
    broker = memory_broker()
    write("a1", "a2")
    broker.reports_are_held = True
    with running(make_relay(broker)):
        eventually(lambda: on_topic(broker) == ["a1"])
        end_leader(postgres)
        broker.reports_are_held = False
        eventually(lambda: not unpublished())
    assert on_topic(broker) == ["a1", "a2"]


def test_through_deaths_lost_sessions_and_failures_each_aggregates_events_come_first_in_order(
    postgres: Any,
) -> None:
    broker = memory_broker()
    told = {aggregate(number): [f"{number}-{event}" for event in range(8)] for number in range(12)}
    relay = make_relay(broker, batch=20)
    for event in range(8):
        for aggregate_id, names in told.items():
            write(names[event], aggregate_id=aggregate_id)
        relay = [die, lose_session, fail_to_mark, refuse, be_away][event % 5](broker, relay, postgres)
    for _ in range(10):
        relay.step(Stop())
    relay.close()
    assert unpublished() == []
    sent = list(dict.fromkeys(on_topic(broker)))
    assert len(on_topic(broker)) > len(sent) == 96
    for number, names in enumerate(told.values()):
        assert [name for name in sent if name.startswith(f"{number}-")] == names


def die(broker: MemoryBroker, relay: Relay, postgres: Any) -> Relay:
    """Send rows and know nothing of it, as after kill -9 between acknowledgement and mark."""
    fail_to_mark(broker, relay, postgres)
    relay.close()
    return make_relay(broker, batch=20)


def lose_session(broker: MemoryBroker, relay: Relay, postgres: Any) -> Relay:
    relay.step(Stop())
    end_leader(postgres)
    with pytest.raises(DatabaseError):
        relay.step(Stop())
    connection.close()
    return relay


def fail_to_mark(broker: MemoryBroker, relay: Relay, postgres: Any) -> Relay:
    with unwritable(connection), pytest.raises(DatabaseError):
        relay.step(Stop())
    return relay


def refuse(broker: MemoryBroker, relay: Relay, postgres: Any) -> Relay:
    broker.refuse("orders")
    relay.step(Stop())
    broker.refuse("orders", refuse=False)
    make_due()
    return relay


def make_due() -> None:
    OutboxEvent.objects.update(next_attempt_at=NOW)


def be_away(broker: MemoryBroker, relay: Relay, postgres: Any) -> Relay:
    broker.away = True
    with pytest.raises(BrokerError):
        relay.step(Stop())
    broker.away = False
    return relay


def test_the_server_ends_the_session_of_a_holder_that_has_gone_silent(
    other: psycopg.Connection[Any],
) -> None:
    assert ShardLease(0, 1, idle_seconds=1).hold()
    assert len(other.execute(LEADERS).fetchall()) == 1
    eventually(lambda: other.execute(LEADERS).fetchall() == [])
    connection.close()


def test_a_holder_that_waits_longer_than_the_server_does_keeps_its_session(
    other: psycopg.Connection[Any],
) -> None:
    with running(make_relay(memory_broker(), ShardLease(0, 1, idle_seconds=2), poll_seconds=60)):
        ((leader,),) = eventually(lambda: other.execute(LEADERS).fetchall())
        eventually(
            lambda: other.execute(
                "SELECT 1 FROM pg_stat_activity"
                " WHERE pid = %s AND state_change > backend_start + interval '4 s'",
                (leader,),
            ).fetchone()
        )
        assert other.execute(LEADERS).fetchall() == [(leader,)]


def test_a_frozen_database_does_not_hold_up_the_exit(postgres: Any, other: psycopg.Connection[Any]) -> None:
    relay = subprocess.Popen(
        [sys.executable, "manage.py", "runrelay"],
        cwd=settings.BASE_DIR,
        env=os.environ | {"DATABASE_URL": database_url(postgres), PARENT: str(os.getpid())},
    )
    with other.transaction():
        other.execute("LOCK TABLE outbox")
        ((session,),) = eventually(lambda: other.execute(WAITING).fetchall())
        os.kill(session, signal.SIGSTOP)
    try:
        relay.terminate()
        assert relay.wait(8) == 0
    finally:
        os.kill(session, signal.SIGCONT)
        relay.kill()
        relay.wait()


def test_a_holder_speaks_three_times_in_the_idle_limit_and_no_more_often(
    lease: ShardLease, django_assert_num_queries: Any
) -> None:
    now = [100.0]
    lease = ShardLease(0, 1, idle_seconds=30, clock=lambda: now[0])
    lease.hold()
    for at, queries in ((100, 0), (109, 0), (110, 1), (119, 0), (120, 1)):
        now[0] = at
        with django_assert_num_queries(queries):
            lease.keep()


def test_shards_share_the_aggregates_between_them() -> None:
    broker = memory_broker()
    for number in range(40):
        write(f"e{number}", aggregate_id=aggregate(number))
    counts: list[int] = []
    for shard in range(3):
        relay = make_relay(broker, ShardLease(shard, 3))
        counts.append(relay.step(Stop()))
        relay.close()
    assert sum(counts) == 40
    assert all(count > 0 for count in counts)
    assert (len(set(on_topic(broker))), unpublished()) == (40, [])


def test_a_relay_with_another_number_of_shards_refuses_to_start(lease: ShardLease) -> None:
    lease.hold()
    with pytest.raises(ShardCountDiffers, match="a relay with OUTBOX_SHARDS=1 is running and this one has 2"):
        in_thread(ShardLease(0, 2).hold)


@pytest.mark.parametrize(("shard", "shards"), [(-1, 1), (1, 1), (2, 2)])
def test_a_shard_that_is_none_of_them_is_refused(shard: int, shards: int) -> None:
    with pytest.raises(ValueError, match=f"no shard {shard} of {shards}"):
        ShardLease(shard, shards)
