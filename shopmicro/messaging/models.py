"""The rows behind the messaging: the outbox and the dead letters."""

from datetime import datetime

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now


class OutboxQuerySet(models.QuerySet["OutboxEvent"]):
    """Sets of outbox rows."""

    def unpublished(self) -> "OutboxQuerySet":
        """Rows that the broker has not acknowledged yet, in the order in which they are sent."""
        return self.filter(published_at=None).order_by("id")


class OutboxEvent(models.Model):
    """An event to be told, written in the transaction of what it tells of.

    ``payload`` is the whole record value, encoded once: relaying copies bytes.
    """

    id = models.BigAutoField(primary_key=True)
    event_id = models.TextField(db_collation="C")
    topic = models.TextField()
    aggregate_id = models.UUIDField()
    type = models.TextField()
    payload = models.TextField()
    occurred_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())
    published_at = models.DateTimeField(null=True)
    partition = models.IntegerField(null=True)
    offset = models.BigIntegerField(null=True)
    attempts = models.IntegerField(db_default=0)
    error = models.TextField(db_default="")
    failing_since = models.DateTimeField(null=True)
    next_attempt_at = models.DateTimeField(null=True)

    objects = OutboxQuerySet.as_manager()

    class Meta:
        db_table = "outbox"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["event_id"], name="outbox_event_id_unique"),
        ]
        indexes = [
            models.Index(fields=["id"], condition=Q(published_at=None), name="outbox_unpublished"),
            models.Index(
                fields=["aggregate_id", "id"],
                condition=Q(published_at=None, failing_since__isnull=False),
                name="outbox_failing",
            ),
            models.Index(fields=["aggregate_id"], name="outbox_aggregate"),
        ]

    def __str__(self) -> str:
        return self.event_id


class DeadLetterQuerySet(models.QuerySet["DeadLetter"]):
    """Sets of dead letters."""

    def due(self, group: str, now: datetime) -> "DeadLetterQuerySet":
        """Letters of a group that wait for another try and whose time has come, oldest first.

        Of one aggregate only the first that waits: those after it are tried when it is settled,
        so that results are judged in the order in which they came.
        """
        waiting = DeadLetter.objects.filter(
            consumer_group=group,
            state=DeadLetter.State.RETRYING,
            aggregate_id=OuterRef("aggregate_id"),
            id__lt=OuterRef("id"),
        )
        return self.filter(
            ~Exists(waiting), consumer_group=group, state=DeadLetter.State.RETRYING, next_attempt_at__lte=now
        ).order_by("next_attempt_at", "id")


class DeadLetter(models.Model):
    """A record that could not be handled, as it came: key, value and headers as bytes.

    Its key holds the topic's id, since a topic made anew under the same name reuses offsets.
    ``attempts`` counts tries that ended in the present error, ``unfinished`` those since that did not end.
    ``headers`` is a JSON list of ``[name, value in base64 or null]``.
    """

    class State(models.TextChoices):
        RETRYING = "retrying"
        PARKED = "parked"
        REPLAYED = "replayed"
        DISCARDED = "discarded"

    id = models.BigAutoField(primary_key=True)
    consumer_group = models.TextField()
    topic = models.TextField()
    topic_id = models.TextField()
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    state = models.TextField(choices=State.choices)
    error = models.TextField()
    reason = models.TextField()
    event_id = models.TextField(db_default="")
    event_type = models.TextField(db_default="")
    aggregate_id = models.UUIDField(null=True)
    key = models.BinaryField(null=True)
    value = models.BinaryField(null=True)
    headers = models.BinaryField()
    recorded_at = models.DateTimeField(null=True)
    attempts = models.IntegerField(db_default=1)
    unfinished = models.IntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    next_attempt_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)

    objects = DeadLetterQuerySet.as_manager()

    class Meta:
        db_table = "dead_letters"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["consumer_group", "topic", "topic_id", "partition", "offset"],
                name="dead_letters_position_unique",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["retrying", "parked", "replayed", "discarded"]),
                name="dead_letters_state_known",
            ),
            models.CheckConstraint(
                condition=Q(state="retrying", next_attempt_at__isnull=False) | ~Q(state="retrying"),
                name="dead_letters_retrying_has_a_time",
            ),
        ]
        indexes = [
            models.Index(
                F("consumer_group"),
                F("next_attempt_at"),
                condition=Q(state="retrying"),
                name="dead_letters_due",
            ),
            models.Index(
                fields=["aggregate_id"],
                condition=Q(state__in=["retrying", "parked"]),
                name="dead_letters_open_aggregate",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.consumer_group} {self.topic}[{self.partition}]@{self.offset}"
