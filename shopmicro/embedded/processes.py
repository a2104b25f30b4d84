"""Child processes that never outlive their parent, and directories that don't either."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Self, TypeVar

from shopmicro.embedded import supervise
from shopmicro.embedded.errors import EmbeddedError, tells_of_full_disk

T = TypeVar("T")

SUPERVISE = (sys.executable, "-I", supervise.__file__)


class Child:
    """A process under a supervisor, which ends it and all its descendants when this process is gone."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path | None = None,
        env: Mapping[str, str] | None = None,
        last_signal: signal.Signals = signal.SIGTERM,
        grace: float = 10.0,
    ) -> None:
        """Start the command.

        `log` is the file its output is appended to (None: this process's standard error). When this process
        has ended without stopping it, it gets `last_signal`, and `grace` seconds later SIGKILL.
        """
        self.grace = grace
        self.log = log
        self.name = Path(command[0]).name
        options = ["--signal", last_signal.name.removeprefix("SIG"), "--grace", str(grace)]
        with _opened(log) as output:
            self._supervisor = subprocess.Popen(
                [*SUPERVISE, *options, "--", *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=env,
                start_new_session=True,
            )
        assert self._supervisor.stdout
        with self._supervisor.stdout as pid:
            self.pid = int(pid.readline() or 0)
        if not self.pid:
            self._let_go()
            raise EmbeddedError(self.last_words())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def poll(self) -> int | None:
        """The exit status (128 + n if signal n ended it), or None while it runs."""
        return self._supervisor.poll()

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended; subprocess.TimeoutExpired after `timeout` seconds."""
        return self._supervisor.wait(timeout)

    def send(self, signum: signal.Signals) -> None:
        """Send a signal to the process, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal, and kill what still runs when the grace is over; the exit status."""
        self.send(signum)
        self.send(signal.SIGCONT)
        try:
            return self.wait(self.grace)
        except subprocess.TimeoutExpired:
            return self.kill()
        finally:
            self._let_go()

    def kill(self) -> int:
        """Kill -9 the process and all its descendants, and wait until they are gone; the exit status."""
        family = supervise.family(self.pid) if self.poll() is None else []
        supervise.kill(family)
        supervise.await_end(family, self.grace)
        self._let_go()
        return self.wait(self.grace)

    def last_words(self) -> str:
        """One line: how it ended, and the last that it wrote."""
        written = self.log.read_text(errors="replace") if self.log else ""
        if tells_of_full_disk(written):
            return f"the disk that holds {self.log} is full: free some space, and start again"
        lines = (line.strip() for line in reversed(written.split("\n")))
        last = next(filter(None, lines), "it wrote nothing")
        return f"{self.name} ended with status {self.wait()}: {last} (more in {self.log})"

    def _let_go(self) -> None:
        assert self._supervisor.stdin
        self._supervisor.stdin.close()


@contextlib.contextmanager
def _opened(log: Path | None) -> Iterator[BinaryIO | None]:
    if log is None:
        yield None
        return
    with log.open("ab") as output:
        yield output


@contextlib.contextmanager
def temporary_directory(prefix: str = "shopmicro-") -> Iterator[Path]:
    """A directory that is removed at the end, also when this process is killed."""
    directory = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    guard = subprocess.Popen(
        [*SUPERVISE, "--remove", str(directory)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield directory
    finally:
        guard.communicate()


def wait_until(condition: Callable[[], T], *, timeout: float, otherwise: str) -> T:
    """The first true value of the condition; EmbeddedError(otherwise) after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise EmbeddedError(otherwise)
        time.sleep(0.05)
    return value
