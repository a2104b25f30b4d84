"""The relay on the real database, with the broker in memory."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from shopmicro.messaging.broker import TopicSpec
from shopmicro.messaging.event import Event
from shopmicro.messaging.lease import ShardCountDiffers, ShardLease
from shopmicro.messaging.memory import MemoryBroker
from shopmicro.messaging.models import OutboxEvent
from shopmicro.messaging.outbox import publish
from shopmicro.messaging.relay import Relay
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop
from shopmicro.messaging.wakeup import Wakeup
from tests.servers import eventually

NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)
pytestmark = pytest.mark.django_db(transaction=True)


def aggregate(number: int) -> str:
    return f"0198c0de-0000-7000-8000-{number:012d}"


def write(*names: str, aggregate_id: str = aggregate(1), topic: str = "orders") -> None:
    """Tell events of one aggregate, in one transaction."""
    with transaction.atomic():
        publish(topic, [Event(name, "order.created", aggregate_id, {"n": name}, NOW) for name in names])


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.admin().create_topics([TopicSpec("orders", 3, 1, {}), TopicSpec("payments", 3, 1, {})])
    return broker


@pytest.fixture
def relay(broker: MemoryBroker) -> Iterator[Relay]:
    relay = make_relay(broker)
    yield relay
    relay.close()


def make_relay(broker: MemoryBroker, shard: int = 0, shards: int = 1, **options: Any) -> Relay:
    settings: dict[str, Any] = {"batch": 1000, "poll_seconds": 0.05, "wakeup": None} | options
    return Relay(
        broker.publisher,
        ShardLease(shard, shards),
        outage=Backoff(0.01, 0.01),
        refusal=Backoff(3600, 3600),
        **settings,
    )


def on_topic(broker: MemoryBroker, topic: str = "orders") -> list[str]:
    """Event ids on a topic: of each partition in order, so of each aggregate too."""
    return [json.loads(record.value or b"")["id"] for record in broker.records(topic)]


def unpublished() -> list[str]:
    return list(OutboxEvent.objects.unpublished().values_list("event_id", flat=True))


def test_rows_are_sent_in_order_whole_with_cloudevents_headers(broker: MemoryBroker, relay: Relay) -> None:
    write("a", "b", "c")
    assert relay.step(Stop()) == 3
    records = broker.records("orders")
    payloads = OutboxEvent.objects.order_by("id").values_list("payload", flat=True)
    assert [record.value for record in records] == [payload.encode() for payload in payloads]
    assert [record.key for record in records] == [aggregate(1).encode()] * 3
    assert list(records[0].headers) == [
        ("ce_id", b"a"),
        ("ce_type", b"order.created"),
        ("ce_source", b"/shopmicro/orders"),
        ("ce_specversion", b"1.0"),
        ("ce_time", b"2026-07-14T09:15:40Z"),
        ("content-type", b"application/json"),
    ]


def test_a_row_is_marked_with_where_the_broker_put_it(broker: MemoryBroker, relay: Relay) -> None:
    write("a", "b")
    relay.step(Stop())
    rows = OutboxEvent.objects.order_by("id")
    records = broker.records("orders")
    assert [(row.partition, row.offset) for row in rows] == [(r.partition, r.offset) for r in records]
    assert all(row.published_at is not None for row in rows)
    assert relay.step(Stop()) == 0
    assert len(broker.records("orders")) == 2


def test_a_row_is_not_marked_before_its_own_acknowledgement(broker: MemoryBroker, relay: Relay) -> None:
    write("a")
    broker.reports_are_held = True
    stop = Stop()
    working = threading.Thread(target=in_thread, args=(lambda: relay.step(stop), relay))
    working.start()
    eventually(lambda: on_topic(broker) == ["a"])
    assert unpublished() == ["a"]
    broker.reports_are_held = False
    working.join()
    assert unpublished() == []


def test_a_second_row_of_an_aggregate_waits_for_the_first_ones_acknowledgement(
    broker: MemoryBroker, relay: Relay
) -> None:
    write("a1", "a2")
    write("b1", aggregate_id=aggregate(2))
    broker.reports_are_held = True
    working = threading.Thread(target=in_thread, args=(lambda: relay.step(Stop()), relay))
    working.start()
    eventually(lambda: len(on_topic(broker)) == 2)
    assert sorted(on_topic(broker)) == ["a1", "b1"]
    broker.reports_are_held = False
    working.join()
    assert sorted(on_topic(broker)) == ["a1", "a2", "b1"]
    assert unpublished() == []


def in_thread(work: Any, relay: Relay) -> None:
    """Run something that uses a database session of this thread's own, and let go of it."""
    work()
    connection.close()


