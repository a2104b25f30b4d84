"""What the commands that run a worker have in common: settings in, a running loop out."""

import gc
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from prometheus_client import start_http_server

from shopmicro.messaging.consumer import Consumer, Limits
from shopmicro.messaging.dead_letters import RetryPolicy
from shopmicro.messaging.handler import get_group
from shopmicro.messaging.kafka import KafkaConfig, KafkaSubscriber
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop

OUTAGE = Backoff(first=0.2, longest=3.0)
EXIT_SECONDS = 8.0


class ConsumerCommand(BaseCommand):
    """Runs the consumer group that a subclass names; ``batch`` names the setting of its size."""

    group: str
    batch = "CONSUMER_BATCH"

    def handle(self, *args: Any, **options: Any) -> None:
        """Consume until SIGTERM or SIGINT."""
        serve_metrics()
        rest_the_collector()
        with Stop(EXIT_SECONDS).on_signals() as stop:
            consumer(self.group, getattr(settings, self.batch)).run(stop)


def consumer(name: str, batch: int) -> Consumer:
    """Make a consumer of a registered group, as the settings say; ``batch`` is in records."""
    group, config = get_group(name), KafkaConfig.from_settings()
    return Consumer(
        group,
        lambda: KafkaSubscriber(config, group.name, group.topics),
        limits=Limits(batch, settings.CONSUMER_BATCH_BYTES, concurrency=settings.CALL_CONCURRENCY),
        policy=RetryPolicy(
            settings.RETRY_ATTEMPTS,
            settings.RETRY_OUTAGE_ATTEMPTS,
            Backoff(settings.RETRY_DELAY, settings.RETRY_MAX_DELAY),
        ),
        outage=OUTAGE,
        now=lambda: datetime.now(UTC),
    )


def rest_the_collector() -> None:
    """Let the garbage collector pass over what was loaded at start, and come seldom.

    A batch's objects hold no cycles and die by themselves, but there are thousands of them, and
    each would count towards the next full pass over everything that Django has loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def serve_metrics() -> None:
    """Serve the worker's metrics on METRICS_PORT, where one is set."""
    if settings.METRICS_PORT:
        start_http_server(settings.METRICS_PORT, settings.METRICS_ADDRESS)
