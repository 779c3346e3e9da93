"""The rows of a batch of Kafka messages. They are the same whether this process or Spark reads them."""

from __future__ import annotations

import itertools
import json
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from origins.batch_rows import BatchRows, compute_once, make_frame
from origins.errors import OriginError, has_condition, list_spark_errors
from origins.files.bad_lines import ONCE, make_typed_field
from origins.files.changes import Changes
from origins.files.csv_header import OPEN, Header, is_open
from origins.files.csv_rows import CsvVerdict, parse_fields
from origins.files.in_process import make_plain_array, parse_rows
from origins.files.json_lines import LINE, judge_json_text, parse_lines
from origins.files.json_text import JsonChanges
from origins.files.json_written import PARSED
from origins.functions import ship_modules
from origins.kafka import avro, avro_reader, formats, protobuf
from origins.kafka.client import Cluster, Partition
from origins.kafka.formats import CODED, MISSING, BatchDecoder, Coding, decode_values
from origins.lazy import DataFrame, F, SparkSession, T, pa
from origins.nack import REFUSED
from origins.names import HIDDEN, quote_name, quote_text
from origins.origin import PLACE
from origins.schema import parse_schema
from origins.spark_settings import TIME_ZONE
from origins.spark_versions import find_kafka_package, make_arrow_schema

if TYPE_CHECKING:
    from confluent_kafka import Message

FEW, SMALL = 10_000, 4 << 20
"""The most messages, and bytes of them, that this process reads. Spark reads larger batches."""
_PACKED = 8
"""The factor by which the columns of an Avro or Protobuf value may be larger than its bytes."""
_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1
"""The first and the last time that a column can have, in microseconds since 1970."""
HEADERS = "array<struct<key: string, value: binary>>"
_RAW = f"key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, headers {HEADERS}"
METADATA = {
    "kafka_key": ("binary", "key"),
    "kafka_topic": ("string", "topic"),
    "kafka_partition": ("integer", "partition"),
    "kafka_offset": ("long", "offset"),
    "kafka_time": ("timestamp", "timestamp"),
    "kafka_headers": (HEADERS, "headers"),
}
"""The columns with facts about a message: their types, and Spark's names for them."""
_NOT_TEXT = "the value is not valid UTF-8"
_LINES = "the value has more than one line"
_EMPTY = r"(?s)\A\s*\z"


