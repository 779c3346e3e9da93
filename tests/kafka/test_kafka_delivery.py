"""A pipeline to Kafka loses no row, delivers each row once in transactions, and shows no secret."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from click.testing import CliRunner

from destinations.dlq import Dlq
from destinations.kafka.kafka import Kafka
from origins.crash_points import watch_points
from origins.errors import WherryError
from origins.kafka.kafka import Kafka as KafkaOrigin
from origins.memory import Memory
from origins.secret import SecretText
from runners.command_line.commands import wherry
from runners.command_line.doctor import examine_ends
from runners.definitions.definition import definition_of
from runners.model.events import BatchRests, Event
from runners.model.spec import BatchOptions, RetryOptions, RunOptions
from runners.operations.validate import explain
from runners.pipeline import Pipeline
from runners.running.compatibility import OperatorOverrides
from tests.child import clean_environment, run
from tests.crash_injector import CrashInjector
from tests.destinations.dlq.test_dead_letters import check_read_back
from tests.kafka.broker import PASSWORD, Broker, make_options
from tests.kafka.test_kafka_destination import make_destination, read_headers, read_messages, read_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFINITION = """
name: orders
origin:
  kafka: {{servers: "{servers}", topic: {source}, format: json, schema: "id int, text string"}}
destinations:
  - kafka: {{servers: "{servers}", topic: {target}, key: id, exactly_once: {once}, transactional_id: {target}}}
