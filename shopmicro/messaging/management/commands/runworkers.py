"""Run all workers as children of one process."""

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import PARENT, Stop
from shopmicro.messaging.supervisor import Supervisor


class Command(BaseCommand):
    help = "Run all workers (WORKERS) as children of this process, for a host without containers."

    def handle(self, *args: Any, **options: Any) -> None:
        environment = {**os.environ, PARENT: str(os.getpid()), "METRICS_PORT": "0"}
        supervisor = Supervisor(commands(), environment=environment, backoff=Backoff(0.5, 30.0))
        with Stop().on_signals() as stop:
            supervisor.run(stop)


def commands() -> dict[str, list[str]]:
    """Give the command line of each worker, one relay for each shard of the outbox."""
    manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
    relays = {
        f"runrelay {n}": [*manage, "runrelay", "--shard", str(n)] for n in range(settings.OUTBOX_SHARDS)
    }
    return relays | {name: [*manage, name] for name in settings.WORKERS}
