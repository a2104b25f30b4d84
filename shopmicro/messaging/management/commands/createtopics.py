"""Make the topics that the consumer groups read."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from shopmicro.messaging.broker import BrokerError, TopicSpec
from shopmicro.messaging.handler import groups
from shopmicro.messaging.kafka import KafkaAdmin, KafkaConfig

_CONFIG = {"message.timestamp.type": "LogAppendTime"}


class Command(BaseCommand):
    help = "Make the Kafka topics that are missing; safe to repeat, an existing topic is left as it is."

    def handle(self, *args: Any, **options: Any) -> None:
        names = sorted({topic for group in groups() for topic in group.topics})
        topics = [
            TopicSpec(name, settings.TOPIC_PARTITIONS, settings.TOPIC_REPLICATION, _CONFIG) for name in names
        ]
        try:
            made = set(KafkaAdmin(KafkaConfig.from_settings()).create_topics(topics))
        except BrokerError as error:
            raise CommandError(
                f"Kafka at {settings.KAFKA_BOOTSTRAP_SERVERS} did not make the topics ({error}):"
                " see that it runs and that KAFKA_BOOTSTRAP_SERVERS and KAFKA_OPTIONS are right, then repeat."
            ) from error
        for name in names:
            self.stdout.write(f"{name}: {'made' if name in made else 'was there'}")
