"""The schema of rows in a definition: SQL text, or a mapping from names to types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from origins.errors import OriginError
from origins.lazy import DataFrame, F, SparkSession, T, pa, spark_errors
from origins.names import HIDDEN, quote_name
from origins.spark_settings import TIMESTAMP_TYPE

_COLUMN = re.compile(r"\s*(?P<quote>`?)(?P<name>[A-Za-z_]\w*)(?P=quote)\s+(?P<kind>[A-Za-z_]+)\s*", re.ASCII)
_KINDS = {
    "boolean": "BooleanType", "tinyint": "ByteType", "byte": "ByteType", "smallint": "ShortType", "short": "ShortType",
    "int": "IntegerType", "integer": "IntegerType", "bigint": "LongType", "long": "LongType", "float": "FloatType",
    "real": "FloatType", "double": "DoubleType", "string": "StringType", "binary": "BinaryType", "date": "DateType",
    "timestamp": "TimestampType", "timestamp_ltz": "TimestampType", "timestamp_ntz": "TimestampNTZType",
}  # fmt: skip
"""The types that SQL writes as a name without parameters."""


def parse_schema(spark: SparkSession, schema: str | Mapping[str, str], where: str) -> T.StructType:
    """Return the columns that the definition declares for rows from `where`.

    Raise `OriginError` if they are invalid.
    """
    if isinstance(schema, Mapping):
        schema = ", ".join(f"{quote_name(name)} {kind}" for name, kind in schema.items())
    plain = _parse_plain_schema(spark, schema)
    if plain is not None:
        return plain
    try:
        columns = spark.createDataFrame([], schema).schema
    except spark_errors.PySparkException as error:
        raise OriginError(
            f"The schema of {where} is not valid: {schema}",
            hint="Write it like: id long, `unit price` decimal(10,2), tags array<string>",
        ) from error
    return T.StructType([T.StructField(column.name, column.dataType) for column in columns])


def make_empty_frame(spark: SparkSession, schema: T.StructType) -> DataFrame:
    """Return a frame of these columns without rows.

    If every value may be NULL, the frame is made without `createDataFrame`, which loads pandas. That takes half a
    second.
    """
    if any(mark in schema.json() for mark in _NEEDS_ROWS):
        return spark.createDataFrame([], schema)
    nothing = spark.range(0)
    return nothing.select(*(F.lit(None).cast(e.dataType).alias(e.name, metadata=e.metadata) for e in schema.fields))


_NEEDS_ROWS = ('"nullable":false', '"containsNull":false', '"valueContainsNull":false', "char(", '"udt"')
"""The properties of a type that a cast NULL does not have."""


def _parse_plain_schema(spark: SparkSession, schema: str) -> T.StructType | None:
    """Return the columns of a schema that has only plain names and types; None for any other schema.

    It is parsed without Spark, because a new Spark takes a second to parse its first schema.
    """
    columns = [_COLUMN.fullmatch(column) for column in schema.split(",")]
    found = [(each["name"], each["kind"].lower()) for each in columns if each]
    if len(found) < len(columns) or not all(kind in _KINDS for _, kind in found):
        return None
    if any(kind == "timestamp" for _, kind in found) and not _is_timestamp_a_moment(spark):
        return None
    return T.StructType([T.StructField(name, getattr(T, _KINDS[kind])()) for name, kind in found])


def _is_timestamp_a_moment(spark: SparkSession) -> bool:
    """Whether the type `timestamp` has a time zone in this session."""
    meaning = TIMESTAMP_TYPE.read(spark, "TIMESTAMP_LTZ")
    if meaning is None:
        meaning = spark.sql("SELECT typeof(TIMESTAMP'2020-01-01')").collect()[0][0]
    return meaning.upper() in ("TIMESTAMP", "TIMESTAMP_LTZ")


def check_schema(schema: T.StructType, where: str) -> T.StructType:
    """Return the schema. Raise `OriginError` if one of its names occurs twice or is reserved."""
    names = [name.lower() for name in schema.names]
    taken = [name for name in schema.names if name.lower().startswith(HIDDEN)]
    twice = [name for name in schema.names if names.count(name.lower()) > 1]
    if taken or twice:
        problem = f"{taken[0]}; names that begin with {HIDDEN} are reserved" if taken else f"{twice[0]} more than once"
        raise OriginError(
            f"The rows of {where} have the column {problem}.",
            hint="Rename the column; upper and lower case do not count.",
        )
    return schema


def make_arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the columns as Arrow has them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def format_ddl(schema: T.StructType) -> str:
    """Return the schema as text for a definition or for `CREATE TABLE`."""
    return ", ".join(f"{_quote_if_needed(column.name)} {get_sql_type(column.dataType)}" for column in schema)


def get_sql_type(kind: T.DataType) -> str:
    """Return the type as SQL, with every name inside it quoted."""
    if isinstance(kind, T.StructType):
        return f"struct<{', '.join(f'{quote_name(field.name)}: {get_sql_type(field.dataType)}' for field in kind)}>"
    if isinstance(kind, T.ArrayType):
        return f"array<{get_sql_type(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{get_sql_type(kind.keyType)}, {get_sql_type(kind.valueType)}>"
    return kind.simpleString()


def _quote_if_needed(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quote_name(name)


def walk_types(kind: T.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], T.DataType]]:
    """Yield the type and every type inside it, except keys of maps.

    Each comes with the names of the fields that lead to it.
    """
    yield path, kind
    if isinstance(kind, T.StructType):
        for field in kind:
            yield from walk_types(field.dataType, (*path, field.name))
    elif isinstance(kind, T.ArrayType):
        yield from walk_types(kind.elementType, path)
    elif isinstance(kind, T.MapType):
        yield from walk_types(kind.valueType, path)
