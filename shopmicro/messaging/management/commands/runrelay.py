"""Publish the outbox."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from shopmicro.messaging.kafka import KafkaConfig, KafkaPublisher
from shopmicro.messaging.lease import ShardCountDiffers, ShardLease
from shopmicro.messaging.management.workers import OUTAGE, serve_metrics
from shopmicro.messaging.outage import Outage
from shopmicro.messaging.relay import Relay
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import Stop
from shopmicro.messaging.wakeup import Wakeup

EXIT_SECONDS = 6.0


class Command(BaseCommand):
    help = "Publish the outbox to Kafka, in order per aggregate; a second relay of a shard stands by."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--shard", type=int, default=0, help="which of OUTBOX_SHARDS, from 0")

    def handle(self, *args: Any, shard: int, **options: Any) -> None:
        config = KafkaConfig.from_settings()
        try:
            relay = Relay(
                lambda: KafkaPublisher(config),
                ShardLease(shard, settings.OUTBOX_SHARDS),
                batch=settings.OUTBOX_BATCH,
                poll_seconds=settings.OUTBOX_POLL_INTERVAL,
                wakeup=Wakeup() if settings.OUTBOX_NOTIFY else None,
                outage=Outage("relay", OUTAGE),
                refusal=Backoff(settings.RETRY_DELAY, settings.RETRY_MAX_DELAY),
            )
            serve_metrics()
            with Stop(EXIT_SECONDS).on_signals() as stop:
                relay.run(stop)
        except (ShardCountDiffers, ValueError) as mistake:
            raise CommandError(str(mistake)) from mistake
