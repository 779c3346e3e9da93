"""The history of a Delta table that is reached by its name only, as SQL describes it.

A catalog may keep the files of its tables to itself. Then Wherry reads no path of the table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from origins.delta_actions import AddedFile, Version, Way, begins_anew, skip_gap, tally_rows
from origins.errors import OriginError, has_condition
from origins.lazy import Row, SparkSession, spark_errors
from origins.spark_versions import is_on_databricks

KEPT_BY_CATALOG = frozenset({"catalogManaged", "catalogOwned-preview"})
"""The features of tables whose catalog takes the commits. A commit reaches the table's log some time later."""
_FIRST_LOOK, _FURTHER = 8, 16
"""The number of versions in the first answer, and how many times more the next one has."""


def is_only_named(name: str | None, features: Collection[str]) -> bool:
    """Return whether a table is reached by its name only. `DESCRIBE DETAIL` gives its name and its features."""
    if name is None:  # it was given by its path
        return False
    return is_on_databricks() or not name.startswith("spark_catalog.") or not KEPT_BY_CATALOG.isdisjoint(features)


@contextlib.contextmanager
def explain_refusal(table: str) -> Iterator[None]:
    """In this block, let an `OriginError` say what to do if Spark refuses versions of the table."""
    try:
        yield
    except spark_errors.PySparkException as error:
        hint = next((hint for sign, hint in _REFUSALS.items() if has_condition(error, sign)), None)
        if hint is None:
            raise
        why = str(error).splitlines()[0]
        raise OriginError(
            f"Spark cannot read the versions of {table} that the batch needs: {why} Wherry read nothing.", hint=hint
        ) from error


_START_OVER = (
    "Read the table again:  wherry run FILE --from-beginning\n"
    "So that it does not happen again, let the table keep its files and its log for longer than runs may be apart: "
    "delta.deletedFileRetentionDuration, delta.logRetentionDuration."
)
_FILTERED = (
    "Databricks gives the versions of a table with row filters or column masks to some users and computes only.\n"
    "Run as a user without filters. Or use policies and catalog commits, on standard or serverless compute."
)
_REFUSALS = {
    "TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION": _START_OVER,
    "DELTA_VERSION_NOT_FOUND": _START_OVER,
    "DELTA_LOG_FILE_NOT_FOUND": _START_OVER,
    "FGAC_TIME_TRAVEL_NOT_SUPPORTED": _FILTERED,
    "ROW_LEVEL_SECURITY": _FILTERED,
    "COLUMN_MASKS_FEATURE_NOT_SUPPORTED": _FILTERED,
}
"""What to do, by Spark's error condition."""


@dataclass(frozen=True)
class HistoryLog:
    """The versions of a table, by `DESCRIBE HISTORY`. It takes the place of a `VersionLog`."""

    name: str
    location: str
    way: Way
    """How added rows are found, as long as the table's properties do not change."""

    @staticmethod
    def of(name: str, location: str, properties: Mapping[str, str]) -> HistoryLog:
        """Return the log of a table with these properties."""
        on = {key for key, value in properties.items() if str(value).lower() == "true"}
        if "delta.enableChangeDataFeed" in on:
            return HistoryLog(name, location, "feed")
        return HistoryLog(name, location, "commits" if "delta.enableRowTracking" in on else "files")

    def look(self, spark: SparkSession, number: int) -> tuple[list[Version], bool]:
        """Return what `list_after` returns, and whether this version is known to exist."""
        limit = _FIRST_LOOK if number >= 0 else None
        while True:
            with explain_refusal(self.name):
                history = spark.sql(f"DESCRIBE HISTORY {self.name}" + (f" LIMIT {limit}" if limit else ""))
                rows = {int(row["version"]): row for row in history.select(*_DESCRIBED).collect()}
            if limit is None or len(rows) < limit or min(rows) <= number:
                break
            limit *= _FURTHER
        later = skip_gap(at for at in rows if at > number)
        return self._add_ways([_parse_version(rows[at]) for at in later]), number in rows

    def list_after(self, spark: SparkSession, number: int) -> list[Version]:
        """Return the later versions that the history still has, oldest first and without a gap."""
        return self.look(spark, number)[0]

    def list_columns(self, spark: SparkSession, versions: Sequence[Version]) -> Iterator[tuple[int, str]]:
        """Yield the newest of these versions, and the table's columns as of it (Spark's JSON)."""
        for version in versions[-1:]:
            there = spark.sql(f"SELECT * FROM {self.name} VERSION AS OF {version.number}")
            yield version.number, there.schema.json()

    def find_missing_file(self, first: int, last: int) -> None:
        """Return None, because no files are known."""

    def _add_ways(self, versions: Sequence[Version]) -> list[Version]:
        """Return the versions with the way to their rows.

        The properties of now hold for the versions since they were last changed.
        """
        changed = max((version.number for version in versions if version.redefines), default=0)
        return [self._add_way(version, "files" if version.number <= changed else self.way) for version in versions]

    def _add_way(self, version: Version, way: Way) -> Version:
        """Return the version with this way. A batch ends before a version that would hide its rows on this way."""
        is_harmless = way != "files" and not version.rewrites
        removed = frozenset({_OTHER_FILE}) if version.removed and is_harmless else version.removed
        return replace(version, way=way, removed=removed)


