"""A Delta table that rows are read from: its identity, its columns, and the rows of a span of its versions.

If the table's files hold its rows unchanged, exactly the added files are read. Otherwise (partitions, mapped names,
deletion vectors) Delta reads the table as of the span's end, and Wherry keeps the rows of the added files. Delta reads
a batch of changes from the table's change data feed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from origins.batch import Json, Span
from origins.catalog.history import HistoryLog, explain_refusal, is_only_named
from origins.codec import decode
from origins.delta_actions import Version, VersionLog, describe_versions
from origins.errors import OriginError, has_condition, list_causes, list_errors, list_spark_errors
from origins.files.file_systems import escape_pattern
from origins.lazy import Column, DataFrame, F, SparkSession, T, spark_errors
from origins.names import HIDDEN, is_no_such_table, make_relative_name_sql, quote_name
from origins.origin import PLACE
from origins.schema import make_empty_frame
from origins.spark_settings import COMPLETE

_DETAILS = ("format", "id", "name", "location", "partitionColumns", "properties", "tableFeatures")
_HARMLESS = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns",
    "allowColumnDefaults", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "domainMetadata",
    "rowTracking", "clustering", "inCommitTimestamp",
}  # fmt: skip
"""The features with which each file of a table still holds the rows unchanged."""
FEED = "delta.enableChangeDataFeed"
"""The table property that turns the change data feed on."""
CHANGE, COMMIT, MOMENT = "_change_type", "_commit_version", "_commit_timestamp"
"""Delta's names for the columns that a change data feed adds to the columns of its table."""
_UNTOLD = {
    "DELTA_MISSING_CHANGE_DATA": "the feed was off in one of these versions",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_": "a column was renamed or dropped, or has another type",
}
"""Why a feed lacks changes of a range, by Delta's error condition."""
_UNREADABLE = (
    "DELTA_VERSIONS_NOT_CONTIGUOUS", "DELTA_STATE_RECOVER_ERROR", "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ", "DELTA_INVALID_PROTOCOL_VERSION", "INVALID_JSON_DATA_TYPE",
    "EXPRESSION_DECODING_FAILED",
)  # fmt: skip
_BROKEN_LINES = ("JsonParseException", "JsonEOFException", "MismatchedInputException", "MalformedInputException")
"""Spark's conditions, and the names of Java's errors, for a table that cannot be opened because of its log."""
_READS_ALL = "Wherry reads all rows of the table again."
_READS_INSERTS = "Wherry reads all rows of the table as inserts. Rows deleted meanwhile stay in the destinations."


