import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from shopmicro.embedded.postgres import Postgres
from tests.journeys.shop import WORKERS, Shop
from tests.servers import Kafka


def open_shop(directory: Path, postgres: Postgres, kafka: Kafka) -> Shop:
    """Make a shop with an empty database and topics of its own; nothing runs yet."""
    name = f"journey_{secrets.token_hex(4)}"
    postgres.create_database(name)
    shop = Shop(directory, postgres.url(name), kafka.bootstrap_servers, f"{name}-")
    shop.manage("migrate", "--verbosity", "0")
    shop.manage("loadcatalog")
    shop.manage("createtopics")
    return shop


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, kafka: Kafka) -> Iterator[Shop]:
    """A shop with web and all workers running, which the journeys share; each uses its own orders."""
    shop = open_shop(tmp_path_factory.mktemp("shop"), postgres, kafka)
    shop.start("web", *WORKERS)
    yield shop
    shop.close()


@pytest.fixture
def closed_shop(tmp_path: Path, postgres: Postgres, kafka: Kafka) -> Iterator[Shop]:
    """A shop of the test's own with nothing running, for what needs a first start or a backlog."""
    shop = open_shop(tmp_path, postgres, kafka)
    yield shop
    shop.close()
