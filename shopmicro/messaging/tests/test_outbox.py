from datetime import UTC, datetime

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError

from shopmicro.messaging.event import Event, encode
from shopmicro.messaging.models import OutboxEvent
from shopmicro.messaging.outbox import publish

ORDER = "0198c0de-0000-7000-8000-00000000000a"
NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)


def event(event_id: str, note: str = "") -> Event:
    return Event(event_id, "order.created", ORDER, {"order_id": ORDER, "note": note}, NOW)


@pytest.mark.django_db(transaction=True)
def test_an_event_outside_a_transaction_is_refused_and_nothing_is_written() -> None:
    with pytest.raises(TransactionManagementError, match="needs the transaction"):
        publish("orders", [event("e1")])
    assert not OutboxEvent.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_event_goes_with_its_transaction() -> None:
    with transaction.atomic():
        publish("orders", [event("e1")])
        transaction.set_rollback(True)
    assert not OutboxEvent.objects.exists()


@pytest.mark.django_db
def test_the_row_holds_the_whole_record_value_and_nothing_is_published_yet() -> None:
    told = event("e1", 'zu groß – 額 "quoted" \\ {brace,}')
    publish("orders", [told])
    row = OutboxEvent.objects.get()
    assert (row.event_id, row.topic, str(row.aggregate_id), row.type) == (
        "e1",
        "orders",
        ORDER,
        "order.created",
    )
    assert (row.payload, row.occurred_at) == (encode(told), NOW)
    assert (row.published_at, row.partition, row.offset, row.attempts, row.error) == (None, None, None, 0, "")


@pytest.mark.django_db
def test_rows_have_the_order_of_the_events() -> None:
    publish("orders", [event(f"e{number}") for number in range(100)])
    assert list(OutboxEvent.objects.unpublished().values_list("event_id", flat=True)) == [
        f"e{number}" for number in range(100)
    ]


@pytest.mark.django_db
def test_the_order_of_the_rows_is_asked_for_and_not_left_to_the_plan() -> None:
    with CaptureStatements() as statements:
        publish("orders", [event("e1")])
    assert "WITH ORDINALITY" in statements[0]
    assert statements[0].rstrip().endswith("ORDER BY number")


@pytest.mark.django_db
def test_the_same_event_cannot_be_told_twice() -> None:
    publish("orders", [event("e1")])
    with pytest.raises(IntegrityError, match="outbox_event_id_unique"), transaction.atomic():
        publish("orders", [event("e2"), event("e1")])
    assert list(OutboxEvent.objects.values_list("event_id", flat=True)) == ["e1"]


@pytest.mark.django_db
def test_no_events_are_no_statement() -> None:
    with CaptureStatements() as statements:
        publish("orders", [])
    assert statements == []


class CaptureStatements(list[str]):
    """The SQL statements run inside a with block."""

    def __enter__(self) -> "CaptureStatements":
        self._wrapper = connection.execute_wrapper(self._keep)
        self._wrapper.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._wrapper.__exit__(None, None, None)

    def _keep(self, execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        self.append(sql)
        return execute(sql, params, many, context)


@pytest.mark.django_db
def test_the_relay_is_woken_only_where_that_is_wanted(settings) -> None:  # type: ignore[no-untyped-def]
    with CaptureStatements() as statements:
        publish("orders", [event("e1")])
        settings.OUTBOX_NOTIFY = False
        publish("orders", [event("e2")])
    assert [sql.split()[0] for sql in statements] == ["INSERT", "NOTIFY", "INSERT"]
