"""A real Apache Kafka broker of one's own: one node in KRaft mode, on the loopback interface only."""

import secrets
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.java import java, write_class_path
from shopmicro.embedded.ports import free_port, require_free
from shopmicro.embedded.processes import Child, wait_until

VERSION = "4.1.1"
START_LIMIT = 60.0
HEAP = ("-Xms256m", "-Xmx400m")
# The counters that jstat reads are a file in the temporary directory of the whole machine.
NO_COUNTERS = "-XX:-UsePerfData"
# Short-lived programs are faster without the optimising compiler.
TOOL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", NO_COUNTERS)

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # 45 s by default: how long a killed consumer's partitions wait for another.
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    # 9 s by default: how long the broker, killed and started again, is refused as its own double.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.segment.delete.delay.ms": "1000",
}


class KafkaServer:
    """One broker and its data in one directory; its address holds before it is started and over restarts."""

    def __init__(self, directory: Path, *, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        """Nothing is started yet; `port` 0 means a free one, `settings` are further ones of the broker."""
        self.directory = directory
        self.port = port or free_port()
        self.settings = dict(settings or {})
        self.data = directory / "data"
        self._arguments = directory / "java.arguments"
        self._child: Child | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, as a client wants it."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's pid."""
        return self._running().pid

    def start(self) -> None:
        """Start the broker on new data or on what is there; it answers, or EmbeddedError is raised."""
        require_free(self.port)
        properties = self._write_properties()
        if not (self.data / "meta.properties").exists():
            self.tool("kafka.tools.StorageTool", "format", "-t", secrets.token_hex(11), "-c", str(properties))
        # What a killed JVM leaves lies in the directory.
        options = ["-Dorg.apache.logging.log4j.level=INFO", f"-Djava.io.tmpdir={self.directory}", NO_COUNTERS]
        command = [java(), *HEAP, *options, f"@{self._class_path()}", "kafka.Kafka", str(properties)]
        self._child = Child(command, log=self.directory / "kafka.log", grace=20)
        try:
            wait_until(
                self._answers, timeout=START_LIMIT, otherwise=f"Kafka is not up in {START_LIMIT:.0f} s"
            )
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut the broker down, if it runs."""
        if self._child:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """Kill -9 the broker."""
        self._running().kill()
        self._child = None

    def pause(self) -> None:
        """Freeze the broker: its connections stay open and nothing answers."""
        self._running().send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen broker go on."""
        self._running().send(signal.SIGCONT)

    def console_producer(self, topic: str, lines: Iterable[str], *properties: str) -> None:
        """Produce the lines, one record each, by Kafka's own console producer.

        `properties` are its reader's, such as `parse.key=true`.
        """
        options = [word for each in properties for word in ("--property", each)]
        address = ["--bootstrap-server", self.bootstrap_servers, "--topic", topic]
        text = "".join(f"{line}\n" for line in lines)
        self.tool("org.apache.kafka.tools.ConsoleProducer", *address, *options, text=text)

    def tool(self, main_class: str, *arguments: str, text: str = "") -> str:
        """Run one of Kafka's programs with the text as input; its output. EmbeddedError if it fails."""
        command = [java(), *TOOL, f"@{self._class_path()}", main_class, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise EmbeddedError(f"{main_class} failed: {said[0] if said else f'status {done.returncode}'}")
        return done.stdout

    def _class_path(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._arguments.exists():
            write_class_path(self._arguments)
        return self._arguments

    def _write_properties(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        controller = f"127.0.0.1:{free_port()}"
        addresses = {
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.data),
        }
        properties = self.directory / "server.properties"
        merged = {**SETTINGS, **addresses, **self.settings}
        properties.write_text("".join(f"{name}={value}\n" for name, value in merged.items()))
        return properties

    def _answers(self) -> bool:
        child = self._running()
        if child.poll() is not None:
            raise EmbeddedError(child.last_words())
        return answers(self.bootstrap_servers)

    def _running(self) -> Child:
        if self._child is None:
            raise EmbeddedError("Kafka is not running: start() it first")
        return self._child


def answers(bootstrap_servers: str) -> bool:
    """Whether a broker answers there within half a second."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=0.5).brokers)
    except KafkaException:
        return False
