"""`kafka`: messages of topics, in exact ranges of offsets."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from origins.batch import Backlog, Batch, Json, Limits, Span
from origins.batch_rows import BatchRows
from origins.capabilities import (
    AddsColumns,
    Examinable,
    KnowsPlace,
    Lag,
    MeasuresLag,
    Need,
    ReactsToCommits,
    SeesOtherColumns,
    TakesOffsets,
)
from origins.errors import OriginError, WherryError
from origins.files.options import check_options, complete_options
from origins.kafka.avro import AvroCoding
from origins.kafka.client import Cluster, Ends, Partition, describe_missing_rights
from origins.kafka.formats import CODED, FORMATS, Coding, make_fit
from origins.kafka.offsets import (
    describe_positions,
    find_lane,
    parse_position,
    read_positions,
    read_ranges,
    read_schemas,
    read_topic_ids,
    spread_rows,
)
from origins.kafka.rows import HEADERS, METADATA, SMALL, KafkaRows
from origins.kafka.schema_registry import SchemaRegistry, check_coding, explain_coding, make_digest, read_schema_file
from origins.lazy import SparkSession, T
from origins.origin import Origin, Progress
from origins.schema import check_schema, parse_schema
from origins.spark_versions import find_kafka_package, make_arrow_schema

_IMPATIENT = 3.0
"""The seconds that `status` waits for the brokers."""
_CORRECT = "Correct the schema, or name the columns that are wanted with `schema`."
_FEW = 10
"""How many partitions, and messages of each, show which columns a schema leaves out."""
_LOOKED_AT = 100
"""The number of partitions of a lane at which `status` looks for the age of waiting messages."""
_AS_RAW = f"key binary, value binary, topic string, partition int, offset bigint, time timestamp, headers {HEADERS}"
_LINES = ("header", "linesep", "multiline", "comment", "encoding", "charset")
"""The options of Spark's reader that are about files."""
_OWN = (
    "bootstrap.servers",
    "group.id",
    "isolation.level",
    "enable.auto.commit",
    "auto.offset.reset",
    "logger",
    "error_cb",
)
"""The client settings that Wherry sets itself."""


