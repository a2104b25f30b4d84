"""Does a worker still go round its loop? `python -m shopmicro.messaging.health`, for health checks.

Exits 0 if the worker that serves METRICS_PORT on this machine took a step within the last minute,
else 1 with a line that says why. A worker that waits for the database or the broker is healthy: to
start it again would mend nothing.
"""

import os
import sys
import time
import urllib.request

from shopmicro.messaging.metrics import LAST_STEP_NAME

LIMIT_SECONDS = 60.0


def complaint(metrics: str, now: float) -> str:
    """Say what is wrong by a worker's metrics at a Unix time; an empty text if nothing is."""
    steps = [line.split()[1] for line in metrics.splitlines() if line.startswith(f"{LAST_STEP_NAME} ")]
    if not steps or float(steps[0]) == 0:
        return "the worker has taken no step yet"
    age = now - float(steps[0])
    return f"the worker took its last step {age:.0f} s ago" if age > LIMIT_SECONDS else ""


def main() -> str:
    """Ask the worker; gives the complaint."""
    url = f"http://127.0.0.1:{os.environ.get('METRICS_PORT', '0')}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return complaint(answer.read().decode(), time.time())
    except OSError as error:
        return f"no metrics at {url}: {error}"


if __name__ == "__main__":
    sys.exit(main() or 0)
