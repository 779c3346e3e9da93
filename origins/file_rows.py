"""How files of each format become rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT, Verdict, of_csv, typed_field
from origins.csv_header import header_of, in_order
from origins.errors import OriginError
from origins.json_lines import LINE, has_more, is_whole, of_json, of_json_text, of_more, parsed
from origins.json_tail import none_has_tail
from origins.listing import File, Place
from origins.nack import REFUSED
from origins.names import HIDDEN, below, quoted
from origins.origin import PLACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_RAW_FILES = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
"""Hadoop's file system with checksums cannot open a file that has `:` in its name; the one beneath it can."""
_FILE = HIDDEN + "file"
_ROW = "monotonically_increasing_id()"
_ONCE = "spark_partition_id() >= 0"
"""True, in a way that keeps the optimizer from computing twice what stands behind it."""


@dataclass(frozen=True, kw_only=True)
class FileRows:
    """A reader of files of one format."""

    format: str
    place: Place
    options: Mapping[str, str]
    """As `origins.file_options.completed` gives them."""

    @property
    def has_header(self) -> bool:
        """Whether the files begin with the names of their columns."""
        return self.format == "csv" and self.options.get("header", "true") == "true"

    def read(
        self, spark: SparkSession, names: Sequence[str], schema: StructType, *, places: bool, exact: bool
    ) -> DataFrame:
        """The rows of these files, lazily: the schema's columns, `REFUSED` for json and csv, `PLACE` if asked for.

        Why a line is refused is said in full only with `places`: a batch that raises at the first one needs no more.
        With `exact` a CSV file may not have columns that the schema has not.
        """
        if self.format == "csv":
            groups = self._by_header(spark, names, schema, exact)
            frames = [self._csv(spark, group, header, schema, places) for header, group in groups.items()]
            frame = frames[0]
            for other in frames[1:]:
                frame = frame.unionByName(other)
            return frame
        if self.format == "json":
            return self._json(spark, names, schema, places)
        frame = self._load(spark, names, schema, self.options, places)
        return self._selected(frame, dict(zip(schema.names, schema.names, strict=True)), None, places)

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
            columns = in_order(header, schema.names, self.place.full(name), exact) if header else tuple(schema.names)
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
            lines = parsed(self._lines(spark, names, places), schema, self.options)
            return self._selected(lines, given, of_json_text(schema, self.options), places)
        frame = self._load(spark, names, _with_corrupt(schema), self.options, places)
        rows = self._selected(frame, given, of_json(schema, self.options, in_words=places), places)
        if clean:
            return rows
        nothing = [F.lit(None).cast(column.dataType).alias(column.name) for column in schema]
        more = self._lines(spark, names, places).where(has_more(self.options)).select("*", *nothing)
        return rows.union(self._selected(more, given, of_more(self.options), places))

    def _is_seen_clean(self, names: Sequence[str]) -> bool:
        """Whether a look at small files on this machine shows that no line has more on it than it may."""
        if not self.place.local or self.options.keys() & {"linesep", "encoding"}:
            return False
        files = [Path(self.place.full(name).removeprefix("file:")) for name in names]
        return none_has_tail(files, whole_file=is_whole(self.options))

    def _lines(self, spark: SparkSession, names: Sequence[str], places: bool) -> DataFrame:
        """The text of JSON in the column `LINE`: lines, or whole files with `multiLine`."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        options = {name: self.options[name] for name in ("linesep", "encoding") if name in self.options}
        whole = {"wholetext": "true"} if is_whole(self.options) else {}
        rows = replace(self, format="text")
        frame = rows._load(spark, names, StructType([StructField(LINE, StringType())]), {**options, **whole}, places)
        encoding = options.get("encoding", "utf-8")
        if encoding.lower() in ("utf-8", "utf8"):
            return frame
        return frame.withColumn(LINE, F.decode(F.col(LINE).cast("binary"), encoding))

    def _csv(
        self, spark: SparkSession, names: Sequence[str], header: Sequence[str], schema: StructType, places: bool
    ) -> DataFrame:
        """CSV files of one header. Fields are read as text, so that it is cast that decides what has which type."""
        from pyspark.sql.types import StringType, StructField, StructType

        options = {**self.options, "header": str(self.has_header).lower(), "columnpruning": "false"}
        columns = StructType([StructField(name, StringType()) for name in header])
        typed = {
            column: f"{HIDDEN}{index}"
            for index, column in enumerate(schema)
            if not isinstance(column.dataType, StringType)
        }
        frame = self._load(spark, names, _with_corrupt(columns), options, places)
        fields = [f"case when {_ONCE} then {typed_field(column, options)} end as {typed[column]}" for column in typed]
        verdict = of_csv(header, typed, options, in_words=places)
        given = {column.name: typed.get(column, column.name) for column in schema}
        return self._selected(frame.selectExpr("*", *fields), given, verdict, places)

    def _load(
        self,
        spark: SparkSession,
        names: Sequence[str],
        schema: StructType,
        options: Mapping[str, str],
        places: bool,
    ) -> DataFrame:
        frame = self._reader(spark, names, options).schema(schema).load(self.place.patterns(names))
        return frame.select("*", frame.metadataColumn("_metadata").alias(_FILE)) if places else frame

    def _reader(self, spark: SparkSession, names: Sequence[str], options: Mapping[str, str]) -> DataFrameReader:
        reader = spark.read.format(self.format).options(**options).option("columnNameOfCorruptRecord", CORRUPT)
        has_colon = self.place.local and any(":" in name for name in names)
        return reader.options(**_RAW_FILES) if has_colon else reader

    def _selected(
        self, frame: DataFrame, columns: Mapping[str, str], verdict: Verdict | None, places: bool
    ) -> DataFrame:
        """The columns under their names, beside them the verdict and the place."""
        from pyspark.sql import functions as F

        name = below(self.place.root, f"{_FILE}.file_path")
        chosen = [F.col(quoted(given)).alias(name) for name, given in columns.items()]
        if verdict:
            why = f"concat({name}, ': ', {verdict.why})" if places else verdict.why
            refusal = f"named_struct('code', 'PARSE', 'message', {why}, 'raw', {verdict.raw})"
            chosen.append(F.expr(f"case when {verdict.is_bad} then {refusal} end").alias(REFUSED))
        if places:
            place = f"named_struct('part', {name}, 'block', {_FILE}.file_block_start, 'row', {_ROW})"
            chosen.append(F.expr(place).alias(PLACE))
        return frame.select(*chosen)


def _with_corrupt(schema: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*schema.fields, StructField(CORRUPT, StringType())])
