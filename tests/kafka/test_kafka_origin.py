"""`kafka` reads exact ranges of offsets, and reports what it cannot read."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from destinations.memory import Memory
from origins.batch import Batch, Json, Limits, Span
from origins.conformance import OriginConformance
from origins.errors import OriginError
from origins.kafka import client
from origins.kafka.client import Cluster, Ends, Partition
from origins.kafka.kafka import Kafka, KafkaBacklog
from origins.kafka.offsets import find_lane, spread_rows
from origins.kafka.protobuf import ProtobufCoding
from origins.kafka.rows import translate_options
from origins.lazy import LazyModule
from origins.nack import REFUSED
from origins.origin import Origin, Progress
from origins.spark_versions import find_kafka_package
from runners.command_line.doctor import examine_ends
from runners.model.spec import SparkOptions
from runners.pipeline import Pipeline
from tests.child import clean_environment, run
from tests.kafka.broker import PASSWORD, Broker, make_options, make_tls_options
from tests.kafka.registry import LATER, ORDER, Registry, describe_messages, encode_avro
from tests.kafka.test_kafka_formats import EVERY, ROW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)


@pytest.mark.spark
class TestJson(OriginConformance):
    """A topic of two partitions, with one lane each. One object does not fit, and one message has no value.

    `test_spark_reads_the_same_rows_as_the_client` has all formats.
    """

    values = ('{"id": 1, "name": "x"}', '{"id": 2}', '{"id": "no number"}', None)

    @pytest.fixture(autouse=True)
    def _topic(self, kafka: Broker) -> None:
        self.kafka, self.topic = kafka, kafka.make_topic(2)
        self.more()

    def origin(self) -> Origin:
        return Kafka(
            servers=self.kafka.servers,
            topic=self.topic,
            format="json",
            schema="id int, name string",
            lanes=2,
            metadata=("kafka_key", "kafka_offset", "kafka_time", "kafka_headers"),
        )

    def more(self) -> None:
        for partition in range(2):
            self.kafka.send(self.topic, self.values, partition=partition, key="a", headers={"from": b"shop"})


def make_origin(kafka: Broker, topic: str, **given: Any) -> Kafka:
    """Return an origin, by default of text."""
    named = {} if "pattern" in given else {"topic": topic}
    return Kafka(servers=kafka.servers, **{"format": "text", **named, **given})


def plan_batch(origin: Kafka, offset: Json = None, lane: str = "0", rows: int | None = None) -> Span | None:
    """Return the next batch after an offset."""
    offsets = {} if offset is None else {lane: offset}
    return origin.survey(NO_SPARK, Progress(offsets=offsets)).take(lane, offset, Limits(rows=rows))


TEXT = '{"type":"struct","fields":[{"name":"value","type":"string","nullable":true,"metadata":{}}]}'


def make_batch(span: Span, schema: str = TEXT) -> Batch:
    """Return a planned batch of this span."""
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    ids: dict[str, Any] = {"pipeline": "orders", "run": "run", "origin": "kafka", "lane": "0", "plan": "0-1"}
    return Batch(**ids, number=1, span=span, schema=schema, time=moment)


def read_values(origin: Kafka, span: Span) -> list[str]:
    """Return the values of a span, read in this process."""
    table = origin.fetch(NO_SPARK, [make_batch(span)]).table()
    assert table is not None
    return [str(value) for value in table["value"].to_pylist()]


def read_all(origin: Kafka, offset: Json = None, rows: int | None = None) -> Iterator[list[str]]:
    """Yield the values of each batch after an offset."""
    while (span := plan_batch(origin, offset, rows=rows)) is not None:
        yield read_values(origin, span)
        offset = span.end


def test_rows_are_shared_between_partitions_by_what_waits() -> None:
    """A partition with many waiting messages gets a large share. The shares fill the batch."""
    a, b, c = (Partition("orders", number) for number in range(3))
    assert spread_rows({a: 70, b: 20, c: 10}, 10) == {a: 7, b: 2, c: 1}
    assert sum(spread_rows({a: 1, b: 1, c: 1}, 2).values()) == 2
    assert spread_rows({a: 1, b: 2}, None) == {a: 1, b: 2}


def test_ten_thousand_partitions_can_be_planned() -> None:
    """A batch takes one message of each of the first partitions. Each partition belongs to one lane."""
    origin = Kafka(servers="localhost:1", topic="orders", format="text", lanes=4)
    ends = {Partition("orders", number): Ends(id="x", first=0, end=1) for number in range(10_000)}
    begins = {"earliest": dict.fromkeys(ends, 0)}
    backlog = KafkaBacklog(origin=origin, ends=ends, begins=begins)
    taken = [backlog.take(lane, None, Limits(rows=1_000)) for lane in origin.lane_names()]
    assert [len(span.parts) for span in taken if span is not None] == [1_000] * 4
    spans = [backlog.take(lane, None, Limits()) for lane in origin.lane_names()]
    assert len({str(part) for span in spans if span is not None for part in span.parts}) == 10_000


def test_a_limit_applies_to_all_partitions_together(kafka: Broker) -> None:
    """Every message is read once, and no batch has more rows than the limit."""
    topic = kafka.make_topic(3)
    for partition, count in enumerate((1, 5, 9)):
        kafka.send(topic, [f"{partition}-{number}" for number in range(count)], partition=partition)
    batches = list(read_all(make_origin(kafka, topic), rows=4))
    assert [len(batch) for batch in batches] == [4, 4, 4, 3]
    assert len({value for batch in batches for value in batch}) == 15


def test_an_added_partition_is_read_from_its_beginning(kafka: Broker) -> None:
    """This holds also for an origin that starts at `latest`."""
    from confluent_kafka.cimpl import NewPartitions

    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    origin = make_origin(kafka, topic, start="latest")
    opening = plan_batch(origin)
    assert opening is not None
    admin = kafka.make_admin()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    kafka.send(topic, ["b"], partition=1)
    assert list(read_all(origin, opening.end)) == [["b"]]


def test_a_topic_created_later_is_read_from_its_beginning(kafka: Broker) -> None:
    """Its name matches the pattern."""
    first = kafka.make_topic(1)
    kafka.send(first, ["a"])
    origin = make_origin(kafka, first, pattern=f"{first}.*")
    span = plan_batch(origin)
    assert span is not None
    kafka.send(kafka.make_topic(1, name=f"{first}-later"), ["b"])
    assert list(read_all(origin, span.end)) == [["b"]]


def test_several_topics_are_read_together(kafka: Broker) -> None:
    """Only the named topics are read."""
    named = [kafka.make_topic(1), kafka.make_topic(2)]
    for topic in (*named, kafka.make_topic(1)):
        kafka.send(topic, [topic])
    origin = Kafka(servers=kafka.servers, topics=named, format="text")
    assert [sorted(batch) for batch in read_all(origin)] == [sorted(named)]


def test_an_origin_that_starts_at_the_end_records_that_offset(kafka: Broker) -> None:
    """Its first batch has no rows. Later batches have all messages after it."""
    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    origin = make_origin(kafka, topic, start="latest")
    opening = plan_batch(origin)
    assert opening is not None
    assert opening.parts == ()
    kafka.send(topic, ["b"])
    assert list(read_all(origin, opening.end)) == [["b"]]


def test_reading_may_start_at_a_time(kafka: Broker) -> None:
    """Messages with an earlier time are skipped."""
    topic = kafka.make_topic(1, retention_ms="-1")
    for value, year in (("old", 2024), ("new", 2026)):
        moment = int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp() * 1000)
        kafka.send(topic, [value], timestamp=moment)
    origin = make_origin(kafka, topic, start="2025-01-01T00:00:00Z")
    assert [value for batch in read_all(origin) for value in batch] == ["new"]
    assert [value for batch in read_all(origin, "earliest") for value in batch] == ["old", "new"]


def test_messages_of_an_aborted_transaction_are_not_read(kafka: Broker) -> None:
    """Messages of an open transaction are read once it is committed."""
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
    """It is recognised by its id, since it may have as many messages as before."""
    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    origin = make_origin(kafka, topic)
    span = plan_batch(origin)
    assert span is not None
    recreate_topic(kafka, topic)
    kafka.send(topic, ["b"])
    with pytest.raises(OriginError, match=rf"{topic} was deleted and made again"):
        plan_batch(origin, span.end)
    with pytest.raises(OriginError, match="no row of the batch was read"):
        read_values(origin, span)
    assert list(read_all(make_origin(kafka, topic, on_gap="record"), span.end)) == [["b"]]


def recreate_topic(kafka: Broker, topic: str) -> None:
    """Delete a topic, and make it again."""
    admin = kafka.make_admin()
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    kafka.make_topic(1, name=topic)


def test_a_gap_stops_the_run_and_names_the_offsets(kafka: Broker) -> None:
    """With `on_gap: record` there is a notice, and reading continues after the gap."""
    topic = kafka.make_topic(1)
    kafka.send(topic, list("abcde"))
    origin = make_origin(kafka, topic)
    span = plan_batch(origin, rows=1)
    assert span is not None
    delete_before(kafka, topic, 3)
    with pytest.raises(OriginError, match=f"Offsets 1 to 2 of {topic}/0 were deleted before they were read"):
        plan_batch(origin, span.end)
    recorded = make_origin(kafka, topic, on_gap="record")
    assert len(recorded.survey(NO_SPARK, Progress(offsets={"0": span.end})).notices) == 1
    assert list(read_all(recorded, span.end)) == [["d", "e"]]


def delete_before(kafka: Broker, topic: str, offset: int) -> None:
    """Delete the messages before this offset, as retention does."""
    from confluent_kafka import TopicPartition

    admin = kafka.make_admin()
    for answer in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result(30)


def test_a_password_gives_access(kafka: Broker) -> None:
    """The topic is read like without a password."""
    topic = kafka.make_topic()
    kafka.send(topic, ["a"])
    origin = Kafka(servers=kafka.secure_servers, topic=topic, format="text", options=make_options(PASSWORD))
    assert list(read_all(origin)) == [["a"]]


def test_a_certificate_gives_access(kafka: Broker) -> None:
    """So does SCRAM instead of a plain password."""
    topic = kafka.make_topic()
    kafka.send(topic, ["a"])
    options = make_tls_options(kafka.certificates)
    assert list(read_all(Kafka(servers=kafka.tls_servers, topic=topic, format="text", options=options))) == [["a"]]
    scram = make_options(PASSWORD, "SCRAM-SHA-256")
    assert list(read_all(Kafka(servers=kafka.secure_servers, topic=topic, format="text", options=scram))) == [["a"]]


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it."""
    monkeypatch.setattr(client, "ck", LazyModule("confluent_kafka"))  # as in a process that has not used it
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(OriginError, match=r"pip install 'wherry\[kafka\]'"):
        plan_batch(Kafka(servers="localhost:1", topic="orders", format="text"))


