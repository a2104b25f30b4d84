"""The shop from outside: its HTTP API, its tables and its topics."""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from shopmicro.embedded.errors import EmbeddedError

LIMIT = 30.0
DISK_IS_FULL = "the disk that holds the project's folder is full: free some space, and start again"

# A row's xmin is the transaction that wrote it, xmax here the one that last locked it.
ORDER = """
SELECT status, reason, total_cents, currency, xmin::text, xmax::text FROM orders WHERE id = %s
"""
PROCESSED = """
SELECT event_id, xmin::text FROM processed_events WHERE event_id = ANY(%s) ORDER BY processed_at
"""
OUTBOX = """
SELECT type, event_id, topic FROM outbox WHERE aggregate_id = %s ORDER BY id
"""
UNPUBLISHED = """
SELECT count(*) FROM outbox WHERE aggregate_id = %s AND published_at IS NULL
"""


@dataclass(frozen=True)
class OrderRow:
    """An order in the database, with the transaction that wrote it and the one that last locked it."""

    status: str
    reason: str
    total_cents: int
    currency: str
    written_by: str
    locked_by: str


@dataclass(frozen=True)
class Tables:
    """What the three tables hold of an order; `processed` maps event ids to their rows' transactions."""

    order: OrderRow
    processed: dict[str, str]
    outbox: list[tuple[str, str, str]]


class Client:
    """Whoever uses the shop: over HTTP, with psql, with a console producer."""

    def __init__(
        self, *, port: int, database_url: str, bootstrap_servers: str, check: Callable[[], None]
    ) -> None:
        """`check` is called again and again while something is waited for, and raises if that is in vain."""
        self._port = port
        self._check = check
        self._bootstrap_servers = bootstrap_servers
        self._database = psycopg.connect(database_url, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send JSON; the status and the JSON answered."""
        # Not urllib: it would ask the proxy that the environment may name.
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def tables(self, order_id: str, *event_ids: str) -> Tables:
        """What is in the tables of the order and of those events."""
        order = self._database.execute(ORDER, [order_id]).fetchone()
        if order is None:
            raise EmbeddedError(f"there is no row in orders for {order_id}")
        return Tables(
            OrderRow(*order),
            dict(self._database.execute(PROCESSED, [list(event_ids)]).fetchall()),
            self._database.execute(OUTBOX, [order_id]).fetchall(),
        )

    def all_published(self, order_id: str) -> bool:
        """Whether the broker has acknowledged every outbox row of the order."""
        return self._database.execute(UNPUBLISHED, [order_id]).fetchone() == (0,)

    def produce(self, topic: str, event: object) -> TopicPartition:
        """Send an event without key or headers; where the broker put it."""
        reports: list[tuple[Any, Any]] = []
        producer = Producer({"bootstrap.servers": self._bootstrap_servers, "log_level": 0})
        producer.produce(
            topic, json.dumps(event).encode(), on_delivery=lambda *report: reports.append(report)
        )
        producer.flush(LIMIT)
        for error, message in reports:
            if error is None:
                return TopicPartition(message.topic(), message.partition(), message.offset())
        raise EmbeddedError(f"the broker did not take the event: {reports or 'no answer'}")

    def wait_until_consumed(self, group: str, record: TopicPartition) -> None:
        """Wait until the group has committed its offset past the record."""
        options = {"bootstrap.servers": self._bootstrap_servers, "group.id": group, "log_level": 0}
        asker = Consumer(options)
        with contextlib.closing(asker):
            place = TopicPartition(record.topic, record.partition)
            self.wait(
                lambda: asker.committed([place], timeout=LIMIT)[0].offset > record.offset,
                f"{group} has not committed the offset of the event",
            )

    def wait(self, condition: Callable[[], object], otherwise: str) -> None:
        """Wait for the condition, looking every hundredth of a second."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            self._check()
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{otherwise} in {LIMIT:.0f} s")
            time.sleep(0.01)


@contextlib.contextmanager
def said_plainly() -> Iterator[None]:
    """Turn what goes wrong between the demo and its processes into an EmbeddedError."""
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise EmbeddedError(DISK_IS_FULL) from error
    except psycopg.Error as error:
        raise EmbeddedError(f"the database refused: {error}") from error
    except KafkaException as error:
        raise EmbeddedError(f"the broker refused: {error.args[0].str()}") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError, json.JSONDecodeError) as error:
        raise EmbeddedError(f"the web process did not answer as it should: {error!r}") from error
