"""`kafka` reads exact ranges of offsets, and says what it cannot read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Producer

from origins.batch import Batch, Json, Limits, Span
from origins.conformance import OriginConformance
from origins.errors import OriginError
from origins.kafka import Kafka, KafkaBacklog, find_lane, spread_rows, translate_options
from origins.kafka_client import Ends, Partition
from origins.nack import REFUSED
from origins.origin import Origin, Progress
from tests.child import clean_environment, run
from tests.kafka.broker import PASSWORD, Broker, make_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)


class KafkaConformance(OriginConformance):
    """A topic of two partitions, each in a lane of its own."""

    format: str
    schema: str | None = None
    values: tuple[str | None, ...]

    @pytest.fixture(autouse=True)
    def _topic(self, kafka: Broker) -> None:
        self.kafka, self.topic = kafka, kafka.make_topic(2)
        self.more()

    def origin(self) -> Origin:
        return Kafka(
            servers=self.kafka.servers,
            topic=self.topic,
            format=self.format,
            schema=self.schema,
            lanes=2,
            metadata=() if self.format == "raw" else ("kafka_key", "kafka_offset", "kafka_time", "kafka_headers"),
        )

    def more(self) -> None:
        for partition in range(2):
            self.kafka.send(self.topic, self.values, partition=partition, key="a", headers={"from": b"shop"})


@pytest.mark.spark
class TestJson(KafkaConformance):
    """Objects, one of which does not fit, and a message without a value."""

    format = "json"
    schema = "id int, name string"
    values = ('{"id": 1, "name": "x"}', '{"id": 2}', '{"id": "no number"}', None)


@pytest.mark.variant
@pytest.mark.spark
class TestPlainJson(KafkaConformance):
    """Objects that are read in this process."""

    format = "json"
    schema = "id int, name string"
    values = ('{"id": 1, "name": "x"}', '{"id": 2}', '{"id": 3, "name": null}')


@pytest.mark.variant
@pytest.mark.spark
class TestText(KafkaConformance):
    """Lines of text."""

    format = "text"
    values = ("a", "b\nc", "", None)


@pytest.mark.variant
@pytest.mark.spark
class TestRaw(KafkaConformance):
    """Whole messages."""

    format = "raw"
    values = ("a", "b", None)


def make_origin(kafka: Broker, topic: str, **given: Any) -> Kafka:
    """An origin of text."""
    named = {} if "pattern" in given else {"topic": topic}
    return Kafka(servers=kafka.servers, **{"format": "text", **named, **given})


def plan(origin: Kafka, offset: Json = None, lane: str = "0", rows: int | None = None) -> Span | None:
    """The next batch behind an offset."""
    offsets = {} if offset is None else {lane: offset}
    return origin.survey(NO_SPARK, Progress(offsets=offsets)).take(lane, offset, Limits(rows=rows))


TEXT = '{"type":"struct","fields":[{"name":"value","type":"string","nullable":true,"metadata":{}}]}'


def make_batch(span: Span, schema: str = TEXT) -> Batch:
    """A planned batch of this span."""
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    ids: dict[str, Any] = {"pipeline": "orders", "run": "run", "origin": "kafka", "lane": "0", "plan": "0-1"}
    return Batch(**ids, number=1, span=span, schema=schema, time=moment)


def read_values(origin: Kafka, span: Span) -> list[str]:
    """The values of a span, read in this process."""
    table = origin.fetch(NO_SPARK, [make_batch(span)]).table()
    assert table is not None
    return [str(value) for value in table["value"].to_pylist()]


def read_all(origin: Kafka, offset: Json = None, rows: int | None = None) -> Iterator[list[str]]:
    """The values of each batch behind an offset."""
    while (span := plan(origin, offset, rows=rows)) is not None:
        yield read_values(origin, span)
        offset = span.end


def test_rows_are_spread_over_partitions_by_what_waits() -> None:
    """A partition with much to read gets a large share, and the shares fill the batch."""
    a, b, c = (Partition("orders", number) for number in range(3))
    assert spread_rows({a: 70, b: 20, c: 10}, 10) == {a: 7, b: 2, c: 1}
    assert sum(spread_rows({a: 1, b: 1, c: 1}, 2).values()) == 2
    assert spread_rows({a: 1, b: 2}, None) == {a: 1, b: 2}


def test_ten_thousand_partitions_are_planned_at_once() -> None:
    """A batch takes one message of each of the first partitions, and each partition has one lane."""
    origin = Kafka(servers="localhost:1", topic="orders", format="text", lanes=4)
    ends = {Partition("orders", number): Ends(id="x", first=0, end=1) for number in range(10_000)}
    begins = {"earliest": dict.fromkeys(ends, 0)}
    backlog = KafkaBacklog(origin=origin, ends=ends, begins=begins)
    taken = [backlog.take(lane, None, Limits(rows=1_000)) for lane in origin.lane_names()]
    assert [len(span.parts) for span in taken if span is not None] == [1_000] * 4
    spans = [backlog.take(lane, None, Limits()) for lane in origin.lane_names()]
    assert len({str(part) for span in spans if span is not None for part in span.parts}) == 10_000


def test_a_limit_holds_over_all_partitions(kafka: Broker) -> None:
    """Every message is read once, and no batch has more rows than it may."""
    topic = kafka.make_topic(3)
    for partition, count in enumerate((1, 5, 9)):
        kafka.send(topic, [f"{partition}-{number}" for number in range(count)], partition=partition)
    batches = list(read_all(make_origin(kafka, topic), rows=4))
    assert [len(batch) for batch in batches] == [4, 4, 4, 3]
    assert len({value for batch in batches for value in batch}) == 15


def test_a_partition_that_is_added_is_read_from_its_beginning(kafka: Broker) -> None:
    """Also by an origin that began at the end."""
    from confluent_kafka.cimpl import NewPartitions

    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    origin = make_origin(kafka, topic, start="latest")
    opening = plan(origin)
    assert opening is not None
    admin = kafka.make_admin()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    kafka.send(topic, ["b"], partition=1)
    assert list(read_all(origin, opening.end)) == [["b"]]


def test_a_topic_that_comes_later_is_read_from_its_beginning(kafka: Broker) -> None:
    """It has a name that the pattern fits."""
    first = kafka.make_topic(1)
    kafka.send(first, ["a"])
    origin = make_origin(kafka, first, pattern=f"{first}.*")
    span = plan(origin)
    assert span is not None
    kafka.send(kafka.make_topic(1, name=f"{first}-later"), ["b"])
    assert list(read_all(origin, span.end)) == [["b"]]


def test_an_origin_that_begins_at_the_end_remembers_where_that_was(kafka: Broker) -> None:
    """Its first batch has no rows, and later ones have all that came after it."""
    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    origin = make_origin(kafka, topic, start="latest")
    opening = plan(origin)
    assert opening is not None
    assert opening.parts == ()
    kafka.send(topic, ["b"])
    assert list(read_all(origin, opening.end)) == [["b"]]


def test_a_time_is_where_reading_begins(kafka: Broker) -> None:
    """Messages with an earlier time are left out, whatever the offset."""
    topic = kafka.make_topic(1, retention_ms="-1")
    for value, year in (("old", 2024), ("new", 2026)):
        moment = int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() * 1000)
        kafka.send(topic, [value], timestamp=moment)
    origin = make_origin(kafka, topic, start="2025-01-01T00:00:00Z")
    assert [value for batch in read_all(origin) for value in batch] == ["new"]
    assert [value for batch in read_all(origin, "earliest") for value in batch] == ["old", "new"]


def test_messages_of_an_aborted_transaction_are_not_read(kafka: Broker) -> None:
    """Nor are those of an open one, which come once it is committed."""
    topic = kafka.make_topic(1)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        cast("Callable[[float], None]", end)(30)
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush(30)
    origin = make_origin(kafka, topic)
    assert [value for batch in read_all(origin) for value in batch] == ["committed"]
    producer.commit_transaction(30)
    assert [value for batch in read_all(origin) for value in batch] == ["committed", "open"]


def test_a_recreated_topic_is_recognised(kafka: Broker) -> None:
    """By its id: it may have just as many messages as before."""
    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    origin = make_origin(kafka, topic)
    span = plan(origin)
    assert span is not None
    recreate(kafka, topic)
    kafka.send(topic, ["b"])
    with pytest.raises(OriginError, match=rf"{topic} was deleted and made again"):
        plan(origin, span.end)
    with pytest.raises(OriginError, match="no row of the batch was read"):
        read_values(origin, span)
    assert list(read_all(make_origin(kafka, topic, on_gap="record"), span.end)) == [["b"]]


def recreate(kafka: Broker, topic: str) -> None:
    """Delete a topic, and make it again."""
    admin = kafka.make_admin()
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    kafka.make_topic(1, name=topic)


def test_a_gap_stops_the_run_and_names_the_offsets(kafka: Broker) -> None:
    """With `on_gap: record` the backlog says so, and goes on behind the gap."""
    topic = kafka.make_topic(1)
    kafka.send(topic, list("abcde"))
    origin = make_origin(kafka, topic)
    span = plan(origin, rows=1)
    assert span is not None
    delete_before(kafka, topic, 3)
    with pytest.raises(OriginError, match=f"Offsets 1 to 2 of {topic}/0 were deleted before they were read"):
        plan(origin, span.end)
    recorded = make_origin(kafka, topic, on_gap="record")
    assert len(recorded.survey(NO_SPARK, Progress(offsets={"0": span.end})).notices) == 1
    assert list(read_all(recorded, span.end)) == [["d", "e"]]


def delete_before(kafka: Broker, topic: str, offset: int) -> None:
    """Delete the messages before this offset, as retention does."""
    from confluent_kafka import TopicPartition

    admin = kafka.make_admin()
    for answer in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result(30)


def test_a_password_opens_the_broker(kafka: Broker) -> None:
    """A topic is read as through the address that asks for none."""
    topic = kafka.make_topic()
    kafka.send(topic, ["a"])
    origin = Kafka(servers=kafka.secure_servers, topic=topic, format="text", options=make_options(PASSWORD))
    assert list(read_all(origin)) == [["a"]]


def test_a_client_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(OriginError, match=r"pip install 'wherry\[kafka\]'"):
        plan(Kafka(servers="localhost:1", topic="orders", format="text"))


def test_a_topic_that_is_missing_is_named(kafka: Broker) -> None:
    """With what to do."""
    with pytest.raises(OriginError, match="There is no topic nowhere in Kafka"):
        plan(make_origin(kafka, "nowhere"))


def test_the_lag_is_in_rows(kafka: Broker) -> None:
    """For each lane."""
    topic = kafka.make_topic(2)
    kafka.send(topic, ["a", "b"], partition=0)
    kafka.send(topic, ["c"], partition=1)
    origin = make_origin(kafka, topic, lanes=2)
    waiting = origin.survey(NO_SPARK, Progress())
    assert sorted(waiting.behind(lane, None) for lane in origin.lane_names()) == ["1 row", "2 rows"]


def test_a_consumer_group_is_told_the_offsets(kafka: Broker) -> None:
    """Those of the next message, as Kafka's own consumers commit them."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    topic = kafka.make_topic(1)
    kafka.send(topic, ["a", "b"])
    origin = make_origin(kafka, topic, commit_group=f"group-{topic}")
    span = plan(origin)
    assert span is not None
    batch = make_batch(span)
    origin.committed(NO_SPARK, batch)
    admin = kafka.make_admin()
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"group-{topic}")])
    (told,) = [answer.result(30) for answer in asked.values()]
    assert [(each.topic, each.offset) for each in told.topic_partitions] == [(topic, 2)]


