"""The schema of rows as a definition writes it: text as in SQL, or a mapping from names to types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from origins.errors import OriginError
from origins.names import HIDDEN, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def declared(spark: SparkSession, schema: str | Mapping[str, str], where: str) -> StructType:
    """The columns that the definition declares for rows from `where`. Raises `OriginError` when they are none."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructField, StructType

    if isinstance(schema, Mapping):
        schema = ", ".join(f"{quoted(name)} {kind}" for name, kind in schema.items())
    try:
        columns = spark.createDataFrame([], schema).schema
    except PySparkException as error:
        raise OriginError(
            f"The schema of {where} is not one: {schema}",
            hint="Write it like: id long, `unit price` decimal(10,2), tags array<string>",
        ) from error
    return StructType([StructField(column.name, column.dataType) for column in columns])


def checked(schema: StructType, where: str) -> StructType:
    """The schema, unless two of its names are one or are taken; then `OriginError`."""
    names = [name.lower() for name in schema.names]
    taken = [name for name in schema.names if name.lower().startswith(HIDDEN)]
    twice = [name for name in schema.names if names.count(name.lower()) > 1]
    if taken or twice:
        problem = f"{taken[0]}; names that begin with {HIDDEN} are taken" if taken else f"{twice[0]} more than once"
        raise OriginError(
            f"The rows of {where} have the column {problem}.",
            hint="Give the column another name; the case of letters makes no difference.",
        )
    return schema
