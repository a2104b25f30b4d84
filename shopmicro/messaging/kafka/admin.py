"""What operations ask of a cluster, and the ids of its topics."""

from collections.abc import Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from shopmicro.messaging.broker import BrokerError, TopicSpec
from shopmicro.messaging.kafka.config import KafkaConfig
from shopmicro.messaging.kafka.errors import broker_error, broker_errors
from shopmicro.messaging.kafka.patience import Deadline

log = structlog.get_logger(__name__)

_CREATE_SECONDS = 30.0
_ANSWER_SECONDS = 10.0
_SLACK_SECONDS = 1.0
_MOCK = "mockCluster"


class KafkaAdmin:
    """Asks a cluster; connects at first use.

    librdkafka's mock cluster, which the demo runs on, answers neither the creation of topics
    nor questions for their ids. It is known by its cluster id: its topics are made by asking
    for them, with as many partitions as it likes, and its cluster id stands for their ids,
    since a topic cannot be made anew there.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._opened: AdminClient | None = None

    def create_topics(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make the topics that are missing, and give their names.

        An existing topic is left as it is; if it has fewer partitions than wanted, that is logged.
        """
        metadata = self._metadata(_ANSWER_SECONDS)
        missing = [spec for spec in topics if self._config.on_wire(spec.name) not in metadata.topics]
        for spec in topics:
            if spec not in missing:
                self._compare(spec, len(metadata.topics[self._config.on_wire(spec.name)].partitions))
        if metadata.cluster_id.startswith(_MOCK):
            return [spec.name for spec in missing if self._touch(spec)]
        return self._create(missing)

    def check(self, timeout: float) -> None:
        """Raise BrokerError if the cluster does not answer within ``timeout`` seconds."""
        self._metadata(timeout)

    def topic_ids(self, topics: Iterable[str], deadline: Deadline) -> dict[str, str]:
        """Give the ids of those topics that exist. Raises BrokerError."""
        metadata = self._metadata(deadline.left)
        found = [topic for topic in topics if self._config.on_wire(topic) in metadata.topics]
        if metadata.cluster_id.startswith(_MOCK):
            return dict.fromkeys(found, str(metadata.cluster_id))
        if not found:
            return {}
        names = TopicCollection([self._config.on_wire(topic) for topic in found])
        answers = self._client.describe_topics(names, request_timeout=deadline.left)
        return {topic: _id_in(answers[self._config.on_wire(topic)], deadline.left) for topic in found}

    @property
    def _client(self) -> AdminClient:
        if self._opened is None:
            # Its log would be said by nobody: the errors come with the answers.
            self._opened = AdminClient({**self._config.client({}, {}), "log_level": 0})
        return self._opened

    def _metadata(self, timeout: float) -> Any:
        with broker_errors():
            return self._client.list_topics(timeout=timeout)

    def _create(self, specs: Sequence[TopicSpec]) -> list[str]:
        if not specs:
            return []
        wanted = [
            NewTopic(
                self._config.on_wire(spec.name), spec.partitions, spec.replication, config=dict(spec.config)
            )
            for spec in specs
        ]
        answers = self._client.create_topics(
            wanted, request_timeout=_CREATE_SECONDS, operation_timeout=_CREATE_SECONDS
        )
        return [spec.name for spec in specs if _is_created(answers[self._config.on_wire(spec.name)])]

    def _touch(self, spec: TopicSpec) -> bool:
        name = self._config.on_wire(spec.name)
        client = AdminClient({**self._config.client({}, {"allow.auto.create.topics": True}), "log_level": 0})
        with broker_errors():
            topic = client.list_topics(name, timeout=_ANSWER_SECONDS).topics[name]
        if topic.error is not None:
            raise broker_error(topic.error)
        self._compare(spec, len(topic.partitions))
        return True

    def _compare(self, spec: TopicSpec, partitions: int) -> None:
        if partitions < spec.partitions:
            log.warning(
                "a topic has fewer partitions than wanted, and is left so",
                topic=spec.name,
                partitions=partitions,
                wanted=spec.partitions,
            )


def _id_in(answer: Any, timeout: float) -> str:
    try:
        with broker_errors():
            return str(answer.result(timeout).topic_id)
    except FutureTimeoutError:
        raise BrokerError("no answer in time") from None


def _is_created(answer: Any) -> bool:
    try:
        answer.result(_CREATE_SECONDS + _SLACK_SECONDS)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise broker_error(error.args[0]) from None
    return True
