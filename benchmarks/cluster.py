"""The servers that all contenders run on: one PostgreSQL with fsync on, one Kafka broker."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql

from shopmicro.embedded.kafka import KafkaServer
from shopmicro.embedded.postgres import Postgres
from shopmicro.embedded.processes import wait_until

# The members of a classic group find each other in one go, so that none is measured while it joins, and
# a commit is written at once: by default each waits 5 ms for others, which would slow the chapter sevenfold.
BROKER = {"group.initial.rebalance.delay.ms": "2000", "group.coordinator.append.linger.ms": "0"}
SECONDS = 30.0
STARTING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
# What goes wrong is raised; lines about brokers that come and go would only stand between the figures.
QUIET = {"log_level": 0}


class Cluster:
    """A database a contender, copied from a template; topics and groups, and how far a group has come."""

    def __init__(self, postgres: Postgres, kafka: KafkaServer) -> None:
        self._postgres = postgres
        self.bootstrap_servers = kafka.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})

    @classmethod
    @contextlib.contextmanager
    def started(cls, directory: Path) -> Iterator["Cluster"]:
        """Start both servers, with their data in the directory; stop them at the end."""
        with (
            Postgres(directory / "postgres", durable=True) as postgres,
            KafkaServer(directory / "kafka", settings=BROKER) as kafka,
        ):
            yield cls(postgres, kafka)

    # --- PostgreSQL -----------------------------------------------------------------------------

    def url(self, database: str) -> str:
        """Give the address of a database, with user and password."""
        return self._postgres.url(database)

    def create_database(self, name: str) -> None:
        """Make an empty database."""
        self._postgres.create_database(name)

    @contextlib.contextmanager
    def copied(self, template: str, name: str) -> Iterator[str]:
        """Give the address of a copy of a database that nobody is connected to; it is dropped at the end.

        A checkpoint goes before, so that no contender pays for what the one before it wrote.
        """
        copy, names = sql.Identifier(name), (sql.Identifier(name), sql.Identifier(template))
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
            connection.execute("CHECKPOINT")
            try:
                yield self.url(name)
            finally:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(copy))

    def server_version(self) -> str:
        """Give PostgreSQL's version."""
        with psycopg.connect(self.url("postgres")) as connection:
            return connection.info.parameter_status("server_version") or "unknown"

    # --- Kafka ----------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic as the product's own command does: the broker's time, one replica."""
        config = {"message.timestamp.type": "LogAppendTime"}
        topic = NewTopic(name, partitions, 1, config=config)
        self._admin.create_topics([topic])[name].result(SECONDS)

    @contextlib.contextmanager
    def progress(self, group: str, topic: str) -> Iterator["Progress"]:
        """Watch how far a group is with a topic, without joining it."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": group, **QUIET})
        try:
            yield Progress(consumer, topic)
        finally:
            consumer.close()

    def forget(self, group: str) -> None:
        """Delete a group whose members have left."""
        self._admin.delete_consumer_groups([group])[group].result(SECONDS)


class Progress:
    """How far a group is with a topic, as the broker knows it."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        found = consumer.list_topics(topic, timeout=SECONDS).topics[topic]
        self._partitions = [TopicPartition(topic, partition) for partition in found.partitions]

    def ends(self) -> list[int]:
        """Give the offset after the last record of each partition."""
        bounds = [self._consumer.get_watermark_offsets(each, timeout=SECONDS) for each in self._partitions]
        return [bound[1] for bound in bounds if bound is not None]

    def committed(self) -> list[int]:
        """Give the offset that the group has committed in each partition; negative where it has none."""
        otherwise = f"Kafka's coordinator of groups is not up in {SECONDS:.0f} s"
        return wait_until(self._committed, timeout=SECONDS, otherwise=otherwise)

    def _committed(self) -> list[int]:
        """Ask once; gives nothing while a broker that has just started looks for its coordinator."""
        try:
            found = self._consumer.committed(self._partitions, timeout=SECONDS)
        except KafkaException as error:
            if error.args[0].code() in STARTING:
                return []
            raise
        return [each.offset for each in found]
