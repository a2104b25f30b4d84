import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from shopmicro.embedded.demo.environment import Options
from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.ports import free_port
from shopmicro.embedded.supervise import family, runs
from tests.servers import eventually

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".demo"
# Settings of the product that would make the walk fail if the demo's processes saw them.
OF_THE_USER = {
    "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "KAFKA_PREFIX": "other-",
    "PAYMENT_LIMIT_CENTS": "1",
    "EMAIL_URL": "smtp://127.0.0.1:1",
    "HTTP_PROXY": "http://127.0.0.1:1",
    "http_proxy": "http://127.0.0.1:1",
}
LATE = "let it through: late-failure-001 is new, now on record"
BEGUN, OPEN = "1. A small order", "Open until Ctrl-C"


class Demo:
    """A demo with a home and a temporary directory of its own, whose output goes to a file."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.home = directory / "home"
        self.temporary = directory / "tmp"
        self.home.mkdir()
        self.temporary.mkdir()
        self.output = directory / "output"
        self.before = set(FOLDER.glob("*"))
        places = {"HOME": str(self.home), "TMPDIR": str(self.temporary), "PORT": str(free_port())}
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shopmicro.embedded.demo"],
                cwd=ROOT,
                env={**os.environ, **OF_THE_USER, **places, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.seen: list[psutil.Process] = []

    def said(self) -> str:
        return self.output.read_text()

    def wait_until_said(self, text: str) -> None:
        eventually(lambda: text in self.said() or self.process.poll() is not None, timeout=60)
        assert text in self.said(), self.said()
        self.seen = family(self.process.pid)

    def files(self) -> list[Path]:
        """What is new in the project's folder for it, in the home and in the temporary directory."""
        new = set(FOLDER.glob("*")) - self.before
        return [*new, *self.home.iterdir(), *self.temporary.iterdir()]


Start = Callable[..., Demo]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(**environment: str) -> Demo:
            demo = Demo(tmp_path, **environment)
            stack.callback(demo.process.wait)
            stack.callback(demo.process.kill)
            return demo

        yield started


def assert_nothing_is_left(demo: Demo) -> None:
    assert len(demo.seen) > 10
    eventually(lambda: [process for process in demo.seen if runs(process)] == [])
    eventually(lambda: demo.files() == [])


def test_the_walk_holds_whatever_the_users_own_settings_say(start: Start) -> None:
    demo = start(ONCE="1")
    demo.wait_until_said(BEGUN)
    assert demo.process.wait(60) == 0, demo.said()
    said = demo.said()
    assert re.findall(r"GET: (\w+), \d+ ms after the POST", said) == [
        "ORDER_STATUS_CONFIRMED",
        "ORDER_STATUS_CANCELLED",
    ]
    assert said.count("X: confirmed, 25.98 EUR") == 3
    assert said.count("Y: cancelled, 1,899.00 EUR, amount exceeds limit") == 1
    assert said.count("order.confirmed    X:confirmed") == 3
    assert said.count("guard 1: dedupe   │ stopped it") == said.count("guard 2: terminal │ stopped it") == 1
    assert LATE in said
    assert "a mock of it, in memory" in said
    assert OPEN not in said
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 80
    assert_nothing_is_left(demo)


def test_ctrl_c_closes_what_is_open_and_leaves_nothing(start: Start) -> None:
    demo = start()
    demo.wait_until_said(OPEN)
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(30) == 0, demo.said()
    assert not [process for process in demo.seen if runs(process)]
    assert_nothing_is_left(demo)


def test_a_second_ctrl_c_ends_it_at_once_and_leaves_nothing(start: Start) -> None:
    demo = start()
    demo.wait_until_said(BEGUN)
    eventually(lambda: demo.process.send_signal(signal.SIGINT) or demo.process.poll() is not None)
    assert demo.process.wait() == -signal.SIGINT
    assert_nothing_is_left(demo)


def test_a_kill_in_the_middle_leaves_nothing(start: Start) -> None:
    demo = start()
    demo.wait_until_said(BEGUN)
    demo.process.kill()
    assert demo.process.wait(5) == -signal.SIGKILL
    assert_nothing_is_left(demo)


def test_a_port_in_use_is_said_in_one_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        demo = start(PORT=str(port))
        assert demo.process.wait(30) == 1
    expected = f"port {port} of 127.0.0.1 is in use: end what listens there, or choose another port"
    assert demo.said() == f"demo: {expected}\n"
    assert demo.files() == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"BROKER": "rabbit"}, "BROKER=rabbit is unknown: choose mock, in memory, or kafka, the real one"),
        ({"PORT": "http"}, "PORT=http is no port: choose a number from 1 to 65535"),
        ({"PORT": "65536"}, "PORT=65536 is no port: choose a number from 1 to 65535"),
    ],
)
def test_an_option_without_meaning_is_refused(environ: dict[str, str], expected: str) -> None:
    with pytest.raises(EmbeddedError) as refusal:
        Options.read(environ)
    assert str(refusal.value) == expected


def test_an_unknown_broker_is_said_in_one_line(start: Start) -> None:
    demo = start(BROKER="rabbit")
    assert demo.process.wait(30) == 1
    assert demo.said() == "demo: BROKER=rabbit is unknown: choose mock, in memory, or kafka, the real one\n"


def test_without_java_the_real_broker_is_refused_in_one_line(start: Start) -> None:
    demo = start(BROKER="kafka", PATH="/nonexistent", JAVA_HOME="/nonexistent")
    assert demo.process.wait(30) == 1
    assert demo.said() == "demo: Java is missing: install Java 17 or newer, or set JAVA_HOME\n"


def test_the_demo_itself_needs_no_django() -> None:
    asked = "import sys, shopmicro.embedded.demo.__main__; print('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
