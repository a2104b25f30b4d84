import pytest
from confluent_kafka import Producer

from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.kafka import answers
from shopmicro.embedded.mock import MockKafka
from shopmicro.embedded.tests.records import values


def test_a_record_comes_back_from_a_topic_that_appears_on_first_use() -> None:
    with MockKafka() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        producer.produce("orders", b"first")
        assert producer.flush(30) == 0
        assert values(cluster.bootstrap_servers, "orders", 1) == [b"first"]
        assert len(producer.list_topics("orders", 5).topics["orders"].partitions) == 4


def test_a_killed_cluster_answers_no_more_and_another_start_does() -> None:
    cluster = MockKafka()
    cluster.start()
    address = cluster.bootstrap_servers
    cluster.kill()
    assert not answers(address)
    with pytest.raises(EmbeddedError, match=r"start\(\) it first"):
        cluster.bootstrap_servers  # noqa: B018
    with cluster:
        assert answers(cluster.bootstrap_servers)
