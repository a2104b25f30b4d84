"""Every metric's name, labels and meaning. Labels hold names of ours only, never data."""

from prometheus_client import Counter, Gauge, Histogram

LAST_STEP_NAME = "shopmicro_worker_last_step_timestamp_seconds"
LAST_STEP = Gauge(
    LAST_STEP_NAME, "Unix time at which the worker last went round its loop, waiting for an outage included"
)
MESSAGES = Counter(
    "shopmicro_messages_total",
    "Messages settled, by what became of them",
    ["group", "outcome"],
)
SET_ASIDE = Counter(
    "shopmicro_set_aside_total", "Records written to the dead letters", ["group", "state", "error"]
)
BATCH_SECONDS = Histogram(
    "shopmicro_batch_seconds",
    "Time to handle one batch, from polled to committed",
    ["group"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
OUTAGES = Counter(
    "shopmicro_outages_total", "Times a worker began to wait for the database or the broker", ["worker"]
)
PUBLISHED = Counter("shopmicro_outbox_published_total", "Outbox rows acknowledged by the broker", ["topic"])
REFUSED = Counter(
    "shopmicro_outbox_refused_total", "Sends of an outbox row that the broker refused", ["topic"]
)
PUBLISH_SECONDS = Histogram(
    "shopmicro_outbox_publish_seconds",
    "Age of an outbox row when it was marked as published",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300),
)
