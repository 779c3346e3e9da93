"""`kafka`: messages of topics, in exact ranges of offsets."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, cast

from origins.batch import Batch, Json, Limits, Span
from origins.batch_rows import BatchRows
from origins.errors import OriginError, has_condition, list_spark_errors
from origins.files.changes import Changes
from origins.files.json_in_process import parse_rows
from origins.files.json_lines import LINE, judge_json_text, parse_lines
from origins.files.json_text import JsonChanges
from origins.json_shape import check_shape
from origins.kafka_client import Cluster, Ends, Partition
from origins.lazy import F, T, pa
from origins.nack import REFUSED
from origins.names import HIDDEN, quote_name, quote_text
from origins.origin import PLACE, Backlog, Origin, Progress
from origins.schema import check_schema, parse_schema

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame, SparkSession

FEW, SMALL = 10_000, 4 << 20
"""Up to so many messages, and bytes of them, are read in this process; more are Spark's to read."""
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The JAR with which Spark reads Kafka."""
_LATEST = (1 << 63) - 1
"""The last time that a column can have, in microseconds since 1970."""
_IMPATIENT = 3.0
"""So many seconds `status` waits for the brokers."""
_FORMATS = ("json", "text", "raw")
_HEADERS = "array<struct<key: string, value: binary>>"
_RAW = f"key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, headers {_HEADERS}"
_AS_RAW = f"key binary, value binary, topic string, partition int, offset bigint, time timestamp, headers {_HEADERS}"
METADATA = {
    "kafka_key": ("binary", "key"),
    "kafka_topic": ("string", "topic"),
    "kafka_partition": ("integer", "partition"),
    "kafka_offset": ("long", "offset"),
    "kafka_time": ("timestamp", "timestamp"),
    "kafka_headers": (_HEADERS, "headers"),
}
"""The columns of what is known of a message: their types, and as what Spark knows them."""
_OWN = (
    "bootstrap.servers",
    "group.id",
    "isolation.level",
    "enable.auto.commit",
    "auto.offset.reset",
    "logger",
    "error_cb",
)
"""The settings of the client that are Wherry's to make."""
_WRONG_VALUE = "the message has no value"
_NOT_TEXT = "the value is not valid UTF-8"
_EMPTY = r"(?s)\A\s*\z"


