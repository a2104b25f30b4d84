"""The API's own documentation: a valid OpenAPI document, a page that needs no other host."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db  # the end of an answer looks after the connections

STATUSES = {
    ("get", "/v1/products"): {"200", "422", "503"},
    ("get", "/v1/orders"): {"200", "422", "503"},
    ("post", "/v1/orders"): {"201", "400", "413", "415", "422", "503"},
    ("get", "/v1/orders/{order_id}"): {"200", "404", "503"},
}


@pytest.fixture
def document(client: Client) -> dict[str, Any]:
    response = client.get("/v1/openapi.json")
    assert response.status_code == 200
    answer: dict[str, Any] = response.json()
    return answer


def operations(document: dict[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield (method, path), operation


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for inner in node.values():
            yield from references(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from references(inner)


def test_the_document_is_openapi_3_1_of_the_shop(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"]["title"] == "shopmicro"


def test_every_operation_lists_its_answers_and_problems(document: dict[str, Any]) -> None:
    assert {name: set(operation["responses"]) for name, operation in operations(document)} == STATUSES


def test_every_problem_is_a_problem_document(document: dict[str, Any]) -> None:
    for _, operation in operations(document):
        for status, answer in operation["responses"].items():
            media_type = "application/problem+json" if status >= "400" else "application/json"
            assert list(answer["content"]) == [media_type]
            assert answer["description"]


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = set(references(document))

    assert "#/components/schemas/Problem" in found
    assert {name.removeprefix("#/components/schemas/") for name in found} <= set(
        document["components"]["schemas"]
    )


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, operation in operations(document)]

    assert len(names) == len(set(names))


def test_every_place_in_a_path_is_a_required_parameter(document: dict[str, Any]) -> None:
    for (_, path), operation in operations(document):
        named = {
            parameter["name"]
            for parameter in operation["parameters"]
            if parameter["in"] == "path" and parameter["required"]
        }
        assert named == set(re.findall(r"{(\w+)}", path))


def test_the_documented_example_is_the_contracts_order(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    assert schemas["OrderIn"]["additionalProperties"] is False
    assert schemas["OrderIn"]["required"] == ["customer_id", "items"]
    assert schemas["LineIn"]["properties"]["quantity"]["maximum"] == 2**31 - 1
    assert schemas["OrderOut"]["properties"]["created_at"]["format"] == "date-time"
    assert "email" not in schemas["OrderOut"]["properties"]


def test_the_docs_page_takes_everything_from_this_host(client: Client) -> None:
    page = client.get("/v1/docs").content.decode()
    assets = re.findall(r'(?:src|href)="([^"]+)"', page)

    assert "/v1/openapi.json" in page
    assert not re.findall(r"https?:|//\w", page)
    assert len(assets) >= 3
    for asset in assets:
        assert asset.startswith("/static/ninja/")
        response = client.get(asset)
        assert response.status_code == 200
        assert b"".join(response.streaming_content)
        response.close()


def test_the_docs_page_asks_no_stranger_to_validate_the_document(client: Client) -> None:
    assert '"validatorUrl": "none"' in client.get("/v1/docs").content.decode()


def test_the_front_door_leads_to_the_documentation(client: Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/v1/docs")