@dataclass(frozen=True, kw_only=True)
class Kafka(Origin, AddsColumns, Examinable, SeesOtherColumns, KnowsPlace, MeasuresLag, ReactsToCommits, TakesOffsets):
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
    """What a message's value is: `json` (one object), `csv` (one line), `avro`, `protobuf`, `text`, or `raw` (its
    bytes, key and headers)."""
    schema: str | Mapping[str, str] | None = None
    """The columns and their types. Avro and Protobuf have types of their own, of which it may choose."""
    format_options: Mapping[str, str | int | float | bool] = field(default_factory=dict, metadata={"like": "{sep: ;}"})
    """Options of Spark's reader for `csv`, for example `sep`, `quote` and `dateFormat`."""
    schema_file: str | None = field(default=None, metadata={"path": True, "like": "orders.avsc"})
    """The file that says what a value is: an Avro schema, or Protobuf's descriptors with all imports."""
    message: str | None = field(default=None, metadata={"like": "shop.Order"})
    """The name of the message in Protobuf, with its package."""
    registry: Mapping[str, str] = field(
        default_factory=dict, repr=False, metadata={"secret": True, "like": "{url: 'https://registry:8081'}"}
    )
    """The schema registry, for `avro` with Confluent's header: `url`, and `username`, `password`, `token` or `ca`."""
    subjects: Sequence[str] = field(default=(), metadata={"like": "[orders-value]"})
    """The subjects of the registry that have the schemas. The default is the topic's name and `-value`."""
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
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern: expected a regular expression, got {self.pattern!r} ({error})") from error
        parse_position("start", self.start)
        for name in _OWN:
            if name in self.options:
                raise ValueError(f"options: expected settings other than {name}, which Wherry sets itself")
        _check_format(self)

    @property
    def infers(self) -> bool:
        return bool(self.registry) and self.schema is None

    @property
    def place(self) -> str:
        names = self.pattern if self.pattern is not None else ", ".join(self.names)
        return f"{names} in Kafka at {self.servers}"

    @property
    def names(self) -> Sequence[str]:
        """Return the topics that are named."""
        return [self.topic] if self.topic else list(self.topics)

    @property
    def listens(self) -> bool:
        return self.commit_group is not None

    @property
    def cluster(self) -> Cluster:
        """Return the brokers with the client's settings."""
        return Cluster.of(self.servers, self.options)

    @property
    def schemas(self) -> SchemaRegistry | None:
        """Return the schema registry; None without one."""
        return SchemaRegistry.of(self.registry) if self.registry else None

    def check_offset(self, lane: str, offset: Json) -> None:
        if isinstance(offset, str):
            parse_position("offset", offset)
            return
        try:
            known = read_positions(offset)
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
            known = {each.topic: topic for offset in offsets for each, (topic, _) in read_positions(offset).items()}
            there = self.cluster.find_topics(self.names, self.pattern)
        except (OriginError, ValueError):
            return False
        return bool(known) and all(topic == there.get(name, ("",))[0] for name, topic in known.items())

    def measure_lag(self, offsets: Mapping[str, Json]) -> Mapping[str, Lag]:
        if any("${secret:" in str(value) for value in self.options.values()):
            return {}  # the secret is not known here, and the client would send its reference as the password
        cluster = Cluster.of(self.servers, self.options, _IMPATIENT)
        try:
            waiting = replace(self, on_gap="record").look(offsets, cluster)
            behind = {lane: waiting.list_waiting(lane, offset) for lane, offset in offsets.items()}
            largest = [sorted(known.items(), key=lambda each: each[1][0] - each[1][1]) for known in behind.values()]
            made = cluster.read_times({each: at for known in largest for each, (at, _) in known[:_LOOKED_AT]})
        except (OriginError, ValueError):
            return {}
        return {lane: _sum_lag(known, made) for lane, known in behind.items()}

    def survey(self, spark: SparkSession, progress: Progress) -> KafkaBacklog:
        waiting = self.look(progress.offsets, self.cluster)
        return replace(waiting, offsets=progress.offsets, schemas=self._list_schemas(waiting, progress.offsets))

    def look(self, offsets: Mapping[str, Json], cluster: Cluster) -> KafkaBacklog:
        """Return the messages that wait after these offsets of its lanes. It needs no Spark."""
        topics = cluster.find_topics(self.names, self.pattern)
        ends = cluster.list_ends(topics)
        named = {self.start, *(offset for offset in offsets.values() if isinstance(offset, str))} - {"earliest"}
        begins = {"earliest": {each: known.first for each, known in ends.items()}}
        for position in sorted(named):
            moment = parse_position("start", position)
            at = {} if moment is None else cluster.list_offsets(topics, "for_timestamp", int(moment * 1000))
            begins[position] = {
                each: offset if (offset := at.get(each, -1)) >= 0 else known.end for each, known in ends.items()
            }
        waiting = KafkaBacklog(origin=self, ends=ends, begins=begins)
        notices = [notice for lane, offset in sorted(offsets.items()) for notice in waiting.find_gaps(lane, offset)]
        if notices and self.on_gap == "stop":
            raise OriginError(
                " ".join(notices),
                hint="Set `on_gap: record` to go on behind the gap, or move the offsets:  "
                "wherry offsets FILE --lane LANE --reason … --offset '\"earliest\"'",
            )
        return replace(waiting, notices=notices)

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        if self.schema is not None:
            columns = parse_schema(spark, self.schema, self.place)
        elif self.format in CODED:
            coding = self._find_newest()
            if coding is None:
                return None
            with explain_coding(self, _CORRECT):
                columns = T.StructType.fromJson(dict(coding.list_columns()))
        else:
            columns = parse_schema(spark, _AS_RAW if self.format == "raw" else "value string", self.place)
        self._check_types(columns)
        return str(check_schema(columns, self.place).json())

    def complete_schema(self, schema: str) -> str:
        whole = T.StructType.fromJson(json.loads(schema))
        for name in self.metadata:
            kind = _make_headers_type() if name == "kafka_headers" else METADATA[name][0]
            whole.add(name, kind)
        return str(check_schema(whole, self.place).json())

    def list_left_out(self, backlog: Backlog, schema: str) -> Sequence[str]:
        assert isinstance(backlog, KafkaBacklog)
        if self.schema is None or self.format != "json":
            return ()
        waiting = [backlog.list_waiting(lane, backlog.offsets.get(lane)) for lane in self.lane_names()]
        some = dict([each for lane in waiting for each in lane.items()][:_FEW])
        newest = {each: (max(first, end - _FEW), end) for each, (first, end) in some.items()}
        known, found = {column["name"].lower() for column in json.loads(schema)["fields"]}, dict[str, None]()
        with contextlib.suppress(OriginError):  # the batch meets the same, and says it
            for message in self.cluster.read(newest, SMALL) or ():
                with contextlib.suppress(ValueError, TypeError, RecursionError):  # the DLQ gets the message
                    found |= dict.fromkeys({**json.loads(message.value() or b"{}")})
        return [name for name in found if name.lower() not in known]

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        (batch,) = batches
        return KafkaRows(
            format=self.format,
            metadata=self.metadata,
            csv_options=complete_options("csv", self.format_options),
            load=lambda: self._load_coding(batch),
            cluster=self.cluster,
            columns=batch.schema,
            check=lambda: self.check_ranges(batch),
            spark=spark,
            places=places,
        )

    def parts(self, batch: Batch) -> Sequence[str]:
        return [str(each) for each in read_ranges(batch.span.parts)]

    def committed(self, spark: SparkSession, batch: Batch) -> None:
        if self.commit_group is not None:
            positions = {each: offset for each, (_, offset) in read_positions(batch.span.end).items()}
            if positions:
                self.cluster.commit(self.commit_group, positions)

    def examine(self, jars: Sequence[str]) -> Iterator[Need]:
        try:
            topics = self.cluster.find_topics(self.names, self.pattern)
            self.cluster.list_ends(topics)
            missing = self.cluster.find_missing_rights(list(topics), self.commit_group)
            subjects = [each for topic in topics for each in self.find_subjects(topic)]
            unknown = [each for each in subjects if self.schemas and not self.schemas.list_schemas(each)]
        except WherryError as error:
            yield Need(state="problem", found=error.message, advice=error.hint)
            return
        count = sum(len(partitions) for _, partitions in topics.values())
        named = ", ".join(topics) or f"no topic that fits {self.pattern}"
        yield Need(state="ok", found=f"{named} in Kafka at {self.servers}; {count} partition{'s' * (count != 1)}")
        if missing:
            yield describe_missing_rights(missing)
        at = f"the schema registry at {self.schemas.url}" if self.schemas else ""
        if unknown:
            found = f"{at} has no subject {', '.join(unknown)}"
            yield Need(state="problem", found=found, advice="Name the subjects with `subjects`.")
        elif at:
            yield Need(state="ok", found=f"{at} has the schemas of {', '.join(subjects)}")
        package = find_kafka_package()
        if not any(package.split(":")[1] in each for each in jars):
            advice = f"For large batches, write in the definition:  spark: {{packages: [{package!r}]}}"
            found = "the definition names no JAR for Kafka; small batches need none"
            yield Need(state="not needed", found=found, advice=advice)

    def find_subjects(self, topic: str) -> Sequence[str]:
        """Return the subjects of the registry that have the schemas of a topic."""
        return self.subjects or [f"{topic}-value"]

    def _list_schemas(self, waiting: KafkaBacklog, offsets: Mapping[str, Json]) -> Mapping[str, Mapping[int, str]]:
        """Return the digests of the schemas, by id, for each topic in which messages wait."""
        registry, found = self.schemas, dict[str, Mapping[int, str]]()
        if registry is None:
            return found
        lanes = self.lane_names()
        for topic in sorted({each.topic for lane in lanes for each in waiting.list_waiting(lane, offsets.get(lane))}):
            known: dict[int, Sequence[str]] = {}
            for subject in self.find_subjects(topic):
                known |= registry.list_schemas(subject)
            if not known:
                raise OriginError(
                    f"The schema registry at {registry.url} has no subject {', '.join(self.find_subjects(topic))}, "
                    f"and messages wait in {topic}.",
                    hint="Name the subjects of the topic's values with `subjects`.",
                )
            found[topic] = {number: make_digest(texts) for number, texts in known.items()}
        return found

    def _find_newest(self) -> Coding | None:
        """Return the coding from which the columns come; None if the registry has no schema yet."""
        registry = self.schemas
        if registry is None:
            return read_schema_file(self)
        subject = self.find_subjects(self.names[0])[0]
        known = registry.list_schemas(subject)
        return AvroCoding(schemas={0: known[list(known)[-1]]}, header=True) if known else None

    def _load_coding(self, batch: Batch) -> Coding:
        """Return the coding of a batch's messages, with the schemas that existed when it was planned."""
        registry = self.schemas
        if registry is None:
            return read_schema_file(self)
        pinned, found = read_schemas(batch.span.parts), {}
        for number, digest in sorted(pinned.items()):
            found[number] = registry.get_schema(number)
            if make_digest(found[number]) != digest:
                raise OriginError(
                    f"The schema registry at {registry.url} has another schema with id {number} than when the batch "
                    "was planned; no row of the batch was read.",
                    hint="Point `registry` at the one with the old schema, and run again.",
                )
        return AvroCoding(schemas=found, header=True)

    def _check_types(self, columns: T.StructType) -> None:
        """Raise `OriginError` for a column whose type the format cannot have."""
        if self.format in CODED:
            with explain_coding(self, _CORRECT):
                importlib.import_module("fastavro" if self.format == "avro" else "google.protobuf")
                for each in make_arrow_schema(columns):
                    make_fit(each.type, each.name)
        for column in columns if self.format == "csv" else ():
            if isinstance(column.dataType, T.StructType | T.ArrayType | T.MapType | T.BinaryType):
                kind = column.dataType.simpleString()
                raise OriginError(
                    f"Column {column.name} of {self.place} has the type {kind}, which no field of CSV has.",
                    hint="Give it the type string in `schema`, and change it with a stage.",
                )

    def check_ranges(self, batch: Batch) -> Mapping[Partition, tuple[int, int]]:
        """Return the offsets of a batch. Raise `OriginError` if some no longer match the plan."""
        ranges, ids = read_ranges(batch.span.parts), read_topic_ids(batch.span.parts)
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
    """The offsets that the partitions held at one moment."""

    origin: Kafka
    ends: Mapping[Partition, Ends]
    begins: Mapping[str, Mapping[Partition, int]]
    """The offsets of each named position: `earliest`, `latest` or a time."""
    notices: Sequence[str] = ()
    offsets: Mapping[str, Json] = field(default_factory=dict)
    """The offsets of the lanes after which messages wait."""
    schemas: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """By topic, the schemas in the registry for its values: their ids and digests."""

    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        begins = self._find_positions(lane, start)
        waiting = {each: end - begins[each] for each, end in self._list_ends(lane).items() if end > begins[each]}
        named = start if isinstance(start, str) else self.origin.start if start is None else "earliest"
        if named != "earliest" or (isinstance(start, str) and not waiting):
            label = f"nothing before {describe_positions(begins)}" if begins else "nothing"
            return Span(start=start, end=self._make_offset(start, begins), label=label)
        if not waiting:
            return None
        taken = spread_rows(waiting, limits.rows)
        after = {each: begins[each] + taken.get(each, 0) for each in begins}
        parts: list[Json] = [
            [each.topic, each.number, begins[each], after[each], self.ends[each].id] for each in sorted(taken)
        ]
        pinned = {str(n): known for each in taken for n, known in self.schemas.get(each.topic, {}).items()}
        parts += [{"schemas": pinned}] if self.origin.registry else []
        label = describe_positions({each: (begins[each], after[each]) for each in sorted(taken)})
        full = limits.rows is not None and sum(taken.values()) >= limits.rows
        return Span(start=start, end=self._make_offset(start, after), parts=tuple(parts), label=label, full=full)

    def again(self, spark: SparkSession, offsets: Mapping[str, Json]) -> Backlog:
        found = self.origin.survey(spark, Progress(offsets=offsets))
        pinned = {name: {**found.begins.get(name, {}), **known} for name, known in self.begins.items()}
        return replace(found, begins={**found.begins, **pinned, "earliest": found.begins["earliest"]})

    def list_waiting(self, lane: str, start: Json) -> Mapping[Partition, tuple[int, int]]:
        """Return the partitions of a lane with messages after this offset: their next offsets and their ends."""
        begins = self._find_positions(lane, start)
        return {each: (begins[each], end) for each, end in self._list_ends(lane).items() if end > begins[each]}

    def find_gaps(self, lane: str, start: Json) -> list[str]:
        """Return one sentence for each gap after this offset: messages that were deleted before they were read."""
        found = []
        for each, (topic, offset) in sorted(read_positions(start).items()):
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
        lanes = self.origin.lane_names()
        return {each: known.end for each, known in self.ends.items() if lanes[find_lane(each, len(lanes))] == lane}

    def _find_positions(self, lane: str, start: Json) -> Mapping[Partition, int]:
        if start is None or isinstance(start, str):
            begins = self.begins[self.origin.start if start is None else start]
            return {each: begins.get(each, self.ends[each].first) for each in self._list_ends(lane)}
        known, positions = read_positions(start), {}
        for each, end in self._list_ends(lane).items():
            now = self.ends[each]
            topic, offset = known.get(each, (now.id, now.first))
            lost = bool(topic and topic != now.id) or not now.first <= offset <= end
            positions[each] = now.first if lost else offset
        return positions

    def _make_offset(self, start: Json, positions: Mapping[Partition, int]) -> Json:
        """Return the offset for these positions. It keeps what was known of partitions whose topic no longer exists."""
        topics = {each.topic for each in self.ends}
        known = {each: at for each, at in read_positions(start).items() if each.topic not in topics}
        known |= {each: (self.ends[each].id, offset) for each, offset in positions.items()}
        offset: dict[str, dict[str, Any]] = {}
        for each, (topic, at) in sorted(known.items()):
            offset.setdefault(each.topic, {"id": topic, "next": {}})["next"][str(each.number)] = at
        return offset


