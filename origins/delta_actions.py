"""The log of a Delta table: its actions, as lines of JSON, and what each version added.

The log is read on this machine, or through Spark if it is elsewhere. Writers leave out values that they do not know.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict
from urllib.parse import unquote

from origins.batch import Json
from origins.errors import OriginError, WherryError
from origins.files.file_systems import escape_pattern, without_scheme
from origins.lazy import F, SparkSession
from origins.names import SCHEME


class FieldBody(TypedDict):
    """A column, or a field inside one."""

    name: str
    type: TypeBody
    nullable: bool
    metadata: Mapping[str, Json]


class NestedBody(TypedDict, total=False):
    """A type that contains others: `struct`, `array` or `map`."""

    type: str
    fields: Sequence[FieldBody]
    elementType: TypeBody
    keyType: TypeBody
    valueType: TypeBody


TypeBody: TypeAlias = str | NestedBody
"""A type as Delta and Spark write it."""


class FileBody(TypedDict, total=False):
    """A file that a version adds or removes."""

    path: str
    size: int
    stats: str | None
    dataChange: bool
    deletionVector: Json
    partitionValues: Mapping[str, str | None]
    modificationTime: int


class CommitBody(TypedDict, total=False):
    """The description of how a version was made."""

    timestamp: int | None
    operation: str
    operationParameters: Mapping[str, Json]
    operationMetrics: Mapping[str, str]
    userMetadata: str | None


class MetadataBody(TypedDict, total=False):
    """The identity, configuration and schema of a table."""

    id: str
    configuration: Mapping[str, str]
    schemaString: str


class ActionBody(TypedDict, total=False):
    """A line of the log. It has one of these keys."""

    add: FileBody
    remove: FileBody
    cdc: FileBody
    commitInfo: CommitBody
    metaData: MetadataBody


class StatisticsBody(TypedDict, total=False):
    """The statistics that a file's writer recorded about its rows."""

    numRecords: int
    minValues: Mapping[str, Json]
    maxValues: Mapping[str, Json]
    nullCount: Mapping[str, Json]


_COMMIT = re.compile(r"(\d{20})\.json")
_LISTED = 5
"""The number of versions that a message lists."""
_CAME, _CHANGED, _WENT = (
    ("numtargetrowsinserted",),
    ("numtargetrowsupdated", "numupdatedrows"),
    ("numtargetrowsdeleted", "numdeletedrows"),
)
"""The names that writers give to their row counts, in lower case and without underscores."""


@dataclass(frozen=True, kw_only=True)
class AddedFile:
    """A file whose rows a version added."""

    path: str
    """The path relative to the table, with `/` between folders; absolute if the file is elsewhere."""
    size: int
    rows: int | None
    """The row count of the writer; None if the writer did not count."""
    plain: bool
    """Whether the file is below the table's folder and none of its rows is deleted."""
    stats: str = field(default="", repr=False, compare=False)
    """The statistics that the writer recorded about its columns, as JSON."""


Way: TypeAlias = Literal["log", "feed", "commits", "files"]
"""How the rows that versions added are found.

By the files that the log names, by the change data feed, by the version of each row, or by the files that the table
did not have before.
"""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a table."""

    number: int
    operation: str
    added: tuple[AddedFile, ...]
    """The files with new rows."""
    rewrites: bool
    """Whether existing rows were removed or changed."""
    removed: frozenset[str]
    """The files that were removed. Some of their rows may be kept, rewritten into other files."""
    columns: str | None
    """The table's columns, if the log says that this version changed them (Spark's JSON)."""
    redefines: bool = False
    """Whether the table's columns or properties may have changed."""
    rearranged: tuple[AddedFile, ...] = ()
    """The files with rewritten rows."""
    only_deletes: bool = False
    """Whether rows were removed, and none were added or changed."""
    feed: tuple[AddedFile, ...] = ()
    """The files from which Delta reads the changes of the version; none if it changed no row."""
    rows: int | None = None
    """The number of rows that were added, changed or removed; None if the writer did not count them."""
    updated: int | None = 0
    """The number of existing rows among them that were changed; None if unknown."""
    way: Way = "log"

    @property
    def has_news(self) -> bool:
        """Return whether rows were added, changed or removed."""
        return bool(self.added or self.rewrites or self.feed)

    def __str__(self) -> str:
        count = "rows not counted" if self.rows is None else f"{self.rows:,} row{'s' * (self.rows != 1)}"
        return f"{self.number} ({self.operation or 'unknown operation'}, {count})"


