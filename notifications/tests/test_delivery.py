"""Mail servers that are away, refuse or repeat; workers that die; texts that would be headers."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from notifications.gateway import MailRefused, send, write_cancelled
from notifications.handlers import notifier
from notifications.models import Notification
from notifications.operations import record_deliveries
from notifications.tests.scene import (
    ADDRESS,
    NOW,
    Scene,
    failed,
    letters,
    order,
    resolve,
    rows,
    succeeded,
)
from payments.events import PaymentResult
from shopmicro.messaging.handler import APPLIED, Kind, Outcome
from tests.servers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def success(order_id: str, event_id: str = "yes") -> PaymentResult:
    return PaymentResult(event_id, order_id, 2598, True, "", NOW)


def failure(order_id: str, event_id: str = "no") -> PaymentResult:
    return success(order_id, event_id)._replace(succeeded=False, reason="no money")


def work(scene: Scene, results: Sequence[PaymentResult]) -> list[Outcome]:
    """Take results through the steps, as a batch does."""
    group = notifier(lambda: scene.now)
    answers = []
    for call in group.prepare(results):
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001 - so does the consumer
            answers.append(error)
    with transaction.atomic():
        return list(group.apply(results, answers))


def test_a_mail_server_that_is_down_delays_its_mails_and_each_is_sent_once(scene: Scene) -> None:
    scene.smtp.stop()
    shopper, silent = order(), order(email="")
    scene.consume(succeeded(shopper), succeeded(silent))
    assert letters() == [
        ("retrying", "mail_unavailable", "ConnectionRefusedError: Connection refused"),
    ]
    row = Notification.objects.get(order_id=shopper)
    assert (row.state, row.error, row.claimed_until) == (
        "sending",
        "ConnectionRefusedError: Connection refused",
        None,
    )
    scene.smtp.start(scene.mailbox)
    scene.retry()
    scene.retry()
    scene.consume(succeeded(shopper))
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]
    row.refresh_from_db()
    assert (row.state, row.error, row.sent_at) == ("sent", "", NOW + timedelta(seconds=60))
    assert [state for state, _, _ in letters()] == ["replayed"]


def test_a_mail_that_waited_for_its_server_is_not_too_old(scene: Scene, settings: Any) -> None:
    settings.NOTIFY_MAX_AGE = timedelta(seconds=30)
    scene.smtp.stop()
    shopper = order()
    scene.consume(succeeded(shopper))
    scene.smtp.start(scene.mailbox)
    scene.retry(3600)
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]


def test_a_mail_that_waited_until_it_was_no_longer_true_is_suppressed(scene: Scene) -> None:
    scene.smtp.stop()
    shopper = order()
    scene.consume(succeeded(shopper))
    resolve(shopper, "cancelled")
    scene.smtp.start(scene.mailbox)
    scene.retry()
    assert (rows(), scene.mailbox.mails) == ([("confirmed", "suppressed", f"{shopper}:payment")], [])


def test_a_server_that_says_later_is_asked_again(scene: Scene) -> None:
    scene.mailbox.answers = [f"451 4.7.1 <{ADDRESS}>: greylisted"]
    shopper = order()
    scene.consume(succeeded(shopper))
    assert letters() == [("retrying", "mail_unavailable", "SMTPRecipientsRefused 451 4.7.1")]
    scene.retry()
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]


def test_a_refused_recipient_is_parked_and_no_address_is_told(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    scene.mailbox.answers = [f"550 5.1.1 <{ADDRESS}>: no such user"]
    refused, shopper = order(), order(email="bob@customers.test")
    scene.consume(succeeded(refused))
    scene.consume(succeeded(shopper))
    assert letters() == [("parked", "mail_refused", "SMTPRecipientsRefused 550 5.1.1")]
    assert Notification.objects.get(order_id=refused).error == "SMTPRecipientsRefused 550 5.1.1"
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]
    assert "customers.test" not in "".join(capfd.readouterr())


def test_refused_content_is_parked_and_a_replay_sends_it(scene: Scene) -> None:
    scene.mailbox.data_answer = f"554 5.7.1 {ADDRESS} says it is spam"
    shopper = order()
    scene.consume(succeeded(shopper))
    assert letters() == [("parked", "mail_refused", "SMTPDataError 554 5.7.1")]
    scene.mailbox.data_answer = "250 taken"
    scene.consume(succeeded(shopper))
    assert rows() == [("confirmed", "sent", f"{shopper}:payment")]


def test_a_text_that_is_no_address_is_parked(scene: Scene) -> None:
    scene.consume(succeeded(order(email="ann@customers.test\r\nBcc: all@customers.test")))
    assert letters() == [("parked", "mail_refused", "the order's address is no mail address")]
    assert scene.mailbox.mails == []


def test_a_reason_with_line_breaks_forges_neither_headers_nor_lines(scene: Scene) -> None:
    shopper = order()
    reason = "no\r\nBcc: all@customers.test\r\n\r\n.\r\nTotal: 0.00\u2028EUR\x1b[2J\x85"
    scene.consume(failed(shopper, reason=reason))
    (mail,) = scene.mailbox.mails
    assert (mail["Bcc"], mail["X-Envelope-To"]) == (None, ADDRESS)
    assert mail.get_content().splitlines()[2:] == [
        f"Order: {shopper}",
        "Total: 25.98 EUR",
        "Reason: no Bcc: all@customers.test . Total: 0.00 EUR [2J",
    ]


def test_an_address_is_never_in_what_an_error_says() -> None:
    facts = {"order_id": "x", "total_cents": 1, "currency": "EUR", "reason": "no"}
    with pytest.raises(MailRefused) as caught:
        send(write_cancelled(**facts, recipient="secret name@customers.test"))
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


class PartsBadly:
    """Takes a mail and answers the goodbye with a line that is too long for any client."""

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails = [*getattr(self, "mails", []), envelope]
        return "250 taken"

    async def handle_QUIT(self, server: Any, session: Any, envelope: Any) -> str:
        return "221 " + "x" * 9000


def test_a_server_that_parts_badly_from_us_has_the_mail_all_the_same(scene: Scene) -> None:
    server = PartsBadly()
    scene.smtp.stop()
    scene.smtp.start(server)
    scene.consume(succeeded(order()))
    assert len(server.mails) == 1
    assert ([state for _, state, _ in rows()], letters()) == (["sent"], [])


def test_a_crash_after_the_mail_repeats_it_under_the_same_name_once_the_claim_has_run_out(
    scene: Scene,
) -> None:
    shopper = order()
    (call,) = notifier(lambda: NOW).prepare([success(shopper)])
    assert call() == APPLIED
    assert rows() == [("confirmed", "sending", "yes")]
    scene.consume(succeeded(shopper, "yes"))
    assert [error for _, error, _ in letters()] == ["being_sent"]
    assert len(scene.mailbox.mails) == 1
    scene.retry()
    scene.retry()
    first, second = scene.mailbox.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert rows() == [("confirmed", "sent", "yes")]


def test_a_crash_before_the_mail_does_not_lose_it(scene: Scene) -> None:
    shopper = order()
    assert len(notifier(lambda: NOW).prepare([success(shopper)])) == 1
    scene.consume(succeeded(shopper, "yes"))
    scene.retry()
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]


def test_a_mail_that_was_sent_is_recorded_as_sent_whatever_was_judged_meanwhile(scene: Scene) -> None:
    shopper = order()
    slow = notifier(lambda: NOW)
    answers = [call() for call in slow.prepare([success(shopper)])]
    scene.now += timedelta(seconds=60)
    resolve(shopper, "cancelled")
    assert [outcome.kind for outcome in work(scene, [success(shopper)])] == [Kind.SUPPRESSED]
    with transaction.atomic():
        assert slow.apply([success(shopper)], answers) == [APPLIED]
    assert rows() == [("confirmed", "sent", "yes")]


def test_a_failure_that_is_recorded_late_does_not_undo_what_another_worker_did(scene: Scene) -> None:
    shopper = order()
    assert work(scene, [success(shopper)]) == [APPLIED]
    with transaction.atomic():
        record_deliveries(deliveries=[(success(shopper), "no answer")], now=NOW)
    row = Notification.objects.get()
    assert (row.state, row.error, row.sent_at) == ("sent", "", NOW)


@pytest.mark.parametrize("other", [success, failure], ids=["the same result", "a contradiction"])
def test_while_one_worker_judges_an_order_another_one_waits(
    scene: Scene, other: Callable[[str], PaymentResult]
) -> None:
    shopper = order()
    has_judged, may_go_on = threading.Event(), threading.Event()

    def hold(execute: Any, sql: str, *others: Any) -> Any:
        if sql.startswith('INSERT INTO "notifications"'):
            has_judged.set()
            may_go_on.wait(30)
        return execute(sql, *others)

    def work_slowly() -> None:
        with connection.execute_wrapper(hold):
            work(scene, [success(shopper)])
        connection.close()

    def work_meanwhile() -> None:
        work(scene, [other(shopper)])
        connection.close()

    first, second = threading.Thread(target=work_slowly), threading.Thread(target=work_meanwhile)
    first.start()
    assert has_judged.wait(30)
    second.start()
    eventually(lambda: is_anybody_waiting_for_a_lock() or not second.is_alive())
    may_go_on.set()
    first.join(30)
    second.join(30)
    assert scene.subjects() == [f"Your order {shopper} is confirmed"]
    assert ("confirmed", "sent", "yes") in rows()


def is_anybody_waiting_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])
