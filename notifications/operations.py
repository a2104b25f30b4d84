"""Telling customers: a claim is committed, the mail is sent, then its sending is recorded."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction

from notifications.models import Notification
from notifications.queries import Plan, Verdict, find_notifications, judge_results, kind_of
from payments.events import PaymentResult

# A row that is not there yet cannot be locked, and two workers may hold contradicting results.
_LOCK_ORDERS = """
SELECT pg_advisory_xact_lock(hashtextextended('notifications of order ' || order_id, 0))
FROM unnest(%s::text[]) AS wanted (order_id)
"""

_CLAIMED = ["state", "event_id", "recipient", "error", "claimed_until", "updated_at"]
_DELIVERED = ["state", "error", "claimed_until", "sent_at", "updated_at"]


def claim_results(*, results: Sequence[PaymentResult], max_age: timedelta, now: datetime) -> list[Verdict]:
    """Judge results and commit what is to be told of them and what is not, before any mail is sent.

    Gives one verdict for each, see `judge_results`. Of one order's results only one worker judges
    at a time. A claim is good for `Notification.CLAIM`: a worker that dies leaves the mail to
    another, so it may be sent twice (with the same Message-ID) but is never lost.
    """
    if not results:
        return []
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute(_LOCK_ORDERS, (sorted({result.order_id for result in results}),))
        verdicts = judge_results(
            results=results,
            notifications=find_notifications(results).locked(),
            max_age=max_age,
            now=now,
        )
        _record([verdict.notification for verdict in verdicts if isinstance(verdict, Plan)])
    return verdicts


def record_deliveries(*, deliveries: Sequence[tuple[PaymentResult, str]], now: datetime) -> None:
    """Record in the caller's transaction which mails were sent and which were not.

    With each result stands why its mail was not sent, empty if it was. A mail not sent is free
    for any worker to take up again.
    """
    if not deliveries:
        return
    locked = find_notifications([result for result, _ in deliveries]).locked()
    rows = {(str(row.order_id), row.kind): row for row in locked}
    for result, error in deliveries:
        row = rows[result.order_id, kind_of(result)]
        if error:
            row.fail(error, now)
        else:
            row.mark_sent(now)
    Notification.objects.bulk_update(rows.values(), _DELIVERED)


def _record(notifications: list[Notification]) -> None:
    Notification.objects.bulk_create(
        sorted(notifications, key=lambda row: (row.order_id, row.kind)),
        update_conflicts=True,
        unique_fields=["order_id", "kind"],
        update_fields=_CLAIMED,
    )
