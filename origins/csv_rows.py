"""How CSV files of one header become rows.

Spark's reader closes open quotes without a word, and makes question marks of bytes that are no text. So where files may
have such lines, these come once more, refused. A batch that is decided row by row reads every line once, the slower
way, out of its text. With `multiLine` a file with an open quote is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT, Verdict, as_map, typed_field
from origins.changes import RESCUED
from origins.csv_header import PACKED, Header
from origins.csv_quotes import (
    NO_TEXT,
    OPEN,
    is_no_text,
    is_open,
    is_other_text,
    is_whole,
    none_is_open,
    opens,
    was_no_text,
)
from origins.csv_verdict import CsvVerdict
from origins.file_columns import FILE
from origins.json_lines import LINE
from origins.listing import without_scheme
from origins.names import HIDDEN, quoted, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from origins.file_rows import FileRows

_PARSED = HIDDEN + "parsed"
_FIELDS = frozenset({"sep", "delimiter", "quote", "escape"})
_WHOLE_LINES = {"sep": "\uffff", "quote": "\ufffe", "escape": "\ufffe", "header": "true", "columnpruning": "false"}
"""Options under which a line of CSV is one field: no text has these two characters."""
_ONCE = "spark_partition_id() >= 0"
"""True, in a way that keeps the optimizer from computing twice what stands behind it."""


@dataclass(frozen=True, kw_only=True)
class CsvRows:
    """CSV files of one header, and the rows that are wanted of them."""

    files: FileRows
    names: Sequence[str]
    header: Header
    schema: StructType
    places: bool

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows, lazily, each with its verdict."""
        clean = self._is_seen_closed()
        if is_whole(self._options) and not clean:
            return self._over_lines(spark)
        if (self.places or self.files.changes.rescues) and not is_whole(self._options):
            return self._out_of_lines(spark, clean)
        others = {was_no_text(quoted(name), self._options): NO_TEXT for name in self.header.columns}
        rows = self._by_reader(spark, self.names, others if is_other_text(self._options) and not clean else {})
        if clean:
            return rows
        line = quoted(LINE)
        return rows.union(
            self._refused(spark, self.names, f"{is_open(line, self._options)} or {is_no_text(line, self._options)}")
        )

    @property
    def _options(self) -> Mapping[str, str]:
        return self.files.options

    def _is_seen_closed(self) -> bool:
        """Whether a look at small files on this machine shows that no line has an open quote, or bytes that are no
        text."""
        looks = self.files.place.local and not any(name.endswith(PACKED) for name in self.names)
        return looks and none_is_open(self._paths(self.names), self._options)

    def _over_lines(self, spark: SparkSession) -> DataFrame:
        local = self.names if self.files.place.local else ()
        bad = opens(self._paths(name for name in local if not name.endswith(PACKED)), self._options)
        broken = [name for name, path in zip(self.names, self._paths(self.names), strict=True) if path in bad]
        others = [name for name in self.names if name not in broken]
        suspect = {was_no_text(quoted(name), self._options): NO_TEXT for name in self.header.columns}
        frames = [self._by_reader(spark, others, suspect)] if others else []
        frames += [self._refused(spark, broken, "true")] if broken else []
        return reduce(lambda one, other: one.union(other), frames)

    def _by_reader(self, spark: SparkSession, names: Sequence[str], suspect: Mapping[str, str]) -> DataFrame:
        """Fields are read as text, so that it is cast that decides what has which type."""
        options = {**self._options, "header": str(self.files.has_header).lower(), "columnpruning": "false"}
        frame = self.files.load(spark, names, _texts([*self.header.columns, CORRUPT]), options, self.places)
        return self._typed(frame, options, suspect)

    def _out_of_lines(self, spark: SparkSession, clean: bool) -> DataFrame:
        """Whole lines by Spark's reader, which knows headers and comments, and their fields out of these."""
        from pyspark.sql import functions as F

        kept = {"comment", "linesep", "encoding", "charset"} & self._options.keys()
        whole = {**{name: self._options[name] for name in kept}, **_WHOLE_LINES}
        whole["header"] = str(self.files.has_header).lower()
        frame = self.files.load(spark, self.names, _texts([LINE, CORRUPT]), whole, places=True)
        frame = frame.select(FILE, F.coalesce(CORRUPT, LINE).alias(LINE))
        spent = {*_WHOLE_LINES, *kept} - _FIELDS
        fields = {name: value for name, value in self._options.items() if name not in spent}
        columns = text(", ".join(f"{quoted(name)} string" for name in [*self.header.columns, CORRUPT]))
        parsed = F.when(F.expr(_ONCE), F.expr(f"from_csv({quoted(LINE)}, {columns}, {as_map(fields)})"))
        frame = frame.withColumn(_PARSED, parsed).select(FILE, LINE, f"{_PARSED}.*")
        line = quoted(LINE)
        suspect = {is_open(line, self._options): OPEN, was_no_text(line, self._options): NO_TEXT}
        return self._typed(frame, fields, {} if clean else suspect, line=line)

    def _typed(
        self, frame: DataFrame, options: Mapping[str, str], suspect: Mapping[str, str], *, line: str = "NULL"
    ) -> DataFrame:
        """Fields of text with the types of the schema, and the verdict on each line."""
        from pyspark.sql.types import StringType

        typed = {
            column: f"{HIDDEN}{index}"
            for index, column in enumerate(self.schema)
            if not isinstance(column.dataType, StringType)
        }
        absent = [column.name for column in self.schema if column.name not in self.header.columns]
        frame = frame.selectExpr("*", *(f"cast(null as string) as {quoted(name)}" for name in absent))
        changes = self.files.changes
        judged = CsvVerdict(
            header=self.header, typed=typed, options=options, changes=changes, suspect=suspect, line=line
        )
        fields = [f"case when {_ONCE} then {typed_field(column, options)} end as {typed[column]}" for column in typed]
        given = {column.name: typed.get(column, column.name) for column in self.schema}
        files = self.files
        if changes.rescues:
            files = replace(files, told={**files.told, RESCUED: judged.kept})
        if changes.rescues:
            frame = frame.selectExpr("*", *fields)
            fits = {
                column.name: judged.fitting(column) if column in typed else quoted(column.name)
                for column in self.schema
            }
            is_line = f"not ({judged.no_line})" if changes.corrupt == "rescue" else "true"
            fields = [f"case when {is_line} then {at} end as {HIDDEN}whole_{i}" for i, at in enumerate(fits.values())]
            given = {name: f"{HIDDEN}whole_{index}" for index, name in enumerate(given)}
        return files.selected(frame.selectExpr("*", *fields), given, judged.of(in_words=self.places), self.places)

    def _refused(self, spark: SparkSession, names: Sequence[str], condition: str) -> DataFrame:
        """The lines for which a condition holds, or with `multiLine` whole files, all of them refused or rescued."""
        from pyspark.sql import functions as F

        nothing = [F.lit(None).cast(column.dataType).alias(column.name) for column in self.schema]
        lines = self.files.lines(spark, names, self.places).where(condition).select("*", *nothing)
        is_kept = self.files.changes.corrupt == "rescue" and not self.header.wrong
        stops = str(self.files.changes.corrupt == "stop").lower()
        verdict = Verdict(is_bad=str(not is_kept).lower(), why=text(OPEN), raw=quoted(LINE), stops=stops)
        kept = {RESCUED: f"to_json(named_struct('_line', {quoted(LINE)}))"} if is_kept else {}
        given = dict(zip(self.schema.names, self.schema.names, strict=True))
        return replace(self.files, told={**self.files.told, **kept}).selected(lines, given, verdict, self.places)

    def _paths(self, names: Iterable[str]) -> list[Path]:
        return [Path(without_scheme(self.files.place.full(name))) for name in names]


def _texts(names: Sequence[str]) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField(name, StringType()) for name in names])
