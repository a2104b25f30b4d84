"""Orders and their items: the states an order may be in and the limits the database holds."""

from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

MAX_TOTAL_CENTS = 2**63 - 1
MAX_QUANTITY = 2**31 - 1


def new_order_id() -> UUID:
    """Make a UUIDv7: later orders sort after earlier ones, and inserts stay at the index's end."""
    return uuid7()


class OrderQuerySet(models.QuerySet["Order"]):
    """Sets of orders."""

    def among(self, ids: list[str]) -> "OrderQuerySet":
        """Orders with these ids, given as text: one array parameter however many there are."""
        among = RawSQL("orders.id = ANY(%s::uuid[])", [ids], output_field=models.BooleanField())
        return self.filter(among)

    def locked(self) -> "OrderQuerySet":
        """Lock these orders' rows in the order of their ids, the one order in which all take them."""
        return self.select_for_update().order_by("id")


class Order(models.Model):
    """An order leaves ``pending`` exactly once, for ``confirmed`` or ``cancelled``."""

    class Status(models.TextChoices):
        PENDING = "pending"
        CONFIRMED = "confirmed"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=new_order_id)
    customer_id = models.CharField(max_length=255)
    email = models.EmailField(blank=True, db_default="")
    status = models.TextField(choices=Status.choices, default=Status.PENDING)
    total_cents = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    reason = models.TextField(blank=True, db_default="")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    objects = OrderQuerySet.as_manager()

    class Meta:
        db_table = "orders"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["pending", "confirmed", "cancelled"]), name="orders_status_known"
            ),
            models.CheckConstraint(condition=Q(total_cents__gte=1), name="orders_total_positive"),
        ]
        # No index knows ``status``, not even a partial one: each status update stays a HOT update.
        indexes = [models.Index(fields=["customer_id", "-id"], name="orders_by_customer")]

    def __str__(self) -> str:
        return str(self.id)


class OrderItem(models.Model):
    """One product of an order, at the price it had when the order was placed."""

    id = models.BigAutoField(primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="items")
    product_id = models.UUIDField()
    quantity = models.IntegerField()
    unit_price_cents = models.BigIntegerField()

    class Meta:
        db_table = "order_items"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["order", "product_id"], name="order_items_product_unique"),
            models.CheckConstraint(condition=Q(quantity__gte=1), name="order_items_quantity_positive"),
            models.CheckConstraint(
                condition=Q(unit_price_cents__gte=0), name="order_items_price_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product_id}"


class ProcessedEvent(models.Model):
    """The saga's memory: a payment event that was applied or was a no-op on a terminal order."""

    event_id = models.TextField(primary_key=True, db_collation="C")
    processed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "processed_events"
        ordering = ["event_id"]

    def __str__(self) -> str:
        return self.event_id
