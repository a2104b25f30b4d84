"""What the demo is told by its user's environment, and what it tells its own processes by theirs."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from shopmicro.embedded.errors import EmbeddedError

# Of the user's own variables the processes get these, and no setting of the product.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
ADMIN = "admin"


@dataclass(frozen=True)
class Options:
    """The web process's port, whether the broker is a real Kafka, whether to end after the walk."""

    port: int
    real_broker: bool
    once: bool

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Read PORT, BROKER and ONCE; EmbeddedError if one has no meaning."""
        port, broker = environ.get("PORT") or "8080", environ.get("BROKER") or "mock"
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
            raise EmbeddedError(f"PORT={port} is no port: choose a number from 1 to 65535")
        if broker not in ("mock", "kafka"):
            raise EmbeddedError(f"BROKER={broker} is unknown: choose mock, in memory, or kafka, the real one")
        return cls(int(port), broker == "kafka", environ.get("ONCE", "") not in ("", "0"))


def environment(
    directory: Path, database_url: str, bootstrap_servers: str, admin_password: str
) -> dict[str, str]:
    """The whole environment of the demo's processes: the user's own settings have no part in it."""
    return {
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        "ENV_FILE": os.devnull,
        "SECRET_KEY": secrets.token_hex(32),
        "DATABASE_URL": database_url,
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
        "TOPIC_PARTITIONS": "4",
        "EMAIL_URL": "consolemail://",
        "ALLOWED_HOSTS": "localhost,127.0.0.1",
        "TMPDIR": str(directory),
        "DJANGO_SUPERUSER_USERNAME": ADMIN,
        "DJANGO_SUPERUSER_EMAIL": "admin@localhost",
        "DJANGO_SUPERUSER_PASSWORD": admin_password,
    }