def describe_versions(versions: Sequence[Version]) -> str:
    """Return a text for a person that lists the versions that added, changed or removed rows."""
    news = [version for version in versions if version.has_news]
    if not news:
        return "no version with new rows"
    listed = ", ".join(map(str, news[:_LISTED])) + f" and {len(news) - _LISTED:,} more" * (len(news) > _LISTED)
    return f"{len(news):,} version{'s' * (len(news) != 1)} with rows: {listed}"


@dataclass(frozen=True)
class VersionLog:
    """The log of the table at this place."""

    location: str

    @property
    def folder(self) -> Path | None:
        """Return the table's folder, or None if it is not on this machine."""
        return Path(without_scheme(self.location)) if self.location.startswith(("/", "file:/")) else None

    def list_after(self, spark: SparkSession, number: int) -> list[Version]:
        """Return the later versions that the log still has, oldest first and without a gap."""
        if self.folder is not None:
            return self.list_local_after(number)
        found = self._read_by_spark(spark, number)
        return [_parse_version(self.location, at, found[at]) for at in skip_gap(found)]

    def look(self, spark: SparkSession, number: int) -> tuple[list[Version], bool]:
        """Return what `list_after` returns, and whether this version is known to exist."""
        return self.list_after(spark, number), self.has(number)

    def list_columns(self, spark: SparkSession, versions: Sequence[Version]) -> Iterator[tuple[int, str]]:
        """Yield each of these versions that changed the table's columns, and the columns (Spark's JSON)."""
        return ((version.number, version.columns) for version in versions if version.columns)

    def list_local_after(self, number: int) -> list[Version]:
        """Return the same for a table on this machine, without Spark; an empty list for a table elsewhere."""
        if self.folder is None:
            return []
        numbers = [*itertools.takewhile(self.has, itertools.count(number + 1))]
        if not numbers and (not self.has(number) or self._is_behind_gap(number)):
            commits = (_COMMIT.fullmatch(path.name) for path in (self.folder / "_delta_log").glob("*.json"))
            numbers = [int(commit[1]) for commit in commits if commit and int(commit[1]) > number]
        return [self._read_version(at) for at in skip_gap(numbers)]

    def find_missing_file(self, first: int, last: int) -> str | None:
        """Return the first missing file that the change data feed of these versions needs, or None.

        Only files on this machine are checked.
        """
        if self.folder is None:
            return None
        for number in range(first, last + 1):
            if not self.has(number):
                return str(self._commit_path(number))
            for file in self._read_version(number).feed:
                if not SCHEME.match(file.path) and not (self.folder / file.path).exists():
                    return str(self.folder / file.path)
        return None

    def has(self, number: int) -> bool:
        """Return whether this version is known to exist, without a query to Spark."""
        return self.folder is not None and self._commit_path(number).exists()

    def _is_behind_gap(self, number: int) -> bool:
        """Return whether the next version is missing, although the log has a checkpoint of a later one."""
        assert self.folder is not None
        try:
            newest = json.loads((self.folder / "_delta_log" / "_last_checkpoint").read_bytes())["version"]
        except (OSError, ValueError, LookupError, TypeError):
            return False
        return isinstance(newest, int) and newest > number and not self.has(number + 1)

    def _commit_path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / "_delta_log" / f"{number:020}.json"

    def _read_version(self, number: int) -> Version:
        with explain_broken_log(OriginError, self.location, number):
            lines = self._commit_path(number).read_text(encoding="utf-8").split("\n")
        return _parse_version(self.location, number, lines)

    def _read_by_spark(self, spark: SparkSession, number: int) -> dict[int, list[str]]:
        files = (
            spark.read.format("text")
            .option("pathGlobFilter", "*.json")
            .load(f"{escape_pattern(self.location)}/_delta_log")
        )
        at = F.regexp_extract("_metadata.file_name", f"^{_COMMIT.pattern}$", 1)
        lines = files.select(at.alias("at"), "value").where("at <> ''").where(F.col("at").cast("bigint") > number)
        found: dict[int, list[str]] = {}
        for version, line in lines.collect():
            found.setdefault(int(version), []).append(line)
        return found


