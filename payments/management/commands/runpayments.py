"""Charge new orders."""

from shopmicro.messaging.management.workers import ConsumerCommand


class Command(ConsumerCommand):
    help = "Charge new orders through the payment gateway, each order once (group payment-processor)."
    group = "payment-processor"
