"""A pipeline from Kafka to Delta loses no message, delivers each once, and shows no secret."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.cimpl import NewPartitions
from deltalake import DeltaTable

from destinations.delta.delta import Delta
from destinations.dlq import Dlq
from origins.errors import WherryError
from origins.kafka.client import Cluster, Partition
from origins.kafka.kafka import Kafka
from runners.command_line.commands import wherry
from runners.model.events import BatchPlanned, Event, Listener
from runners.model.spec import BatchOptions, RunOptions
from runners.pipeline import Pipeline
from runners.running.backfill import Backfill
from tests.child import clean_environment, run
from tests.kafka.broker import Broker, make_options
from tests.kafka.test_kafka_origin import delete_before, send_with_gaps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def make_pipeline(folder: Path, origin: Kafka) -> Pipeline:
    """Return a pipeline from the topic into `orders`, three rows in a batch."""
    return Pipeline(
        name="orders",
        origin=origin,
        destinations=[Delta(path=str(folder / "orders"))],
        state=str(folder / "state"),
        dlq=Dlq(window=0),
        run_options=RunOptions(batch=BatchOptions(rows=3)),
    )


def read_ids(folder: Path) -> list[int]:
    """Return the ids in the table, sorted."""
    return sorted(DeltaTable(folder / "orders").to_pyarrow_table()["id"].to_pylist())


def test_each_message_is_in_the_table_once(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """This holds over two runs. A message that cannot be parsed is in the DLQ."""
    topic = kafka.make_topic(2)
    origin = Kafka(servers=kafka.servers, topic=topic, format="json", schema="id int", commit_group=f"group-{topic}")
    pipeline = make_pipeline(tmp_path, origin)
    for number in range(7):
        kafka.send(topic, [f'{{"id": {number}}}'], partition=number % 2)
    first = pipeline.run()
    kafka.send(topic, ['{"id": 7}', "poison", '{"id": 8}'], partition=1, key="k")
    second = pipeline.run()
    assert (first.read, second.read, second.nacked) == (7, 3, 1)
    assert first.balanced
    assert second.balanced
    assert read_ids(tmp_path) == list(range(9))
    (letter,) = pipeline.refused.list()
    assert json.loads(letter["original"]["raw"])["value"] == "poison"
    assert pipeline.run().batches == 0


def test_counts_balance_if_offsets_have_no_message(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """Markers of transactions and aborted messages are no rows, and the audit misses none."""
    topic = kafka.make_topic(2)
    send_with_gaps(kafka, topic)
    pipeline = make_pipeline(tmp_path, Kafka(servers=kafka.servers, topic=topic, format="json", schema="id int"))
    report, audit = pipeline.run(), pipeline.audit()
    assert (report.read, report.delivered, report.nacked, report.balanced) == (8, {"orders": 4}, 4, True)
    assert (audit.read, audit.nacked, audit.problems) == (8, 4, [])
    assert read_ids(tmp_path) == [1, 2, 4, 5]


def read_group(kafka: Broker, group: str) -> list[int]:
    """Return the offsets that were committed for a group."""
    admin = kafka.make_admin()
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (told,) = [answer.result(30) for answer in asked.values()]
    return [each.offset for each in told.topic_partitions]


def test_a_backfill_does_not_move_a_consumer_group_back(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """The group keeps the offsets of the newest batch."""
    topic = kafka.make_topic(1)
    group = f"group-{topic}"
    origin = Kafka(servers=kafka.servers, topic=topic, format="json", schema="id int", commit_group=group)
    pipeline = make_pipeline(tmp_path, origin)
    kafka.send(topic, [f'{{"id": {number}}}' for number in range(6)])
    assert pipeline.run().batches == 2
    assert read_group(kafka, group) == [6]
    report = pipeline.backfill(Backfill(end=1, again=True, reason="a test"))
    assert (report.read, report.balanced) == (3, True)
    assert read_group(kafka, group) == [6]
    assert read_ids(tmp_path) == [0, 0, 1, 1, 2, 2, 3, 4, 5]


def call_once(kind: type, happens: Callable[[], None]) -> Listener:
    """Return a listener that calls a function at the first event of this kind."""
    happened: list[Event] = []

    def listen(event: Event) -> None:
        if isinstance(event, kind) and not happened:
            happened.append(event)
            happens()

    return listen


def test_changes_of_a_topic_during_a_run_are_seen_by_the_next_run(
    kafka: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    """An added partition is read from its beginning. If retention deletes messages of a planned batch, the run fails,
    and the next run continues.
    """
    topic = kafka.make_topic(1)
    kafka.send(topic, [f'{{"id": {number}}}' for number in range(5)])
    origin = Kafka(servers=kafka.servers, topic=topic, format="json", schema="id int", on_gap="record")
    pipeline = make_pipeline(tmp_path, origin)

    def change() -> None:
        admin = kafka.make_admin()
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        kafka.send(topic, ['{"id": 9}'], partition=1)
        delete_before(kafka, topic, 1)

    with pytest.raises(WherryError, match=f"Offsets 0 to 0 of {topic}/0 were deleted after the batch was planned"):
        pipeline.run(listeners=[call_once(BatchPlanned, change)])
    report = pipeline.run()
    assert report.balanced
    assert read_ids(tmp_path) == [1, 2, 3, 4, 9]


def test_a_broker_that_is_away_ends_the_run_and_loses_nothing(
    kafka: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run continues at the last offset."""
    topic = kafka.make_topic(1)
    kafka.send(topic, [f'{{"id": {number}}}' for number in range(4)])
    pipeline = make_pipeline(tmp_path, Kafka(servers=kafka.servers, topic=topic, format="json", schema="id int"))
    pipeline.run()
    kafka.send(topic, ['{"id": 4}'])
    kafka.kill()
    monkeypatch.setattr("origins.kafka.client.PATIENCE", 2.0)
    try:
        with pytest.raises(WherryError, match="Kafka at"):
            pipeline.run()
    finally:
        monkeypatch.undo()
        kafka.start_again()
    pipeline.run()
    assert read_ids(tmp_path) == list(range(5))