@dataclass(frozen=True, kw_only=True)
class DeltaTable:
    """A Delta table."""

    name: str
    """Its name in SQL."""
    id: str
    log: VersionLog | HistoryLog
    is_plain: bool
    """Whether its files hold its columns under their names, and nothing else is needed to read them."""
    keeps_feed: bool
    """Whether it has a change data feed."""
    lane: str = "0"
    """The lane in which it is read, as named by the pipeline."""

    @staticmethod
    def find(spark: SparkSession, place: str, *, named: bool, lane: str = "0") -> DeltaTable:
        """Return the table at this place. Raise `OriginError` if no table is found."""
        name = place if named else f"delta.{quote_name(place)}"
        try:
            with explain_unreadable(place):
                found = spark.sql(f"DESCRIBE DETAIL {name}")
                ((kind, table_id, full_name, *more),) = found.select(*_DETAILS).collect()
        except spark_errors.AnalysisException as error:
            if is_no_such_table(error):
                raise OriginError(
                    f"No Delta table was found at {place}.",
                    hint="Correct the origin's `path` or `table`, or create the table; it may be empty.",
                ) from error
            raise
        if kind != "delta":
            raise OriginError(f"{place} is not a Delta table; it is {kind}.", hint="Read it with the origin `files`.")
        location, partitions, properties, features = more
        mapping = properties.get("delta.columnMapping.mode", "none")
        is_plain = not partitions and mapping == "none" and set(features or ()) <= _HARMLESS | {"columnMapping"}
        here = os.path.abspath(place) if place.startswith("/") else location
        keeps_feed = str(properties.get(FEED, "false")).lower() == "true"
        log: VersionLog | HistoryLog = VersionLog(here)
        if named and is_only_named(full_name, features or ()):
            log = HistoryLog.of(name, location or "", properties)
        return DeltaTable(name=name, id=table_id, log=log, is_plain=is_plain, keeps_feed=keeps_feed, lane=lane)

    def make_offset(self, version: int) -> Json:
        """Return the offset after this version."""
        return {"version": version, "table": self.id}

    def version_of(self, offset: Json) -> int:
        """Return the version of an offset. Raise `OriginError` if the offset belongs to another table."""
        try:
            version, table = read_offset(offset)
        except ValueError as error:
            raise OriginError(
                f"The offset of {self.name} is {json.dumps(offset)}; expected a version and the table's id.",
                hint=f"Set an offset, for example:  {self.format_offset_command(7)}\nThe run then skips every version "
                "up to it.",
            ) from error
        if table != self.id:
            raise OriginError(
                f"{self.name} is not the table that was read before: it was replaced, or dropped and created "
                f"again. Its id is {self.id} and was {table}.",
                hint=_describe_remedies(start_over="Rows of the old table stay in the destinations."),
            )
        return version

    def list_versions_after(self, spark: SparkSession, version: int) -> list[Version]:
        """Return the versions after a version. Raise `OriginError` if some are unknown."""
        found, is_there = self.log.look(spark, version)
        first = found[0].number if found else None
        if first is None and not is_there and (newest := self.find_newest(spark)[0]) != version:
            first = newest if newest > version else None
            if first is None and version >= 0:
                raise OriginError(
                    f"{self.name} has no version {version}; its newest is {newest}.",
                    hint=self._describe_skip(newest, f"all {newest + 1:,} versions of the table"),
                )
        if first is not None and first != version + 1:
            count = first - version - 1
            lost = f"{count:,} version{'s' * (count != 1)}, {version + 1} to {first - 1}"
            raise OriginError(
                f"The log of {self.name} no longer has version {version + 1}; it begins with version {first}.",
                hint=self._describe_skip(first - 1, f"{lost}, which are no longer in the log"),
            )
        return found

    def check_appends(self, found: Sequence[Version], *, passes_deletes: bool = False) -> None:
        """Raise `OriginError` if one of these versions changed or removed existing rows.

        With `passes_deletes`, a version that only removed rows is no error.
        """
        on = "does" if self.keeps_feed else "does not yet, so these versions are not in the feed"
        for at, each in enumerate(found):
            if each.rewrites and not (passes_deletes and each.only_deletes):
                deletes = {"on_rewrite: ignore_deletes": "The deleted rows stay in the destinations."}
                raise OriginError(
                    f"Version {each} of {self.name} changed or deleted existing rows; this origin reads added rows "
                    "only. Wherry read none of the waiting rows.",
                    hint=self._describe_skip(
                        each.number,
                        describe_versions(found[: at + 1]),
                        {
                            "changes: true": "The origin reads what each version inserts, updates and deletes. The "
                            f"table needs a change data feed: it {on}.",
                            "on_rewrite: snapshot": "Wherry reads the whole table again, as it is after the rewrite.",
                            **(deletes if each.only_deletes else {}),
                        },
                    ),
                )

    def check_entries(self, found: Sequence[Version]) -> None:
        """Raise `OriginError` if one of these versions of a DLQ may have added entries besides those that it changed.

        A version that only removed entries, or an UPDATE, added none.
        """
        for at, each in enumerate(found):
            if each.rewrites and not each.only_deletes and each.operation != "UPDATE":
                skipped, again = describe_versions(found[: at + 1]), "Wherry reads all entries of the DLQ again."
                raise OriginError(
                    f"Version {each} of {self.name} replaced entries of the DLQ, and Wherry cannot tell which of them "
                    "are new. Wherry read none of the waiting entries.",
                    hint=self._describe_skip(each.number, skipped, start_over=again),
                )

    def check_feed(self, spark: SparkSession, found: Sequence[Version], *, known: bool) -> None:
        """Raise `OriginError` unless the change data feed has all of these versions.

        `known` means that the feed was kept right before them.
        """
        if not self.keeps_feed:
            raise OriginError(
                f"{self.name} has no change data feed, and `changes: true` needs it. Wherry read nothing.",
                hint=_describe_remedies(
                    {
                        "turn it on": f"ALTER TABLE {self.name} SET TBLPROPERTIES ({FEED} = true)",
                        "leave `changes` out": "The origin then reads added rows; on_rewrite decides about rewrites.",
                    },
                    start_over="Once the feed is on, Wherry reads all rows of the table as inserts.",
                ),
            )
        if not found or (known and not any(version.redefines for version in found)):
            return
        first, last = found[0].number, found[-1].number
        try:
            read_feed(spark, self, first, last).where(f"{COMMIT} < 0").count()
        except spark_errors.PySparkException as error:
            why = next((why for sign, why in _UNTOLD.items() if has_condition(error, sign)), None)
            if why is None:
                raise
            raise OriginError(
                f"The change data feed of {self.name} cannot deliver versions {first} to {last}: {why}. Wherry read "
                "nothing of them.",
                hint=self._describe_skip(last, describe_versions(found), start_over=_READS_INSERTS),
            ) from error

    def format_offset_command(self, version: int) -> str:
        """Return the command that continues after a version."""
        offset = json.dumps(self.make_offset(version))
        return f"wherry offsets FILE --lane {self.lane} --reason … --offset '{offset}'"

    def _describe_skip(
        self, version: int, skipped: str, options: Mapping[str, str] = {}, *, start_over: str = _READS_ALL
    ) -> str:
        skip = self.format_offset_command(version), f"This skips {skipped}."
        return _describe_remedies(options, skip=skip, start_over=start_over)

    def find_newest(self, spark: SparkSession) -> tuple[int, int]:
        """Return the newest version and its commit time, in milliseconds since 1970."""
        history = spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1")
        ((version, moment),) = history.selectExpr("version", "unix_millis(timestamp)").collect()
        return int(version), int(moment)

    def check_columns(self, spark: SparkSession, columns: str, versions: Sequence[Version]) -> None:
        """Raise `OriginError` if one of these versions changed the table's columns."""
        for number, there in self.log.list_columns(spark, versions):
            if json.loads(strip_metadata(there)) != json.loads(columns):
                raise OriginError(
                    f"The columns of {self.name} changed in version {number} while this run was reading the table.",
                    hint="Run again: each run takes the table's columns when it begins.",
                )


