"""The import rules hold, and each of them can fail: a violation is planted in a copy and must be found."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from django.apps import apps as installed

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINTER = PYPROJECT["tool"]["importlinter"]
PACKAGES = LINTER["root_packages"]

VIOLATIONS = [
    ("The machinery knows no business app", "shopmicro/messaging/batch.py", "import orders.saga"),
    (
        "Inside the project package, imports point down",
        "shopmicro/messaging/relay.py",
        "import shopmicro.urls",
    ),
    ("Inside the project package, imports point down", "shopmicro/problems.py", "import shopmicro.api"),
    (
        "Inside the project package, imports point down",
        "shopmicro/admin.py",
        "import shopmicro.messaging.event",
    ),
    ("Inside the project package, imports point down", "shopmicro/helpers.py", ""),
    ("Apps meet only in what they publish", "payments/operations.py", "import orders.operations"),
    ("Apps meet only in what they publish", "notifications/handlers.py", "import orders.models"),
    ("Apps meet only in what they publish", "catalog/operations.py", "import orders.queries"),
    ("Events and handlers' contract are plain data", "orders/events.py", "import django.db"),
    ("Events and handlers' contract are plain data", "shopmicro/messaging/handler.py", "import django.conf"),
    ("Inside an app, imports point down", "orders/models.py", "import orders.operations"),
    ("Inside an app, imports point down", "catalog/queries.py", "import catalog.api"),
    ("Inside an app, imports point down", "payments/utils.py", ""),
    (
        "Inside the machinery, imports point down",
        "shopmicro/messaging/outbox.py",
        "import shopmicro.messaging.relay",
    ),
    ("Inside the machinery, imports point down", "shopmicro/messaging/common.py", ""),
    (
        "Only kafka and the embedded broker speak Kafka",
        "shopmicro/messaging/consumer.py",
        "import confluent_kafka",
    ),
    ("Only kafka and the embedded broker speak Kafka", "payments/gateway.py", "import confluent_kafka"),
    (
        "Only commands assemble consumers; apps need events and the outbox",
        "orders/handlers.py",
        "import shopmicro.messaging.consumer",
    ),
    (
        "Only commands assemble consumers; apps need events and the outbox",
        "payments/operations.py",
        "import shopmicro.messaging.models",
    ),
    ("Settings are read through django.conf", "orders/operations.py", "import shopmicro.settings"),
]


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", tree)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    return tree


def test_the_code_keeps_every_rule(copy: Path) -> None:
    linted = lint(copy)
    assert (linted.returncode, "BROKEN" in linted.stdout) == (0, False), linted.stdout


@pytest.mark.parametrize(
    ("rule", "path", "line"), VIOLATIONS, ids=[f"{path}: {line}" for _, path, line in VIOLATIONS]
)
def test_a_planted_violation_is_found(copy: Path, rule: str, path: str, line: str) -> None:
    file = copy / path
    before = file.read_text() if file.exists() else None
    file.write_text(f"{before or ''}\n{line}\n")
    linted = lint(copy)
    if before is None:
        file.unlink()
    else:
        file.write_text(before)
    assert linted.returncode == 1
    assert rule in linted.stdout
    assert "BROKEN" in linted.stdout or "not listed as layers" in linted.stdout


def test_every_rule_has_a_planted_violation() -> None:
    assert {contract["name"] for contract in LINTER["contracts"]} == {rule for rule, _, _ in VIOLATIONS}


def test_every_app_is_under_the_rules_and_its_tests_are_collected() -> None:
    apps = {
        config.name.split(".")[0]
        for config in installed.get_app_configs()
        if ROOT in Path(config.path).parents and ".venv" not in config.path
    }
    apps = {name for name in apps if (ROOT / name).is_dir() and name != "shopmicro"}
    by_name = {contract["name"]: contract for contract in LINTER["contracts"]}
    assert set(PACKAGES) == apps | {"shopmicro"}
    assert set(by_name["The machinery knows no business app"]["forbidden_modules"]) == apps
    assert set(by_name["Apps meet only in what they publish"]["modules"]) == apps
    assert set(by_name["Inside an app, imports point down"]["containers"]) == apps
    assert set(PYPROJECT["tool"]["pytest"]["ini_options"]["testpaths"]) == apps | {"shopmicro", "tests"}
