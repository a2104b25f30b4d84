"""What befalls a client: trouble that passes is said, trouble that stays ends its use."""

from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import KafkaError

from shopmicro.messaging.broker import BrokerFatal
from shopmicro.messaging.kafka.errors import is_fatal
from shopmicro.messaging.kafka.noise import Complaints

log = structlog.get_logger(__name__)


class Trouble:
    """The trouble of one client, with the details that name it in the log."""

    def __init__(self, event: str, complaints: Complaints, **details: Any) -> None:
        self._event = event
        self._complaints = complaints
        self._details = details
        self._fatal: BrokerFatal | None = None

    def hear(self, error: KafkaError) -> None:
        """Take an error that the client tells of; a fatal one ends its use."""
        if is_fatal(error):
            self.give_up(f"{error.name()}: {error.str()}")
        self._complaints.hear(self._event, error, **self._details)

    def guarded(self, callback: Callable[..., None]) -> Callable[..., None]:
        """End the client's use when its callback fails: it would go on as if all were done."""

        def call(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except Exception as error:
                log.exception("a callback of the client failed", **self._details)
                self.give_up(f"{type(error).__name__}: {error}")

        return call

    def give_up(self, reason: str) -> None:
        """End the client's use."""
        self._fatal = BrokerFatal(reason)

    def raise_fatal(self) -> None:
        """Raise BrokerFatal once the client's use has ended."""
        if self._fatal is not None:
            raise self._fatal
