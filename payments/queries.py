"""Reads of payments."""

from collections.abc import Collection

from payments.models import Payment


def find_payments(order_ids: Collection[str]) -> dict[str, Payment]:
    """Give the payments of these orders, by order id in lower case; an order without one is absent."""
    return {str(payment.order_id): payment for payment in Payment.objects.among(list(order_ids))}
