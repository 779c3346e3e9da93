"""`kafka` sends rows as messages: at least once, or once in a transaction with the batch's label."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from destinations.conformance import (
    RememberingConformance,
    Row,
    make_label,
    open_for,
    start_paused_write,
)
from destinations.destination import Demands, DestinationError, Identity, Misfit, Unsure
from destinations.kafka.kafka import Kafka, OpenKafka
from destinations.kafka.producer import ProducerFenced
from destinations.labels import Label
from origins.batch_rows import FrameRows
from runners.model.error_kinds import classify
from tests.kafka.broker import PASSWORD, Broker, KafkaAddress, make_options, make_tls_options
from tests.kafka.registry import ORDER, Registry, describe_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


def read_messages(kafka: KafkaAddress, topic: str, isolation: str = "read_committed") -> list[Message]:
    """Return all messages of a topic, partition by partition, as a consumer reads them."""
    consumer = Consumer({
        "bootstrap.servers": kafka.servers, "group.id": "test", "isolation.level": isolation,
        "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    try:
        numbers = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        found: dict[int, list[Message]] = {number: [] for number in numbers}
        left = set(numbers)
        while left:
            for message in consumer.consume(1_000, timeout=0.2):
                error, number = message.error(), message.partition() or 0
                if error is None:
                    found[number].append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(number)
        return [message for number in numbers for message in found[number]]
    finally:
        consumer.close()


def read_values(kafka: KafkaAddress, topic: str) -> list[str]:
    """Return the values of a topic as text."""
    return [(message.value() or b"").decode() for message in read_messages(kafka, topic)]


def read_headers(message: Message) -> Mapping[str, str]:
    """Return the headers of a message as text."""
    found: Any = message.headers() or []
    return {name: value.decode() for name, value in found}


@dataclass(frozen=True, kw_only=True)
class Watched(Kafka):
    """A destination that stores its schema when it is opened, so that its rows can be parsed."""

    def open(self) -> OpenKafka:
        return OpenWatched(self)


class OpenWatched(OpenKafka):
    """The open destination. It stores the schema in the destination."""

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        self.destination.__dict__["schema"] = schema
        return super().ensure_place(spark, schema)


@pytest.mark.spark
@pytest.mark.connect
class TestExactlyOnce(RememberingConformance):
    """A topic of two partitions. Each batch is a transaction, and its messages are read once they are committed."""

    @pytest.fixture
    def destination(self, kafka: Broker) -> Kafka:
        self.kafka = kafka
        topic = kafka.make_topic(2)
        return Watched(servers=kafka.servers, topic=topic, exactly_once=True, transactional_id=topic)

    def content(self, spark: SparkSession, destination: Kafka) -> Sequence[Row]:
        assert destination.topic is not None
        from pyspark.sql import functions as F

        schema = destination.__dict__["schema"]
        values = [(value,) for value in read_values(self.kafka, destination.topic)]
        parsed = spark.createDataFrame(values, "value string").select(F.from_json("value", schema, _TIMES).alias("row"))
        return [row.asDict(recursive=True) for row in parsed.select("row.*").collect()]


def make_destination(kafka: Broker, to: str | None, **given: Any) -> Kafka:
    """Return a destination for this topic, with the topic's name as transactional id."""
    return Kafka(**{"servers": kafka.servers, "topic": to, "transactional_id": to or "test", **given})


def send_rows(spark: SparkSession, destination: Kafka, rows: DataFrame, label: Label | None = None) -> None:
    """Open the destination, and write these rows as a batch."""
    opened, _ = open_for(spark, destination, rows)
    opened.write(spark, FrameRows(rows), [label or make_label()])


