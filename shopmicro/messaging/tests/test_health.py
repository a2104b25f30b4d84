import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from shopmicro.embedded.ports import free_port
from shopmicro.messaging.health import complaint
from shopmicro.messaging.metrics import LAST_STEP_NAME

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (f"# HELP\n{LAST_STEP_NAME} 1000.5\nother 1\n", ""),
        (f"{LAST_STEP_NAME} 939\n", "the worker took its last step 61 s ago"),
        (f"{LAST_STEP_NAME} 0.0\n", "the worker has taken no step yet"),
        ("other 1\n", "the worker has taken no step yet"),
    ],
)
def test_a_worker_is_healthy_while_it_goes_round_its_loop(metrics: str, said: str) -> None:
    assert complaint(metrics, 1000.0) == said


def check(port: int) -> tuple[int, str]:
    command = [sys.executable, "-m", "shopmicro.messaging.health"]
    environment = {"METRICS_PORT": str(port), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)
    return done.returncode, done.stderr


def test_the_check_asks_the_worker_itself() -> None:
    registry, port = CollectorRegistry(), free_port()
    gauge = Gauge(LAST_STEP_NAME, "", registry=registry)
    server, thread = start_http_server(port, "127.0.0.1", registry)
    gauge.set_to_current_time()
    assert check(port) == (0, "")
    gauge.set(1)
    code, said = check(port)
    assert (code, "the worker took its last step" in said) == (1, True)
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_worker_that_is_not_there_is_not_healthy() -> None:
    code, said = check(free_port())
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("no metrics at http://127.0.0.1:")
