"""The consumer: batches, offsets, bad events, outages."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import InternalError, connection
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from shopmicro.messaging import metrics
from shopmicro.messaging.consumer import Limits
from shopmicro.messaging.event import Event
from shopmicro.messaging.handler import APPLIED, Outcome, parked
from shopmicro.messaging.health import complaint
from shopmicro.messaging.models import DeadLetter
from shopmicro.messaging.tests.scene import (
    Scene,
    letters,
    run_until,
    tell,
    thing,
    told,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_batch_is_applied_and_then_its_offset_is_committed(scene: Scene) -> None:
    scene.produce(thing("a"), thing("b"), thing("c"))
    assert scene.consumer().step(scene.stop) == 3
    assert (told(), scene.committed(), letters()) == (["a", "b", "c"], 3, [])


def test_a_batch_holds_no_more_records_than_its_limit(scene: Scene) -> None:
    scene.limits = Limits(records=2, poll_seconds=0)
    scene.produce(thing("a"), thing("b"), thing("c"))
    consumer = scene.consumer()
    assert [consumer.step(scene.stop) for _ in range(3)] == [2, 1, 0]
    assert told() == ["a", "b", "c"]


def test_the_offset_is_not_committed_while_the_batch_is_not(scene: Scene) -> None:
    seen: list[int | None] = []

    def look(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        seen.append(scene.committed())
        return tell(events, results)

    scene.produce(thing("a"))
    scene.consumer(scene.group(apply=look)).step(scene.stop)
    assert (seen, scene.committed()) == ([None], 1)


def test_types_that_the_group_does_not_know_are_passed_over(scene: Scene) -> None:
    scene.produce(thing("a").replace(b"thing.happened", b"thing.refunded"), thing("b"))
    assert scene.consumer().step(scene.stop) == 2
    assert (told(), scene.committed(), letters()) == (["b"], 2, [])


def test_what_cannot_be_read_is_parked_as_it_came_and_its_neighbours_are_applied(scene: Scene) -> None:
    scene.produce(thing("a"), b"\xff{", None, b"", thing("b"))
    scene.consumer().step(scene.stop)
    assert (told(), scene.committed()) == (["a", "b"], 5)
    assert letters() == [(offset, "parked", "malformed", "") for offset in (1, 2, 3)]
    first, second, third = DeadLetter.objects.order_by("id")
    assert [
        letter.value if letter.value is None else bytes(letter.value) for letter in (first, second, third)
    ] == [
        b"\xff{",
        None,
        b"",
    ]
    assert bytes(first.headers) == b'[["h", "/w=="]]'
    assert (first.topic, first.partition, first.key) == ("things", 0, None)
    assert first.topic_id == scene.broker.topic("things").id
    assert first.reason.startswith("the value is not UTF-8 JSON")


def test_an_event_that_the_database_refuses_is_found_and_parked_and_the_rest_is_applied(scene: Scene) -> None:
    bad = thing("bad", sql="SELECT 1/0")
    scene.produce(*(bad if number == 49 else thing(f"e{number}") for number in range(100)))
    scene.consumer().step(scene.stop)
    assert told() == [f"e{number}" for number in range(100) if number != 49]
    assert (letters(), scene.committed()) == ([(49, "parked", "poison", "bad")], 100)
    assert DeadLetter.objects.get().reason.startswith("DataError: division by zero")


def test_several_bad_events_are_each_found(scene: Scene) -> None:
    scene.produce(
        thing("bad-1", sql="SELECT 1/0"),
        thing("a"),
        thing("bad-2", sql="SELECT 'x'::int"),
        thing("bad-3", **{"raise": "our own fault"}),
        thing("b"),
    )
    scene.consumer().step(scene.stop)
    assert told() == ["a", "b"]
    assert letters() == [
        (0, "parked", "poison", "bad-1"),
        (2, "parked", "poison", "bad-2"),
        (3, "retrying", "unknown", "bad-3"),
    ]


def test_a_constraint_that_two_events_break_together_parks_the_second(scene: Scene) -> None:
    scene.produce(thing("same"), thing("a"), thing("same"), thing("b"))
    scene.consumer().step(scene.stop)
    assert told() == ["same", "a", "b"]
    assert letters() == [(2, "parked", "poison", "same")]


def test_a_statement_over_its_time_is_set_aside_to_be_tried_again(scene: Scene) -> None:
    slow = "SET LOCAL statement_timeout = '20ms'; SELECT pg_sleep(5)"
    scene.produce(thing("a"), thing("slow", sql=slow), thing("b"))
    scene.consumer().step(scene.stop)
    assert told() == ["a", "b"]
    assert letters() == [(1, "retrying", "unknown", "slow")]


def test_an_outage_parks_nothing_and_the_same_records_are_handled_after_it(scene: Scene) -> None:
    failures = iter(["SELECT pg_terminate_backend(pg_backend_pid())"] * 2)

    def fail_twice(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        with connection.cursor() as cursor:
            cursor.execute(next(failures, "SELECT 1"))
        return tell(events, results)

    scene.produce(thing("a"), thing("b"))
    run_until(scene, scene.consumer(scene.group(apply=fail_twice)), lambda: scene.committed() == 2)
    assert (told(), letters()) == (["a", "b"], [])


def test_the_offset_of_a_failed_batch_is_not_committed_by_the_next_one(scene: Scene) -> None:
    failing = [True]

    def fail_once(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        if failing.pop() if failing else False:
            scene.produce(thing("later"))
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return tell(events, results)

    scene.produce(thing("a"))
    run_until(scene, scene.consumer(scene.group(apply=fail_once)), lambda: scene.committed() == 2)
    assert told() == ["a", "later"]


def test_a_broker_that_is_away_is_waited_for(scene: Scene) -> None:
    consumer = scene.consumer()
    scene.produce(thing("a"))
    scene.broker.away = True
    back = threading.Timer(0.2, lambda: setattr(scene.broker, "away", False))
    back.start()
    run_until(scene, consumer, lambda: scene.committed() == 1)
    back.join()
    assert (told(), letters()) == (["a"], [])


def test_effects_and_dead_letters_of_a_batch_are_committed_together_or_not_at_all(scene: Scene) -> None:
    refused = ["SET LOCAL transaction_read_only = on"]

    def refuse_the_letter_once(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        tell(events[:1], results)
        with connection.cursor() as cursor:
            cursor.execute(refused.pop() if refused else "SELECT 1")
        return [APPLIED, parked("wrong", "it is wrong")]

    scene.produce(thing("good"), thing("bad"))
    consumer = scene.consumer(scene.group(apply=refuse_the_letter_once))
    with pytest.raises(InternalError, match="read-only"):
        consumer.step(scene.stop)
    assert (told(), letters(), scene.committed()) == ([], [], None)
    consumer.step(scene.stop)
    assert (told(), letters(), scene.committed()) == (["good"], [(1, "parked", "wrong", "bad")], 2)


def test_an_outage_is_not_said_to_be_over_while_it_lasts(scene: Scene) -> None:
    consumer = scene.consumer()
    consumer.step(scene.stop)
    connection.close()
    port, connection.settings_dict["PORT"] = connection.settings_dict["PORT"], "1"
    tries = iter(range(300))
    try:
        with capture_logs() as said:
            run_until(scene, consumer, lambda: next(tries, None) is None)
    finally:
        connection.settings_dict["PORT"] = port
        connection.close()
    assert "waiting for the database or the broker" in [line["event"] for line in said]
    assert "works again" not in [line["event"] for line in said]


def test_a_worker_tells_when_it_last_went_round_its_loop(scene: Scene) -> None:
    metrics.LAST_STEP.set(0)
    scene.produce(thing("a"))
    run_until(scene, scene.consumer(), lambda: scene.committed() == 1)
    assert complaint(generate_latest().decode(), time.time()) == ""
