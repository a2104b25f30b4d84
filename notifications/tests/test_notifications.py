"""Payment results become mails, on the real database and a real SMTP server."""

from typing import Any

import pytest
from django.core.management import load_command_class

from notifications.models import Notification
from notifications.tests.scene import (
    ADDRESS,
    NOW,
    Scene,
    failed,
    letters,
    nobody,
    order,
    resolve,
    rows,
    succeeded,
)
from shopmicro.messaging.handler import get_group

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_success_is_told_with_order_and_total(scene: Scene, settings: Any) -> None:
    settings.DEFAULT_FROM_EMAIL = "The shop <orders@shop.test>"
    shopper = order(total_cents=123_456_789, currency="CHF")
    scene.consume(succeeded(shopper, amount_cents=123_456_789))
    (mail,) = scene.mailbox.mails
    assert (mail["To"], mail["X-Envelope-To"], mail["From"]) == (
        ADDRESS,
        ADDRESS,
        "The shop <orders@shop.test>",
    )
    assert mail["Subject"] == f"Your order {shopper} is confirmed"
    assert mail["Message-ID"] == f"<{shopper}.confirmed@shop.test>"
    assert mail.get_content_type() == "text/plain"
    assert mail.get_content().splitlines() == [
        "Your order is confirmed: the payment succeeded.",
        "",
        f"Order: {shopper}",
        "Total: 1234567.89 CHF",
    ]
    row = Notification.objects.get()
    assert (row.state, row.recipient, row.sent_at, row.claimed_until) == ("sent", ADDRESS, NOW, None)


def test_a_failure_is_told_with_the_reason(scene: Scene) -> None:
    shopper = order(total_cents=100)
    scene.consume(failed(shopper, amount_cents=100, reason="zu teuer, 残念"))
    (mail,) = scene.mailbox.mails
    assert mail["Subject"] == f"Your order {shopper} is cancelled"
    assert mail.get_content().splitlines()[2:] == [
        f"Order: {shopper}",
        "Total: 1.00 EUR",
        "Reason: zu teuer, 残念",
    ]
    assert rows() == [("cancelled", "sent", f"{shopper}:payment")]


@pytest.mark.parametrize(("times", "records"), [(2, 500), (2, 1), (500, 500), (500, 90)])
def test_a_result_delivered_again_and_again_is_told_once(scene: Scene, times: int, records: int) -> None:
    shopper = order()
    scene.consume(*[succeeded(shopper)] * times, records=records)
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]
    assert (rows(), letters()) == ([("confirmed", "sent", f"{shopper}:payment")], [])


def test_a_second_success_under_another_id_is_not_told(scene: Scene) -> None:
    shopper = order()
    scene.consume(succeeded(shopper), succeeded(shopper, "another"))
    scene.consume(succeeded(shopper, "a-third"))
    assert len(scene.mailbox.mails) == 1
    assert rows() == [("confirmed", "sent", f"{shopper}:payment")]


def test_all_of_a_batch_are_told_each_its_own(scene: Scene) -> None:
    shoppers = [order(email=f"shopper-{number}@customers.test") for number in range(40)]
    scene.consume(*map(succeeded, shoppers))
    assert sorted((mail["To"], mail["Subject"]) for mail in scene.mailbox.mails) == sorted(
        (f"shopper-{number}@customers.test", f"Your order {shopper} is confirmed")
        for number, shopper in enumerate(shoppers)
    )


def test_an_order_without_address_is_recorded_and_not_told(scene: Scene) -> None:
    shopper = order(email="")
    scene.consume(succeeded(shopper), succeeded(shopper))
    assert (rows(), letters()) == ([("confirmed", "no_address", f"{shopper}:payment")], [])
    assert scene.mailbox.mails == []


def test_a_contradiction_of_a_final_state_is_recorded_as_suppressed(scene: Scene) -> None:
    shopper = order(status="confirmed")
    scene.consume(succeeded(shopper), failed(shopper, "late-failure-001"))
    scene.consume(failed(shopper, "late-failure-001"), failed(shopper, "late-failure-002", amount_cents=7))
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]
    assert sorted(rows()) == [
        ("cancelled", "suppressed", "late-failure-001"),
        ("confirmed", "sent", f"{shopper}:payment"),
    ]
    assert letters() == []