def test_a_missing_topic_is_named(kafka: Broker) -> None:
    """The error has its name."""
    with pytest.raises(OriginError, match="There is no topic nowhere in Kafka"):
        plan_batch(make_origin(kafka, "nowhere"))


def send_at(kafka: Broker, topic: str, value: str, moment: float, **given: Any) -> None:
    """Send a message with this time, in seconds since 1970."""
    kafka.send(topic, [value], timestamp=int(moment * 1_000), **given)


def test_the_lag_is_also_in_seconds(kafka: Broker) -> None:
    """It is the age of the oldest waiting message. A time in the future gives an age of 0."""
    topic = kafka.make_topic(4, retention_ms="-1", settings=NO_CLOCK)
    origin, now = make_origin(kafka, topic, lanes=4), time.time()
    send_at(kafka, topic, "read", now - 900, partition=0)
    for partition, age in enumerate((600, -86_400, 50)):
        send_at(kafka, topic, "waits", now - age, partition=partition)
        send_at(kafka, topic, "waits", now - 10, partition=partition)
    offsets: dict[str, Json] = dict.fromkeys(origin.lane_names())
    lanes = [origin.lane_names()[find_lane(Partition(topic, number), 4)] for number in range(4)]
    offsets[lanes[0]] = {topic: {"next": {"0": 1}}}
    lags = origin.measure_lag(offsets)
    assert [lags[lane].rows for lane in lanes] == [2, 2, 2, 0]
    assert [round((lags[lane].seconds or 0) / 50) * 50 for lane in lanes] == [600, 0, 50, 0]
    assert str(lags[lanes[0]]).startswith("2 rows, up to 6")


