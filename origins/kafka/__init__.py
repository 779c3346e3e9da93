"""Origins that read messages of Kafka."""

from origins.kafka.kafka import Kafka

__all__ = ["Kafka"]
