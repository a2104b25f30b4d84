"""P1: how fast are payment results applied?

EVENTS (200000) and ROUNDS (3) in the environment change the size; SAGA_BATCH is the product's own.
"""

import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import confluent_kafka

from benchmarks import race
from benchmarks.cluster import Cluster
from benchmarks.golang import build, missing_go
from benchmarks.load import ROOT, load_orders, migrate, preload, product_environment
from benchmarks.race import Contender, Turn
from benchmarks.report import Answer, Ratio
from shopmicro.embedded import kafka

PEERS = Path(__file__).with_name("peers")
PREFIX = "p1-"
TEMPLATE = "loaded"
# Topics by name: how many partitions each has, and which share of the events. Only rates count, so the
# slower contenders get fewer events; sixteen consumers need as many partitions.
TOPICS = {
    f"{PREFIX}payments": (6, 1.0),
    f"{PREFIX}payments-few": (6, 0.05),
    f"{PREFIX}payments-wide": (16, 0.3),
}
PRODUCT = "runsaga"
ALONE = "chapter in Go, 1 consumer"
SIXTEEN = "chapter in Go, 16 consumers"
LIMIT = "one statement a batch of {}"
BATCHES = (1000, 3000)
# What the product must reach against each peer, and where it shall go.
AIMS = {ALONE: (8, 10), SIXTEEN: (2, 3), **{LIMIT.format(batch): (0.5, 0.8) for batch in BATCHES}}


def answer(directory: Path, say: Callable[[str], None]) -> Answer:
    """Let product and peers take turns; ``say`` hears a line after each step."""
    events, rounds = int(os.environ.get("EVENTS", "200000")), int(os.environ.get("ROUNDS", "3"))
    with Cluster.started(directory) as cluster:
        sizes = prepare(cluster, events)
        say(f"{events:,} orders and their payment results are loaded")
        contenders = [product(sizes), *limits(sizes)]
        missing = missing_go()
        if not missing:
            contenders += chapters(sizes, build(PEERS / "chapter", directory / "chapter"))
        turns = list(take_turns(cluster, contenders, rounds, directory, say))
        found = Answer(
            question="P1",
            asked="How fast are payment results applied?",
            unit="events/s",
            parameters={
                "events": sizes,
                "rounds": rounds,
                "saga_batch": os.environ.get("SAGA_BATCH", "default"),
            },
            versions=versions(cluster),
        )
    found.turns = [describe(turn) for turn in turns]
    found.ratios = ratios(turns)
    if missing:
        found.left_out.append(f"{missing}. Left out: the ratios to {ALONE} and to {SIXTEEN}.")
    return found


def prepare(cluster: Cluster, events: int) -> Mapping[str, int]:
    """Load the template and the topics; gives how many events each topic holds."""
    cluster.create_database(TEMPLATE)
    migrate(product_environment(cluster.url(TEMPLATE), cluster.bootstrap_servers))
    order_ids = load_orders(cluster.url(TEMPLATE), events)
    sizes = {topic: int(events * share) for topic, (_, share) in TOPICS.items()}
    for topic, (partitions, _) in TOPICS.items():
        cluster.create_topic(topic, partitions)
        preload(cluster.bootstrap_servers, topic, order_ids[: sizes[topic]])
    return sizes


def product(sizes: Mapping[str, int]) -> Contender:
    """Give the real thing: one process of ``manage.py runsaga``."""
    return Contender(
        PRODUCT,
        [sys.executable, ROOT / "manage.py", "runsaga"],
        product_environment("", "", PREFIX),
        f"{PREFIX}payments",
        f"{PREFIX}order-saga",
        sizes[f"{PREFIX}payments"],
    )


def limits(sizes: Mapping[str, int]) -> Iterator[Contender]:
    """Give the limit, in batches of both sizes."""
    topic = f"{PREFIX}payments"
    for batch in BATCHES:
        group = f"{PREFIX}one-statement-{batch}"
        environment = {**os.environ, "TOPIC": topic, "GROUP": group, "BATCH": str(batch)}
        command = [sys.executable, PEERS / "one_statement.py"]
        yield Contender(LIMIT.format(batch), command, environment, topic, group, sizes[topic])


def chapters(sizes: Mapping[str, int], program: Path) -> Iterator[Contender]:
    """Give the chapter's design with one consumer and with sixteen."""
    shapes = ((ALONE, 1, f"{PREFIX}payments-few"), (SIXTEEN, 16, f"{PREFIX}payments-wide"))
    for name, consumers, topic in shapes:
        group = f"{PREFIX}chapter-{consumers}"
        options = ["-topic", topic, "-group", group, "-consumers", str(consumers)]
        yield Contender(name, [program, *options], dict(os.environ), topic, group, sizes[topic])


def take_turns(
    cluster: Cluster,
    contenders: list[Contender],
    rounds: int,
    directory: Path,
    say: Callable[[str], None],
) -> Iterator[Turn]:
    """Run each contender once a round, the order turned round in every second one."""
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else contenders[::-1]:
            turn = race.run(cluster, TEMPLATE, contender, directory / "contender.log")
            say(f"round {number + 1}: {turn.contender}: {turn.rate:,.0f} events/s")
            yield turn


def ratios(turns: list[Turn]) -> list[Ratio]:
    """Set the product's median rate over each peer's."""
    medians = {
        name: statistics.median(turn.rate for turn in turns if turn.contender == name)
        for name in {turn.contender for turn in turns}
    }
    return [
        Ratio(peer, round(medians[PRODUCT]), round(medians[peer]), floor, goal)
        for peer, (floor, goal) in AIMS.items()
        if peer in medians
    ]


def describe(turn: Turn) -> dict[str, object]:
    """Give a turn as it is written down."""
    return {
        "contender": turn.contender,
        "events": turn.events,
        "seconds": round(turn.seconds, 2),
        "rate": round(turn.rate),
    }


def versions(cluster: Cluster) -> dict[str, str]:
    """Give the versions of the servers and of the client."""
    return {
        "postgresql": cluster.server_version(),
        "kafka": kafka.VERSION,
        "librdkafka": confluent_kafka.libversion()[0],
    }
