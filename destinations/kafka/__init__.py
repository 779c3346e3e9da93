"""Rows into the messages of Kafka."""

from destinations.kafka.kafka import Kafka

__all__ = ["Kafka"]
