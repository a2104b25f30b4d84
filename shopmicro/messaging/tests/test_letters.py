"""What is set aside is tried again, and parked in the end."""

from collections.abc import Sequence
from typing import Any

import pytest

from shopmicro.messaging.event import Event
from shopmicro.messaging.handler import APPLIED, Outcome, retrying
from shopmicro.messaging.models import DeadLetter
from shopmicro.messaging.tests.scene import (
    NOW,
    Scene,
    in_other_thread,
    letters,
    tell,
    thing,
    told,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_event_that_waits_is_tried_again_when_due_and_applied(scene: Scene) -> None:
    answers = iter([retrying("unknown_order", "there is no order yet"), APPLIED])
    scene.produce(thing("early"))
    consumer = scene.consumer(scene.group(apply=lambda events, results: [next(answers)]))
    consumer.step(scene.stop)
    assert (letters(), scene.committed()) == ([(0, "retrying", "unknown_order", "early")], 1)
    consumer.step(scene.stop)
    assert letters() == [(0, "retrying", "unknown_order", "early")]
    scene.clock.forward(10)
    consumer.step(scene.stop)
    assert letters() == [(0, "replayed", "unknown_order", "early")]
    assert DeadLetter.objects.get().resolved_at == scene.clock.now


def test_an_event_that_waits_in_vain_is_parked_after_its_tries(scene: Scene) -> None:
    scene.produce(thing("early"))
    consumer = scene.consumer(
        scene.group(apply=lambda events, results: [retrying("unknown_order", "no order")])
    )
    states = []
    for _ in range(4):
        consumer.step(scene.stop)
        states.append(DeadLetter.objects.values_list("state", "attempts").get())
        scene.clock.forward(10)
    assert states == [("retrying", 1), ("retrying", 2), ("parked", 3), ("parked", 3)]


def test_an_event_that_waits_for_an_outage_to_end_has_more_tries(scene: Scene) -> None:
    away = retrying("gateway_unavailable", "no answer", is_outage=True)
    scene.produce(thing("early"))
    consumer = scene.consumer(scene.group(apply=lambda events, results: [away]))
    states = []
    for _ in range(6):
        consumer.step(scene.stop)
        states.append(DeadLetter.objects.values_list("state", "attempts").get())
        scene.clock.forward(10)
    assert states == [*(("retrying", attempt) for attempt in (1, 2, 3, 4)), ("parked", 5), ("parked", 5)]


def test_an_event_that_fails_in_another_way_has_its_tries_anew(scene: Scene) -> None:
    answers = [retrying("gateway_unavailable", "no answer", is_outage=True)] * 4
    answers += [retrying("gateway_broke", "nonsense")] * 3
    upcoming = iter(answers)
    scene.produce(thing("early"))
    consumer = scene.consumer(scene.group(apply=lambda events, results: [next(upcoming)]))
    states = []
    for _ in range(7):
        consumer.step(scene.stop)
        states.append(DeadLetter.objects.values_list("state", "error", "attempts").get())
        scene.clock.forward(10)
    assert states == [
        *(("retrying", "gateway_unavailable", attempts) for attempts in (1, 2, 3, 4)),
        *(("retrying", "gateway_broke", attempts) for attempts in (1, 2)),
        ("parked", "gateway_broke", 3),
    ]


def test_a_letter_that_kills_its_worker_three_times_is_parked_and_the_next_one_is_tried(scene: Scene) -> None:
    def die(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        if DeadLetter.objects.exists() and events[0].id == "deadly":
            raise KeyboardInterrupt
        return [
            APPLIED if DeadLetter.objects.exists() else retrying("unknown_order", "no order") for _ in events
        ]

    scene.produce(thing("deadly"), thing("harmless"))
    consumer = scene.consumer(scene.group(apply=die))
    consumer.step(scene.stop)
    for death in (1, 2, 3):
        scene.clock.forward(61)
        with pytest.raises(KeyboardInterrupt):
            consumer.step(scene.stop)
        deadly = DeadLetter.objects.get(event_id="deadly")
        assert (deadly.state, deadly.unfinished) == ("retrying", death)
    scene.clock.forward(61)
    consumer.step(scene.stop)
    assert letters() == [
        (0, "parked", "killed_its_worker", "deadly"),
        (1, "replayed", "unknown_order", "harmless"),
    ]


def test_a_letter_is_left_to_the_worker_that_took_it_when_the_lease_ran_out(scene: Scene) -> None:
    def be_slow(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        if DeadLetter.objects.filter(unfinished=1).exists():
            scene.clock.forward(61)
            assert in_other_thread(lambda: scene.consumer(scene.group()).step(scene.stop)) == 0
        return (
            tell(events, results) if DeadLetter.objects.exists() else [retrying("unknown_order", "no order")]
        )

    scene.produce(thing("slow"))
    consumer = scene.consumer(scene.group(apply=be_slow))
    consumer.step(scene.stop)
    scene.clock.forward(10)
    consumer.step(scene.stop)
    assert (told(), letters()) == (["slow"], [(0, "replayed", "unknown_order", "slow")])


def test_two_records_of_one_position_in_a_topic_made_anew_are_two_letters(scene: Scene) -> None:
    consumer = scene.consumer()
    scene.produce(b"broken")
    consumer.step(scene.stop)
    scene.broker.recreate("things")
    scene.produce(b"broken too")
    consumer.step(scene.stop)
    assert letters() == [(0, "parked", "malformed", ""), (0, "parked", "malformed", "")]


def test_a_record_that_comes_again_is_not_parked_again(scene: Scene) -> None:
    scene.produce(b"broken")
    consumer = scene.consumer()
    consumer.step(scene.stop)
    (record,) = scene.broker.records("things")
    consumer.subscriber.rewind([record._replace(term=1)])
    assert consumer.step(scene.stop) == 1
    assert letters() == [(0, "parked", "malformed", "")]


def test_letters_of_one_aggregate_are_tried_in_the_order_in_which_they_came(scene: Scene) -> None:
    tried: list[str] = []

    def wait_first(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        if len(events) > 1:
            return [retrying("unknown_order", "no order")] * len(events)
        tried.extend(event.id for event in events)
        return [retrying("unknown_order", "no order") if len(tried) == 1 else APPLIED]

    scene.produce(*(thing(f"e{number}") for number in range(5)))
    consumer = scene.consumer(scene.group(apply=wait_first))
    consumer.step(scene.stop)
    DeadLetter.objects.filter(event_id="e4").update(next_attempt_at=NOW)
    for _ in range(3):
        scene.clock.forward(10)
        consumer.step(scene.stop)
    assert tried == ["e0", "e0", "e1", "e2", "e3", "e4"]
    assert {state for _, state, _, _ in letters()} == {"replayed"}
