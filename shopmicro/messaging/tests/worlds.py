"""The two brokers as the broker tests see them, and small steps that all of those tests take."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Protocol

from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient

from shopmicro.messaging.broker import (
    Admin,
    Delivery,
    Headers,
    Publisher,
    Record,
    Subscriber,
    TopicSpec,
)
from shopmicro.messaging.kafka import KafkaAdmin, KafkaConfig, KafkaPublisher, KafkaSubscriber
from shopmicro.messaging.memory import MemoryBroker
from tests.servers import eventually

ROOMY = 1_000_000


class World(Protocol):
    """A broker with nothing on it, and the clients that a test makes of it."""

    def publisher(self) -> Publisher: ...

    def subscriber(self, group: str, topics: Sequence[str]) -> Subscriber: ...

    def admin(self) -> Admin: ...

    def recreate(self, topic: str, partitions: int) -> None:
        """Delete a topic and make it again."""


class MemoryWorld:
    def __init__(self, clients: ExitStack) -> None:
        self.broker = MemoryBroker()
        self.clients = clients

    def publisher(self) -> Publisher:
        return self.broker.publisher()

    def subscriber(self, group: str, topics: Sequence[str]) -> Subscriber:
        return self.clients.enter_context(closing(self.broker.subscriber(group, topics)))

    def admin(self) -> Admin:
        return self.broker.admin()

    def recreate(self, topic: str, partitions: int) -> None:
        self.broker.recreate(topic)


class KafkaWorld:
    """Names of its own on a shared broker; ``protocol`` is that of the groups."""

    def __init__(self, clients: ExitStack, bootstrap_servers: str, protocol: str = "consumer") -> None:
        prefix = f"test-{secrets.token_hex(4)}-"
        self.config = KafkaConfig(bootstrap_servers, prefix, protocol)
        self.clients = clients
        self.client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def publisher(self) -> Publisher:
        publisher = KafkaPublisher(self.config)
        self.clients.callback(partial(publisher.close, 0))
        return publisher

    def subscriber(self, group: str, topics: Sequence[str]) -> Subscriber:
        return self.clients.enter_context(closing(KafkaSubscriber(self.config, group, topics)))

    def admin(self) -> Admin:
        return KafkaAdmin(self.config)

    def recreate(self, topic: str, partitions: int) -> None:
        name = self.config.on_wire(topic)
        self.client.delete_topics([name])[name].result(30)
        eventually(lambda: name not in self.client.list_topics(timeout=5).topics)
        create(self, topic, partitions)

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Delete a partition's records before an offset, as retention does."""
        target = WirePartition(self.config.on_wire(topic), partition, before)
        for answer in self.client.delete_records([target]).values():
            answer.result(30)


def create(world: World, topic: str, partitions: int) -> None:
    """Make a topic; records of it may be up to the default of 1 MB."""
    spec = TopicSpec(topic, partitions, 1, {"message.timestamp.type": "LogAppendTime"})
    assert world.admin().create_topics([spec]) == [topic]


def publish(
    publisher: Publisher,
    topic: str,
    records: Iterable[tuple[str | None, bytes | None]],
    headers: Headers = (),
) -> list[Delivery]:
    """Send records, wait for all reports, and give them in the order of the records."""
    records = list(records)
    reports: dict[int, Delivery] = {}
    for number, (key, value) in enumerate(records):
        publisher.send(topic, key, value, headers, partial(reports.__setitem__, number))

    def all_reported() -> bool:
        publisher.serve(0.1)
        return len(reports) == len(records)

    eventually(all_reported)
    return [reports[number] for number in range(len(records))]


def publish_values(world: World, topic: str, keys: Sequence[str], values: Iterable[int]) -> None:
    """Send the values as text, their keys taking turns."""
    values = list(values)
    reports = publish(
        world.publisher(), topic, [(keys[value % len(keys)], str(value).encode()) for value in values]
    )
    assert [report.error for report in reports] == [None] * len(values)


def poll_until(subscriber: Subscriber, count: int) -> list[Record]:
    """Poll until there are ``count`` records or more."""
    records: list[Record] = []

    def are_there() -> bool:
        records.extend(subscriber.poll(ROOMY, ROOMY, 0.1))
        return len(records) >= count

    eventually(are_there)
    return records


def poll_all(
    members: Sequence[Subscriber], is_enough: Callable[[list[list[Record]]], bool]
) -> list[list[Record]]:
    """Poll several members in turn until what each has got is enough."""
    polled: list[list[Record]] = [[] for _ in members]

    def is_done() -> bool:
        for records, member in zip(polled, members, strict=True):
            records.extend(member.poll(ROOMY, ROOMY, 0.05))
        return is_enough(polled)

    eventually(is_done)
    return polled


def values(records: Iterable[Record]) -> list[int]:
    """Give the records' values as numbers."""
    return [int(record.value or b"") for record in records]
