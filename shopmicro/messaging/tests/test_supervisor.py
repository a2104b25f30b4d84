import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shopmicro.embedded.processes import Child
from shopmicro.messaging.retry import Backoff
from shopmicro.messaging.shutdown import PARENT, Stop
from shopmicro.messaging.supervisor import Supervisor
from tests.servers import eventually

SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]
DIE = [sys.executable, "-c", "raise SystemExit(3)"]


class Clock:
    """A time that moves when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def supervise(clock: Clock, **commands: list[str]) -> Supervisor:
    return Supervisor(
        commands, environment=dict(os.environ), backoff=Backoff(10, 40), grace_seconds=5, clock=clock
    )


@pytest.fixture
def supervisor(clock: Clock) -> Iterator[Supervisor]:
    supervisor = supervise(clock, quiet=SLEEP, mortal=DIE)
    yield supervisor
    supervisor.close()


def pid(supervisor: Supervisor, place: int) -> int | None:
    process = supervisor.children[place].process
    return None if process is None else process.pid


def test_a_worker_that_dies_is_started_again_after_a_delay_and_the_others_are_left_alone(
    supervisor: Supervisor, clock: Clock
) -> None:
    supervisor.step()
    quiet, mortal = pid(supervisor, 0), supervisor.children[1].process
    assert mortal is not None
    assert mortal.wait(30) == 3
    supervisor.step()
    assert pid(supervisor, 1) is None
    clock.now += 10
    supervisor.step()
    assert pid(supervisor, 1) not in (None, mortal.pid)
    assert pid(supervisor, 0) == quiet


def test_a_worker_that_keeps_dying_young_is_waited_for_longer_each_time(
    supervisor: Supervisor, clock: Clock
) -> None:
    delays = []
    for _ in range(4):
        supervisor.step()
        process = supervisor.children[1].process
        assert process is not None
        process.wait(30)
        supervisor.step()
        delays.append(supervisor.children[1].start_at - clock.now)
        clock.now = supervisor.children[1].start_at
    assert [low <= delay <= 2 * low for delay, low in zip(delays, (5, 10, 20, 20), strict=True)] == [True] * 4
    assert supervisor.children[1].deaths == 4


def test_a_worker_that_ran_steadily_counts_its_deaths_anew(supervisor: Supervisor, clock: Clock) -> None:
    supervisor.children[1].deaths = 5
    supervisor.step()
    process = supervisor.children[1].process
    assert process is not None
    process.wait(30)
    clock.now += 30
    supervisor.step()
    assert supervisor.children[1].deaths == 1


def test_a_stop_ends_all_workers() -> None:
    stop = Stop()
    supervisor = Supervisor({"a": SLEEP, "b": SLEEP}, environment=dict(os.environ), backoff=Backoff(1, 1))
    running = threading.Thread(target=supervisor.run, args=(stop,))
    running.start()
    eventually(lambda: all(child.process for child in supervisor.children))
    pids = [child.process.pid for child in supervisor.children if child.process]
    stop.request()
    running.join(30)
    for number in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_a_worker_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    deaf = ["-c", f"import signal; signal.signal(15, signal.SIG_IGN); open('{ready}', 'w'); signal.pause()"]
    supervisor = Supervisor(
        {"deaf": [sys.executable, *deaf]},
        environment=dict(os.environ),
        backoff=Backoff(1, 1),
        grace_seconds=0.2,
    )
    supervisor.step()
    process = supervisor.children[0].process
    assert process is not None
    eventually(ready.exists)
    supervisor.close()
    assert process.returncode == -signal.SIGKILL


def test_the_first_signal_asks_and_the_second_kills(tmp_path: Path) -> None:
    code = (
        "from shopmicro.messaging.shutdown import Stop\n"
        "import sys\n"
        "with Stop().on_signals() as stop:\n"
        "    print('ready', file=sys.stderr, flush=True)\n"
        "    while not stop.wait(0.05): pass\n"
        "    print('asked', file=sys.stderr, flush=True)\n"
        "    import signal; signal.pause()\n"
    )
    log = tmp_path / "log"
    with Child([sys.executable, "-c", code], log=log) as child:
        eventually(lambda: "ready" in log.read_text())
        child.send(signal.SIGTERM)
        eventually(lambda: "asked" in log.read_text())
        child.send(signal.SIGTERM)
        assert child.wait(30) == 128 + signal.SIGTERM


def test_a_child_stops_when_its_supervising_process_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARENT, str(os.getppid()))
    assert not Stop().requested
    monkeypatch.setenv(PARENT, "1")
    assert Stop().requested is (os.getppid() != 1)
    assert Stop().wait(0) is (os.getppid() != 1)