@dataclass(frozen=True, kw_only=True)
class Kafka(Origin):
    """Reads the messages of Kafka topics. A batch is an exact range of offsets of each partition.

    A partition stays in its lane, and so each key stays in order. Messages of transactions that were aborted are not
    read. New partitions, and new topics of a pattern, are read from their beginning.

    Example:
        kafka:
          servers: broker:9092
          topic: orders
          format: json
          schema: "id long, email string, amount string, at timestamp"
    """

    binds: ClassVar[frozenset[str]] = frozenset({"rows"})
    regroups: ClassVar[bool] = False
    whole_by: ClassVar[str] = "batch: whole"

    servers: str = field(metadata={"like": "broker-1:9092,broker-2:9092"})
    """The brokers to ask first, with their ports, separated by commas."""
    topic: str | None = field(default=None, metadata={"like": "orders"})
    """The topic. Give one of `topic`, `topics` and `pattern`."""
    topics: Sequence[str] = field(default=(), metadata={"like": "[orders, returns]"})
    """Several topics, whose messages have the same columns."""
    pattern: str | None = field(default=None, metadata={"like": "'orders\\..*'"})
    """A regular expression for whole names of topics. Topics that are made later are read too."""
    start: str = "earliest"
    """Where the first run begins: `earliest`, `latest` (only messages that come from then on), or a time."""
    format: str
    """What a message's value is: `json` (one object), `text`, or `raw` (its bytes, key and headers)."""
    schema: str | Mapping[str, str] | None = None
    """The columns and their types, for `json`."""
    metadata: Sequence[str] = ()
    """Facts about a message that become columns: `kafka_key`, `kafka_topic`, `kafka_partition`, `kafka_offset`,
    `kafka_time`, `kafka_headers`."""
    on_gap: Literal["stop", "record"] = "stop"
    """What happens when messages were deleted before they were read. With `record` the run says which, and goes on."""
    commit_group: str | None = field(default=None, metadata={"like": "wherry-orders"})
    """The consumer group that Wherry tells the offsets of delivered batches, so that Kafka's tools show the lag."""
    options: Mapping[str, str | int | float | bool] = field(
        default_factory=dict, repr=False, metadata={"secret": True, "like": "{security.protocol: SASL_SSL}"}
    )
    """Settings of Kafka's client (librdkafka), for example `security.protocol` and `sasl.password`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("topic", "topics", "pattern") if getattr(self, name)]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            raise ValueError(f"topic: expected one of topic, topics and pattern, got {got}")
        if isinstance(self.topics, str):
            raise ValueError(f"topics: expected a list, got {self.topics!r}")
        if not self.servers.strip():
            raise ValueError("servers: expected a broker and its port, such as broker:9092, got nothing")
        if self.on_gap not in ("stop", "record"):
            raise ValueError(f"on_gap: expected stop or record, got {self.on_gap!r}")
        if self.read == "whole":
            raise ValueError("read: expected new, since a topic has no end, got 'whole'")
        if self.pattern is not None:
            _check_pattern(self.pattern)
        _parse_position("start", self.start)
        for name in _OWN:
            if name in self.options:
                raise ValueError(f"options: expected settings other than {name}, which Wherry sets itself")
        _check_format(self)

    @property
    def place(self) -> str:
        names = self.pattern if self.pattern is not None else ", ".join(self.names)
        return f"{names} in Kafka at {self.servers}"

    @property
    def names(self) -> Sequence[str]:
        """The topics that are named."""
        return [self.topic] if self.topic else list(self.topics)

    @property
    def listens(self) -> bool:
        return self.commit_group is not None

    @property
    def cluster(self) -> Cluster:
        """The brokers, as the client reaches them."""
        return Cluster.of(self.servers, self.options)

    def check_offset(self, lane: str, offset: Json) -> None:
        if isinstance(offset, str):
            _parse_position("offset", offset)
            return
        try:
            known = _read_positions(offset)
        except (ValueError, OriginError):
            known = {}
        if not known or any(at < 0 for _, at in known.values()):
            example = json.dumps({"orders": {"next": {"0": 17}}})
            raise ValueError(
                f"expected earliest, latest, a time, or the next offset of each partition, as {example}, "
                f"got {json.dumps(offset)}"
            )
        lanes = self.lane_names()
        for each, (topic, _) in known.items():
            is_ours = re.fullmatch(self.pattern, each.topic) if self.pattern is not None else each.topic in self.names
            if not is_ours and not topic:
                raise ValueError(f"expected partitions of {self.pattern or ', '.join(self.names)}, got {each}")
            if (own := lanes[find_lane(each, len(lanes))]) != lane:
                raise ValueError(f"expected partitions of lane {lane}, got {each}, which is in lane {own}")

    def is_still(self, spark: SparkSession, offsets: Sequence[Json]) -> bool:
        try:
            known = {each.topic: topic for offset in offsets for each, (topic, _) in _read_positions(offset).items()}
            there = self.cluster.find_topics(self.names, self.pattern)
        except (OriginError, ValueError):
            return False
        return bool(known) and all(topic == there.get(name, ("",))[0] for name, topic in known.items())

    def stands(self, spark: SparkSession, offsets: Mapping[str, Json]) -> bool:
        waiting = self.survey(spark, Progress(offsets=offsets))
        return all(waiting.take(lane, offsets.get(lane), Limits()) is None for lane in self.lane_names())

    def measure_lag(self, offsets: Mapping[str, Json]) -> Mapping[str, str]:
        if any("${secret:" in str(value) for value in self.options.values()):
            return {}  # the secret is not known here, and its reference would be sent as the password
        cluster = Cluster.of(self.servers, self.options, _IMPATIENT)
        try:
            waiting = replace(self, on_gap="record").look(offsets, cluster)
        except (OriginError, ValueError):
            return {}
        return {lane: waiting.behind(lane, offset) for lane, offset in offsets.items()}

    def survey(self, spark: SparkSession, progress: Progress) -> KafkaBacklog:
        return self.look(progress.offsets, self.cluster)

    def look(self, offsets: Mapping[str, Json], cluster: Cluster) -> KafkaBacklog:
        """What waits behind these offsets of its lanes. It needs no Spark."""
        topics = cluster.find_topics(self.names, self.pattern)
        ends = cluster.list_ends(topics)
        named = {self.start, *(offset for offset in offsets.values() if isinstance(offset, str))} - {"earliest"}
        begins = {"earliest": {each: known.first for each, known in ends.items()}}
        for position in sorted(named):
            moment = _parse_position("start", position)
            at = {} if moment is None else cluster.list_offsets_at(topics, moment)
            begins[position] = {
                each: offset if (offset := at.get(each, -1)) >= 0 else known.end for each, known in ends.items()
            }
        waiting = KafkaBacklog(origin=self, ends=ends, begins=begins)
        notices = [notice for lane, offset in sorted(offsets.items()) for notice in waiting.find_gaps(lane, offset)]
        if notices and self.on_gap == "stop":
            raise OriginError(
                " ".join(notices),
                hint="Set `on_gap: record` to go on behind the gap, or move the offsets:  "
                "wherry offsets set FILE --lane LANE --reason … --offset '\"earliest\"'",
            )
        return replace(waiting, notices=notices)

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        if self.schema is None:
            columns = parse_schema(spark, _AS_RAW if self.format == "raw" else "value string", self.place)
        else:
            columns = parse_schema(spark, self.schema, self.place)
        return str(check_schema(columns, self.place).json())

    def complete_schema(self, schema: str) -> str:
        whole = T.StructType.fromJson(json.loads(schema))
        for name in self.metadata:
            kind = _make_headers_type() if name == "kafka_headers" else METADATA[name][0]
            whole.add(name, kind)
        return str(check_schema(whole, self.place).json())

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        (batch,) = batches
        return _KafkaRows(self, spark, batch, places)

    def parts(self, batch: Batch) -> Sequence[str]:
        return [str(each) for each in _read_ranges(batch.span.parts)]

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        if self.commit_group is not None:
            positions = {each: offset for each, (_, offset) in _read_positions(batch.span.end).items()}
            if positions:
                self.cluster.commit(self.commit_group, positions)

    def check_ranges(self, batch: Batch) -> Mapping[Partition, tuple[int, int]]:
        """The offsets of a batch. Raises `OriginError` where some are no longer what was planned."""
        ranges, ids = _read_ranges(batch.span.parts), _read_ids(batch.span.parts)
        there = self.cluster.list_ends(self.cluster.find_topics(list(ids), None)) if ids else {}
        for each, (first, end) in ranges.items():
            known = there.get(each)
            problem = ""
            if known is None or known.id != ids[each.topic]:
                problem = f"The topic {each.topic} was deleted and made again"
            elif known.first > first:
                problem = f"Offsets {first} to {min(known.first, end) - 1} of {each} were deleted"
            elif known.end < end:
                problem = f"{each} ends at offset {known.end}, before offset {end - 1}"
            if problem:
                raise OriginError(
                    f"{problem} after the batch was planned; no row of the batch was read.",
                    hint="Run again: if no destination has the batch yet, Wherry plans it again from what is there.",
                )
        return ranges


@dataclass(frozen=True, kw_only=True)
class KafkaBacklog(Backlog):
    """What the partitions held at one moment."""

    origin: Kafka
    ends: Mapping[Partition, Ends]
    begins: Mapping[str, Mapping[Partition, int]]
    """Where each named position is: `earliest`, `latest` or a time."""
    notices: Sequence[str] = ()

    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        begins = self._find_positions(lane, start)
        waiting = {each: end - begins[each] for each, end in self._list_ends(lane).items() if end > begins[each]}
        named = start if isinstance(start, str) else self.origin.start if start is None else "earliest"
        if named != "earliest" or (isinstance(start, str) and not waiting):
            label = f"nothing before {_describe(begins)}" if begins else "nothing"
            return Span(start=start, end=self._make_offset(start, begins), label=label)
        if not waiting:
            return None
        taken = spread_rows(waiting, limits.rows)
        after = {each: begins[each] + taken.get(each, 0) for each in begins}
        parts: list[Json] = [
            [each.topic, each.number, begins[each], after[each], self.ends[each].id] for each in sorted(taken)
        ]
        label = _describe({each: (begins[each], after[each]) for each in sorted(taken)})
        full = limits.rows is not None and sum(taken.values()) >= limits.rows
        return Span(start=start, end=self._make_offset(start, after), parts=tuple(parts), label=label, full=full)

    def again(self, spark: SparkSession, offsets: Mapping[str, Json]) -> Backlog:
        found = self.origin.look(offsets, self.origin.cluster)
        pinned = {name: {**found.begins.get(name, {}), **known} for name, known in self.begins.items()}
        return replace(found, begins={**found.begins, **pinned, "earliest": found.begins["earliest"]})

    def behind(self, lane: str, start: Json) -> str:
        begins = self._find_positions(lane, start)
        rows = sum(max(0, end - begins[each]) for each, end in self._list_ends(lane).items())
        return f"{rows:,} row{'s' * (rows != 1)}" if rows else ""

    def find_gaps(self, lane: str, start: Json) -> list[str]:
        """What was deleted behind this offset before it was read; a sentence each."""
        found = []
        for each, (topic, offset) in sorted(_read_positions(start).items()):
            now = self.ends.get(each)
            if now is None:
                if offset and each.topic in self.origin.names:
                    found.append(f"{each} is gone. It was read up to offset {offset}.")
            elif topic and topic != now.id:
                found.append(
                    f"The topic {each.topic} was deleted and made again: {each} was read up to offset {offset}, and "
                    f"now begins at offset {now.first}."
                )
            elif now.first > offset:
                found.append(f"Offsets {offset} to {now.first - 1} of {each} were deleted before they were read.")
            elif now.end < offset:
                found.append(
                    f"{each} was read up to offset {offset}, but it ends at offset {now.end}. A run that goes on reads "
                    f"it again from offset {now.first}."
                )
        return found

    def _list_ends(self, lane: str) -> Mapping[Partition, int]:
        """The partitions of a lane with their ends."""
        lanes = self.origin.lane_names()
        return {each: known.end for each, known in self.ends.items() if lanes[find_lane(each, len(lanes))] == lane}

    def _find_positions(self, lane: str, start: Json) -> Mapping[Partition, int]:
        """The next offset of each partition of a lane."""
        if start is None or isinstance(start, str):
            begins = self.begins[self.origin.start if start is None else start]
            return {each: begins.get(each, self.ends[each].first) for each in self._list_ends(lane)}
        known, positions = _read_positions(start), {}
        for each, end in self._list_ends(lane).items():
            now = self.ends[each]
            topic, offset = known.get(each, (now.id, now.first))
            lost = bool(topic and topic != now.id) or not now.first <= offset <= end
            positions[each] = now.first if lost else offset
        return positions

    def _make_offset(self, start: Json, positions: Mapping[Partition, int]) -> Json:
        """The offset that says these positions; and what was known of partitions that are not there."""
        known = {each: at for each, at in _read_positions(start).items() if each.topic not in self._topics}
        known |= {each: (self.ends[each].id, offset) for each, offset in positions.items()}
        offset: dict[str, dict[str, Any]] = {}
        for each, (topic, at) in sorted(known.items()):
            offset.setdefault(each.topic, {"id": topic, "next": {}})["next"][str(each.number)] = at
        return offset

    @cached_property
    def _topics(self) -> frozenset[str]:
        return frozenset(each.topic for each in self.ends)


@dataclass(frozen=True)
class _KafkaRows(BatchRows):
    """The rows of a batch. Few messages are read in this process once, and all forms are made of these."""

    origin: Kafka
    spark: SparkSession
    batch: Batch
    places: bool

    @property
    def schema(self) -> T.StructType:
        return T.StructType.fromJson(json.loads(self.batch.schema))

    def frame(self) -> DataFrame:
        return self._frame

    def table(self) -> pa.Table | None:
        return None if self.places or self._messages is None else self._table

    @cached_property
    def _frame(self) -> DataFrame:
        raw = self._load_by_spark() if self._messages is None else self._load_here(self._messages)
        metadata = {name: METADATA[name][1] for name in self.origin.metadata}
        raw = raw.withColumn(PLACE, F.expr(_PLACE))
        if self.origin.format == "json":
            return self._parse_json(raw, metadata)
        if self.origin.format == "raw":
            rows = {name: "timestamp" if name == "time" else name for name in self.schema.names}
        else:
            rows = {"value": "cast(value as string)", **metadata}
        refused = f"not is_valid_utf8(cast(value as string)) and value is not null and {self.origin.format == 'text'}"
        return self._select(raw, rows, refused, quote_text(_NOT_TEXT))

    @cached_property
    def _ranges(self) -> Mapping[Partition, tuple[int, int]]:
        return self.origin.check_ranges(self.batch)

    @cached_property
    def _messages(self) -> list[Message] | None:
        if sum(end - first for first, end in self._ranges.values()) > FEW:
            return None
        return self.origin.cluster.read(self._ranges, SMALL)

    @cached_property
    def _table(self) -> pa.Table | None:
        from pyspark.sql.pandas.types import to_arrow_schema

        messages, schema = self._messages or [], self.schema
        wanted = to_arrow_schema(schema, timezone="UTC")
        names = {name: METADATA[name][1] for name in self.origin.metadata}
        if self.origin.format == "raw":
            names = {name: "timestamp" if name == "time" else name for name in schema.names}
        facts = {name: [_get_fact(message, fact) for message in messages] for name, fact in names.items()}
        values = [message.value() for message in messages]
        try:
            if self.origin.format == "text":
                facts["value"] = [None if value is None else value.decode("utf-8") for value in values]
        except UnicodeDecodeError:
            return None
        if self.origin.format == "json":
            return self._parse_table(values, facts, wanted)
        columns = [pa.array(facts[each.name], each.type) for each in wanted]
        return pa.Table.from_arrays(columns, schema=wanted)

    def _parse_table(self, values: Sequence[bytes | None], facts: Mapping[str, Any], wanted: pa.Schema) -> Any:
        if any(value is None or not value.strip() or b"\n" in value or b"\r" in value for value in values):
            return None
        columns = T.StructType([each for each in self.schema if each.name not in facts])
        changes = self._changes
        found = parse_rows(
            b"\n".join(value or b"" for value in values),
            columns,
            extra=changes.asks_extra,
            missing=changes.asks_missing,
            zone=lambda: str(self.spark.conf.get("spark.sql.session.timeZone")),
        )
        if found is None or found.num_rows != len(values):
            return None
        arrays = [
            pa.array(facts[each.name], each.type) if each.name in facts else found[each.name].combine_chunks()
            for each in wanted
        ]
        return pa.Table.from_arrays(arrays, schema=wanted)

    @property
    def _changes(self) -> JsonChanges:
        known = {*self.origin.metadata}
        schema = T.StructType([each for each in self.schema if each.name not in known])
        return JsonChanges(schema=schema, changes=Changes.of("json", {}, given=True), options={})

    def _parse_json(self, raw: DataFrame, metadata: Mapping[str, str]) -> DataFrame:
        """An empty value is parsed as a mark that is no JSON, because the parser leaves out what is empty."""
        wrong, text = self._changes, "cast(value as string)"
        is_empty = f"(value is null or {text} rlike {quote_text(_EMPTY)})"
        kept = [f"{each} as {HIDDEN}{each}" for each in _RAW_NAMES]
        lines = raw.selectExpr(PLACE, *kept, f"if({is_empty}, '-', {text}) as {LINE}", f"{is_empty} as {_IS_EMPTY}")
        verdict = judge_json_text(wrong)
        rows = {name: quote_name(name) for name in wrong.schema.names}
        rows |= {name: HIDDEN + fact for name, fact in metadata.items()}
        why = f"if({_IS_EMPTY}, {quote_text(_WRONG_VALUE)}, {verdict.why})"
        return self._select(parse_lines(lines, wrong), rows, verdict.is_bad, why, prefix=HIDDEN)

    def _select(
        self, frame: DataFrame, rows: Mapping[str, str], is_bad: str, why: str, *, prefix: str = ""
    ) -> DataFrame:
        """The columns in their order, beside them the verdict with the whole message as JSON, and the place."""
        columns = [F.expr(rows[each.name]).cast(each.dataType).alias(each.name) for each in self.schema]
        at = {name: prefix + name for name in _RAW_NAMES}
        facts = ", ".join(f"{quote_text(name)}, {sql.format(**at)}" for name, sql in _MESSAGE.items())
        where = f"concat({at['topic']}, '/', {at['partition']}, ' offset ', {at['offset']}, ': ')"
        refusal = (
            f"named_struct('code', 'PARSE', 'message', concat({where}, {why}), 'raw', to_json(named_struct({facts})))"
        )
        columns.append(F.expr(f"case when {is_bad} then {refusal} end").alias(REFUSED))
        return frame.select(*columns, *([PLACE] if self.places else []))

    def _load_here(self, messages: Sequence[Message]) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema

        columns = T.StructType.fromJson(json.loads(parse_schema(self.spark, _RAW, "kafka").json()))
        wanted = to_arrow_schema(columns, timezone="UTC")
        arrays = [
            pa.array([_get_fact(each, name) for each in messages], wanted.field(name).type) for name in wanted.names
        ]
        indexes, seen = [], dict[tuple[str | None, int | None], int]()
        for each in messages:
            at = (each.topic(), each.partition())
            seen[at] = seen.get(at, -1) + 1
            indexes.append(seen[at])
        table = pa.Table.from_arrays(arrays, schema=wanted).append_column(_INDEX, pa.array(indexes, pa.int64()))
        return self.spark.createDataFrame(table, T.StructType([*columns, T.StructField(_INDEX, T.LongType())]))

    def _load_by_spark(self) -> DataFrame:
        """Spark reads a range of a partition in one task, in the order of its offsets."""
        asked: dict[str, dict[str, dict[str, int]]] = {"starting": {}, "ending": {}}
        for each, (first, end) in self._ranges.items():
            asked["starting"].setdefault(each.topic, {})[str(each.number)] = first
            asked["ending"].setdefault(each.topic, {})[str(each.number)] = end
        numbers = {topic: sorted(map(int, known)) for topic, known in asked["starting"].items()}
        options = {f"kafka.{name}": value for name, value in translate_options(self.origin.options).items()}
        reader = self.spark.read.format("kafka").options(**options)
        reader = reader.option("kafka.bootstrap.servers", self.origin.servers).option("includeHeaders", "true")
        reader = reader.option("kafka.isolation.level", "read_committed").option("failOnDataLoss", "true")
        reader = reader.option("assign", json.dumps(numbers))
        reader = reader.option("startingOffsets", json.dumps(asked["starting"]))
        try:
            frame = reader.option("endingOffsets", json.dumps(asked["ending"])).load()
        except list_spark_errors() as error:
            if not has_condition(error, "DATA_SOURCE_NOT_FOUND") and "Failed to find data source: kafka" not in str(
                error
            ):
                raise
            raise OriginError(
                f"Spark lacks the JAR that reads Kafka, and this batch has more than {FEW:,} messages or "
                f"{SMALL >> 20} MiB.",
                hint=f"Write in the definition:  spark: {{packages: [{PACKAGE!r}]}}",
            ) from error
        return frame.withColumn(_INDEX, F.expr("monotonically_increasing_id() & 8589934591"))


_RAW_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_INDEX = HIDDEN + "index"
_IS_EMPTY = HIDDEN + "is_empty"
_PLACE = f"named_struct('part', concat(topic, '/', partition), 'block', 0L, 'row', {_INDEX})"


def _as_text(value: str) -> str:
    return f"if(is_valid_utf8(cast({value} as string)), cast({value} as string), null)"


def _as_base64(value: str) -> str:
    return f"if(is_valid_utf8(cast({value} as string)), null, base64({value}))"


_MESSAGE = {
    "topic": "{topic}",
    "partition": "{partition}",
    "offset": "{offset}",
    "time": "{timestamp}",
    "key": _as_text("{key}"),
    "key_base64": _as_base64("{key}"),
    "value": _as_text("{value}"),
    "value_base64": _as_base64("{value}"),
    "headers": f"transform({{headers}}, each -> named_struct('key', each.key, 'value', {_as_text('each.value')}, "
    f"'value_base64', {_as_base64('each.value')}))",
}
"""What is kept of a message that is refused. Bytes that are no text are in base64."""


def find_lane(partition: Partition, lanes: int) -> int:
    """The lane of a partition. It never depends on other partitions."""
    return (zlib.crc32(partition.topic.encode()) + partition.number) % lanes


def spread_rows(waiting: Mapping[Partition, int], most: int | None) -> Mapping[Partition, int]:
    """How many rows a batch takes of each partition, in proportion to what waits there, and `most` in all."""
    total = sum(waiting.values())
    if most is None or total <= most:
        return dict(waiting)
    shares = {each: rows * most // total for each, rows in waiting.items()}
    rest = most - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda each: (-(waiting[each] * most % total), each))
    for each in by_remainder[:rest]:
        shares[each] += 1
    return {each: share for each, share in shares.items() if share}


def translate_options(options: Mapping[str, Any]) -> Mapping[str, str]:
    """The settings of the client as Java's client knows them."""
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    if "sasl.mechanisms" in given:
        given["sasl.mechanism"] = given.pop("sasl.mechanisms")
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    if user is not None:
        kind = "plain.Plain" if given.get("sasl.mechanism", "").upper() == "PLAIN" else "scram.Scram"
        quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password or "")]
        given["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{kind}LoginModule required "
            f'username="{quoted[0]}" password="{quoted[1]}";'
        )
    if "ssl.ca.location" in given:
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given.pop("ssl.ca.location")}
    return given


