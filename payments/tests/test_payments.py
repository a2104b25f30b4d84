"""New orders become payments, on the real database, with a gateway that counts."""

from typing import Any

import pytest
from django.core.management import load_command_class
from django.db import IntegrityError, connection
from django.db.transaction import TransactionManagementError

from payments.gateway import Charge, LimitGateway, configured_gateway
from payments.models import Payment
from payments.operations import NewOrder, record_results, start_payments
from payments.tests.scene import (
    NOW,
    CountingGateway,
    Scene,
    approved,
    created,
    letters,
    new_order,
    payments,
    told,
)
from shopmicro.messaging.handler import get_group

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_order_within_the_limit_is_paid_and_told_of_once(scene: Scene) -> None:
    order = new_order()
    scene.consume(created(order, 100_000))
    assert payments() == [(order, 100_000, "succeeded", "")]
    assert told() == [approved(order, 100_000)]
    payment = Payment.objects.get()
    assert (payment.event_id, payment.reference) == (f"{order}:payment", f"limit:{order}")
    assert (payment.currency, payment.updated_at) == ("EUR", NOW)


def test_an_order_over_the_limit_is_declined_with_the_reason(scene: Scene) -> None:
    order = new_order()
    scene.consume(created(order, 100_001))
    assert payments() == [(order, 100_001, "failed", "amount exceeds limit")]
    payload = {"order_id": order, "amount_cents": 100_001, "reason": "amount exceeds limit"}
    assert told() == [(f"{order}:payment", "payment.failed", payload)]


@pytest.mark.parametrize(("times", "records"), [(1, 500), (2, 500), (2, 1), (500, 500), (500, 90)])
def test_an_order_delivered_again_and_again_is_charged_once(
    scene: Scene, gateway: CountingGateway, times: int, records: int
) -> None:
    order = new_order()
    scene.consume(*[created(order)] * times, records=records)
    assert gateway.asked == {order: 1}
    assert (payments(), told()) == ([(order, 2598, "succeeded", "")], [approved(order)])
    assert letters() == []


def test_an_id_in_upper_case_is_the_same_order(scene: Scene, gateway: CountingGateway) -> None:
    order = new_order()
    scene.consume(created(order.upper()), created(order))
    assert gateway.asked == {order: 1}
    assert told() == [approved(order)]


def test_orders_of_one_batch_are_paid_in_its_order_whatever_their_ids(scene: Scene) -> None:
    orders = [new_order() for _ in range(300)]
    scene.consume(*[created(order, 1 + place) for place, order in enumerate(orders)])
    assert told() == [approved(order, 1 + place) for place, order in enumerate(orders)]


def test_the_intent_is_committed_before_the_gateway_is_asked(scene: Scene) -> None:
    seen: list[Any] = []

    class LookingGateway:
        def charge(self, *, idempotency_key: str, **facts: Any) -> Charge:
            seen.extend(Payment.objects.values_list("event_id", "status"))
            connection.close()
            return Charge(approved=True)

    scene.gateway = LookingGateway()
    order = new_order()
    scene.consume(created(order))
    assert seen == [(f"{order}:payment", "started")]
    assert payments() == [(order, 2598, "succeeded", "")]


def test_results_are_recorded_in_a_transaction_only() -> None:
    order = NewOrder(*[new_order()] * 2, 2598)
    start_payments(orders=[order])
    with pytest.raises(TransactionManagementError):
        record_results(results=[(order, Charge(approved=True))], now=NOW)
    assert (payments(), told()) == ([(order.order_id, 2598, "started", "")], [])


def test_the_currency_of_the_intent_is_asked_for_again(
    scene: Scene, gateway: CountingGateway, settings: Any
) -> None:
    order = new_order()
    start_payments(orders=[NewOrder(order, order, 2598)])
    settings.CURRENCY = "CHF"
    scene.consume(created(order))
    assert gateway.charges == {order: (order, 2598, "EUR")}


@pytest.mark.parametrize("is_settled", [False, True])
def test_another_amount_for_the_same_order_is_parked_and_not_charged(
    scene: Scene, gateway: CountingGateway, is_settled: bool
) -> None:
    order = new_order()
    gateway.away = set() if is_settled else {order}
    scene.consume(created(order, 2598))
    gateway.away = set()
    stood = payments(), told(), gateway.asked.copy()
    scene.consume(created(order, 2599))
    assert (payments(), told(), gateway.asked) == stood
    reason = f"the payment of order {order} is of 2598 cents, not of 2599"
    assert letters()[-1] == ("parked", "amount_differs", reason)


