"""How files of each format become rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT, Verdict
from origins.csv_header import header_of, in_order
from origins.csv_rows import CsvRows
from origins.errors import OriginError
from origins.file_columns import FILE, METADATA, check_folders, folder_columns, from_folder
from origins.file_options import ENCODINGS
from origins.json_lines import LINE, has_more, is_whole, of_json, of_json_text, of_more, parsed
from origins.json_tail import none_has_tail
from origins.listing import File, Place
from origins.nack import REFUSED
from origins.names import below, quoted
from origins.origin import PLACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_RAW_FILES = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
"""Hadoop's file system with checksums cannot open a file that has `:` in its name; the one beneath it can."""
_ROW = "monotonically_increasing_id()"


@dataclass(frozen=True, kw_only=True)
class FileRows:
    """A reader of files of one format."""

    format: str
    place: Place
    options: Mapping[str, str]
    """As `origins.file_options.completed` gives them."""
    metadata: Sequence[str] = ()
    """The columns that say what is known of the file."""
    told: Mapping[str, str] = field(default_factory=dict)
    """The columns that are in no line: for each, SQL over `FILE`."""

    @property
    def has_header(self) -> bool:
        """Whether the files begin with the names of their columns."""
        return self.format == "csv" and self.options.get("header", "true") == "true"

    def read(
        self, spark: SparkSession, names: Sequence[str], schema: StructType, *, places: bool, exact: bool
    ) -> DataFrame:
        """The rows of these files, lazily: the schema's columns, `REFUSED` for json and csv, `PLACE` if asked for.

        Why a line is refused is said in full only with `places`: a batch that raises at the first one needs no more.
        With `exact` neither a CSV file nor a folder may have columns that the schema has not.
        """
        from pyspark.sql.types import StructType

        frames = []
        for keys, group in self._by_folders(names, schema, exact).items():
            from_folders = [column for column in schema if column.name.lower() in keys]
            check_folders(spark, self.place, group, from_folders)
            told = {column.name: from_folder(self.place.root, column) for column in from_folders}
            told.update({name: METADATA[name][1] for name in self.metadata if name in schema.names})
            lines = StructType([column for column in schema if column.name not in told])
            frame = replace(self, told=told)._lines_as_rows(spark, group, lines, places=places, exact=exact)
            if told:
                besides = [name for name in frame.columns if name not in schema.names]
                frame = frame.select(*map(quoted, [*schema.names, *besides]))
            frames.append(frame)
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _by_folders(self, names: Sequence[str], schema: StructType, exact: bool) -> dict[frozenset[str], list[str]]:
        """The files by which of the columns their folders give."""
        wanted = {name.lower() for name in schema.names} - set(self.metadata)
        groups: dict[frozenset[str], list[str]] = {}
        for name in names:
            keys = folder_columns(name).keys()
            if exact and not keys <= wanted:
                raise OriginError(
                    f"{self.place.full(name)} lies in a folder that gives the column {min(keys - wanted)}, "
                    "which the files before it had not.",
                    hint="Move it out of the path, or give the origin a schema.",
                )
            groups.setdefault(frozenset(keys & wanted), []).append(name)
        return groups

    def _lines_as_rows(
        self, spark: SparkSession, names: Sequence[str], schema: StructType, *, places: bool, exact: bool
    ) -> DataFrame:
        if self.format == "json" and not schema.names:
            raise OriginError(
                f"No column of the schema is in the lines of {self.place.root} themselves.",
                hint="Give the origin a schema with at least one column of the files.",
            )
        if self.format == "csv":
            groups = self._by_header(spark, names, schema, exact)
            frames = [
                CsvRows(files=self, names=group, header=header, schema=schema, places=places).read(spark)
                for header, group in groups.items()
            ]
            return reduce(lambda one, other: one.unionByName(other), frames)
        if self.format == "json":
            return self._json(spark, names, schema, places)
        frame = self.load(spark, names, schema, self.options, places)
        return self.selected(frame, dict(zip(schema.names, schema.names, strict=True)), None, places)

    def infer(self, spark: SparkSession, files: Sequence[File]) -> StructType | None:
        """The columns that these files have; None when there is nothing in them."""
        from pyspark.sql.types import StringType, StructField, StructType

        names = [file.name for file in files if file.size]
        if not names:
            return None
        if self.format in ("json", "parquet"):
            return self._inferred_by_spark(spark, names)
        header = header_of(spark, self.place, names[0], self.options) if self.format == "csv" else ("value",)
        if self.format == "csv" and not self.has_header:
            header = tuple(f"_c{index}" for index in range(len(header)))
        return StructType([StructField(name, StringType()) for name in header]) if header else None

    def _inferred_by_spark(self, spark: SparkSession, names: Sequence[str]) -> StructType:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        all_files = {"json": {"columnNameOfCorruptRecord": CORRUPT}, "parquet": {"mergeSchema": "true"}}
        options = {**self.options, **all_files[self.format]}
        try:
            found = self._reader(spark, names, options).load(self.place.patterns(names)).schema
        except PySparkException as error:
            raise OriginError(
                f"The columns of the files in {self.place.root} cannot be told: {error}",
                hint="Give the origin a schema, or move the file that does not belong there away.",
            ) from error
        columns = [column for column in found if column.name != CORRUPT]
        if not columns:
            raise OriginError(
                f"Nothing in {self.place.root} could be read as {self.format}, so its columns are not known.",
                hint="Give the origin a schema; lines that do not fit it go to the DLQ.",
            )
        return StructType(columns)

    def _by_header(
        self, spark: SparkSession, names: Sequence[str], schema: StructType, exact: bool
    ) -> dict[tuple[str, ...], list[str]]:
        """CSV files by the order of columns that they have."""
        if not self.has_header:
            return {tuple(schema.names): list(names)}
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            header = header_of(spark, self.place, name, self.options)
            columns = tuple(schema.names)
            if header:
                columns = in_order(header, columns, self.place.full(name), exact, besides=self.told)
            groups.setdefault(columns, []).append(name)
        return groups

    def _json(self, spark: SparkSession, names: Sequence[str], schema: StructType, places: bool) -> DataFrame:
        """JSON by Spark's reader, which stops behind a line's first value without a word; so where a line may have more
        on it, such lines come once more, refused. With `places` every line then comes once, the slower way, out of its
        text."""
        from pyspark.sql import functions as F

        given = dict(zip(schema.names, schema.names, strict=True))
        clean = self._is_seen_clean(names)
        if places and (not clean or is_whole(self.options)):
            lines = parsed(self.lines(spark, names, places), schema, self.options)
            return self.selected(lines, given, of_json_text(schema, self.options), places)
        frame = self.load(spark, names, _with_corrupt(schema), self.options, places)
        rows = self.selected(frame, given, of_json(schema, self.options, in_words=places), places)
        if clean:
            return rows
        nothing = [F.lit(None).cast(column.dataType).alias(column.name) for column in schema]
        more = self.lines(spark, names, places).where(has_more(self.options)).select("*", *nothing)
        return rows.union(self.selected(more, given, of_more(self.options), places))

    def _is_seen_clean(self, names: Sequence[str]) -> bool:
        """Whether a look at small files on this machine shows that no line has more on it than it may."""
        if not self.place.local or self.options.keys() & {"linesep", "encoding"}:
            return False
        files = [Path(self.place.full(name).removeprefix("file:")) for name in names]
        return none_has_tail(files, whole_file=is_whole(self.options))

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
        return frame.withColumn(LINE, F.decode(F.col(LINE).cast("binary"), encoding))

    def load(
        self,
        spark: SparkSession,
        names: Sequence[str],
        schema: StructType,
        options: Mapping[str, str],
        places: bool,
    ) -> DataFrame:
        frame = self._reader(spark, names, options).schema(schema).load(self.place.patterns(names))
        needs_file = places or self.told
        return frame.select("*", frame.metadataColumn("_metadata").alias(FILE)) if needs_file else frame

    def _reader(self, spark: SparkSession, names: Sequence[str], options: Mapping[str, str]) -> DataFrameReader:
        reader = spark.read.format(self.format).options(**options).option("columnNameOfCorruptRecord", CORRUPT)
        has_colon = self.place.local and any(":" in name for name in names)
        return reader.options(**_RAW_FILES) if has_colon else reader

    def selected(
        self, frame: DataFrame, columns: Mapping[str, str], verdict: Verdict | None, places: bool
    ) -> DataFrame:
        """The columns under their names, beside them the verdict and the place."""
        from pyspark.sql import functions as F

        path = below(self.place.root, f"{FILE}.file_path")
        chosen = [F.col(quoted(given)).alias(name) for name, given in columns.items()]
        chosen += [F.expr(value).alias(name) for name, value in self.told.items()]
        if verdict:
            why = f"concat({path}, ': ', {verdict.why})" if places else verdict.why
            refusal = f"named_struct('code', 'PARSE', 'message', {why}, 'raw', {verdict.raw})"
            chosen.append(F.expr(f"case when {verdict.is_bad} then {refusal} end").alias(REFUSED))
        if places:
            place = f"named_struct('part', {path}, 'block', {FILE}.file_block_start, 'row', {_ROW})"
            chosen.append(F.expr(place).alias(PLACE))
        return frame.select(*chosen)


def _with_corrupt(schema: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*schema.fields, StructField(CORRUPT, StringType())])
