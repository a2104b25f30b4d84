"""The walk: two orders, a repeated event and a late one, and the facts that must hold after each."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shopmicro.embedded.demo.client import Client, Tables
from shopmicro.embedded.demo.screen import Rows, Screen
from shopmicro.embedded.errors import EmbeddedError

MUG = "8f14e45f-ceea-4c9d-b2a5-0c1e3f4a9b21"
ESPRESSO_MACHINE = "d6e8240b-bf5c-4394-b716-a342c15e9d08"
OVER_LIMIT = "amount exceeds limit"
LATE = "late-failure-001"

GUARD_1 = "guard 1: dedupe"
GUARD_2 = "guard 2: terminal"
GUARD_3 = "transaction"


def walk(client: Client, screen: Screen) -> None:
    """Take all four steps; EmbeddedError at the first fact that does not hold."""
    small = small_order(client, screen)
    large_order(client, screen)
    same_event_again(client, screen, small)
    late_failure(client, screen, small)


def small_order(client: Client, screen: Screen) -> str:
    """Step 1; gives the order's id."""
    screen.title("1. A small order: two mugs")
    order = place(client, screen, "X", MUG, 2, ", the first since the start")
    expect("its status", order["status"], "ORDER_STATUS_CONFIRMED")
    expect("its total in cents", order["total_cents"], 2598)
    show_resolved(client, screen, "X", order["id"], "confirmed", "payment.succeeded")
    return str(order["id"])


def large_order(client: Client, screen: Screen) -> None:
    """Step 2."""
    screen.title("2. A large order: an espresso machine, over the payment limit")
    order = place(client, screen, "Y", ESPRESSO_MACHINE, 1)
    expect("its status", order["status"], "ORDER_STATUS_CANCELLED")
    expect("its reason", order["reason"], OVER_LIMIT)
    show_resolved(client, screen, "Y", order["id"], "cancelled", "payment.failed")


def same_event_again(client: Client, screen: Screen, order_id: str) -> None:
    """Step 3."""
    screen.title("3. The same event again, as Kafka redelivers it after a crash")
    event_id = f"{order_id}:payment"
    before = client.tables(order_id, event_id)
    deliver(client, screen, event(event_id, "payment.succeeded", order_id))
    after = client.tables(order_id, event_id)
    expect("orders, processed_events and outbox", after, before)
    screen.table(
        rows("X", order_id, after),
        {
            GUARD_1: ["stopped it: X:payment was on record"],
            GUARD_2: ["not reached: X was not even locked"],
            GUARD_3: ["wrote nothing; then the offset was committed"],
        },
    )


def late_failure(client: Client, screen: Screen, order_id: str) -> None:
    """Step 4."""
    screen.title("4. A late failure under a new id, which contradicts what is settled")
    event_ids = f"{order_id}:payment", LATE
    before = client.tables(order_id, *event_ids)
    deliver(client, screen, event(LATE, "payment.failed", order_id, reason=OVER_LIMIT))
    after = client.tables(order_id, *event_ids)
    expect("the events in processed_events", list(after.processed), list(event_ids))
    transaction = after.processed[LATE]
    expect("the order", after.order, replace(before.order, locked_by=transaction))
    expect("the outbox", after.outbox, before.outbox)
    screen.table(
        rows("X", order_id, after),
        {
            GUARD_1: [f"let it through: {LATE} is new, now on record"],
            GUARD_2: ["stopped it: X, under lock, was confirmed already"],
            GUARD_3: [f"no. {transaction} wrote the event id; nothing is told"],
        },
    )


def place(
    client: Client, screen: Screen, letter: str, product_id: str, quantity: int, remark: str = ""
) -> dict[str, Any]:
    """Place an order over HTTP and poll until it is resolved; the order as it ends."""
    body = {"customer_id": "cust-1", "items": [{"product_id": product_id, "quantity": quantity}]}
    screen.say(f"POST /v1/orders {json.dumps(body)}", style="dim")
    started = time.monotonic()
    status, answer = client.request("POST", "/v1/orders", body)
    expect(f"the answer's status ({answer})", status, 201)
    path = f"/v1/orders/{answer['id']}"
    order: dict[str, Any] = answer

    def is_resolved() -> bool:
        order.update(client.request("GET", path)[1])
        return bool(order["status"] != "ORDER_STATUS_PENDING")

    client.wait(is_resolved, f"order {answer['id']} is not resolved")
    milliseconds = 1000 * (time.monotonic() - started)
    screen.say(f"201: {letter} is {answer['id']}")
    screen.say(f"GET: {order['status']}, {milliseconds:.0f} ms after the POST{remark}", style="bold green")
    return order


def show_resolved(
    client: Client, screen: Screen, letter: str, order_id: str, status: str, payment: str
) -> None:
    """Show that and how the payment's result has resolved the order."""
    event_id = f"{order_id}:payment"
    client.wait(lambda: client.all_published(order_id), "the outbox is not published")
    tables = client.tables(order_id, event_id)
    told = f"order.{status}"
    expect("the order's status", tables.order.status, status)
    expect("the events in processed_events", list(tables.processed), [event_id])
    expect(
        "the outbox",
        tables.outbox,
        [
            ("order.created", order_id, "orders"),
            (payment, event_id, "payments"),
            (told, f"{order_id}:{status}", "orders"),
        ],
    )
    transaction = tables.processed[event_id]
    expect("the transaction that wrote the order's status", tables.order.written_by, transaction)
    screen.table(
        rows(letter, order_id, tables),
        {
            GUARD_1: [f"let it through: {letter}:payment is new, now on record"],
            GUARD_2: [f"let it through: {letter}, under lock, was pending"],
            GUARD_3: [f"no. {transaction} wrote event id and status; one {told}"],
        },
    )


def deliver(client: Client, screen: Screen, value: dict[str, Any]) -> None:
    """Produce an event to `payments`, and wait until the saga is past it."""
    record = client.produce("payments", value)
    screen.say(f"produced to {record.topic}[{record.partition}], offset {record.offset}:")
    screen.say(json.dumps(value), style="dim")
    client.wait_until_consumed("order-saga", record)


def event(event_id: str, kind: str, order_id: str, **more: str) -> dict[str, Any]:
    """A payment result for the small order, as the contract has it."""
    return {
        "id": event_id,
        "type": kind,
        "aggregate_id": order_id,
        "payload": {"order_id": order_id, "amount_cents": 2598, **more},
        "occurred_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def rows(letter: str, order_id: str, tables: Tables) -> Rows:
    """The three tables, with the letter for the order's id."""
    order = tables.order
    total = f"{order.total_cents / 100:,.2f} {order.currency}"
    outbox = [
        f"{kind:<18} {event_id.replace(order_id, letter):<12} to {topic}"
        for kind, event_id, topic in tables.outbox
    ]
    return {
        "orders": [f"{letter}: {order.status}, {total}{order.reason and f', {order.reason}'}"],
        "processed_events": [event_id.replace(order_id, letter) for event_id in tables.processed],
        "outbox": outbox,
    }


def expect(what: str, found: object, wanted: object) -> None:
    """Raise EmbeddedError unless what was found is what was wanted."""
    if found != wanted:
        raise EmbeddedError(f"the walk failed: {what} should be {wanted!r}, but is {found!r}")
