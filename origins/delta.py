"""`delta`: the rows that were added to a Delta table, version by version."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from origins.batch import JSON, Batch, Limits, Span
from origins.delta_rows import rows_of
from origins.delta_table import Table, bare, whole
from origins.delta_versions import Added, Version
from origins.errors import OriginError
from origins.names import SCHEME, TABLE, last_of_table, last_part
from origins.origin import Backlog, Origin, Progress
from origins.schema import checked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Delta(Origin):
    """The rows that were added to a Delta table, version by version; a version is never split over two batches.

    Versions that only write rows anew (OPTIMIZE) or say something about the table bring no rows. One that changed or
    took rows that were there before is an error: an origin of additions cannot say what became of them.
    """

    binds: ClassVar[frozenset[str]] = frozenset({"rows", "bytes", "files"})
    regroups: ClassVar[bool] = False

    path: str | None = field(default=None, metadata={"path": True})
    """Where the table lies; relative to the definition."""
    table: str | None = field(default=None, metadata={"like": "main.shop.orders"})
    """Its name in a catalog; this or `path`."""
    tables: Sequence[str] = field(default=(), metadata={"like": "[main.raw.orders, main.raw.items]"})
    """Several, each a lane with columns of its own, named as the table is."""
    paths: Sequence[str] = field(default=(), metadata={"path": True, "like": "[raw/orders, raw/items]"})
    """The same of folders."""
    starting_version: str | int = "beginning"
    """`beginning`, `latest` (only what is added from now on), or the first version whose rows are read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_places(self)
        if self.lanes != 1:
            raise ValueError(f"lanes: expected 1, since versions follow each other, got {self.lanes}")
        begins = self.starting_version
        if begins not in ("beginning", "latest") and not (isinstance(begins, int) and begins >= 0):
            raise ValueError(f"starting_version: expected beginning, latest or a version, got {begins!r}")

    @property
    def place(self) -> str:
        if self.table or self.tables:
            return self.table or ", ".join(self.tables)
        return ", ".join(
            path if SCHEME.match(path) else os.path.abspath(path) for path in (self.paths or (self.path or "",))
        )

    def lane_names(self) -> tuple[str, ...]:
        return (*map(last_of_table, self.tables), *map(last_part, self.paths)) or super().lane_names()

    def each(self, prefix: str = "") -> Sequence[Origin]:
        if not self.tables and not self.paths:
            return (self,)
        places = [*({"table": table} for table in self.tables), *({"path": path} for path in self.paths)]
        return [self._alone(prefix, lane, **place) for lane, place in zip(self.lane_names(), places, strict=True)]

    def _alone(self, prefix: str, lane: str, *, table: str | None = None, path: str | None = None) -> Delta:
        """The same for one of its tables."""
        only = replace(self, table=table, path=path, tables=(), paths=(), name=prefix + lane)
        object.__setattr__(only, "only_lane", lane)
        return only

    def check_offset(self, lane: str, offset: JSON) -> None:
        told = offset if isinstance(offset, dict) else {}
        version, table = told.get("version"), told.get("table")
        if not isinstance(version, int) or version < -1 or not isinstance(table, str):
            example = {"version": 7, "table": "the table's id"}
            raise ValueError(f"expected a version of the table, as {json.dumps(example)}, got {json.dumps(offset)}")

    def is_still(self, spark: SparkSession, offsets: Sequence[JSON]) -> bool:
        known = {offset.get("table") for offset in offsets if isinstance(offset, Mapping)}
        try:
            return bool(known) and known == {Table.find(spark, self.place, named=bool(self.table)).id}
        except OriginError:
            return False

    def survey(self, spark: SparkSession, progress: Progress) -> Appends:
        table = Table.find(spark, self.place, named=bool(self.table))
        columns = self._columns(spark)
        offset, begins = progress.offsets.get(self.lane_names()[0]), self.starting_version
        if offset is not None or isinstance(begins, int):
            after = begins - 1 if isinstance(begins, int) and offset is None else table.version_of(offset)
            return Appends(table, columns, None, table.following(spark, after), newest=after)
        versions = table.log.after(spark, -1)
        newest = versions[-1].number if versions else table.newest(spark)
        if begins == "latest":
            here = Span(start=None, end=table.offset(newest), label=f"nothing up to version {newest}")
            return Appends(table, columns, here, [], newest=newest)
        return _from_the_beginning(table, columns, versions, newest)

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        assert isinstance(backlog, Appends)
        return backlog.columns

    def fetch(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> DataFrame:
        return rows_of(spark, self.place, batch, named=bool(self.table), places=places)

    def parts(self, batch: Batch) -> Sequence[str]:
        return [path for path, *_ in batch.span.parts]

    def _columns(self, spark: SparkSession) -> str:
        from pyspark.sql.types import StructType

        columns = bare(whole(spark, self.place, named=bool(self.table)).schema.json())
        checked(StructType.fromJson(json.loads(columns)), self.place)
        return columns


def _check_places(origin: Delta) -> None:
    """Raises ValueError unless it is said in one way which tables are read."""
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


def _from_the_beginning(table: Table, columns: str, versions: Sequence[Version], newest: int) -> Appends:
    """Version by version, if no file ever went; else the table as it was after the last one that did, and what came."""
    changes = [version.number for version in versions if version.rewrites or version.moved]
    if not changes and versions and versions[0].number == 0:
        return Appends(table, columns, None, versions, newest=newest)
    base = changes[-1] if changes else newest
    whole = Span(
        start=None,
        end=table.offset(base),
        parts=(["", 0, base],),
        label=f"the table as of version {base}",
    )
    return Appends(table, columns, whole, [version for version in versions if version.number > base], newest=newest)


class Appends(Backlog):
    """The versions of a table that were there and not yet carried."""

    def __init__(
        self, table: Table, columns: str, opening: Span | None, versions: Sequence[Version], *, newest: int
    ) -> None:
        self.table = table
        self.columns = columns
        self._opening = opening
        """What comes before all versions, at the beginning."""
        self._versions = versions
        self._newest = max([newest, *(version.number for version in versions)])

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        if start is None and self._opening is not None:
            return self._opening
        taken: list[Version] = []
        load, files, closed = _Load(), set[str](), False
        for version in self._after(start):
            more = load.plus(version.added)
            closed = not files.isdisjoint(version.moved) or bool(taken and version.added and more.exceeds(limits))
            if closed:
                break
            if version.added:
                taken.append(version)
                files.update(file.path for file in version.added)
                load = more
        if not taken:
            return None
        first, last = taken[0].number, taken[-1].number
        added = [file for version in taken for file in version.added]
        as_of = [] if self.table.is_plain and all(file.plain for file in added) else [last]
        return Span(
            start=start,
            end=self.table.offset(last),
            parts=tuple([file.path, file.size, *as_of] for file in added),
            label=f"version {last}" if first == last else f"versions {first} to {last}",
            full=closed or load.exceeds(limits, room=0),
        )

    def again(self, spark: SparkSession, offsets: Mapping[str, JSON]) -> Backlog:
        found = self.table.following(spark, self._newest)
        if not found:
            return self
        self.table.check_columns(self.columns, found)
        waiting = self._after(next(iter(offsets.values()), None))
        return Appends(self.table, self.columns, self._opening, [*waiting, *found], newest=self._newest)

    def behind(self, lane: str, start: JSON) -> str:
        if start is None and self._opening is not None:
            return self._opening.label
        waiting = [version for version in self._after(start) if version.added]
        size = sum(file.size for version in waiting for file in version.added)
        return f"{len(waiting)} version{'s' * (len(waiting) != 1)}, {size:,} bytes" if waiting else ""

    def _after(self, start: JSON) -> list[Version]:
        carried = self.table.version_of(start) if start else -1
        return [version for version in self._versions if version.number > carried]


@dataclass(frozen=True, kw_only=True)
class _Load:
    """How much a batch holds."""

    files: int = 0
    bytes: int = 0
    rows: float = 0
    """Without end where a writer did not count them."""

    def plus(self, added: Sequence[Added]) -> _Load:
        return _Load(
            files=self.files + len(added),
            bytes=self.bytes + sum(file.size for file in added),
            rows=self.rows + sum(math.inf if file.rows is None else file.rows for file in added),
        )

    def exceeds(self, limits: Limits, *, room: int = 1) -> bool:
        """Whether it is more than a batch may hold; with no `room`, whether it has none for another row."""
        bounds = ((self.files, limits.files), (self.bytes, limits.bytes), (self.rows, limits.rows))
        return any(limit is not None and amount >= limit + room for amount, limit in bounds)
