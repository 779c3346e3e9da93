"""Which columns files have: found out once where no schema is given, and again where it evolves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT
from origins.changes import Changes
from origins.csv_header import header_of
from origins.errors import OriginError
from origins.file_rows import FileRows
from origins.growth import grown
from origins.json_keys import none_differs
from origins.json_tail import is_whole
from origins.listing import File, without_scheme
from origins.parquet_rows import footers, nanos_of, schema_of, with_moments
from origins.text_width import widened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

_CASE = "spark.sql.caseSensitive"
_UNTOLD = Changes(missing="evolve", extra="ignore")
"""The policies under which files are looked through for what else they have."""


@dataclass(frozen=True, kw_only=True)
class FileSchema:
    """What columns files have that are read like this."""

    rows: FileRows

    def of(self, spark: SparkSession, files: Sequence[File]) -> StructType | None:
        """The columns of these files; None when there is nothing in them."""
        from pyspark.sql.types import StringType, StructField, StructType

        names = [file.name for file in files if file.size]
        if not names:
            return None
        if self.rows.format in ("json", "parquet"):
            found = self._by_spark(spark, names)
            if not found.names:
                raise OriginError(
                    f"Nothing in {self.rows.place.root} could be read as {self.rows.format}, so its columns are not "
                    "known.",
                    hint="Give the origin a schema; lines that do not fit it go to the DLQ.",
                )
            return found
        header = self._header(spark, names[0]) if self.rows.format == "csv" else ("value",)
        if self.rows.format == "csv" and not self.rows.has_header:
            header = tuple(f"_c{index}" for index in range(len(header)))
        return StructType([StructField(name, StringType()) for name in header]) if header else None

    def beyond(self, spark: SparkSession, names: Sequence[str], known: StructType) -> StructType:
        """The columns of these files that are not known yet, or known with another type; others may be among them.

        Reads only headers of CSV for new columns, and no small file of JSON by Spark in which there are none.
        """
        from pyspark.sql.types import StructType

        if self.rows.format == "json":
            if self._is_known(names, known):
                return StructType()
            return grown(
                self._widened(spark, names, known), self._by_spark(spark, names, whole=True), self.rows.changes
            )
        if self.rows.format == "parquet":
            kinds = {found.json(): name for name, found in footers(spark, self.rows.place, names) if found is not None}
            each = (schema_of(spark, self.rows.place, name) for name in kinds.values())
            return reduce(lambda schema, found: grown(schema, found, self.rows.changes), each, known)
        return self._csv(spark, names, known) if self.rows.format == "csv" else StructType()

    def _is_known(self, names: Sequence[str], known: StructType) -> bool:
        if self.rows.changes.wider == "evolve" or not self.rows.place.local:
            return False
        files = [Path(without_scheme(self.rows.place.full(name))) for name in names]
        return none_differs(files, known, extra=True, missing=False, whole_file=is_whole(self.rows.options))

    def _csv(self, spark: SparkSession, names: Sequence[str], known: StructType) -> StructType:
        from pyspark.sql.types import StringType, StructField, StructType

        fields = list(known.fields)
        if self.rows.has_header and self.rows.changes.extra == "evolve":
            there = {name.lower() for name in known.names}
            for name in names:
                for column in (column.strip() for column in self._header(spark, name)):
                    if column.lower() not in there:
                        there.add(column.lower())
                        fields.append(StructField(column, StringType()))
        return self._widened(spark, names, StructType(fields))

    def _widened(self, spark: SparkSession, names: Sequence[str], known: StructType) -> StructType:
        from pyspark.sql.types import StructType

        if self.rows.changes.wider != "evolve":
            return known
        read = replace(self.rows, changes=_UNTOLD)
        return StructType(
            widened(known.fields, lambda columns: read.read(spark, names, StructType(columns), places=False))
        )

    def _header(self, spark: SparkSession, name: str) -> tuple[str, ...]:
        return header_of(spark, self.rows.place, name, self.rows.options)

    def _by_spark(self, spark: SparkSession, names: Sequence[str], *, whole: bool = False) -> StructType:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        all_files = {"json": {"columnNameOfCorruptRecord": CORRUPT}, "parquet": {"mergeSchema": "true"}}
        nanos: dict[str, DataType] = {}
        for name in names if self.rows.format == "parquet" else ():
            nanos |= nanos_of(spark, self.rows.place, name)
        options = {**self.rows.options, **all_files[self.rows.format], **({"samplingratio": "1.0"} if whole else {})}
        try:
            with _any_letters(spark) if whole else contextlib.nullcontext():
                found = self.rows.reader(spark, names, options).load(self.rows.place.patterns(names)).schema
        except PySparkException as error:
            raise OriginError(
                f"The columns of the files in {self.rows.place.root} cannot be told: {error}",
                hint="Give the origin a schema, or move the file that does not belong there away.",
            ) from error
        return with_moments(StructType([column for column in found if column.name != CORRUPT]), nanos)


@contextlib.contextmanager
def _any_letters(spark: SparkSession) -> Iterator[None]:
    """Let names differ only in the case of letters; of those only one is a column, and it is not Spark who says so."""
    before = spark.conf.get(_CASE, "false")
    spark.conf.set(_CASE, "true")
    try:
        yield
    finally:
        spark.conf.set(_CASE, before or "false")
