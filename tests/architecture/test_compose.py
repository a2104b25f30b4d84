"""The containers run commands that exist, with variables that settings read, open to this machine only."""

import ast
import re
from pathlib import Path
from typing import Any

import environ
import pytest
import yaml
from django.core.management import get_commands

from shopmicro.embedded.kafka import VERSION as KAFKA_VERSION

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("shopmicro:")}
WORKERS = {
    name for name, app in get_commands().items() if name.startswith("run") and not app.startswith("django.")
}
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def env_file(name: str) -> dict[str, str]:
    lines = (FOLDER / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


ENV_FILES = {file.name: env_file(file.name) for file in sorted(FOLDER.glob("*.env"))}


def read_by_settings() -> set[str]:
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / "shopmicro" / "settings.py").read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("env.") and node.args
    ]
    return {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}


def variables() -> list[tuple[str, str]]:
    from_files = [(name, variable) for name, values in ENV_FILES.items() for variable in values]
    return from_files + [
        (name, variable) for name, service in OURS.items() for variable in environment(service)
    ]


def environment(service: dict[str, Any]) -> set[str]:
    given = service.get("environment", {})
    return {entry.partition("=")[0] for entry in given} if isinstance(given, list) else set(given)


def manage_commands(service: dict[str, Any]) -> list[str]:
    command = service.get("command", "")
    line = command if isinstance(command, str) else " ".join(command)
    return re.findall(r"manage\.py (\S+)", line)


def test_settings_are_seen_to_read_variables() -> None:
    assert {"SECRET_KEY", "DATABASE_URL", "EMAIL_URL", "PAYMENT_LIMIT_CENTS"} <= read_by_settings()


@pytest.mark.parametrize(("where", "variable"), variables())
def test_settings_read_every_variable_that_is_set(where: str, variable: str) -> None:
    assert variable.removesuffix("_FILE") in read_by_settings()


@pytest.mark.parametrize("name", OURS)
def test_every_command_that_is_run_exists(name: str) -> None:
    assert set(manage_commands(OURS[name])) <= set(get_commands())


def test_every_worker_has_a_service_of_its_name() -> None:
    running = {
        name: manage_commands(service) for name, service in OURS.items() if name not in {"setup", "web"}
    }
    assert running == {worker: [worker] for worker in WORKERS - {"runworkers"}}


def test_setup_migrates_loads_the_catalogue_and_makes_the_topics() -> None:
    assert manage_commands(OURS["setup"]) == ["migrate", "loadcatalog", "createtopics"]


@pytest.mark.parametrize("name", OURS)
def test_a_process_may_take_20_seconds_to_stop_and_comes_back_unless_it_is_the_setup(name: str) -> None:
    restart = "no" if name == "setup" else "unless-stopped"
    assert (OURS[name]["stop_grace_period"], OURS[name]["restart"]) == ("20s", restart)


@pytest.mark.parametrize("name", sorted(OURS.keys() - {"setup"}))
def test_a_process_starts_after_the_setup_has_succeeded(name: str) -> None:
    assert OURS[name]["depends_on"] == {"setup": {"condition": "service_completed_successfully"}}


@pytest.mark.parametrize("name", SERVICES)
def test_every_port_is_published_to_this_machine_only(name: str) -> None:
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in SERVICES[name].get("ports", []))


def test_the_ports_are_those_that_the_walk_names() -> None:
    published = {port for service in SERVICES.values() for port in service.get("ports", [])}
    assert published == {"127.0.0.1:8080:8080", "127.0.0.1:5432:5432", "127.0.0.1:9092:9092"}


def test_every_image_of_others_has_a_version() -> None:
    images = {service["image"] for name, service in SERVICES.items() if name not in OURS}
    bases = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE))
    assert images == {"postgres:18", f"apache/kafka:{KAFKA_VERSION}"}
    assert all(re.fullmatch(r"python:3\.\d+-slim", base) for base in bases)
    assert bases


def test_every_named_volume_is_declared_and_every_declared_one_is_used() -> None:
    mounts = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])]
    assert set(mounts) == set(COMPOSE["volumes"])


def test_the_secret_key_is_in_no_file_but_in_a_volume_that_only_the_setup_writes() -> None:
    path = ENV_FILES["containers.env"]["SECRET_KEY_FILE"]
    writers = [name for name, service in OURS.items() if f"secrets:{Path(path).parent}" in service["volumes"]]
    readers = [
        name for name, service in OURS.items() if f"secrets:{Path(path).parent}:ro" in service["volumes"]
    ]
    assert (writers, set(readers)) == (["setup"], OURS.keys() - {"setup"})
    assert not any("SECRET_KEY" in values for values in ENV_FILES.values())
    assert not any("SECRET_KEY" in environment(service) for service in OURS.values())


@pytest.mark.parametrize(("name", "host"), [("containers.env", "postgres"), ("host.env", "localhost")])
def test_processes_open_the_database_that_the_server_makes(name: str, host: str) -> None:
    server = SERVICES["postgres"]["environment"]
    database = environ.Env.db_url_config(ENV_FILES[name]["DATABASE_URL"])
    assert [database[key] for key in ("HOST", "PORT", "USER", "PASSWORD", "NAME")] == [
        host,
        5432,
        server["POSTGRES_USER"],
        server["POSTGRES_PASSWORD"],
        server["POSTGRES_DB"],
    ]


@pytest.mark.parametrize(("name", "listener"), [("containers.env", "NETWORK"), ("host.env", "HOST")])
def test_processes_reach_the_broker_where_it_advertises_itself(name: str, listener: str) -> None:
    advertised = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert f"{listener}://{ENV_FILES[name]['KAFKA_BOOTSTRAP_SERVERS']}" in advertised


def test_the_broker_makes_no_topic_by_itself() -> None:
    assert SERVICES["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"


def test_the_image_ends_as_a_user_without_privileges_and_hands_signals_to_the_process() -> None:
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\S+)", last_stage, re.MULTILINE) == ["10001"]
    assert re.search(r'^CMD \["gunicorn", "shopmicro\.wsgi"', last_stage, re.MULTILINE)
