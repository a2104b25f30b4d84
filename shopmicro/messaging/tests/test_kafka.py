"""What only the real broker can show: lost records, outages, a topic made anew, errors of the client."""

import ctypes
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, cimpl
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient

from shopmicro.embedded.kafka import KafkaServer
from shopmicro.embedded.mock import MockKafka
from shopmicro.embedded.ports import free_port
from shopmicro.messaging.broker import BrokerError, BrokerFatal, Delivery, QueueFull, Refused, RefusedTogether
from shopmicro.messaging.kafka import KafkaAdmin, KafkaConfig, KafkaPublisher
from shopmicro.messaging.kafka.errors import broker_error
from shopmicro.messaging.kafka.patience import Deadline
from shopmicro.messaging.kafka.topics import TopicIds
from shopmicro.messaging.tests.worlds import (
    ROOMY,
    KafkaWorld,
    create,
    poll_until,
    publish,
    publish_values,
    values,
)
from tests.servers import Kafka, eventually


@pytest.fixture
def world(kafka: Kafka) -> Iterator[KafkaWorld]:
    with ExitStack() as clients:
        yield KafkaWorld(clients, kafka.bootstrap_servers)


def lines(caplog: pytest.LogCaptureFixture, level: str = "error") -> list[dict[str, object]]:
    """Give the structured lines of a level."""
    return [
        record.msg
        for record in caplog.records
        if record.levelname == level.upper() and isinstance(record.msg, dict)
    ]


def commit_by_hand(world: KafkaWorld, group: str, topic: str, offset: int, metadata: str = "") -> None:
    consumer = Consumer(
        {"bootstrap.servers": world.config.bootstrap_servers, "group.id": world.config.on_wire(group)}
    )
    consumer.commit(
        offsets=[WirePartition(world.config.on_wire(topic), 0, offset, metadata)], asynchronous=False
    )
    consumer.close()


def unsteady(monkeypatch: pytest.MonkeyPatch, client: type) -> Counter[str]:
    """Give how many more calls of each of the client library's methods fail; none, until a test says so."""
    failures: Counter[str] = Counter()

    class Unsteady(client):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if failures[name] > 0:
                failures[name] -= 1
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return super().__getattribute__(name)

    module = {Consumer: "subscriber", AdminClient: "admin"}[client]
    monkeypatch.setattr(f"shopmicro.messaging.kafka.{module}.{client.__name__}", Unsteady)
    return failures


def send_header(bootstrap_servers: str, topic: str, name: bytes, value: bytes) -> None:
    """Send a record, ``raw``, with a header whose name may be any bytes, as clients of other languages can.

    The Python client takes text only; so this calls the library beneath it.
    """
    library = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(configuration, b"bootstrap.servers", bootstrap_servers.encode(), None, 0)
    producer = ctypes.c_void_p(library.rd_kafka_new(0, configuration, None, 0))
    topic_tag, value_tag, header_tag, end_tag = 1, 4, 9, 0
    assert not library.rd_kafka_producev(
        *(producer, topic_tag, topic.encode(), value_tag, b"raw", ctypes.c_size_t(3)),
        *(header_tag, name, value, ctypes.c_ssize_t(len(value)), end_tag),
    )
    assert not library.rd_kafka_flush(producer, 10_000)
    library.rd_kafka_destroy(producer)


def test_records_gone_before_they_were_read_are_named_in_an_error(
    world: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(100))
    first = world.subscriber("saga", ["orders"])
    first.commit(poll_until(first, 100)[:20])
    first.close()
    world.trim("orders", 0, 70)
    assert values(poll_until(world.subscriber("saga", ["orders"]), 30)) == list(range(70, 100))
    (line,) = lines(caplog)
    assert line["event"] == "records are gone that the group had not read"
    assert (line["topic"], line["partition"], line["from_offset"], line["to_offset"]) == ("orders", 0, 20, 70)
    assert line["size"] == 50


def test_records_gone_while_a_member_runs_are_named_in_an_error(
    world: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(100))
    subscriber = world.subscriber("saga", ["orders"])
    records = poll_until(subscriber, 100)
    world.trim("orders", 0, 70)
    subscriber.rewind(records[20:])
    again = poll_until(subscriber, 30)
    assert again == records[70:]
    (line,) = lines(caplog)
    assert (line["from_offset"], line["to_offset"], line["size"]) == (20, 70, 50)
    subscriber.commit(again)
    subscriber.close()
    assert world.subscriber("saga", ["orders"]).poll(ROOMY, ROOMY, 1) == []


def test_an_offset_beyond_the_log_s_end_is_named_in_an_error_and_the_log_read_from_its_start(
    world: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(10))
    commit_by_hand(world, "saga", "orders", 500)
    assert values(poll_until(world.subscriber("saga", ["orders"]), 10)) == list(range(10))
    (line,) = lines(caplog)
    assert line["event"] == "the log ends before the group's offset, and is read from its start"
    assert (line["from_offset"], line["to_offset"]) == (500, 0)


