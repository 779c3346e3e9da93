"""With three real brokers, failures that pass lose no message and repeat none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from destinations.conformance import make_label
from destinations.kafka.kafka import Kafka as ToKafka
from destinations.kafka.kafka import OpenKafka
from origins.batch_rows import FrameRows
from origins.kafka import client as kafka_client
from origins.kafka.client import Cluster, Partition
from origins.kafka.kafka import Kafka
from tests.kafka.broker import Brokers
from tests.kafka.test_kafka_destination import read_values as read_sent
from tests.kafka.test_kafka_origin import plan_batch, read_all, read_values

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


class InterruptedConsumer:
    """A consumer that calls a function once, directly after its first messages."""

    def __init__(self, consumer: Consumer, happens: Callable[[], None]) -> None:
        self._consumer, self._happens = consumer, happens
        self.happened = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def consume(self, count: int, timeout: float) -> list[Message]:
        """Return up to ten messages of the consumer."""
        came = self._consumer.consume(10, timeout=timeout)
        if any(message.error() is None for message in came) and not self.happened:
            self.happened = True
            self._happens()
        return came


def read_interrupted(
    brokers: Brokers, topic: str, end: int, happens: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Return the values of the first partition. A function is called in the middle of the read."""
    make, made = kafka_client._make_consumer, list[InterruptedConsumer]()

    def make_interrupted(cluster: Cluster) -> Any:
        made.append(InterruptedConsumer(make(cluster), happens))
        return made[-1]

    monkeypatch.setattr(kafka_client, "_make_consumer", make_interrupted)
    cluster = Cluster.of(brokers.servers, {"fetch.message.max.bytes": 20_000, "client.id": topic})
    messages = cluster.read({Partition(topic, 0): (0, end)}, 1 << 30)
    assert [each.happened for each in made] == [True]
    assert messages is not None
    return [str((message.value() or b"")[:4].decode()) for message in messages]


def send_many(brokers: Brokers, topic: str) -> list[str]:
    """Send more messages than one answer of a broker has, and return their names in order."""
    names = [f"{number:04}" for number in range(200)]
    for name in names:
        brokers.send(topic, [name + "x" * 10_000], partition=0)
    return names


def test_a_broker_that_restarts_during_a_batch_loses_nothing(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the only broker with the partition. The read waits for it, and has each message once and in order."""
    topic = brokers.make_topic(1)
    names = send_many(brokers, topic)
    leader = brokers.find_leader(topic)

    def kill_and_start() -> None:
        leader.kill()
        leader.start_again()

    assert read_interrupted(brokers, topic, len(names), kill_and_start, monkeypatch) == names


def test_a_leader_that_moves_loses_nothing(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader changes in the middle of a read, and between the plan and the read."""
    topic = brokers.make_topic(1, replicas=3, min_insync_replicas="2")
    names = send_many(brokers, topic)
    origin = Kafka(servers=brokers.servers, topic=topic, format="text")
    span = plan_batch(origin)
    assert span is not None
    leader = brokers.find_leader(topic)
    try:
        assert read_interrupted(brokers, topic, len(names), leader.kill, monkeypatch) == names
        assert brokers.find_leader(topic) is not leader
        monkeypatch.undo()
        assert [value[:4] for value in read_values(origin, span)] == names
        brokers.send(topic, ["more"])
        assert list(read_all(origin, span.end)) == [["more"]]
    finally:
        leader.start_again()


@pytest.mark.spark
def test_a_leader_that_moves_during_a_write_loses_no_row(
    brokers: Brokers, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader dies in the middle of a batch. Each row is in the topic once, and in order."""
    topic = brokers.make_topic(1, replicas=3, min_insync_replicas="2")
    leader, make = brokers.find_leader(topic), OpenKafka._make_messages

    def make_and_kill(*given: Any) -> Iterator[Any]:
        for number, message in zip(count(1), make(*given), strict=False):
            if number == 700:
                leader.kill()
            yield message

    monkeypatch.setattr(OpenKafka, "_make_messages", make_and_kill)
    rows = spark.range(0, 2_000, 1, 1)
    destination = ToKafka(servers=brokers.servers, topic=topic, exactly_once=True, label_topic=f"{topic}-labels").open()
    destination.ensure_place(spark, rows.schema)
    try:
        assert destination.write(spark, FrameRows(rows), [make_label()]).rows == 2_000
        assert brokers.find_leader(topic) is not leader
        assert read_sent(brokers, topic) == [f'{{"id":{number}}}' for number in range(2_000)]
    finally:
        leader.start_again()
