"""The demo's processes: PostgreSQL, a broker, web and workers, with all their files in one directory."""

import contextlib
import http.client
import os
import re
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from shopmicro.embedded.demo.environment import environment
from shopmicro.embedded.demo.screen import Screen
from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.java import missing_tool
from shopmicro.embedded.kafka import VERSION, KafkaServer
from shopmicro.embedded.mock import MockKafka
from shopmicro.embedded.ports import require_free
from shopmicro.embedded.postgres import Postgres
from shopmicro.embedded.processes import Child, wait_until

ROOT = Path(__file__).parents[3]
LIMIT = 60.0
# The walk needs these two; the others may come later.
GROUPS = {"order-saga", "payment-processor"}
ASSIGNED = re.compile(r'event="partitions assigned".*? group=(\S+)')
DIED = re.compile(r'event="worker died".*? worker="?(\w+)')


class System:
    """All processes of the demo; leaving the context ends them, in the reverse of their order."""

    def __init__(self, directory: Path, *, port: int, real_broker: bool, screen: Screen) -> None:
        """Nothing is started yet; EmbeddedError if something is missing or the port is in use."""
        require_free(port)
        if real_broker and (missing := missing_tool()):
            raise EmbeddedError(missing)
        self.port = port
        self.postgres = Postgres(directory / "postgres", durable=False)
        self.broker = KafkaServer(directory / "kafka") if real_broker else MockKafka()
        self.admin_password = secrets.token_urlsafe(12)
        self._directory = directory
        self._screen = screen
        self._parent = os.getppid()
        self._environment: dict[str, str] = {}
        self._running: list[Child] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self) -> None:
        """Raise EmbeddedError if web or workers have ended; hang up if the demo's parent has."""
        if os.getppid() != self._parent:
            os.kill(os.getpid(), signal.SIGHUP)
        for child in self._running:
            if child.poll() is not None:
                raise EmbeddedError(child.last_words())

    def check_workers(self) -> None:
        """Raise EmbeddedError if a worker has died, though it is started again; and all that `check` does."""
        self.check()
        log = self._directory / "workers.log"
        before, *died = DIED.split(log.read_text(errors="replace"), maxsplit=1)
        if died:
            raise EmbeddedError(f"{died[0]} died: {_complaint(before)} (more in {log})")

    def _start(self) -> None:
        with self._screen.doing("PostgreSQL"):
            self._stack.enter_context(self.postgres)
        with self._screen.doing(self._broker_name()):
            self._stack.enter_context(self.broker)
        self._environment = environment(
            self._directory, self.postgres.url(), self.broker.bootstrap_servers, self.admin_password
        )
        with self._screen.doing("tables and topics (migrate, createtopics)"):
            self._manage(["migrate"], ["createtopics"])
        with self._screen.doing("catalogue, admin, web and workers"):
            self._open()

    def _broker_name(self) -> str:
        if isinstance(self.broker, MockKafka):
            return "in Kafka's place a mock of it, in memory (BROKER=kafka: the real one)"
        return f"Kafka {VERSION} (Maven downloads it the first time)"

    def _open(self) -> None:
        # Its control socket would be a file in the home directory.
        web = ["--bind", f"127.0.0.1:{self.port}", "--workers", "2", "--no-control-socket"]
        self._run("web", ["-m", "gunicorn", "shopmicro.wsgi", "--chdir", ROOT, *web])
        self._run("workers", [ROOT / "manage.py", "runworkers"])
        self._manage(["loadcatalog"], ["createsuperuser", "--noinput"])
        self._wait(self._web_answers, "the web process")
        self._wait(self._workers_are_ready, "the workers")

    def _run(self, name: str, arguments: Sequence[str | Path]) -> None:
        self._running.append(self._stack.enter_context(self._child(name, arguments)))

    def _manage(self, *commands: Sequence[str]) -> None:
        """Run commands of manage.py side by side to their ends."""
        with contextlib.ExitStack() as stack:
            children = [
                stack.enter_context(self._child(command[0], [ROOT / "manage.py", *command]))
                for command in commands
            ]
            for child in children:
                self._wait(lambda child=child: child.poll() is not None, child.name)  # type: ignore[misc]
                if child.poll():
                    raise EmbeddedError(child.last_words())

    def _child(self, name: str, arguments: Sequence[str | Path]) -> Child:
        log = self._directory / f"{name}.log"
        child = Child([sys.executable, *arguments], log=log, env=self._environment)
        child.name = name
        return child

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            self.check()
            return condition()

        wait_until(met, timeout=LIMIT, otherwise=f"not ready in {LIMIT:.0f} s: {what}")

    def _web_answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except ConnectionError:
            return False
        finally:
            connection.close()

    def _workers_are_ready(self) -> bool:
        self.check_workers()
        log = (self._directory / "workers.log").read_text(errors="replace")
        return set(ASSIGNED.findall(log)) >= GROUPS


def _complaint(log: str) -> str:
    """The last line that is not one of the workers' log: an error's last words."""
    lines = [line.strip() for line in log.splitlines()]
    return next((line for line in reversed(lines) if line and not line.startswith("timestamp=")), "no word")