def test_a_broker_that_is_away_leaves_the_rows_where_they_are(broker: MemoryBroker, relay: Relay) -> None:
    write("a", "b")
    broker.away = True
    run_until(relay, lambda: relay._failures >= 3)
    assert (unpublished(), on_topic(broker)) == (["a", "b"], [])
    assert not OutboxEvent.objects.exclude(attempts=0, error="").exists()
    broker.away = False
    run_until(relay, lambda: not unpublished())
    assert on_topic(broker) == ["a", "b"]


def run_until(relay: Relay, condition: Any) -> None:
    """Run the relay's loop until a condition holds."""
    stop = Stop()
    step = relay.step

    def look(stop: Stop) -> int:
        if condition():
            stop.request()
            return 0
        return step(stop)

    relay.step = look  # type: ignore[method-assign]
    relay.run(stop)
    relay.step = step  # type: ignore[method-assign]


def test_a_row_that_the_broker_refuses_holds_back_its_own_aggregate_only(
    broker: MemoryBroker, relay: Relay
) -> None:
    write("lost", topic="nowhere")
    write("behind")
    write("other", aggregate_id=aggregate(2))
    relay.step(Stop())
    relay.step(Stop())
    assert (on_topic(broker), unpublished()) == (["other"], ["lost", "behind"])
    row = OutboxEvent.objects.get(event_id="lost")
    assert (row.attempts, row.error) == (1, "no topic nowhere")
    assert row.failing_since is not None
    assert row.next_attempt_at is not None
    assert (row.next_attempt_at - row.failing_since).total_seconds() >= 1800
    assert OutboxEvent.objects.get(event_id="behind").attempts == 0


def test_a_refused_row_is_sent_when_due_once_the_cause_is_gone(broker: MemoryBroker, relay: Relay) -> None:
    write("lost", topic="nowhere")
    write("behind")
    relay.step(Stop())
    broker.admin().create_topics([TopicSpec("nowhere", 1, 1, {})])
    OutboxEvent.objects.update(next_attempt_at=NOW)
    relay.step(Stop())
    assert (on_topic(broker, "nowhere"), on_topic(broker), unpublished()) == (["lost"], ["behind"], [])


def test_two_hundred_rows_that_can_never_be_sent_do_not_starve_the_others(broker: MemoryBroker) -> None:
    relay = make_relay(broker, batch=50)
    for number in range(200):
        write(f"bad-{number}", aggregate_id=aggregate(number), topic="nowhere")
    for number in range(200, 300):
        write(f"good-{number}", aggregate_id=aggregate(number))
    published = 0
    for _ in range(6):
        published += relay.step(Stop())
    assert published == 100
    assert len(on_topic(broker)) == 100
    relay.close()


def test_a_row_whose_transaction_commits_late_is_not_passed_over(
    broker: MemoryBroker, relay: Relay, postgres: Any
) -> None:
    with closing(psycopg.connect(database_url(postgres))) as late:
        late.execute(
            "INSERT INTO outbox (event_id, topic, aggregate_id, type, payload, occurred_at)"
            " VALUES ('late', 'orders', %s, 'order.created', '{\"id\": \"late\"}', now())",
            (aggregate(9),),
        )
        write("early")
        relay.step(Stop())
        assert on_topic(broker) == ["early"]
        late.commit()
    relay.step(Stop())
    assert sorted(on_topic(broker)) == ["early", "late"]


def test_only_one_relay_leads_a_shard_and_the_other_takes_over_when_its_session_ends(
    broker: MemoryBroker, relay: Relay
) -> None:
    second = make_relay(broker)
    write("a")
    assert relay.step(Stop()) == 1
    write("b")
    assert in_other_session(lambda: second.step(Stop())) == 0
    assert unpublished() == ["b"]
    relay.close()
    assert in_other_session(lambda: second.step(Stop())) == 1
    assert on_topic(broker) == ["a", "b"]


