"""How a client is told of the cluster, and the names that differ on the wire."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import OFFSET_INVALID
from confluent_kafka import TopicPartition as WirePartition
from django.conf import settings

from shopmicro.messaging.broker import TopicPartition
from shopmicro.messaging.kafka.noise import client_logger

_COMMON: dict[str, Any] = {
    "client.id": "shopmicro",
    "socket.keepalive.enable": True,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 5_000,
    "log.connection.close": False,
}
_ALWAYS: dict[str, Any] = {"allow.auto.create.topics": False}


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Which cluster to speak to, and as whom.

    ``options`` are further options of librdkafka, such as SASL and TLS; they win over the
    defaults here but not over what correctness rests on. They may hold secrets and are never
    shown. ``prefix`` is put before the names of topics and groups on the wire, and nowhere else.
    """

    bootstrap_servers: str
    prefix: str = ""
    group_protocol: str = "consumer"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_settings(cls) -> Self:
        """Read the configuration from Django's settings."""
        return cls(
            bootstrap_servers=settings.KAFKA_BOOTSTRAP_SERVERS,
            prefix=settings.KAFKA_PREFIX,
            group_protocol=settings.KAFKA_GROUP_PROTOCOL,
            options=settings.KAFKA_OPTIONS,
        )

    def client(self, defaults: Mapping[str, Any], always: Mapping[str, Any]) -> dict[str, Any]:
        """Give the options of one client: its defaults, the operator's, what must hold."""
        return {
            **_COMMON,
            **defaults,
            **self.options,
            **_ALWAYS,
            **always,
            "bootstrap.servers": self.bootstrap_servers,
            "logger": client_logger(),
        }

    def on_wire(self, name: str) -> str:
        """Give a topic's or group's name as the cluster knows it."""
        return self.prefix + name

    def off_wire(self, name: str) -> str:
        """Give the project's own name of a topic."""
        return name.removeprefix(self.prefix)

    def partition_on_wire(
        self, source: TopicPartition, offset: int = OFFSET_INVALID, metadata: str = ""
    ) -> WirePartition:
        """Give a partition as the client knows it."""
        return WirePartition(self.on_wire(source.topic), source.partition, offset, metadata)

    def partition_off_wire(self, partition: WirePartition) -> TopicPartition:
        """Give the client's partition as the project knows it."""
        return TopicPartition(self.off_wire(partition.topic), partition.partition)
