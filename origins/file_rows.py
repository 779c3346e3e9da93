"""How files of each format become rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT, Verdict
from origins.changes import RESCUED, STOPS, Changes
from origins.csv_header import Header, header_of, in_order
from origins.csv_rows import CsvRows
from origins.errors import OriginError
from origins.exact import exact, finer_columns, is_finer
from origins.file_columns import FILE, METADATA, check_folders, folder_columns, from_folder
from origins.file_options import ENCODINGS
from origins.json_changes import JsonChanges
from origins.json_here import rows_of
from origins.json_keys import none_differs
from origins.json_lines import LINE, is_more, of_json, of_json_text, of_more, parsed
from origins.json_plain import all_plain, none_changes
from origins.json_rescue import JsonRescue
from origins.json_tail import is_whole, none_has_tail
from origins.listing import Place, without_scheme
from origins.nack import REFUSED
from origins.names import HIDDEN, below, quoted, text
from origins.origin import PLACE
from origins.parquet_rows import ParquetRows

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_RAW_FILES = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
"""Hadoop's file system with checksums cannot open a file that has `:` in its name; the one beneath it can."""
_ROW = "monotonically_increasing_id()"
_PACKED = frozenset({".bz2", ".deflate", ".gz", ".lz4", ".lzo", ".snappy", ".xz", ".zst", ".zstd"})
"""The endings by which Spark knows that a file is to be unpacked."""


