"""What payment results are worth telling, as things stand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from notifications.models import Notification, NotificationQuerySet
from orders.queries import Contact, contact
from payments.events import PaymentResult
from shopmicro.messaging.handler import DUPLICATE, SUPPRESSED, TERMINAL, Outcome, parked, retrying

PENDING = "pending"

Kind = Notification.Kind
State = Notification.State
Told = dict[tuple[str, str], Notification]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be recorded of a result, and whom it concerns."""

    result: PaymentResult
    contact: Contact
    notification: Notification


Verdict = Outcome | Plan


def kind_of(result: PaymentResult) -> Notification.Kind:
    """Say which kind of notification a result asks for."""
    return Kind.CONFIRMED if result.succeeded else Kind.CANCELLED


def find_notifications(results: Sequence[PaymentResult]) -> NotificationQuerySet:
    """Give what the customers of these results' orders were told so far."""
    return Notification.objects.among({result.order_id for result in results})


def judge_results(
    *,
    results: Sequence[PaymentResult],
    notifications: Iterable[Notification],
    max_age: timedelta,
    now: datetime,
) -> list[Verdict]:
    """Judge results in polled order: each gets the outcome that ends it, or what is to be recorded.

    ``notifications`` are those of the results' orders. A result that contradicts its order's final
    state is suppressed. While the order is pending the first valid result counts, as it does in the
    saga, and what contradicts that one is suppressed. A suppressed one does not stand in the way
    of a later one of its kind that is true. What happened over ``max_age`` ago is too old to be told.
    """
    contacts = contact(list({result.order_id for result in results}))
    told = {(str(row.order_id), row.kind): row for row in notifications}
    verdicts: list[Verdict] = []
    for result in results:
        verdict = _judge(result, contacts.get(result.order_id), told, max_age, now)
        if isinstance(verdict, Plan):
            told[result.order_id, verdict.notification.kind] = verdict.notification
        verdicts.append(verdict)
    return verdicts


def _judge(
    result: PaymentResult, contact: Contact | None, told: Told, max_age: timedelta, now: datetime
) -> Verdict:
    if contact is None:
        return retrying("unknown_order", f"there is no order {result.order_id} yet")
    own = told.get((result.order_id, kind_of(result)))
    outcome = _ended(result, contact, own, now)
    if outcome is not None:
        return outcome
    if _contradicts(result, contact, told):
        return _suppress(result, contact, own, now)
    state = State.SENDING if contact.email else State.NO_ADDRESS
    if result.occurred_at < now - max_age and not _is_claimed(own):
        state = State.TOO_OLD
    return Plan(result, contact, _notification(result, state, now, contact.email))


def _ended(
    result: PaymentResult, contact: Contact, own: Notification | None, now: datetime
) -> Outcome | None:
    """End a result that is told already or being told, or whose amount is not the order's."""
    if contact.status in (PENDING, kind_of(result)) and result.amount_cents != contact.total_cents:
        return _amount_differs(result, contact) if contact.status == PENDING else TERMINAL
    if own is None or own.state == State.SUPPRESSED:
        return None
    if not _is_claimed(own) or own.is_planned or own.event_id != result.event_id:
        return DUPLICATE
    if own.claimed_until is not None and own.claimed_until > now:
        return retrying(
            "being_sent", "another worker is sending this mail, or was stopped while it did", is_outage=True
        )
    return None


def _contradicts(result: PaymentResult, contact: Contact, told: Told) -> bool:
    if contact.status != PENDING:
        return contact.status != kind_of(result)
    other = Kind.CANCELLED if result.succeeded else Kind.CONFIRMED
    rival = told.get((result.order_id, other))
    return rival is not None and rival.state != State.SUPPRESSED


def _suppress(result: PaymentResult, contact: Contact, own: Notification | None, now: datetime) -> Verdict:
    if own is None or _is_claimed(own):
        return Plan(result, contact, _notification(result, State.SUPPRESSED, now))
    return DUPLICATE if own.event_id == result.event_id else SUPPRESSED


def _is_claimed(own: Notification | None) -> bool:
    return own is not None and own.state == State.SENDING


def _notification(result: PaymentResult, state: State, now: datetime, recipient: str = "") -> Notification:
    sending = state is State.SENDING
    return Notification(
        order_id=result.order_id,
        kind=kind_of(result),
        state=state,
        event_id=result.event_id,
        recipient=recipient if sending else "",
        claimed_until=now + Notification.CLAIM if sending else None,
        updated_at=now,
    )


def _amount_differs(result: PaymentResult, contact: Contact) -> Outcome:
    return parked(
        "amount_differs",
        f"{result.amount_cents} cents were paid, "
        f"the total of order {result.order_id} is {contact.total_cents}",
    )
