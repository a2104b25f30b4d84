import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.processes import Child, temporary_directory
from shopmicro.embedded.supervise import runs
from tests.servers import eventually

ROOT = Path(__file__).parents[3]

PARENT = """
import os, sys
from pathlib import Path
from shopmicro.embedded.mock import MockKafka
from shopmicro.embedded.postgres import Postgres
from shopmicro.embedded.processes import Child, temporary_directory
with temporary_directory() as directory:
    server, cluster = Postgres(directory / "postgres"), MockKafka()
    server.start()
    cluster.start()
    stubborn = Child(["sh", "-c", "trap '' TERM; sleep 600 & sleep 600"], grace=0.5)
    print(directory, server.pid, cluster.pid, stubborn.pid, flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_when_the_parent_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    directory, *pids = parent.stdout.readline().split()
    family = psutil.Process(parent.pid).children(recursive=True)
    assert {int(pid) for pid in pids} < {process.pid for process in family}
    assert Path(directory, "postgres", "data").exists()
    assert bool(shared_memory() & set(map(int, pids))) is Path("/proc/sysvipc/shm").exists()
    parent.kill()
    parent.communicate()
    eventually(lambda: not any(map(runs, family)))
    eventually(lambda: not Path(directory).exists())
    assert shared_memory() & {process.pid for process in family} == set()


def shared_memory() -> set[int]:
    """The processes that made the System V segments there are, where Linux shows them."""
    segments = Path("/proc/sysvipc/shm")
    lines = segments.read_text().splitlines()[1:] if segments.exists() else []
    return {int(line.split()[4]) for line in lines}


def test_a_directory_is_gone_at_the_end() -> None:
    with temporary_directory() as directory:
        (directory / "inner").mkdir()
        (directory / "inner" / "file").write_text("x")
    assert not directory.exists()


def test_a_child_gets_the_signal_and_its_output_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = Child(
        ["sh", "-c", "trap 'echo ended; exit 3' USR1; echo ready; while :; do sleep 0.01; done"], log=log
    )
    eventually(lambda: log.read_text() == "ready\n")
    assert child.poll() is None
    assert child.stop(signal.SIGUSR1) == 3
    assert log.read_text() == "ready\nended\n"


def test_a_child_that_does_not_heed_the_signal_is_killed_with_its_descendants(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = Child(["sh", "-c", "trap '' TERM; setsid sleep 600 & echo $!; wait"], log=log, grace=0.5)
    descendant = psutil.Process(int(eventually(log.read_text)))
    assert child.stop() == 128 + signal.SIGKILL
    eventually(lambda: not runs(descendant))


def test_a_command_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError) as refusal:
        Child(["/no/such/program"], log=tmp_path / "log")
    expected = "program ended with status 127: /no/such/program: No such file or directory"
    assert str(refusal.value) == f"{expected} (more in {tmp_path / 'log'})"
