"""Products: what the shop sells, at which price, and how many are left."""

from uuid import uuid4

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Product(models.Model):
    """A product; ``stock`` is how many are left to sell, null where nobody counts."""

    id = models.UUIDField(primary_key=True, default=uuid4)
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True, db_default="")
    price_cents = models.BigIntegerField()
    stock = models.IntegerField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "products"
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="products_name_not_empty"),
            models.CheckConstraint(condition=Q(price_cents__gte=1), name="products_price_positive"),
            models.CheckConstraint(condition=Q(stock__gte=0), name="products_stock_not_negative"),
        ]

    def __str__(self) -> str:
        return self.name
