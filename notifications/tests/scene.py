"""A shop in which only notifications work: orders, the topic ``payments``, a real SMTP server."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any
from uuid import uuid4

from aiosmtpd.controller import Controller
from django.apps import apps

from notifications.handlers import notifier
from notifications.models import Notification
from shopmicro.messaging.broker import TopicSpec
from shopmicro.messaging.consumer import Consumer, Limits
from shopmicro.messaging.dead_letters import RetryPolicy
from shopmicro.messaging.memory import MemoryBroker
from shopmicro.messaging.models import DeadLetter
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop

NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)
ADDRESS = "ann@customers.test"


@dataclass
class Mailbox:
    """Takes what an SMTP server is sent. ``answers`` are given to the next recipients, then all are taken."""

    mails: list[EmailMessage] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    data_answer: str = "250 taken"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if self.answers:
            return self.answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 known"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        mail = message_from_bytes(envelope.content, policy=policy.default)
        mail["X-Envelope-To"] = ",".join(envelope.rcpt_tos)
        self.mails.append(mail)
        return self.data_answer


@dataclass
class SmtpServer:
    """A real SMTP server on one port of this machine, up or down."""

    port: int
    running: Controller | None = None

    def start(self, handler: Any) -> None:
        self.running = Controller(handler, hostname="127.0.0.1", port=self.port)
        self.running.start()

    def stop(self) -> None:
        if self.running:
            self.running.stop()
            self.running = None


@dataclass
class Scene:
    smtp: SmtpServer
    mailbox: Mailbox = field(default_factory=Mailbox)
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    now: datetime = NOW
    stop: Stop = field(default_factory=Stop)
    consumers: list[Consumer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker.admin().create_topics([TopicSpec("payments", 2, 1, {})])

    def consumer(self, records: int = 500) -> Consumer:
        group = notifier(lambda: self.now)
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

    def consume(self, *values: bytes, records: int = 500) -> None:
        """Produce these and let one consumer handle all that it finds."""
        publisher = self.broker.publisher()
        for value in values:
            publisher.send("payments", None, value, [], lambda delivery: None)
        consumer = self.consumer(records)
        while consumer.step(self.stop):
            pass
        consumer.close()

    def retry(self, seconds: float = 60) -> None:
        """Come back when all that is to be tried again is due."""
        self.now += timedelta(seconds=seconds)
        self.consume()

    def subjects(self) -> list[str]:
        return [mail["Subject"] for mail in self.mailbox.mails]


def nobody() -> str:
    """An id that no order has."""
    return str(uuid4())


def order(
    *,
    order_id: str = "",
    email: str = ADDRESS,
    status: str = "pending",
    total_cents: int = 2598,
    currency: str = "EUR",
) -> str:
    """Place an order, as another app would."""
    facts = {"customer_id": "cust-1", "total_cents": total_cents, "currency": currency}
    model = apps.get_model("orders", "Order")
    return str(model.objects.create(id=order_id or nobody(), email=email, status=status, **facts).pk)


def resolve(order_id: str, status: str) -> None:
    apps.get_model("orders", "Order").objects.filter(pk=order_id).update(status=status)


def succeeded(order_id: str, event_id: str = "", **changed: Any) -> bytes:
    return _result(order_id, event_id, "payment.succeeded", changed)


def failed(order_id: str, event_id: str = "", reason: Any = "amount exceeds limit", **changed: Any) -> bytes:
    return _result(order_id, event_id, "payment.failed", {"reason": reason} | changed)


def _result(order_id: str, event_id: str, kind: str, changed: dict[str, Any]) -> bytes:
    occurred_at = changed.pop("occurred_at", "2026-07-14T09:15:30Z")
    members = {
        "id": event_id or f"{order_id}:payment",
        "type": kind,
        "aggregate_id": order_id,
        "payload": {"order_id": order_id, "amount_cents": 2598} | changed,
        "occurred_at": occurred_at,
    }
    return json.dumps(members).encode()


def rows() -> Sequence[tuple[str, str, str]]:
    """Which events led to which rows."""
    found = Notification.objects.order_by("id")
    return [(row.kind, row.state, row.event_id) for row in found]


def letters() -> list[tuple[str, str, str]]:
    found = DeadLetter.objects.filter(consumer_group="notifications").order_by("id")
    return [(row.state, row.error, row.reason) for row in found]
