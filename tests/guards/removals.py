"""Each guard: the text that makes it, what is left without it, and the test that must notice."""

from typing import NamedTuple


class Edit(NamedTuple):
    """A text of a file, and what stands there without the guard."""

    path: str
    guard: str
    without: str


class Removal(NamedTuple):
    """A guard taken away, and the tests of which at least one must fail."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


SAGA = "orders/tests/test_saga.py::"
CONSUMER = "shopmicro/messaging/tests/test_consumer.py::"
RELAY = "shopmicro/messaging/tests/test_relay.py::"
SENDING = "shopmicro/messaging/tests/test_sending.py::"
LEASE = "shopmicro/messaging/tests/test_lease.py::"

REMOVALS = (
    Removal(
        "the dedupe insert",
        (
            Edit(
                "orders/saga.py",
                "ON CONFLICT DO NOTHING",
                "ON CONFLICT (event_id) DO UPDATE SET processed_at = now()",
            ),
        ),
        (SAGA + "test_the_same_event_in_a_later_batch_touches_nothing",),
    ),
    Removal(
        "the terminal check",
        (Edit("orders/saga.py", "if statuses[result.order_id] == Order.Status.PENDING:", "if True:"),),
        (SAGA + "test_a_late_failure_leaves_a_confirmed_order_confirmed_and_its_id_on_record",),
    ),
    Removal(
        "FOR UPDATE",
        (Edit("orders/models.py", "self.select_for_update().order_by", "self.order_by"),),
        ("tests/faults/test_interleavings.py::test_no_order_of_statements_breaks_the_promise",),
    ),
    Removal(
        "the single transaction",
        (
            Edit(
                "shopmicro/messaging/batch.py",
                "with transaction.atomic(durable=True):\n            outcomes = self._ask(items)",
                "with transaction.atomic():\n            outcomes = self._ask(items)\n"
                "        with transaction.atomic():",
            ),
        ),
        (CONSUMER + "test_effects_and_dead_letters_of_a_batch_are_committed_together_or_not_at_all",),
    ),
    Removal(
        "the outbox's refusal outside a transaction",
        (Edit("shopmicro/messaging/outbox.py", "if not connection.in_atomic_block:", "if False:"),),
        (
            "shopmicro/messaging/tests/test_outbox.py::"
            "test_an_event_outside_a_transaction_is_refused_and_nothing_is_written",
        ),
    ),
    Removal(
        "offsets only after the database",
        (
            Edit(
                "shopmicro/messaging/consumer.py",
                'faults.reach("after-poll")\n',
                'faults.reach("after-poll")\n        self.subscriber.commit(records)\n',
            ),
        ),
        (CONSUMER + "test_the_offset_is_not_committed_while_the_batch_is_not",),
    ),
    Removal(
        "the rewind of a failed batch",
        (
            Edit(
                "shopmicro/messaging/consumer.py",
                "self.subscriber.rewind(records)\n            raise",
                "raise",
            ),
        ),
        (CONSUMER + "test_the_offset_of_a_failed_batch_is_not_committed_by_the_next_one",),
    ),
    Removal(
        "marks only on the row's own acknowledgement",
        (
            Edit(
                "shopmicro/messaging/sending.py",
                "row.payload.encode(), headers_of(row), report)",
                "row.payload.encode(), headers_of(row), lambda _: None)",
            ),
            Edit(
                "shopmicro/messaging/sending.py",
                'faults.reach("after-produce")',
                "report(Delivery(0, 0))",
            ),
        ),
        (RELAY + "test_a_row_is_not_marked_before_its_own_acknowledgement",),
    ),
    Removal(
        "no mark without an acknowledgement",
        (Edit("shopmicro/messaging/sending.py", "if delivery.error is None:", "if True:"),),
        (RELAY + "test_a_broker_that_is_away_leaves_the_rows_where_they_are",),
    ),
    Removal(
        "each order's order in the relay",
        (Edit("shopmicro/messaging/sending.py", "if row.aggregate_id in self._held:", "if False:"),),
        (SENDING + "test_a_second_row_of_an_aggregate_waits_for_the_first_ones_acknowledgement",),
    ),
    Removal(
        "one relay a shard",
        (Edit("shopmicro/messaging/lease.py", "return bool(cursor.fetchone()[0])", "return True"),),
        (LEASE + "test_only_one_holds_a_shard_and_another_takes_over_when_its_session_ends",),
    ),
    Removal(
        "the unique constraint of the payment",
        (
            Edit(
                "payments/migrations/0001_initial.py",
                "models.UniqueConstraint(fields=('order_id',), name='payments_order_unique'), ",
                "",
            ),
            Edit("payments/operations.py", "ON CONFLICT ON CONSTRAINT payments_order_unique DO NOTHING", ""),
        ),
        ("payments/tests/test_payments.py::test_the_database_holds_no_second_payment_of_an_order",),
    ),
)
