"""A scan of files of one format: their rows as Spark reads them, each with its place, its verdict and path columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from origins.errors import OriginError
from origins.files.bad_lines import CORRUPT, Verdict, is_changed
from origins.files.changes import STOPS, Changes
from origins.files.json_lines import LINE
from origins.files.listing import FilePattern
from origins.files.options import ENCODINGS, is_whole
from origins.lazy import DataFrame, F, SparkSession, T, pyspark
from origins.nack import REFUSED
from origins.names import HIDDEN, escape_name, make_file_path_sql, make_relative_name_sql, quote_name, quote_text
from origins.origin import PLACE
from origins.spark_settings import COMPLETE

_RAW_FILES = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
"""The settings for Hadoop's raw local file system. With checksums, Hadoop cannot open a file with `:` in its name."""
_ROW = "monotonically_increasing_id()"


@dataclass(frozen=True, kw_only=True)
class FileScan:
    """Files of one format, and the options to read them."""

    format: str
    place: FilePattern
    options: Mapping[str, str]
    """The options as `origins.files.options.complete_options` returns them."""
    changes: Changes = field(default_factory=Changes)
    metadata: Sequence[str] = ()
    """The columns with facts about the file."""
    added: Mapping[str, str] = field(default_factory=dict)
    """The columns that are not in the lines, each with SQL over `FILE`."""
    name: str = ""
    """The name of the file if only one is read. Its rows then need no query for their file."""

    @property
    def has_header(self) -> bool:
        return self.format == "csv" and self.options.get("header", "true") == "true"

    def load_lines(self, spark: SparkSession, names: Sequence[str], places: bool) -> DataFrame:
        """Return the text of JSON in the column `LINE`: lines, or whole files with `multiLine`."""
        options = {name: self.options[name] for name in ("linesep", "encoding") if name in self.options}
        whole = {"wholetext": "true"} if is_whole(self.options) else {}
        rows = replace(self, format="text")
        frame = rows.load(spark, names, make_text_schema([LINE]), {**options, **whole}, places)
        encoding = options.get("encoding", "utf-8")
        if encoding.lower() in ("utf-8", "utf8") or encoding.upper() not in ENCODINGS:
            return frame
        if encoding.upper() == "US-ASCII":
            encoding = "ISO-8859-1"  # US-ASCII raises for other bytes. In ISO-8859-1 they become visible characters.
        return frame.withColumn(LINE, F.decode(F.col(LINE).cast("binary"), encoding))

    def load(
        self, spark: SparkSession, names: Sequence[str], schema: T.StructType, options: Mapping[str, str], places: bool
    ) -> DataFrame:
        frame = self.make_reader(spark, names, options).schema(schema).load(self.place.make_patterns(names))
        needs_file = places or self.added
        return frame.select("*", frame.metadataColumn("_metadata").alias(FILE)) if needs_file else frame

    def make_reader(
        self, spark: SparkSession, names: Sequence[str], options: Mapping[str, str]
    ) -> pyspark.sql.DataFrameReader:
        reader = spark.read.format(self.format).options(**{**options, **COMPLETE, "columnNameOfCorruptRecord": CORRUPT})
        has_colon = self.place.local and any(":" in name for name in names)
        return reader.options(**_RAW_FILES) if has_colon else reader

    def select_columns(
        self, frame: DataFrame, columns: Mapping[str, str], verdict: Verdict | None, places: bool
    ) -> DataFrame:
        """Return the columns under their names, with the verdict and the place."""
        path = quote_text(self.name) if self.name else make_relative_name_sql(self.place.root, f"{FILE}.file_path")
        given = {name: quote_name(column) for name, column in columns.items()}
        chosen = [f"{value} as {quote_name(name)}" for name, value in {**given, **self.added}.items()]
        if verdict:
            why = f"concat({path}, ': ', {verdict.why})" if places else verdict.why
            if places and verdict.stops != "false":
                stop = f"raise_error(concat({quote_text(STOPS)}, {why}, {quote_text(' ' + STOPS.strip())}))"
                why = f"if({verdict.stops}, cast({stop} as string), {why})"
            message = f"'message', {why}, 'raw', {verdict.raw}"
            refusal = f"named_struct('code', 'PARSE', {message})"
            if verdict.is_change != "false":
                refusal = f"if({verdict.is_change}, named_struct('code', 'SCHEMA', {message}), {refusal})"
            chosen.append(f"case when {verdict.is_bad} then {refusal} end as {REFUSED}")
        if places:
            within = f"'block', {FILE}.file_block_start, 'row', {_ROW}"
            if self.format == "parquet":
                within = f"'block', 0L, 'row', {FILE}.row_index"
            chosen.append(f"named_struct('part', {path}, {within}) as {PLACE}")
        return frame.selectExpr(*chosen)


