"""Conversion of parquet files to rows. Each file stores its columns."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import IO, Any

from origins.errors import OriginError
from origins.files.bad_lines import Verdict
from origins.files.changes import RESCUED
from origins.files.file_scan import FileScan
from origins.files.file_systems import ReadableFile
from origins.files.listing import FilePattern
from origins.files.parquet_values import (
    OtherColumn,
    differs,
    judge_values,
    list_differences,
    make_rescued_sql,
    make_row_sql,
)
from origins.lazy import DataFrame, F, SparkSession, T, pa, pq, spark_errors
from origins.names import HIDDEN, quote_name, quote_text
from origins.schema import get_sql_type
from origins.spark_settings import NANOS_AS_LONG
from origins.spark_versions import find_platform, read_arrow_schema, read_arrow_type

_LEGACY = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
"""The notes that Spark writes into a file whose early dates may differ from their stored values."""
_OLD_SPARK = re.compile(rb"[0-2]\.|3\.0\.")
"""The versions of Spark that write no such note into files that may have such dates."""
ROWS = 8_192
"""The number of rows that are read at a time. It is small, because rows may be wide."""
_OURS = HIDDEN + "typed_"
_NANOS = HIDDEN + "nanos_"
_CUT = " nanoseconds since 1970 are not whole microseconds, and Spark has no finer unit"


@dataclass(frozen=True)
class Footer:
    """The treatment of files that have the same columns."""

    wrong: str = ""
    """Why all rows of the files are refused; empty if they are not."""
    extra: tuple[str, ...] = ()
    """The columns that are rescued."""
    others: tuple[OtherColumn, ...] = ()
    """The columns with other types than in the schema."""
    types: T.StructType | None = None
    """The columns with which the files are read; None if these are the schema's."""
    nanos: tuple[str, ...] = ()
    """The columns with moments in nanoseconds, in lower case."""