@pytest.mark.spark
def test_without_transactions_rows_of_a_failed_write_are_sent_again(kafka: Broker, spark: SparkSession) -> None:
    """The failed write may leave rows. They have the same headers as those that are sent again."""
    topic, failed = kafka.make_topic(2), make_label()
    opened, _ = open_for(spark, make_destination(kafka, topic), spark.range(1))
    torn = spark.range(0, 20, 1, 4).selectExpr("cast(if(id < 19, id, raise_error('torn')) as bigint) as id")
    with pytest.raises(Exception, match="torn"):
        opened.write(spark, FrameRows(torn), [failed])
    assert {read_headers(message)["wherry.batch"] for message in read_messages(kafka, topic)} <= {failed.key}
    opened.write(spark, FrameRows(spark.range(20)), [failed])
    numbers = {read_headers(message)["wherry.row"] for message in read_messages(kafka, topic)}
    assert numbers == {str(number) for number in range(1, 21)}


@pytest.mark.spark
def test_columns_become_key_value_headers_topic_and_partition(kafka: Broker, spark: SparkSession) -> None:
    """The headers also have the batch, its lane, and the number of the row."""
    topic, label = kafka.make_topic(3), make_label(number=7, lane="a")
    rows = spark.sql(f"""select 17L as id, 'x' as name, '{topic}' as goes_to, 2 as shard, 'shop' as source,
        map('a', '1', 'b', null) as more, array(named_struct('key', 'c', 'value', X'00ff')) as raw""")
    destination = make_destination(
        kafka, None, topic_column="goes_to", key="id", partition="shard", headers=["source", "more", "raw"]
    )
    send_rows(spark, destination, rows, label)
    (message,) = read_messages(kafka, topic)
    assert (message.key(), message.partition()) == (b"17", 2)
    assert json.loads(message.value() or b"") == {"id": 17, "name": "x"}
    assert message.headers() == [
        ("wherry.batch", label.key.encode()), ("wherry.lane", b"a/7"), ("wherry.row", b"1"),
        ("source", b"shop"), ("a", b"1"), ("b", None), ("c", b"\x00\xff"),
    ]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(
    ("given", "sql", "value"),
    [
        ({"format": "raw", "value": "bytes"}, "select X'00ff' as bytes", b"\x00\xff"),
        ({"format": "text"}, "select cast(null as string) as value", None),
        ({"value": "inner"}, "select named_struct('a', 1) as inner, 2 as id", b'{"a":1}'),
        (
            {"format": "csv"},
            """select 1 as id, ' a,"b"' as text, null as n, '' as e, timestamp'2026-01-02 03:04:05Z' as t""",
            b'1," a,""b""",,"",2026-01-02T03:04:05.000000Z',
        ),
        ({"format": "csv", "format_options": {"sep": ";", "nullValue": "-"}}, "select 1 as a, null as b", b"1;-"),
    ],
)
def test_a_format_defines_the_value(
    given: Mapping[str, Any], sql: str, value: bytes | None, kafka: Broker, spark: SparkSession
) -> None:
    """NULL becomes a message without a value, which a compacted topic takes as a deletion."""
    topic = kafka.make_topic()
    send_rows(spark, make_destination(kafka, topic, **given), spark.sql(sql))
    (message,) = read_messages(kafka, topic)
    assert message.value() == value


SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "note", "type": "string", "default": "none"},
    ],
}
SALES = """select 7L as id, timestamp'2026-01-02 03:04:05.678Z' as at, 1.25BD as price, map('a', 'b') as tags
    union all select 8L, timestamp'1900-01-01 00:00:00Z', null, map()"""


@pytest.mark.spark
def test_values_in_avro_follow_the_newest_schema(kafka: Broker, registry: Registry, spark: SparkSession) -> None:
    """Another program can read them with the schema. A field with a default needs no column."""
    topic = kafka.make_topic()
    registry.register(f"{topic}-value", ORDER)
    number = registry.register(f"{topic}-value", SALE)
    destination = make_destination(kafka, topic, format="avro", registry={"url": registry.url})
    send_rows(spark, destination, spark.sql(SALES))
    before = b"\0" + number.to_bytes(4, "big")
    values = [message.value() or b"" for message in read_messages(kafka, topic)]
    assert [value[: len(before)] for value in values] == [before, before]
    schema = fastavro.parse_schema(dict(SALE))
    read = [fastavro.schemaless_reader(io.BytesIO(value[len(before) :]), schema, None) for value in values]
    utc = timezone.utc
    moments = datetime(2026, 1, 2, 3, 4, 5, 678_000, utc), datetime(1900, 1, 1, tzinfo=utc)
    assert sorted(read, key=lambda each: each["id"]) == [  # type: ignore[index,call-overload]
        {"id": 7, "at": moments[0], "price": Decimal("1.25"), "tags": {"a": "b"}, "note": "none"},
        {"id": 8, "at": moments[1], "price": None, "tags": {}, "note": "none"},
    ]


