"""Compare Kafka pipelines: small batches with Structured Streaming, and a large backlog with Spark's batch read.
Measure a quiet topic too."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from origins.spark_versions import find_kafka_package
from tests.benchmarks import peers
from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.idle import watch
from tests.benchmarks.landing import SCHEMA, make_order
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS, A_TURN, WARM, ROWS = 8, 20, 5, 1_000
BACKLOG = 2_000_000
PLAIN, WHERRY, SINK = "plain Spark", "Wherry", "Structured Streaming"


def measure_small(place: Path, turns: int) -> Taken:
    """Measure batches of 1,000 messages, spread over all partitions."""
    with _start(place) as (broker, spark):
        ways: dict[str, Way] = {
            WHERRY: lambda where, turn: _carry(broker, where),
            SINK: lambda where, turn: _stream(broker, spark, where),
        }
        return measure_in_turns(ways, place, turns)


def measure_backlog(place: Path, turns: int) -> Taken:
    """Measure one batch with the whole backlog: Spark's read and write, and a whole run of Wherry."""
    with _start(place) as (broker, spark):
        topic = broker.make_topic(PARTITIONS)
        send(broker, topic, BACKLOG)

        def by_hand(where: Path, _: int) -> Iterator[float]:
            peers.make_table(spark, where / "table", SCHEMA)
            began = time.perf_counter()
            read = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.servers)
            rows = read.option("subscribe", topic).load()
            _parse(rows).write.format("delta").mode("append").save(str(where / "table"))
            yield time.perf_counter() - began
            assert spark.read.format("delta").load(str(where / "table")).count() == BACKLOG
            shutil.rmtree(where / "table")

        def by_wherry(where: Path, turn: int) -> Iterator[float]:
            own = where / str(turn)
            own.mkdir()
            file = _define(own, broker, topic, BACKLOG)
            began = time.perf_counter()
            list(carry_batches(file, 1))
            yield time.perf_counter() - began
            shutil.rmtree(own)

        return measure_in_turns({PLAIN: by_hand, WHERRY: by_wherry}, place, turns)


def measure_quiet(place: Path, turns: int) -> Taken:
    """Return the share of one core that Python and the JVM use together, and how many Spark jobs start."""
    with _start(place) as (broker, spark):
        topic = broker.make_topic(PARTITIONS)
        send(broker, topic, ROWS)
        return watch(spark, _define(place, broker, topic, ROWS), turns)


@contextmanager
def _start(place: Path) -> Iterator[tuple[Broker, SparkSession]]:
    """Start a broker, and a Spark session that can read from it."""
    broker = Broker(place / "broker").wait()
    try:
        yield broker, open_session(packages=[find_kafka_package()])
    finally:
        broker.kill()


def send(broker: Broker, topic: str, rows: int) -> None:
    """Send orders to one partition after the other."""
    for partition in range(PARTITIONS):
        broker.send(topic, map(make_order, range(partition, rows, PARTITIONS)), partition=partition)


def _send_turn(broker: Broker, place: Path) -> tuple[str, int]:
    """Send the messages of this turn to the topic of this way. Return the topic and the number of batches."""
    note, batches = place / "topic", WARM if "warm" in place.parts else A_TURN
    if not note.exists():
        note.write_text(broker.make_topic(PARTITIONS))
    send(broker, note.read_text(), batches * ROWS)
    return note.read_text(), batches


def _carry(broker: Broker, place: Path) -> Iterator[float]:
    topic, batches = _send_turn(broker, place)
    yield from carry_batches(_define(place, broker, topic, ROWS), batches)


def _stream(broker: Broker, spark: SparkSession, place: Path) -> Iterator[float]:
    topic, _ = _send_turn(broker, place)
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    read = read.option("subscribe", topic).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS)
    yield from peers.stream_into_table(spark, place, _parse(read.load()))


def _parse(rows: DataFrame) -> DataFrame:
    return rows.selectExpr(f"from_json(cast(value as string), '{SCHEMA}') as order").selectExpr("order.*")


def _define(place: Path, broker: Broker, topic: str, rows: int) -> Path:
    """Write the definition that delivers this topic with this many rows a batch."""
    origin = f'kafka: {{servers: "{broker.servers}", topic: {topic}, format: json, schema: "{SCHEMA}"}}'
    return define(
        place,
        f"origin: {{{origin}}}\ndestinations: [delta: {{path: tables/orders}}]\nrun: {{batch: {{rows: {rows}}}}}\n",
    )


CASES = (
    Case(
        name="kafka",
        says="8 partitions, 1,000 messages a batch, into Delta",
        measure=measure_small,
        turns=4,
        bars=(Bar(to=SINK, most=0.30),),
    ),
    Case(
        name="kafka_backlog",
        says="2,000,000 messages of 8 partitions in one batch, into Delta",
        measure=measure_backlog,
        turns=5,
        bars=(Bar(to=PLAIN, most=1.05),),
    ),
    Case(
        name="kafka_quiet",
        says="a run follows a quiet topic of 8 partitions",
        measure=measure_quiet,
        bars=(Bar(of="share of a core", most=0.02), Bar(of="Spark jobs", most=0)),
        unit="",
    ),
)
