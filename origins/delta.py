"""`delta`: the rows that were added to a Delta table, or all changes of its versions, version by version."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from origins.batch import Backlog, Batch, Json, Limits, Span
from origins.batch_rows import FrameRows
from origins.capabilities import KnowsPlace, NamesSources, StandsForSeveral, TakesOffsets
from origins.catalog.history import HistoryLog
from origins.codec import decode
from origins.delta_actions import AddedFile, Version, VersionLog, describe_versions
from origins.delta_table import (
    DeltaTable,
    Part,
    add_change_columns,
    explain_unreadable,
    fetch_rows,
    read_offset,
    read_whole,
    strip_metadata,
)
from origins.errors import OriginError
from origins.lazy import SparkSession, T
from origins.names import TABLE, get_last_part, get_table_name, make_absolute
from origins.origin import Origin, Progress
from origins.schema import check_schema


@dataclass(frozen=True, kw_only=True)
class Delta(Origin, KnowsPlace, NamesSources, StandsForSeveral, TakesOffsets):
    """Reads the rows that were added to a Delta table, version by version. One batch holds all rows of a version.

    Versions without new rows, such as those of OPTIMIZE, give no rows. A version that changed or deleted rows is an
    error, unless `changes` or `on_rewrite` says otherwise.

    Example:
        delta:
          path: tables/bronze_orders
          starting_version: latest
    """

    binds: ClassVar[frozenset[str]] = frozenset({"rows", "bytes", "files"})
    whole_by: ClassVar[str] = "read: whole"

    path: str | None = field(default=None, metadata={"path": True})
    """The table's folder, relative to the definition; or a URL."""
    table: str | None = field(default=None, metadata={"like": "main.shop.orders"})
    """The table's name in a catalog. Give either this or `path`."""
    tables: Sequence[str] = field(default=(), metadata={"like": "[main.raw.orders, main.raw.items]"})
    """Several tables by their names in a catalog. Each is a lane of its own, with its own columns."""
    paths: Sequence[str] = field(default=(), metadata={"path": True, "like": "[raw/orders, raw/items]"})
    """Several tables by their folders. Each is a lane of its own, with its own columns."""
    starting_version: str | int = "beginning"
    """Where the first run begins: `beginning`, `latest` (only rows that are added from now on), or a version."""
    changes: bool = False
    """Whether to read the table's change data feed: inserts, updates and deletes. First comes the whole table."""
    preimages: bool = False
    """With `changes`: whether to read each updated row also as it was before the update."""
    on_rewrite: Literal["stop", "snapshot", "ignore_deletes"] = "stop"
    """Without `changes`, what happens after an update or delete. The choices are an error, the whole table again, or
    to ignore deletes."""
    only_lane: str = field(default="", repr=False, metadata={"hidden": True})
    is_dlq: bool = field(default=False, repr=False, metadata={"hidden": True})
    """Whether its rows are entries of a DLQ. An entry that existed before is never new, even if it was changed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_places(self)
        if self.lanes != 1:
            raise ValueError(f"lanes: expected 1, since versions follow each other, got {self.lanes}")
        begins = self.starting_version
        if begins not in ("beginning", "latest") and not (isinstance(begins, int) and begins >= 0):
            raise ValueError(f"starting_version: expected beginning, latest or a version, got {begins!r}")
        _check_policies(self)

    @property
    def place(self) -> str:
        if self.table or self.tables:
            return self.table or ", ".join(self.tables)
        return ", ".join(map(make_absolute, self.paths or (self.path or "",)))

    def lane_names(self) -> tuple[str, ...]:
        lanes = (self.only_lane,) if self.only_lane else super().lane_names()
        return (*map(get_table_name, self.tables), *map(get_last_part, self.paths)) or lanes

    def each(self, prefix: str = "") -> Sequence[Delta]:
        places = [*((table, None) for table in self.tables), *((None, path) for path in self.paths)]
        if not places:
            return (self,)
        return [
            replace(self, table=table, path=path, tables=(), paths=(), name=prefix + lane, only_lane=lane)
            for lane, (table, path) in zip(self.lane_names(), places, strict=True)
        ]

    def check_offset(self, lane: str, offset: Json) -> None:
        given = offset if isinstance(offset, dict) else {}
        version, table = given.get("version"), given.get("table")
        if not isinstance(version, int) or version < -1 or not isinstance(table, str):
            example = {"version": 7, "table": "the table's id"}
            raise ValueError(f"expected a version of the table, as {json.dumps(example)}, got {json.dumps(offset)}")

    def is_still(self, spark: SparkSession, offsets: Sequence[Json]) -> bool:
        known = {offset.get("table") for offset in offsets if isinstance(offset, Mapping)}
        try:
            return bool(known) and known == {DeltaTable.find(spark, self.place, named=bool(self.table)).id}
        except OriginError:
            return False

    def stands(self, spark: SparkSession, offsets: Mapping[str, Json]) -> bool:
        table = DeltaTable.find(spark, self.place, named=bool(self.table))
        return all(offset is not None and self._is_unchanged(table, spark, offset) for offset in offsets.values())

    def _is_unchanged(self, table: DeltaTable, spark: SparkSession, offset: Json) -> bool:
        """Return whether no version after the offset added, changed or removed rows, or changed the table's columns."""
        newest, table_id = read_offset(offset)
        if table_id != table.id:
            return False
        found, is_there = table.log.look(spark, newest)
        is_all = found[0].number == newest + 1 if found else is_there
        return is_all and not any(version.has_news or version.redefines for version in found)

    def name_source(self, span: Span) -> str:
        return span.label

    def describe_skipped(self, before: Json, after: Json) -> str:
        if self.table or after is None:
            return ""
        first, last = read_offset(before)[0] + 1 if before else 0, read_offset(after)[0]
        versions = [version for version in VersionLog(self.place).list_local_after(first - 1) if version.number <= last]
        if last < first or not versions:
            return ""
        lost = versions[0].number - first
        unknown = f", and versions {first} to {versions[0].number - 1}, which are no longer in the log" if lost else ""
        return describe_versions(versions) + unknown

    def survey(self, spark: SparkSession, progress: Progress) -> DeltaBacklog:
        lane = self.lane_names()[0]
        offset, begins = progress.offsets.get(lane), self.starting_version
        known_as = (self.only_lane and self.name) or lane
        table = DeltaTable.find(spark, self.place, named=bool(self.table), lane=known_as)
        if self.changes:
            table.check_feed(spark, [], known=True)
        if self.read == "whole" and offset is not None and self._is_unchanged(table, spark, offset):
            newest, _ = read_offset(offset)
            return DeltaBacklog(origin=self, table=table, columns_there=self._columns(spark), newest=newest)
        if self.read == "whole" or (self.changes and begins == "beginning" and offset is None):
            newest, moment = table.find_newest(spark)
            opening = _make_whole_span(table, newest, inserted=moment if self.changes else None)
            columns = self._columns(spark, newest)
            return DeltaBacklog(origin=self, table=table, columns_there=columns, newest=newest, opening=opening)
        columns = self._columns(spark)
        if offset is not None or isinstance(begins, int):
            after = begins - 1 if isinstance(begins, int) and offset is None else table.version_of(offset)
            waiting = DeltaBacklog(origin=self, table=table, columns_there=columns, newest=after)
            return waiting.extend_with(spark, table.list_versions_after(spark, after), kept_before=offset is not None)
        versions = table.log.list_after(spark, -1)
        newest = versions[-1].number if versions else table.find_newest(spark)[0]
        waiting = DeltaBacklog(origin=self, table=table, columns_there=columns, newest=newest)
        if begins == "latest":
            here = Span(start=None, end=table.make_offset(newest), label=f"nothing up to version {newest}")
            return replace(waiting, opening=here)
        return _start_over(waiting, versions)

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        assert isinstance(backlog, DeltaBacklog)
        return backlog.columns

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> FrameRows:
        (batch,) = batches
        schema = T.StructType.fromJson(json.loads(batch.schema))
        return FrameRows(fetch_rows(spark, self.place, batch.span, schema, named=bool(self.table), places=places))

    def parts(self, batch: Batch) -> Sequence[str]:
        return [decode(Part, part).path for part in batch.span.parts]

    def _columns(self, spark: SparkSession, version: int | None = None) -> str:
        with explain_unreadable(self.place):
            found = read_whole(spark, self.place, named=bool(self.table), version=version).schema
        columns = strip_metadata(found.json())
        check_schema(T.StructType.fromJson(json.loads(columns)), self.place)
        return columns