def test_offsets_that_a_person_sets_are_checked() -> None:
    """They are named positions, times, or the next offset of each partition."""
    origin = Kafka(servers="localhost:1", topic="orders", format="text")
    for right in ("earliest", "latest", "2026-01-31T06:00:00Z", {"orders": {"next": {"0": 17}}}):
        origin.check_offset("0", right)
    for wrong in ("soon", 17, {"orders": 17}, {"orders": {"next": {"0": -1}}}, {}):
        with pytest.raises(ValueError, match="expected earliest, latest"):
            origin.check_offset("0", wrong)


@pytest.mark.parametrize(
    ("lane", "topic", "partition", "problem"),
    [("0", "ordres", 0, "expected partitions of orders"), ("other", "orders", 0, "expected partitions of lane other")],
)
def test_an_offset_of_another_topic_or_lane_is_refused(lane: str, topic: str, partition: int, problem: str) -> None:
    """Else the rows of the partitions that were meant would come twice."""
    origin = Kafka(servers="localhost:1", topic="orders", format="text", lanes=2)
    first = Partition("orders", partition)
    own = origin.lane_names()[find_lane(first, 2)]
    wrong = next(name for name in origin.lane_names() if name != own)
    asked = wrong if lane == "other" else own
    with pytest.raises(ValueError, match=problem.replace("other", wrong)):
        origin.check_offset(asked, {topic: {"next": {str(partition): 17}}})


