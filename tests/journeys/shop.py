"""The whole system as processes of its own, on the run's PostgreSQL and Kafka, and ways to look at it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from shopmicro.embedded.ports import free_port
from shopmicro.embedded.processes import Child
from tests.servers import eventually

ROOT = Path(__file__).resolve().parents[2]
TEA = "8f14e45f-ceea-4c9d-b2a5-0c1e3f4a9b21"
WORKERS = ("runrelay", "runpayments", "runsaga", "runnotifications")
# What a broker answers that has not settled yet which of its groups it looks after.
UNSETTLED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
OCCURRED_AT = "2026-07-14T09:15:40Z"


class Shop:
    """A shop on a database and topics of its own. Workers are named by their commands."""

    def __init__(self, directory: Path, database_url: str, bootstrap_servers: str, prefix: str) -> None:
        self.directory = directory
        self.prefix = prefix
        self.port = free_port()
        self.sql = psycopg.connect(database_url, autocommit=True)
        self.environment = {
            **os.environ,
            "DATABASE_URL": database_url,
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
            "KAFKA_PREFIX": prefix,
            "EMAIL_URL": "consolemail://",
            "RETRY_DELAY": "0.5",
            "RETRY_ATTEMPTS": "8",
            "RETRY_MAX_DELAY": "4",
        }
        self._bootstrap_servers = bootstrap_servers
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50})
        self._running: dict[str, Child] = {}

    # --- Processes ------------------------------------------------------------------------------

    def manage(self, *arguments: str) -> None:
        """Run a command to its good end."""
        code, said = self.try_command(*arguments)
        assert code == 0, said

    def try_command(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run a command that may fail; gives its status and what it said of it."""
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        done = subprocess.run(
            command,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stderr

    def start(self, *names: str, **environment: str) -> None:
        """Start workers, ``web`` or any command, and wait until they are at work.

        A second one of a name is called ``name#2``.
        """
        starts = {name: self._starts(name) for name in names}
        for name in names:
            command = (
                self._web() if name == "web" else [sys.executable, ROOT / "manage.py", name.split("#")[0]]
            )
            self._running[name] = Child(command, log=self._log(name), env={**self.environment, **environment})
        for name in names:
            eventually(lambda name=name: self._starts(name) > starts[name])

    def _starts(self, name: str) -> int:
        """Count how often a process has said that it is at work."""
        log = self._log(name)
        text = log.read_text() if log.exists() else ""
        return text.count("Listening at:") if name == "web" else text.count(" starts")

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def stop(self, *names: str) -> None:
        """Ask processes to end, and see that they end well."""
        children = [self._running.pop(name) for name in names]
        with ThreadPoolExecutor(len(children) or 1) as stoppers:
            codes = list(stoppers.map(Child.stop, children))
        for name, code in zip(names, codes, strict=True):
            assert code == 0, f"{name} exited with {code}:\n{self.log(name)}"

    def restart(self, *names: str, **environment: str) -> None:
        """Stop those that run, and start all of them."""
        self.stop(*(name for name in names if name in self._running))
        self.start(*names, **environment)

    def kill(self, name: str) -> None:
        """End a process with no warning."""
        self._running.pop(name).kill()

    def ask_to_stop(self, name: str) -> None:
        """Send SIGTERM, and go on at once."""
        self._running[name].send(signal.SIGTERM)

    def send(self, name: str, signum: signal.Signals) -> None:
        """Send a process a signal."""
        self._running[name].send(signum)

    def wait(self, name: str) -> int:
        """Wait until a process has ended by itself; gives its status, 128 + n for signal n."""
        child = self._running.pop(name)
        with child:
            return child.wait(60)

    def is_running(self, name: str) -> bool:
        return name in self._running and self._running[name].poll() is None

    def log(self, name: str) -> str:
        return self._log(name).read_text()

    def close(self) -> None:
        self.stop(*list(self._running))
        self.sql.close()

    def _web(self) -> list[str | Path]:
        gunicorn = Path(sys.executable).with_name("gunicorn")
        options = ["--bind", f"127.0.0.1:{self.port}", "--workers", "2", "--no-control-socket"]
        return [gunicorn, "shopmicro.wsgi", "--chdir", ROOT, *options]

    # --- HTTP -----------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send JSON; gives the status and the JSON answered."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.load(answer)

    def place(self, quantity: int = 2, **members: Any) -> str:
        """Place an order over HTTP for ``quantity`` of the contract's product; gives its id."""
        body = {"customer_id": "cust-1", "items": [{"product_id": TEA, "quantity": quantity}], **members}
        status, order = self.request("POST", "/v1/orders", body)
        assert status == 201, order
        return str(order["id"])

    # --- The database ---------------------------------------------------------------------------

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.sql.execute(query, parameters or None).fetchall()

    def insert_orders(self, count: int, total_cents: int = 2598) -> list[str]:
        """Write pending orders straight into the database, as if nobody had told of them yet."""
        query = """
            INSERT INTO orders (id, customer_id, status, total_cents, currency)
            SELECT gen_random_uuid(), 'cust-1', 'pending', %s, 'EUR' FROM generate_series(1, %s)
            RETURNING id::text"""
        return [row[0] for row in self.rows(query, total_cents, count)]

    def status(self, order_id: str) -> str:
        """Give an order's status, and its reason if it has one."""
        ((status, reason),) = self.rows("SELECT status, reason FROM orders WHERE id = %s", order_id)
        return f"{status}: {reason}" if reason else str(status)

    def outbox(self, order_id: str) -> list[str]:
        """Give the event ids told of an order on the topic ``orders``, but its creation."""
        query = """
            SELECT event_id FROM outbox
            WHERE aggregate_id = %s AND topic = 'orders' AND type <> 'order.created' ORDER BY id"""
        return [row[0] for row in self.rows(query, order_id)]

    def processed(self, *event_ids: str) -> list[str]:
        """Give those of the event ids that the saga has on record."""
        query = "SELECT event_id FROM processed_events WHERE event_id = ANY(%s) ORDER BY 1"
        return [row[0] for row in self.rows(query, list(event_ids))]

    def letters(self, group: str, aggregate_id: str) -> list[tuple[str, str]]:
        """Give state and error of an aggregate's dead letters of a group."""
        query = """
            SELECT state, error FROM dead_letters
            WHERE consumer_group = %s AND aggregate_id = %s ORDER BY id"""
        return self.rows(query, group, aggregate_id)

    def is_resolved(self, *order_ids: str) -> bool:
        """Say whether none of these orders is pending any more."""
        query = "SELECT count(*) FROM orders WHERE id = ANY(%s::uuid[]) AND status <> 'pending'"
        return self.rows(query, list(order_ids)) == [(len(order_ids),)]

    # --- Kafka ----------------------------------------------------------------------------------

    def produce(
        self, topic: str, values: Iterable[bytes | None], key: bytes | None = None, partition: int = -1
    ) -> None:
        """Send record values, in this order, and wait until the broker has them."""
        failures: list[Any] = []
        for value in values:
            self._producer.produce(
                self.prefix + topic,
                value,
                key,
                partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert self._producer.flush(30) == 0
        assert failures == []

    def consume(self, topic: str) -> list[dict[str, Any]]:
        """Give all events on a topic, those of each partition in order."""
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap_servers, "group.id": f"{self.prefix}reader"}
        )
        try:
            found = consumer.list_topics(self.prefix + topic, timeout=10).topics[self.prefix + topic]
            starts = [
                TopicPartition(self.prefix + topic, number, OFFSET_BEGINNING) for number in found.partitions
            ]
            total = sum(high - low for low, high in map(consumer.get_watermark_offsets, starts))
            consumer.assign(starts)
            return [json.loads(message.value()) for message in consumer.consume(total, 30)]
        finally:
            consumer.close()

    def lag(self, group: str, topic: str) -> int:
        """Give how many records the group has not committed; of a group new to the topic all."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap_servers, "group.id": self.prefix + group})
        try:
            found = consumer.list_topics(self.prefix + topic, timeout=10).topics[self.prefix + topic]
            partitions = [TopicPartition(self.prefix + topic, number) for number in found.partitions]
            lag = 0
            for committed in consumer.committed(partitions, timeout=10):
                low, high = consumer.get_watermark_offsets(committed, timeout=10)
                lag += high - max(low, committed.offset)
            return lag
        finally:
            consumer.close()

    def wait_for_no_lag(self, group: str, topic: str, timeout: float = 60) -> None:
        """Wait until the group has committed all there is."""
        eventually(lambda: self._has_no_lag(group, topic), timeout)

    def _has_no_lag(self, group: str, topic: str) -> bool:
        try:
            return self.lag(group, topic) == 0
        except KafkaException as error:
            if error.args[0].code() not in UNSETTLED:
                raise
            return False


def payment(
    order_id: str,
    event_id: str | None = None,
    *,
    succeeded: bool = True,
    amount_cents: int = 2598,
    occurred_at: str = OCCURRED_AT,
) -> bytes:
    """Give the value of a payment result as a person would type it into a console producer."""
    payload: dict[str, Any] = {"order_id": order_id, "amount_cents": amount_cents}
    if not succeeded:
        payload["reason"] = "amount exceeds limit"
    return json.dumps(
        {
            "id": event_id or f"{order_id}:payment",
            "type": "payment.succeeded" if succeeded else "payment.failed",
            "aggregate_id": order_id,
            "payload": payload,
            "occurred_at": occurred_at,
        }
    ).encode()


def payments(order_ids: Sequence[str]) -> list[bytes]:
    """Give one success for each order."""
    return [payment(order_id) for order_id in order_ids]
