"""A file of which a stage takes columns: read whole, whenever a batch is computed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from origins.file_options import check_options, completed
from origins.listing import literally
from origins.schema import checked, declared
from stages.pinned_table import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Format: TypeAlias = Literal["csv", "json", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_FIXED = {"mode": "FAILFAST", "columnpruning": "false", "enforceschema": "false"}
"""A line that cannot be read is an error, whichever columns are asked for; a header must fit the schema."""


@dataclass(frozen=True, kw_only=True)
class LookupFile:
    """A file, or a folder of files, with the columns that are in it."""

    path: str
    format: str
    schema: str | Mapping[str, str] | None = None
    options: Mapping[str, str | float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"format: expected {' or '.join(FORMATS)}, got {self.format!r}")
        check_options(self.format, self.options)

    @property
    def place(self) -> str:
        """The file as a person would name it."""
        return self.path

    def rows(self, spark: SparkSession) -> DataFrame:
        """What is in it. Raises `TableError` when it is not there or cannot be read."""
        from pyspark.errors import PySparkException

        options = {**completed(self.format, self.options), **_FIXED}
        reader = spark.read.format(self.format).options(**options)
        if self.format == "csv":
            reader = reader.option("header", options.get("header", "true"))
        if self.schema is not None:
            reader = reader.schema(declared(spark, self.schema, self.path))
        place = self.path if _SCHEME.match(self.path) else os.path.abspath(self.path)
        try:
            rows = reader.load(literally(place))
            checked(rows.schema, self.path)
        except PySparkException as error:
            if "PATH_NOT_FOUND" in str(error):
                raise TableError(f"There is no file {self.path}.", hint="Put it back, or name another one.") from error
            why = re.sub(r"\s*SQLSTATE: \w+.*$", "", str(error).splitlines()[0])
            raise TableError(f"{self.path} cannot be read as {self.format}: {why}", hint=_ADVICE) from error
        return rows


_ADVICE = "Give it a schema, or the `format` that it has."


def format_of(path: str) -> str:
    """The format that a file's name tells by its ending."""
    return os.path.splitext(path.removesuffix(".gz").rstrip("/"))[1].removeprefix(".").lower()
