"""A handler's three steps, and calls to the world."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection

from shopmicro.messaging.consumer import Limits
from shopmicro.messaging.event import Event
from shopmicro.messaging.handler import APPLIED, DUPLICATE, Call, Outcome, parked, retrying
from shopmicro.messaging.models import DeadLetter
from shopmicro.messaging.retry import Shortage
from shopmicro.messaging.tests.scene import (
    ORDER,
    Scene,
    letters,
    run_until,
    thing,
    told,
)
from tests.servers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_that_is_not_admitted_is_neither_prepared_nor_applied(scene: Scene) -> None:
    asked: list[str] = []

    def admit(events: Sequence[Event]) -> list[Outcome | None]:
        verdicts: dict[str, Outcome] = {"known": DUPLICATE, "wrong": parked("wrong", "it is wrong")}
        return [verdicts.get(event.id) for event in events]

    def prepare(events: Sequence[Event]) -> list[Call]:
        asked.extend(event.id for event in events)
        return []

    scene.produce(thing("known"), thing("new"), thing("wrong"))
    scene.consumer(scene.group(admit=admit, prepare=prepare)).step(scene.stop)
    assert (asked, told(), letters()) == (["new"], ["new"], [(2, "parked", "wrong", "wrong")])


def test_calls_run_outside_any_transaction_and_apply_gets_what_each_returned_or_raised(scene: Scene) -> None:
    def prepare(events: Sequence[Event]) -> list[Call]:
        assert not connection.in_atomic_block
        return [lambda event=event: answer(event) for event in events]  # type: ignore[misc]

    def answer(event: Event) -> str:
        if event.id == "down":
            raise ConnectionError("no answer")
        return f"{event.id} answered"

    results: list[Any] = []

    def apply(events: Sequence[Event], prepared: Sequence[Any]) -> list[Outcome]:
        results.extend(prepared)
        assert connection.in_atomic_block
        return [retrying("away", str(x)) if isinstance(x, Exception) else APPLIED for x in prepared]

    scene.produce(thing("up"), thing("down"))
    scene.consumer(scene.group(prepare=prepare, apply=apply)).step(scene.stop)
    assert results[0] == "up answered"
    assert repr(results[1]) == "ConnectionError('no answer')"
    assert letters() == [(1, "retrying", "away", "down")]


def test_calls_of_one_aggregate_run_one_after_another_and_those_of_others_beside_them(scene: Scene) -> None:
    other = ORDER.replace("a", "b")
    both_began = threading.Barrier(2, timeout=10)
    events_seen: list[str] = []

    def prepare(events: Sequence[Event]) -> list[Call]:
        return [lambda event=event: call(event) for event in events]  # type: ignore[misc]

    def call(event: Event) -> None:
        if event.id in ("first", "other"):
            both_began.wait()
        events_seen.append(event.id)

    scene.produce(thing("first"), thing("second"), thing("other").replace(ORDER.encode(), other.encode()))
    scene.consumer(scene.group(prepare=prepare)).step(scene.stop)
    assert events_seen.index("first") < events_seen.index("second")
    assert sorted(events_seen) == ["first", "other", "second"]


def test_a_stop_keeps_what_calls_did_and_leaves_undone_what_hangs(scene: Scene) -> None:
    began, never = threading.Barrier(3, timeout=30), threading.Event()
    other = ORDER.replace("a", "b").encode()

    def prepare(events: Sequence[Event]) -> list[Call]:
        return [lambda event=event: call(event) for event in events]  # type: ignore[misc]

    def call(event: Event) -> None:
        began.wait()
        if event.id == "hangs":
            never.wait(60)

    def stop() -> None:
        began.wait()
        scene.stop.request()

    scene.produce(thing("ends"), thing("hangs").replace(ORDER.encode(), other))
    stopper = threading.Thread(target=stop)
    stopper.start()
    scene.consumer(scene.group(prepare=prepare)).run(scene.stop)
    stopper.join()
    never.set()
    assert (told(), letters(), scene.committed()) == (["ends"], [], None)


def test_a_stop_ends_the_search_for_bad_events(scene: Scene) -> None:
    tries: list[int] = []

    def fail(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        tries.append(len(events))
        scene.stop.request()
        raise RuntimeError("our own fault")

    scene.produce(*(thing(f"e{number}") for number in range(100)))
    scene.consumer(scene.group(apply=fail)).run(scene.stop)
    assert (tries, letters(), scene.committed()) == ([100], [], None)


def test_no_call_begins_for_a_partition_that_was_taken_away(scene: Scene) -> None:
    scene.limits = Limits(poll_seconds=0, concurrency=1)
    called: list[str] = []

    def prepare(events: Sequence[Event]) -> list[Call]:
        return [lambda event=event: call(event) for event in events]  # type: ignore[misc]

    def call(event: Event) -> None:
        called.append(event.id)
        scene.broker.recreate("things")
        eventually(lambda: not any(map(consumer.subscriber.owns, polled)))

    scene.produce(thing("begun"), thing("not begun"))
    polled = [record._replace(term=1) for record in scene.broker.records("things")]
    consumer = scene.consumer(scene.group(prepare=prepare))
    consumer.step(scene.stop)
    assert (called, told(), scene.committed()) == (["begun"], ["begun"], None)


def test_a_machine_without_threads_to_give_is_waited_for(scene: Scene) -> None:
    scene.limits = Limits(poll_seconds=0, concurrency=1)
    answers = iter([Shortage("can't start new thread")])

    def prepare(events: Sequence[Event]) -> list[Call]:
        for shortage in answers:
            raise shortage
        return []

    scene.produce(thing("a"))
    run_until(scene, scene.consumer(scene.group(prepare=prepare)), lambda: scene.committed() == 1)
    assert (told(), letters()) == (["a"], [])


def test_calls_that_do_not_answer_in_time_are_taken_for_failed_and_the_others_count(scene: Scene) -> None:
    never = threading.Event()
    scene.limits = Limits(poll_seconds=0, call_seconds=0.2)
    other = ORDER.replace("a", "b").encode()

    def prepare(events: Sequence[Event]) -> list[Call]:
        return [(lambda: "answered") if event.id == "quick" else never.wait for event in events]

    def apply(events: Sequence[Event], prepared: Sequence[Any]) -> list[Outcome]:
        return [retrying("away", str(x)) if isinstance(x, Exception) else APPLIED for x in prepared]

    scene.produce(thing("hangs"), thing("behind it"), thing("quick").replace(ORDER.encode(), other))
    clock = threading.Thread(target=lambda: [never.wait(0.1) or scene.clock.forward(1) for _ in range(20)])
    clock.start()
    scene.consumer(scene.group(prepare=prepare, apply=apply)).step(scene.stop)
    assert letters() == [
        (0, "retrying", "away", "hangs"),
        (1, "retrying", "away", "behind it"),
    ]
    assert DeadLetter.objects.values_list("reason", flat=True).first() == "no answer within 0.2 s"
    clock.join()
    never.set()