@pytest.mark.spark
def test_values_in_protobuf_are_messages(kafka: Broker, spark: SparkSession, tmp_path: Path) -> None:
    """Another program can read them with the same descriptors. Columns that are not in the message give the key."""
    topic = kafka.make_topic()
    (tmp_path / "shop.desc").write_bytes(describe_messages())
    given = {"format": "protobuf", "schema_file": str(tmp_path / "shop.desc"), "message": "shop.Order"}
    rows = spark.sql("select 7 as id, 'SENT' as state, array(named_struct('code', 'a')) as items, map('k', 1) as tags")
    send_rows(spark, make_destination(kafka, topic, key="id", **given), rows)
    (message,) = read_messages(kafka, topic)
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(describe_messages()).file:
        pool.Add(each)
    read = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order")).FromString(message.value() or b"")
    assert json_format.MessageToDict(read) == {"id": 7, "state": "SENT", "items": [{"code": "a"}], "tags": {"k": 1}}
    assert message.key() == b"7"


@pytest.mark.spark
def test_messages_of_each_key_stay_in_order(kafka: Broker, spark: SparkSession) -> None:
    """A key goes to the partition that Java's producers choose. Its messages have the order of the rows."""
    topic = kafka.make_topic(4)
    rows = spark.range(0, 400, 1, 5).selectExpr("id", "if(id % 7 = 0, 'foobar', concat('k', id % 7)) as key")
    send_rows(spark, make_destination(kafka, topic, key="key"), rows)
    found = read_messages(kafka, topic)
    places = {(message.key(), message.partition()) for message in found}
    assert len(places) == 7
    assert (b"foobar", 1_357_151_166 % 4) in places  # Kafka's tests give this murmur2 hash
    for key in {message.key() for message in found}:
        ids = [json.loads(message.value() or b"")["id"] for message in found if message.key() == key]
        assert ids == sorted(ids)


@pytest.mark.spark
def test_a_zombie_is_fenced_when_another_run_looks_for_its_batch(kafka: Broker, spark: SparkSession) -> None:
    """Its transaction is aborted. The other run then sends the batch, and it is delivered once."""
    topic = kafka.make_topic()
    destination = make_destination(kafka, topic, exactly_once=True)
    zombie, identity = open_for(spark, destination, spark.createDataFrame([], "id bigint, text string"))
    other, _ = open_for(spark, destination, spark.createDataFrame([], "id bigint, text string"))
    label = make_label()
    with start_paused_write(spark, zombie, label) as (write, let_go):
        assert other.find(spark, label, identity) is None
        let_go()
        assert isinstance(error := write.exception(), ProducerFenced)
    assert classify(error).is_conflict
    other.write(spark, FrameRows(spark.range(1).selectExpr("id", "'y' as text")), [label])
    assert [json.loads(value)["text"] for value in read_values(kafka, topic)] == ["y"]


