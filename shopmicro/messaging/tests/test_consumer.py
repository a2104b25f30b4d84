"""The consumer on the real database, with the broker in memory and handlers that fail to order."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from shopmicro.messaging.broker import TopicSpec
from shopmicro.messaging.consumer import Consumer, Limits
from shopmicro.messaging.dead_letters import RetryPolicy
from shopmicro.messaging.event import Event
from shopmicro.messaging.handler import APPLIED, DUPLICATE, Call, Group, Outcome, parked, retrying
from shopmicro.messaging.memory import MemoryBroker
from shopmicro.messaging.models import DeadLetter, OutboxEvent
from shopmicro.messaging.outbox import publish
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop

ORDER = "0198c0de-0000-7000-8000-00000000000a"
NOW = datetime(2026, 7, 14, 9, 15, 40, tzinfo=UTC)
pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Clock:
    """A time that moves when told to."""

    now: datetime = NOW

    def monotonic(self) -> float:
        return self.now.timestamp()

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Scene:
    """A topic, a group whose handler tells every message in the outbox, and one consumer of it."""

    broker: MemoryBroker = field(default_factory=MemoryBroker)
    clock: Clock = field(default_factory=Clock)
    stop: Stop = field(default_factory=Stop)
    limits: Limits = field(default_factory=lambda: Limits(poll_seconds=0))
    consumers: list[Consumer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker.admin().create_topics([TopicSpec("things", 1, 1, {})])
        self.broker.subscriber("group", ("things",))

    def group(self, **steps: Any) -> Group:
        return Group(
            "group", ("things",), {"thing.happened": lambda event: event}, **{"apply": tell, **steps}
        )

    def consumer(self, group: Group | None = None) -> Consumer:
        group = group or self.group()
        self.consumers.append(
            Consumer(
                group,
                lambda: self.broker.subscriber(group.name, group.topics),
                limits=self.limits,
                policy=RetryPolicy(3, 5, Backoff(10, 10)),
                outage=Backoff(0.01, 0.01),
                now=lambda: self.clock.now,
                clock=self.clock.monotonic,
            )
        )
        return self.consumers[-1]

    def produce(self, *values: bytes | None) -> None:
        publisher = self.broker.publisher()
        for value in values:
            publisher.send("things", None, value, [("h", b"\xff")], lambda delivery: None)

    def committed(self) -> int | None:
        return self.broker.committed("group", "things", 0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    for consumer in scene.consumers:
        consumer.close()


def thing(name: str, **payload: Any) -> bytes:
    members = {"id": name, "type": "thing.happened", "aggregate_id": ORDER}
    return json.dumps({**members, "payload": payload, "occurred_at": "2026-07-14T09:15:40Z"}).encode()


def tell(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
    """Apply by telling each event; the payload's ``sql`` is run first, ``raise`` is raised."""
    for event in events:
        if "sql" in event.payload:
            with connection.cursor() as cursor:
                cursor.execute(event.payload["sql"])
        if "raise" in event.payload:
            raise RuntimeError(event.payload["raise"])
        publish("told", [event._replace(id=f"{event.id}:told")])
    return [APPLIED] * len(events)


def told() -> list[str]:
    return [row.event_id.removesuffix(":told") for row in OutboxEvent.objects.order_by("id")]


def letters() -> list[tuple[int, str, str, str]]:
    rows = DeadLetter.objects.order_by("id")
    return [(letter.offset, letter.state, letter.error, letter.event_id) for letter in rows]


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


def run_until(scene: Scene, consumer: Consumer, condition: Callable[[], bool]) -> None:
    """Run the consumer's loop, which moves the scene's clock, until a condition holds."""

    def look() -> float:
        scene.clock.forward(0.01)
        if condition():
            scene.stop.request()
        assert scene.clock.now < NOW + timedelta(seconds=600)
        return scene.clock.now.timestamp()

    consumer._clock = look
    consumer.run(scene.stop)


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


def test_a_letter_that_killed_its_worker_has_used_up_a_try_and_waits_for_its_lease(scene: Scene) -> None:
    def die(events: Sequence[Event], results: Sequence[Any]) -> list[Outcome]:
        if DeadLetter.objects.exists():
            raise KeyboardInterrupt
        return [retrying("unknown_order", "no order")]

    scene.produce(thing("deadly"))
    consumer = scene.consumer(scene.group(apply=die))
    consumer.step(scene.stop)
    for expected in (2, 3):
        scene.clock.forward(61)
        with pytest.raises(KeyboardInterrupt):
            consumer.step(scene.stop)
        assert DeadLetter.objects.values_list("state", "attempts").get() == ("retrying", expected)
        consumer.step(scene.stop)


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


def test_a_stop_while_calls_are_slow_leaves_the_batch_undone(scene: Scene) -> None:
    began, release = threading.Event(), threading.Event()

    def prepare(events: Sequence[Event]) -> list[Call]:
        return [lambda: began.set() or release.wait(30)]

    scene.produce(thing("slow"))
    consumer = scene.consumer(scene.group(prepare=prepare))
    stopper = threading.Thread(target=lambda: began.wait(30) and scene.stop.request())
    stopper.start()
    consumer.run(scene.stop)
    stopper.join()
    release.set()
    assert (told(), letters(), scene.committed()) == ([], [], None)


def test_records_of_a_partition_lost_while_calls_were_slow_are_left_to_its_new_owner(scene: Scene) -> None:
    newcomer = scene.broker.subscriber("group", ("things",))

    def prepare(events: Sequence[Event]) -> list[Call]:
        scene.broker.recreate("things")
        consumer.subscriber.keep_alive(0)
        return []

    scene.produce(thing("a"))
    consumer = scene.consumer(scene.group(prepare=prepare))
    consumer.step(scene.stop)
    assert (told(), scene.committed()) == ([], None)
    newcomer.close()
