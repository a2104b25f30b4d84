"""`.env.example` and the README say what settings read; a mistake in it is one line and an exit, anywhere."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shopmicro.embedded.ports import free_port
from tests.architecture.test_compose import read_by_settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = (ROOT / ".env.example").read_text()
GOOD = {
    "ENV_FILE": os.devnull,
    "SECRET_KEY": "x",
    "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
}
SHOW = """
import json, shopmicro.settings as settings
print(json.dumps({name: repr(value) for name, value in vars(settings).items() if name.isupper()}))"""

MISTAKES = [
    ("SECRET_KEY", "", "SECRET_KEY is not set"),
    ("SECRET_KEY", "  ", "SECRET_KEY is not set"),
    ("SECRET_KEY_FILE", "/no/such/file", "SECRET_KEY_FILE names a file that cannot be read"),
    ("DATABASE_URL", "foo", "DATABASE_URL is not the address of a PostgreSQL database"),
    ("DATABASE_URL", "mysql://a:b@localhost/x", "DATABASE_URL is not the address of a PostgreSQL database"),
    ("DATABASE_URL", "postgres://a:b@localhost:x/y", "DATABASE_URL is not the address of a PostgreSQL"),
    ("DATABASE_URL", "postgres://a:b@localhost", "DATABASE_URL is not the address of a PostgreSQL database"),
    ("KAFKA_BOOTSTRAP_SERVERS", "", "KAFKA_BOOTSTRAP_SERVERS is not set"),
    ("KAFKA_OPTIONS", "x", "KAFKA_OPTIONS is not a list such as name=value,name=value"),
    ("PAYMENT_LIMIT_CENTS", "abc", "PAYMENT_LIMIT_CENTS is not a whole number"),
    ("NOTIFY_MAX_AGE", "9" * 20, "NOTIFY_MAX_AGE is not a whole number"),
    ("RETRY_DELAY", "abc", "RETRY_DELAY is not a number"),
    ("DEBUG", "flase", "DEBUG is neither true nor false"),
    ("EMAIL_URL", "foo", "EMAIL_URL is not the address of a mail server"),
    ("LOG_LEVEL", "LOUD", "(shopmicro.E004) LOG_LEVEL is LOUD"),
    ("SAGA_BATCH", "0", "(shopmicro.E001) SAGA_BATCH is 0"),
    ("CRASH_POINT", "after-poll", "(shopmicro.E006) CRASH_POINT"),
]


def variables_of_the_example() -> dict[str, str]:
    return dict(re.findall(r"^#?([A-Z][A-Z_]*)=(.*)$", EXAMPLE, re.MULTILINE))


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, *command],
        env={**kept, **GOOD, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def settings_with(env_file: Path, *left_out: str, **environment: str) -> dict[str, str]:
    """Give each setting as text, of a process that takes all but these from the file."""
    kept = {name: value for name, value in GOOD.items() if name not in left_out}
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**kept, "ENV_FILE": str(env_file), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    shown: dict[str, str] = json.loads(done.stdout)
    return shown


def test_the_example_and_the_readme_name_every_variable_that_settings_read_and_no_other() -> None:
    table = (ROOT / "README.md").read_text().split("## Configuration")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[A-Z].*?) \|", table, re.MULTILINE)
    in_readme = {name for cell in cells for name in re.findall(r"`([A-Z_]+)`", cell)}
    assert in_readme == read_by_settings()
    # The example cannot say which file to read instead of itself.
    assert set(variables_of_the_example()) == read_by_settings() - {"ENV_FILE"}


def test_the_example_as_it_is_gives_what_it_shows(tmp_path: Path) -> None:
    copied = tmp_path / "env"
    copied.write_text(EXAMPLE)
    shown = settings_with(copied, "DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")
    assert "'NAME': 'orders', 'USER': 'shopmicro', 'PASSWORD': 'PASSWORD'" in shown["DATABASES"]
    assert shown["KAFKA_BOOTSTRAP_SERVERS"] == "'localhost:9092'"


def test_every_default_that_the_example_shows_is_the_settings_own(tmp_path: Path) -> None:
    nothing, everything = tmp_path / "nothing", tmp_path / "everything"
    nothing.write_text("")
    everything.write_text(re.sub(r"^#([A-Z_]+=)", r"\1", EXAMPLE, flags=re.MULTILINE))
    by_default, as_shown = settings_with(nothing), settings_with(everything)
    for settings in (by_default, as_shown):
        del settings["LOGGING"]  # made of LOG_LEVEL and LOG_FORMAT, and of objects with addresses
    assert as_shown == by_default


def test_the_example_has_comments_on_lines_of_their_own() -> None:
    assert [line for line in EXAMPLE.splitlines() if re.match(r"#?[A-Z_]+=.*(\s|#)", line)] == []


@pytest.mark.parametrize(("name", "value", "sentence"), MISTAKES)
def test_a_mistake_ends_a_worker_with_one_line_that_names_it(name: str, value: str, sentence: str) -> None:
    done = run("manage.py", "runsaga", **{name: value})
    said = [line for line in done.stderr.splitlines() if sentence in line]
    assert (done.returncode, len(said)) == (1, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert not value.startswith("postgres") or value not in done.stderr


@pytest.mark.parametrize(
    ("name", "value", "sentence"), [mistake for mistake in MISTAKES if mistake[0] != "CRASH_POINT"]
)
def test_a_mistake_ends_the_web_process_instead_of_starting_it_again_and_again(
    name: str, value: str, sentence: str
) -> None:
    options = ["--bind", f"127.0.0.1:{free_port()}", "--no-control-socket"]
    done = run("-m", "gunicorn", "shopmicro.wsgi", *options, **{name: value})
    said = [line for line in done.stderr.splitlines() if sentence.split(") ")[-1] in line]
    assert (done.returncode, len(said)) == (3, 1), done.stderr
    assert "Traceback" not in done.stderr


def test_a_secret_that_begins_with_a_dollar_or_ends_with_a_line_break_is_taken_as_it_is(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("$ecret\n")
    shown = settings_with(tmp_path / "none", "SECRET_KEY", SECRET_KEY_FILE=str(secret))
    assert shown["SECRET_KEY"] == "'$ecret'"


def test_cookies_are_for_tls_only_where_a_proxy_ends_it(tmp_path: Path) -> None:
    names = ("SECURE_PROXY_SSL_HEADER", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE")
    without = settings_with(tmp_path / "none")
    behind = settings_with(tmp_path / "none", SECURE_PROXY_SSL_HEADER="X-Forwarded-Proto")
    assert [without[name] for name in names] == ["None", "False", "False"]
    assert [behind[name] for name in names] == ["('HTTP_X_FORWARDED_PROTO', 'https')", "True", "True"]
