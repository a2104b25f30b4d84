import socket
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from shopmicro.embedded.errors import EmbeddedError, PortInUse
from shopmicro.embedded.kafka import KafkaServer, answers
from shopmicro.embedded.tests.records import values
from tests.servers import eventually


@pytest.fixture
def topic(kafka_server: KafkaServer) -> str:
    name = f"topic-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka_server.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def test_a_record_of_the_console_producer_is_read_by_a_client(kafka_server: KafkaServer, topic: str) -> None:
    kafka_server.console_producer(topic, ["first", '{"second": "ไทย"}'])
    assert values(kafka_server.bootstrap_servers, topic, 2) == [b"first", '{"second": "ไทย"}'.encode()]


def test_records_survive_a_kill_and_a_restart(kafka_server: KafkaServer, topic: str) -> None:
    address = kafka_server.bootstrap_servers
    kafka_server.console_producer(topic, ["kept"])
    kafka_server.kill()
    assert not answers(address)
    kafka_server.start()
    assert values(address, topic, 1) == [b"kept"]
    kafka_server.stop()
    kafka_server.start()
    assert kafka_server.bootstrap_servers == address
    assert values(address, topic, 1) == [b"kept"]


def test_a_paused_broker_answers_nobody_until_it_is_resumed(kafka_server: KafkaServer) -> None:
    kafka_server.pause()
    assert not answers(kafka_server.bootstrap_servers)
    kafka_server.resume()
    eventually(lambda: answers(kafka_server.bootstrap_servers))


def test_topics_do_not_appear_by_being_asked_for(kafka_server: KafkaServer) -> None:
    consumer = Consumer({"bootstrap.servers": kafka_server.bootstrap_servers, "group.id": "curious"})
    with pytest.raises(KafkaException):
        consumer.get_watermark_offsets(TopicPartition("never-made", 0), timeout=5)
    names = AdminClient({"bootstrap.servers": kafka_server.bootstrap_servers}).list_topics(timeout=5).topics
    consumer.close()
    assert "never-made" not in names


def test_a_tool_that_fails_says_why(kafka_server: KafkaServer) -> None:
    with pytest.raises(EmbeddedError, match=r"ConsoleProducer failed: .*topic"):
        kafka_server.tool("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", "127.0.0.1:1")


def test_a_busy_port_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(PortInUse, match=f"^port {port} of 127.0.0.1 is in use: [^\n]*$"):
            KafkaServer(tmp_path / "kafka", port=port).start()