@contextlib.contextmanager
def explain_unreadable(place: str) -> Iterator[None]:
    """In this block, let an `OriginError` name the table that Spark cannot open because of its log."""
    try:
        yield
    except list_spark_errors() as error:
        causes = [cause for each in list_errors(error) for cause in list_causes(each)]
        known = [each for each in causes if each.condition.startswith(_UNREADABLE) or each.name in _BROKEN_LINES]
        if not known:
            raise
        why = " ".join(known[0].message.split("\n")[0].split())
        raise OriginError(
            f"Spark cannot open the Delta table {place}: {why}",
            hint="Look at its folder _delta_log. Ask its writer, or restore the log from a backup. Wherry processed "
            "nothing.",
        ) from error


def read_feed(spark: SparkSession, table: DeltaTable, first: int, last: int) -> DataFrame:
    """Return the changes of these versions of a table, both inclusive, as Delta gives them."""
    range_ = {"readChangeFeed": "true", "startingVersion": str(first), "endingVersion": str(last)}
    return spark.read.format("delta").options(**range_).table(table.name)


def read_whole(spark: SparkSession, place: str, *, named: bool, version: int | None = None) -> DataFrame:
    """Return all rows of a table, as of a version."""
    if named:
        return spark.table(place) if version is None else spark.sql(f"SELECT * FROM {place} VERSION AS OF {version}")
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(place)


def strip_metadata(schema: str) -> str:
    """Return a schema without the metadata that only Delta needs. Both are Spark's JSON."""
    return json.dumps(_strip_metadata(json.loads(schema)))


def add_change_columns(columns: str) -> str:
    """Return the columns of a table's change data feed, given the table's columns. Both are Spark's JSON."""
    schema = json.loads(columns)
    beside = ((CHANGE, "string"), (COMMIT, "long"), (MOMENT, "timestamp"))
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in beside]
    return json.dumps({**schema, "fields": [*schema["fields"], *fields]})


def read_offset(offset: Json) -> tuple[int, str]:
    """Return the version and the table's id in an offset. Raise ValueError if it is not such an offset."""
    found = decode(_Offset, offset)
    return found.version, found.table


@dataclass(frozen=True)
class _Offset:
    version: int
    table: str


