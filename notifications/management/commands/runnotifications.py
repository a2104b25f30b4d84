"""Tell customers of payment results."""

from shopmicro.messaging.management.workers import ConsumerCommand


class Command(ConsumerCommand):
    help = "Mail customers the results of their orders, each kind once (group notifications)."
    group = "notifications"
    batch = "NOTIFY_BATCH"