def test_a_lane_without_partitions_remembers_that_it_began_at_the_end() -> None:
    """A partition that comes later is read from its beginning."""
    origin = Kafka(servers="localhost:1", topic="orders", format="text", start="latest")
    empty = KafkaBacklog(origin=origin, ends={}, begins={"earliest": {}, "latest": {}})
    begun = empty.take("0", None, Limits())
    assert begun is not None
    assert empty.take("0", begun.end, Limits()) is None
    added, end = Partition("orders", 0), Ends(id="x", first=0, end=7)
    later = KafkaBacklog(origin=origin, ends={added: end}, begins={"earliest": {added: 0}, "latest": {added: 7}})
    span = later.take("0", begun.end, Limits())
    assert span is not None
    assert span.label == "orders/0 offsets 0 to 6"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"topics": ["a"]}, "expected one of topic, topics and pattern, got topic and topics"),
        ({"format": "avro"}, "format: expected json, text, raw, got 'avro'"),
        ({"format": "json"}, "schema: expected the columns"),
        ({"schema": "id int"}, "schema: expected with format: json only"),
        ({"start": "soon"}, "start: expected earliest, latest or a time"),
        ({"on_gap": "skip"}, "on_gap: expected stop or record"),
        ({"metadata": ["key"]}, "metadata: expected kafka_key"),
        ({"options": {"group.id": "x"}}, "options: expected settings other than group.id"),
        ({"read": "whole"}, "read: expected new"),
        ({"topic": None, "pattern": "("}, "pattern: expected a regular expression"),
    ],
)
def test_options_that_do_not_fit_are_errors(given: dict[str, Any], problem: str) -> None:
    """Each says what was expected, and what came."""
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        Kafka(**{"servers": "localhost:1", "topic": "orders", "format": "text", **given})


