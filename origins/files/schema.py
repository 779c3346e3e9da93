"""The columns of files: inferred once if no schema is given, and again if the schema evolves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from origins.errors import OriginError
from origins.files.bad_lines import CORRUPT
from origins.files.changes import Changes, grow_schema
from origins.files.csv_header import read_header
from origins.files.file_systems import File
from origins.files.formats import FileRows
from origins.files.json_in_process import are_lines_plain
from origins.files.json_lines import LINE
from origins.files.options import is_whole
from origins.files.parquet_rows import find_nanos, read_footers, read_schema, replace_nanos
from origins.lazy import T, spark_errors
from origins.nack import REFUSED
from origins.names import quote_name, quote_text
from origins.quick_dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Read = Callable[[list[T.StructField]], DataFrame]

_CASE = "spark.sql.caseSensitive"
_DOUBLED = "COLUMN_ALREADY_EXISTS"
"""Spark's condition for a key that a JSON object has twice."""
_OF_FILES = ("encoding", "linesep", "multiline")
"""The options that decide how text is split into lines."""
_UNTOLD = Changes(missing="evolve", extra="ignore")
"""The policies with which files are searched for further columns."""


@dataclass(frozen=True, kw_only=True)
class FileSchema:
    """The inference of columns of files that are read with these options."""

    rows: FileRows

    def infer(self, spark: SparkSession, files: Sequence[File]) -> T.StructType | None:
        """Return the columns of these files; None if all are empty."""
        names = [file.name for file in files if file.size]
        if not names:
            return None
        if self.rows.format in ("json", "parquet"):
            found = self._infer_by_spark(spark, names)
            if not found.names:
                raise OriginError(
                    f"No file in {self.rows.place.root} could be read as {self.rows.format}, so its columns are "
                    "unknown.",
                    hint="Give the origin a schema; lines that do not fit it go to the DLQ.",
                )
            return found
        header = self._read_header(spark, names[0]) if self.rows.format == "csv" else ("value",)
        if self.rows.format == "csv" and not self.rows.has_header:
            header = tuple(f"_c{index}" for index in range(len(header)))
        return T.StructType([T.StructField(name, T.StringType()) for name in header]) if header else None

    def infer_beyond(self, spark: SparkSession, names: Sequence[str], known: T.StructType) -> T.StructType:
        """Return the columns of these files that are unknown, or have another type; known columns may be among them.

        For new columns of CSV only headers are read. Spark does not read small JSON files without new columns.
        """
        if self.rows.format == "json":
            if self._is_known(names, known):
                return T.StructType()
            return grow_schema(
                self._widen(spark, names, known), self._infer_by_spark(spark, names, whole=True), self.rows.changes
            )
        if self.rows.format == "parquet":
            kinds = {
                found.json(): name for name, found in read_footers(spark, self.rows.place, names) if found is not None
            }
            each = (read_schema(spark, self.rows.place, name) for name in kinds.values())
            return reduce(lambda schema, found: grow_schema(schema, found, self.rows.changes), each, known)
        return self._infer_csv(spark, names, known) if self.rows.format == "csv" else T.StructType()

    def _is_known(self, names: Sequence[str], known: T.StructType) -> bool:
        if self.rows.changes.wider == "evolve" or not self.rows.place.is_read_here:
            return False
        files, whole = [*map(self.rows.place.find_file, names)], is_whole(self.rows.options)
        return are_lines_plain(files, known, extra=True, missing=False, doubled=False, whole_file=whole)

    def _infer_csv(self, spark: SparkSession, names: Sequence[str], known: T.StructType) -> T.StructType:
        fields = list(known.fields)
        if self.rows.has_header and self.rows.changes.extra == "evolve":
            there = {name.lower() for name in known.names}
            for name in names:
                for column in (column.strip() for column in self._read_header(spark, name)):
                    if column.lower() not in there:
                        there.add(column.lower())
                        fields.append(T.StructField(column, T.StringType()))
        return self._widen(spark, names, T.StructType(fields))

    def _widen(self, spark: SparkSession, names: Sequence[str], known: T.StructType) -> T.StructType:
        if self.rows.changes.wider != "evolve":
            return known
        read = replace(self.rows, changes=_UNTOLD)
        return T.StructType(
            widen_columns(known.fields, lambda columns: read.read(spark, names, T.StructType(columns), places=False))
        )

    def _read_header(self, spark: SparkSession, name: str) -> tuple[str, ...]:
        return read_header(spark, self.rows.place, name, self.rows.options)

    def _infer_by_spark(self, spark: SparkSession, names: Sequence[str], *, whole: bool = False) -> T.StructType:
        all_files = {"json": {"columnNameOfCorruptRecord": CORRUPT}, "parquet": {"mergeSchema": "true"}}
        nanos: dict[str, T.DataType] = {}
        for name in names if self.rows.format == "parquet" else ():
            nanos |= find_nanos(spark, self.rows.place, name)
        options = {**self.rows.options, **all_files[self.rows.format], **({"samplingratio": "1.0"} if whole else {})}
        try:
            with _ignore_case(spark) if whole else contextlib.nullcontext():
                try:
                    reader = self.rows.make_reader(spark, names, options)
                    found = reader.load(self.rows.place.make_patterns(names)).schema
                except spark_errors.PySparkException as error:
                    if self.rows.format != "json" or error.getCondition() != _DOUBLED:
                        raise
                    found = self._infer_by_undoubled(spark, names, options)
        except spark_errors.PySparkException as error:
            raise OriginError(
                f"The columns of the files in {self.rows.place.root} cannot be found: {error}",
                hint="Give the origin a schema, or move the odd file out of the path.",
            ) from error
        return replace_nanos(T.StructType([column for column in found if column.name != CORRUPT]), nanos)

    def _infer_by_undoubled(
        self, spark: SparkSession, names: Sequence[str], options: Mapping[str, str]
    ) -> T.StructType:
        """Return the columns of the JSON objects in which no key occurs twice."""
        reading = {name: value for name, value in options.items() if name not in _OF_FILES}
        is_sound = f"try_parse_json({quote_name(LINE)}) is not null"
        lines = self.rows.load_lines(spark, names, places=False).where(is_sound)
        return spark.read.options(**reading).json(lines.select(LINE)).schema


