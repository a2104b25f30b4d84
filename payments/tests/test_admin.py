"""Payments in the admin."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from payments.operations import NewOrder, start_payments
from payments.tests.scene import new_order

pytestmark = pytest.mark.django_db(transaction=True)
TABLE = 'FROM "payments"'
LIST = "/admin/payments/payment/"


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ann"))
    return client


def test_payments_are_listed_without_counting_them_all(admin: Client) -> None:
    order = new_order()
    start_payments(orders=[NewOrder(order, order, 123_456)])
    with CaptureQueriesContext(connection) as queries:
        page = admin.get(LIST)
    assert page.status_code == 200
    assert "1,234.56 EUR" in page.text
    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"] and TABLE in query["sql"]]
    assert counts
    assert all("LIMIT 10000" in count for count in counts)


def test_a_payment_is_found_by_the_whole_id_of_its_order_and_by_nothing_else(admin: Client) -> None:
    order, other = new_order(), new_order()
    start_payments(orders=[NewOrder(name, name, 1) for name in (order, other)])
    found = admin.get(LIST, {"q": order.upper()}).text
    assert (order in found, other in found) == (True, False)
    for term in (order[:8], "x" * 6000, "'"):
        page = admin.get(LIST, {"q": term})
        assert (page.status_code, order in page.text) == (200, False)


def test_a_payment_can_be_looked_at_and_not_changed(admin: Client) -> None:
    order = new_order()
    payment = start_payments(orders=[NewOrder(order, order, 1)])[order]
    page = f"{LIST}{payment.pk}/change/"
    assert order in admin.get(page).text
    assert admin.post(page, {"amount_cents": 2}).status_code == 403
    assert admin.post(f"{LIST}{payment.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin.get(f"{LIST}add/").status_code == 403
    payment.refresh_from_db()
    assert payment.amount_cents == 1
