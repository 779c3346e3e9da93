"""How rows become messages of Kafka: which columns are what, in SQL, and which rows cannot become one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from destinations.dead_letters import SCHEMA as DEAD_LETTERS
from destinations.destination import Rule
from origins.lazy import T
from origins.names import quote_name, quote_text
from stages.expressions import suggest_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

FORMATS = ("json", "text", "raw")
_OVERHEAD = 1_000
"""So many bytes of a message are what Kafka and Wherry add to a row, at most."""
_JSON = (
    "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", 'timestampNTZFormat', "
    "\"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\", 'timeZone', 'UTC', 'ignoreNullFields', 'false')"
)
_AS_TEXT = ("string", "boolean", "byte", "short", "integer", "long", "date")
_HEADER = "array<struct<key: string, value: binary>>"
_LETTERS = tuple(column.split(" ")[0] for column in DEAD_LETTERS.split(", "))
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
"""The headers that say why a row was refused, and the columns of the DLQ that they are made of."""


class MessageOptions(Protocol):
    """The options that say which columns of a row become what of a message."""

    @property
    def format(self) -> str: ...
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
    """What a topic takes."""

    partitions: int
    bytes: int
    """The largest message, with its key and headers."""


@dataclass(frozen=True)
class MessageColumns:
    """Rows of one schema as messages."""

    options: MessageOptions
    schema: StructType

    def list_problems(self) -> Sequence[str]:
        """Why the rows cannot be messages, a sentence each."""
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
        """The key, value, topic, partition and headers of each row; the topic is NULL where all have the same.

        A refused row that would have more bytes than `shorten_to` comes without its values.
        """
        value = self.value
        if shorten_to is not None and self.is_dead_letter and self.options.format == "json":
            short = encode_value(self.options, self.schema, without=_VALUES)
            value = f"if({self.size} <= {shorten_to}, {value}, {short})"
        topic = quote_name(self.options.topic_column) if self.options.topic_column else "cast(null as string)"
        partition = quote_name(self.options.partition) if self.options.partition else "null"
        return rows.selectExpr(
            f"{self.key} as key",
            f"{value} as value",
            f"{topic} as topic",
            f"cast({partition} as int) as partition",
            f"{self.headers} as headers",
        )

    @property
    def key(self) -> str:
        """The key, as bytes."""
        return "cast(null as binary)" if self.options.key is None else self._make_bytes(self.options.key)

    @property
    def value(self) -> str:
        """The value, as bytes."""
        return encode_value(self.options, self.schema)

    @property
    def headers(self) -> str:
        """The headers, an array of keys and bytes. A column that is NULL gives none."""
        parts = []
        for name in self.options.headers:
            kind, column = self._get_type(name), quote_name(name)
            if isinstance(kind, T.MapType):
                entries = (
                    f"transform(map_entries({column}), e -> struct(e.key as key, cast(e.value as binary) as value))"
                )
                parts.append(f"coalesce({entries}, cast(array() as {_HEADER}))")
            elif isinstance(kind, T.ArrayType):
                entries = f"transform({column}, e -> struct(e.key as key, cast(e.value as binary) as value))"
                parts.append(f"coalesce({entries}, cast(array() as {_HEADER}))")
            else:
                parts.append(_make_header(name, self._make_bytes(name), column))
        if self.is_dead_letter:
            causes = _CAUSES[self.options.error_headers]
            parts += [_make_header(name, f"cast({sql} as binary)", sql) for name, sql in causes.items()]
        return f"cast(concat({', '.join(parts)}) as {_HEADER})" if parts else f"cast(array() as {_HEADER})"

    @property
    def is_dead_letter(self) -> bool:
        """Whether the rows are those of a DLQ."""
        return tuple(self.schema.names) == _LETTERS

    @property
    def size(self) -> str:
        """How many bytes the message has at most."""
        headers = "aggregate({}, 0L, (n, e) -> n + 20 + octet_length(e.key) + coalesce(octet_length(e.value), 0))"
        added = headers.format(self.headers) if self.options.headers or self.is_dead_letter else "0L"
        sizes = [f"coalesce(octet_length({each}), 0)" for each in (self.key, self.value)]
        return f"({' + '.join([*sizes, added])} + {_OVERHEAD})"

    def make_rules(self, topic: str | None, limits: Mapping[str, TopicLimits]) -> Iterator[Rule]:
        """What the topics demand of each row."""
        column, partition = self.options.topic_column, self.options.partition
        key = [self.options.key] if self.options.key else []
        most = partitions = ""
        if topic is not None:
            most, partitions = str(limits[topic].bytes), str(limits[topic].partitions)
        elif column is not None:
            most = _look_up({name: limit.bytes for name, limit in limits.items()}, column)
            partitions = _look_up({name: limit.partitions for name, limit in limits.items()}, column)
            yield Rule(code="TOPIC", holds=f"{partitions} is not null", says="Kafka has no such topic", shows=[column])
        if partition is not None:
            at = quote_name(partition)
            inside = f"({at} is null or ({at} >= 0 and {at} < {partitions}))"
            yield Rule(code="PARTITION", holds=inside, says="the topic has no such partition", shows=[partition])
        shown, says = [*([column] if column else []), *key], "the message is larger than the topic's max.message.bytes"
        yield Rule(code="TOO_LARGE", holds=f"{self.size} <= {most}", says=says, shows=shown)

    def _list_used(self) -> Iterator[tuple[str, str]]:
        options = self.options
        for option in ("key", "topic_column", "partition"):
            if (name := getattr(options, option)) is not None:
                yield option, name
        yield from (("headers", name) for name in options.headers)
        if options.value is not None or options.format != "json":
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
        elif options.value is not None:
            yield from self._check_kind("value", options.value, ("struct", "map", "array", "variant"))

    def _find(self, name: str) -> str | None:
        return next((each for each in self.schema.names if each.lower() == name.lower()), None)

    def _get_type(self, name: str) -> DataType:
        found = self._find(name)
        assert found is not None
        return self.schema[found].dataType

    def _make_bytes(self, name: str) -> str:
        return _to_bytes(quote_name(name), self._get_type(name))


def encode_value(options: MessageOptions, schema: StructType, *, without: Sequence[str] = ()) -> str:
    """The value of a message in the format that was chosen, as SQL that gives bytes. The columns in `without` are NULL
    in an object."""
    if options.format in ("text", "raw"):
        return f"cast({quote_name(options.value or 'value')} as binary)"
    if options.value is not None:
        return f"cast(to_json({quote_name(options.value)}, {_JSON}) as binary)"
    beside = {name.lower() for name in (options.topic_column, options.partition, *options.headers) if name}
    values = {name: "cast(null as string)" if name in without else quote_name(name) for name in schema.names}
    fields = [f"{quote_text(name)}, {sql}" for name, sql in values.items() if name.lower() not in beside]
    return f"cast(to_json(named_struct({', '.join(fields)}), {_JSON}) as binary)"


def _make_header(name: str, value: str, present: str) -> str:
    return (
        f"if({present} is null, cast(array() as {_HEADER}), "
        f"array(named_struct('key', {quote_text(name)}, 'value', {value})))"
    )


def _to_bytes(column: str, kind: DataType) -> str:
    return f"cast({column} as binary)" if kind.typeName() == "binary" else f"cast(cast({column} as string) as binary)"


def _is_header(kind: DataType) -> bool:
    if isinstance(kind, T.MapType):
        return isinstance(kind.keyType, T.StringType) and kind.valueType.typeName() in ("string", "binary")
    if isinstance(kind, T.ArrayType):
        fields = {each.name: each.dataType.typeName() for each in getattr(kind.elementType, "fields", ())}
        return fields.get("key") == "string" and fields.get("value") in ("string", "binary")
    return kind.typeName() in (*_AS_TEXT, "binary", "decimal")


def _look_up(values: Mapping[str, int], column: str) -> str:
    entries = ", ".join(f"{quote_text(name)}, {value}" for name, value in values.items())
    return f"try_element_at(map({entries}), {quote_name(column)})" if values else "cast(null as int)"
