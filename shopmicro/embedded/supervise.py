"""Runs a command, and ends it when the process that asked for it is gone, however that ended.

    python supervise.py [--signal TERM] [--grace SECONDS] [--remove DIR] [-- COMMAND…]

Standard input is the read end of a pipe whose write end only the asking process holds: at its end of file
the command's whole process group gets the signal, and after the grace what is left is killed. Then DIR is
removed, if one is given. The command's pid is the one line on standard output; its own output goes to
standard error. Run as a file and without a package: it needs neither a working directory nor a search path.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

REMOVAL_LIMIT = 30.0


def main() -> int:
    """Run the command line's command until it ends or has to be ended; its exit status."""
    options = parse(sys.argv[1:])
    # Handlers rather than SIG_IGN, which the command would inherit: only the pipe says when to end.
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: None)
    if options.command:
        return run(options)
    wait_for_asker()
    remove(options.remove)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line's options; `command` is empty if there is only a directory to remove."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--signal", type=lambda name: signal.Signals[f"SIG{name}"], default=signal.SIGTERM)
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--remove", type=Path)
    parser.add_argument("command", nargs="*")
    options = parser.parse_args(arguments)
    if not options.command and options.remove is None:
        parser.error("neither a command nor a directory to remove")
    return options


def run(options: argparse.Namespace) -> int:
    """Run the command to its end; 128 + n if signal n ended it."""
    try:
        child = subprocess.Popen(
            options.command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
        )
    except OSError as error:
        print(f"{options.command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    print(child.pid, flush=True)
    orphaned = threading.Event()
    ending = threading.Thread(target=end_with_asker, args=(child, options, orphaned), daemon=True)
    ending.start()
    status = child.wait()
    if orphaned.is_set():
        ending.join()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if orphaned.is_set() and options.remove:
        remove(options.remove)
    return status if status >= 0 else 128 - status


def wait_for_asker() -> None:
    """Return when the process that asked is gone."""
    while os.read(0, 4096):
        pass


def end_with_asker(
    child: subprocess.Popen[bytes], options: argparse.Namespace, orphaned: threading.Event
) -> None:
    """Wait for the end of the process that asked, then end the child and all that descends from it."""
    wait_for_asker()
    orphaned.set()
    descent = family(child.pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, options.signal)
        os.killpg(child.pid, signal.SIGCONT)
    await_end(descent, options.grace)
    kill(descent)


def family(pid: int) -> list[psutil.Process]:
    """The process and its descendants, also those in sessions of their own (as PostgreSQL's are)."""
    try:
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill those of the processes that still are."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def await_end(processes: Iterable[psutil.Process], limit: float) -> None:
    """Return when none of the processes runs any more, or after `limit` seconds."""
    deadline = time.monotonic() + limit
    while any(map(runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)


def runs(process: psutil.Process) -> bool:
    """Whether the process has not ended; one that has may wait long for a busy init to collect it."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def remove(directory: Path) -> None:
    """Remove the directory, also while others are still ending and writing in it."""
    deadline = time.monotonic() + REMOVAL_LIMIT
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
