"""Kafka brokers on this machine. Each node is its own controller (KRaft)."""

from __future__ import annotations

import importlib
import os
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.child import Child, find_free_ports
from tests.kafka import jars
from tests.maven import skip_without

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PASSWORD = "correct-horse"  # noqa: S105 -- the password of a test's broker
"""The password of the user `ada`, at the address that needs one."""
_SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT,TLS:SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.secure.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "listener.name.tls.ssl.keystore.type": "PEM",
    "listener.name.tls.ssl.truststore.type": "PEM",
    "listener.name.tls.ssl.client.auth": "required",
    "listener.name.secure.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="{PASSWORD}";'
    ),
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "num.partitions": "1",
    "message.max.bytes": "8388608",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
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


class KafkaAddress:
    """The address of brokers, to which a test sends messages."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def make_topic(
        self,
        partitions: int = 1,
        *,
        name: str = "",
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
        **more: str,
    ) -> str:
        """Make a topic for one test, and wait until it is known. `_` in the name of a setting replaces a dot."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic

        topic = name or f"test-{uuid.uuid4().hex[:12]}"
        config = {key.replace("_", "."): value for key, value in {**(settings or {}), **more}.items()}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
        passing = getattr(KafkaError, "_DESTROY_BROKER", None)
        """The error of a new client while it learns the brokers' addresses. The topic may exist then."""
        while True:
            admin = self.make_admin()
            try:
                admin.create_topics([wanted])[topic].result(30)
            except KafkaException as error:
                if error.args[0].code() == passing:
                    continue
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or name:
                    raise
            self.wait_for(topic)
            return topic

    def wait_for(self, topic: str) -> None:
        """Wait until the broker shows a new topic. It confirms the topic a moment earlier."""
        admin, until = self.make_admin(), time.monotonic() + 30
        while admin.list_topics(topic, timeout=30).topics[topic].error is not None and time.monotonic() < until:
            pass

    def send(self, topic: str, values: Iterable[str | bytes | None], **given: Any) -> None:
        """Send these values in order, with the given arguments of `Producer.produce`."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "message.max.bytes": 8 << 20})
        for value in values:
            while True:
                try:
                    producer.produce(topic, value, **given)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0

    def allow(self, user: str, *, topic: str = "", group: str = "", operations: Sequence[str]) -> None:
        """Allow a user only these operations on a topic or a group, and forbid other users all. Return once the brokers
        apply it.
        """
        of: dict[str, Any] = vars(importlib.import_module("confluent_kafka.admin"))
        kind, allow = of["ResourceType"], of["AclPermissionType"].ALLOW
        where = (kind.TOPIC if topic else kind.GROUP, topic or group, of["ResourcePatternType"].LITERAL)
        known = [of["AclBinding"](*where, f"User:{user}", "*", of["AclOperation"][each], allow) for each in operations]
        admin = self.make_admin()
        for answer in admin.create_acls(known).values():
            answer.result(30)
        every = of["AclPermissionType"].ANY
        asked = of["AclBindingFilter"](*where, None, None, of["AclOperation"].ANY, every)
        until = time.monotonic() + 30
        while len(admin.describe_acls(asked).result(30)) < len(known) and time.monotonic() < until:
            pass

    def compact(self, topic: str) -> None:
        """Let the brokers compact a topic from now on. A compaction begins after the next message."""
        of: dict[str, Any] = vars(importlib.import_module("confluent_kafka.admin"))
        settings = {"segment.ms": "50", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "50"}
        changes = [
            of["ConfigEntry"](name, value, incremental_operation=of["AlterConfigOpType"].SET)
            for name, value in settings.items()
        ]
        resource = of["ConfigResource"](of["ResourceType"].TOPIC, topic, incremental_configs=changes)
        admin = self.make_admin()
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(30)

    def make_admin(self) -> AdminClient:
        """Return a client that makes and removes topics. Keep it until its answers have arrived."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers})


