import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from shopmicro.embedded.postgres import Postgres
from tests.journeys.shop import WORKERS, Shop
from tests.servers import Kafka

TEMPLATE = "journey"


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, kafka: Kafka) -> str:
    """A database with the product's tables and its catalogue, to be copied."""
    postgres.create_database(TEMPLATE)
    shop = Shop(tmp_path_factory.mktemp("template"), postgres.url(TEMPLATE), kafka.bootstrap_servers, "")
    shop.manage("migrate", "--verbosity", "0")
    shop.manage("loadcatalog")
    shop.close()
    return TEMPLATE


def open_shop(directory: Path, postgres: Postgres, template: str, kafka: Kafka) -> Shop:
    """Make a shop with a database and topics of its own; nothing runs yet."""
    name = f"journey_{secrets.token_hex(4)}"
    postgres.create_database(name, template)
    prefix = f"{kafka.prefix}{name}-"
    shop = Shop(directory, postgres.url(name), kafka.bootstrap_servers, prefix)
    shop.manage("createtopics")
    return shop


@pytest.fixture(scope="session")
def shop(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, template: str, kafka: Kafka
) -> Iterator[Shop]:
    """A shop with web and all workers running, which the journeys share; each uses its own orders."""
    shop = open_shop(tmp_path_factory.mktemp("shop"), postgres, template, kafka)
    shop.start("web", *WORKERS)
    yield shop
    shop.close()


@pytest.fixture
def closed_shop(tmp_path: Path, postgres: Postgres, template: str, kafka: Kafka) -> Iterator[Shop]:
    """A shop of the test's own with nothing running, for what needs a first start or a backlog."""
    shop = open_shop(tmp_path, postgres, template, kafka)
    yield shop
    shop.close()