def test_a_topic_made_anew_is_read_from_its_start_by_the_member_that_runs(world: KafkaWorld) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(10))
    subscriber = world.subscriber("saga", ["orders"])
    records = poll_until(subscriber, 10)
    subscriber.commit(records)
    old = subscriber.topic_id("orders")
    world.recreate("orders", 1)
    publish_values(world, "orders", "a", range(100, 115))
    seen: list[int] = []
    eventually(
        lambda: seen.extend(values(subscriber.poll(ROOMY, ROOMY, 0.1))) or {*range(100, 115)} <= {*seen}
    )
    assert subscriber.topic_id("orders") not in ("", old)
    assert not subscriber.owns(records[0])


def test_an_offset_of_a_topic_that_was_made_anew_is_not_taken_for_one_of_the_new_topic(
    world: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(10))
    commit_by_hand(world, "saga", "orders", 5, "id-of-another-topic")
    assert values(poll_until(world.subscriber("saga", ["orders"]), 10)) == list(range(10))
    (line,) = lines(caplog)
    assert line["event"] == "the topic was made anew, and is read from its start"


def test_an_offset_that_was_committed_by_hand_is_honoured(world: KafkaWorld) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(10))
    commit_by_hand(world, "saga", "orders", 5)
    assert values(poll_until(world.subscriber("saga", ["orders"]), 5)) == list(range(5, 10))


@pytest.mark.parametrize(
    ("client", "look_up"),
    [(Consumer, "committed"), (Consumer, "offsets_for_times"), (AdminClient, "list_topics")],
)
def test_nothing_is_polled_before_it_is_known_where_to_begin(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch, client: type, look_up: str
) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(10))
    commit_by_hand(world, "saga", "orders", 5, "id-of-another-topic")
    unsteady(monkeypatch, client)[look_up] = 1
    assert values(poll_until(world.subscriber("saga", ["orders"]), 10)) == list(range(10))


def test_a_member_that_can_t_take_its_partitions_up_is_beyond_repair_and_the_next_reads_all(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(10))
    failures = unsteady(monkeypatch, Consumer)
    failures["incremental_assign"] = 1
    subscriber = world.subscriber("saga", ["orders"])
    with pytest.raises(BrokerFatal):
        poll_until(subscriber, 1)
    subscriber.close()
    assert values(poll_until(world.subscriber("saga", ["orders"]), 10)) == list(range(10))


def test_a_member_that_can_t_go_back_polls_nothing_behind_the_records_that_it_was_to_poll_again(
    world: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(10))
    failures = unsteady(monkeypatch, Consumer)
    subscriber = world.subscriber("saga", ["orders"])
    records = poll_until(subscriber, 10)
    subscriber.commit(records[:4])
    failures.update({"seek": 1, "incremental_assign": 1})
    with pytest.raises(BrokerFatal):
        subscriber.rewind(records[4:])
    with pytest.raises(BrokerFatal):
        subscriber.poll(ROOMY, ROOMY, 0.1)
    subscriber.close()
    assert values(poll_until(world.subscriber("saga", ["orders"]), 6)) == list(range(4, 10))


def test_a_topic_s_new_id_is_seen_in_time_and_the_old_one_kept_for_the_records_given_before(
    world: KafkaWorld,
) -> None:
    create(world, "orders", 1)
    time_is = [0.0]
    topics = TopicIds(KafkaAdmin(world.config), ["orders"], lambda: time_is[0])
    assert topics.refresh(Deadline(5)) == set()
    topics.give()
    old = topics.given("orders")
    world.recreate("orders", 1)
    time_is[0] = 9.9
    assert not topics.is_due
    time_is[0] = 10
    assert topics.is_due
    assert topics.refresh(Deadline(5)) == {"orders"}
    assert topics.given("orders") == old
    topics.give()
    assert topics.given("orders") == topics.known("orders") != old


def test_a_topic_made_after_the_member_came_is_found(world: KafkaWorld) -> None:
    subscriber = world.subscriber("saga", ["orders"])
    assert subscriber.poll(ROOMY, ROOMY, 1) == []
    create(world, "orders", 1)
    publish_values(world, "orders", "a", range(10))
    assert values(poll_until(subscriber, 10)) == list(range(10))


def test_members_and_publishers_go_on_by_themselves_after_the_broker_s_restart(
    world: KafkaWorld, kafka_server: KafkaServer
) -> None:
    create(world, "orders", 1)
    publisher, subscriber = world.publisher(), world.subscriber("saga", ["orders"])
    assert publish(publisher, "orders", [("a", b"1")]) == [Delivery(0, 0)]
    first = poll_until(subscriber, 1)
    kafka_server.kill()
    try:
        subscriber.commit(first)
        assert subscriber.poll(ROOMY, ROOMY, 0.5) == []
    finally:
        kafka_server.start()
    assert publish(publisher, "orders", [("a", b"2")]) == [Delivery(0, 1)]
    assert values(poll_until(subscriber, 1)) == [2]
    subscriber.close()
    assert values(poll_until(world.subscriber("saga", ["orders"]), 1)) == [2]


