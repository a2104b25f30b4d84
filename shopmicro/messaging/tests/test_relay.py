"""The relay on the real database, with the broker in memory."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from structlog.testing import capture_logs

from shopmicro.messaging.broker import BrokerError, TopicSpec
from shopmicro.messaging.event import Event
from shopmicro.messaging.lease import ShardLease
from shopmicro.messaging.memory import MAX_RECORD_BYTES, MemoryBroker
from shopmicro.messaging.models import OutboxEvent
from shopmicro.messaging.outage import Outage
from shopmicro.messaging.outbox import publish
from shopmicro.messaging.relay import Relay
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop
from tests.servers import eventually

T = TypeVar("T")
NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)
pytestmark = pytest.mark.django_db(transaction=True)


def aggregate(number: int) -> str:
    return f"0198c0de-0000-7000-8000-{number:012d}"


def write(*names: str, aggregate_id: str = aggregate(1), topic: str = "orders", note: str = "") -> None:
    """Tell events of one aggregate, in one transaction."""
    with transaction.atomic():
        publish(topic, [Event(name, "order.created", aggregate_id, {"note": note}, NOW) for name in names])


def memory_broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.admin().create_topics([TopicSpec("orders", 3, 1, {}), TopicSpec("payments", 3, 1, {})])
    return broker


@pytest.fixture
def broker() -> MemoryBroker:
    return memory_broker()


@pytest.fixture
def relay(broker: MemoryBroker) -> Iterator[Relay]:
    relay = make_relay(broker)
    yield relay
    relay.close()


def make_relay(broker: MemoryBroker, lease: ShardLease | None = None, **options: Any) -> Relay:
    settings: dict[str, Any] = {"batch": 1000, "poll_seconds": 0.05, "wakeup": None} | options
    return Relay(
        broker.publisher,
        lease or ShardLease(0, 1),
        outage=Outage("relay", Backoff(0.01, 0.01)),
        refusal=Backoff(3600, 3600),
        **settings,
    )


@contextmanager
def running(relay: Relay) -> Iterator[None]:
    """Run the relay's loop in a thread of its own; it must end within 6 s of the request to stop."""
    stop = Stop()
    with ThreadPoolExecutor(1) as thread:
        loop = thread.submit(relay.run, stop)
        try:
            yield
        finally:
            stop.request()
            loop.result(6)


def in_thread(work: Callable[[], T]) -> T:
    """Give what something returns or raises that runs on a database session of its own."""

    def run() -> T:
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result(30)


@contextmanager
def stepping(relay: Relay, stop: Stop) -> Iterator[None]:
    """Take a step in another thread while the block runs, and wait for its end."""
    with ThreadPoolExecutor(1) as thread:
        step = thread.submit(in_thread, lambda: relay.step(stop))
        yield
        step.result(30)


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
    with stepping(relay, Stop()):
        eventually(lambda: on_topic(broker) == ["a"])
        assert unpublished() == ["a"]
        broker.reports_are_held = False
    assert unpublished() == []


def test_a_broker_that_is_away_leaves_the_rows_where_they_are(broker: MemoryBroker, relay: Relay) -> None:
    write("a", "b")
    broker.away = True
    for _ in range(3):
        with pytest.raises(BrokerError, match="the broker is away"):
            relay.step(Stop())
    assert (unpublished(), on_topic(broker)) == (["a", "b"], [])
    assert not OutboxEvent.objects.exclude(attempts=0, error="").exists()
    broker.away = False
    assert relay.step(Stop()) == 2
    assert (unpublished(), on_topic(broker)) == ([], ["a", "b"])


def test_the_loop_outlasts_an_outage_of_the_broker(broker: MemoryBroker) -> None:
    write("a", "b")
    broker.away = True
    with capture_logs() as said, running(make_relay(broker)):
        eventually(lambda: [line for line in said if line["event"].startswith("waiting for")])
        broker.away = False
        eventually(lambda: on_topic(broker) == ["a", "b"])
    assert [line["after_failures"] > 0 for line in said if line["event"] == "works again"] == [True]


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
    row = OutboxEvent.objects.get(event_id="lost")
    assert (row.attempts, row.error, row.failing_since, row.next_attempt_at) == (1, "", None, None)


def test_the_rows_that_a_topic_refuses_are_said_in_one_line(broker: MemoryBroker, relay: Relay) -> None:
    for number in range(20):
        write(f"lost-{number}", aggregate_id=aggregate(number), topic="nowhere")
    write("large", note="x" * MAX_RECORD_BYTES, aggregate_id=aggregate(20))
    with capture_logs() as said:
        relay.step(Stop())
    first = OutboxEvent.objects.get(event_id="lost-0")
    lines = [line for line in said if line["log_level"] == "error"]
    assert [(line["topic"], line["error"], line["rows"]) for line in lines] == [
        ("nowhere", "no topic nowhere", 20),
        ("orders", "the record is too large", 1),
    ]
    assert (lines[0]["outbox_id"], lines[0]["event_id"], lines[0]["attempts"]) == (first.id, "lost-0", 1)


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
    with stepping(relay, stop):
        eventually(lambda: on_topic(broker) == ["a1"])
        stop.request()
        broker.reports_are_held = False
    assert (on_topic(broker), unpublished()) == (["a1"], ["a2", "a3"])


def test_a_broker_that_answers_no_more_does_not_hold_up_the_exit(broker: MemoryBroker) -> None:
    write("a1", "a2")
    broker.reports_are_held = True
    with running(make_relay(broker)):
        eventually(lambda: on_topic(broker) == ["a1"])
    assert (on_topic(broker), unpublished()) == (["a1"], ["a1", "a2"])


def test_what_cannot_be_marked_is_not_sent_again_but_marked_first(broker: MemoryBroker, relay: Relay) -> None:
    write("a1", "a2")
    write("lost", aggregate_id=aggregate(2), topic="nowhere")
    with unwritable(connection):
        for _ in range(5):
            with pytest.raises(DatabaseError, match="read-only transaction"):
                relay.step(Stop())
    assert (on_topic(broker), unpublished()) == (["a1", "a2"], ["a1", "a2", "lost"])
    write("a3")
    assert relay.step(Stop()) == 1
    assert (on_topic(broker), unpublished()) == (["a1", "a2", "a3"], ["lost"])
    assert OutboxEvent.objects.get(event_id="lost").attempts == 1


@contextmanager
def unwritable(connection: Any) -> Iterator[None]:
    """Let this session's transactions be read-only, as on a server that has become a standby."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        yield
        cursor.execute("SET default_transaction_read_only = off")


def end_leader(postgres: Any) -> None:
    """Let the server end the session that holds a shard."""
    with closing(psycopg.connect(database_url(postgres), autocommit=True)) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks"
            " WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
        )


def test_a_row_can_be_sent_twice_when_the_mark_was_lost_but_keeps_its_id(
    broker: MemoryBroker, relay: Relay
) -> None:
    write("a")
    relay.step(Stop())
    OutboxEvent.objects.update(published_at=None)
    relay.step(Stop())
    assert on_topic(broker) == ["a", "a"]


def database_url(postgres: Any) -> str:
    return str(postgres.url(connection.settings_dict["NAME"]))
