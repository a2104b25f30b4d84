"""The lists of the machinery's own rows."""

from datetime import UTC, datetime

import pytest
from django.db import transaction
from django.test import Client

from shopmicro.messaging.event import Event
from shopmicro.messaging.models import DeadLetter, OutboxEvent
from shopmicro.messaging.outbox import publish

ORDER = "0198c0de-0000-7000-8000-00000000000a"
OTHER = "0198c0de-0000-7000-8000-00000000000b"
NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _rows() -> None:
    with transaction.atomic():
        publish("orders", [Event(f"{order}:x", "order.created", order, {}, NOW) for order in (ORDER, OTHER)])
    DeadLetter.objects.create(
        consumer_group="order-saga",
        topic="payments",
        topic_id="t",
        partition=0,
        offset=7,
        state="parked",
        error="malformed",
        reason="the value is not UTF-8 JSON",
        aggregate_id=ORDER,
        value=b"\xff<script>",
        headers=b"[]",
    )


def page(client: Client, path: str) -> str:
    answer = client.get(f"/admin/messaging/{path}")
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("term", [ORDER, ORDER.upper(), f" {ORDER}:x "])
def test_an_outbox_row_is_found_by_its_order_and_by_its_event(admin_client: Client, term: str) -> None:
    found = page(admin_client, f"outboxevent/?q={term}")
    assert f"{ORDER}:x" in found
    assert f"{OTHER}:x" not in found


@pytest.mark.parametrize("query", ["q=no-such", "failing_since__isempty=0", "published_at__isempty=0"])
def test_what_is_not_there_is_not_found(admin_client: Client, query: str) -> None:
    assert f"{ORDER}:x" not in page(admin_client, f"outboxevent/?{query}")


def test_a_dead_letter_shows_where_it_lies_and_what_it_holds_escaped(admin_client: Client) -> None:
    letter = DeadLetter.objects.get()
    assert "payments[0]@7" in page(admin_client, "deadletter/?state__exact=parked")
    shown = page(admin_client, f"deadletter/{letter.id}/change/")
    assert "\\xff&lt;script&gt;" in shown
    assert "<script>\\xff" not in shown


@pytest.mark.parametrize("path", ["outboxevent", "deadletter"])
def test_nothing_can_be_added_changed_or_deleted(admin_client: Client, path: str) -> None:
    row = (OutboxEvent if path == "outboxevent" else DeadLetter).objects.first()
    assert row is not None
    for door in ("add/", f"{row.pk}/delete/"):
        assert admin_client.get(f"/admin/messaging/{path}/{door}").status_code == 403
    assert admin_client.post(f"/admin/messaging/{path}/{row.pk}/change/", {}).status_code == 403


@pytest.mark.parametrize(
    "path", ["messaging/outboxevent/?q=%00", "messaging/deadletter/?state__exact=%00", "auth/group/?name=%00"]
)
def test_nul_in_a_query_is_the_askers_mistake(admin_client: Client, path: str) -> None:
    assert admin_client.get(f"/admin/{path}").status_code == 400


def test_a_column_that_is_no_filter_cannot_be_filtered_by(admin_client: Client) -> None:
    assert admin_client.get("/admin/messaging/outboxevent/?payload__contains=x").status_code == 400


@pytest.mark.parametrize("path", ["", "login/", "messaging/outboxevent/"])
def test_nul_in_a_cookie_is_the_askers_mistake(client: Client, path: str) -> None:
    assert client.get(f"/admin/{path}", headers={"cookie": 'sessionid="aaaaaaaaaa\\000"'}).status_code == 400
