"""An order's life through HTTP, the outbox, Kafka and the workers."""

from tests.journeys.shop import Shop, payment
from tests.servers import eventually


def test_a_small_order_ends_confirmed(shop: Shop) -> None:
    order = shop.place()
    eventually(lambda: shop.is_resolved(order))
    status, body = shop.request("GET", f"/v1/orders/{order}")
    assert (status, body["status"], body["total_cents"]) == (200, "ORDER_STATUS_CONFIRMED", 2598)
    assert shop.outbox(order) == [f"{order}:confirmed"]
    assert shop.rows("SELECT status, amount_cents FROM payments WHERE order_id = %s", order) == [
        ("succeeded", 2598)
    ]


def test_an_order_over_the_limit_ends_cancelled_with_the_reason(shop: Shop) -> None:
    order = shop.place(quantity=77)
    eventually(lambda: shop.is_resolved(order))
    status, body = shop.request("GET", f"/v1/orders/{order}")
    assert (status, body["status"], body["total_cents"]) == (200, "ORDER_STATUS_CANCELLED", 100_023)
    assert body["reason"] == "amount exceeds limit"
    assert shop.outbox(order) == [f"{order}:cancelled"]


def test_a_late_failure_leaves_a_confirmed_order_confirmed(shop: Shop) -> None:
    order = shop.place()
    eventually(lambda: shop.is_resolved(order))
    shop.produce("payments", [payment(order, f"late-{order}", succeeded=False)])
    eventually(lambda: shop.processed(f"late-{order}"))
    assert (shop.status(order), shop.outbox(order)) == ("confirmed", [f"{order}:confirmed"])


def test_the_customer_is_told_once_what_became_of_the_order(shop: Shop) -> None:
    order = shop.place(email="ada@example.org")
    eventually(lambda: shop.rows("SELECT 1 FROM notifications WHERE order_id = %s AND state = 'sent'", order))
    shop.produce("payments", [payment(order)] * 2)
    shop.wait_for_no_lag("notifications", "payments")
    assert shop.rows("SELECT kind, state FROM notifications WHERE order_id = %s", order) == [
        ("confirmed", "sent")
    ]


def test_the_events_of_an_order_are_on_its_topics_once_and_in_order(shop: Shop) -> None:
    order = shop.place()
    eventually(lambda: shop.is_resolved(order))
    query = """
        SELECT event_id, topic, partition IS NOT NULL, attempts
        FROM outbox WHERE aggregate_id = %s ORDER BY id"""
    unpublished = "SELECT 1 FROM outbox WHERE aggregate_id = %s AND published_at IS NULL"
    eventually(lambda: not shop.rows(unpublished, order))
    assert shop.rows(query, order) == [
        (order, "orders", True, 0),
        (f"{order}:payment", "payments", True, 0),
        (f"{order}:confirmed", "orders", True, 0),
    ]