dlq: {{window: 0}}
run: {{batch: {{rows: 4}}}}
"""


def write_definition(folder: Path, kafka: Broker, source: str, target: str, *, once: bool) -> Path:
    """Write a definition that copies one topic to another, four rows in a batch."""
    file = folder / "orders.yaml"
    file.write_text(DEFINITION.format(servers=kafka.servers, source=source, target=target, once=str(once).lower()))
    return file


@pytest.mark.spark
@pytest.mark.parametrize("once", [False, True])
def test_each_row_is_in_the_topic_once(once: bool, kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """This holds over two runs, and the rows keep their order. Rows that the topic cannot take are in the DLQ."""
    source, target = kafka.make_topic(1), kafka.make_topic(1, max_message_bytes="5000")
    pipeline = Pipeline.load(write_definition(tmp_path, kafka, source, target, once=once))
    kafka.send(source, [f'{{"id": {number}}}' for number in range(7)])
    first = pipeline.run()
    kafka.send(source, ['{"id": 7}', "poison", json.dumps({"id": 8, "text": "x" * 5000}), '{"id": 9}'])
    second = pipeline.run()
    assert (first.read, second.read, second.nacked) == (7, 4, 2)
    assert first.balanced
    assert second.balanced
    assert [json.loads(value)["id"] for value in read_values(kafka, target)] == [*range(8), 9]
    assert [letter["code"] for letter in pipeline.refused.list()] == ["PARSE", "TOO_LARGE"]
    assert pipeline.run().batches == 0


@pytest.mark.spark
def test_only_the_row_that_does_not_fit_the_schema_is_refused(
    kafka: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    """A number may be too large for the schema, a field may be missing, or a message may be too large for the topic."""
    source, target = kafka.make_topic(1), kafka.make_topic(1, max_message_bytes="5000")
    values = [{"id": 1, "name": "a"}, {"id": 1 << 40, "name": "b"}, {"id": 3}, {"id": 4, "name": "x" * 5000}]
    kafka.send(source, [json.dumps(value) for value in values])
    (tmp_path / "item.avsc").write_text(
        '{"type": "record", "name": "Item", "fields": '
        '[{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}'
    )
    file = tmp_path / "orders.yaml"
    file.write_text(
        "name: orders\n"
        f'origin: {{kafka: {{servers: "{kafka.servers}", topic: {source}, format: json, '
        'schema: "id bigint, name string"}}\n'
        f'destinations: [{{kafka: {{servers: "{kafka.servers}", topic: {target}, key: id, format: avro, '
        "schema_file: item.avsc}}]\n"
        "dlq: {window: 0}\n"
    )
    pipeline = Pipeline.load(file)
    report = pipeline.run()
    assert (report.delivered, report.nacked, report.balanced) == ({target: 1}, 3, True)
    assert [letter["code"] for letter in pipeline.refused.list()] == ["ENCODE", "ENCODE", "TOO_LARGE"]
    (message,) = read_messages(kafka, target)
    assert message.value() == b"\x02\x02a"


@pytest.mark.spark
def test_a_struct_is_the_value_and_null_deletes_its_key(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """Times in the year 9999 arrive at any depth of the struct."""
    source, target = kafka.make_topic(1), kafka.make_topic(1)
    last = "9999-12-31T23:59:59Z"
    rows = [{"id": 1, "inner": None}, {"id": 2, "inner": {"name": "a", "until": [last], "at": last}}]
    kafka.send(source, [json.dumps(row) for row in rows])
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    schema = {
        "type": "record",
        "name": "Item",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "until", "type": {"type": "array", "items": moment}},
            {"name": "at", "type": moment},
        ],
    }
    (tmp_path / "item.avsc").write_text(json.dumps(schema))
    file = tmp_path / "orders.yaml"
    file.write_text(
        "name: orders\n"
        f'origin: {{kafka: {{servers: "{kafka.servers}", topic: {source}, format: json, '
        'schema: "id bigint, inner struct<name: string, until: array<timestamp>, at: timestamp>"}}\n'
        f'destinations: [{{kafka: {{servers: "{kafka.servers}", topic: {target}, key: id, value: inner, format: avro, '
        "schema_file: item.avsc}}]\n"
    )
    report = Pipeline.load(file).run()
    assert (report.delivered, report.nacked) == ({target: 2}, 0)
    first, second = read_messages(kafka, target)
    assert (first.key(), first.value()) == (b"1", None)
    found = fastavro.schemaless_reader(io.BytesIO(second.value() or b""), fastavro.parse_schema(schema), None)
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    assert found == {"name": "a", "until": [end], "at": end}


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("once", [False, True])
def test_a_killed_run_is_finished_by_the_next(once: bool, kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """`in-write` is between the rows and the label. Without transactions, rows are sent again with the same headers."""
    source, target = kafka.make_topic(1), kafka.make_topic(2)
    kafka.send(source, [f'{{"id": {number}}}' for number in range(10)])
    file = write_definition(tmp_path, kafka, source, target, once=once)
    killed = run([sys.executable, "-m", "tests.kafka.killed", str(file), "in-write", target], clean_environment())
    assert killed.returncode == -9, killed.stderr
    assert len(read_messages(kafka, target, "read_uncommitted")) == 4
    assert len(read_messages(kafka, target)) == (0 if once else 4)
    pipeline = Pipeline.load(file)
    report = pipeline.run()
    assert report.balanced is True
    found = read_messages(kafka, target)
    names = Counter((read_headers(each)["wherry.batch"], read_headers(each)["wherry.row"]) for each in found)
    assert len(names) == 10
    assert sorted(Counter(names.values()).items()) == ([(1, 10)] if once else [(1, 6), (2, 4)])
    assert {json.loads(message.value() or b"")["id"] for message in found} == set(range(10))


@pytest.mark.spark
def test_a_run_waits_for_a_broker_that_is_away(
    kafka: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run retries the batch as long as `run.retry` allows, and each row is delivered once."""
    monkeypatch.setattr("origins.kafka.client.PATIENCE", 2.0)
    topic, rested = kafka.make_topic(), threading.Event()

    def kill(point: str, of: str, rows: Any) -> Any:
        if point == "before-write" and not rested.is_set():
            kafka.kill()
        return rows

    def hear(event: Event) -> None:
        if isinstance(event, BatchRests):
            monkeypatch.undo()
            rested.set()

    pipeline = Pipeline(
        name="orders",
        origin=Memory(items=[{"id": number} for number in range(3)], schema="id int"),
        destinations=[make_destination(kafka, topic, exactly_once=True)],
        state=str(tmp_path / "state"),
        run_options=RunOptions(retry=RetryOptions(wait="10ms")),
    )
    with watch_points(kill), ThreadPoolExecutor(1) as pool:
        report = pool.submit(pipeline.run, listeners=[hear])
        assert rested.wait(120)
        kafka.start_again()
        assert report.result().balanced is True
    assert [json.loads(value)["id"] for value in read_values(kafka, topic)] == [0, 1, 2]


