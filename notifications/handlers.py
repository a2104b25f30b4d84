"""The consumer group ``notifications``: customers are told of payment results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from traceback import extract_tb

import structlog
from django.conf import settings
from django.utils import timezone

from notifications.gateway import (
    Mail,
    MailRefused,
    MailUnavailable,
    send,
    write_cancelled,
    write_confirmed,
)
from notifications.models import Notification
from notifications.operations import claim_results, record_deliveries
from notifications.queries import Plan, Verdict, find_notifications, judge_results
from payments import events
from payments.events import PaymentResult
from shopmicro.messaging.handler import (
    APPLIED,
    SUPPRESSED,
    Call,
    Group,
    Outcome,
    parked,
    register,
    retrying,
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Notifying:
    """The steps of the group; ``now`` gives the time in UTC."""

    now: Callable[[], datetime]

    def admit(self, results: Sequence[PaymentResult]) -> Sequence[Outcome | None]:
        """End the results that are told already, or that cannot be told."""
        verdicts = judge_results(
            results=results,
            notifications=find_notifications(results),
            max_age=settings.NOTIFY_MAX_AGE,
            now=self.now(),
        )
        return [verdict if isinstance(verdict, Outcome) else None for verdict in verdicts]

    def prepare(self, results: Sequence[PaymentResult]) -> Sequence[Call]:
        """Commit what is about to be told, then send the mails."""
        verdicts = claim_results(results=results, max_age=settings.NOTIFY_MAX_AGE, now=self.now())
        return [_call(verdict) for verdict in verdicts]

    def apply(
        self, results: Sequence[PaymentResult], answers: Sequence[Outcome | Exception]
    ) -> Sequence[Outcome]:
        """Record what was sent; a mail that could not be is tried again, and only that one."""
        outcomes = [_outcome(result, answer) for result, answer in zip(results, answers, strict=True)]
        deliveries = [
            (result, outcome.reason)
            for result, answer, outcome in zip(results, answers, outcomes, strict=True)
            if answer == APPLIED or isinstance(answer, Exception)
        ]
        record_deliveries(deliveries=deliveries, now=self.now())
        return outcomes


def notifier(now: Callable[[], datetime] = timezone.now) -> Group:
    """Make the group that tells customers of payment results."""
    notifying = Notifying(now)
    return Group(
        name="notifications",
        topics=(events.TOPIC,),
        types={events.SUCCEEDED: events.parse_succeeded, events.FAILED: events.parse_failed},
        admit=notifying.admit,
        prepare=notifying.prepare,
        apply=notifying.apply,
    )


def _call(verdict: Verdict) -> Call:
    if isinstance(verdict, Outcome):
        return lambda: verdict
    if verdict.notification.state != Notification.State.SENDING:
        return lambda: SUPPRESSED
    mail = _mail(verdict)

    def deliver() -> Outcome:
        send(mail)
        return APPLIED

    return deliver


def _mail(plan: Plan) -> Mail:
    result, contact = plan.result, plan.contact
    facts = {"order_id": result.order_id, "currency": contact.currency, "recipient": contact.email}
    if result.succeeded:
        return write_confirmed(**facts, total_cents=contact.total_cents)
    return write_cancelled(**facts, total_cents=contact.total_cents, reason=result.reason)


def _outcome(result: PaymentResult, answer: Outcome | Exception) -> Outcome:
    if isinstance(answer, Outcome):
        return answer
    if isinstance(answer, MailUnavailable):
        return retrying("mail_unavailable", str(answer), is_outage=True)
    if isinstance(answer, MailRefused):
        return parked("mail_refused", str(answer))
    # Its text may hold the address, so only its kind and place are told.
    where = extract_tb(answer.__traceback__)[-1]
    reason = f"{type(answer).__name__} in {where.name}, line {where.lineno}"
    log.error("sending a mail broke", order_id=result.order_id, error=reason)
    return retrying("mail_broke", reason)


register(notifier())