@dataclass(frozen=True, kw_only=True)
class ParquetRows:
    """Parquet files, and the rows to read from them."""

    files: FileScan
    names: Sequence[str]
    schema: T.StructType
    places: bool

    def read(self, spark: SparkSession) -> DataFrame:
        judged: dict[str, Footer] = {}
        groups: dict[Footer, list[str]] = {}
        wanted = {column.lower() for column in self.schema.names}
        for name, found in read_footers(spark, self.files.place, self.names):
            if found is None:
                groups.setdefault(Footer(), []).append(name)
                continue
            has_times = "timestamp" in found.simpleString()
            nanos = tuple(find_nanos(spark, self.files.place, name, wanted)) if has_times else ()
            key = f"{nanos} {found.json()}"
            if key not in judged:
                judged[key] = replace(self._judge_file(spark, name, found), nanos=nanos)
            groups.setdefault(judged[key], []).append(name)
        alike = len(groups) == 1
        frames = [self._read_group(spark, footer, names, alike=alike) for footer, names in groups.items()]
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _load(self, spark: SparkSession, footer: Footer, names: Sequence[str], schema: T.StructType) -> DataFrame:
        """Return the rows with the columns of this schema.

        For a moment in nanoseconds, a further column has the stored number.
        """
        nanos = {column.name: column.dataType for column in schema if column.name.lower() in footer.nanos}
        fields = [T.StructField(each.name, T.LongType()) if each.name in nanos else each for each in schema]
        rows = self.files.load(spark, names, T.StructType(fields), self.files.options, self.places)
        for number, (name, kind) in enumerate(nanos.items()):
            own = f"{_NANOS}{number}"
            rows = rows.withColumn(own, F.col(quote_name(name))).withColumn(name, F.expr(_make_moment_sql(own, kind)))
        return rows

    def _judge_nanos(self, footer: Footer, schema: T.StructType, verdict: Verdict) -> Verdict:
        """Return the verdict extended by moments in nanoseconds that are not whole microseconds."""
        nanos = [column.name for column in schema if column.name.lower() in footer.nanos]
        if not nanos:
            return verdict
        own = {name: f"{_NANOS}{number}" for number, name in enumerate(nanos)}
        cut = {name: f"coalesce({at} % 1000 <> 0, false)" for name, at in own.items()}
        messages = ", ".join(
            f"if({is_cut}, concat({quote_text(f'column {name}: ')}, {own[name]}, {quote_text(_CUT)}), null)"
            for name, is_cut in cut.items()
        )
        values = ", ".join(f"{own.get(name, quote_name(name))} as {quote_name(name)}" for name in schema.names)
        return replace(
            verdict,
            is_bad=" or ".join([f"({verdict.is_bad})", *cut.values()]),
            why=f"concat_ws('; ', nullif({verdict.why}, ''), {messages})",
            raw=f"to_json(struct({values}))",
        )

    def _judge_file(self, spark: SparkSession, name: str, found: T.StructType) -> Footer:
        empty = {column.name.lower() for column in found if isinstance(column.dataType, T.NullType)}
        is_read = bool(empty) or differs(self.schema, found)
        if is_read:
            try:
                found = read_schema(spark, self.files.place, name)
            except spark_errors.AnalysisException:
                return Footer()  # Spark has no such type; the error comes when the file is read
        passed = {"extra": {name.lower() for name in self.files.added}, "wider": empty, "other": empty}
        differences: dict[str, list[str]] = {}
        for kind, path, what in list_differences(self.schema, found):
            if path.lower() not in passed.get(kind, ()):
                differences.setdefault(kind, []).append(what)
        extra, changes = {*differences.get("extra", ())}, self.files.changes
        kept = tuple(name for name in found.names if name in extra) if changes.extra == "rescue" else ()
        path = self.files.place.join_path(name)
        wrong = changes.judge_file(path, differences, fix="Replace", rescues=len(kept) == len(extra))
        has = {column.name.lower(): column for column in found}
        both = [(column, has[column.name.lower()]) for column in self.schema if column.name.lower() in has]
        others = tuple(OtherColumn(column, own) for column, own in both if differs(column.dataType, own.dataType))
        if not (wrong or kept or others):
            return Footer()
        types = found if is_read else read_schema(spark, self.files.place, name)
        return Footer(wrong, types=types) if wrong else Footer(extra=kept, others=others, types=types)

    def _read_group(self, spark: SparkSession, footer: Footer, names: Sequence[str], *, alike: bool) -> DataFrame:
        """Return the rows of the files with this footer. Columns of other types are read with these types, and cast.

        They need no verdict if all files are `alike` and no value is bad.
        """
        changes, found = self.files.changes, self.schema if footer.types is None else footer.types
        known, has = ({column.name.lower(): column for column in columns} for columns in (self.schema, found))
        if footer.wrong:
            schema, raw = found, make_row_sql(found.names)
            verdict = Verdict(is_bad="true", why=quote_text(footer.wrong), raw=raw, is_change="true")
            values = {each.name: f"cast(null as {get_sql_type(each.dataType)})" for each in self.schema}
        else:
            kinds = {**known, **{other.own.name.lower(): other.own for other in footer.others}}
            read = [each for each in found if footer.others or each.name.lower() in known or each.name in footer.extra]
            columns = [(each.name, kinds.get(each.name.lower(), each)) for each in read]
            missing = [column for key, column in known.items() if key not in has]
            schema = T.StructType(
                [*(T.StructField(name, kind.dataType, metadata=kind.metadata) for name, kind in columns), *missing]
            )
            verdict = self._judge_nanos(footer, schema, judge_values(found.names, footer.others, changes))
            values = {other.wanted.name: other.value for other in footer.others}
        typed = {name: f"{_OURS}{number}" for number, name in enumerate(values)}
        rows = self._load(spark, footer, names, schema)
        rows = rows.selectExpr("*", *(f"{value} as {typed[name]}" for name, value in values.items()))
        given = {name: typed.get(name) or has.get(name.lower(), known[name.lower()]).name for name in self.schema.names}
        rescued = {RESCUED: make_rescued_sql(footer.others, footer.extra, changes)} if changes.rescues else {}
        files = replace(self.files, added={**self.files.added, **rescued})
        is_good = alike and footer.types is None and verdict.is_bad == "false"
        return files.select_columns(rows, given, None if is_good else verdict, self.places)