@dataclass(frozen=True, kw_only=True)
class KafkaRows(BatchRows):
    """The rows of a batch. This process reads a few messages once, and derives all forms from them."""

    format: str
    """What a message's value is."""
    metadata: Sequence[str] = ()
    """The columns that are facts about the message."""
    csv_options: Mapping[str, str] = field(default_factory=dict)
    """The options of Spark's CSV reader."""
    load: Callable[[], Coding]
    """Returns the coding of Avro and Protobuf values."""
    cluster: Cluster
    columns: str
    """The schema of the batch, as Spark's JSON."""
    check: Callable[[], Mapping[Partition, tuple[int, int]]]
    """Returns the offsets of the batch. It raises `OriginError` if some no longer match the plan."""
    spark: SparkSession
    places: bool

    @property
    def schema(self) -> T.StructType:
        return T.StructType.fromJson(json.loads(self.columns))

    @compute_once
    def frame(self) -> DataFrame:
        name = self.format
        if name in CODED:
            return self._decode()
        raw = self.load_messages().withColumn(PLACE, F.expr(_PLACE))
        if name == "json":
            return self._parse_json(raw)
        if name == "csv":
            return self._parse_csv(raw)
        rows = self._facts if name == "raw" else {"value": "cast(value as string)", **self._facts}
        refused = f"not is_valid_utf8(cast(value as string)) and value is not null and {name == 'text'}"
        return self._select(raw, rows, refused, quote_text(_NOT_TEXT))

    def table(self) -> pa.Table | None:
        return None if self.places or self._messages is None else self._table

    def count_given(self) -> int | None:
        return None if self._messages is None or self._headers is None else len(self._messages)

    def size(self) -> int | None:
        if self._messages is None:
            return None
        packs = _PACKED if self.format in CODED else 1
        return sum(packs * len(each.value() or b"") + len(each.key() or b"") for each in self._messages)

    def load_messages(self) -> DataFrame:
        """Return the messages with all their properties."""
        table = self._raw_table
        return self._load_by_spark() if table is None else make_frame(self.spark, table, self._raw_columns)

    @property
    def _facts(self) -> dict[str, str]:
        """Return the columns with facts about a message, and Spark's names for these."""
        if self.format == "raw":
            return {each: "timestamp" if each == "time" else each for each in self.schema.names}
        return {each: METADATA[each][1] for each in self.metadata}

    @cached_property
    def _ranges(self) -> Mapping[Partition, tuple[int, int]]:
        return self.check()

    @cached_property
    def _messages(self) -> list[Message] | None:
        if sum(end - first for first, end in self._ranges.values()) > FEW:
            return None
        return self.cluster.read(self._ranges, SMALL)

    @cached_property
    def _headers(self) -> list[Any] | None:
        """Return the headers of the messages; None if only Spark can read those of one.

        Each message is asked once. A second call would return what the first could not finish, and end the process.
        """
        try:
            return [_list_headers(message) for message in self._messages or []]
        except (SystemError, UnicodeDecodeError):  # a key is not valid UTF-8, and Spark replaces what is wrong
            return None

    @cached_property
    def _own(self) -> T.StructType:
        """Return the columns of the values."""
        return T.StructType([each for each in self.schema if each.name not in self.metadata])

    @cached_property
    def _table(self) -> pa.Table | None:
        messages, name = self._messages or [], self.format
        wanted = make_arrow_schema(self.schema)
        if "headers" in self._facts.values() and self._headers is None:
            return None
        found = {
            each: make_array(self._list_facts(messages, fact), wanted.field(each).type)
            for each, fact in self._facts.items()
        }
        if name != "raw":
            own = self._parse_values([message.value() for message in messages])
            if own is None:
                return None
            found.update(own)
        return pa.Table.from_arrays([found[each.name] for each in wanted], schema=wanted)

    def _parse_values(self, values: Sequence[bytes | None]) -> Mapping[str, pa.Array] | None:
        """Return the columns of these values; None if one is refused, or if Spark has to read them."""
        kinds, name = make_arrow_schema(self._own), self.format
        if name in CODED:
            columns, whys = decode_values(self.load(), values, kinds)
            if any(whys):
                return None
            return {of.name: make_array(each, of.type) for of, each in zip(kinds, columns, strict=True)}
        if name == "json":
            return self._parse_objects(values)
        if name == "csv":
            return None
        try:
            return {"value": make_array([None if value is None else value.decode() for value in values], pa.string())}
        except UnicodeDecodeError:
            return None

    def _parse_objects(self, values: Sequence[bytes | None]) -> Mapping[str, pa.Array] | None:
        if any(value is None or not value.strip() or b"\n" in value or b"\r" in value for value in values):
            return None
        changes = self._changes
        found = parse_rows(
            b"\n".join(value or b"" for value in values),
            self._own,
            extra=changes.asks_extra,
            missing=changes.asks_missing,
            zone=lambda: str(TIME_ZONE.read(self.spark)),
        )
        if found is None or found.num_rows != len(values):
            return None
        return {name: found[name].combine_chunks() for name in found.column_names}

    @property
    def _changes(self) -> JsonChanges:
        return JsonChanges(schema=self._own, changes=Changes.of("json", {}, given=True), options={})

    def _parse_json(self, raw: DataFrame) -> DataFrame:
        wrong = self._changes
        lines = raw.selectExpr(PLACE, *_list_kept(), f"cast(value as string) as {LINE}")
        verdict = judge_json_text(wrong)
        rows = {name: quote_name(name) for name in wrong.schema.names}
        rows |= {name: HIDDEN + fact for name, fact in self._facts.items()}
        why = f"if({PARSED} is null, {quote_text(MISSING)}, {verdict.why})"
        is_bad = f"{PARSED} is null or {verdict.is_bad}"
        return self._select(parse_lines(lines, wrong, keep_blank=True), rows, is_bad, why, prefix=HIDDEN)

    def _parse_csv(self, raw: DataFrame) -> DataFrame:
        """Return the rows of CSV. Fields are read as text, so that a cast decides whether they fit their types."""
        text = f"regexp_replace(cast(value as string), {quote_text(_LINE_END)}, '')"
        is_empty = f"(value is null or {text} rlike {quote_text(_EMPTY)})"
        lines = raw.selectExpr(
            PLACE, *_list_kept(), f"if({is_empty}, '-', {text}) as {LINE}", f"{is_empty} as {_IS_EMPTY}"
        )
        own, options, line = self._own, self.csv_options, quote_name(LINE)
        frame = parse_fields(lines, own.names, options)
        texts = [each for each in own if not isinstance(each.dataType, T.StringType)]
        typed = {each: f"{HIDDEN}typed_{index}" for index, each in enumerate(texts)}
        casts = [f"case when {ONCE} then {make_typed_field(each, options)} end as {at}" for each, at in typed.items()]
        suspect = {
            f"not is_valid_utf8(cast({HIDDEN}value as string))": _NOT_TEXT,
            f"{line} rlike {quote_text(_LINE_BREAK)}": _LINES,
            is_open(line, options): OPEN,
        }
        judged = CsvVerdict(
            header=Header(tuple(own.names)),
            typed=typed,
            options=options,
            changes=Changes.of("csv", {}, given=True),
            suspect=suspect,
            line=line,
        )
        verdict = judged.make_verdict(in_words=True)
        rows = {each.name: typed.get(each, quote_name(each.name)) for each in own}
        rows |= {name: HIDDEN + fact for name, fact in self._facts.items()}
        why = f"if({_IS_EMPTY}, {quote_text(MISSING)}, {verdict.why})"
        is_bad = f"{_IS_EMPTY} or ({verdict.is_bad})"
        return self._select(frame.selectExpr("*", *casts), rows, is_bad, why, prefix=HIDDEN)

    def _decode(self) -> DataFrame:
        """Return the rows of coded values. The same function decodes them in this process and in Spark's workers."""
        own, raw_table = self._own, self._raw_table
        names = [f"{HIDDEN}decoded_{index}" for index in range(len(own))]
        kinds = make_arrow_schema(own)
        decoder = BatchDecoder(coding=self.load(), kinds=kinds, names=names, why=_WHY)
        decoded = [T.StructField(name, each.dataType) for name, each in zip(names, own, strict=True)]
        whole = T.StructType([*self._raw_columns, *decoded, T.StructField(_WHY, T.StringType())])
        if raw_table is None:
            send_by_value()
            raw = self._load_by_spark().select(*_RAW_NAMES, _INDEX)
            frame = raw.mapInArrow(decoder.decode, whole)
        else:
            batches = list(decoder.decode(iter(raw_table.to_batches())))
            table = pa.Table.from_batches(batches, make_arrow_schema(whole))
            frame = make_frame(self.spark, table, whole)
        rows = {each.name: name for name, each in zip(names, own, strict=True)} | self._facts
        return self._select(frame.withColumn(PLACE, F.expr(_PLACE)), rows, f"{_WHY} is not null", _WHY)

    def _select(
        self, frame: DataFrame, rows: Mapping[str, str], is_bad: str, why: str, *, prefix: str = ""
    ) -> DataFrame:
        """Return the columns in order, the verdict with the whole message as JSON, and the place."""
        columns = [F.expr(rows[each.name]).cast(each.dataType).alias(each.name) for each in self.schema]
        at = {name: prefix + name for name in _RAW_NAMES}
        facts = ", ".join(f"{quote_text(name)}, {sql.format(**at)}" for name, sql in _MESSAGE.items())
        where = f"concat({at['topic']}, '/', {at['partition']}, ' offset ', {at['offset']}, ': ')"
        refusal = (
            f"named_struct('code', 'PARSE', 'message', concat({where}, {why}), 'raw', to_json(named_struct({facts})))"
        )
        columns.append(F.expr(f"case when {is_bad} then {refusal} end").alias(REFUSED))
        return frame.select(*columns, *([PLACE] if self.places else []))

    @cached_property
    def _raw_columns(self) -> T.StructType:
        """Return the columns with all facts about a message, and its number in its range."""
        columns = parse_schema(self.spark, _RAW, "kafka")
        return T.StructType([*columns, T.StructField(_INDEX, T.LongType())])

    @property
    def _raw_table(self) -> pa.Table | None:
        """Return the messages with all facts about them; None if Spark has to read them."""
        messages = self._messages
        if messages is None or self._headers is None:
            return None
        wanted = make_arrow_schema(self._raw_columns)
        numbers = defaultdict[tuple[str | None, int | None], Iterator[int]](itertools.count)
        indexes = [next(numbers[each.topic(), each.partition()]) for each in messages]
        known = {name: self._list_facts(messages, name) for name in _RAW_NAMES} | {_INDEX: indexes}
        return pa.Table.from_arrays([make_array(known[each.name], each.type) for each in wanted], schema=wanted)

    def _list_facts(self, messages: Sequence[Message], name: str) -> list[Any]:
        """Return the fact about each message that Spark's source gives under this name."""
        if name == "headers":
            return self._headers or []
        if name == "timestamp":
            return [max(_EARLIEST, min(message.timestamp()[1] * 1_000, _LATEST)) for message in messages]
        return [getattr(message, name)() for message in messages]

    def _load_by_spark(self) -> DataFrame:
        """Return the messages as Spark reads them.

        One task reads a range of a partition in the order of its offsets.
        """
        asked: dict[str, dict[str, dict[str, int]]] = {"starting": {}, "ending": {}}
        for each, (first, end) in self._ranges.items():
            asked["starting"].setdefault(each.topic, {})[str(each.number)] = first
            asked["ending"].setdefault(each.topic, {})[str(each.number)] = end
        numbers = {topic: sorted(map(int, known)) for topic, known in asked["starting"].items()}
        client = {**_POLL, **translate_options(dict(self.cluster.settings)), "isolation.level": "read_committed"}
        options = {
            **{f"kafka.{name}": value for name, value in client.items()},
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "assign": json.dumps(numbers),
            "startingOffsets": json.dumps(asked["starting"]),
            "endingOffsets": json.dumps(asked["ending"]),
        }
        try:
            frame = self.spark.read.format("kafka").options(**options).load()
        except list_spark_errors() as error:
            if not has_condition(error, "DATA_SOURCE_NOT_FOUND") and "Failed to find data source: kafka" not in str(
                error
            ):
                raise
            raise OriginError(
                f"Spark lacks the JAR that reads Kafka. This batch has more than {FEW:,} messages or {SMALL >> 20} "
                "MiB, or a header whose key is not UTF-8.",
                hint=f"Write in the definition:  spark: {{packages: [{find_kafka_package()!r}]}}",
            ) from error
        return frame.withColumn(_INDEX, F.expr("monotonically_increasing_id() & 8589934591"))


