"""`createtopics` makes what the registered groups read, once."""

import secrets
from collections.abc import Iterator
from io import StringIO

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from django.core.management import CommandError, call_command
from pytest_django import Settings

from shopmicro.embedded.mock import MockKafka
from shopmicro.embedded.ports import free_port
from shopmicro.messaging import handler
from shopmicro.messaging.handler import Group
from tests.servers import Kafka


@pytest.fixture
def prefix(settings: Settings) -> str:
    settings.KAFKA_PREFIX = f"test-{secrets.token_hex(4)}-"
    settings.TOPIC_PARTITIONS = 3
    return str(settings.KAFKA_PREFIX)


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "_groups", {})
    for name, topics in {"saga": ("payments",), "notes": ("payments", "orders")}.items():
        handler.register(Group(name, topics, {}, lambda messages, results: []))


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    with MockKafka() as mock:
        yield mock


def createtopics() -> str:
    output = StringIO()
    call_command("createtopics", stdout=output)
    return output.getvalue()


def test_the_topics_of_all_groups_are_made_once_with_the_broker_s_own_time(kafka: Kafka, prefix: str) -> None:
    assert createtopics() == "orders: made\npayments: made\n"
    assert createtopics() == "orders: was there\npayments: was there\n"
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    topics = client.list_topics(timeout=5).topics
    assert {name: len(topics[name].partitions) for name in topics if name.startswith(prefix)} == {
        f"{prefix}orders": 3,
        f"{prefix}payments": 3,
    }
    (answer,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, f"{prefix}orders")]).values()
    assert answer.result(5)["message.timestamp.type"].value == "LogAppendTime"


def test_a_topic_with_fewer_partitions_is_left_so_and_warned_of(
    kafka: Kafka, prefix: str, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    createtopics()
    assert caplog.messages == []
    settings.TOPIC_PARTITIONS = 4
    assert createtopics() == "orders: was there\npayments: was there\n"
    assert [message.count("fewer partitions than wanted") for message in caplog.messages] == [1, 1]
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    assert len(client.list_topics(timeout=5).topics[f"{prefix}orders"].partitions) == 3


def test_without_a_broker_one_line_says_what_to_do(prefix: str, settings: Settings) -> None:
    settings.KAFKA_BOOTSTRAP_SERVERS = f"127.0.0.1:{free_port()}"
    with pytest.raises(CommandError) as raised:
        createtopics()
    assert "see that it runs" in str(raised.value)
    assert settings.KAFKA_BOOTSTRAP_SERVERS in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_mock_cluster_s_topics_come_by_asking_for_them(
    prefix: str, settings: Settings, mock: MockKafka
) -> None:
    settings.KAFKA_BOOTSTRAP_SERVERS = mock.bootstrap_servers
    assert createtopics() == "orders: made\npayments: made\n"
    assert createtopics() == "orders: was there\npayments: was there\n"