def _check_places(origin: Delta) -> None:
    """Raise ValueError unless exactly one option names the tables."""
    given = [name for name in ("path", "table", "paths", "tables") if getattr(origin, name)]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        raise ValueError(f"path: expected one of path, table, paths and tables, got {got}")
    for name in ("tables", "paths"):
        if isinstance(getattr(origin, name), str):
            raise ValueError(f"{name}: expected a list, got {getattr(origin, name)!r}")
    for table in (origin.table, *origin.tables):
        if table and not TABLE.fullmatch(table):
            option = "table" if origin.table else "tables"
            raise ValueError(f"{option}: expected a name such as catalog.schema.table, got {table!r}")
    lanes = [lane.lower() for lane in origin.lane_names()]
    for lane in lanes:
        if not lane or lanes.count(lane) > 1:
            raise ValueError(f"{given[0]}: expected names that differ in their last part, got {lane!r} twice")


def _check_policies(origin: Delta) -> None:
    """Raise ValueError if options contradict each other about what to read of the table."""
    if origin.on_rewrite not in ("stop", "snapshot", "ignore_deletes"):
        raise ValueError(f"on_rewrite: expected stop, snapshot or ignore_deletes, got {origin.on_rewrite!r}")
    if origin.preimages and not origin.changes:
        raise ValueError("preimages: expected with changes: true only, got it without")
    if origin.changes and origin.read == "whole":
        raise ValueError("changes: expected with read: new only; read: whole takes the table as it is")
    if origin.changes and origin.on_rewrite != "stop":
        raise ValueError(
            "on_rewrite: expected without changes: true only; the change data feed already reports what "
            "a rewrite changed"
        )
    if origin.read == "whole":
        for option, default in (("on_rewrite", "stop"), ("starting_version", "beginning")):
            if getattr(origin, option) != default:
                raise ValueError(f"{option}: expected with read: new only; read: whole takes the table as it is")


