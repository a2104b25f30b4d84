"""Gateways that are away, crashes between two steps, workers that do the same at once."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from payments.gateway import Charge
from payments.handlers import payment_processor
from payments.operations import NewOrder, judge_orders, record_results, start_payments
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
from shopmicro.messaging.handler import APPLIED, DUPLICATE

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_crash_between_charge_and_record_charges_once_and_tells_once(
    scene: Scene, gateway: CountingGateway
) -> None:
    order = new_order()
    group = payment_processor(lambda: gateway)
    (call,) = group.prepare([NewOrder(order, order, 2598)])
    assert call() == Charge(True, reference=f"limit:{order}")
    assert (payments(), told()) == ([(order, 2598, "started", "")], [])
    scene.consume(created(order))
    assert gateway.asked == {order: 2}
    assert gateway.charges == {order: (order, 2598, "EUR")}
    assert (payments(), told()) == ([(order, 2598, "succeeded", "")], [approved(order)])


def test_a_record_that_does_not_commit_leaves_the_payment_open_and_tells_nothing() -> None:
    order = NewOrder(*[new_order()] * 2, 2598)
    start_payments(orders=[order])
    with transaction.atomic():
        assert record_results(results=[(order, Charge(approved=True))], now=NOW) == [APPLIED]
        transaction.set_rollback(True)
    assert (payments(), told()) == ([(order.order_id, 2598, "started", "")], [])


def test_an_order_whose_gateway_is_away_is_tried_again_and_the_others_are_paid(
    scene: Scene, gateway: CountingGateway
) -> None:
    before, order, after = new_order(), new_order(), new_order()
    gateway.away = {order}
    scene.consume(created(before), created(order), created(after))
    assert told() == [approved(before), approved(after)]
    assert letters() == [("retrying", "gateway_unavailable", "no answer within 5 s")]
    gateway.away = set()
    scene.retry()
    assert told() == [approved(before), approved(after), approved(order)]
    assert letters()[0][0] == "replayed"
    assert gateway.asked == {before: 1, order: 2, after: 1}


def test_an_answer_that_got_lost_is_asked_for_again_and_not_taken_for_a_decline(
    scene: Scene, gateway: CountingGateway
) -> None:
    order = new_order()
    gateway.lost = {order}
    scene.consume(created(order))
    assert (payments(), told()) == ([(order, 2598, "started", "")], [])
    gateway.lost = set()
    scene.retry()
    assert len(gateway.charges) == 1
    assert (payments(), told()) == ([(order, 2598, "succeeded", "")], [approved(order)])


def test_an_order_whose_gateway_stays_away_is_parked_with_its_payment_open(
    scene: Scene, gateway: CountingGateway
) -> None:
    order = new_order()
    gateway.away = {order}
    scene.consume(created(order))
    for _ in range(3):
        scene.retry()
    assert letters() == [("retrying", "gateway_unavailable", "no answer within 5 s")]
    scene.retry()
    assert letters() == [("parked", "gateway_unavailable", "no answer within 5 s")]
    assert (payments(), told()) == ([(order, 2598, "started", "")], [])


def test_a_gateway_that_breaks_sets_aside_only_the_order_that_it_broke_on(scene: Scene) -> None:
    class BreakingGateway:
        def charge(self, *, amount_cents: int, **facts: Any) -> Charge:
            return Charge(approved=bool(1 / (amount_cents - 13)))

    scene.gateway = BreakingGateway()
    good = new_order()
    scene.consume(created(new_order(), 13), created(good))
    assert told() == [approved(good)]
    assert letters() == [("retrying", "gateway_broke", "ZeroDivisionError: division by zero")]


def test_a_letter_of_an_order_that_was_paid_meanwhile_charges_nothing(
    scene: Scene, gateway: CountingGateway
) -> None:
    order = new_order()
    gateway.away = {order}
    scene.consume(created(order))
    gateway.away = set()
    scene.consume(created(order))
    scene.retry()
    assert gateway.asked == {order: 2}
    assert told() == [approved(order)]
    assert letters()[0][0] == "replayed"


def test_an_amount_that_another_worker_began_meanwhile_stands_and_is_not_charged_by_us(
    gateway: CountingGateway,
) -> None:
    order = new_order()
    group = payment_processor(lambda: gateway)
    ours = [NewOrder(order, order, 2599)]
    assert group.admit(ours) == [None]
    start_payments(orders=[NewOrder(order, order, 2598)])
    answers = [call() for call in group.prepare(ours)]
    with transaction.atomic():
        (outcome,) = group.apply(ours, answers)
    assert (outcome.error, gateway.asked, told()) == ("amount_differs", {}, [])


def test_a_payment_that_another_worker_settled_meanwhile_is_not_charged_and_not_told_again(
    scene: Scene, gateway: CountingGateway
) -> None:
    order = new_order()
    ours = [NewOrder(order, order, 2598)]
    assert judge_orders(orders=ours) == [None]
    scene.consume(created(order))
    group = payment_processor(lambda: gateway)
    answers = [call() for call in group.prepare(ours)]
    with transaction.atomic():
        assert group.apply(ours, answers) == [DUPLICATE]
    assert (gateway.asked, told()) == ({order: 1}, [approved(order)])


def test_two_workers_with_the_same_orders_at_once_pay_and_tell_each_once() -> None:
    orders = sorted(new_order() for _ in range(40))
    batches = [[NewOrder(order, order, 2598) for order in part] for part in (orders, orders[::-1])]
    both_charged = threading.Barrier(2)
    gateway = CountingGateway()
    outcomes: list[Any] = []

    def work(batch: Sequence[NewOrder]) -> None:
        group = payment_processor(lambda: gateway)
        answers = [call() for call in group.prepare(batch)]
        both_charged.wait(30)
        with transaction.atomic():
            outcomes.extend(group.apply(batch, answers))
        connection.close()

    workers = [threading.Thread(target=work, args=[batch]) for batch in batches]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert Counter(outcomes) == {APPLIED: 40, DUPLICATE: 40}
    assert len(gateway.charges) == 40
    assert sorted(told()) == [approved(order) for order in orders]
    assert {status for _, _, status, _ in payments()} == {"succeeded"}


def test_calls_of_one_batch_run_side_by_side(scene: Scene, gateway: CountingGateway) -> None:
    gateway.meet = threading.Barrier(4)
    orders = [new_order() for _ in range(4)]
    scene.consume(*map(created, orders))
    assert not gateway.meet.broken
    assert told() == [approved(order) for order in orders]


def test_rows_are_taken_in_the_order_of_their_orders_ids() -> None:
    orders = [NewOrder(*[new_order()] * 2, 2598) for _ in range(3)]
    with CaptureQueriesContext(connection) as queries:
        start_payments(orders=orders)
        with transaction.atomic():
            record_results(results=[(order, Charge(approved=True)) for order in orders], now=NOW)
    statements = [query["sql"].strip() for query in queries]
    (insert,) = [sql for sql in statements if sql.startswith("INSERT INTO payments")]
    (lock,) = [sql for sql in statements if sql.endswith("FOR UPDATE")]
    assert "ORDER BY order_id\nON CONFLICT" in insert
    assert 'ORDER BY "payments"."order_id" ASC FOR UPDATE' in lock
