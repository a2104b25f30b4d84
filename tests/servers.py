"""The pytest plugin that gives tests real servers of their own, and keeps them from any other.

Loaded before Django is configured (`-p tests.servers`): the product's variables are set here, whatever the
environment says. The servers start when the first test wants them, at the addresses chosen at load.

TEST_POSTGRES_BIN               bin directory of the PostgreSQL to use, instead of the wheel's
TEST_KAFKA_BOOTSTRAP_SERVERS    broker to use, under a random KAFKA_PREFIX, instead of one of the tests' own
REQUIRE_KAFKA=1, CI=true        the run fails if a test did not run for want of a broker
CI=true                         the run fails if a test was skipped
"""

import contextlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka.admin import AdminClient

from shopmicro.embedded.docker import DockerKafka, missing_docker
from shopmicro.embedded.java import missing_tool
from shopmicro.embedded.kafka import KafkaServer
from shopmicro.embedded.ports import free_port
from shopmicro.embedded.postgres import Postgres
from shopmicro.embedded.processes import temporary_directory

T = TypeVar("T")

CI = os.environ.get("CI") == "true"
REQUIRE_KAFKA = CI or os.environ.get("REQUIRE_KAFKA") == "1"
GIVEN_BROKER = os.environ.get("TEST_KAFKA_BOOTSTRAP_SERVERS")
GIVEN_BINARIES = os.environ.get("TEST_POSTGRES_BIN")

RUN = contextlib.ExitStack()
DIRECTORY = RUN.enter_context(temporary_directory("shopmicro-tests-"))
POSTGRES = Postgres(
    DIRECTORY / "postgres", binaries=Path(GIVEN_BINARIES) if GIVEN_BINARIES else None, durable=False
)
KAFKA_PORT = free_port()

NOT_RUN = pytest.StashKey[Counter[str]]()
SKIPPED: list[str] = []


@dataclass(frozen=True)
class Kafka:
    """The broker under test, and its server if the tests may stop, pause and kill it."""

    bootstrap_servers: str
    server: KafkaServer | None

    @property
    def prefix(self) -> str:
        """What the names of this run's topics and groups begin with."""
        return os.environ.get("KAFKA_PREFIX", "")


def set_environment() -> None:
    """Point the product's variables at the servers of this run, and at nothing else."""
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        del os.environ[name]
    if GIVEN_BROKER:
        os.environ["KAFKA_PREFIX"] = f"test-{secrets.token_hex(4)}-"
    os.environ.update(
        DJANGO_SETTINGS_MODULE="shopmicro.settings",
        ENV_FILE=os.devnull,
        DATABASE_URL=POSTGRES.url(),
        KAFKA_BOOTSTRAP_SERVERS=GIVEN_BROKER or f"127.0.0.1:{KAFKA_PORT}",
        SECRET_KEY=secrets.token_hex(32),
        DEBUG="false",
        ALLOWED_HOSTS="*",
        EMAIL_URL="memorymail://",
    )


set_environment()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL of this run."""
    with POSTGRES:
        yield POSTGRES


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """The broker of this run; without one the test is not run."""
    if GIVEN_BROKER:
        yield Kafka(GIVEN_BROKER, None)
        remove_topics(GIVEN_BROKER, os.environ["KAFKA_PREFIX"])
    elif missing_tool():
        with DockerKafka(DIRECTORY / "kafka", port=KAFKA_PORT) as container:
            yield Kafka(container.bootstrap_servers, None)
    else:
        with KafkaServer(DIRECTORY / "kafka", port=KAFKA_PORT) as server:
            yield Kafka(server.bootstrap_servers, server)


def remove_topics(bootstrap_servers: str, prefix: str) -> None:
    """Take this run's topics off a broker that outlives it."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    ours = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
    for removed in (admin.delete_topics(ours) if ours else {}).values():
        removed.result(30)


@pytest.fixture(scope="session")
def kafka_server(kafka: Kafka) -> KafkaServer:
    """The broker's server, for tests that stop or kill it; with another's broker the test is not run."""
    assert kafka.server
    return kafka.server


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """Start PostgreSQL before pytest-django makes the test database."""
    if fixturedef.argname == "django_db_setup":
        request.getfixturevalue("postgres")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests that want a broker which is not to be had, and remember why."""
    reasons = [why_not(item) for item in items]
    config.stash[NOT_RUN] = Counter(reason for reason in reasons if reason)
    left_out = [item for item, reason in zip(items, reasons, strict=True) if reason]
    items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]
    # The longest run first, so that no process works on one alone while the others have ended.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def why_not(item: pytest.Item) -> str | None:
    """Why the test cannot run here, or None if it can."""
    wanted = getattr(item, "fixturenames", ())
    if "kafka_server" in wanted:
        return missing_server()
    return missing_broker() if "kafka" in wanted else None


@cache
def missing_broker() -> str | None:
    """Why there is no broker, or None if there is one."""
    if GIVEN_BROKER or not (java := missing_tool()):
        return None
    docker = missing_docker()
    return f"no Kafka. {java}. Or: {docker}." if docker else None


@cache
def missing_server() -> str | None:
    """Why there is no broker that the tests may kill, or None if there is one."""
    if GIVEN_BROKER:
        return "the broker of TEST_KAFKA_BOOTSTRAP_SERVERS is not theirs to stop."
    missing = missing_tool()
    return f"no Kafka that they may stop. {missing}." if missing else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember the tests that were skipped."""
    if report.skipped and not hasattr(report, "wasxfail"):
        SKIPPED.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Remember the modules that were skipped."""
    if report.skipped:
        SKIPPED.append(report.nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Name our marks, and hear what the processes that share the tests between them left out."""
    config.addinivalue_line("markers", "long: takes over half a minute; runs before the others")
    if config.pluginmanager.hasplugin("dsession"):
        config.pluginmanager.register(Controller(config))


class Controller:
    """Hears, in the process that hands the tests out, what each of the others did not run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_testnodedown(self, node: Any) -> None:
        """Add up what one process did not run; all processes collect the same tests."""
        self._config.stash[NOT_RUN] = Counter(node.workeroutput["not_run"])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run in which a test that had to run did not."""
    not_run = session.config.stash.get(NOT_RUN, Counter())
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["not_run"] = dict(not_run)
        return
    if (REQUIRE_KAFKA and not_run) or (CI and SKIPPED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which tests did not run, and why."""
    for reason, count in config.stash.get(NOT_RUN, Counter()).items():
        terminalreporter.write_line(f"Not run, {count} tests: {reason}", yellow=True)
    if CI and SKIPPED:
        terminalreporter.write_line(f"Skipped, which CI does not allow: {', '.join(SKIPPED)}", red=True)


def pytest_unconfigure() -> None:
    """Remove what the servers left."""
    RUN.close()


def eventually(condition: Callable[[], T], timeout: float = 30) -> T:
    """Wait for the condition's first true value, and return it; AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        name = getattr(condition, "__name__", repr(condition))
        assert time.monotonic() < deadline, f"{name} is still {value!r} after {timeout} s"
        time.sleep(0.05)
    return value
