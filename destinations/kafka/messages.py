"""How rows become Kafka messages, in SQL, and which rows cannot be messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from destinations.destination import Demands, Rule, make_message
from destinations.files import CSV, TIMES
from origins.kafka.formats import Coding, RowEncoder, list_misfits
from origins.kafka.rows import send_by_value
from origins.lazy import Column, DataFrame, F, T
from origins.nack import DLQ_COLUMNS, make_reason
from origins.names import HIDDEN, quote_map, quote_name, quote_text
from stages.expressions import suggest_name
from stages.rows import Rows
from stages.stage import Stage

CSV_OPTIONS = {
    name.lower(): name
    for name in (
        "sep", "quote", "escape", "charToEscapeQuoteEscaping", "quoteAll", "escapeQuotes", "nullValue", "emptyValue",
        "dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone",
    )
}  # fmt: skip
"""The options of Spark's writer for CSV that a definition may give."""
_OVERHEAD = 1_000
"""How many bytes Kafka and Wherry add to a row at most."""
JSON_OPTIONS: Mapping[str, str] = {**TIMES, "timeZone": "UTC"}
"""How a JSON value writes timestamps."""
_JSON = quote_map({**JSON_OPTIONS, "ignoreNullFields": "false"})
_VALUE = HIDDEN + "value"
"""The column with a value in Avro or Protobuf, or with the reason why a row has none."""
_AS_TEXT = ("string", "boolean", "byte", "short", "integer", "long", "date")
_HEADER = "array<struct<key: string, value: binary>>"
_NO_HEADERS = f"cast(array() as {_HEADER})"
_LETTERS = tuple(column.split(" ")[0] for column in DLQ_COLUMNS.split(", "))
_VALUES = ("row", "row_schema", "original", "original_schema")
_PART = r"'^([A-Za-z0-9._-]+)/([0-9]+)$'"
_CAUSES: Mapping[str, Mapping[str, str]] = {
    "wherry": {f"wherry.{name}": name for name in ("code", "message", "stage", "destination", "part")},
    "connect": {
        "__connect.errors.topic": f"nullif(regexp_extract(part, {_PART}, 1), '')",
        "__connect.errors.partition": f"nullif(regexp_extract(part, {_PART}, 2), '')",
        "__connect.errors.offset": "get_json_object(get_json_object(`row`, '$.raw'), '$.offset')",
        "__connect.errors.connector.name": "pipeline",
        "__connect.errors.task.id": "lane",
        "__connect.errors.stage": "stage",
        "__connect.errors.exception.class.name": "code",
        "__connect.errors.exception.message": "message",
    },
}
"""The headers with the reason for a refusal, and the columns of the DLQ that they come from."""


