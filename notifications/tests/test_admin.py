"""Notifications in the admin."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from notifications.models import Notification
from notifications.tests.scene import ADDRESS, NOW, nobody

pytestmark = pytest.mark.django_db
TABLE = 'FROM "notifications"'
LIST = "/admin/notifications/notification/"


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ann"))
    return client


def told(order_id: str) -> Notification:
    return Notification.objects.create(
        order_id=order_id,
        kind="confirmed",
        state="sent",
        event_id="yes",
        recipient=ADDRESS,
        updated_at=NOW,
        sent_at=NOW,
    )


def test_notifications_are_listed_without_addresses_and_without_counting_them_all(admin: Client) -> None:
    order = nobody()
    told(order)
    with CaptureQueriesContext(connection) as queries:
        page = admin.get(LIST)
    assert (order in page.text, ADDRESS in page.text) == (True, False)
    counts = [
        query["sql"] for query in queries if "COUNT(" in query["sql"] and "notifications" in query["sql"]
    ]
    assert counts
    assert all("LIMIT 10000" in count for count in counts)


def test_a_notification_is_found_by_the_whole_id_of_its_order_and_by_nothing_else(admin: Client) -> None:
    order, other = nobody(), nobody()
    told(order)
    told(other)
    found = admin.get(LIST, {"q": order.upper()}).text
    assert (order in found, other in found) == (True, False)
    for term in (order[:8], ADDRESS, "'"):
        page = admin.get(LIST, {"q": term})
        assert (page.status_code, order in page.text) == (200, False)


def test_a_notification_can_be_looked_at_and_not_changed(admin: Client) -> None:
    row = told(nobody())
    page = f"{LIST}{row.pk}/change/"
    assert ADDRESS in admin.get(page).text
    assert admin.post(page, {"state": "sending"}).status_code == 403
    assert admin.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin.get(f"{LIST}add/").status_code == 403
