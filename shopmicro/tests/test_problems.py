"""Whatever goes wrong under /v1/ is a problem document, whoever refused the request."""

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from shopmicro.problems import problem

ORDERS = "/v1/orders"
ORDER = {
    "customer_id": "cust-1",
    "items": [{"product_id": "8f14e45f-ceea-4c9d-b2a5-0c1e3f4a9b21", "quantity": 1}],
}

pytestmark = pytest.mark.django_db


def assert_problem(response: Any, status: int) -> dict[str, Any]:
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
    assert response["Content-Length"] == str(len(response.content))
    told: dict[str, Any] = response.json()
    assert told["status"] == status
    assert told["title"]
    return told


@pytest.fixture(params=[False, True], ids=["production", "DEBUG"])
def quiet_client(request: pytest.FixtureRequest, settings: Any) -> Client:
    settings.DEBUG = request.param
    return Client(raise_request_exception=False)


@pytest.mark.parametrize(
    "path",
    ["/v1/", "/v1/nothing", "/v1/orders/", "/v1/orders/a/b", "/v1/%00", "/v1/a%0d%0aforged", "/v1/%ff"],
)
def test_an_unknown_path_is_404(quiet_client: Client, path: str) -> None:
    assert set(assert_problem(quiet_client.get(path), 404)) == {"type", "title", "status"}


def test_a_path_outside_the_api_is_no_problem_document(client: Client) -> None:
    assert client.get("/nothing")["Content-Type"].startswith("text/html")


def test_a_mistake_of_our_own_is_500_and_shows_nothing_of_it(quiet_client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE products")

    response = quiet_client.post(ORDERS, json.dumps(ORDER), content_type="application/json")

    assert set(assert_problem(response, 500)) == {"type", "title", "status"}


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_busy_is_503_and_says_when_to_try_again(client: Client) -> None:
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor, connection.cursor() as mine:
            cursor.execute("LOCK TABLE products IN ACCESS EXCLUSIVE MODE")
            mine.execute("SET lock_timeout = '10ms'")
            response = client.post(ORDERS, json.dumps(ORDER), content_type="application/json")
    finally:
        other.rollback()
        other.close()
        connection.close()

    assert_problem(response, 503)
    assert response["Retry-After"] == "5"


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_read_only_is_503(client: Client) -> None:
    call_command("loadcatalog")
    with connection.cursor() as mine:
        mine.execute("SET default_transaction_read_only = on")
    try:
        response = client.post(ORDERS, json.dumps(ORDER), content_type="application/json")
    finally:
        connection.close()

    assert_problem(response, 503)


def test_a_host_that_is_not_ours_is_400(quiet_client: Client, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["shop.example"]

    assert_problem(quiet_client.get(ORDERS, headers={"host": "evil.example"}), 400)


def test_a_thousand_parameters_are_400(quiet_client: Client) -> None:
    assert_problem(quiet_client.get(ORDERS + "?" + "&".join(f"x{place}=1" for place in range(1001))), 400)


@pytest.mark.parametrize("path", [ORDERS, "/v1/products", "/v1/openapi.json", "/v1/docs"])
def test_head_is_answered_as_get_without_a_body(client: Client, path: str) -> None:
    got, asked = client.get(path), client.head(path)

    assert (asked.status_code, asked.content) == (200, b"")
    assert asked["Content-Type"] == got["Content-Type"]
    assert asked["Content-Length"] == got["Content-Length"] == str(len(got.content))


def test_head_of_what_is_not_there_is_404(client: Client) -> None:
    response = client.head(f"{ORDERS}/nothing")

    assert (response.status_code, response.content) == (404, b"")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (ORDERS, "GET, HEAD, OPTIONS, POST"),
        (f"{ORDERS}/x", "GET, HEAD, OPTIONS"),
        ("/v1/products", "GET, HEAD, OPTIONS"),
        ("/v1/openapi.json", "GET, HEAD, OPTIONS"),
        ("/v1/docs", "GET, HEAD, OPTIONS"),
    ],
)
def test_options_and_405_name_the_same_methods(client: Client, path: str, methods: str) -> None:
    options, refused = client.options(path), client.delete(path)

    assert (options.status_code, options.content, options["Allow"]) == (204, b"", methods)
    assert_problem(refused, 405)
    assert refused["Allow"] == methods


def test_the_api_needs_no_csrf_token_and_hands_out_no_cookie() -> None:
    response = Client(enforce_csrf_checks=True).post(ORDERS, "{}", content_type="application/json")

    assert_problem(response, 422)
    assert not response.cookies


def test_the_detail_names_the_first_of_what_is_refused(client: Client) -> None:
    response = client.post(ORDERS, '{"customer_id": 7, "items": []}', content_type="application/json")

    told = assert_problem(response, 422)
    assert told["detail"] == "#/customer_id: Input should be a valid string (and 1 more)"
    assert [error["pointer"] for error in told["errors"]] == ["#/customer_id", "#/items"]


def test_a_problem_may_carry_members_of_its_own() -> None:
    told = json.loads(problem(503, "Later.", checks={"broker": "does not answer"}).content)

    assert told == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "Later.",
        "checks": {"broker": "does not answer"},
    }
