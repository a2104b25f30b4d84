"""What is there before a contender starts: pending orders, and a payment result for each on a topic."""

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from confluent_kafka import KafkaError, Message, Producer
from uuid_utils.compat import uuid7

from benchmarks.cluster import QUIET
from payments.events import TOPIC, payment_succeeded
from shopmicro.embedded.errors import EmbeddedError
from shopmicro.messaging.event import Event, encode, format_time

ROOT = Path(__file__).resolve().parent.parent
AMOUNT_CENTS = 2598
FLUSH_SECONDS = 60
COPY = "COPY orders (id, customer_id, status, total_cents, currency) FROM STDIN"


def product_environment(database_url: str, bootstrap_servers: str, prefix: str = "") -> dict[str, str]:
    """Give the environment of a process of the product; what else is set, such as SAGA_BATCH, holds."""
    return {
        **os.environ,
        "SECRET_KEY": secrets.token_hex(32),
        "DATABASE_URL": database_url,
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
        "KAFKA_PREFIX": prefix,
    }


def migrate(environment: Mapping[str, str]) -> None:
    """Make the product's tables by its own migrations. Raises EmbeddedError."""
    command = [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EmbeddedError(f"manage.py migrate failed: {done.stderr.strip()}")


def load_orders(database_url: str, count: int) -> list[str]:
    """Write pending orders and leave their table as it is in an old database; gives their ids."""
    ids = [str(uuid7()) for _ in range(count)]
    with psycopg.connect(database_url, autocommit=True) as connection:
        with connection.cursor() as cursor, cursor.copy(COPY) as copy:
            for number, order_id in enumerate(ids):
                copy.write_row((order_id, f"cust-{number % 1000}", "pending", AMOUNT_CENTS, "EUR"))
        connection.execute("VACUUM (ANALYZE)")
    return ids


def preload(bootstrap_servers: str, topic: str, order_ids: Sequence[str]) -> None:
    """Send one success for each order, keyed by it, as the product's relay would. Raises EmbeddedError."""
    failures: list[KafkaError] = []

    def hear(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            **QUIET,
            "queue.buffering.max.messages": len(order_ids) + 1,
        }
    )
    for order_id in order_ids:
        event = payment_succeeded(
            cause_id=order_id, order_id=order_id, amount_cents=AMOUNT_CENTS, occurred_at=datetime.now(UTC)
        )
        producer.produce(topic, encode(event), order_id, headers=headers_of(event), on_delivery=hear)
        producer.poll(0)
    if producer.flush(FLUSH_SECONDS) or failures:
        raise EmbeddedError(f"topic {topic} could not be filled: {failures[:1] or 'the broker is too slow'}")


def headers_of(event: Event) -> list[tuple[str, str | bytes | None]]:
    """Give the CloudEvents headers that the contract asks for."""
    return [
        ("ce_id", event.id),
        ("ce_type", event.type),
        ("ce_source", f"/shopmicro/{TOPIC}"),
        ("ce_specversion", "1.0"),
        ("ce_time", format_time(event.occurred_at)),
        ("content-type", "application/json"),
    ]