def test_spark_gets_the_same_settings_in_the_words_of_java() -> None:
    """A user and a password become one text, and each quote in them is kept."""
    said = translate_options(
        {
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "ada",
            "sasl.password": 'a"b',
            "ssl.ca.location": "ca.pem",
        }
    )
    assert said["sasl.mechanism"] == "SCRAM-SHA-256"
    assert said["sasl.jaas.config"].endswith('ScramLoginModule required username="ada" password="a\\"b";')
    assert said["ssl.truststore.location"] == "ca.pem"


@pytest.mark.spark
def test_a_refused_message_is_kept_whole(kafka: Broker, spark: SparkSession) -> None:
    """With its key, headers, topic, partition, offset, time and bytes."""
    topic = kafka.make_topic(1, retention_ms="-1")
    kafka.send(topic, [b"\xff{"], key="k", headers={"from": b"shop"}, timestamp=1_767_225_600_000)
    origin = make_origin(kafka, topic, format="json", schema="id int")
    backlog = origin.survey(spark, Progress())
    span, schema = backlog.take("0", None, Limits()), origin.columns(spark, backlog)
    assert span is not None
    assert schema is not None
    batch = make_batch(span, schema)
    (row,) = origin.fetch(spark, [batch], places=True).frame().collect()
    assert row[REFUSED].message.startswith(f"{topic}/0 offset 0: ")
    assert json.loads(row[REFUSED].raw) == {
        "topic": topic, "partition": 0, "offset": 0, "time": "2026-01-01T00:00:00.000Z", "key": "k",
        "value_base64": "/3s=", "headers": [{"key": "from", "value": "shop"}],
    }  # fmt: skip


def send_with_gaps(kafka: Broker, topic: str) -> None:
    """Messages in two partitions, some of which are in transactions, and one of these is aborted."""
    kafka.send(topic, ['{"id": 1}', '{"id": "x"}', None], partition=0, key="a", headers={"from": b"shop"})
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(30)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, f'{{"id": {number + 2}}}', partition=0)
        producer.flush(30)
        cast("Callable[[float], None]", end)(30)
    kafka.send(topic, ['{"id": 4}', b"\xff"], partition=0)
    kafka.send(topic, ['{"id": 5}'], partition=1)


@pytest.mark.spark
def test_spark_reads_the_rows_that_the_client_reads(kafka: Broker) -> None:
    """With the same password, and in the same places, with the same refusals and the same columns."""
    topic = kafka.make_topic(2)
    send_with_gaps(kafka, topic)
    done = run([sys.executable, "-m", "tests.kafka.both_ways", kafka.secure_servers, topic], clean_environment())
    assert done.returncode == 0, done.stderr
    here, by_spark = json.loads(done.stdout.splitlines()[-1])
    assert len(here["rows"]) == 7
    assert by_spark == here


@pytest.mark.spark
def test_a_large_batch_without_the_jar_says_what_to_write(
    kafka: Broker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line stands in the error."""
    monkeypatch.setattr("origins.kafka.FEW", 0)
    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    span = plan(make_origin(kafka, topic))
    assert span is not None
    with pytest.raises(OriginError, match="Spark lacks the JAR") as raised:
        make_origin(kafka, topic).fetch(spark, [make_batch(span)]).frame()
    assert "spark: {packages: ['org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0']}" in str(raised.value)
