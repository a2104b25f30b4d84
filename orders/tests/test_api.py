"""Orders over HTTP: what is taken, what is answered."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from catalog.operations import load_catalog
from orders.models import Order, OrderItem
from orders.operations import Line, place_order
from shopmicro.messaging.models import OutboxEvent

MUG = "8f14e45f-ceea-4c9d-b2a5-0c1e3f4a9b21"
MACHINE = "d6e8240b-bf5c-4394-b716-a342c15e9d08"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _catalogue(db: None) -> None:
    load_catalog()


def post(client: Client, body: Any) -> Any:
    return client.post("/v1/orders", json.dumps(body), content_type="application/json")


def order(**changes: Any) -> dict[str, Any]:
    return {"customer_id": "cust-1", "items": [{"product_id": MUG, "quantity": 2}]} | changes


def place(customer_id: str = "cust-1", product_id: str = MUG) -> str:
    return place_order(
        customer_id=customer_id, email="", lines=[Line(product_id, 1)], now=datetime.now(UTC)
    ).id


def ids(response: Any) -> list[str]:
    assert response.status_code == 200, response.content
    return [one["id"] for one in response.json()["orders"]]


def test_the_contracts_order_is_answered_with_201_and_all_its_members(client: Client) -> None:
    response = post(client, order())

    assert response.status_code == 201
    answer = response.json()
    stored = Order.objects.get()
    assert answer == {
        "id": str(stored.id),
        "customer_id": "cust-1",
        "status": "ORDER_STATUS_PENDING",
        "total_cents": 2598,
        "currency": "EUR",
        "items": [{"product_id": MUG, "quantity": 2, "unit_price_cents": 1299}],
        "reason": "",
        "created_at": stored.created_at.isoformat().replace("+00:00", "Z"),
        "updated_at": stored.created_at.isoformat().replace("+00:00", "Z"),
    }
    assert stored.id.version == 7


def test_location_leads_to_the_same_order(client: Client) -> None:
    placed = post(client, order())

    found = client.get(placed["Location"])

    assert placed["Location"] == f"/v1/orders/{placed.json()['id']}"
    assert found.status_code == 200
    assert found.json() == placed.json()


def test_placing_an_order_writes_one_event_that_tells_of_it(client: Client) -> None:
    placed = post(client, order(email="ann@example.org")).json()

    event = OutboxEvent.objects.get()
    assert (event.topic, event.type, event.event_id) == ("orders", "order.created", placed["id"])
    assert event.published_at is None
    assert json.loads(event.payload) == {
        "id": placed["id"],
        "type": "order.created",
        "aggregate_id": placed["id"],
        "payload": {
            "order_id": placed["id"],
            "customer_id": "cust-1",
            "amount_cents": 2598,
            "items": [{"product_id": MUG, "quantity": 2, "unit_price_cents": 1299}],
        },
        "occurred_at": placed["created_at"],
    }


def test_an_email_is_kept_but_neither_answered_nor_told(client: Client) -> None:
    response = post(client, order(email="ann@example.org"))

    assert Order.objects.get().email == "ann@example.org"
    assert b"ann@" not in response.content
    assert b"ann@" not in client.get(response["Location"]).content
    assert "ann@" not in OutboxEvent.objects.get().payload


def test_lines_of_the_same_product_are_merged_in_whichever_case_they_spell_it(client: Client) -> None:
    lines = [
        {"product_id": MUG, "quantity": 2},
        {"product_id": MACHINE, "quantity": 1},
        {"product_id": MUG.upper(), "quantity": 3},
    ]

    answer = post(client, order(items=lines)).json()

    assert answer["items"] == [
        {"product_id": MUG, "quantity": 5, "unit_price_cents": 1299},
        {"product_id": MACHINE, "quantity": 1, "unit_price_cents": 189900},
    ]
    assert answer["total_cents"] == 5 * 1299 + 189900
    assert OrderItem.objects.count() == 2


def test_a_hundred_lines_and_255_characters_of_customer_are_not_too_many(client: Client) -> None:
    lines = [{"product_id": MUG, "quantity": 1}] * 100

    answer = post(client, order(customer_id="é" * 255, items=lines))

    assert answer.status_code == 201
    assert answer.json()["items"][0]["quantity"] == 100
    assert answer.json()["customer_id"] == "é" * 255


def test_the_content_type_may_name_its_charset(client: Client) -> None:
    body = json.dumps(order())

    assert client.post("/v1/orders", body, content_type="application/json; charset=utf-8").status_code == 201


def test_an_order_is_found_by_its_id_in_upper_case(client: Client) -> None:
    order_id = place()

    assert client.get(f"/v1/orders/{order_id.upper()}").json()["id"] == order_id


@pytest.mark.parametrize(
    "spelling", ["{{{0}}}", "urn:uuid:{0}", "{0}%00", "{0}%0A", "%20{0}", "no-id", "{1}"]
)
def test_other_spellings_of_an_id_are_not_found(client: Client, spelling: str) -> None:
    order_id = place()

    response = client.get("/v1/orders/" + spelling.format(order_id, UUID(order_id).hex))

    assert response.status_code == 404
    assert response["Content-Type"] == "application/problem+json"


def test_an_order_that_is_not_there_is_not_found(client: Client) -> None:
    answer = client.get(f"/v1/orders/{MUG}")
    assert (answer.status_code, answer.json()["detail"]) == (404, "There is no such order.")


@pytest.mark.parametrize(
    ("stored", "wire", "reason"),
    [
        ("confirmed", "ORDER_STATUS_CONFIRMED", ""),
        ("cancelled", "ORDER_STATUS_CANCELLED", "amount exceeds limit"),
    ],
)
def test_a_resolved_order_shows_its_status_and_reason(
    client: Client, stored: str, wire: str, reason: str
) -> None:
    order_id = place()
    Order.objects.filter(id=order_id).update(status=stored, reason=reason)

    answer = client.get(f"/v1/orders/{order_id}").json()

    assert (answer["status"], answer["reason"]) == (wire, reason)


def test_orders_are_listed_newest_first_over_as_many_pages_as_it_takes(client: Client) -> None:
    placed = [place() for _ in range(7)]

    pages, cursor = [], ""
    while True:
        response = client.get(f"/v1/orders?limit=3{cursor}")
        pages.append(ids(response))
        if response.json()["next_cursor"] is None:
            break
        cursor = f"&cursor={response.json()['next_cursor']}"

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [one for page in pages for one in page] == placed[::-1]


def test_an_order_placed_between_two_pages_shifts_nothing(client: Client) -> None:
    placed = [place() for _ in range(4)]
    first = client.get("/v1/orders?limit=2")
    place()

    second = client.get(f"/v1/orders?limit=2&cursor={first.json()['next_cursor']}")

    assert ids(first) + ids(second) == placed[::-1]


def test_a_list_holds_one_customers_orders_of_one_status(client: Client) -> None:
    mine, other = [place("ann") for _ in range(4)], place("bob")
    Order.objects.filter(id__in=[mine[0], mine[2], other]).update(status="confirmed")

    assert ids(client.get("/v1/orders?customer_id=ann")) == mine[::-1]
    assert ids(client.get("/v1/orders?customer_id=an")) == []
    assert ids(client.get("/v1/orders?status=ORDER_STATUS_CONFIRMED")) == [other, mine[2], mine[0]]
    confirmed = client.get("/v1/orders?customer_id=ann&status=ORDER_STATUS_CONFIRMED&limit=1")
    assert ids(confirmed) == [mine[2]]
    rest = client.get(
        "/v1/orders?customer_id=ann&status=ORDER_STATUS_CONFIRMED&limit=1",
        {"cursor": confirmed.json()["next_cursor"]},
    )
    assert rest.status_code == 200


def test_a_listed_order_is_the_order_that_is_answered_alone(client: Client) -> None:
    order_id = place()

    assert client.get("/v1/orders").json()["orders"] == [client.get(f"/v1/orders/{order_id}").json()]


def test_a_list_takes_three_queries_at_most_however_long_it_is(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(20):
        place()

    with django_assert_max_num_queries(2):
        client.get("/v1/orders")
    with django_assert_max_num_queries(3):
        client.get("/v1/orders?status=ORDER_STATUS_PENDING")


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("cursor=garbage", "cursor"),
        ("cursor=", "cursor"),
        (f"cursor={{{MUG}}}", "cursor"),
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=101", "limit"),
        ("limit=1.5", "limit"),
        ("limit=ten", "limit"),
        (f"limit={'9' * 5000}", "limit"),
        ("status=pending", "status"),
        ("status=ORDER_STATUS_UNKNOWN", "status"),
        ("status=", "status"),
        ("status=%00", "status"),
        ("customer_id=", "customer_id"),
        ("customer_id=%20%20", "customer_id"),
        ("customer_id=a%00b", "customer_id"),
        (f"customer_id={'x' * 256}", "customer_id"),
        ("costumer_id=ann", "costumer_id"),
        ("x=%00", "x"),
        ("%00=1", "\0"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_by_name(client: Client, query: str, parameter: str) -> None:
    response = client.get(f"/v1/orders?{query}")

    assert response.status_code == 422
    assert [error["parameter"] for error in response.json()["errors"]] == [parameter]
