"""Health: alive without asking anyone, ready only when database and broker answer, never hanging."""

import json
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test import Client

from shopmicro.health import Probe, ask_database, probes, readiness
from shopmicro.messaging.kafka import KafkaAdmin, KafkaConfig

NOBODY = "127.0.0.1:1"


class Asked:
    """A dependency that counts how often it was asked, and fails while it is ``down``."""

    def __init__(self, down: bool = False) -> None:
        self.down = down
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        if self.down:
            raise ConnectionError("no route to host; password=hunter2")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def database_away(django_db_blocker: Any) -> Iterator[str]:
    connections.settings["away"] = {**connections.settings["default"], "HOST": "127.0.0.1", "PORT": "1"}
    with django_db_blocker.unblock():
        yield "away"
    del connections.settings["away"]


def test_a_process_that_answers_is_alive(client: Client) -> None:
    response = client.get("/healthz")

    assert (response.status_code, response.json()) == (200, {"status": "alive"})
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db
def test_ready_is_when_database_and_broker_answer(client: Client, kafka: Any) -> None:
    probes.cache_clear()

    response = client.get("/readyz")

    assert response.status_code == 200
    assert response.json() == {"status": "ready", "checks": {"database": "answers", "broker": "answers"}}


@pytest.mark.django_db
def test_without_a_broker_readiness_is_a_503_problem_that_names_it() -> None:
    admin = KafkaAdmin(KafkaConfig(NOBODY))
    asked = (Probe("database", ask_database), Probe("broker", lambda: admin.check(0.2)))

    response = readiness(asked, 10)

    assert (response.status_code, response["Content-Type"]) == (503, "application/problem+json")
    told = json.loads(response.content)
    assert told["detail"] == "No answer from: broker."
    assert told["checks"] == {"database": "answers", "broker": "does not answer"}


def test_a_database_that_is_away_is_told(database_away: str) -> None:
    response = readiness((Probe("database", lambda: ask_database(database_away)),), 10)

    assert json.loads(response.content)["checks"] == {"database": "does not answer"}
    with pytest.raises(OperationalError):
        ask_database(database_away)


def test_what_went_wrong_is_logged_not_answered() -> None:
    response = readiness((Probe("broker", Asked(down=True)),), 10)

    assert response.status_code == 503
    assert b"hunter2" not in response.content


def test_an_answer_serves_for_some_seconds() -> None:
    broker, clock = Asked(), Clock()
    probe = Probe("broker", broker, fresh_for=5, clock=clock)

    first = probe.answers(10)
    broker.down = True
    clock.now += 5
    still = probe.answers(10)
    clock.now += 0.1
    then = probe.answers(10)

    assert (first, still, then, broker.count) == (True, True, False, 2)


def test_a_dependency_that_hangs_costs_a_bounded_wait_and_is_asked_once() -> None:
    release, asked = Event(), Asked()

    def hang() -> None:
        asked()
        release.wait(60)

    probe = Probe("database", hang, fresh_for=0)

    assert [probe.answers(0.01) for _ in range(3)] == [False, False, False]
    assert asked.count == 1
    release.set()
    assert probe.answers(10)