def test_another_amount_in_the_same_batch_is_parked_and_the_first_is_charged(scene: Scene) -> None:
    order = new_order()
    scene.consume(created(order, 2598), created(order, 1), created(order, 2598))
    assert told() == [approved(order)]
    reason = f"the payment of order {order} is of 2598 cents, not of 1"
    assert letters() == [("parked", "amount_differs", reason)]


def test_a_reason_of_the_gateway_that_no_event_may_carry_is_made_one_that_may(scene: Scene) -> None:
    class TalkativeGateway:
        def charge(self, **facts: Any) -> Charge:
            return Charge(approved=False, reason="no\0 \ud800" + "x" * 600, reference="r" * 600)

    scene.gateway = TalkativeGateway()
    scene.consume(created(new_order()))
    ((_, kind, payload),) = told()
    assert (kind, payload["reason"]) == ("payment.failed", "no ?" + "x" * 496)


def changed_payload(order: str, **changed: Any) -> bytes:
    payload = {"order_id": order, "customer_id": "cust-1", "amount_cents": 2598, "items": []} | changed
    return created(order, payload=payload)


OTHER = "0198c0de-0000-7000-8000-00000000000b"
AMOUNT = "amount_cents is not an integer from 1 to 9223372036854775807"
BROKEN = {
    "order_id of another order": ({"order_id": OTHER}, "payload.order_id is not the aggregate_id"),
    "order_id that is no UUID": (
        {"order_id": "{" + OTHER + "}"},
        "order_id is no UUID of the form 8-4-4-4-12",
    ),
    "order_id that is no text": ({"order_id": 7}, "order_id is not a string"),
    "amount null": ({"amount_cents": None}, AMOUNT),
    "amount 0": ({"amount_cents": 0}, AMOUNT),
    "amount -1": ({"amount_cents": -1}, AMOUNT),
    "amount true": ({"amount_cents": True}, AMOUNT),
    "amount a text": ({"amount_cents": "100"}, AMOUNT),
    "amount 1.0": ({"amount_cents": 1.0}, AMOUNT),
    "amount 2**63": ({"amount_cents": 2**63}, AMOUNT),
}


@pytest.mark.parametrize(("changed", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_payload_is_parked_with_its_reason_and_the_next_order_is_paid(
    scene: Scene, gateway: CountingGateway, changed: dict[str, Any], reason: str
) -> None:
    good = new_order()
    scene.consume(changed_payload(new_order(), **changed), created(good))
    assert letters() == [("parked", "malformed", reason)]
    assert (told(), gateway.asked) == ([approved(good)], {good: 1})


def test_an_id_that_is_not_the_aggregate_is_parked(scene: Scene, gateway: CountingGateway) -> None:
    scene.consume(created(new_order(), id="something-else"))
    assert letters() == [("parked", "malformed", "the id of an order.created is not its aggregate_id")]
    assert (payments(), gateway.asked) == ([], {})


def test_the_largest_amount_is_an_amount(scene: Scene) -> None:
    order = new_order()
    scene.consume(created(order, 2**63 - 1))
    assert payments() == [(order, 2**63 - 1, "failed", "amount exceeds limit")]


def test_other_events_of_orders_are_passed_over(scene: Scene, gateway: CountingGateway) -> None:
    scene.consume(created(new_order(), type="order.confirmed"), created(new_order(), type="order.archived"))
    assert (payments(), letters(), gateway.asked) == ([], [], {})


def test_a_record_without_a_key_is_paid(scene: Scene) -> None:
    order = new_order()
    scene.produce(created(order), key=None)
    scene.consume()
    assert told() == [approved(order)]


def test_the_built_in_gateway_follows_the_settings(settings: Any) -> None:
    settings.PAYMENT_LIMIT_CENTS = 7
    assert configured_gateway() == LimitGateway(7)


def test_the_command_runs_a_registered_group() -> None:
    command = load_command_class("payments", "runpayments")
    assert get_group(command.group).topics == ("orders",)


def test_the_database_holds_no_second_payment_of_an_order() -> None:
    facts = {"order_id": new_order(), "event_id": "e", "amount_cents": 1, "currency": "EUR"}
    Payment.objects.create(**facts)
    with pytest.raises(IntegrityError, match="payments_order_unique"):
        Payment.objects.create(**facts)
    assert Payment.objects.count() == 1