@pytest.mark.parametrize("records", [1, 2], ids=["in two batches", "in one batch"])
@pytest.mark.parametrize("first", ["confirmed", "cancelled"])
def test_of_two_contradicting_results_of_a_pending_order_the_first_is_told(
    scene: Scene, first: str, records: int
) -> None:
    shopper = order()
    results = {"confirmed": succeeded(shopper, "yes"), "cancelled": failed(shopper, "no")}
    opening = results.pop(first)
    (contradiction,) = results.values()
    scene.consume(opening, contradiction, opening, contradiction, records=records)
    assert scene.subjects() == [f"Your order {shopper} is {first}"]
    assert sorted((kind, state) for kind, state, _ in rows()) == sorted(
        [(first, "sent"), (*results, "suppressed")]
    )


def test_a_suppressed_result_does_not_block_a_later_one_that_is_true(scene: Scene) -> None:
    shopper = order()
    scene.consume(succeeded(shopper, "yes"), failed(shopper, "no"))
    resolve(shopper, "cancelled")
    scene.consume(failed(shopper, "no-indeed"))
    assert scene.subjects() == [f"Your order {shopper} is confirmed", f"Your order {shopper} is cancelled"]
    assert sorted(rows()) == [("cancelled", "sent", "no-indeed"), ("confirmed", "sent", "yes")]


def test_a_result_that_was_suppressed_and_comes_again_when_it_is_true_is_told(scene: Scene) -> None:
    shopper = order(status="confirmed")
    scene.consume(failed(shopper, "no"))
    assert (rows(), scene.mailbox.mails) == ([("cancelled", "suppressed", "no")], [])
    resolve(shopper, "cancelled")
    scene.consume(failed(shopper, "no"))
    assert rows() == [("cancelled", "sent", "no")]
    assert scene.subjects() == [f"Your order {shopper} is cancelled"]


def test_a_result_older_than_the_limit_is_recorded_and_not_told(scene: Scene) -> None:
    old, recent = order(status="confirmed"), order()
    scene.consume(
        succeeded(old, occurred_at="2026-07-13T09:15:39Z"),
        succeeded(recent, occurred_at="2026-07-13T09:15:40Z"),
    )
    assert scene.subjects() == [f"Your order {recent} is confirmed"]
    assert sorted(rows()) == sorted(
        [("confirmed", "too_old", f"{old}:payment"), ("confirmed", "sent", f"{recent}:payment")]
    )


def test_what_contradicts_an_old_result_of_a_pending_order_is_suppressed(scene: Scene) -> None:
    shopper = order()
    scene.consume(succeeded(shopper, "yes", occurred_at="2026-01-01T00:00:00Z"), failed(shopper, "no"))
    assert scene.mailbox.mails == []
    assert sorted(rows()) == [("cancelled", "suppressed", "no"), ("confirmed", "too_old", "yes")]


def test_another_amount_than_the_total_is_parked_while_the_order_is_pending(scene: Scene) -> None:
    shopper = order()
    scene.consume(succeeded(shopper, "little", amount_cents=1))
    reason = f"1 cents were paid, the total of order {shopper} is 2598"
    assert letters() == [("parked", "amount_differs", reason)]
    assert (rows(), scene.mailbox.mails) == ([], [])
    scene.consume(succeeded(shopper, "all"))
    assert rows() == [("confirmed", "sent", "all")]


def test_another_amount_than_the_total_is_nothing_to_tell_once_the_order_is_resolved(scene: Scene) -> None:
    shopper = order(status="confirmed")
    scene.consume(succeeded(shopper, amount_cents=1))
    assert (rows(), letters(), scene.mailbox.mails) == ([], [], [])


def test_a_result_of_an_order_that_is_not_there_yet_is_told_when_it_is(scene: Scene) -> None:
    late, shopper = nobody(), order()
    scene.consume(succeeded(late), succeeded(shopper))
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]
    assert letters() == [("retrying", "unknown_order", f"there is no order {late} yet")]
    order(order_id=late)
    scene.retry()
    assert scene.subjects()[1:] == [f"Your order {late} is confirmed"]
    assert letters()[0][0] == "replayed"


def test_a_result_of_an_order_that_never_comes_is_parked(scene: Scene) -> None:
    unknown = nobody()
    scene.consume(succeeded(unknown))
    scene.retry()
    scene.retry()
    assert letters() == [("parked", "unknown_order", f"there is no order {unknown} yet")]
    assert (rows(), scene.mailbox.mails) == ([], [])


def test_other_events_of_payments_are_passed_over(scene: Scene) -> None:
    scene.consume(succeeded(order()).replace(b"payment.succeeded", b"payment.refunded"))
    assert (rows(), letters(), scene.mailbox.mails) == ([], [], [])


def test_the_command_runs_a_registered_group() -> None:
    command = load_command_class("notifications", "runnotifications")
    assert get_group(command.group).topics == ("payments",)
