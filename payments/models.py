"""Payments: one an order, begun before the gateway is asked and settled once."""

from django.db import models
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now


class PaymentQuerySet(models.QuerySet["Payment"]):
    """Sets of payments."""

    def among(self, order_ids: list[str]) -> "PaymentQuerySet":
        """Payments of these orders, given as text: one array parameter however many there are."""
        among = RawSQL("payments.order_id = ANY(%s::uuid[])", [order_ids], output_field=models.BooleanField())
        return self.filter(among)

    def locked(self) -> "PaymentQuerySet":
        """Lock these payments in the order of their orders' ids, the one order in which all do."""
        return self.select_for_update().order_by("order_id")


class Payment(models.Model):
    """A payment is ``started`` before the gateway is asked, so that a crash leaves a trace of it.

    ``event_id`` is that of the event which tells the result. Amount and currency are what the
    gateway is asked for, also when it has to be asked again.
    """

    class Status(models.TextChoices):
        STARTED = "started"
        SUCCEEDED = "succeeded"
        FAILED = "failed"

    id = models.BigAutoField(primary_key=True)
    order_id = models.UUIDField()
    event_id = models.TextField(db_collation="C")
    amount_cents = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    status = models.TextField(choices=Status.choices, db_default=Status.STARTED)
    reason = models.TextField(blank=True, db_default="")
    reference = models.TextField(blank=True, db_default="")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    objects = PaymentQuerySet.as_manager()

    class Meta:
        db_table = "payments"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["order_id"], name="payments_order_unique"),
            models.CheckConstraint(
                condition=Q(status__in=["started", "succeeded", "failed"]), name="payments_status_known"
            ),
            models.CheckConstraint(condition=Q(amount_cents__gte=1), name="payments_amount_positive"),
        ]

    def __str__(self) -> str:
        return f"payment of order {self.order_id}"

    @property
    def is_settled(self) -> bool:
        """Whether the gateway's answer is recorded; nothing changes it after that."""
        return self.status != self.Status.STARTED
