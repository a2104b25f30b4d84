"""The catalogue: loaded once or often, priced in one query, listed over HTTP, edited in the admin."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import Client

from catalog.models import Product
from catalog.operations import SHIPPED, Loaded, load_catalog
from catalog.queries import prices

MUG = "8f14e45f-ceea-4c9d-b2a5-0c1e3f4a9b21"

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin_client(client: Client, django_user_model: Any) -> Client:
    client.force_login(django_user_model.objects.create_superuser("operator"))
    return client


def rows() -> list[dict[str, Any]]:
    return list(Product.objects.order_by("id").values())


def test_the_shipped_catalogue_holds_what_the_walk_needs() -> None:
    load_catalog()

    mug = Product.objects.get(id=MUG)
    assert (mug.price_cents, mug.stock) == (1299, None)
    assert Product.objects.count() >= 12
    assert Product.objects.filter(price_cents__gt=100_000).exists()
    assert Product.objects.filter(stock__gt=0).exists()


def test_loading_the_catalogue_again_changes_nothing() -> None:
    first = load_catalog()
    before = rows()

    second = load_catalog()

    assert first == Loaded(added=len(before), kept=0)
    assert second == Loaded(added=0, kept=len(before))
    assert rows() == before


def test_loading_the_catalogue_again_leaves_an_operators_price_and_the_stock_sold() -> None:
    load_catalog()
    Product.objects.filter(id=MUG).update(price_cents=1399, stock=3, name="Mug")
    before = rows()

    load_catalog()

    assert rows() == before


def test_loading_adds_what_is_missing() -> None:
    load_catalog()
    before = rows()
    Product.objects.filter(id=MUG).delete()

    loaded = load_catalog()

    assert loaded == Loaded(added=1, kept=len(before) - 1)
    assert Product.objects.get(id=MUG).price_cents == 1299


def test_a_catalogue_with_one_bad_product_adds_none(tmp_path: Path) -> None:
    bad = [*json.loads(SHIPPED.read_text()), {"name": "a gift", "price_cents": 0}]
    path = tmp_path / "catalogue.json"
    path.write_text(json.dumps(bad))

    with pytest.raises(IntegrityError, match="products_price_positive"):
        load_catalog(path=path)

    assert rows() == []


def test_the_command_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("loadcatalog")
    call_command("loadcatalog")

    assert capsys.readouterr().out.splitlines() == [
        "loadcatalog: 14 products added, 0 left as they were",
        "loadcatalog: 0 products added, 14 left as they were",
    ]


@pytest.mark.parametrize(
    ("members", "constraint"),
    [
        ({"price_cents": 0}, "products_price_positive"),
        ({"stock": -1}, "products_stock_not_negative"),
        ({"name": ""}, "products_name_not_empty"),
    ],
)
def test_the_table_refuses_a_product_that_cannot_be(members: dict[str, Any], constraint: str) -> None:
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Product.objects.create(**({"name": "mug", "price_cents": 1} | members))


def test_prices_come_in_one_query_and_leave_out_what_is_unknown(django_assert_num_queries: Any) -> None:
    load_catalog()
    dear = "d6e8240b-bf5c-4394-b716-a342c15e9d08"

    with django_assert_num_queries(1):
        found = prices([MUG, dear, str(uuid4())])

    assert found == {MUG: 1299, dear: 189900}


def test_products_are_listed_with_price_currency_and_stock(client: Client) -> None:
    load_catalog()

    answer = client.get("/v1/products").json()

    assert {
        "id": MUG,
        "name": "Stoneware mug, 350 ml",
        "price_cents": 1299,
        "currency": "EUR",
        "stock": None,
    } in answer["products"]
    assert len(answer["products"]) == Product.objects.count()
    assert answer["next_cursor"] is None


def test_products_are_listed_over_several_pages(client: Client) -> None:
    load_catalog()

    first = client.get("/v1/products?limit=10").json()
    second = client.get("/v1/products", {"limit": 10, "cursor": first["next_cursor"]}).json()

    listed = [UUID(product["id"]) for product in first["products"] + second["products"]]
    assert listed == list(Product.objects.order_by("id").values_list("id", flat=True))
    assert second["next_cursor"] is None


@pytest.mark.parametrize("query", ["cursor=garbage", "limit=0", "limit=101", "cursor=%00", "cursro=x"])
def test_a_query_that_makes_no_sense_is_refused_by_name(client: Client, query: str) -> None:
    response = client.get(f"/v1/products?{query}")

    assert response.status_code == 422
    assert response.json()["errors"][0]["parameter"] == query.partition("=")[0]


def test_the_admin_changes_a_price_and_leaves_the_stock_as_it_has_become(admin_client: Client) -> None:
    product = Product.objects.create(name="Mug", price_cents=1299, stock=10)
    page = f"/admin/catalog/product/{product.id}/change/"
    opened = admin_client.get(page)
    shown = opened.context["adminform"].form.initial
    remembered = {f"initial-{name}": value for name, value in shown.items()}
    Product.objects.filter(id=product.id).update(stock=7)

    response = admin_client.post(page, shown | remembered | {"price_cents": 1399})

    stored = Product.objects.get()
    assert 'name="initial-stock" value="10"' in opened.content.decode()
    assert response.status_code == 302
    assert (stored.price_cents, stored.stock) == (1399, 7)
    assert stored.updated_at > product.created_at


def test_the_admin_adds_and_finds_products_but_deletes_none(admin_client: Client) -> None:
    added = admin_client.post("/admin/catalog/product/add/", {"name": "Teapot", "price_cents": 3999})

    product = Product.objects.get()
    found = admin_client.get("/admin/catalog/product/?q=teap")
    deleted = admin_client.post(f"/admin/catalog/product/{product.id}/delete/", {"post": "yes"})

    assert (added.status_code, deleted.status_code) == (302, 403)
    assert list(found.context["cl"].result_list) == [product]
    assert (product.price_cents, product.stock) == (3999, None)


@pytest.mark.parametrize(
    ("members", "field"),
    [({"price_cents": 0}, "price_cents"), ({"stock": -1}, "stock"), ({"name": ""}, "name")],
)
def test_the_admin_refuses_a_product_that_cannot_be(
    admin_client: Client, members: dict[str, Any], field: str
) -> None:
    form = {"name": "Teapot", "price_cents": 1} | members

    response = admin_client.post("/admin/catalog/product/add/", form)

    assert response.status_code == 200
    assert response.context["adminform"].form.errors
    assert not Product.objects.exists()


@pytest.mark.parametrize(("query", "status"), [("name=%00", 400), ("stock=x", 400), ("q=%00", 400)])
def test_the_admin_breaks_on_no_query(admin_client: Client, query: str, status: int) -> None:
    assert admin_client.get(f"/admin/catalog/product/?{query}").status_code == status
