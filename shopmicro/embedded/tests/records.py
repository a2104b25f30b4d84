"""Reading a topic, for the tests of both brokers."""

import uuid

from confluent_kafka import Consumer

from tests.servers import eventually


def values(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    """The first values of the topic, read by a new group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def enough() -> bool:
        found.extend(record.value() for record in consumer.consume(count, 0.2) if not record.error())
        return len(found) >= count

    try:
        eventually(enough)
    finally:
        consumer.close()
    return found