@pytest.mark.spark
def test_a_password_is_neither_stored_nor_shown(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """It is not in the state, and not in the error of a broker that refuses it."""
    topic, password = kafka.make_topic(), SecretText("wrong-horse", "${secret:KAFKA}")
    kafka.send(topic, ["a"])
    destination = Kafka(servers=kafka.secure_servers, topic=topic, exactly_once=True, options=make_options(password))
    pipeline = Pipeline(
        name="orders",
        origin=KafkaOrigin(servers=kafka.servers, topic=topic, format="text"),
        destinations=[destination],
        state=str(tmp_path / "state"),
    )
    with pytest.raises(WherryError, match="Authentication failed") as raised:
        pipeline.run()
    assert "wrong-horse" not in f"{raised.value} {destination!r}"
    stored = [file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file()]
    assert stored
    assert not any(b"wrong-horse" in content for content in stored)


def test_validate_shows_the_guarantee(tmp_path: Path) -> None:
    """Each setting of `exactly_once` has a sentence."""
    for once, said in ((False, "at least once"), (True, "effectively once for readers of committed messages")):
        pipeline = Pipeline(
            name="orders",
            origin=Memory(items=[], schema="id int"),
            destinations=[Kafka(servers="localhost:1", topic="orders", exactly_once=once)],
            state=str(tmp_path),
            dlq=Dlq(window=0),
            run_options=RunOptions(batch=BatchOptions(rows=3)),
        )
        explained = explain(definition_of(pipeline))
        assert explained.destinations[0]["name"] == "orders"
        assert str(explained.destinations[0]["guarantee"]).startswith(said)
        assert explained.way == ("straight" if once else "prepared")


LETTERS = """
name: orders
origin:
  kafka: {{servers: "{servers}", topic: {source}, format: json, schema: "id int, text string"}}
destinations:
  - delta: {{path: orders}}
dlq:
  window: 0
  {dlq}
"""


def write_letters(folder: Path, kafka: Broker, source: str, dlq: str) -> Path:
    """Write a definition from a topic into a table, with this DLQ."""
    file = folder / "orders.yaml"
    file.write_text(LETTERS.format(servers=kafka.servers, source=source, dlq=dlq))
    return file


@pytest.mark.spark
def test_refused_rows_go_to_kafka_with_their_cause(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """The value of a message is the row of the DLQ. The headers have the batch and the cause."""
    source, refused = kafka.make_topic(), kafka.make_topic()
    kafka.send(source, ['{"id": 1}', "poison"])
    dlq = f'kafka: {{servers: "{kafka.servers}", topic: {refused}, key: id}}'
    report = Pipeline.load(write_letters(tmp_path, kafka, source, dlq)).run()
    assert (report.nacked, report.balanced) == (1, True)
    (message,) = read_messages(kafka, refused)
    letter, headers = json.loads(message.value() or b""), read_headers(message)
    assert (message.key() or b"").decode() == letter["id"]
    assert json.loads(json.loads(letter["row"])["raw"])["value"] == "poison"
    assert headers["wherry.batch"].endswith("/dlq")
    assert (headers["wherry.code"], headers["wherry.stage"]) == ("PARSE", "origin")
    assert headers["wherry.message"] == letter["message"]


@pytest.mark.spark
def test_refused_rows_wait_in_kafka_until_a_merge(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """The first run dies after the write to the topic, so the next one sends the rows again, and the topic has other
    messages too. Each row is merged once.
    """
    source, refused = kafka.make_topic(), kafka.make_topic(2)
    kafka.send(source, ['{"id": 1}', "poison", '{"id": "x"}'])
    kafka.send(refused, ["of others"])
    dlq = f'on_failure: fallback\n  fallback:\n    kafka: {{servers: "{kafka.servers}", topic: {refused}}}'
    pipeline = Pipeline.load(write_letters(tmp_path, kafka, source, dlq))
    blocked = tmp_path / ".wherry/orders/dlq"
    blocked.parent.mkdir(parents=True)
    blocked.touch()
    with watch_points(CrashInjector("before-settle", end=None)):
        assert pipeline.run(check=False).status == "failed"
    assert pipeline.run().fallback == 2
    assert len(read_messages(kafka, refused)) == 5
    blocked.unlink()
    assert (pipeline.audit().balanced, pipeline.refused.merge_fallback().rows) == (True, 2)
    assert [letter["code"] for letter in pipeline.refused.list()] == ["PARSE", "PARSE"]
    assert (pipeline.audit().balanced, pipeline.refused.merge_fallback().rows) == (True, 0)


@pytest.mark.spark
def test_refused_rows_are_read_back_unchanged_from_a_topic(kafka: Broker, spark: SparkSession) -> None:
    """Messages of other producers are ignored."""
    topic = kafka.make_topic(2)
    kafka.send(topic, ["of others"])
    check_read_back(spark, Kafka(servers=kafka.servers, topic=topic, key="id"))


@pytest.mark.spark
def test_a_copy_of_each_refused_row_goes_to_kafka(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """The table has the rows too. The copy of a row that is too large for the topic lacks the values."""
    source, refused = kafka.make_topic(), kafka.make_topic(max_message_bytes="5000")
    kafka.send(source, ['{"id": 1}', "poison", "x" * 5000])
    options = f'servers: "{kafka.servers}", topic: {refused}, error_headers: connect'
    pipeline = Pipeline.load(write_letters(tmp_path, kafka, source, f"copy: {{kafka: {{{options}}}}}"))
    assert pipeline.run().nacked == 2
    kept = pipeline.refused.list()
    small, large = read_messages(kafka, refused)
    headers = read_headers(small)
    expected = {
        "topic": source, "partition": "0", "offset": "1", "connector.name": "orders", "task.id": "0",
        "stage": "origin", "exception.class.name": "PARSE", "exception.message": kept[0]["message"],
    }  # fmt: skip
    assert {name: value for name, value in headers.items() if not name.startswith("wherry.")} == {
        f"__connect.errors.{name}": value for name, value in expected.items()
    }
    assert [json.loads(each.value() or b"")["id"] for each in (small, large)] == [letter["id"] for letter in kept]
    assert json.loads(json.loads(small.value() or b"")["row"]) == kept[0]["row"]
    assert json.loads(large.value() or b"")["row"] is None


@pytest.mark.spark
@pytest.mark.long
def test_a_copy_sent_before_a_crash_is_not_sent_again(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """The process dies between the copy and the table. The next run finds the copy, and writes only the table."""
    source, refused = kafka.make_topic(), kafka.make_topic()
    kafka.send(source, ['{"id": 1}', "poison"])
    options = f'servers: "{kafka.servers}", topic: {refused}, exactly_once: true, transactional_id: {refused}'
    file = write_letters(tmp_path, kafka, source, f"copy: {{kafka: {{{options}}}}}")
    words = [sys.executable, "-m", "tests.kafka.killed", str(file), "between-writes", "dlq"]
    killed = run(words, clean_environment())
    assert killed.returncode == -9, killed.stderr
    assert len(read_messages(kafka, refused)) == 1
    pipeline = Pipeline.load(file)
    assert pipeline.run().balanced is True
    assert len(pipeline.refused.list()) == 1
    names = [
        (read_headers(each)["wherry.batch"], read_headers(each)["wherry.row"]) for each in read_messages(kafka, refused)
    ]
    assert len(names) == 1, names


def crash_at(file: Path, point: str) -> None:
    """End the run at this point, as if its process had died."""

    def watch(reached: str, of: str, rows: Any) -> Any:
        if reached == point:
            raise RuntimeError("crash")
        return rows

    with watch_points(watch):
        assert Pipeline.load(file).run(check=False).status == "failed"


@pytest.mark.spark
def test_a_copy_without_its_labels_is_not_guessed(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """The topic of labels is recreated after the crash. The next run fails until a user states what is delivered."""
    source, refused, labels = kafka.make_topic(), kafka.make_topic(), kafka.make_topic(cleanup_policy="compact")
    kafka.send(source, ['{"id": 1}', "poison"])
    options = (
        f'servers: "{kafka.servers}", topic: {refused}, exactly_once: true, transactional_id: {refused}, '
        f"label_topic: {labels}"
    )
    file = write_letters(tmp_path, kafka, source, f"copy: {{kafka: {{{options}}}}}")
    crash_at(file, "between-writes")
    admin = kafka.make_admin()
    admin.delete_topics([labels], operation_timeout=30)[labels].result(30)
    with pytest.raises(WherryError, match="is missing or was replaced"):
        Pipeline.load(file).run()
    assert Pipeline.load(file).run(ruling=OperatorOverrides(assume="delivered", reason="seen there")).balanced is True
    assert len(read_messages(kafka, refused)) == len(Pipeline.load(file).refused.list()) == 1


def test_doctor_checks_the_brokers_and_the_transactions(kafka: Broker, tmp_path: Path) -> None:
    """It names a missing topic."""
    source, target = kafka.make_topic(), kafka.make_topic()
    for topic, state in ((target, "ok"), ("nowhere", "problem")):
        file = write_definition(tmp_path, kafka, source, topic, once=True)
        shown = CliRunner().invoke(wherry, ["doctor", str(file), "--json"], catch_exceptions=False)
        checks = [check for check in json.loads(shown.stdout)["checks"] if check["name"] == "Kafka"]
        assert (checks[-1]["state"], topic in checks[-1]["found"]) == (state, True)


def test_doctor_names_the_rights_that_a_destination_lacks(kafka: Broker) -> None:
    """These are rights on the topic and on the topic of labels."""
    target, labels = kafka.make_topic(), kafka.make_topic(cleanup_policy="compact")
    kafka.allow("ada", topic=target, operations=("DESCRIBE", "DESCRIBE_CONFIGS"))
    kafka.allow("ada", topic=labels, operations=("WRITE", "DESCRIBE_CONFIGS"))

    def examine() -> list[tuple[str, str]]:
        destination = Kafka(
            servers=kafka.secure_servers, topic=target, exactly_once=True, transactional_id=target,
            label_topic=labels, options=make_options(PASSWORD),
        )  # fmt: skip
        pipeline = Pipeline(name="orders", origin=Memory(items=[], schema="id int"), destinations=[destination])
        return [(check.state, check.found) for check in examine_ends(pipeline)]

    assert examine() == [("problem", f"the user lacks rights: WRITE on the topic {target}, READ on the topic {labels}")]
    kafka.allow("ada", topic=target, operations=("WRITE",))
    kafka.allow("ada", topic=labels, operations=("READ",))
    assert [state for state, _ in examine()] == ["ok"]


def test_doctor_checks_the_schema_of_a_destination(kafka: Broker, tmp_path: Path) -> None:
    """It states what is wrong with the file, and what to correct."""
    file, source, target = tmp_path / "item.avsc", kafka.make_topic(), kafka.make_topic()
    definition = tmp_path / "orders.yaml"
    definition.write_text(
        f'name: orders\norigin: {{kafka: {{servers: "{kafka.servers}", topic: {source}, format: text}}}}\n'
        f'destinations: [{{kafka: {{servers: "{kafka.servers}", topic: {target}, format: avro, '
        "schema_file: item.avsc}}]\n"
    )
    for content, state in (('{"type": "record", "name": "item", "fields": []}', "ok"), ("{", "problem")):
        file.write_text(content)
        shown = CliRunner().invoke(wherry, ["doctor", str(definition), "--json"], catch_exceptions=False)
        (check,) = [each for each in json.loads(shown.stdout)["checks"] if target in each["found"]]
        assert check["state"] == state
    assert "expected an Avro schema" in check["found"]
    assert check["advice"] == "Correct what schema_file names."
