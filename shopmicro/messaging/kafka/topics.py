"""Watches whether a topic was made anew: its offsets then mean other records."""

from collections.abc import Callable, Sequence
from time import monotonic

from shopmicro.messaging.broker import Refused
from shopmicro.messaging.kafka.admin import KafkaAdmin
from shopmicro.messaging.kafka.patience import Deadline

_FRESH_SECONDS = 10.0


class TopicIds:
    """The ids of a member's topics, looked up again every ten seconds.

    The client does not tell when a topic is deleted and made anew: it reads on at the old
    offset, and so would skip what the new topic holds before it.
    """

    def __init__(
        self, admin: KafkaAdmin, topics: Sequence[str], clock: Callable[[], float] = monotonic
    ) -> None:
        self._admin = admin
        self._topics = topics
        self._clock = clock
        self._ids: dict[str, str] = {}
        self._given: dict[str, str] = {}
        self._fresh_until = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again."""
        return self._clock() >= self._fresh_until

    def refresh(self, deadline: Deadline) -> set[str]:
        """Look up the ids, and give the topics whose id is another than before. Raises BrokerError."""
        self._fresh_until = self._clock() + _FRESH_SECONDS
        ids = self._admin.topic_ids(self._topics, deadline)
        anew = {topic for topic, id_ in ids.items() if self._ids.get(topic, id_) != id_}
        self._ids.update(ids)
        return anew

    def known(self, topic: str) -> str:
        """Give the id of a topic as last seen, empty if it was not."""
        return self._ids.get(topic, "")

    def give(self) -> None:
        """Hold the ids as they are now for the records that are given now."""
        self._given = dict(self._ids)

    def given(self, topic: str) -> str:
        """Give the id that a topic had when records were last given, empty if it was not known."""
        return self._given.get(topic, "")

    def require(self, topic: str) -> str:
        """Give the id of a topic as last seen. Raises Refused if it is not known to exist."""
        if topic not in self._ids:
            raise Refused(f"no topic {topic}")
        return self._ids[topic]