_POLL = {"max.poll.records": "10000"}
"""Few polls are best, since Spark requests a partition's end after each, and that drops the messages fetched ahead."""
_RAW_NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_INDEX = HIDDEN + "index"
_IS_EMPTY = HIDDEN + "is_empty"
_WHY = HIDDEN + "why"
_LINE_END, _LINE_BREAK = r"\r?\n\z", r"[\r\n]"
_PLACE = f"named_struct('part', concat(topic, '/', partition), 'block', 0L, 'row', {_INDEX})"


def _list_kept() -> list[str]:
    """Return the facts about a message, under names that no column has."""
    return [f"{each} as {HIDDEN}{each}" for each in _RAW_NAMES]


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
"""The JSON that is kept of a refused message. Bytes that are not text are in base64."""


def translate_options(options: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the client's settings under the names of the Java client."""
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
    if given.get("ssl.endpoint.identification.algorithm") == "none":
        given["ssl.endpoint.identification.algorithm"] = ""
    certificates = _translate_certificates(given)
    return {**given, **certificates}


_PRIVATE = ("BEGIN PRIVATE KEY", "BEGIN ENCRYPTED PRIVATE KEY")


def _translate_certificates(given: dict[str, str]) -> Mapping[str, str]:
    """Return the settings about certificates, and remove them from `given`.

    The files are read in this process, so that executors need none.
    """
    found = {}
    for java, name in {
        "truststore.certificates": "ca",
        "keystore.certificate.chain": "certificate",
        "keystore.key": "key",
    }.items():
        file, text = given.pop(f"ssl.{name}.location", None), given.pop(f"ssl.{name}.pem", None)
        if file is not None:
            try:
                text = Path(file).read_text(encoding="ascii")
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not PEM"
                raise OriginError(
                    f"The file of ssl.{name}.location cannot be read: {file}: {why}.", hint="Correct `options`."
                ) from error
        if text is not None:
            found[f"ssl.{java}"] = text
            found[f"ssl.{java.partition('.')[0]}.type"] = "PEM"
    key = found.get("ssl.keystore.key")
    if key is not None and not any(each in key for each in _PRIVATE):
        raise OriginError(
            "Spark reads a private key as PKCS #8 only, and `options` has another one.",
            hint="Convert it:  openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW",
        )
    if "ssl.keystore.location" in given:
        found["ssl.keystore.type"] = "PKCS12"
    return found


def send_by_value() -> None:
    """Send the code that decodes messages to Spark's workers by value. The workers need not have Wherry."""
    ship_modules([avro, avro_reader, formats, protobuf])


def make_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the values as an array: times and days as numbers since 1970, maps as pairs.

    arro3 makes the array if it can, since pyarrow first imports pandas, which takes half a second.
    """
    types = pa.types
    if types.is_struct(kind):
        parts = [make_array([None if each is None else each[of.name] for each in values], of.type) for of in kind]
        mask = make_array([each is None for each in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if types.is_list(kind) or types.is_map(kind):
        offsets: list[int | None] = []
        flat: list[Any] = []
        for each in values:
            offsets.append(None if each is None else len(flat))
            flat += () if each is None else each
        places = make_array([*offsets, len(flat)], pa.int32())
        if types.is_list(kind):
            return pa.ListArray.from_arrays(places, make_array(flat, kind.value_type), type=kind)
        keys, items = make_array([key for key, _ in flat], kind.key_type), [item for _, item in flat]
        return pa.MapArray.from_arrays(places, keys, make_array(items, kind.item_type), type=kind)
    if types.is_timestamp(kind):
        return make_array(values, pa.int64()).view(kind)
    if types.is_date32(kind):
        return make_array(values, pa.int32()).view(kind)
    return make_plain_array(values, kind)


_call_headers = operator.methodcaller("headers")
"""Asks a message for its headers. A plain call does not see that the client failed, and the process ends later."""


def _list_headers(message: Message) -> list[Mapping[str, Any]] | None:
    """Return the headers as Spark's source gives them. Raise `SystemError` or `UnicodeDecodeError` for a broken key."""
    pairs: Sequence[tuple[str, bytes | None]] = _call_headers(message) or ()
    return [{"key": key, "value": value} for key, value in pairs] or None