def _sum_lag(waiting: Mapping[Partition, tuple[int, int]], made: Mapping[Partition, float]) -> Lag:
    """Return the lag of a lane whose oldest messages were made at these times."""
    rows = sum(end - at for at, end in waiting.values())
    known = [made[each] for each in waiting if each in made]
    seconds = max(0.0, time.time() - min(known)) if known else None
    return Lag(rows=rows, seconds=seconds if waiting else 0.0)


def _check_format(origin: Kafka) -> None:
    """Raise ValueError unless the format is known, and has what it needs and only options that it may have."""
    kind = origin.format
    if kind not in FORMATS:
        raise ValueError(f"format: expected {', '.join(FORMATS)}, got {kind!r}")
    if kind in ("json", "csv") and origin.schema is None:
        raise ValueError(f"schema: expected the columns of format: {kind}, got none")
    if kind in ("text", "raw") and origin.schema is not None:
        raise ValueError(f"schema: expected with another format, since {kind} has columns of its own")
    for name in origin.metadata:
        if name not in METADATA or kind == "raw":
            what = "none, since raw has these columns already" if kind == "raw" else ", ".join(METADATA)
            raise ValueError(f"metadata: expected {what}, got {name!r}")
    if origin.format_options and kind != "csv":
        raise ValueError(f"format_options: expected with format: csv only, got {kind}")
    check_options("csv", origin.format_options)
    for name in origin.format_options:
        if name.lower() in _LINES:
            raise ValueError(f"format_options: expected none about lines, since a message is one, got {name}")
    check_coding(origin)
    if isinstance(origin.subjects, str) or (origin.subjects and not origin.registry):
        raise ValueError(f"subjects: expected a list, beside a registry, got {origin.subjects!r}")
    if origin.registry and origin.schema is None and len(origin.names) != 1 and len(origin.subjects) != 1:
        raise ValueError("schema: expected the columns, since several topics have several schemas, got none")


def _make_headers_type() -> T.DataType:
    fields = [T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())]
    return T.ArrayType(T.StructType(fields))
