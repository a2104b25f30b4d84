"""One contender's turn: started on a database of its own, waited for, measured from outside, checked."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.cluster import Cluster, Progress
from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.processes import Child

STALLED_SECONDS = 60.0
LOOK_SECONDS = 0.25

# processed_at is when its transaction began. All transactions before the last began and ended between
# the two times, so the rate is that of whole ones; nothing looks at the database while it works.
MEASURE = """
WITH span AS (SELECT min(processed_at) AS first, max(processed_at) AS last FROM processed_events)
SELECT (SELECT count(*) FROM processed_events WHERE processed_at < last),
       extract(epoch FROM last - first)::float8
FROM span"""

CHECKS = {
    "orders confirmed": "SELECT count(*) FROM orders WHERE status = 'confirmed'",
    "orders resolved": "SELECT count(*) FROM orders WHERE status <> 'pending'",
    "processed events": "SELECT count(*) FROM processed_events",
    "outbox rows": "SELECT count(*) FROM outbox",
    "orders told of": """
        SELECT count(DISTINCT aggregate_id) FROM outbox
        JOIN orders ON orders.id = aggregate_id AND event_id = orders.id || ':confirmed'
        JOIN processed_events ON processed_events.event_id = orders.id || ':payment'""",
}


class WrongContender(Exception):
    """A contender did not do the work, or not all of it: its speed means nothing."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A program that applies the payment results of a topic, and where it reads them.

    ``environment`` holds what it needs beside DATABASE_URL and KAFKA_BOOTSTRAP_SERVERS.
    """

    name: str
    command: Sequence[str | Path]
    environment: Mapping[str, str]
    topic: str
    group: str
    events: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn gave: so many events applied in so many seconds."""

    contender: str
    events: int
    seconds: float

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds


def run(cluster: Cluster, template: str, contender: Contender, log: Path) -> Turn:
    """Let a contender apply its topic to a copy of the template. Raises WrongContender."""
    with cluster.copied(template, "contender") as url:
        environment = {
            **contender.environment,
            "DATABASE_URL": url,
            "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        }
        with cluster.progress(contender.group, contender.topic) as progress:
            with Child(contender.command, log=log, env=environment) as child:
                await_offsets(progress, contender, child)
                status = child.stop()
            if status or progress.committed() != progress.ends():
                raise WrongContender(f"{contender.name}: {child.last_words()}")
        check(url, contender)
        turn = measure(url, contender)
    cluster.forget(contender.group)
    return turn


def await_offsets(progress: Progress, contender: Contender, child: Child) -> None:
    """Wait until the group has committed the topic's ends; asks Kafka only, a few times a second."""
    ends, seen = progress.ends(), progress.committed()
    moved = time.monotonic()
    while seen != ends:
        time.sleep(LOOK_SECONDS)
        if child.poll() is not None:
            raise WrongContender(f"{contender.name}: {child.last_words()}")
        committed = progress.committed()
        if committed != seen:
            seen, moved = committed, time.monotonic()
        elif time.monotonic() - moved > STALLED_SECONDS:
            raise WrongContender(f"{contender.name}: nothing committed in {STALLED_SECONDS:.0f} s, at {seen}")


def check(url: str, contender: Contender) -> None:
    """Raise WrongContender unless each event was applied, recorded and told of once."""
    with psycopg.connect(url) as connection:
        for name, query in CHECKS.items():
            ((count,),) = connection.execute(query).fetchall()
            if count != contender.events:
                raise WrongContender(f"{contender.name}: {count} {name}, wanted {contender.events}")


def measure(url: str, contender: Contender) -> Turn:
    """Read the rate off the times that the database itself gave."""
    with psycopg.connect(url) as connection:
        ((events, seconds),) = connection.execute(MEASURE).fetchall()
    if not seconds:
        raise EmbeddedError(f"{contender.name} applied all in one transaction: set EVENTS higher")
    return Turn(contender.name, events, seconds)