FILE = HIDDEN + "file"
"""The column with Spark's `_metadata`."""
_PATH = make_file_path_sql(f"{FILE}.file_path")
METADATA: Mapping[str, tuple[str, str]] = {
    "file_path": ("string", _PATH),
    "file_name": ("string", f"substring_index({_PATH}, '/', -1)"),
    "file_size": ("long", f"{FILE}.file_size"),
    "file_modification_time": ("timestamp", f"{FILE}.file_modification_time"),
}
"""The facts about a file that can be columns: the type of each, and SQL for it."""
_NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""The name of a folder for which the column is NULL."""


def make_text_schema(names: Iterable[str]) -> T.StructType:
    """Return a schema in which all columns are text."""
    return T.StructType([T.StructField(name, T.StringType()) for name in names])


def with_text(schema: T.StructType, names: Iterable[str]) -> T.StructType:
    """Return the schema with text columns of these names, except of names that it has."""
    known = {name.lower() for name in schema.names}
    return T.StructType([*schema, *make_text_schema(name for name in names if name.lower() not in known)])


def with_metadata(schema: T.StructType, names: Sequence[str]) -> T.StructType:
    """Return the schema with columns for facts about a file."""
    whole = T.StructType([*schema.fields])
    for name in names:
        whole.add(name, METADATA[name][0])
    return whole


def read_folder_columns(name: str) -> dict[str, str | None]:
    """Return the columns that the folders of a file give, by their names in lower case, with their values."""
    return {key.lower(): None if value == _NOTHING else unquote(value) for key, value in _split_folders(name)}


def list_folder_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that the folders of these files give, each with its first spelling."""
    found: dict[str, str] = {}
    for name in names:
        for key, _ in _split_folders(name) if "=" in name else ():
            found.setdefault(key.lower(), key)
    return list(found.values())


def _split_folders(name: str) -> Iterator[tuple[str, str]]:
    for folder in name.split("/")[:-1]:
        key, is_one, value = folder.partition("=")
        if is_one and key:
            yield key, value


def from_folder(root: str, column: T.StructField) -> str:
    """Return SQL for the value that the folders of a file give for a column."""
    pattern = quote_text(f"(?iu)(?:^|/){escape_name(column.name)}=([^/]*)/")
    found = f"regexp_extract({make_relative_name_sql(root, f'{FILE}.file_path')}, {pattern}, 1)"
    value = f"coalesce(try_url_decode(replace({found}, '+', '%2B')), {found})"
    return f"cast(nullif({value}, {quote_text(_NOTHING)}) as {column.dataType.simpleString()})"


def make_index_sql(root: str, groups: Sequence[Sequence[str]]) -> str:
    """Return SQL for the index, from 0, of the group that a file is in. It raises an error if no group has the file."""
    path = make_relative_name_sql(root, f"{FILE}.file_path")
    cases = [
        f"when {path} in ({', '.join(map(quote_text, names))}) then {at}" for at, names in enumerate(groups) if names
    ]
    message = f"concat({path}, ' was read, but it belongs to none of the batches that are read together')"
    return f"case {' '.join(cases)} else raise_error({message}) end"


def check_folders(
    spark: SparkSession, place: FilePattern, names: Sequence[str], columns: Sequence[T.StructField]
) -> None:
    """Raise `OriginError` for the first file whose folders give a value that does not fit the column's type."""
    typed = {column.name.lower(): column for column in columns if column.dataType.typeName() != "string"}
    first: dict[tuple[str, str], str] = {}
    for name in names if typed else ():
        for key, value in read_folder_columns(name).items():
            if key in typed and value is not None:
                first.setdefault((key, value), name)
    if not first:
        return
    casts = []
    for key, value in first:
        kind = typed[key].dataType.simpleString()
        cast = f"try_cast({quote_text(value)} as {kind})"
        casts.append(f"{cast} is null or coalesce({is_changed(quote_text(value), kind, cast)}, false)")
    wrong = spark.sql(f"select array({', '.join(casts)})").collect()[0][0]
    for ((key, value), name), is_wrong in zip(first.items(), wrong, strict=True):
        if is_wrong:
            raise OriginError(
                f"{place.join_path(name)} is in the folder {typed[key].name}={value}, but {value!r} is not of type "
                f"{typed[key].dataType.simpleString()}.",
                hint="Rename the folder, move it out of the path, or make the column a string.",
            )