_DESCRIBED = ("version", "operation", "operationParameters", "operationMetrics", "isBlindAppend")
_FILE, _OTHER_FILE = "a file", "another file"
"""The names of files in a history, which has no names. A version that rewrites files removes `a file`."""

_REDEFINES = {
    "ADD COLUMNS", "ADD CONSTRAINT", "CHANGE COLUMN", "CHANGE COLUMNS", "CLUSTER BY", "DROP COLUMNS",
    "DROP CONSTRAINT", "DROP FEATURE", "REMOVE COLUMN MAPPING", "RENAME COLUMN", "REORG TABLE UPGRADE UNIFORM",
    "REPLACE COLUMNS", "ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL", "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES", "UPDATE COLUMN METADATA", "UPDATE SCHEMA", "UPGRADE PROTOCOL",
}  # fmt: skip
"""The operations that change the table's columns or properties, and no rows."""
_OTHER_FILES = {"OPTIMIZE", "REMOVE COLUMN MAPPING", "REORG", "REORG TABLE UPGRADE UNIFORM"}
"""The operations that write the same rows into other files."""
_SAME_ROWS = {
    "COMPUTE STATS", "CREATE CHECKPOINT", "CREATE TABLE", "DOMAIN METADATA CLEANUP", "Deletion Vector Tombstones",
    "Empty Commit", "OPTIMIZE CHECKPOINT", "VACUUM END", "VACUUM START", *_REDEFINES, *_OTHER_FILES,
}  # fmt: skip
"""The operations that add, change and remove no rows."""
_ROWS = ("numoutputrows", "numaddedrows")
_BYTES = ("numoutputbytes", "numaddedbytes", "numtargetbytesadded")
_FILES = ("numfiles", "numaddedfiles", "numtargetfilesadded")
_REMOVED = (
    *("numremovedfiles", "numtargetfilesremoved"),
    *("numdeletionvectorsadded", "numtargetdeletionvectorsadded"),
)
"""The names that writers give to their figures, in lower case and without underscores."""


def _parse_version(row: Row) -> Version:
    number, operation = int(row["version"]), row["operation"] or ""
    metrics = {name: each for name, each in (row["operationMetrics"] or {}).items() if str(each).isdigit()}
    figures = {name.replace("_", "").lower(): int(each) for name, each in metrics.items()}
    tally = tally_rows(operation, metrics)
    if operation in _SAME_ROWS or (number == 0 and operation.endswith("REPLACE TABLE")):
        removed = frozenset({_FILE} if operation in _OTHER_FILES else ())
        version = Version(number=number, operation=operation, added=(), rewrites=False, removed=removed, columns=None)
        return replace(version, redefines=operation in _REDEFINES)
    anew, adds = begins_anew(number, operation), _only_adds(row, figures, tally)
    rows = tally[0] if tally is not None else _find_figure(figures, _ROWS)
    added = _make_files(rows, _find_figure(figures, _BYTES), _find_figure(figures, _FILES))
    return Version(
        number=number,
        operation=operation,
        added=added,
        rewrites=not adds,
        removed=frozenset() if adds else frozenset({_FILE}),
        columns=None,
        redefines=anew,
        only_deletes=not adds and not anew and (operation in ("DELETE", "TRUNCATE") or (tally or (1,))[:2] == (0, 0)),
        feed=added if adds else _make_files(None, _find_figure(figures, _BYTES), 1),
        rows=rows if adds else None if tally is None else sum(tally),
        updated=tally[1] if tally is not None else None if operation in ("UPDATE", "MERGE") else 0,
    )


def _only_adds(row: Row, figures: Mapping[str, int], tally: tuple[int, int, int] | None) -> bool:
    """Return whether the version is known to have removed and changed no row."""
    operation, parameters = row["operation"] or "", row["operationParameters"] or {}
    counts = [figures[name] for name in _REMOVED if name in figures]
    removes_none = bool(counts) and not any(counts)
    if begins_anew(row["version"], operation):
        return False
    if row["version"] == 0 or row["isBlindAppend"]:
        return True
    if operation in ("DELETE", "UPDATE", "MERGE"):
        return removes_none and tally is not None and tally[1:] == (0, 0)
    appends = operation == "WRITE" and str(parameters.get("mode", "")).lower() == "append"
    return appends or operation == "COPY INTO" or removes_none


def _make_files(rows: int | None, size: int | None, count: int | None) -> tuple[AddedFile, ...]:
    """Return as many files as were counted, with all rows and bytes. No figure at all makes one file."""
    if rows == 0 and not size and not count:
        return ()
    known = None if rows == 0 else rows  # a writer without statistics counts none
    first = AddedFile(path=_FILE, size=size or 0, rows=known, plain=False)
    return first, *[AddedFile(path=_FILE, size=0, rows=0, plain=False)] * ((count or 1) - 1)


def _find_figure(figures: Mapping[str, int], names: Sequence[str]) -> int | None:
    return next((figures[name] for name in names if name in figures), None)