@contextlib.contextmanager
def _ignore_case(spark: SparkSession) -> Iterator[None]:
    """Allow names that differ only in case. Only one of them becomes a column, and Wherry decides which one."""
    before = spark.conf.get(_CASE, "false")
    spark.conf.set(_CASE, "true")
    try:
        yield
    finally:
        spark.conf.set(_CASE, before or "false")


_WHOLE = r"^[+-]?([0-9]{1,38})()$"
_NUMBER = r"^[+-]?([0-9]*)[.]?([0-9]*)$"


def widen_columns(columns: Sequence[T.StructField], read: Read) -> list[T.StructField]:
    """Return the columns, with types wide enough for their numbers. Text that is not a number widens nothing.

    `read` returns the rows of the files, lazily, with the given columns. It takes one Spark job, if any column is a
    number.
    """
    numbers = [column for column in columns if isinstance(column.dataType, (*_list_integer_types(), T.DecimalType))]
    if not numbers:
        return list(columns)
    names = {column.name for column in numbers}
    as_text = [T.StructField(each.name, T.StringType()) if each.name in names else each for each in columns]
    rows = read(as_text).where(f"{REFUSED} is null")
    asked = [wanted for column in numbers for wanted in _make_width_queries(column)]
    found = iter(rows.selectExpr(*asked).collect()[0])
    wide = {
        column.name: _widen_column(column, [next(found) for _ in _make_width_queries(column)]) for column in numbers
    }
    return [wide.get(column.name, column) for column in columns]


def _make_width_queries(column: T.StructField) -> list[str]:
    """Return SQL over all values: the digits before and after the point, the largest whole number, and an overflow."""
    value = f"trim({quote_name(column.name)})"
    pattern = _NUMBER if column.dataType.typeName() == "decimal" else _WHOLE

    def digits(group: int) -> str:
        is_number = f"{value} rlike {quote_text(pattern)}"
        return (
            f"max(case when {is_number} then char_length(regexp_extract({value}, {quote_text(pattern)}, {group})) end)"
        )

    whole = f"try_cast({value} as long)"
    beyond = f"max(case when {value} rlike {quote_text(_WHOLE)} and {whole} is null then 1 else 0 end)"
    return [digits(1), digits(2), f"max(if({whole} < 0, ~{whole}, {whole}))", beyond]


def _widen_column(column: T.StructField, found: Sequence[int | None]) -> T.StructField:
    before, behind, largest, beyond = (each or 0 for each in found)
    kind = column.dataType
    if isinstance(kind, T.DecimalType):
        scale, digits = max(kind.scale, behind), max(kind.precision - kind.scale, before)
        return T.StructField(column.name, T.DecimalType(digits + scale, scale)) if digits + scale <= 38 else column
    if beyond:
        return T.StructField(column.name, T.DecimalType(max(before, 20), 0))
    ladder = _list_integer_types()
    fits = (each for each in ladder[ladder.index(type(kind)) :] if largest < 1 << (8 * (1 << ladder.index(each)) - 1))
    return T.StructField(column.name, next(fits)())


def _list_integer_types() -> tuple[type[T.DataType], ...]:
    return (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
