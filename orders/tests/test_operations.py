"""Placing orders, and reading them, below HTTP."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from catalog.operations import load_catalog
from orders import queries
from orders.models import Order, OrderItem
from orders.operations import Line, QuantityTooLarge, TotalTooLarge, UnknownProduct, place_order
from orders.queries import Contact, contact, find_order, list_orders
from shopmicro.messaging.event import decode
from shopmicro.messaging.models import OutboxEvent

MUG = "8f14e45f-ceea-4c9d-b2a5-0c1e3f4a9b21"
NOW = datetime(2026, 7, 14, 9, 15, 40, 123456, tzinfo=UTC)

REFUSE_EVENTS = "ALTER TABLE outbox ADD CONSTRAINT refused CHECK (type <> 'order.created')"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _catalogue(db: None) -> None:
    load_catalog()


def sell(tmp_path: Path, prices: list[int]) -> list[str]:
    products = [{"id": str(uuid4()), "name": "thing", "price_cents": price} for price in prices]
    (tmp_path / "things.json").write_text(json.dumps(products))
    load_catalog(path=tmp_path / "things.json")
    return [product["id"] for product in products]


def place(*lines: Line, customer_id: str = "cust-1", email: str = "") -> queries.OrderView:
    return place_order(customer_id=customer_id, email=email, lines=lines or [Line(MUG, 2)], now=NOW)


def assert_nothing_was_written() -> None:
    assert not Order.objects.exists()
    assert not OrderItem.objects.exists()
    assert not OutboxEvent.objects.exists()


def test_a_placed_order_reads_back_as_it_was_returned() -> None:
    placed = place()

    assert find_order(placed.id) == placed
    assert (placed.created_at, placed.updated_at) == (NOW, NOW)


def test_the_event_of_a_placed_order_is_one_that_consumers_can_decode() -> None:
    placed = place(customer_id='Zoë \U0001f600 "quoted" \\')

    event = decode(OutboxEvent.objects.get().payload.encode())

    assert (event.id, event.aggregate_id, event.occurred_at) == (placed.id, placed.id, NOW)
    assert event.payload["customer_id"] == placed.customer_id


def test_an_order_whose_event_is_refused_leaves_no_row() -> None:
    with connection.cursor() as cursor:
        cursor.execute(REFUSE_EVENTS)

    with pytest.raises(IntegrityError, match="refused"):
        place()

    assert_nothing_was_written()


@pytest.mark.django_db(transaction=True)
def test_an_order_is_committed_when_placing_it_returns() -> None:
    placed = place()

    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT event_id FROM outbox JOIN orders ON orders.id = aggregate_id")
        seen = cursor.fetchall()
    other.close()

    assert seen == [(placed.id,)]


@pytest.mark.django_db(transaction=True)
def test_placing_an_order_within_another_transaction_is_a_mistake() -> None:
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        place()

    assert_nothing_was_written()


def test_an_unknown_product_is_told_by_its_id() -> None:
    nobodys = str(uuid4())

    with pytest.raises(UnknownProduct) as refused:
        place(Line(MUG, 1), Line(nobodys, 1))

    assert refused.value.product_ids == {nobodys}
    assert_nothing_was_written()


def test_lines_that_add_up_to_more_than_a_quantity_holds_are_refused() -> None:
    with pytest.raises(QuantityTooLarge) as refused:
        place(Line(MUG, 2**31 - 1), Line(MUG, 1))

    assert refused.value.product_ids == {MUG}
    assert_nothing_was_written()


@pytest.mark.parametrize(("extra_cents", "fits"), [(0, True), (1, False)])
def test_a_total_may_be_2_to_the_63_less_one_and_no_more(
    tmp_path: Path, extra_cents: int, fits: bool
) -> None:
    halves = sell(tmp_path, [2**62, 2**62 - 1 + extra_cents])
    lines = [Line(half, 1) for half in halves]

    if fits:
        assert place(*lines).total_cents == 2**63 - 1
        assert json.loads(OutboxEvent.objects.get().payload)["payload"]["amount_cents"] == 2**63 - 1
    else:
        with pytest.raises(TotalTooLarge):
            place(*lines)
        assert_nothing_was_written()


def test_an_order_of_a_hundred_products_takes_as_many_queries_as_one_of_one(
    django_assert_num_queries: Any, tmp_path: Path
) -> None:
    many = [Line(product_id, 1) for product_id in sell(tmp_path, list(range(1, 101)))]

    with django_assert_num_queries(6):  # prices, savepoint, order and items, event, NOTIFY, release
        placed = place(*many)

    assert placed.total_cents == 5050
    assert [item.product_id for item in placed.items] == [line.product_id for line in many]
    found = find_order(placed.id)
    assert found is not None
    assert found.items == placed.items


def test_later_orders_have_greater_ids() -> None:
    ids = [place().id for _ in range(50)]

    assert ids == sorted(ids)


def test_contact_says_whom_to_tell_what_in_one_query(django_assert_num_queries: Any) -> None:
    ann, bob = place(customer_id="ann", email="ann@example.org"), place(customer_id="bob")
    Order.objects.filter(id=bob.id).update(status="cancelled")

    with django_assert_num_queries(1):
        contacts = contact([ann.id, bob.id.upper(), str(uuid4())])

    assert contacts == {
        ann.id: Contact("ann@example.org", "pending", 2598, "ann", "EUR"),
        bob.id: Contact("", "cancelled", 2598, "bob", "EUR"),
    }


def test_contact_of_no_orders_is_empty() -> None:
    assert contact([]) == {}


def test_a_page_filtered_by_status_looks_through_a_bounded_number_of_orders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "SCANNED_FOR_STATUS", 3)
    placed = [place().id for _ in range(7)]
    Order.objects.filter(id=placed[0]).update(status="confirmed")

    pages, cursor = [list_orders(status="confirmed", limit=2)], None
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(list_orders(status="confirmed", cursor=cursor, limit=2))

    assert [[order.id for order in page.orders] for page in pages] == [[], [], [placed[0]]]
    assert [page.next_cursor for page in pages] == [placed[4], placed[1], None]


def test_the_bounded_look_ends_where_the_orders_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SCANNED_FOR_STATUS", 3)
    for _ in range(3):
        place()

    assert list_orders(status="cancelled", limit=2) == queries.OrderPage([], None)
