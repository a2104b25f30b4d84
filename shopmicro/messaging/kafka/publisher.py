"""Sends records to Kafka."""

from collections import deque
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from shopmicro.messaging.broker import BrokerFatal, Delivery, Headers, OnDelivery, QueueFull
from shopmicro.messaging.kafka.config import KafkaConfig
from shopmicro.messaging.kafka.errors import broker_error, is_fatal
from shopmicro.messaging.kafka.noise import Complaints
from shopmicro.messaging.kafka.trouble import Trouble

# The propagation time is how long an unknown topic is hoped for: shorter than the time-out of a
# record, so that such a record is refused and not taken for an outage. murmur2 puts a key on the
# partition that the Java clients choose, so that another relay can take over.
_DEFAULTS = {
    "compression.type": "lz4",
    "linger.ms": 3,
    "message.timeout.ms": 20_000,
    "topic.metadata.propagation.max.ms": 3_000,
    "queue.buffering.max.messages": 50_000,
    "queue.buffering.max.kbytes": 32 * 1024,
    "partitioner": "murmur2_random",
}
_ALWAYS = {"acks": "all", "enable.idempotence": True}


class KafkaPublisher:
    """An idempotent producer with acknowledgement of all replicas. For one thread.

    A refusal is always a delivery report, also where the client refuses at once (too large).
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._prefix = config.prefix
        self._trouble = Trouble("the producer has trouble with the broker", Complaints())
        self._reported = 0
        self._refused: deque[tuple[OnDelivery, Delivery]] = deque()
        self._producer = Producer({**config.client(_DEFAULTS, _ALWAYS), "error_cb": self._trouble.hear})

    def send(
        self, topic: str, key: str | None, value: bytes | None, headers: Headers, on_delivery: OnDelivery
    ) -> None:
        """Queue one record; its report, also of any refusal, comes from within `serve`.

        Raises QueueFull, and BrokerFatal once the client is beyond repair.
        """
        self._trouble.raise_fatal()
        try:
            self._producer.produce(
                self._prefix + topic,
                value,
                key,
                headers=list(headers),
                on_delivery=partial(self._report, on_delivery),
            )
        except BufferError:
            raise QueueFull("the send queue is full") from None
        except KafkaException as error:
            self._refuse(error, on_delivery)

    def serve(self, timeout: float) -> int:
        """Deliver the reports that have come, waiting up to ``timeout`` seconds for the first."""
        self._reported = 0
        self._report_refusals()
        self._producer.poll(0 if self._reported else timeout)
        self._trouble.raise_fatal()
        return self._reported

    def close(self, timeout: float) -> None:
        """Send what is queued for up to ``timeout`` seconds, and drop the rest."""
        self._report_refusals()
        self._producer.flush(timeout)
        self._producer.purge()
        self._producer.flush(0)

    def _report(self, on_delivery: OnDelivery, error: KafkaError | None, message: Any) -> None:
        self._reported += 1
        if error is None:
            on_delivery(Delivery(message.partition(), message.offset()))
            return
        if is_fatal(error):
            self._trouble.hear(error)
        on_delivery(Delivery(error=broker_error(error)))

    def _refuse(self, error: KafkaException, on_delivery: OnDelivery) -> None:
        known = broker_error(error.args[0])
        if isinstance(known, QueueFull | BrokerFatal):
            raise known from None
        self._refused.append((on_delivery, Delivery(error=known)))

    def _report_refusals(self) -> None:
        while self._refused:
            on_delivery, delivery = self._refused.popleft()
            self._reported += 1
            on_delivery(delivery)