def test_a_frozen_broker_keeps_nobody_from_leaving_in_time(
    world: KafkaWorld, kafka_server: KafkaServer
) -> None:
    create(world, "orders", 1)
    publisher, subscriber = world.publisher(), world.subscriber("saga", ["orders"])
    publish(publisher, "orders", [("a", b"1"), ("a", b"2")])
    records = poll_until(subscriber, 2)
    subscriber.commit(records)
    world.trim("orders", 0, 1)
    subscriber.rewind(records)
    assert subscriber.poll(ROOMY, ROOMY, 5) == []
    kafka_server.pause()
    try:
        began = time.monotonic()
        assert subscriber.poll(ROOMY, ROOMY, 0.5) == []
        subscriber.commit(records)
        publisher.send("orders", "a", b"3", [], lambda delivery: None)
        subscriber.close()
        publisher.close(0.5)
        assert time.monotonic() - began < 6.5
    finally:
        kafka_server.resume()


def test_nobody_listening_is_an_error_within_the_time_given() -> None:
    began = time.monotonic()
    with pytest.raises(BrokerError):
        KafkaAdmin(KafkaConfig(f"127.0.0.1:{free_port()}")).check(1)
    assert time.monotonic() - began < 3


def test_a_full_queue_is_told_and_every_record_gets_its_report() -> None:
    nowhere = {"queue.buffering.max.messages": "10", "message.timeout.ms": "500"}
    publisher = KafkaPublisher(KafkaConfig(f"127.0.0.1:{free_port()}", options=nowhere))
    reports: list[Delivery] = []
    for _ in range(10):
        publisher.send("orders", "a", b"1", [], reports.append)
    with pytest.raises(QueueFull):
        publisher.send("orders", "a", b"1", [], reports.append)
    eventually(lambda: publisher.serve(0.1) or len(reports) == 10)
    eventually(lambda: len(reports) == 10 or publisher.serve(0.1))
    assert {type(report.error) for report in reports} == {BrokerError}
    publisher.close(0)


def test_the_options_do_not_show_and_do_not_loosen_what_must_hold() -> None:
    config = KafkaConfig("x", options={"sasl.password": "secret", "enable.auto.commit": "true"})
    assert "secret" not in repr(config)
    merged = config.client({"linger.ms": 1}, {"enable.auto.commit": False})
    assert (merged["sasl.password"], merged["linger.ms"], merged["enable.auto.commit"]) == (
        "secret",
        1,
        False,
    )


def test_the_mock_cluster_serves_groups_and_names_its_topics() -> None:
    with MockKafka() as mock, ExitStack() as clients:
        world = KafkaWorld(clients, mock.bootstrap_servers)
        create(world, "orders", 4)
        publish_values(world, "orders", "abcdef", range(60))
        subscriber = world.subscriber("saga", ["orders"])
        records = poll_until(subscriber, 60)
        assert sorted(values(records)) == list(range(60))
        assert subscriber.topic_id("orders").startswith("mockCluster")
        subscriber.commit(records)
        subscriber.close()
        assert world.subscriber("saga", ["orders"]).poll(ROOMY, ROOMY, 1) == []


def test_headers_that_can_t_be_read_are_none_and_the_record_is_polled_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with MockKafka() as mock, ExitStack() as clients:
        world = KafkaWorld(clients, mock.bootstrap_servers)
        create(world, "orders", 4)
        send_header(mock.bootstrap_servers, world.config.on_wire("orders"), b"caf\xe9", b"1")
        publish(world.publisher(), "orders", [("a", b"2")], [("caf\u00e9", b"2")])
        records = poll_until(world.subscriber("saga", ["orders"]), 2)
        headers = {record.value: record.headers for record in records}
        assert headers == {b"raw": (), b"2": (("caf\u00e9", b"2"),)}
        assert headers[b"raw"] == ()
        told = [line for line in lines(caplog, "warning") if "headers" in str(line["event"])]
        assert [(line["topic"], line["offset"]) for line in told] == [(world.config.on_wire("orders"), 0)]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(KafkaError._FATAL), BrokerFatal),
        (KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True), BrokerFatal),
        (KafkaError(KafkaError._QUEUE_FULL), QueueFull),
        (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), RefusedTogether),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Refused),
        (KafkaError(KafkaError._UNKNOWN_TOPIC), Refused),
        (KafkaError(KafkaError._MSG_TIMED_OUT), BrokerError),
        (KafkaError(KafkaError._ALL_BROKERS_DOWN), BrokerError),
    ],
    ids=lambda value: value.name() if isinstance(value, KafkaError) else "",
)
def test_an_error_of_the_client_is_one_of_the_port(error: KafkaError, kind: type[BrokerError]) -> None:
    assert type(broker_error(error)) is kind
    assert error.name() in str(broker_error(error))