def _check_format(origin: Kafka) -> None:
    """Raises ValueError unless the format is known, and has the columns that it may have."""
    if origin.format not in _FORMATS:
        raise ValueError(f"format: expected {', '.join(_FORMATS)}, got {origin.format!r}")
    if origin.format == "json" and origin.schema is None:
        raise ValueError("schema: expected the columns of format: json, got none")
    if origin.format != "json" and origin.schema is not None:
        raise ValueError(f"schema: expected with format: json only, since {origin.format} has columns of its own")
    for name in origin.metadata:
        if name not in METADATA or origin.format == "raw":
            what = "none, since raw has these columns already" if origin.format == "raw" else ", ".join(METADATA)
            raise ValueError(f"metadata: expected {what}, got {name!r}")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern: expected a regular expression, got {pattern!r} ({error})") from error


def _parse_position(option: str, position: str) -> float | None:
    """The moment that is meant, in seconds since 1970; None for `earliest` and `latest`. Raises ValueError."""
    if position in ("earliest", "latest"):
        return None
    try:
        moment = datetime.fromisoformat(position.replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError(
            f"{option}: expected earliest, latest or a time such as 2026-01-31T06:00:00Z, got {position!r}"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _read_positions(offset: Json) -> Mapping[Partition, tuple[str, int]]:
    """The topic's id and the next offset of each partition, as an offset says them."""
    if offset is None or isinstance(offset, str):
        return {}
    if not isinstance(offset, Mapping):
        raise ValueError(f"expected a mapping of topics, got {json.dumps(offset)}")
    found = {}
    for topic, known in offset.items():
        shape = check_shape(_Positions, known)
        for number, at in shape["next"].items():
            found[Partition(topic, int(number))] = (shape.get("id", ""), at)
    return found


class _Next(TypedDict):
    next: Mapping[str, int]


class _Positions(_Next, total=False):
    """What an offset says of a topic."""

    id: str


def _read_ranges(parts: Sequence[Json]) -> Mapping[Partition, tuple[int, int]]:
    """The first offset and the end, exclusive, of each partition of a span."""
    return {Partition(topic, number): (first, end) for topic, number, first, end, _ in map(_read_part, parts)}


def _read_ids(parts: Sequence[Json]) -> Mapping[str, str]:
    """The ids of a span's topics."""
    return {topic: known for topic, _, _, _, known in map(_read_part, parts)}


def _read_part(part: Json) -> tuple[str, int, int, int, str]:
    return check_shape(tuple[str, int, int, int, str], part)


def _describe(positions: Mapping[Partition, Any]) -> str:
    """The offsets of a few partitions, as a person would name them."""
    texts = []
    for each, at in sorted(positions.items())[:3]:
        first, end = at if isinstance(at, tuple) else (at, at + 1)
        texts.append(f"{each} offset {first}" if end - first == 1 else f"{each} offsets {first} to {end - 1}")
    others = len(positions) - 3
    return ", ".join(texts) + (f" and {others} more partition{'s' * (others != 1)}" if others > 0 else "")


def _make_headers_type() -> T.DataType:
    fields = [T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]
    return T.ArrayType(T.StructType(fields))


def _get_fact(message: Message, name: str) -> Any:
    """What Spark's source says of a message under this name."""
    if name == "timestamp":
        return min(message.timestamp()[1] * 1000, _LATEST)
    if name == "headers":
        headers = message.headers()
        pairs = [] if headers is None else list(cast("Sequence[tuple[str, bytes | None]]", headers))
        return [{"key": key, "value": value} for key, value in pairs] or None
    return getattr(message, name)()