class Broker(KafkaAddress):
    """A broker with its data below a folder. It can be killed and started again on the same ports, also by another
    process.

    `voters` are the controllers' ports of all brokers of the cluster. This broker has a `number` in it.
    """

    def __init__(self, folder: Path, *, number: int = 1, voters: Sequence[int] = ()) -> None:
        self._folder, self._file = folder, folder / "server.properties"
        self.certificates = folder / "certificates"
        ports = folder / "ports"
        if not ports.exists():
            folder.mkdir(parents=True, exist_ok=True)
            make_certificates(self.certificates)
            ports.write_text(" ".join(map(str, find_free_ports(4))))
        listener, secure, tls, controller = map(int, ports.read_text().split())
        super().__init__(f"127.0.0.1:{listener}")
        self.secure_servers = f"127.0.0.1:{secure}"
        self.tls_servers = f"127.0.0.1:{tls}"
        if not self._file.exists():
            self._set_up(number, voters or [controller])
        self.begin()

    def _set_up(self, number: int, ports: Sequence[int]) -> None:
        """Write the settings and format the storage."""
        addresses = f"PLAINTEXT://{self.servers},SECURE://{self.secure_servers},TLS://{self.tls_servers}"
        copies = dict.fromkeys(
            (
                "default.replication.factor",
                "offsets.topic.replication.factor",
                "transaction.state.log.replication.factor",
            ),
            str(len(ports)),
        )
        settings = {
            **_SETTINGS,
            **copies,
            "transaction.state.log.min.isr": str(min(2, len(ports))),
            "node.id": str(number),
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{ports[number - 1]}",
            "advertised.listeners": addresses,
            "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{port}" for each, port in enumerate(ports, 1)),
            "log.dirs": str(self._folder / "data"),
            "listener.name.tls.ssl.keystore.location": str(self.certificates / "broker.all"),
            "listener.name.tls.ssl.truststore.location": str(self.certificates / "ca.pem"),
        }
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        _format_storage(self._folder)

    def kill(self) -> None:
        """Kill the process, as if the machine failed."""
        self._child.end()

    def start_again(self) -> None:
        """Start the broker with its existing data, and wait for it."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start the broker without waiting for it."""
        command = [*_list_java(), _STARTED, "kafka.Kafka", str(self._file)]
        self._child = Child(command, self._folder / "broker.log", _make_environment())

    def wait(self) -> Broker:
        """Return once the broker has started."""
        self._child.wait_for(r"Kafka Server started")
        return self


class Brokers(KafkaAddress):
    """Three brokers with the same topics. Each can be killed."""

    def __init__(self, folder: Path) -> None:
        ports = find_free_ports(3)
        self.each = [Broker(folder / str(number), number=number, voters=ports) for number in (1, 2, 3)]
        for broker in self.each:
            broker.wait()
        super().__init__(",".join(broker.servers for broker in self.each))

    def make_topic(self, *given: Any, **more: Any) -> str:
        """Make a topic for one test, and wait until each broker knows it."""
        topic = super().make_topic(*given, **more)
        for broker in self.each:
            broker.wait_for(topic)
        return topic

    def find_leader(self, topic: str, partition: int = 0) -> Broker:
        """Return the current leader of a partition."""
        found = self.make_admin().list_topics(topic, timeout=30).topics[topic].partitions[partition]
        return self.each[found.leader - 1]


def _format_storage(folder: Path) -> None:
    tool = ["kafka.tools.StorageTool", "format", "-t", "x" * 22, "-c", str(folder / "server.properties")]
    tool += ["--add-scram", f"SCRAM-SHA-256=[name=ada,password={PASSWORD}]"]
    done = subprocess.run([*_list_java(), *tool], check=False, capture_output=True, text=True, env=_make_environment())
    if done.returncode:
        raise RuntimeError(f"The storage of Kafka could not be formatted:\n{done.stdout}{done.stderr}")


def _list_java() -> list[str]:
    return ["java", *_QUICK, _LOG, "-cp", f"{jars.FOLDER / 'broker'}/*"]


def _make_environment() -> Mapping[str, str]:
    return {**os.environ, "KAFKA_OPTS": ""}


def make_certificates(folder: Path) -> Path:
    """Make a folder with an authority (`ca.pem`), and the certificates and keys of a broker and a client in PEM."""
    folder.mkdir()
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"]
    authority = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1"]
    for name, more in (("ca", []), ("broker", authority), ("client", authority)):
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"]
        subprocess.run([*make, *files, *more], check=True, capture_output=True, cwd=folder)
    (folder / "broker.all").write_text((folder / "broker.key").read_text() + (folder / "broker.pem").read_text())
    return folder


def make_options(password: str, mechanism: str = "PLAIN") -> dict[str, str]:
    """Return the client's settings for the address that needs a password."""
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": "ada"}
    return {**given, "sasl.password": password}


def make_tls_options(certificates: Path) -> dict[str, str]:
    """Return the client's settings for the address that needs a certificate."""
    files = {"ssl.ca.location": "ca.pem", "ssl.certificate.location": "client.pem", "ssl.key.location": "client.key"}
    return {"security.protocol": "SSL", **{name: str(certificates / file) for name, file in files.items()}}


def _require_jars() -> None:
    skip_without("Kafka", jars.FOLDER)
    jars.fetch()


@pytest.fixture(scope="session")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    _require_jars()
    broker = Broker(tmp_path_factory.mktemp("kafka")).wait()
    yield broker
    broker.kill()


@pytest.fixture
def kafka(_broker: Broker) -> Broker:
    """The broker of all tests. Each test makes other topics."""
    return _broker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers for the module."""
    _require_jars()
    brokers = Brokers(tmp_path_factory.mktemp("brokers"))
    yield brokers
    for broker in brokers.each:
        broker.kill()
