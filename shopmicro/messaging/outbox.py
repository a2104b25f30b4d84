"""Telling the rest of the shop: events written in the transaction of what they tell of."""

from collections.abc import Sequence

from django.conf import settings
from django.db import connection
from django.db.transaction import TransactionManagementError

from shopmicro.messaging import faults
from shopmicro.messaging.event import Event, encode

CHANNEL = "outbox"

_INSERT = """
INSERT INTO outbox (event_id, topic, aggregate_id, type, payload, occurred_at)
SELECT event_id, %s, aggregate_id, type, payload, occurred_at
FROM unnest(%b::text[], %b::uuid[], %b::text[], %b::text[], %b::timestamptz[])
     WITH ORDINALITY AS event (event_id, aggregate_id, type, payload, occurred_at, number)
ORDER BY number
"""


def publish(topic: str, events: Sequence[Event]) -> None:
    """Write events to the outbox, to be sent in this order once the transaction commits.

    Raises TransactionManagementError outside a transaction: an event must not be told of what
    may still not happen, nor be lost when it does. A second event of the same id is an
    IntegrityError on ``outbox_event_id_unique``.
    """
    if not connection.in_atomic_block:
        raise TransactionManagementError("publish() needs the transaction of what the events tell of")
    if not events:
        return
    columns = (
        [event.id for event in events],
        [event.aggregate_id for event in events],
        [event.type for event in events],
        [encode(event) for event in events],
        [event.occurred_at for event in events],
    )
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, (topic, *columns))
        faults.reach("after-outbox-insert")
        if settings.OUTBOX_NOTIFY:
            cursor.execute(f"NOTIFY {CHANNEL}")
