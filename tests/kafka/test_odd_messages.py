"""Messages that Kafka stores and its Python client cannot make, from the mock broker of that client."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from origins.kafka.avro import AvroCoding
from origins.kafka.client import Cluster, Partition
from origins.kafka.rows import KafkaRows
from tests.kafka.test_exact_values import write_whole

NO_SPARK = cast("SparkSession", None)


class MockBroker:
    """A broker inside Kafka's client. It stores the bytes of a message as they are."""

    def __init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._producer.list_topics(timeout=30).brokers.values()
        self.host, self.port = broker.host, broker.port
        self._producer.produce("t", b"plain", partition=0, timestamp=1_000)
        self._producer.flush()

    def send(self, *header_keys: bytes, millis: int = 1_000) -> None:
        """Send a message with the value `v`, this time, and a header for each key."""
        headers = b"".join(write_whole(len(key)) + key + write_whole(1) + b"h" for key in header_keys)
        record = b"\0\0\0" + write_whole(-1) + write_whole(1) + b"v" + write_whole(len(header_keys)) + headers
        body = struct.pack(">hiqqqhii", 0, 0, millis, millis, -1, -1, -1, 1) + write_whole(len(record)) + record
        batch = struct.pack(">ibI", 0, 2, 0) + body  # the client does not check the sum
        batch = struct.pack(">qi", 0, len(batch)) + batch
        asked = struct.pack(">hhihhhii", 0, 7, 1, -1, -1, 1, 3_000, 1) + struct.pack(">h1sii", 1, b"t", 1, 0)
        asked += struct.pack(">i", len(batch)) + batch
        with socket.create_connection((self.host, self.port)) as to:
            to.sendall(struct.pack(">i", len(asked)) + asked)
            assert to.recv(4)

    def read(self, count: int, columns: Mapping[str, Any], name: str, **given: Any) -> pa.Table | None:
        """Return the first messages as rows of a format; None if Spark has to read them."""
        schema = T.StructType()
        for column, kind in columns.items():
            schema.add(column, kind)
        rows = KafkaRows(
            format=name,
            load=lambda: AvroCoding(schemas={}, header=True),
            cluster=Cluster.of(f"{self.host}:{self.port}", {}),
            columns=schema.json(),
            check=lambda: {Partition("t", 0): (0, count)},
            spark=NO_SPARK,
            places=False,
            **given,
        )
        return rows.table()


@pytest.fixture
def broker() -> MockBroker:
    """A broker with one plain message in the first partition of the topic `t`."""
    return MockBroker()


HEADERS = T.ArrayType(T.StructType().add("key", T.StringType()).add("value", T.BinaryType()))
TEXT = {"value": T.StringType()}
RAW = {"value": T.BinaryType(), "headers": HEADERS}
WITH_HEADERS = {**TEXT, "kafka_headers": HEADERS}


def test_headers_are_read_in_this_process(broker: MockBroker) -> None:
    """A message without headers has NULL there."""
    broker.send(b"one", "zwöi".encode())
    found = broker.read(2, WITH_HEADERS, "text", metadata=["kafka_headers"])
    assert found is not None
    assert found.to_pylist() == [
        {"value": "plain", "kafka_headers": None},
        {"value": "v", "kafka_headers": [{"key": "one", "value": b"h"}, {"key": "zwöi", "value": b"h"}]},
    ]


@pytest.mark.parametrize("keys", [(b"\xff\xfe",), (b"\xff", b"two"), (b"one", b"\xff"), (b"\xff", b"\xfe")], ids=repr)
def test_a_header_key_that_is_not_utf_8_leaves_its_batch_to_spark(broker: MockBroker, keys: tuple[bytes]) -> None:
    """The process goes on. Rows that need no headers are read here."""
    for _ in range(20):
        broker.send(*keys)
    assert broker.read(21, WITH_HEADERS, "text", metadata=["kafka_headers"]) is None
    assert broker.read(21, RAW, "raw") is None
    found = broker.read(21, TEXT, "text")
    assert found is not None
    assert found.to_pydict() == {"value": ["plain"] + ["v"] * 20}


@pytest.mark.parametrize(("millis", "micros"), [(-5, -5_000), (-(2**60), -(2**63)), (2**60, 2**63 - 1)])
def test_a_time_that_no_column_has_becomes_the_nearest(broker: MockBroker, millis: int, micros: int) -> None:
    """The other rows of its batch keep their times."""
    broker.send(millis=millis)
    found = broker.read(2, {**TEXT, "kafka_time": T.TimestampType()}, "text", metadata=["kafka_time"])
    assert found is not None
    assert found["kafka_time"].cast(pa.int64()).to_pylist() == [1_000_000, micros]