@pytest.mark.spark
def test_only_the_row_that_the_topic_cannot_take_is_refused(kafka: Broker, spark: SparkSession) -> None:
    """The reason is its topic, its partition or its size. Other rows pass the rules."""
    topic = kafka.make_topic(2, max_message_bytes="10000")
    rows = spark.sql(f"""select * from values (1, '{topic}', 1, 'x'), (2, 'nowhere', 0, 'x'), (3, null, 0, 'x'),
        (4, '{topic}', 2, 'x'), (5, '{topic}', -1, 'x'), (6, '{topic}', null, repeat('x', 10000)),
        (7, '{topic}', null, repeat('x', 8000)) as t(id, goes_to, shard, text)""")
    destination = make_destination(kafka, None, topic_column="goes_to", partition="shard", headers=["text"])
    opened = destination.open()
    (demands,) = opened.demands(spark, rows.schema)
    assert isinstance(demands, Demands)
    refused = {
        rule.code: [row.id for row in rows.where(f"not coalesce({rule.holds}, false)").orderBy("id").collect()]
        for rule in demands.rules
    }
    assert refused == {"TOPIC": [2, 3], "PARTITION": [2, 3, 4, 5], "TOO_LARGE": [2, 3, 6]}
    opened.write(spark, FrameRows(rows.where("id in (1, 7)")), [make_label()])
    assert sorted(json.loads(value)["id"] for value in read_values(kafka, topic)) == [1, 7]


@pytest.mark.spark
def test_a_header_without_a_name_is_refused(kafka: Broker, spark: SparkSession) -> None:
    """It is not refused because of its size."""
    topic = kafka.make_topic()
    rows = spark.sql("select id, if(id = 0, null, 'k') as name from range(2)").selectExpr(
        "id", "array(named_struct('key', name, 'value', 'v')) as named"
    )
    opened = make_destination(kafka, topic, headers=["named"]).open()
    (demands,) = opened.demands(spark, rows.schema)
    assert isinstance(demands, Demands)
    broken = {rule.code: rows.where(f"not coalesce({rule.holds}, false)").count() for rule in demands.rules}
    assert broken == {"HEADER": 1, "TOO_LARGE": 0}


@pytest.mark.spark
def test_a_topic_is_recognised_by_its_id(kafka: Broker, spark: SparkSession) -> None:
    """The list of servers may differ. A topic with another id is another topic."""
    topic = kafka.make_topic()
    opened, identity = open_for(spark, make_destination(kafka, topic), spark.range(0))
    opened.close()
    elsewhere = make_destination(kafka, topic, servers=f"{kafka.servers},{kafka.servers}")
    assert elsewhere.is_still(spark, identity, "") is True
    assert elsewhere.is_still(spark, replace(identity, id="another"), "") is False


@pytest.mark.spark
@pytest.mark.parametrize("how", ["SCRAM-SHA-256", "TLS"])
def test_a_password_or_a_certificate_gives_access(how: str, kafka: Broker, spark: SparkSession) -> None:
    """A transaction is sent through each listener."""
    topic = kafka.make_topic()
    servers = kafka.tls_servers if how == "TLS" else kafka.secure_servers
    options = make_tls_options(kafka.certificates) if how == "TLS" else make_options(PASSWORD, how)
    send_rows(
        spark,
        make_destination(kafka, topic, servers=servers, options=options, exactly_once=True),
        spark.range(3).coalesce(1),
    )
    assert read_values(kafka, topic) == ['{"id":0}', '{"id":1}', '{"id":2}']


@pytest.mark.spark
def test_a_message_that_is_too_large_is_an_error(kafka: Broker, spark: SparkSession) -> None:
    """The hint names the setting. No message of a transaction becomes visible."""
    topic = kafka.make_topic(max_message_bytes="10000")
    rows = spark.sql("select 'small' as text union all select repeat('x', 20000)")
    with pytest.raises(DestinationError, match=r"(?i)too large") as raised:
        send_rows(spark, make_destination(kafka, topic, exactly_once=True), rows)
    assert "max.message.bytes" in raised.value.hint
    assert read_values(kafka, topic) == []


@pytest.mark.spark
def test_a_missing_topic_is_named(kafka: Broker, spark: SparkSession) -> None:
    """The error is raised before a row is read."""
    with pytest.raises(DestinationError, match="There is no topic nowhere in Kafka"):
        open_for(spark, make_destination(kafka, "nowhere"), spark.range(1))


