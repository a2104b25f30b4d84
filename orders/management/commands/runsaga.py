"""Apply payment results to orders."""

from shopmicro.messaging.management.workers import ConsumerCommand


class Command(ConsumerCommand):
    help = "Apply payment results to orders, each order's first valid result once (group order-saga)."
    group = "order-saga"
    batch = "SAGA_BATCH"