@dataclass(frozen=True, kw_only=True)
class FileRows:
    """A reader of files of one format."""

    format: str
    place: Place
    options: Mapping[str, str]
    """As `origins.file_options.completed` gives them."""
    changes: Changes = Changes()  # noqa: RUF009  (it is frozen)
    metadata: Sequence[str] = ()
    """The columns that say what is known of the file."""
    told: Mapping[str, str] = field(default_factory=dict)
    """The columns that are in no line: for each, SQL over `FILE`."""
    name: str = ""
    """The only file that is read, if there is only one: its rows need not be asked where they come from."""

    @property
    def has_header(self) -> bool:
        """Whether the files begin with the names of their columns."""
        return self.format == "csv" and self.options.get("header", "true") == "true"

    def read(self, spark: SparkSession, names: Sequence[str], schema: StructType, *, places: bool) -> DataFrame:
        """The rows of these files, lazily: the schema's columns, `REFUSED` for json and csv, `PLACE` if asked for.

        Why a line is refused is said in full only with `places`: a batch that raises at the first one needs no more.
        """
        from pyspark.sql.types import StructType

        frames = []
        for keys, group in self._by_folders(names, schema).items():
            from_folders = [column for column in schema if column.name.lower() in keys]
            check_folders(spark, self.place, group, from_folders)
            told = {**self.told, **{column.name: from_folder(self.place.root, column) for column in from_folders}}
            told.update({name: METADATA[name][1] for name in self.metadata if name in schema.names})
            told.update({RESCUED: "cast(null as string)"} if self.changes.rescues else {})
            lines = StructType([column for column in schema if column.name not in told])
            only = group[0] if len(group) == 1 else ""
            frame = replace(self, told=told, name=only)._lines_as_rows(spark, group, lines, places=places)
            if told:
                besides = [name for name in frame.columns if name not in schema.names]
                frame = frame.select(*map(quoted, [*schema.names, *besides]))
            frames.append(frame)
        return reduce(lambda one, other: one.unionByName(other), frames)

    def read_here(self, spark: SparkSession, names: Sequence[str], schema: StructType) -> pyarrow.Table | None:
        """The same rows, of a few files on this machine and without `told` and `metadata`, read in this process; None
        where Spark has to read them."""
        import pyarrow as pa

        odd = any(folder_columns(name) or Path(name).suffix.lower() in _PACKED for name in names)
        if self.format != "json" or self.changes.rescues or odd:
            return None
        wrong = JsonChanges(schema=schema, changes=self.changes, options=self.options)
        tables = []
        for name in names:
            found = rows_of(
                Path(without_scheme(self.place.full(name))).read_bytes(),
                schema,
                extra=wrong.asks_extra,
                missing=wrong.asks_missing,
                zone=lambda: str(spark.conf.get("spark.sql.session.timeZone")),
            )
            if found is None:
                return None
            tables.append(found)
        return pa.concat_tables(tables) if tables else None

    def _by_folders(self, names: Sequence[str], schema: StructType) -> dict[frozenset[str], list[str]]:
        """The files by which of the columns their folders give."""
        wanted = {name.lower() for name in schema.names} - set(self.metadata)
        groups: dict[frozenset[str], list[str]] = {}
        for name in names:
            keys = folder_columns(name).keys()
            if self.changes.extra != "ignore" and not keys <= wanted:
                raise OriginError(
                    f"{self.place.full(name)} lies in a folder that gives the column {min(keys - wanted)}, "
                    "which the files before it had not.",
                    hint="Move it out of the path, or give the origin a schema.",
                )
            groups.setdefault(frozenset(keys & wanted), []).append(name)
        return groups

    def _lines_as_rows(
        self, spark: SparkSession, names: Sequence[str], schema: StructType, *, places: bool
    ) -> DataFrame:
        if self.format == "json" and not schema.names:
            raise OriginError(
                f"No column of the schema is in the lines of {self.place.root} themselves.",
                hint="Give the origin a schema with at least one column of the files.",
            )
        if self.format == "csv":
            groups = self._by_header(spark, names, schema)
            frames = [
                CsvRows(files=self, names=group, header=header, schema=schema, places=places).read(spark)
                for header, group in groups.items()
            ]
            return reduce(lambda one, other: one.unionByName(other), frames)
        if self.format == "json":
            return self._json(spark, names, schema, places)
        if self.format == "parquet":
            return ParquetRows(files=self, names=names, schema=schema, places=places).read(spark)
        frame = self.load(spark, names, schema, self.options, places)
        return self.selected(frame, dict(zip(schema.names, schema.names, strict=True)), None, places)

    def _by_header(self, spark: SparkSession, names: Sequence[str], schema: StructType) -> dict[Header, list[str]]:
        """CSV files by the columns that they have, in their order."""
        given = Header(tuple(schema.names))
        if not self.has_header:
            return {given: list(names)}
        groups: dict[Header, list[str]] = {}
        for name in names:
            found = header_of(spark, self.place, name, self.options)
            path = self.place.full(name)
            header = in_order(found, schema.names, path, self.changes, besides=self.told) if found else given
            groups.setdefault(header, []).append(name)
        return groups

    def _json(self, spark: SparkSession, names: Sequence[str], schema: StructType, places: bool) -> DataFrame:
        """JSON by Spark's reader, which stops behind a line's first value without a word, and which leaves out keys
        that it does not know; so where a line may have more on it, or other keys, such lines come once more, refused.
        With `places`, and where anything is rescued, every line comes once, the slower way, out of its text."""
        from pyspark.sql import functions as F

        given = dict(zip(schema.names, schema.names, strict=True))
        wrong = JsonChanges(schema=schema, changes=self.changes, options=self.options)
        clean = self._is_seen_clean(names, wrong)
        as_it_is = clean and wrong.only_keys and not (places and is_whole(self.options))
        if wrong.apart and not as_it_is and (places or self.changes.rescues):
            apart = JsonRescue(wrong=wrong)
            files = replace(self, told={**self.told, RESCUED: apart.kept}) if self.changes.rescues else self
            return files.selected(apart.rows(self.lines(spark, names, places)), given, apart.verdict(), places)
        fine = [column for column in schema if is_finer(column.dataType)]
        if places and (fine or not clean or is_whole(self.options)):
            return self.selected(parsed(self.lines(spark, names, places), wrong), given, of_json_text(wrong), places)
        frame = self.load(spark, names, _with_corrupt(finer_columns(schema)), self.options, places)
        typed = {column.name: f"{HIDDEN}{index}" for index, column in enumerate(fine)}
        frame = frame.selectExpr(
            "*", *(f"{exact(quoted(each.name), each.dataType)} as {typed[each.name]}" for each in fine)
        )
        verdict = of_json(schema, self.options, typed, in_words=places)
        rows = self.selected(frame, {**given, **typed}, verdict, places)
        if clean:
            return rows
        nothing = [F.lit(None).cast(column.dataType).alias(column.name) for column in schema]
        more = self.lines(spark, names, places).where(is_more(wrong)).select("*", *nothing)
        return rows.union(self.selected(more, given, of_more(wrong), places))

    def _is_seen_clean(self, names: Sequence[str], wrong: JsonChanges) -> bool:
        """Whether a look at small files on this machine shows that no line has more on it than it may, or other
        keys, or values that Spark's reader changes."""
        if not self.place.local or self.options.keys() & {"linesep", "encoding"}:
            return False
        files = [Path(self.place.full(name).removeprefix("file:")) for name in names]
        schema, whole = wrong.schema, is_whole(self.options)
        counts = {"extra": wrong.asks_extra, "missing": wrong.asks_missing}
        return (not whole and all_plain(files, schema, **counts)) or (
            none_has_tail(files, whole_file=whole)
            and none_differs(files, schema, **counts, whole_file=whole)
            and none_changes(files, schema, doubled=wrong.asks_doubled, whole_file=whole)
        )

    def lines(self, spark: SparkSession, names: Sequence[str], places: bool) -> DataFrame:
        """The text of JSON in the column `LINE`: lines, or whole files with `multiLine`."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        options = {name: self.options[name] for name in ("linesep", "encoding") if name in self.options}
        whole = {"wholetext": "true"} if is_whole(self.options) else {}
        rows = replace(self, format="text")
        frame = rows.load(spark, names, StructType([StructField(LINE, StringType())]), {**options, **whole}, places)
        encoding = options.get("encoding", "utf-8")
        if encoding.lower() in ("utf-8", "utf8") or encoding.upper() not in ENCODINGS:
            return frame
        if encoding.upper() == "US-ASCII":
            encoding = "ISO-8859-1"  # Other bytes raise in the one, and are characters that show in the other.
        return frame.withColumn(LINE, F.decode(F.col(LINE).cast("binary"), encoding))

    def load(
        self,
        spark: SparkSession,
        names: Sequence[str],
        schema: StructType,
        options: Mapping[str, str],
        places: bool,
    ) -> DataFrame:
        frame = self.reader(spark, names, options).schema(schema).load(self.place.patterns(names))
        needs_file = places or self.told
        return frame.select("*", frame.metadataColumn("_metadata").alias(FILE)) if needs_file else frame

    def reader(self, spark: SparkSession, names: Sequence[str], options: Mapping[str, str]) -> DataFrameReader:
        reader = spark.read.format(self.format).options(**options).option("columnNameOfCorruptRecord", CORRUPT)
        has_colon = self.place.local and any(":" in name for name in names)
        return reader.options(**_RAW_FILES) if has_colon else reader

    def selected(
        self, frame: DataFrame, columns: Mapping[str, str], verdict: Verdict | None, places: bool
    ) -> DataFrame:
        """The columns under their names, beside them the verdict and the place."""
        from pyspark.sql import functions as F

        path = text(self.name) if self.name else below(self.place.root, f"{FILE}.file_path")
        chosen = [F.col(quoted(given)).alias(name) for name, given in columns.items()]
        chosen += [F.expr(value).alias(name) for name, value in self.told.items()]
        if verdict:
            why = f"concat({path}, ': ', {verdict.why})" if places else verdict.why
            if places and verdict.stops != "false":
                stop = f"raise_error(concat({text(STOPS)}, {why}, {text(' ' + STOPS.strip())}))"
                why = f"if({verdict.stops}, cast({stop} as string), {why})"
            said = f"'message', {why}, 'raw', {verdict.raw}"
            refusal = f"named_struct('code', 'PARSE', {said})"
            if verdict.is_change != "false":
                refusal = f"if({verdict.is_change}, named_struct('code', 'SCHEMA', {said}), {refusal})"
            chosen.append(F.expr(f"case when {verdict.is_bad} then {refusal} end").alias(REFUSED))
        if places:
            within = f"'block', {FILE}.file_block_start, 'row', {_ROW}"
            if self.format == "parquet":
                within = f"'block', 0L, 'row', {FILE}.row_index"
            place = f"named_struct('part', {path}, {within})"
            chosen.append(F.expr(place).alias(PLACE))
        return frame.select(*chosen)


def _with_corrupt(schema: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*schema.fields, StructField(CORRUPT, StringType())])
