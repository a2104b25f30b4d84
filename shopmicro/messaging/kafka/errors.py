"""Which of the port's errors an error of the client is."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from shopmicro.messaging.broker import BrokerError, BrokerFatal, QueueFull, Refused, RefusedTogether

_REFUSALS_TOGETHER = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
    }
)
_REFUSALS = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
    }
)


def is_fatal(error: KafkaError) -> bool:
    """Whether the client that met this error is beyond repair."""
    return error.fatal() or error.code() == KafkaError._FATAL


def broker_error(error: KafkaError) -> BrokerError:
    """Give the port's error for an error of the client, with its name and sentence."""
    text = f"{error.name()}: {error.str()}"
    if is_fatal(error):
        return BrokerFatal(text)
    if error.code() == KafkaError._QUEUE_FULL:
        return QueueFull(text)
    if error.code() in _REFUSALS_TOGETHER:
        return RefusedTogether(text)
    if error.code() in _REFUSALS:
        return Refused(text)
    return BrokerError(text)


@contextmanager
def broker_errors() -> Iterator[None]:
    """Turn an error that the client raises within into one of the port's."""
    try:
        yield
    except KafkaException as error:
        raise broker_error(error.args[0]) from None


def raise_first(partitions: Iterable[TopicPartition]) -> None:
    """Raise KafkaException if one of the partitions in an answer has an error."""
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)
