"""The statements that docs/operations.md gives an operator, run as they stand there."""

import re
import uuid
from pathlib import Path

from tests.journeys.shop import Shop, payment
from tests.servers import eventually

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()
STATEMENTS = [
    f"{statement.strip()};"
    for block in re.findall(r"```sql\n(.*?)```", DOCUMENT, re.DOTALL)
    for statement in block.split(";")
    if statement.strip()
]


def statement(words: str) -> str:
    """Give the one statement in the document in which these words stand."""
    (found,) = [statement for statement in STATEMENTS if words in statement]
    return found


def on_letter(words: str, letter: int) -> str:
    return statement(words).replace("id = 42", f"id = {letter}")


def run(shop: Shop, sql: str) -> int:
    return shop.sql.execute(sql).rowcount


def the_letter(shop: Shop) -> tuple[int, str, str]:
    ((number, state, error),) = shop.rows("SELECT id, state, error FROM dead_letters")
    return number, state, error


def park(shop: Shop, value: bytes) -> int:
    """Let the saga park an event at its second try; gives the letter's id."""
    shop.produce("payments", [value])
    shop.start("runsaga", RETRY_ATTEMPTS="2", RETRY_DELAY="0.1", RETRY_MAX_DELAY="0.1")
    eventually(lambda: shop.rows("SELECT 1 FROM dead_letters WHERE state = 'parked'"))
    return the_letter(shop)[0]


def test_a_parked_letter_is_tried_again_and_its_order_resolved(closed_shop: Shop) -> None:
    order = str(uuid.uuid4())
    letter = park(closed_shop, payment(order))
    assert the_letter(closed_shop) == (letter, "parked", "unknown_order")
    insert = """INSERT INTO orders (id, customer_id, status, total_cents, currency)
                VALUES (%s, 'cust-1', 'pending', 2598, 'EUR') RETURNING id"""
    closed_shop.rows(insert, order)
    assert run(closed_shop, on_letter("'retrying', next_attempt_at", letter)) == 1
    eventually(lambda: closed_shop.is_resolved(order))
    assert the_letter(closed_shop)[1] == "replayed"
    assert closed_shop.outbox(order) == [f"{order}:confirmed"]
    assert run(closed_shop, on_letter("'retrying', next_attempt_at", letter)) == 0


def test_a_letter_whose_cause_stays_is_parked_again_after_all_its_tries(closed_shop: Shop) -> None:
    letter = park(closed_shop, payment(str(uuid.uuid4())))
    run(closed_shop, on_letter("'retrying', next_attempt_at", letter))
    eventually(lambda: the_letter(closed_shop)[1] == "parked")
    assert closed_shop.rows("SELECT attempts, error FROM dead_letters") == [(2, "unknown_order")]


def test_a_wrong_event_is_replaced_by_the_right_one_and_its_letter_discarded(closed_shop: Shop) -> None:
    (order,) = closed_shop.insert_orders(1)
    letter = park(closed_shop, payment(order, amount_cents=1))
    closed_shop.produce("payments", [payment(order, f"mended-{order}")])
    eventually(lambda: closed_shop.is_resolved(order))
    assert run(closed_shop, on_letter("'discarded'", letter)) == 1
    assert the_letter(closed_shop) == (letter, "discarded", "amount_differs")
    assert closed_shop.outbox(order) == [f"{order}:confirmed"]


def test_a_stuck_order_is_found_with_what_holds_it_up(closed_shop: Shop) -> None:
    (order,) = closed_shop.insert_orders(1)
    letter = park(closed_shop, payment(order, amount_cents=1))
    closed_shop.rows("UPDATE orders SET created_at = now() - interval '1 hour' RETURNING id")
    ((found, _, paid, unpublished, letters),) = closed_shop.rows(statement("AS not_published"))
    assert (str(found), paid, unpublished) == (order, None, None)
    assert letters == f"{letter}: order-saga parked amount_differs"


def test_the_counts_of_what_waits_are_taken(closed_shop: Shop) -> None:
    closed_shop.start("web")
    closed_shop.place()
    ((count, oldest),) = closed_shop.rows(statement("AS oldest"))
    assert (count, oldest.total_seconds() >= 0) == (1, True)
    assert closed_shop.rows(statement("consumer_group, count(*)")) == []
