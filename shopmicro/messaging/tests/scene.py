"""A consumer on the real database, with the broker in memory and handlers that fail to order."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from shopmicro.messaging.broker import TopicSpec
from shopmicro.messaging.consumer import Consumer, Limits
from shopmicro.messaging.dead_letters import RetryPolicy
from shopmicro.messaging.event import Event
from shopmicro.messaging.handler import APPLIED, Group, Outcome
from shopmicro.messaging.memory import MemoryBroker
from shopmicro.messaging.models import DeadLetter, OutboxEvent
from shopmicro.messaging.outbox import publish
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop

ORDER = "0198c0de-0000-7000-8000-00000000000a"
NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)


@dataclass
class Clock:
    """A time that moves when told to."""

    now: datetime = NOW
    until: Callable[[], bool] | None = None
    stop: Stop | None = None

    def monotonic(self) -> float:
        if self.until is not None and self.stop is not None:
            self.forward(0.01)
            assert self.now < NOW + timedelta(seconds=600)
            if self.until():
                self.stop.request()
        return self.now.timestamp()

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Scene:
    """A topic, a group whose handler tells every message in the outbox, and one consumer of it."""

    broker: MemoryBroker = field(default_factory=MemoryBroker)
    clock: Clock = field(default_factory=Clock)
    stop: Stop = field(default_factory=Stop)
    limits: Limits = field(default_factory=lambda: Limits(poll_seconds=0))
    consumers: list[Consumer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker.admin().create_topics([TopicSpec("things", 1, 1, {})])
        self.broker.subscriber("group", ("things",))

    def group(self, **steps: Any) -> Group:
        return Group(
            "group", ("things",), {"thing.happened": lambda event: event}, **{"apply": tell, **steps}
        )

    def consumer(self, group: Group | None = None) -> Consumer:
        group = group or self.group()
        self.consumers.append(
            Consumer(
                group,
                lambda: self.broker.subscriber(group.name, group.topics),
                limits=self.limits,
                policy=RetryPolicy(3, 5, Backoff(10, 10)),
                outage=Backoff(0.01, 0.01),
                now=lambda: self.clock.now,
                clock=self.clock.monotonic,
            )
        )
        return self.consumers[-1]

    def produce(self, *values: bytes | None) -> None:
        publisher = self.broker.publisher()
        for value in values:
            publisher.send("things", None, value, [("h", b"\xff")], lambda delivery: None)

    def committed(self) -> int | None:
        return self.broker.committed("group", "things", 0)


def thing(name: str, **payload: Any) -> bytes:
    members = {"id": name, "type": "thing.happened", "aggregate_id": ORDER}
    return json.dumps({**members, "payload": payload, "occurred_at": "2026-07-14T09:15:40Z"}).encode()


def tell(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
    """Apply by telling each event; the payload's ``sql`` is run first, ``raise`` is raised."""
    for event in events:
        if "sql" in event.payload:
            with connection.cursor() as cursor:
                cursor.execute(event.payload["sql"])
        if "raise" in event.payload:
            raise RuntimeError(event.payload["raise"])
        publish("told", [event._replace(id=f"{event.id}:told")])
    return [APPLIED] * len(events)


def told() -> list[str]:
    return [row.event_id.removesuffix(":told") for row in OutboxEvent.objects.order_by("id")]


def letters() -> list[tuple[int, str, str, str]]:
    rows = DeadLetter.objects.order_by("id")
    return [(letter.offset, letter.state, letter.error, letter.event_id) for letter in rows]


def run_until(scene: Scene, consumer: Consumer, condition: Callable[[], bool]) -> None:
    """Run the consumer's loop, whose clock moves as it is read, until a condition holds."""
    scene.clock.until = condition
    scene.clock.stop = scene.stop
    consumer.run(scene.stop)


def in_other_thread(work: Callable[[], Any]) -> Any:
    """Run something on a database session of its own, and give what it returned."""
    answers: list[Any] = []

    def run() -> None:
        answers.append(work())
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    return answers[0]