class MessageOptions(Protocol):
    """The options that map the columns of a row to the parts of a message."""

    @property
    def format(self) -> str: ...
    @property
    def format_options(self) -> Mapping[str, str | int | float | bool]: ...
    @property
    def topic_column(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def value(self) -> str | None: ...
    @property
    def headers(self) -> Sequence[str]: ...
    @property
    def partition(self) -> str | None: ...
    @property
    def error_headers(self) -> Literal["wherry", "connect"]: ...


@dataclass(frozen=True, kw_only=True)
class TopicLimits:
    """The limits of a topic."""

    partitions: int
    bytes: int
    """The size of the largest message, with its key and headers."""


@dataclass(frozen=True)
class MessageColumns:
    """The mapping from rows of one schema to messages."""

    options: MessageOptions
    schema: T.StructType
    coding: Coding | None = None
    """The coding for values in Avro and Protobuf; None for other formats."""

    def list_problems(self) -> Sequence[str]:
        """Return why the rows cannot be messages, one sentence for each problem."""
        options = self.options
        problems = []
        for option, name in self._list_used():
            if self._find(name) is None:
                problems.append(f"{option}: there is no column '{name}'; {suggest_name(name, self.schema.names)}")
        if not problems:
            problems += self._check_kind("key", options.key, (*_AS_TEXT, "binary", "decimal"))
            problems += self._check_kind("topic_column", options.topic_column, ("string",))
            problems += self._check_kind("partition", options.partition, ("byte", "short", "integer", "long"))
            problems += self._check_value()
            for name in options.headers:
                if not _is_header(self._get_type(name)):
                    problems.append(
                        f"headers: {name} is {self._get_type(name).simpleString()}; expected text, bytes, a number, a "
                        "map of these by text, or an array of structs of key and value"
                    )
        return problems

    def select(self, rows: DataFrame, *, shorten_to: int | None = None) -> DataFrame:
        """Return the key, value, topic, partition and headers of each row, and why it has no value.

        The topic is NULL if all rows have the same topic. A refused row that would have more bytes than `shorten_to`
        comes without its values.
        """
        topic = quote_name(self.options.topic_column) if self.options.topic_column else "cast(null as string)"
        partition = quote_name(self.options.partition) if self.options.partition else "null"
        beside = [f"{topic} as topic", f"cast({partition} as int) as partition", f"{self.headers} as headers"]
        value, why = self.value, "cast(null as string)"
        if self.coding is not None:
            rows, why = rows.withColumn(_VALUE, self.encode()), f"{_VALUE}.why"
        if shorten_to is not None and self.is_dead_letter:
            is_object = self.options.format == "json" and self.options.value is None
            short = self._encode_plainly(without=_VALUES) if is_object else "cast(null as binary)"
            value = f"if({self.size} <= {shorten_to}, {value}, {short})"
        return rows.selectExpr(f"{self.key} as key", f"{value} as value", *beside, f"{why} as why")

    @property
    def key(self) -> str:
        """The SQL for the key, as bytes."""
        return "cast(null as binary)" if self.options.key is None else self._make_bytes(self.options.key)

    @property
    def value(self) -> str:
        """The SQL for the value, as bytes. In Avro and Protobuf, `encode` computes it."""
        return f"{_VALUE}.value" if self.coding else self._encode_plainly()

    def _encode_plainly(self, without: Sequence[str] = ()) -> str:
        """Return the SQL for the value in all other formats. In an object, the columns in `without` are NULL."""
        options = self.options
        if options.format in ("text", "raw"):
            return f"cast({quote_name(options.value or 'value')} as binary)"
        if options.value is not None:
            return f"cast(to_json({quote_name(options.value)}, {_JSON}) as binary)"
        if options.format == "csv":
            given = {CSV_OPTIONS[name.lower()]: str(value) for name, value in options.format_options.items()}
            written = quote_map({**CSV, "timeZone": "UTC", **given})
            return f"cast(to_csv(struct({', '.join(map(quote_name, self._fields))}), {written}) as binary)"
        values = {name: "cast(null as string)" if name in without else quote_name(name) for name in self._fields}
        fields = [f"{quote_text(name)}, {sql}" for name, sql in values.items()]
        return f"cast(to_json(named_struct({', '.join(fields)}), {_JSON}) as binary)"

    def encode(self) -> Column:
        """Return the value in Avro or Protobuf, and why a row has none. Python computes it in Spark's workers."""
        assert self.coding is not None
        send_by_value()
        encoder = RowEncoder(coding=self.coding, schema=self._record.json())
        if self.options.value:
            record = _count_moments(quote_name(self.options.value), self._record)
        else:
            columns = [(each.name, _count_moments(quote_name(each.name), each.dataType)) for each in self._record]
            record = f"named_struct({', '.join(f'{quote_text(name)}, {column}' for name, column in columns)})"
        return F.udf(encoder, "struct<value: binary, why: string>", useArrow=False)(F.expr(record))

    @property
    def _fields(self) -> Sequence[str]:
        """The columns that are fields of a value: all except those for the topic, the partition and the headers."""
        options = self.options
        beside = {name.lower() for name in (options.topic_column, options.partition, *options.headers) if name}
        return [name for name in self.schema.names if name.lower() not in beside]

    @property
    def _record(self) -> T.StructType:
        """The columns of the value."""
        if self.options.value:
            return cast("T.StructType", self._get_type(self.options.value))
        return T.StructType([self.schema[name] for name in self._fields])

    @property
    def headers(self) -> str:
        """The SQL for the headers, an array of keys and bytes. A column that is NULL gives no header."""
        parts = []
        for name in self.options.headers:
            kind, column = self._get_type(name), quote_name(name)
            if isinstance(kind, T.MapType | T.ArrayType):
                entries = f"map_entries({column})" if isinstance(kind, T.MapType) else column
                pairs = f"transform({entries}, e -> struct(e.key as key, cast(e.value as binary) as value))"
                parts.append(f"coalesce({pairs}, {_NO_HEADERS})")
            else:
                parts.append(_make_header(name, self._make_bytes(name), column))
        if self.is_dead_letter:
            causes = _CAUSES[self.options.error_headers]
            parts += [_make_header(name, f"cast({sql} as binary)", sql) for name, sql in causes.items()]
        return f"cast(concat({', '.join(parts)}) as {_HEADER})" if parts else _NO_HEADERS

    @property
    def is_dead_letter(self) -> bool:
        """Whether the rows are rows of a DLQ."""
        return tuple(self.schema.names) == _LETTERS

    @property
    def size(self) -> str:
        """The SQL for the largest size in bytes that the message can have."""
        octets = "coalesce(octet_length({}), 0)".format
        summed = f"(n, e) -> n + 20 + {octets('e.key')} + {octets('e.value')}"
        has_headers = self.options.headers or self.is_dead_letter
        added = f"aggregate({self.headers}, 0L, {summed})" if has_headers else "0L"
        sizes = [octets(each) for each in (self.key, self.value)]
        return f"({' + '.join([*sizes, added])} + {_OVERHEAD})"

    def make_demands(self, topic: str | None, limits: Mapping[str, TopicLimits]) -> Iterator[Stage]:
        """Return what the topics and the format demand of each row, as stages."""
        rules = list(self._make_rules(topic, limits))
        if self.coding is None:
            yield Demands(rules=rules)
            return
        if len(rules) > 1:
            yield Demands(rules=rules[:-1])
        yield CheckValues(columns=self, fits=rules[-1])

    def _make_rules(self, topic: str | None, limits: Mapping[str, TopicLimits]) -> Iterator[Rule]:
        """Return what the topics demand of each row, as rules. The rule for the size is the last one."""
        column, partition = self.options.topic_column, self.options.partition
        key = [self.options.key] if self.options.key else []
        most = partitions = ""
        if topic is not None:
            most, partitions = str(limits[topic].bytes), str(limits[topic].partitions)
        elif column is not None:
            most = _look_up({name: limit.bytes for name, limit in limits.items()}, column)
            partitions = _look_up({name: limit.partitions for name, limit in limits.items()}, column)
            there = f"{partitions} is not null"
            yield Rule(code="TOPIC", holds=there, reason="Kafka has no such topic", shows=[column])
        for name in self.options.headers:
            if isinstance(self._get_type(name), T.ArrayType):
                named = f"coalesce(not exists({quote_name(name)}, e -> e.key is null), true)"
                yield Rule(code="HEADER", holds=named, reason="a header has no name", shows=[name])
        if partition is not None:
            at = quote_name(partition)
            inside = f"({at} is null or ({at} >= 0 and {at} < {partitions}))"
            yield Rule(code="PARTITION", holds=inside, reason="the topic has no such partition", shows=[partition])
        shown = [*([column] if column else []), *key]
        reason = "the message is larger than the topic's max.message.bytes"
        yield Rule(code="TOO_LARGE", holds=f"{self.size} <= {most}", reason=reason, shows=shown)

    def _list_used(self) -> Iterator[tuple[str, str]]:
        options = self.options
        for option in ("key", "topic_column", "partition"):
            if (name := getattr(options, option)) is not None:
                yield option, name
        yield from (("headers", name) for name in options.headers)
        if options.value is not None or options.format in ("text", "raw"):
            yield "value", options.value or "value"

    def _check_kind(self, option: str, name: str | None, kinds: Sequence[str]) -> Iterator[str]:
        if name is not None and self._get_type(name).typeName() not in kinds:
            found = self._get_type(name).simpleString()
            yield f"{option}: {name} is {found}; expected {', '.join(kinds)}"

    def _check_value(self) -> Iterator[str]:
        options = self.options
        if options.format == "text":
            yield from self._check_kind("value", options.value or "value", ("string",))
        elif options.format == "raw":
            yield from self._check_kind("value", options.value or "value", ("binary", "string"))
        elif options.format == "csv":
            for name in self._fields:
                kind = self._get_type(name)
                if isinstance(kind, T.StructType | T.ArrayType | T.MapType | T.BinaryType | T.VariantType):
                    yield f"value: {name} is {kind.simpleString()}, which no field of CSV has"
        elif self.coding is not None:
            yield from self._check_record(self.coding)
        elif options.value is not None:
            yield from self._check_kind("value", options.value, ("struct", "map", "array", "variant"))

    def _check_record(self, coding: Coding) -> Iterator[str]:
        """Return why the columns do not fit the schema of the values."""
        if self.options.value is not None and not isinstance(self._get_type(self.options.value), T.StructType):
            found = self._get_type(self.options.value).simpleString()
            yield f"value: {self.options.value} is {found}; expected struct"
            return
        wanted = coding.list_columns()
        yield from (f"value: {each}" for each in list_misfits(self._record.jsonValue(), wanted))

    def _find(self, name: str) -> str | None:
        return next((each for each in self.schema.names if each.lower() == name.lower()), None)

    def _get_type(self, name: str) -> T.DataType:
        found = self._find(name)
        assert found is not None
        return self.schema[found].dataType

    def _make_bytes(self, name: str) -> str:
        column, is_binary = quote_name(name), self._get_type(name).typeName() == "binary"
        return f"cast({column} as binary)" if is_binary else f"cast(cast({column} as string) as binary)"


@dataclass(frozen=True, kw_only=True)
class CheckValues(Stage):
    """Refuses rows that have no value in Avro or Protobuf, and rows whose message is too large."""

    columns: MessageColumns
    fits: Rule
    """The rule that a message fits into its topic."""

    def apply(self, rows: Rows) -> Rows:
        why, too_large = F.col(_VALUE)["why"], ~F.coalesce(F.expr(self.fits.holds), F.lit(False))
        refusal = F.when(why.isNotNull(), make_reason("ENCODE", why))
        refusal = refusal.when(too_large, make_reason(self.fits.code, make_message(rows, self.fits)))
        return rows.attempt({_VALUE: self.columns.encode()}, refusal, {})


def _count_moments(column: str, kind: T.DataType, depth: int = 0) -> str:
    """Return the column with timestamps as microseconds and dates as days. Python supports only some years."""
    if isinstance(kind, T.TimestampType):
        return f"unix_micros({column})"
    if isinstance(kind, T.DateType):
        return f"unix_date({column})"
    each = f"e{depth}"
    if isinstance(kind, T.ArrayType):
        inner = _count_moments(each, kind.elementType, depth + 1)
        return column if inner == each else f"transform({column}, {each} -> {inner})"
    if isinstance(kind, T.MapType):
        inner = _count_moments(each, kind.valueType, depth + 1)
        return column if inner == each else f"transform_values({column}, (k{depth}, {each}) -> {inner})"
    if isinstance(kind, T.StructType):
        paths = {of.name: f"{column}.{quote_name(of.name)}" for of in kind}
        parts = {of.name: _count_moments(paths[of.name], of.dataType, depth) for of in kind}
        made = ", ".join(f"{quote_text(name)}, {part}" for name, part in parts.items())
        return column if parts == paths else f"if({column} is null, null, named_struct({made}))"
    return column


def _make_header(name: str, value: str, present: str) -> str:
    header = f"named_struct('key', {quote_text(name)}, 'value', {value})"
    return f"if({present} is null, {_NO_HEADERS}, array({header}))"


def _is_header(kind: T.DataType) -> bool:
    if isinstance(kind, T.MapType):
        return isinstance(kind.keyType, T.StringType) and kind.valueType.typeName() in ("string", "binary")
    if isinstance(kind, T.ArrayType):
        fields = {each.name: each.dataType.typeName() for each in getattr(kind.elementType, "fields", ())}
        return fields.get("key") == "string" and fields.get("value") in ("string", "binary")
    return kind.typeName() in (*_AS_TEXT, "binary", "decimal")


def _look_up(values: Mapping[str, int], column: str) -> str:
    entries = ", ".join(f"{quote_text(name)}, {value}" for name, value in values.items())
    return f"try_element_at(map({entries}), {quote_name(column)})" if values else "cast(null as int)"