@pytest.mark.spark
def test_rows_that_do_not_fit_are_reported_with_every_problem(kafka: Broker, spark: SparkSession) -> None:
    """Columns are missing or have other types."""
    destination = make_destination(
        kafka, kafka.make_topic(), key="nr", partition="text", headers=["many"], format="raw"
    )
    with pytest.raises(Misfit) as raised:
        open_for(spark, destination, spark.sql("select 1 as id, 'x' as text, array(1) as many"))
    assert [line.strip().split(":")[0] for line in str(raised.value).splitlines()[1:]] == ["key", "value"]
    destination = make_destination(
        kafka, kafka.make_topic(), key="many", partition="text", headers=["many"], value="id"
    )
    with pytest.raises(Misfit) as raised:
        open_for(spark, destination, spark.sql("select 1 as id, 'x' as text, array(1) as many"))
    assert [line.strip().split(":")[0] for line in str(raised.value).splitlines()[1:]] == [
        "key", "partition", "value", "headers",
    ]  # fmt: skip


@pytest.mark.spark
def test_a_label_topic_that_deletes_labels_is_refused(kafka: Broker, spark: SparkSession) -> None:
    """Only a compacted topic keeps the newest label of each lane."""
    labels = kafka.make_topic(cleanup_policy="delete")
    with pytest.raises(DestinationError, match=r"cleanup\.policy delete"):
        open_for(
            spark, make_destination(kafka, kafka.make_topic(), exactly_once=True, label_topic=labels), spark.range(1)
        )


@pytest.mark.spark
def test_the_record_of_a_batch_has_the_ids_of_its_job(kafka: Broker, spark: SparkSession) -> None:
    """The batch is found by it, as by a record without a job."""
    labels = kafka.make_topic(cleanup_policy="compact")
    destination = make_destination(kafka, kafka.make_topic(), exactly_once=True, label_topic=labels)
    opened, identity = open_for(spark, destination, spark.range(1))
    planned = make_label()
    mine = replace(planned, batch=replace(planned.batch, job={"id": "41", "run": "42"}))
    written = opened.write(spark, FrameRows(spark.range(3)), [mine])
    assert json.loads(read_values(kafka, labels)[-1])["job"] == {"id": "41", "run": "42"}
    assert opened.find(spark, mine, identity) == written


@pytest.mark.spark
def test_a_replaced_label_topic_is_unsure(kafka: Broker, spark: SparkSession) -> None:
    """This holds for an open batch and for a run that begins."""
    labels = kafka.make_topic(cleanup_policy="compact")
    destination = make_destination(kafka, kafka.make_topic(), exactly_once=True, label_topic=labels)
    opened, identity = open_for(spark, destination, spark.range(1))
    admin = kafka.make_admin()
    admin.delete_topics([labels])[labels].result(30)
    with pytest.raises(Unsure, match="missing or was replaced"):
        opened.find(spark, make_label(), identity)
    opened.expects(identity)
    with pytest.raises(DestinationError, match="is missing, and this pipeline has delivered to it"):
        opened.ensure_place(spark, spark.range(1).schema)


@pytest.mark.spark
def test_a_batch_older_than_the_newest_label_is_unsure(kafka: Broker, spark: SparkSession) -> None:
    """A compaction may have removed its label. The time of the newer batch's plan does not matter."""
    destination = make_destination(kafka, kafka.make_topic(), exactly_once=True)
    opened, identity = open_for(spark, destination, spark.range(1))
    newer = make_label(number=2)
    newer = replace(newer, batch=replace(newer.batch, time=newer.batch.time - timedelta(hours=1)))
    opened.write(spark, FrameRows(spark.range(1)), [newer])
    with pytest.raises(Unsure, match="has a later batch of its lane"):
        opened.find(spark, make_label(number=1), identity)


