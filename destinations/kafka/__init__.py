"""The destination that sends rows as messages to Kafka."""

from destinations.kafka.kafka import Kafka

__all__ = ["Kafka"]
