"""A Kafka broker on this machine: one node that is its own controller (KRaft)."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.child import Child
from tests.kafka import jars

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PASSWORD = "correct-horse"  # noqa: S105 -- of a broker that lives for a test
"""That of the user `ada`, at the address that asks for one."""
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="{PASSWORD}";'
    ),
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "num.network.threads": "2",
    "num.io.threads": "2",
}
_QUICK = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_STARTED = "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"


class Broker:
    """A broker with its data below a folder. It can be killed, and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        listener, secure, controller = find_free_ports(3)
        self.servers, self.secure_servers = f"127.0.0.1:{listener}", f"127.0.0.1:{secure}"
        addresses = f"PLAINTEXT://{self.servers},SECURE://{self.secure_servers}"
        settings = {
            **_SETTINGS,
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": addresses,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(folder / "data"),
        }
        self._file = folder / "server.properties"
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        _format_storage(folder)
        self._child = self._start()

    def kill(self) -> None:
        """End it at once, as a machine that fails."""
        self._child.end()

    def start_again(self) -> None:
        """Start it with the data that it has."""
        self._child = self._start()

    def make_topic(self, partitions: int = 1, *, name: str = "", **settings: str) -> str:
        """A topic of a test's own; `_` in the name of a setting stands for a dot."""
        from confluent_kafka.cimpl import NewTopic

        topic = name or f"test-{uuid.uuid4().hex[:12]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        admin = self.make_admin()
        admin.create_topics([wanted])[topic].result(30)
        return topic

    def send(self, topic: str, values: Sequence[str | bytes | None], **given: Any) -> None:
        """Send these values one after the other, with what `Producer.produce` takes beside them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        for value in values:
            producer.produce(topic, value, **given)
        assert producer.flush(30) == 0

    def make_admin(self) -> AdminClient:
        """A client that makes and removes topics. Hold it until its answers are there."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers})

    def _start(self) -> Child:
        command = [*_list_java(), _STARTED, "kafka.Kafka", str(self._file)]
        child = Child(command, self._folder / "broker.log", _environment())
        child.wait_for(r"Kafka Server started")
        return child


def find_free_ports(count: int) -> list[int]:
    """Ports of the loopback that are free now."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _format_storage(folder: Path) -> None:
    tool = ["kafka.tools.StorageTool", "format", "-t", "x" * 22, "-c", str(folder / "server.properties")]
    done = subprocess.run([*_list_java(), *tool], check=False, capture_output=True, text=True, env=_environment())
    if done.returncode:
        raise RuntimeError(f"The storage of Kafka could not be formatted:\n{done.stdout}{done.stderr}")


def _list_java() -> list[str]:
    return ["java", *_QUICK, _LOG, "-cp", f"{jars.FOLDER / 'broker'}/*"]


def _environment() -> Mapping[str, str]:
    return {**os.environ, "KAFKA_OPTS": ""}


def make_options(password: str) -> dict[str, str]:
    """Settings of the client for the address that asks for a password."""
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ada"}
    return {**given, "sasl.password": password}


@pytest.fixture(scope="session")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    why = jars.say_why_not()
    if why and not os.environ.get("CI"):
        pytest.skip(why)
    jars.fetch()
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.kill()


@pytest.fixture
def kafka(_broker: Broker) -> Broker:
    """The broker of all tests. Each test makes topics of its own."""
    return _broker
