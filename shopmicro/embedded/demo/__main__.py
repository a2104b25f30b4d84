"""`python -m shopmicro.embedded.demo`; PORT, BROKER=kafka and ONCE=1 in the environment choose."""

import contextlib
import errno
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from shopmicro.embedded.demo.client import DISK_IS_FULL, Client, said_plainly
from shopmicro.embedded.demo.environment import ADMIN, Options
from shopmicro.embedded.demo.screen import Screen
from shopmicro.embedded.demo.system import ROOT, System
from shopmicro.embedded.demo.walk import walk
from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.processes import temporary_directory

FOLDER = ROOT / ".demo"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal ends the demo."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"ended by {signal.Signals(signum).name}")
        self.signum = signum


def main() -> int:
    """Run the demo; 0 if the walk held, 1 if something failed, 128 + n if signal n came before its end."""
    for signum in SIGNALS:
        signal.signal(signum, end)
    screen = Screen()
    try:
        options = Options.read(os.environ)
        with folder(options.port) as directory, said_plainly():
            demonstrate(options, directory, screen)
    except EmbeddedError as error:
        screen.fail(str(error))
        return 1
    except Ended as ended:
        screen.say(f"{ended}")
        return 128 + ended.signum
    return 0


def end(signum: int, frame: FrameType | None) -> None:
    """End the demo in good order; the next signal ends it at once, and its supervisors clear up."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise Ended(signum)


def demonstrate(options: Options, directory: Path, screen: Screen) -> None:
    """Start everything, take the walk, and unless it is to be taken once, stay open until a signal."""
    system = System(directory, port=options.port, real_broker=options.real_broker, screen=screen)
    screen.title("shopmicro, the whole system on this machine")
    with system:
        with client_of(system) as client:
            walk(client, screen)
        screen.say("\nThe walk held: each order left pending once, and one event tells of it.", style="bold")
        if not options.once:
            show_addresses(system, directory, screen)
            stay_open(system, screen)


def client_of(system: System) -> Client:
    """A client of the system's web process, database and broker."""
    return Client(
        port=system.port,
        database_url=system.postgres.url(),
        bootstrap_servers=system.broker.bootstrap_servers,
        check=system.check_workers,
    )


def show_addresses(system: System, directory: Path, screen: Screen) -> None:
    """Say where everything is."""
    web = f"http://127.0.0.1:{system.port}"
    screen.title("Open until Ctrl-C")
    screen.say(f"API and its documentation  {web}/v1/docs")
    screen.say(f"admin                      {web}/admin/")
    screen.say(f"  user and password        {ADMIN} {system.admin_password}")
    screen.say(f"Kafka                      {system.broker.bootstrap_servers}")
    screen.say(f"logs, until the end        {relative(directory)}/*.log")
    screen.say("PostgreSQL")
    screen.say(f"  {system.postgres.url()}")


def stay_open(system: System, screen: Screen) -> None:
    """Return at a signal; EmbeddedError when a process has ended by itself."""
    try:
        while True:
            system.check()
            time.sleep(0.5)
    except Ended:
        screen.say("\nclosing; Ctrl-C again ends it at once")


@contextlib.contextmanager
def folder(port: int) -> Iterator[Path]:
    """A directory for all files of a run, gone afterwards; logs are kept if it ends with an EmbeddedError."""
    kept = FOLDER / f"logs-{port}"
    try:
        shutil.rmtree(kept, ignore_errors=True)
        FOLDER.mkdir(exist_ok=True)
        tempfile.tempdir = str(FOLDER)
        with temporary_directory("run-") as directory, logs_kept(directory, kept):
            yield directory
    except OSError as error:
        raise EmbeddedError(remedy(error)) from error
    finally:
        # Refused while another demo's files or kept logs are in it.
        with contextlib.suppress(OSError):
            FOLDER.rmdir()


@contextlib.contextmanager
def logs_kept(directory: Path, kept: Path) -> Iterator[None]:
    """Move the logs from the directory to where they are kept, if there is an EmbeddedError."""
    try:
        yield
    except EmbeddedError as error:
        for log in [*directory.glob("*.log"), *directory.glob("*/*.log")]:
            target = kept / log.relative_to(directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            log.rename(target)
        raise EmbeddedError(str(error).replace(str(directory), relative(kept))) from error


def remedy(error: OSError) -> str:
    """One line that says what to do about it."""
    if error.errno == errno.ENOSPC:
        return DISK_IS_FULL
    return f"{error}: see that {FOLDER} can be written, and start again"


def relative(path: Path) -> str:
    """The path as it is seen from the project's folder."""
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