def skip_gap(numbers: Iterable[int]) -> range:
    """Return the newest of these versions and those right before it, up to the first gap."""
    known = {*numbers}
    first = newest = max(known, default=-1)
    while first - 1 in known:
        first -= 1
    return range(first, newest + 1) if known else range(0)


def _parse_version(place: str, number: int, lines: Iterable[str]) -> Version:
    with explain_broken_log(OriginError, place, number):
        return _make_version(number, lines)


@contextlib.contextmanager
def explain_broken_log(kind: type[WherryError], place: str, number: int) -> Iterator[None]:
    """In this block, let an error of this kind name the table's version that cannot be parsed, and what is wrong."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        why = f"it has no {error.args[0]}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
        raise kind(
            f"Version {number} in the log of the Delta table {place} cannot be read: {why}.",
            hint=f"Look at _delta_log/{number:020}.json below the table. Ask its writer, or restore the file from a "
            "backup. Wherry processed nothing.",
        ) from error


def _make_version(number: int, lines: Iterable[str]) -> Version:
    actions: list[ActionBody] = [json.loads(line) for line in lines if line.strip()]
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), CommitBody())
    operation = info.get("operation", "")
    began_anew = begins_anew(number, operation)
    came = tuple(_parse_added(add) for add in adds if add.get("dataChange", True))
    went = tuple(_parse_added(remove) for remove in removes if remove.get("dataChange", True))
    tally = tally_rows(operation, info.get("operationMetrics") or {})
    columns = next((check_columns(each["metaData"]["schemaString"]) for each in actions if "metaData" in each), None)
    deletes = operation == "DELETE" or (tally is not None and tally[:2] == (0, 0))
    return Version(
        number=number,
        operation=operation,
        added=came,
        rewrites=began_anew or bool(went),
        removed=frozenset(unquote(remove["path"]) for remove in removes),
        columns=columns,
        redefines=columns is not None,
        rearranged=tuple(_parse_added(add) for add in adds if not add.get("dataChange", True)),
        only_deletes=bool(went) and not began_anew and (deletes or not came),
        feed=tuple(_parse_added(action["cdc"]) for action in actions if "cdc" in action) or (*came, *went),
        rows=_count_rows((*came, *went)) if tally is None else sum(tally),
        updated=tally[1] if tally is not None else None if operation in ("UPDATE", "MERGE") else 0,
    )


def begins_anew(number: int, operation: str) -> bool:
    """Return whether a version replaced all rows of the table."""
    return number > 0 and (operation in ("RESTORE", "CLONE") or "REPLACE TABLE" in operation)


def check_columns(schema: str) -> str:
    """Return the columns of a table if they are what Delta writes. Raise `ValueError`, `LookupError` or `TypeError`."""
    columns: NestedBody = json.loads(schema)
    if not isinstance(columns["fields"], list):
        raise TypeError("the fields of schemaString are no list")
    return schema


def tally_rows(operation: str, metrics: Mapping[str, str]) -> tuple[int, int, int] | None:
    """Return how many rows the operation inserted, changed and deleted; None if its writer did not count them."""
    if operation not in ("DELETE", "UPDATE", "MERGE"):
        return None
    figures = {name.replace("_", "").lower(): value for name, value in metrics.items()}
    counts = [
        next((int(figures[name]) for name in names if name in figures), None) for names in (_CAME, _CHANGED, _WENT)
    ]
    needed = {"DELETE": counts[2:], "UPDATE": counts[1:2], "MERGE": counts}[operation]
    if None in needed:
        return None
    came, changed, went = (count or 0 for count in counts)
    return came, changed, went


def _count_rows(files: Sequence[AddedFile]) -> int | None:
    """Return how many rows these files have.

    It is None if a writer did not count them, or if some rows of a file are deleted.
    """
    counts = [file.rows for file in files if file.plain]
    return None if None in counts or len(counts) < len(files) else sum(filter(None, counts))


def _parse_added(add: FileBody) -> AddedFile:
    path = unquote(add["path"])
    stats: StatisticsBody = json.loads(add.get("stats") or "{}")
    below = not path.startswith("/") and ":" not in path.split("/")[0]
    return AddedFile(
        path=path,
        size=add.get("size") or 0,
        rows=stats.get("numRecords"),
        plain=below and not add.get("deletionVector"),
        stats=add.get("stats") or "",
    )
