"""librdkafka's own Kafka in memory, in a process of its own: no Java, and nothing survives its end.

Topics appear with four partitions on first use; `create_topics` of the admin API does not work.
`python -m shopmicro.embedded.mock` prints its address as one line and lives until standard input is closed.
"""

import subprocess
import sys
from pathlib import Path
from typing import Self

from confluent_kafka import Producer

from shopmicro.embedded.errors import EmbeddedError

ROOT = Path(__file__).parents[2]


class MockKafka:
    """The mock cluster; another start is an empty one at another address."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The cluster's address, as a client wants it."""
        self._running()
        return self._address

    @property
    def pid(self) -> int:
        """The pid of the cluster's process."""
        return self._running().pid

    def start(self) -> None:
        """Start the cluster, and return when its address is known."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "shopmicro.embedded.mock"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout
        with self._process.stdout as output:
            self._address = output.readline().strip()
        if not self._address:
            status = self._process.wait()
            self.stop()
            raise EmbeddedError(f"the mock cluster ended with status {status}: its error is above")

    def stop(self) -> None:
        """End the cluster, if it runs."""
        if self._process:
            self._process.communicate()
            self._process = None

    def kill(self) -> None:
        """Kill -9 the cluster."""
        self._running().kill()
        self.stop()

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise EmbeddedError("the mock cluster is not running: start() it first")
        return self._process


def main() -> None:
    """Hold a mock cluster until standard input is closed."""
    owner = Producer({"bootstrap.servers": "ignored", "test.mock.num.brokers": 1, "log_level": 0})
    for broker in owner.list_topics(timeout=10).brokers.values():
        print(f"{broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
