"""The walk of the contract, with Kafka's own console producer."""

from shopmicro.embedded.kafka import KafkaServer
from tests.journeys.shop import Shop, payment
from tests.servers import eventually


def test_the_walk_holds_word_for_word(shop: Shop, kafka_server: KafkaServer) -> None:
    order = shop.place()
    eventually(lambda: shop.request("GET", f"/v1/orders/{order}")[1]["status"] == "ORDER_STATUS_CONFIRMED")

    again = payment(order).decode()
    kafka_server.console_producer(shop.prefix + "payments", [again])
    shop.wait_for_no_lag("order-saga", "payments")
    assert shop.status(order) == "confirmed"
    assert shop.processed(f"{order}:payment") == [f"{order}:payment"]
    assert shop.outbox(order) == [f"{order}:confirmed"]

    late = payment(
        order, f"late-failure-{order}", succeeded=False, occurred_at="2026-07-14T09:20:00Z"
    ).decode()
    kafka_server.console_producer(shop.prefix + "payments", [late])
    eventually(lambda: shop.processed(f"late-failure-{order}"))
    assert shop.status(order) == "confirmed"
    assert shop.outbox(order) == [f"{order}:confirmed"]