def in_other_session(work: Any) -> Any:
    """Run something on a database session of its own, and give what it returned or raised."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append(work())
        except Exception as error:  # noqa: BLE001 - handed to the test
            answer.append(error)
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    return answer[0]


def test_a_relay_whose_session_was_ended_by_the_server_leads_again_and_goes_on(
    broker: MemoryBroker, relay: Relay, postgres: Any
) -> None:
    write("a")
    relay.step(Stop())
    with closing(psycopg.connect(database_url(postgres), autocommit=True)) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
        )
        other.execute(
            "INSERT INTO outbox (event_id, topic, aggregate_id, type, payload, occurred_at)"
            " VALUES ('b', 'orders', %s, 'order.created', '{\"id\": \"b\"}', now())",
            (aggregate(9),),
        )
    run_until(relay, lambda: len(on_topic(broker)) == 2)
    assert sorted(on_topic(broker)) == ["a", "b"]


def test_the_server_ends_the_session_of_a_relay_that_has_gone_silent(
    broker: MemoryBroker, postgres: Any
) -> None:
    frozen = Relay(
        broker.publisher,
        ShardLease(0, 1, idle_seconds=1),
        batch=10,
        poll_seconds=0.05,
        wakeup=None,
        outage=Backoff(0.01, 0.01),
        refusal=Backoff(1, 1),
    )
    frozen.step(Stop())
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
    with closing(psycopg.connect(database_url(postgres), autocommit=True)) as other:
        assert other.execute(locks).fetchone() == (1,)
        eventually(lambda: other.execute(locks).fetchone() == (0,))
    connection.close()


def test_shards_share_the_aggregates_between_them(broker: MemoryBroker) -> None:
    for number in range(40):
        write(f"e{number}", aggregate_id=aggregate(number))
    counts: list[int] = []
    for shard in range(3):
        relay = make_relay(broker, shard, 3)
        counts.append(relay.step(Stop()))
        relay.close()
    assert sum(counts) == 40
    assert all(count > 0 for count in counts)
    assert (len(set(on_topic(broker))), unpublished()) == (40, [])


def test_a_relay_with_another_number_of_shards_refuses_to_start(broker: MemoryBroker, relay: Relay) -> None:
    relay.step(Stop())
    refusal = in_other_session(lambda: make_relay(broker, 0, 2).step(Stop()))
    assert isinstance(refusal, ShardCountDiffers)
    assert str(refusal).startswith("a relay with OUTBOX_SHARDS=1 is running and this one has 2")


@pytest.mark.parametrize(("shard", "shards"), [(-1, 1), (1, 1), (2, 2)])
def test_a_shard_that_is_none_of_them_is_refused(shard: int, shards: int) -> None:
    with pytest.raises(ValueError, match=f"no shard {shard} of {shards}"):
        ShardLease(shard, shards)


def test_a_notification_ends_the_wait_and_its_absence_does_not_matter(broker: MemoryBroker) -> None:
    relay = make_relay(broker, wakeup=Wakeup(), poll_seconds=20)
    stop = Stop()
    running = threading.Thread(target=lambda: relay.run(stop))
    running.start()
    listening = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' OR query LIKE '%%FROM outbox%%'"
    )
    eventually(lambda: rows(listening) != [(0,)])
    write("a")
    eventually(lambda: on_topic(broker) == ["a"], timeout=10)
    stop.request()
    write("the last one wakes it to see the stop")
    running.join(30)
    assert not running.is_alive()


def test_a_session_lost_while_waiting_for_a_notification_is_replaced(broker: MemoryBroker) -> None:
    relay = make_relay(broker, wakeup=Wakeup(), poll_seconds=20)
    stop = Stop()
    running = threading.Thread(target=lambda: relay.run(stop))
    running.start()
    waiting = "FROM pg_stat_activity WHERE state = 'idle' AND query LIKE '%%FROM outbox%%'"
    eventually(lambda: rows(f"SELECT pid {waiting}"))
    rows(f"SELECT pg_terminate_backend(pid) {waiting}")
    write("a")
    eventually(lambda: on_topic(broker) == ["a"], timeout=10)
    stop.request()
    write("the last one wakes it to see the stop")
    running.join(30)
    assert not running.is_alive()


def test_polling_alone_is_enough(broker: MemoryBroker, settings: Any) -> None:
    settings.OUTBOX_NOTIFY = False
    relay = make_relay(broker)
    write("a")
    run_until(relay, lambda: on_topic(broker) == ["a"])


def test_a_full_queue_is_waited_for_and_every_row_is_sent_once(broker: MemoryBroker, relay: Relay) -> None:
    broker.queue_limit = 10
    for number in range(100):
        write(f"e{number}", aggregate_id=aggregate(number))
    assert relay.step(Stop()) == 100
    assert sorted(on_topic(broker)) == sorted(f"e{number}" for number in range(100))


def test_a_stop_marks_what_was_acknowledged_and_leaves_the_rest(broker: MemoryBroker, relay: Relay) -> None:
    write("a1", "a2", "a3")
    stop = Stop()
    broker.reports_are_held = True
    working = threading.Thread(target=in_thread, args=(lambda: relay.step(stop), relay))
    working.start()
    eventually(lambda: on_topic(broker) == ["a1"])
    stop.request()
    broker.reports_are_held = False
    working.join(30)
    assert (on_topic(broker), unpublished()) == (["a1"], ["a2", "a3"])


def test_a_row_can_be_sent_twice_when_the_mark_was_lost_but_keeps_its_id(
    broker: MemoryBroker, relay: Relay
) -> None:
    write("a")
    relay.step(Stop())
    OutboxEvent.objects.update(published_at=None)
    relay.step(Stop())
    assert on_topic(broker) == ["a", "a"]


def rows(sql: str) -> Sequence[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def database_url(postgres: Any) -> str:
    return str(postgres.url(connection.settings_dict["NAME"]))