def _strip_metadata(kind: Json) -> Json:
    """Return a type as Spark's JSON in which everything may be NULL and nothing has metadata."""
    if isinstance(kind, list):
        return [_strip_metadata(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    neutral: Mapping[str, Json] = {"nullable": True, "metadata": {}, "containsNull": True, "valueContainsNull": True}
    return {name: neutral.get(name, _strip_metadata(value)) for name, value in kind.items()}


def _describe_remedies(options: Mapping[str, str] = {}, *, skip: tuple[str, str] | None = None, start_over: str) -> str:
    lines = [f"{option}  {description}" for option, description in options.items()]
    lines += ["skip it:  " + skip[0], "  " + skip[1]] if skip else []
    return "\n".join([*lines, "start over:  wherry run FILE --from-beginning", "  " + start_over])


_FILE = HIDDEN + "file"
_PARTITIONS = 20
"""The number of bits for the number of a Spark partition in a row's block."""
_ORDER, _BEFORE = HIDDEN + "order", HIDDEN + "before"
_NOWHERE = "named_struct('part', '', 'block', 0L, 'row', 0L)"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    since: int | None = None
    """The first version whose changes are read. They are all changes of the change data feed, without `added`."""
    preimages: bool = False
    added: str = ""
    """The way to the added rows, if only these are read."""
    inserted: int | None = None
    """The moment at which all rows count as inserted."""


class Part(NamedTuple):
    """The source of rows: a file, or a whole table as of a version."""

    path: str
    size: int | None
    version: int | None = None
    asked: _Asked = _Asked()


def fetch_rows(  # noqa: PLR0913 -- each argument selects what is read
    spark: SparkSession,
    place: str,
    span: Span,
    schema: T.StructType,
    *,
    named: bool,
    places: bool,
    where: Column | None = None,
    beside: bool = False,
) -> DataFrame:
    """Return exactly the rows of the span, lazily, with the columns of the schema. `where` selects some of them.

    With `beside`, the table may have columns that are not in the schema.
    """
    parts = [decode(Part, part) for part in span.parts]
    if not parts:
        empty = make_empty_frame(spark, schema)
        return empty.selectExpr("*", f"{_NOWHERE} as {PLACE}") if places else empty
    asked = parts[0].asked
    if asked.since is not None:
        there = DeltaTable.find(spark, place, named=named)
        with explain_refusal(there.name):
            return _read_versions(spark, there, span, schema, asked, places=places, where=where, beside=beside)
    table = DeltaTable.find(spark, place, named=named) if named or parts[0].version is not None else None
    if parts[0].version is None and (table is None or isinstance(table.log, VersionLog)):
        location = table.log.location if table else place
        frame = _read_files(spark, location, {part.path: part.size or 0 for part in parts}, schema)
    else:
        assert table is not None
        location, version = table.log.location, table.version_of(span.end)
        frame = read_whole(spark, place, named=named, version=version)
        if asked.inserted is not None:
            moment = F.timestamp_millis(F.lit(asked.inserted))
            frame = frame.withColumns({CHANGE: F.lit("insert"), COMMIT: F.lit(version).cast("long"), MOMENT: moment})
        frame = fit_columns(frame, schema, table.name, beside=beside)
    paths = [part.path for part in parts]
    is_all = paths == [""]
    frame = add_file(frame)
    if parts[0].version is not None and not is_all:
        frame = frame.where(F.expr(make_relative_name_sql(location, f"{_FILE}.file_path")).isin(paths))
    frame = frame if where is None else frame.where(where)
    return select_columns(frame, schema, location, is_all=is_all, places=places)


def add_file(frame: DataFrame) -> DataFrame:
    """Return the rows of files or of a table, with a column for the file position of each row."""
    return frame.select("*", frame.metadataColumn("_metadata").alias(_FILE))


def select_columns(frame: DataFrame, schema: T.StructType, location: str, *, is_all: bool, places: bool) -> DataFrame:
    """Return the columns of the schema from rows that `add_file` returned.

    With `places`, each row has its place. With `is_all`, all rows are in one part.
    """
    path = make_relative_name_sql(location, f"{_FILE}.file_path")
    block = f"xxhash64({_FILE}.file_path, {_FILE}.file_block_start)" if is_all else f"{_FILE}.file_block_start"
    part = "''" if is_all else path
    place_of = f"named_struct('part', {part}, 'block', {block}, 'row', monotonically_increasing_id())"
    columns = [F.col(quote_name(name)).alias(name) for name in schema.names]
    return frame.select(*columns, *([F.expr(place_of).alias(PLACE)] if places else []))


def _read_versions(  # noqa: PLR0913 -- each argument selects what is read
    spark: SparkSession,
    table: DeltaTable,
    span: Span,
    schema: T.StructType,
    asked: _Asked,
    *,
    places: bool,
    where: Column | None,
    beside: bool,
) -> DataFrame:
    """Return the requested changes of the versions. Within a version, removed rows come before added rows."""
    assert asked.since is not None
    first, last = asked.since, table.version_of(span.end)
    if gone := table.log.find_missing_file(first, last):
        raise OriginError(
            f"{gone} is missing, and the change data feed of versions {first} to {last} of {table.name} needs it. A "
            "VACUUM may have deleted it. No row of the batch was read.",
            hint=_describe_remedies(start_over=_READS_INSERTS),
        )
    way = asked.added or "feed"
    find = {"feed": _read_feed, "commits": _read_by_commits, "files": _read_by_files}[way]
    frame = find(spark, table, first, last)
    if asked.added:
        frame = frame.where(f"{CHANGE} = 'insert'").drop(CHANGE, COMMIT, MOMENT) if way == "feed" else frame
    elif not asked.preimages:
        frame = frame.where(f"{CHANGE} <> 'update_preimage'")
    extra = {name.lower() for name in frame.columns} - {_ORDER, *(name.lower() for name in schema.names)}
    if extra:
        came_later = {name.lower() for name in spark.table(table.name).columns}
        frame = frame.drop(*[name for name in frame.columns if name.lower() in extra & came_later])
    frame = fit_columns(frame, schema, table.name, beside=beside)
    frame = frame if where is None else frame.where(where)
    columns = [F.col(quote_name(name)).alias(name) for name in schema.names]
    if not places:
        return frame.select(*columns)
    block = f"shiftleft({_ORDER}, {_PARTITIONS}) + spark_partition_id()"
    place_of = f"named_struct('part', '', 'block', {block}, 'row', monotonically_increasing_id())"
    return frame.sortWithinPartitions(_ORDER).select(*columns, F.expr(place_of).alias(PLACE))


def _read_feed(spark: SparkSession, table: DeltaTable, first: int, last: int) -> DataFrame:
    comes = f"int({CHANGE} in ('insert', 'update_postimage'))"
    return read_feed(spark, table, first, last).withColumn(_ORDER, F.expr(f"{COMMIT} * 2 + {comes}"))


def _read_by_commits(spark: SparkSession, table: DeltaTable, first: int, last: int) -> DataFrame:
    """Return the rows that the versions added, as the table's row tracking knows them."""
    frame = read_whole(spark, table.name, named=True, version=last)
    commit = frame.metadataColumn("_metadata")["row_commit_version"]
    return frame.select("*", commit.alias(_ORDER)).where(F.col(_ORDER).between(first, last))


def _read_by_files(spark: SparkSession, table: DeltaTable, first: int, last: int) -> DataFrame:
    """Return the rows in files that the table did not have before. No version in between rewrote a file.

    Files are in the order in which they were written.
    """
    frame = read_whole(spark, table.name, named=True, version=last)
    file = frame.metadataColumn("_metadata")
    order = F.unix_millis(file["file_modification_time"])
    frame = frame.select("*", file["file_path"].alias(_FILE), order.alias(_ORDER))
    if first > 0:
        before = read_whole(spark, table.name, named=True, version=first - 1)
        known = before.select(before.metadataColumn("_metadata")["file_path"].alias(_BEFORE)).distinct()
        frame = frame.join(F.broadcast(known), F.col(_FILE) == F.col(_BEFORE), "left_anti")
    return frame.drop(_FILE)


def _read_files(spark: SparkSession, location: str, sizes: Mapping[str, int], schema: T.StructType) -> DataFrame:
    """Return all rows of these files.

    Raise `OriginError` for the first file of this machine that is missing or changed.
    """
    folder = VersionLog(location).folder
    for path, size in sizes.items() if folder else ():
        assert folder is not None
        found = (folder / path).stat().st_size if (folder / path).exists() else None
        if found != size:
            what = "is gone" if found is None else f"has changed (it had {size:,} bytes and now has {found:,})"
            raise OriginError(
                f"{folder / path} {what} before Wherry read its rows; a VACUUM deletes files whose rows were "
                "rewritten. No row of the batch was read.",
                hint=_describe_remedies(start_over=_READS_ALL),
            )
    paths = [escape_pattern(f"{location.rstrip('/')}/{path}") for path in sizes]
    return spark.read.schema(schema).options(**COMPLETE).parquet(*paths)


def fit_columns(frame: DataFrame, schema: T.StructType, table: str, *, beside: bool = False) -> DataFrame:
    """Return a table as of an earlier version, with the columns of today. Columns that it did not have yet are NULL.

    Any other column is an error. With `beside`, it is kept.
    """
    then = {name.lower() for name in frame.columns}
    now = {name.lower() for name in schema.names}
    now |= {_ORDER}
    if not beside and (lost := [name for name in frame.columns if name.lower() not in now]):
        raise OriginError(
            f"Column {lost[0]} of {table} was dropped or renamed after these rows were added.",
            hint=_describe_remedies(start_over=_READS_ALL),
        )
    missing = {column.name: F.lit(None).cast(column.dataType) for column in schema if column.name.lower() not in then}
    return frame.withColumns(missing) if missing else frame