def test_a_password_is_neither_stored_nor_shown(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """It is not in the state, and not in the error of a broker that refuses it."""
    topic = kafka.make_topic(1)
    origin = Kafka(servers=kafka.secure_servers, topic=topic, format="text", options=make_options("wrong-horse"))
    with pytest.raises(WherryError, match="Authentication failed") as raised:
        make_pipeline(tmp_path, origin).run()
    assert "wrong-horse" not in f"{raised.value} {origin!r}"
    stored = [file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file()]
    assert stored
    assert not any(b"wrong-horse" in content for content in stored)


DEFINITION = """
name: orders
origin:
  kafka: {{servers: "{servers}", topic: {topic}, format: json, schema: "id int"}}
destinations:
  - delta: {{path: orders}}
dlq: {{window: 0}}
"""


def test_the_commands_support_kafka(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """`preview` reads messages, `status` has the lag, `offsets` takes a position's name, and `doctor` checks the
    broker.
    """
    topic = kafka.make_topic(1)
    kafka.send(topic, ['{"id": 1}', '{"id": 2}'])
    file = tmp_path / "orders.yaml"
    file.write_text(DEFINITION.format(servers=kafka.servers, topic=topic))

    def call(*words: str) -> Any:
        found = CliRunner().invoke(wherry, list(words), catch_exceptions=False)
        return json.loads(found.stdout)

    (previewed,) = call("preview", str(file), "--json")["batches"]
    assert (previewed["label"], previewed["read"]) == (f"{topic}/0 offsets 0 to 1", 2)
    assert call("run", str(file), "--json")["read"] == 2
    kafka.send(topic, ['{"id": 3}'])
    lane = call("status", str(file), "--json")["lanes"]["0"]
    assert lane["behind"].startswith("1 row, up to ")
    assert lane["lag"]["rows"] == 1
    assert 0 <= lane["lag"]["seconds"] < 60
    moved = ["--lane", "0", "--offset", "earliest", "--reason", "again", "--yes"]
    CliRunner().invoke(wherry, ["offsets", str(file), *moved], catch_exceptions=False)
    assert call("run", str(file), "--json")["read"] == 3
    assert read_ids(tmp_path) == [1, 1, 2, 2, 3]
    found = [check["found"] for check in call("doctor", str(file), "--json")["checks"] if check["name"] == "Kafka"]
    assert found[0] == f"{topic} in Kafka at {kafka.servers}; 1 partition"


def test_offsets_are_set_in_every_way(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """They are set by offset, by time, to an end, or back by a batch. A backfill takes the batches of a time."""
    topic = kafka.make_topic(1, retention_ms="-1")
    for number, year in enumerate((2024, 2025, 2026)):
        moment = datetime(year, 1, 1, tzinfo=timezone.utc)
        kafka.send(topic, [f'{{"id": {number}}}'], timestamp=int(moment.timestamp() * 1000))
    file = tmp_path / "orders.yaml"
    file.write_text(DEFINITION.format(servers=kafka.servers, topic=topic))

    def call(*words: str) -> Any:
        found = CliRunner().invoke(wherry, [words[0], *words[1:]], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found

    def carry(offset: Any) -> int:
        """Return how many rows a run reads after this offset."""
        given = ["--lane", "0", "--offset", json.dumps(offset), "--reason", "again", "--yes"]
        call("offsets", str(file), *given)
        return int(json.loads(call("run", str(file), "--json").stdout)["read"])

    def tell_time() -> str:
        return datetime.now(timezone.utc).isoformat()

    assert json.loads(call("run", str(file), "--json").stdout)["read"] == 3
    begun = tell_time()
    assert carry({topic: {"next": {"0": 2}}}) == 1
    bounds = ["--from", begun, "--to", tell_time(), "--reason", "again", "--again", "--yes"]
    assert carry("2025-01-01T00:00:00Z") == 2
    assert carry("latest") == 0
    assert carry("earliest") == 3
    shown = json.loads(call("offsets", str(file), "--json").stdout)["lanes"]["0"]["offset"]
    assert shown[topic]["next"] == {"0": 3}
    assert json.loads(call("backfill", str(file), *bounds, "--json").stdout)["read"] == 1
    assert Counter(read_ids(tmp_path)) == {0: 2, 1: 3, 2: 5}
    call("offsets", str(file), "--back", "1", "--reason", "again", "--yes")
    assert json.loads(call("run", str(file), "--json").stdout)["read"] == 3
    before = tell_time()
    kafka.send(topic, ['{"id": 3}'])
    assert json.loads(call("run", str(file), "--json").stdout)["read"] == 1
    call("offsets", str(file), "--to", before, "--reason", "again", "--yes")
    assert json.loads(call("run", str(file), "--json").stdout)["read"] == 1


def kill_at(point: str, file: Path) -> None:
    """Run the definition in another process, which is killed when it reaches the point."""
    command = [sys.executable, "-m", "tests.scenarios.killed_at", str(file), "run", point, "1"]
    killed = run(command, clean_environment())
    assert killed.returncode == -9, killed.stderr


@pytest.mark.long
@pytest.mark.parametrize("point", ["after-plan", "after-prepared"])
def test_a_killed_run_is_finished_by_the_next(point: str, kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """No message is lost, and none is in the table or the DLQ twice."""
    topic = kafka.make_topic(2)
    for number in range(6):
        kafka.send(topic, [f'{{"id": {number}}}', "poison"], partition=number % 2)
    file = tmp_path / "orders.yaml"
    file.write_text(DEFINITION.format(servers=kafka.servers, topic=topic) + "run: {batch: {rows: 4}}\n")
    kill_at(point, file)
    pipeline = Pipeline.load(file)
    report, audit = pipeline.run(), pipeline.audit()
    assert audit.problems == []
    assert (audit.read, audit.nacked) == (12, 6)
    assert report.balanced


@pytest.mark.long
def test_compaction_before_the_next_run_loses_no_remaining_message(
    kafka: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    """Stored rows do not change. Rows that are read again have the newest message of each key. All counts balance."""
    topic = kafka.make_topic(1, cleanup_policy="compact")
    for number in range(6):
        kafka.send(topic, [f'{{"id": {number}}}'], key="a")
        kafka.send(topic, ["poison"], key="b")
    file = tmp_path / "orders.yaml"
    file.write_text(DEFINITION.format(servers=kafka.servers, topic=topic))
    kill_at("after-prepared", file)
    kafka.compact(topic)
    cluster, known = Cluster.of(kafka.servers, {}), {Partition(topic, 0): (0, 12)}
    until = time.monotonic() + 60
    while len(cluster.read(known, 1 << 20) or []) > 2 and time.monotonic() < until:
        kafka.send(topic, ['{"id": 99}'], key="c")
    assert len(cluster.read(known, 1 << 20) or []) <= 2
    pipeline = Pipeline.load(file)
    report, audit = pipeline.run(), pipeline.audit()
    assert report.balanced
    assert audit.problems == []
