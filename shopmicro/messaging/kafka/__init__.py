"""The real broker: beside `shopmicro.embedded` the only code that speaks to the Kafka client.

Nothing is opened at import, nor before an object is made, so a process may fork after importing it.
"""

from shopmicro.messaging.kafka.admin import KafkaAdmin
from shopmicro.messaging.kafka.config import KafkaConfig
from shopmicro.messaging.kafka.publisher import KafkaPublisher
from shopmicro.messaging.kafka.subscriber import KafkaSubscriber

__all__ = ["KafkaAdmin", "KafkaConfig", "KafkaPublisher", "KafkaSubscriber"]
