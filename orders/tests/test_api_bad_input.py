"""Bad input over HTTP: each is refused with its own status, names the member, and writes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from catalog.operations import load_catalog
from orders.models import Order, OrderItem
from shopmicro.messaging.models import OutboxEvent

MUG = "8f14e45f-ceea-4c9d-b2a5-0c1e3f4a9b21"
NOBODYS = "00000000-0000-4000-8000-000000000000"
DEAREST = "ffffffff-ffff-4fff-8fff-ffffffffffff"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_is_written(db: None, tmp_path: Path) -> Iterator[None]:
    dearest = {"id": DEAREST, "name": "The whole roastery", "price_cents": 2**63 - 1}
    (tmp_path / "dearest.json").write_text(json.dumps([dearest]))
    load_catalog()
    load_catalog(path=tmp_path / "dearest.json")
    yield
    assert not Order.objects.exists()
    assert not OrderItem.objects.exists()
    assert not OutboxEvent.objects.exists()


def order(**changes: Any) -> dict[str, Any]:
    return {"customer_id": "cust-1", "items": [{"product_id": MUG, "quantity": 2}]} | changes


def line(**changes: Any) -> dict[str, Any]:
    return order(items=[{"product_id": MUG, "quantity": 2} | changes])


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {member: value for member, value in body.items() if member != name}


def send(client: Client, body: bytes, content_type: str = "application/json") -> Any:
    return client.generic("POST", "/v1/orders", body, content_type=content_type, CONTENT_TYPE=content_type)


def assert_problem(response: Any, status: int) -> dict[str, Any]:
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
    assert response["Content-Length"] == str(len(response.content))
    problem: dict[str, Any] = response.json()
    assert (problem["type"], problem["status"]) == ("about:blank", status)
    return problem


REFUSED_MEMBERS = {
    "an unknown product": (line(product_id=NOBODYS), "#/items/0/product_id"),
    "an unknown product in the second line": (
        order(items=[{"product_id": MUG, "quantity": 1}, {"product_id": NOBODYS, "quantity": 1}]),
        "#/items/1/product_id",
    ),
    "a product id in braces": (line(product_id=f"{{{MUG}}}"), "#/items/0/product_id"),
    "a product id as urn": (line(product_id=f"urn:uuid:{MUG}"), "#/items/0/product_id"),
    "a product id without hyphens": (line(product_id=MUG.replace("-", "")), "#/items/0/product_id"),
    "a product id with a newline": (line(product_id=f"{MUG}\n"), "#/items/0/product_id"),
    "a product id in other digits": (line(product_id="٨" + MUG[1:]), "#/items/0/product_id"),
    "a product id that is a number": (line(product_id=1), "#/items/0/product_id"),
    "no product id": (order(items=[{"quantity": 1}]), "#/items/0/product_id"),
    "quantity 0": (line(quantity=0), "#/items/0/quantity"),
    "quantity -1": (line(quantity=-1), "#/items/0/quantity"),
    "quantity 2**31": (line(quantity=2**31), "#/items/0/quantity"),
    "quantity 10**400": (line(quantity=10**400), "#/items/0/quantity"),
    "quantity 1.5": (line(quantity=1.5), "#/items/0/quantity"),
    "quantity 1.0": (line(quantity=1.0), "#/items/0/quantity"),
    "quantity as string": (line(quantity="2"), "#/items/0/quantity"),
    "quantity true": (line(quantity=True), "#/items/0/quantity"),
    "quantity null": (line(quantity=None), "#/items/0/quantity"),
    "quantity in a list": (line(quantity=[2]), "#/items/0/quantity"),
    "no quantity": (order(items=[{"product_id": MUG}]), "#/items/0/quantity"),
    "lines that add up to 2**31": (
        order(items=[{"product_id": MUG, "quantity": 2**31 - 1}, {"product_id": MUG, "quantity": 1}]),
        "#/items/0/quantity",
    ),
    "no items": (order(items=[]), "#/items"),
    "items missing": (without(order(), "items"), "#/items"),
    "items null": (order(items=None), "#/items"),
    "items that are an object": (order(items={}), "#/items"),
    "101 items": (order(items=order()["items"] * 101), "#/items"),
    "an item that is no object": (order(items=[MUG]), "#/items/0"),
    "a total over 2**63 - 1": (line(product_id=DEAREST, quantity=2), "#/items"),
    "a customer that is missing": (without(order(), "customer_id"), "#/customer_id"),
    "an empty customer": (order(customer_id=""), "#/customer_id"),
    "a blank customer": (order(customer_id=" \t\u2003"), "#/customer_id"),
    "a customer of 256 characters": (order(customer_id="x" * 256), "#/customer_id"),
    "a customer with NUL": (order(customer_id="a\0b"), "#/customer_id"),
    "a customer with a lone surrogate": (order(customer_id="a\ud800b"), "#/customer_id"),
    "a customer that is a number": (order(customer_id=7), "#/customer_id"),
    "a customer that is null": (order(customer_id=None), "#/customer_id"),
    "an email that is none": (order(email="ann"), "#/email"),
    "an empty email": (order(email=""), "#/email"),
    "an email of two lines": (order(email="ann@example.org\nBcc: bob@example.org"), "#/email"),
    "an email with NUL": (order(email="a\0@example.org"), "#/email"),
    "an email with a lone surrogate": (order(email="ann@ex\ud800ample.org"), "#/email"),
    "an email of 255 characters": (order(email="ann@" + "x." * 124 + "org"), "#/email"),
    "an email that is a list": (order(email=["ann@example.org"]), "#/email"),
    "a status": (order(status="ORDER_STATUS_CONFIRMED"), "#/status"),
    "an id": (order(id=NOBODYS), "#/id"),
    "a total": (order(total_cents=1), "#/total_cents"),
    "a price of one's own": (line(unit_price_cents=1), "#/items/0/unit_price_cents"),
    "a member of an odd name": (order(**{"a/b~c": 1}), "#/a~1b~0c"),
    "a member named by a lone surrogate": (order(**{"\ud800": 1}), "#"),
    "a member named by NUL": (order(**{"\0": 1}), "#/%00"),
    "a list": ([], "#"),
    "null": (None, "#"),
    "a string": ("order", "#"),
}


@pytest.mark.parametrize(("body", "pointer"), REFUSED_MEMBERS.values(), ids=REFUSED_MEMBERS.keys())
def test_a_member_that_cannot_be_taken_is_named(client: Client, body: Any, pointer: str) -> None:
    problem = assert_problem(send(client, json.dumps(body).encode()), 422)

    assert problem["errors"][0]["pointer"] == pointer
    assert problem["errors"][0]["detail"]


GOOD = json.dumps(order())

BROKEN_JSON = {
    "nothing": b"",
    "blanks": b"  ",
    "half an object": GOOD[:-1].encode(),
    "two objects": (GOOD + GOOD).encode(),
    "single quotes": GOOD.replace('"', "'").encode(),
    "a byte-order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "UTF-16": GOOD.encode("utf-16-le"),
    "Latin-1": GOOD.replace("cust", "cüst").encode("latin-1"),
    "a surrogate in UTF-8": GOOD.encode().replace(b"cust", b"\xed\xa0\x80"),
    "a member twice": GOOD.replace('"items"', '"customer_id": "eve", "items"').encode(),
    "a member of a line twice": GOOD.replace('"quantity": 2', '"quantity": 2, "quantity": 3').encode(),
    "NaN": GOOD.replace("2}", "NaN}").encode(),
    "-Infinity": GOOD.replace("2}", "-Infinity}").encode(),
    "5000 digits": GOOD.replace("2}", "9" * 5000 + "}").encode(),
    "a trailing comma": GOOD.replace("2}", "2,}").encode(),
    "65 levels": b"[" * 65 + b"]" * 65,
    "200000 levels": b"[" * 200_000 + b"]" * 200_000,
}


@pytest.mark.parametrize("body", BROKEN_JSON.values(), ids=BROKEN_JSON.keys())
def test_a_body_that_is_no_json_is_400(client: Client, body: bytes) -> None:
    assert assert_problem(send(client, body), 400)["detail"]


def test_a_body_over_one_mebibyte_is_413(client: Client) -> None:
    padding = b" " * (1024 * 1024 + 1 - len(GOOD))

    assert_problem(send(client, GOOD.encode() + padding), 413)


def test_a_body_sent_in_chunks_is_411(client: Client) -> None:
    response = client.generic(
        "POST", "/v1/orders", b"", content_type="application/json", HTTP_TRANSFER_ENCODING="chunked"
    )

    assert_problem(response, 411)


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
def test_another_content_type_is_415(client: Client, content_type: str) -> None:
    assert_problem(send(client, GOOD.encode(), content_type), 415)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"])
def test_another_method_is_405_and_says_which_are_allowed(client: Client, method: str) -> None:
    response = client.generic(method, "/v1/orders", GOOD.encode(), content_type="application/json")

    assert_problem(response, 405)
    assert response["Allow"] == "GET, HEAD, OPTIONS, POST"


def test_an_order_cannot_be_written_to_over_its_address(client: Client) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        response = client.generic(method, f"/v1/orders/{MUG}", b"{}", content_type="application/json")
        assert_problem(response, 405)
        assert response["Allow"] == "GET, HEAD, OPTIONS"


def test_only_so_many_refusals_are_listed_and_long_names_are_cut(client: Client) -> None:
    body = order(**{f"{place}{'x' * 1000}": place for place in range(500)})

    response = send(client, json.dumps(body).encode())

    assert len(assert_problem(response, 422)["errors"]) == 20
    assert len(response.content) < 5000


def test_every_line_with_an_unknown_product_is_named(client: Client) -> None:
    lines = [{"product_id": product, "quantity": 1} for product in (NOBODYS, MUG, NOBODYS.upper())]

    problem = assert_problem(send(client, json.dumps(order(items=lines)).encode()), 422)

    assert [error["pointer"] for error in problem["errors"]] == [
        "#/items/0/product_id",
        "#/items/2/product_id",
    ]
