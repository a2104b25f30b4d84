"""What every broker behind the port does: the real one and the one in memory take the same tests."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from shopmicro.messaging.broker import Delivery, Record, Refused, Subscriber, TopicPartition, TopicSpec
from shopmicro.messaging.tests.worlds import (
    ROOMY,
    KafkaWorld,
    MemoryWorld,
    World,
    create,
    poll_all,
    poll_until,
    publish,
    publish_values,
    values,
)
from tests.servers import Kafka, eventually


class AnyBroker:
    def test_records_of_one_key_arrive_in_order_in_one_partition_with_their_headers(
        self, world: World
    ) -> None:
        create(world, "orders", 4)
        headers = [("ce_id", b"1"), ("ce_id", b"2"), ("none", None)]
        before = time.time_ns() // 1_000_000
        reports = publish(world.publisher(), "orders", [("a", b"%d" % n) for n in range(500)], headers)
        records = poll_until(world.subscriber("saga", ["orders"]), 500)
        assert [record.value for record in records] == [b"%d" % n for n in range(500)]
        assert [record.offset for record in records] == list(range(500))
        assert {record.source for record in records} == {TopicPartition("orders", reports[0].partition)}
        assert {(record.key, tuple(record.headers)) for record in records} == {(b"a", tuple(headers))}
        assert before <= records[0].timestamp_ms <= records[-1].timestamp_ms <= before + 60_000

    def test_no_key_no_value_and_an_empty_value_are_kept_apart(self, world: World) -> None:
        create(world, "orders", 1)
        sent = [(None, b"x"), ("", b"x"), ("a", None), ("a", b""), (None, None)]
        publish(world.publisher(), "orders", sent)
        records = poll_until(world.subscriber("saga", ["orders"]), 5)
        assert [(record.key, record.value) for record in records] == [
            (None, b"x"),
            (b"", b"x"),
            (b"a", None),
            (b"a", b""),
            (None, None),
        ]
        assert [record.headers for record in records] == [()] * 5

    def test_a_delivery_report_tells_partition_and_offset(self, world: World) -> None:
        create(world, "orders", 1)
        publisher = world.publisher()
        assert publish(publisher, "orders", [("a", b"1"), ("b", b"2")]) == [Delivery(0, 0), Delivery(0, 1)]
        assert publisher.serve(0) == 0

    def test_a_record_that_is_too_large_is_refused_and_the_others_pass(self, world: World) -> None:
        create(world, "orders", 1)
        sent = [("a", b"1"), ("b", b"x" * 2_000_000), ("c", b"3")]
        first, large, last = publish(world.publisher(), "orders", sent)
        assert (first, last) == (Delivery(0, 0), Delivery(0, 1))
        assert isinstance(large.error, Refused)

    def test_an_unknown_topic_is_refused_and_the_others_pass(self, world: World) -> None:
        create(world, "orders", 1)
        publisher = world.publisher()
        (unknown,) = publish(publisher, "misspelt", [("a", b"1")])
        assert isinstance(unknown.error, Refused)
        assert publish(publisher, "orders", [("a", b"1")]) == [Delivery(0, 0)]

    def test_a_new_group_reads_from_the_earliest_record(self, world: World) -> None:
        create(world, "orders", 3)
        publish_values(world, "orders", "abcdef", range(60))
        records = poll_until(world.subscriber("saga", ["orders"]), 60)
        assert sorted(values(records)) == list(range(60))

    def test_a_new_member_starts_exactly_after_what_was_committed(self, world: World) -> None:
        create(world, "orders", 1)
        publish_values(world, "orders", "a", range(10))
        first = world.subscriber("saga", ["orders"])
        records = poll_until(first, 10)
        first.commit(records[:4])
        first.commit(records[4:7])
        first.close()
        assert values(poll_until(world.subscriber("saga", ["orders"]), 3)) == [7, 8, 9]

    def test_what_was_not_committed_is_polled_again(self, world: World) -> None:
        create(world, "orders", 1)
        publish_values(world, "orders", "a", range(3))
        first = world.subscriber("saga", ["orders"])
        assert values(poll_until(first, 3)) == [0, 1, 2]
        first.close()
        assert values(poll_until(world.subscriber("saga", ["orders"]), 3)) == [0, 1, 2]

    def test_groups_do_not_share_offsets(self, world: World) -> None:
        create(world, "orders", 1)
        publish_values(world, "orders", "a", range(3))
        saga = world.subscriber("saga", ["orders"])
        saga.commit(poll_until(saga, 3))
        saga.close()
        assert values(poll_until(world.subscriber("stock", ["orders"]), 3)) == [0, 1, 2]

    def test_rewound_records_come_again_before_any_later_one(self, world: World) -> None:
        create(world, "orders", 1)
        publish_values(world, "orders", "a", range(100))
        subscriber = world.subscriber("saga", ["orders"])
        first = eventually(lambda: subscriber.poll(10, ROOMY, 0.1))
        second = eventually(lambda: subscriber.poll(10, ROOMY, 0.1))
        subscriber.commit(first)
        subscriber.rewind(second)
        again = poll_until(subscriber, 90)
        assert again[: len(second)] == second
        assert values(again) == list(range(len(first), 100))
        assert all(subscriber.owns(record) for record in again)

    def test_rewinding_one_partition_leaves_the_others_where_they_are(self, world: World) -> None:
        create(world, "orders", 2)
        publish_values(world, "orders", "abcd", range(40))
        subscriber = world.subscriber("saga", ["orders"])
        records = poll_until(subscriber, 40)
        failed = [record for record in records if record.partition == 1]
        assert 0 < len(failed) < 40
        subscriber.rewind(failed[3:])
        assert poll_until(subscriber, len(failed) - 3) == failed[3:]
        assert subscriber.poll(ROOMY, ROOMY, 0.2) == []

    def test_a_batch_ends_once_its_bytes_or_its_count_are_reached(self, world: World) -> None:
        create(world, "orders", 1)
        publish(world.publisher(), "orders", [(None, b"x" * 100)] * 50)
        subscriber = world.subscriber("saga", ["orders"])
        sizes = [len(eventually(lambda: subscriber.poll(ROOMY, 250, 0.1))) for _ in range(5)]
        assert max(sizes) == 3
        rest: list[Record] = []
        while len(rest) < 50 - sum(sizes):
            batch = subscriber.poll(7, ROOMY, 0.1)
            assert len(batch) <= 7
            rest += batch
        assert [record.offset for record in rest] == list(range(sum(sizes), 50))

    def test_keeping_alive_holds_the_partitions_and_loses_nothing(self, world: World) -> None:
        create(world, "orders", 1)
        publish_values(world, "orders", "a", range(20))
        subscriber = world.subscriber("saga", ["orders"])
        first = eventually(lambda: subscriber.poll(5, ROOMY, 0.1))
        subscriber.keep_alive(0.3)
        subscriber.keep_alive(0)
        publish_values(world, "orders", "a", range(20, 30))
        subscriber.keep_alive(0.3)
        assert all(subscriber.owns(record) for record in first)
        assert values(first + poll_until(subscriber, 30 - len(first))) == list(range(30))

    def test_a_partition_that_comes_during_keep_alive_is_read_in_full_after_it(self, world: World) -> None:
        create(world, "orders", 1)
        publish_values(world, "orders", "a", range(20))
        subscriber = world.subscriber("saga", ["orders"])
        subscriber.keep_alive(1)
        assert values(poll_until(subscriber, 20)) == list(range(20))

    def test_rewinding_while_kept_alive_gives_the_same_records_again(self, world: World) -> None:
        create(world, "orders", 1)
        publish_values(world, "orders", "a", range(20))
        subscriber = world.subscriber("saga", ["orders"])
        records = poll_until(subscriber, 20)
        subscriber.keep_alive(0.1)
        subscriber.rewind(records[5:])
        subscriber.keep_alive(0.1)
        assert poll_until(subscriber, 15) == records[5:]

    def test_a_recreated_topic_has_another_id(self, world: World) -> None:
        create(world, "orders", 1)
        subscriber = world.subscriber("saga", ["orders"])
        old = subscriber.topic_id("orders")
        assert subscriber.topic_id("orders") == old
        world.recreate("orders", 1)
        assert world.subscriber("stock", ["orders"]).topic_id("orders") not in ("", old)

    def test_a_record_s_topic_id_is_that_of_its_poll_however_the_topic_fares_since(
        self, world: World
    ) -> None:
        create(world, "orders", 1)
        publish_values(world, "orders", "a", range(3))
        subscriber = world.subscriber("saga", ["orders"])
        poll_until(subscriber, 3)
        polled = subscriber.topic_id("orders")
        world.recreate("orders", 1)
        subscriber.keep_alive(0)
        assert subscriber.topic_id("orders") == polled
        assert world.subscriber("stock", ["orders"]).topic_id("orders") != polled

    def test_making_topics_twice_is_safe_and_tells_what_was_made(self, world: World) -> None:
        orders, payments = (TopicSpec(name, 2, 1, {}) for name in ("orders", "payments"))
        admin = world.admin()
        assert admin.create_topics([orders]) == ["orders"]
        assert admin.create_topics([orders, payments]) == ["payments"]
        assert admin.create_topics([orders, payments]) == []
        admin.check(5)


class AnyGroup:
    """What members of one group may expect of each other."""

    def test_two_members_share_the_partitions_and_the_last_takes_over_without_loss(
        self, world: World
    ) -> None:
        create(world, "orders", 4)
        keys = [str(number) for number in range(40)]
        publish_values(world, "orders", keys, range(100))
        first = world.subscriber("saga", ["orders"])
        first.commit(poll_until(first, 100))
        second = world.subscriber("saga", ["orders"])
        share(first, second, "orders", 4)
        publish_values(world, "orders", keys, range(100, 200))
        to_first, to_second = poll_all([first, second], lambda polled: sum(map(len, polled)) >= 100)
        assert sorted(values(to_first + to_second)) == list(range(100, 200))
        assert len({record.partition for record in to_first}) == 2
        first.commit(to_first)
        first.close()
        publish_values(world, "orders", keys, range(200, 300))
        assert sorted(values(poll_until(second, 100))) == list(range(200, 300))

    def test_what_a_member_no_longer_owns_is_neither_committed_nor_rewound(self, world: World) -> None:
        create(world, "orders", 2)
        keys = [str(number) for number in range(20)]
        publish_values(world, "orders", keys, range(40))
        first = world.subscriber("saga", ["orders"])
        records = poll_until(first, 40)
        assert all(first.owns(record) for record in records)
        second = world.subscriber("saga", ["orders"])
        share(first, second, "orders", 2)
        kept = [record for record in records if first.owns(record)]
        assert len({record.partition for record in kept}) == 1
        first.rewind([record for record in records if record not in kept])
        first.commit(records)
        assert first.poll(ROOMY, ROOMY, 0.2) == []
        first.close()
        second.close()
        again = poll_until(world.subscriber("saga", ["orders"]), 40 - len(kept))
        assert sorted(values(again)) == sorted(values(record for record in records if record not in kept))

    def test_a_partition_that_comes_back_comes_in_a_new_term(self, world: World) -> None:
        create(world, "orders", 2)
        publish_values(world, "orders", [str(number) for number in range(20)], range(40))
        first = world.subscriber("saga", ["orders"])
        records = poll_until(first, 40)
        second = world.subscriber("saga", ["orders"])
        share(first, second, "orders", 2)
        gone = [record for record in records if not first.owns(record)]
        second.close()
        again = poll_until(first, len(gone))
        assert sorted(values(again)) == sorted(values(gone))
        assert [first.owns(record) for record in gone] == [False] * len(gone)
        assert [first.owns(record) for record in again] == [True] * len(again)


class TestMemory(AnyBroker, AnyGroup):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        with ExitStack() as clients:
            yield MemoryWorld(clients)


class TestKafka(AnyBroker, AnyGroup):
    @pytest.fixture
    def world(self, kafka: Kafka) -> Iterator[World]:
        with ExitStack() as clients:
            yield KafkaWorld(clients, kafka.bootstrap_servers, "consumer")


class TestKafkaWithTheClassicProtocol(AnyGroup):
    @pytest.fixture
    def world(self, kafka: Kafka) -> Iterator[World]:
        with ExitStack() as clients:
            yield KafkaWorld(clients, kafka.bootstrap_servers, "classic")


def share(first: Subscriber, second: Subscriber, topic: str, partitions: int) -> None:
    """Poll both members, dropping what comes, until each owns half of the partitions."""

    def owned(member: Subscriber) -> int:
        member.poll(ROOMY, ROOMY, 0.05)
        return sum(
            member.owns(Record(topic, number, 0, None, None, term=term))
            for number in range(partitions)
            for term in range(1, 20)
        )

    eventually(lambda: (owned(first), owned(second)) == (partitions // 2, partitions // 2))
