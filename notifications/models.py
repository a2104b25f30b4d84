"""Notifications: what customers were told of their orders, and what they were not told and why."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db import models
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now


class NotificationQuerySet(models.QuerySet["Notification"]):
    """Sets of notifications."""

    def among(self, order_ids: Collection[str]) -> "NotificationQuerySet":
        """Notifications of these orders, given as text: one array parameter however many there are."""
        among = RawSQL(
            "notifications.order_id = ANY(%s::uuid[])", [list(order_ids)], output_field=models.BooleanField()
        )
        return self.filter(among)

    def locked(self) -> "NotificationQuerySet":
        """Lock these rows in the order of order and kind, the one order in which all do."""
        return self.select_for_update().order_by("order_id", "kind")


class Notification(models.Model):
    """What became of telling one order's customer of one kind of result.

    ``sending`` is the claim of a worker that is about to send the mail, good until
    ``claimed_until``; with no such time, or after it, any worker may take it up. ``error`` is
    why the last try to send failed. All states but ``sending`` and ``suppressed`` are final.
    """

    class Kind(models.TextChoices):
        """Named like the state of the order that it tells of."""

        CONFIRMED = "confirmed"
        CANCELLED = "cancelled"

    class State(models.TextChoices):
        SENDING = "sending"
        SENT = "sent"
        NO_ADDRESS = "no_address"
        SUPPRESSED = "suppressed"
        TOO_OLD = "too_old"

    # Longer than a slow mail server takes, shorter than a letter is tried again before it is parked.
    CLAIM = timedelta(seconds=45)

    id = models.BigAutoField(primary_key=True)
    order_id = models.UUIDField()
    kind = models.TextField(choices=Kind.choices)
    state = models.TextField(choices=State.choices)
    event_id = models.TextField(db_collation="C")
    recipient = models.TextField(blank=True, default="")
    error = models.TextField(blank=True, default="")
    claimed_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)

    objects = NotificationQuerySet.as_manager()

    class Meta:
        db_table = "notifications"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["order_id", "kind"], name="notifications_order_kind_unique"),
            models.CheckConstraint(
                condition=Q(kind__in=["confirmed", "cancelled"]), name="notifications_kind_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["sending", "sent", "no_address", "suppressed", "too_old"]),
                name="notifications_state_known",
            ),
            models.CheckConstraint(
                condition=Q(state="sent", sent_at__isnull=False) | (~Q(state="sent") & Q(sent_at=None)),
                name="notifications_sent_has_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of order {self.order_id}"

    @property
    def is_planned(self) -> bool:
        """Whether the batch at hand asks for it, and nothing is recorded yet."""
        return self.pk is None

    def mark_sent(self, now: datetime) -> None:
        """The mail server took the mail: so it is, whatever was thought of it meanwhile."""
        self.state, self.error = self.State.SENT, ""
        self.sent_at = self.updated_at = now
        self.claimed_until = None

    def fail(self, error: str, now: datetime) -> None:
        """The mail was not sent: keep why, and let go of the claim."""
        if self.state == self.State.SENDING:
            self.error, self.claimed_until, self.updated_at = error, None, now