def read_footers(
    spark: SparkSession, place: FilePattern, names: Sequence[str]
) -> Iterator[tuple[str, T.StructType | None]]:
    """Yield the columns that each file declares; None for a file that cannot be read.

    A read of such a file gives the reason. Spark may know better which kind of time a column has. A Spark job per file
    runs only if this process cannot read it.
    """
    for name in names:
        if not place.is_read_here:
            yield name, read_schema(spark, place, name)
            continue
        try:
            found = pq.read_schema(_make_source(place.find_file(name)))
        except (pa.ArrowException, OSError):
            yield name, None
            continue
        try:
            yield name, read_arrow_schema(found)
        except (spark_errors.PySparkException, TypeError):
            yield name, read_schema(spark, place, name)


def read_schema(spark: SparkSession, place: FilePattern, name: str) -> T.StructType:
    """Return the columns of one file, as Spark reads them, except that moments in nanoseconds are moments."""
    nanos = find_nanos(spark, place, name)
    return replace_nanos(spark.read.parquet(place.make_patterns([name])[0]).schema, nanos)


def replace_nanos(schema: T.StructType, nanos: Mapping[str, T.DataType]) -> T.StructType:
    """Return Spark's schema with the types of these columns in place of numbers."""
    return T.StructType([T.StructField(each.name, nanos.get(each.name.lower(), each.dataType)) for each in schema])


def find_nanos(
    spark: SparkSession, place: FilePattern, name: str, wanted: Collection[str] = ()
) -> Mapping[str, T.DataType]:
    """Return the columns of a file that are moments in nanoseconds, in lower case, with their types.

    They are empty if this process does not read the file. From then on Spark reads such columns as numbers. Raise
    `OriginError` if a `wanted` column has such moments inside.
    """
    if not place.is_read_here:
        return {}
    try:
        columns = open_file(place.find_file(name)).schema_arrow
    except (pa.ArrowException, OSError):
        return {}
    inside = [each.name for each in columns if pa.types.is_nested(each.type) and "timestamp[ns" in str(each.type)]
    if deep := [column for column in inside if column.lower() in wanted]:
        raise OriginError(
            (
                f"{place.join_path(name)} has times in nanoseconds inside the column {deep[0]}, and Spark cannot read "
                "them."
            ),
            hint="Write the file with microseconds: pandas takes coerce_timestamps='us'. Or leave the column out.",
        )
    found = {
        each.name.lower(): read_arrow_type(each.type)
        for each in columns
        if pa.types.is_timestamp(each.type) and each.type.unit == "ns"
    }
    if found:
        if not NANOS_AS_LONG.can_be_touched(spark):
            raise OriginError(
                f"{place.join_path(name)} has times in nanoseconds in the column {next(iter(found))}, and "
                f"{find_platform(spark).value} cannot read them.",
                hint="Write the file with microseconds: pandas takes coerce_timestamps='us'.",
            )
        NANOS_AS_LONG.write(spark, "true")
    return found


def _make_moment_sql(nanos: str, kind: T.DataType) -> str:
    """Return SQL for the moment this number of nanoseconds after the start of 1970, with the type of a column."""
    micros = f"({nanos} div 1000)"
    if kind.typeName() == "timestamp_ntz":
        seconds = f"cast(cast({micros} as decimal(18, 0)) / 1000000 as decimal(18, 6))"
        return f"timestamp_ntz'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {seconds})"
    return f"timestamp_micros({micros})"


def has_old_days(footer: pq.FileMetaData) -> bool:
    """Return whether Spark may change early days, by the file's information about its writer."""
    noted: Mapping[bytes, bytes] = footer.metadata or {}
    return not _LEGACY.isdisjoint(noted) or _OLD_SPARK.match(noted.get(b"org.apache.spark.version", b"")) is not None


def count_rows(file: ReadableFile) -> int:
    """Return the row count that the file declares."""
    found = open_file(file).metadata
    return sum(found.row_group(at).num_rows for at in range(found.num_row_groups))


def open_file(file: ReadableFile | bytes) -> pq.ParquetFile:
    """Return the file, opened so that moments in Spark's older format do not overflow."""
    return pq.ParquetFile(_make_source(file), coerce_int96_timestamp_unit="us")


def _make_source(file: ReadableFile | bytes) -> Path | IO[Any]:
    """Return the file, or its content, in a form that pyarrow accepts. pyarrow opens paths itself."""
    if isinstance(file, bytes):
        return io.BytesIO(file)
    return file if isinstance(file, Path) else file.open("rb")
