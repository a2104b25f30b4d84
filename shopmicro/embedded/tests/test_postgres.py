import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from shopmicro.embedded.errors import PortInUse
from shopmicro.embedded.postgres import Postgres

GIVEN = os.environ.get("TEST_POSTGRES_BIN")
VERSIONS = [None, *([Path(GIVEN)] if GIVEN else [])]


@pytest.fixture(params=VERSIONS, ids=lambda binaries: "given" if binaries else "wheel")
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Postgres]:
    with Postgres(tmp_path / "postgres", binaries=request.param) as started:
        yield started


def remember(server: Postgres, note: str) -> None:
    with psycopg.connect(server.url()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS notes (note text)")
        connection.execute("INSERT INTO notes VALUES (%s)", [note])


def remembered(server: Postgres) -> list[str]:
    with psycopg.connect(server.url()) as connection:
        return [note for (note,) in connection.execute("SELECT note FROM notes ORDER BY note")]


def test_data_survive_a_restart(server: Postgres) -> None:
    url = server.url()
    remember(server, "kept")
    server.stop()
    server.start()
    assert server.url() == url
    assert remembered(server) == ["kept"]


def test_data_and_password_survive_in_the_directory_alone(tmp_path: Path) -> None:
    with Postgres(tmp_path / "postgres") as first:
        remember(first, "kept")
    with Postgres(tmp_path / "postgres") as second:
        assert remembered(second) == ["kept"]


def test_what_was_committed_survives_a_kill(server: Postgres) -> None:
    remember(server, "kept")
    server.kill()
    server.start()
    assert remembered(server) == ["kept"]


def test_a_kill_leaves_no_process(server: Postgres) -> None:
    postmaster = psutil.Process(server.pid)
    family = [postmaster, *postmaster.children(recursive=True)]
    assert len(family) > 3
    server.kill()
    assert [process for process in family if process.is_running() and process.status() != "zombie"] == []
    server.start()


def test_an_immediate_stop_loses_nothing(server: Postgres) -> None:
    remember(server, "kept")
    server.stop("immediate")
    server.start()
    assert remembered(server) == ["kept"]


def test_only_the_password_opens_it(server: Postgres) -> None:
    wrong = server.url().replace("shopmicro:", "shopmicro:x", 1)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_a_further_database_is_in_utf8_and_durable(server: Postgres) -> None:
    server.create_database("another")
    with psycopg.connect(server.url("another")) as connection:
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_a_busy_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(PortInUse) as refusal:
            Postgres(tmp_path / "postgres", port=port).start()
    expected = f"port {port} of 127.0.0.1 is in use: end what listens there, or choose another port"
    assert str(refusal.value) == expected
    assert not os.listdir(tmp_path)