@pytest.mark.spark
def test_a_batch_with_another_transactional_id_is_unsure(kafka: Broker, spark: SparkSession) -> None:
    """Its label has the other id. A producer with that id may still be active."""
    destination = make_destination(kafka, kafka.make_topic(), exactly_once=True)
    opened, identity = open_for(spark, destination, spark.range(1))
    opened.write(spark, FrameRows(spark.range(1)), [make_label()])
    renamed = replace(destination, transactional_id="other").open()
    with pytest.raises(Unsure, match="under another `transactional_id`, test-"):
        renamed.find(spark, make_label(), identity)
    renamed.expects(identity)
    assert renamed.ensure_place(spark, spark.range(1).schema).id != identity.id


@pytest.mark.spark
def test_an_open_transaction_of_another_lane_hides_no_label(
    kafka: Broker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search waits until the transaction ends. If it does not end, the search fails and is tried again later."""
    from confluent_kafka import Producer

    labels = kafka.make_topic(cleanup_policy="compact")
    destination = make_destination(kafka, kafka.make_topic(), exactly_once=True, label_topic=labels)
    opened, identity = open_for(spark, destination, spark.range(1))
    stranger = Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"{labels}-stranger"})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(labels, b"{}", b"stranger")
    stranger.flush(30)
    mine = make_label()
    written = opened.write(spark, FrameRows(spark.range(3)), [mine])
    with monkeypatch.context() as hurry:
        hurry.setattr("origins.kafka.client.PATIENCE", 5.0)
        with pytest.raises(ConnectionError, match="A transaction of another lane is open"):
            opened.find(spark, mine, identity)
    stranger.abort_transaction(30)
    assert opened.find(spark, mine, identity) == written


@pytest.mark.spark
def test_a_broker_that_stays_away_is_a_transient_error(
    kafka: Broker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the run tries the batch again. The topic has each row once."""
    topic = kafka.make_topic()
    opened, _ = open_for(spark, make_destination(kafka, topic, exactly_once=True), spark.range(1))
    kafka.kill()
    monkeypatch.setattr("origins.kafka.client.PATIENCE", 2.0)
    try:
        with pytest.raises(ConnectionError, match="Kafka at") as raised:
            opened.write(spark, FrameRows(spark.range(1)), [label := make_label()])
    finally:
        monkeypatch.undo()
        kafka.start_again()
    assert classify(raised.value).transient
    opened.write(spark, FrameRows(spark.range(1)), [label])
    assert len(read_values(kafka, topic)) == 1


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"topic_column": "t"}, "expected either topic or topic_column, got both"),
        ({"topic": None}, "expected either topic or topic_column, got none of them"),
        ({"topic": "no spaces"}, "topic: expected a name of letters"),
        ({"label_topic": "__labels"}, "label_topic: expected a name that does not begin with __"),
        ({"servers": " "}, "servers: expected a broker"),
        ({"format": "xml"}, "format: expected json, csv, avro, protobuf, text, raw, got 'xml'"),
        ({"headers": "a"}, "headers: expected a list"),
        ({"error_headers": "other"}, "error_headers: expected wherry or connect"),
        ({"options": {"acks": 1}}, "options: expected settings other than acks"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, Any], problem: str) -> None:
    """Each message has what was expected, and often the value."""
    with pytest.raises(ValueError, match=problem):
        Kafka(**{"servers": "localhost:1", "topic": "orders", **given})


def test_a_destination_states_its_guarantee() -> None:
    """The guarantee depends on the options."""
    assert Kafka(servers="localhost:1", topic="orders").guarantee.startswith("at least once")
    once = Kafka(servers="localhost:1", topic="orders", exactly_once=True)
    assert once.guarantee.startswith("effectively once for readers of committed messages")
    assert (once.remembers, once.name, once.place) == (True, None, "kafka://localhost:1/orders")


def test_each_lane_may_have_a_topic() -> None:
    """The name of the topic then has `{lane}`."""
    destination = Kafka(servers="localhost:1", topic="orders.{lane}")
    assert destination.by_lane
    own = destination.of_lane("eu")
    assert isinstance(own, Kafka)
    assert own.topic == "orders.eu"
