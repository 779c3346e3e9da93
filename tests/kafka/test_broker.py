"""The broker of the tests stores messages."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.kafka.broker import Broker


def read_all(kafka: Broker, topic: str, count: int) -> list[bytes | None]:
    """Return the first values of a topic."""
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "test", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def test_a_consumer_gets_the_messages_that_were_sent(kafka: Broker) -> None:
    """Values are read in the order in which they were sent."""
    topic = kafka.make_topic()
    kafka.send(topic, ["a", "b", None])
    assert read_all(kafka, topic, 3) == [b"a", b"b", None]
