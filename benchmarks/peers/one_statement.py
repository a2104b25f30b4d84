"""The limit: payment results applied by one hand-written SQL statement a batch, with no framework.

DATABASE_URL, KAFKA_BOOTSTRAP_SERVERS, TOPIC, GROUP and BATCH (in records) come from the environment.
"""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaException, Message

APPLY = Path(__file__).with_suffix(".sql").read_text()
FILL_SECONDS = 0.1


class Peer:
    """Consumes until SIGTERM: a batch, its statement, its offsets."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._batch = int(environment["BATCH"])
        self._database = psycopg.connect(environment["DATABASE_URL"], autocommit=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": environment["KAFKA_BOOTSTRAP_SERVERS"],
                "group.id": environment["GROUP"],
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([environment["TOPIC"]])
        self._stopped = False

    def stop(self, signum: int, frame: FrameType | None) -> None:
        """End after the batch at hand."""
        self._stopped = True

    def run(self) -> None:
        """Apply batches until stopped."""
        while not self._stopped:
            messages = self._consumer.consume(self._batch, FILL_SECONDS)
            if messages:
                self._database.execute(APPLY, parameters(messages), prepare=True, binary=True)
                self._consumer.commit(asynchronous=True)
        self._consumer.close()
        self._database.close()


def parameters(messages: Sequence[Message]) -> dict[str, list[Any]]:
    """Give what the statement needs of each event, in columns."""
    events = [json.loads(value_of(message)) for message in messages]
    payloads = [event["payload"] for event in events]
    return {
        "ids": [event["id"] for event in events],
        "orders": [payload["order_id"] for payload in payloads],
        "successes": [event["type"] == "payment.succeeded" for event in events],
        "amounts": [payload["amount_cents"] for payload in payloads],
        "reasons": [payload.get("reason", "") for payload in payloads],
    }


def value_of(message: Message) -> bytes:
    """Give a record's value, or raise what the client reports in its place."""
    if error := message.error():
        raise KafkaException(error)
    value = message.value()
    assert value is not None
    return value


if __name__ == "__main__":
    peer = Peer(dict(os.environ))
    signal.signal(signal.SIGTERM, peer.stop)
    peer.run()
