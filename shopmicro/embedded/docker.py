"""Apache Kafka in a container, for machines with Docker and without Java."""

import shutil
import subprocess
from pathlib import Path
from typing import Self

from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.kafka import SETTINGS, VERSION, answers
from shopmicro.embedded.ports import free_port, require_free
from shopmicro.embedded.processes import Child, wait_until

START_LIMIT = 300.0


class DockerKafka:
    """One broker in a container that is removed at the end, and with it its data."""

    def __init__(self, directory: Path, *, port: int = 0) -> None:
        """Nothing is started yet; the log goes to the directory; `port` 0 means a free one."""
        self.directory = directory
        self.port = port or free_port()
        self._child: Child | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, as a client wants it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the container, downloading its image if need be, and return when the broker answers."""
        require_free(self.port)
        self.directory.mkdir(parents=True, exist_ok=True)
        command = ["docker", "run", "--rm", *self._options(), f"apache/kafka:{VERSION}"]
        self._child = Child(command, log=self.directory / "docker.log", grace=20)
        try:
            limit = f"Kafka's container is not up in {START_LIMIT:.0f} s"
            wait_until(self._answers, timeout=START_LIMIT, otherwise=limit)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End and remove the container, if it runs."""
        if self._child:
            self._child.stop()
            self._child = None

    def _options(self) -> list[str]:
        listeners = {
            "listeners": f"PLAINTEXT://:{self.port},CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.quorum.voters": "1@localhost:9093",
        }
        variables = {
            f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in (SETTINGS | listeners).items()
        }
        options = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        return ["-p", f"{self.bootstrap_servers}:{self.port}", *options]

    def _answers(self) -> bool:
        assert self._child
        if self._child.poll() is not None:
            raise EmbeddedError(self._child.last_words())
        return answers(self.bootstrap_servers)


def missing_docker() -> str | None:
    """One line on what keeps containers from running here, or None if nothing does."""
    if not shutil.which("docker"):
        return "Docker is missing: install it"
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        return "Docker does not answer: start its daemon"
    return None