NO_CLOCK = {"message_timestamp_after_max_ms": str(2**62), "message_timestamp_before_max_ms": str(2**62)}
"""The settings of a topic that accepts any time."""


def test_wrong_clocks_of_producers_change_no_row(kafka: Broker) -> None:
    """All messages are read once and in order. A time as offset selects the first message that is not earlier."""
    topic, day = kafka.make_topic(1, retention_ms="-1", settings=NO_CLOCK), 86_400.0
    now = time.time()
    for value, days in (("a", 0), ("b", -9), ("c", 3000), ("d", -30_000), ("e", 0)):
        send_at(kafka, topic, value, max(0.0, now + days * day))
    origin = make_origin(kafka, topic)
    assert [value for batch in read_all(origin, rows=2) for value in batch] == list("abcde")
    later = datetime.fromtimestamp(now + day, timezone.utc).isoformat()
    assert [value for batch in read_all(origin, later) for value in batch] == list("cde")


def test_an_active_consumer_group_is_named(kafka: Broker) -> None:
    """The error states what to do, and that the rows are delivered."""
    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    group = f"group-{topic}"
    member = Consumer({"bootstrap.servers": kafka.servers, "group.id": group, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    assert member.consume(1, timeout=30)
    origin = make_origin(kafka, topic, commit_group=group)
    span = plan_batch(origin)
    assert span is not None
    with pytest.raises(OriginError, match=f"did not take the offsets of the group {group}.*delivered") as raised:
        origin.committed(NO_SPARK, make_batch(span))
    assert "End the consumers that are members of the group" in raised.value.hint
    member.close()


def test_compaction_between_two_reads_loses_no_remaining_message(kafka: Broker) -> None:
    """A planned batch has fewer rows afterwards, and there is no error."""
    topic = kafka.make_topic(1, cleanup_policy="compact")
    for number in range(4):
        kafka.send(topic, [f"a{number}"], key="a")
        kafka.send(topic, [f"b{number}"], key="b")
    origin = make_origin(kafka, topic)
    span = plan_batch(origin, rows=7)
    assert span is not None
    assert len(read_values(origin, span)) == 7
    kafka.compact(topic)
    until = time.monotonic() + 60
    while len(read_values(origin, span)) > 2 and time.monotonic() < until:
        kafka.send(topic, ["c"], key="c")
    after = read_values(origin, span)
    assert len(after) <= 2
    assert {*after} <= {"a3", "b2"}
    assert next(value for batch in read_all(origin, span.end) for value in batch) == "b3"


def test_missing_rights_are_named(kafka: Broker) -> None:
    """They are listed by topic and group. A user with all rights lacks none."""
    topic = kafka.make_topic(1)
    group = f"group-{topic}"
    kafka.allow("ada", topic=topic, operations=("DESCRIBE",))
    kafka.allow("ada", group=group, operations=("DESCRIBE",))
    origin = Kafka(
        servers=kafka.secure_servers, topic=topic, format="text", options=make_options(PASSWORD), commit_group=group
    )
    missing = origin.cluster.find_missing_rights([topic], group)
    assert missing == [f"READ on the topic {topic}", f"READ on the group {group}"]
    assert make_origin(kafka, topic).cluster.find_missing_rights([topic], group) == []
    with pytest.raises(OriginError, match=f"did not take the offsets of the group {group}") as raised:
        origin.cluster.commit(group, {Partition(topic, 0): 0})
    assert "READ on the" in raised.value.hint
    kafka.allow("bob", topic=(hidden := kafka.make_topic(1)), operations=("READ",))
    with pytest.raises(OriginError, match=f"does not show the topic {hidden} to this user"):
        origin.cluster.find_topics([hidden], None)


def test_doctor_names_missing_rights(kafka: Broker, registry: Registry) -> None:
    """It also names a subject that the registry lacks."""
    topic = kafka.make_topic(1)
    kafka.allow("ada", topic=topic, operations=("DESCRIBE",))
    given = {"servers": kafka.secure_servers, "options": make_options(PASSWORD), "format": "avro", "schema": "id int"}
    origin = Kafka(topic=topic, registry={"url": registry.url}, **cast("Any", given))
    pipeline = Pipeline(name="orders", origin=origin, destinations=[Memory(name="a")])
    problems = [check.found for check in examine_ends(pipeline) if check.state == "problem"]
    assert problems == [
        f"the user lacks rights: READ on the topic {topic}",
        f"the schema registry at {registry.url} has no subject {topic}-value",
    ]
    registry.register(f"{topic}-value", ORDER)
    found = [check.found for check in examine_ends(pipeline) if check.state == "ok"]
    assert f"the schema registry at {registry.url} has the schemas of {topic}-value" in found
    registry.close()
    assert "gives no answer" in next(check.found for check in examine_ends(pipeline) if check.state == "problem")


def test_doctor_checks_whether_the_definition_has_the_jar_of_spark(kafka: Broker) -> None:
    """It may be a package or a file. Otherwise the advice has the line to write."""
    origin = make_origin(kafka, kafka.make_topic())

    def examine(spark: SparkOptions) -> list[tuple[str, str]]:
        pipeline = Pipeline(name="orders", origin=origin, destinations=[Memory(name="a")], spark=spark)
        return [(check.state, check.advice) for check in examine_ends(pipeline)]

    line = f"For large batches, write in the definition:  spark: {{packages: ['{find_kafka_package()}']}}"
    assert examine(SparkOptions()) == [("ok", ""), ("not needed", line)]
    assert examine(SparkOptions(packages=[find_kafka_package()])) == [("ok", "")]
    assert examine(SparkOptions(conf={"spark.jars": "/jars/spark-sql-kafka-0-10_2.13-4.2.0.jar"})) == [("ok", "")]


def test_a_consumer_group_gets_the_offsets(kafka: Broker) -> None:
    """They are the offsets of the next messages, as Kafka's consumers commit them."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    topic = kafka.make_topic(1)
    kafka.send(topic, ["a", "b"])
    origin = make_origin(kafka, topic, commit_group=f"group-{topic}")
    span = plan_batch(origin)
    assert span is not None
    batch = make_batch(span)
    origin.committed(NO_SPARK, batch)
    admin = kafka.make_admin()
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"group-{topic}")])
    (told,) = [answer.result(30) for answer in asked.values()]
    assert [(each.topic, each.offset) for each in told.topic_partitions] == [(topic, 2)]


def test_offsets_that_a_user_sets_are_checked() -> None:
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
    """Otherwise the rows of the intended partitions would be read twice."""
    origin = Kafka(servers="localhost:1", topic="orders", format="text", lanes=2)
    first = Partition("orders", partition)
    own = origin.lane_names()[find_lane(first, 2)]
    wrong = next(name for name in origin.lane_names() if name != own)
    asked = wrong if lane == "other" else own
    with pytest.raises(ValueError, match=problem.replace("other", wrong)):
        origin.check_offset(asked, {topic: {"next": {str(partition): 17}}})


def test_a_lane_without_partitions_records_that_it_began_at_the_end() -> None:
    """A partition that is added later is read from its beginning."""
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
        ({"format": "xml"}, "format: expected json, csv, avro, protobuf, text, raw, got 'xml'"),
        ({"format": "json"}, "schema: expected the columns"),
        ({"schema": "id int"}, "schema: expected with another format, since text has columns of its own"),
        ({"start": "soon"}, "start: expected earliest, latest or a time"),
        ({"on_gap": "skip"}, "on_gap: expected stop or record"),
        ({"metadata": ["key"]}, "metadata: expected kafka_key"),
        ({"options": {"group.id": "x"}}, "options: expected settings other than group.id"),
        ({"read": "whole"}, "read: expected new"),
        ({"topic": None, "pattern": "("}, "pattern: expected a regular expression"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], problem: str) -> None:
    """Each message has what was expected, and often the value."""
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        Kafka(**{"servers": "localhost:1", "topic": "orders", "format": "text", **given})


def test_spark_gets_the_same_settings_in_javas_terms() -> None:
    """The user and the password become one text, in which quotes are escaped."""
    said = translate_options({"sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "ada", "sasl.password": 'a"b'})
    assert said["sasl.mechanism"] == "SCRAM-SHA-256"
    assert said["sasl.jaas.config"].endswith('ScramLoginModule required username="ada" password="a\\"b";')


def read_avro(origin: Kafka, span: Span) -> list[dict[str, Any]] | None:
    """Return the rows of a span, read in this process, or None if a row is refused."""
    schema = origin.columns(NO_SPARK, origin.survey(NO_SPARK, Progress()))
    assert schema is not None
    table = origin.fetch(NO_SPARK, [make_batch(span, schema)]).table()
    return None if table is None else cast("list[dict[str, Any]]", table.to_pylist())


def test_a_batch_keeps_the_schemas_of_its_plan(kafka: Broker, registry: Registry) -> None:
    """A schema that is registered later is not used for it. Another schema with the same id fails the read."""
    topic = kafka.make_topic()
    first = registry.register(f"{topic}-value", ORDER)
    origin = make_origin(kafka, topic, format="avro", registry={"url": registry.url})
    kafka.send(topic, [encode_avro(ORDER, {"id": 1, "name": "x"}, first)])
    span = plan_batch(origin)
    kafka.send(topic, [encode_avro(ORDER, {"id": 2, "name": "x"}, first + 1)])
    early = plan_batch(origin)
    registry.register(f"{topic}-value", LATER)
    late = plan_batch(origin)
    assert span is not None
    assert early is not None
    assert late is not None
    assert [list(known.parts[-1]["schemas"]) for known in (span, early, late)] == [["1"], ["1"], ["1", "2"]]  # type: ignore[call-overload,index,arg-type]
    assert read_avro(origin, span) == [{"id": 1, "name": "x", "note": None}]
    assert read_avro(origin, early) is None
    other = Registry()
    other.register(f"{topic}-value", LATER)
    moved = make_origin(kafka, topic, format="avro", registry={"url": other.url})
    with pytest.raises(OriginError, match="has another schema with id 1 than when the batch was planned"):
        read_avro(moved, span)
    other.close()


def test_a_topic_without_a_subject_stops_the_run(kafka: Broker, registry: Registry) -> None:
    """It does so only if messages wait. The error names the subject."""
    topic = kafka.make_topic()
    origin = make_origin(kafka, topic, format="avro", schema="id int", registry={"url": registry.url})
    assert plan_batch(origin) is None
    kafka.send(topic, [b"x"])
    with pytest.raises(OriginError, match=f"has no subject {topic}-value, and messages wait in {topic}"):
        plan_batch(origin)


def test_columns_come_from_the_newest_schema(kafka: Broker, registry: Registry) -> None:
    """Before there is a schema, there are no columns."""
    topic = kafka.make_topic()
    origin = make_origin(kafka, topic, format="avro", registry={"url": registry.url})
    backlog = origin.survey(NO_SPARK, Progress())
    assert origin.infers
    assert origin.columns(NO_SPARK, backlog) is None
    registry.register(f"{topic}-value", ORDER)
    registry.register(f"{topic}-value", LATER)
    schema = origin.columns(NO_SPARK, backlog)
    assert schema is not None
    assert [each["name"] for each in json.loads(schema)["fields"]] == ["id", "name", "note"]


def test_spark_gets_the_certificates_as_text(tmp_path: Path) -> None:
    """So no executor needs the files. For a key of another format, the error states how to convert it."""
    for name, text in (("ca", "CA"), ("cert", "CERTIFICATE"), ("key", "BEGIN PRIVATE KEY"), ("old", "BEGIN RSA")):
        (tmp_path / name).write_text(text)
    given = {"ssl.ca.location": str(tmp_path / "ca"), "ssl.certificate.location": str(tmp_path / "cert")}
    said = translate_options({**given, "ssl.key.location": str(tmp_path / "key"), "ssl.key.password": "x"})
    assert said == {
        "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "CA", "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE", "ssl.keystore.key": "BEGIN PRIVATE KEY",
        "ssl.key.password": "x",
    }  # fmt: skip
    with pytest.raises(OriginError, match="openssl pkcs8"):
        translate_options({"ssl.key.location": str(tmp_path / "old")})
    with pytest.raises(OriginError, match=r"ssl\.ca\.location cannot be read"):
        translate_options({"ssl.ca.location": str(tmp_path / "missing")})
    assert translate_options({"ssl.endpoint.identification.algorithm": "none", "ssl.ca.pem": "CA"}) == {
        "ssl.endpoint.identification.algorithm": "", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "CA",
    }  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["csv", "avro"])
def test_a_refused_message_is_kept_whole(kind: str, kafka: Broker, registry: Registry, spark: SparkSession) -> None:
    """It has its key, headers, topic, partition, offset, time and bytes."""
    topic = kafka.make_topic(1, retention_ms="-1")
    kafka.send(topic, [b"\xff{"], key="k", headers={"from": b"shop"}, timestamp=1_767_225_600_000)
    registry.register(f"{topic}-value", ORDER)
    given = {"registry": {"url": registry.url}} if kind == "avro" else {}
    origin = make_origin(kafka, topic, format=kind, schema="id int", **given)
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
    """Send messages to two partitions, some of them in transactions. One transaction is aborted."""
    kafka.send(topic, ['{"id": 1}', '{"id": "x"}', None], partition=0, key="a", headers={"from": b"shop"})
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(30)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, f'{{"id": {number + 2}}}', partition=0)
        producer.flush(30)
        cast("Callable[[float], None]", end)(30)
    kafka.send(topic, ['{"id": 4}', b"\xff"], partition=0)
    kafka.send(topic, ['{"id": 5}', "\x01"], partition=1)


FORMATS: dict[str, dict[str, Any]] = {
    "json": {"schema": "id int"},
    "csv": {"schema": "id int, name string"},
    "avro": {},
    "protobuf": {"message": "shop.Order"},
}


@pytest.mark.long
@pytest.mark.spark
def test_spark_reads_the_same_rows_as_the_client(kafka: Broker, registry: Registry, tmp_path: Path) -> None:
    """This holds in each format, with a password or a certificate, and for messages of 5 MiB. Refused rows and places
    are the same.
    """
    topics = {name: kafka.make_topic(2) for name in FORMATS}
    number = registry.register(f"{topics['avro']}-value", EVERY)
    protobuf = ProtobufCoding(descriptors=describe_messages(), message="shop.Order")
    (tmp_path / "shop.desc").write_bytes(protobuf.descriptors)
    FORMATS["avro"]["registry"] = {"url": registry.url}
    FORMATS["protobuf"]["schema_file"] = str(tmp_path / "shop.desc")
    send_with_gaps(kafka, topics["json"])
    kafka.send(
        topics["csv"], ["1,x", '2,"y\r', "3,a,b", "x,y", "4,\u00e9\n", b"5,\xff", "", None], partition=0, key="k"
    )
    kafka.send(topics["avro"], [encode_avro(EVERY, ROW, number), encode_avro(EVERY, ROW, 99), b"x", None], partition=0)
    moment = datetime(1900, 1, 1, tzinfo=timezone.utc)
    order = {"id": 1, "items": [{"code": "a"}], "tags": {"k": 1}, "at": moment, "total": 2**64 - 1, "key": b"\xff"}
    kafka.send(topics["protobuf"], [protobuf.open_writer()(order), b"", b"\xff", None], partition=1)
    plain = {"servers": kafka.secure_servers, "options": make_options(PASSWORD)}
    asked = [{**plain, "topic": topics[name], "format": name, **given} for name, given in FORMATS.items()]
    large = kafka.make_topic(max_message_bytes=str(6 << 20))
    kafka.send(large, ["x" * (5 << 20), "y" * (5 << 20)])
    scram = {"servers": kafka.secure_servers, "options": make_options(PASSWORD, "SCRAM-SHA-256")}
    tls = {"servers": kafka.tls_servers, "options": make_tls_options(kafka.certificates)}
    asked += [{**each, "topic": large, "format": "text"} for each in (scram, tls)]
    done = run([sys.executable, "-m", "tests.kafka.both_ways", json.dumps(asked)], clean_environment())
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [len(here["rows"]) for here, _ in found] == [8, 8, 4, 4, 2, 2]
    assert [by_spark for _, by_spark in found] == [here for here, _ in found]
    assert [here["refused"] for here, _ in found] == [4, 6, 3, 2, 0, 0]


@pytest.mark.spark
def test_a_large_batch_without_the_jar_states_what_to_write(
    kafka: Broker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the line for the definition."""
    monkeypatch.setattr("origins.kafka.rows.FEW", 0)
    topic = kafka.make_topic(1)
    kafka.send(topic, ["a"])
    span = plan_batch(make_origin(kafka, topic))
    assert span is not None
    with pytest.raises(OriginError, match="Spark lacks the JAR") as raised:
        make_origin(kafka, topic).fetch(spark, [make_batch(span)]).frame()
    assert "spark: {packages: ['org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0']}" in str(raised.value)


def test_a_broker_that_is_replaced_during_a_request_counts_as_away() -> None:
    """Newer clients report this with a separate code. The error is transient."""
    replaced = KafkaError(KafkaError._DESTROY_BROKER)
    cluster = Cluster.of("127.0.0.1:9", {})
    with (
        pytest.raises(OriginError, match=r"Kafka at 127\.0\.0\.1:9 did not answer") as raised,
        cluster._explain("answer"),
    ):
        raise KafkaException(replaced)
    assert isinstance(raised.value.__cause__, ConnectionError)


def test_the_newest_messages_show_what_the_schema_leaves_out(kafka: Broker) -> None:
    """Only waiting messages are looked at, and only the last ten of a partition. Broken ones show nothing."""
    topic = kafka.make_topic(2)
    kafka.send(topic, [json.dumps({"id": 1, "old": 1}), *[json.dumps({"ID": 1})] * 10], partition=0)
    kafka.send(topic, ["{", "[1]", "7", None, json.dumps({"id": 1, "tip": 2})], partition=1)
    origin = Kafka(servers=kafka.servers, topic=topic, format="json", schema="id long")
    schema = json.dumps(
        {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    )
    assert origin.list_left_out(origin.survey(NO_SPARK, Progress()), schema) == ["tip"]
    span = origin.survey(NO_SPARK, Progress()).take("0", None, Limits())
    assert span is not None
    assert origin.list_left_out(origin.survey(NO_SPARK, Progress(offsets={"0": span.end})), schema) == []
    raw = Kafka(servers=kafka.servers, topic=topic, format="raw")
    assert raw.list_left_out(raw.survey(NO_SPARK, Progress()), schema) == ()