def _make_whole_span(table: DeltaTable, version: int, *, inserted: int | None = None) -> Span:
    """Return a span of the whole table at a version. If `inserted` is given, its rows are inserts at that moment."""
    beside = [] if inserted is None else [{"inserted": inserted}]
    label = f"the table as of version {version}"
    return Span(start=None, end=table.make_offset(version), parts=(["", 0, version, *beside],), label=label)


def _start_over(waiting: DeltaBacklog, versions: Sequence[Version]) -> DeltaBacklog:
    """Return the backlog version by version if the log is complete and no file was ever removed.

    Otherwise begin with the whole table after the last version that removed a file, then continue with later versions.
    """
    changes = [version.number for version in versions if version.rewrites or version.removed]
    if not changes and versions and versions[0].number == 0:
        return replace(waiting, versions=versions)
    base = changes[-1] if changes else waiting.newest
    behind = [version for version in versions if version.number > base]
    return replace(waiting, opening=_make_whole_span(waiting.table, base), versions=behind)


@dataclass(frozen=True, kw_only=True)
class DeltaBacklog(Backlog):
    """The versions of a table that existed at the survey and are not yet carried."""

    origin: Delta
    table: DeltaTable
    columns_there: str
    """The columns of the table, as Spark's JSON."""
    newest: int
    """The newest known version."""
    versions: Sequence[Version] = ()
    opening: Span | None = None
    """The span before all versions."""
    notices: Sequence[str] = ()

    @property
    def columns(self) -> str:
        """Return the columns of the rows, as Spark's JSON."""
        return add_change_columns(self.columns_there) if self.origin.changes else self.columns_there

    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        if (opening := self._find_opening(start)) is not None:
            return replace(opening, start=start)
        taken: list[Version] = []
        load, files, closed = _Load(), set[str](), False
        for version in self._list_after(start):
            brought = self._measure_load(version)
            more = load.add(brought)
            ends = bool(taken and brought.files) and (more.is_beyond(limits) or version.way != taken[0].way)
            closed = ends or not files.isdisjoint(version.removed)
            if closed:
                break
            if brought.files:
                taken.append(version)
                files.update(() if self.origin.changes else (file.path for file in version.added))
                load = more
        if not taken:
            return self._skip_passed(start)
        first, last = taken[0].number, taken[-1].number
        label = f"version {last}" if first == last else f"versions {first} to {last}"
        return Span(
            start=start,
            end=self.table.make_offset(last),
            parts=self._parts(taken, load),
            label=f"changes of {label}" if self.origin.changes else label,
            full=closed or load.is_beyond(limits, room=0),
        )

    def again(self, spark: SparkSession, offsets: Mapping[str, Json]) -> Backlog:
        if self.origin.read == "whole":
            return self
        table = self.table
        found = table.list_versions_after(spark, self.newest)
        if not found:
            return self
        if isinstance(table.log, HistoryLog) and any(version.redefines for version in found):
            table = DeltaTable.find(spark, self.origin.place, named=True, lane=table.lane)
            found = table.list_versions_after(spark, self.newest)
        if not self.origin.is_dlq:
            table.check_columns(spark, self.columns_there, found)
        waiting = self._list_after(next(iter(offsets.values()), None))
        return replace(self, table=table, versions=waiting).extend_with(spark, found, kept_before=True)

    def extend_with(self, spark: SparkSession, found: Sequence[Version], *, kept_before: bool) -> DeltaBacklog:
        """Return the backlog with these later versions added. The origin's options decide about rewrites.

        `kept_before` is whether a change data feed was kept right before these versions.
        """
        newest = max([self.newest, *(version.number for version in found)])
        origin, rewrites = self.origin, [version for version in found if version.rewrites]
        if origin.changes:
            self.table.check_feed(spark, found, known=kept_before)
        elif rewrites and origin.on_rewrite == "snapshot":
            base = rewrites[-1].number
            rows = read_whole(spark, origin.place, named=bool(origin.table), version=base).count()
            notice = (
                f"{describe_versions(rewrites)} of {self.table.name} changed or deleted rows; Wherry reads the whole "
                f"table again as of version {base}, {rows:,} row{'s' * (rows != 1)} (on_rewrite: snapshot)"
            )
            behind = [version for version in found if version.number > base]
            opening = _make_whole_span(self.table, base)
            return replace(self, opening=opening, versions=behind, newest=newest, notices=(notice,))
        elif rewrites:
            notices: tuple[str, ...] = ()
            if origin.is_dlq:
                self.table.check_entries(found)
            else:
                self.table.check_appends(found, passes_deletes=origin.on_rewrite == "ignore_deletes")
                notices = (
                    f"Wherry ignores deletes in {self.table.name}, and the deleted rows stay in the destinations: "
                    f"{describe_versions(rewrites)} (on_rewrite: ignore_deletes)",
                )
            without = [replace(version, added=()) if version.rewrites else version for version in found]
            return replace(self, versions=[*self.versions, *without], newest=newest, notices=notices)
        return replace(self, versions=[*self.versions, *found], newest=newest)

    def _find_opening(self, start: Json) -> Span | None:
        """Return the opening, unless it is before this offset."""
        if self.opening is None or start is None:
            return self.opening
        if self.origin.read == "whole":
            return self.opening if start != self.opening.end else None
        version_of = self.table.version_of
        return self.opening if version_of(start) < version_of(self.opening.end) else None

    def _list_after(self, start: Json) -> list[Version]:
        carried = self.table.version_of(start) if start else -1
        return [version for version in self.versions if version.number > carried]

    def _measure_load(self, version: Version) -> _Load:
        if not self.origin.changes:
            return _Load.of(version.added, None)
        rows = version.rows
        if self.origin.preimages and rows is not None:
            rows = None if version.updated is None else rows + version.updated
        return _Load.of(version.feed, math.inf if rows is None else rows)

    def _parts(self, taken: Sequence[Version], load: _Load) -> tuple[Json, ...]:
        last = taken[-1].number
        if self.origin.changes:
            return (["", load.bytes, last, {"since": taken[0].number, "preimages": self.origin.preimages}],)
        if taken[0].way != "log":
            return (["", load.bytes, last, {"since": taken[0].number, "added": taken[0].way}],)
        added = [file for version in taken for file in version.added]
        as_of = [] if self.table.is_plain and all(file.plain for file in added) else [last]
        return tuple([file.path, file.size, *as_of] for file in added)

    def _skip_passed(self, start: Json) -> Span | None:
        """Return a span without rows that records passed deletes, if no row waits behind them.

        It is None if no deletes were passed.
        """
        passed = [version.number for version in self._list_after(start) if version.rewrites and not self.origin.changes]
        if not passed:
            return None
        return Span(start=start, end=self.table.make_offset(passed[-1]), label=f"nothing up to version {passed[-1]}")


@dataclass(frozen=True, kw_only=True)
class _Load:
    """The amount that a batch holds."""

    files: int = 0
    bytes: int = 0
    rows: float = 0
    """Infinite if a writer did not count them."""

    @staticmethod
    def of(files: Sequence[AddedFile], rows: float | None) -> _Load:
        """Return the load of these files. `rows` replaces the row count of the files, if it is given."""
        counted = sum(math.inf if file.rows is None else file.rows for file in files)
        size = sum(file.size for file in files)
        return _Load(files=len(files), bytes=size, rows=counted if rows is None else rows)

    def add(self, other: _Load) -> _Load:
        return _Load(files=self.files + other.files, bytes=self.bytes + other.bytes, rows=self.rows + other.rows)

    def is_beyond(self, limits: Limits, *, room: int = 1) -> bool:
        """Return whether it is more than a batch may hold. With `room=0`: whether there is no room for another row."""
        bounds = ((self.files, limits.files), (self.bytes, limits.bytes), (self.rows, limits.rows))
        return any(limit is not None and amount >= limit + room for amount, limit in bounds)
