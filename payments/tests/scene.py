"""A shop in which only payments work: the topic ``orders``, a gateway that counts, consumers on demand."""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Barrier, BrokenBarrierError, Lock
from typing import Any
from uuid import uuid4

from payments.gateway import Charge, Gateway, GatewayUnavailable, LimitGateway
from payments.handlers import payment_processor
from payments.models import Payment
from shopmicro.messaging.broker import TopicSpec
from shopmicro.messaging.consumer import Consumer, Limits
from shopmicro.messaging.dead_letters import RetryPolicy
from shopmicro.messaging.memory import MemoryBroker
from shopmicro.messaging.models import DeadLetter, OutboxEvent
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop

NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)


@dataclass
class CountingGateway:
    """A gateway as the port wants it: one charge a key, and a memory of how often it was asked.

    Orders in ``away`` get no answer; those in ``lost`` are charged and the answer is lost on its
    way back. With ``meet`` each call waits for another one to be under way.
    """

    limit_cents: int = 100_000
    asked: Counter[str] = field(default_factory=Counter)
    charges: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    meet: Barrier | None = None
    lock: Lock = field(default_factory=Lock)

    def charge(self, *, idempotency_key: str, order_id: str, amount_cents: int, currency: str) -> Charge:
        if self.meet:
            with suppress(BrokenBarrierError):
                self.meet.wait(5)
        with self.lock:
            self.asked[idempotency_key] += 1
            if order_id in self.away:
                raise GatewayUnavailable("no answer within 5 s")
            facts = (order_id, amount_cents, currency)
            assert self.charges.setdefault(idempotency_key, facts) == facts
            if order_id in self.lost:
                raise GatewayUnavailable("the connection was reset")
        return LimitGateway(self.limit_cents).charge(
            idempotency_key=idempotency_key, order_id=order_id, amount_cents=amount_cents, currency=currency
        )


@dataclass
class Scene:
    gateway: Gateway = field(default_factory=CountingGateway)
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    now: datetime = NOW
    stop: Stop = field(default_factory=Stop)
    consumers: list[Consumer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker.admin().create_topics([TopicSpec("orders", 2, 1, {})])

    def consumer(self, records: int = 500) -> Consumer:
        group = payment_processor(lambda: self.gateway, lambda: self.now)
        consumer = Consumer(
            group,
            lambda: self.broker.subscriber(group.name, group.topics),
            limits=Limits(records, poll_seconds=0, concurrency=4),
            policy=RetryPolicy(3, 5, Backoff(10, 10)),
            outage=Backoff(0.01, 0.01),
            now=lambda: self.now,
            clock=lambda: self.now.timestamp(),
        )
        self.consumers.append(consumer)
        return consumer

    def produce(self, *values: bytes, key: str | None = "same") -> None:
        publisher = self.broker.publisher()
        for value in values:
            publisher.send("orders", key, value, [], lambda delivery: None)

    def consume(self, *values: bytes, records: int = 500) -> None:
        """Produce these and let one consumer handle all that it finds."""
        self.produce(*values)
        consumer = self.consumer(records)
        while consumer.step(self.stop):
            pass
        consumer.close()

    def retry(self) -> None:
        """Come back when all that is to be tried again is due."""
        self.now += timedelta(seconds=60)
        consumer = self.consumer()
        consumer.step(self.stop)
        consumer.close()


def new_order() -> str:
    return str(uuid4())


def created(order_id: str, amount_cents: Any = 2598, **changed: Any) -> bytes:
    """An ``order.created`` as it lies on the topic; ``changed`` are members of the envelope."""
    payload = {"order_id": order_id, "customer_id": "cust-1", "amount_cents": amount_cents, "items": []}
    members = {
        "id": order_id,
        "type": "order.created",
        "aggregate_id": order_id,
        "payload": payload,
        "occurred_at": "2026-07-14T09:15:40Z",
    }
    return json.dumps(members | changed).encode()


def payments() -> list[tuple[str, int, str, str]]:
    rows = Payment.objects.order_by("id")
    return [(str(row.order_id), row.amount_cents, row.status, row.reason) for row in rows]


def told() -> list[tuple[str, str, dict[str, Any]]]:
    rows = OutboxEvent.objects.filter(topic="payments").order_by("id")
    return [(row.event_id, row.type, json.loads(row.payload)["payload"]) for row in rows]


def letters() -> list[tuple[str, str, str]]:
    rows = DeadLetter.objects.filter(consumer_group="payment-processor").order_by("id")
    return [(row.state, row.error, row.reason) for row in rows]


def approved(order_id: str, amount_cents: int = 2598) -> tuple[str, str, dict[str, Any]]:
    """What is told of an order whose payment succeeded."""
    payload = {"order_id": order_id, "amount_cents": amount_cents}
    return f"{order_id}:payment", "payment.succeeded", payload
