"""A Delta table that rows are read from: which one it is, what columns it has, and what came after a version."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.batch import JSON
from origins.delta_versions import Version, Versions, named
from origins.errors import OriginError
from origins.names import no_such_table, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DETAILS = ("format", "id", "location", "partitionColumns", "properties", "tableFeatures")
_HARMLESS = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns",
    "allowColumnDefaults", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "domainMetadata",
    "rowTracking", "clustering", "inCommitTimestamp",
}  # fmt: skip
"""What a table may use while each of its files still holds the rows as they are."""
FEED = "delta.enableChangeDataFeed"
"""The property of a table that keeps a change data feed."""
CHANGE, COMMIT, MOMENT = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns of a change data feed beside those of its table, as Delta calls them."""
_UNTOLD = {
    "DELTA_MISSING_CHANGE_DATA": "the feed was off in one of them",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_": "a column was renamed or dropped, or has another type",
}
"""Why a feed does not tell all of a range, by how Delta calls it."""
_AGAIN = "wherry run FILE --from-beginning"


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table."""

    name: str
    """As it is named in SQL."""
    id: str
    log: Versions
    is_plain: bool
    """Whether its files hold its columns under their names, and nothing else is needed to read them."""
    keeps_feed: bool
    """Whether it records what its rows change."""
    lane: str = "0"
    """The lane in which it is read, as the pipeline calls it."""

    @staticmethod
    def find(spark: SparkSession, place: str, *, named: bool, lane: str = "0") -> Table:
        """The table at this place. Raises `OriginError` when there is none."""
        from pyspark.errors import AnalysisException

        name = place if named else f"delta.{quoted(place)}"
        try:
            found = spark.sql(f"DESCRIBE DETAIL {name}")
            ((kind, table_id, location, partitions, properties, features),) = found.select(*_DETAILS).collect()
        except AnalysisException as error:
            if no_such_table(error):
                raise _none(place) from error
            raise
        if kind != "delta":
            raise OriginError(f"{place} is not a Delta table but {kind}.", hint="Read it with the origin files.")
        mapping = properties.get("delta.columnMapping.mode", "none")
        is_plain = not partitions and mapping == "none" and set(features or ()) <= _HARMLESS | {"columnMapping"}
        here = os.path.abspath(place) if place.startswith("/") else location
        keeps_feed = str(properties.get(FEED, "false")).lower() == "true"
        return Table(name=name, id=table_id, log=Versions(here), is_plain=is_plain, keeps_feed=keeps_feed, lane=lane)

    def offset(self, version: int) -> JSON:
        """How far the table was read: up to and including this version."""
        return {"version": version, "table": self.id}

    def version_of(self, offset: JSON) -> int:
        """The version of an offset. Raises `OriginError` for one of another table."""
        try:
            version, table = int(offset["version"]), offset["table"]
        except (KeyError, TypeError, ValueError) as error:
            raise OriginError(
                f"The offset of {self.name} is {json.dumps(offset)}; expected a version and the table's id.",
                hint=f"Set one such as  {self.command(7)}\nIt skips every version up to that one.",
            ) from error
        if table != self.id:
            raise OriginError(
                f"{self.name} is not the table that was read before: it was replaced, or dropped and made "
                f"anew. Its id is {self.id} and was {table}.",
                hint=_ways(start_over="The rows of the old table stay where they were carried to."),
            )
        return version

    def following(self, spark: SparkSession, version: int) -> list[Version]:
        """What came after a version. Raises `OriginError` if that is not known."""
        found = self.log.after(spark, version)
        first = found[0].number if found else None
        if first is None and not self.log.has(version) and (newest := self.newest(spark)) != version:
            first = newest if newest > version else None
            if first is None and version >= 0:
                raise OriginError(
                    f"{self.name} has no version {version}; its newest is {newest}.",
                    hint=_ways(
                        skip=(self.command(newest), f"This skips all {newest + 1:,} versions that the table has."),
                        start_over="All rows that the table has come again.",
                    ),
                )
        if first is not None and first != version + 1:
            lost = first - version - 1
            raise OriginError(
                f"The log of {self.name} no longer tells what version {version + 1} added; it begins with {first}.",
                hint=_ways(
                    skip=(
                        self.command(first - 1),
                        f"This skips {lost:,} version{'s' * (lost != 1)}, {version + 1} to {first - 1}; the log no "
                        "longer says what rows they brought, changed or took.",
                    ),
                    start_over="All rows that the table has come again.",
                ),
            )
        return found

    def check_appends(self, found: Sequence[Version], *, passes_deletes: bool = False) -> None:
        """Raise `OriginError` if one of these versions changed or took rows that were there before; with
        `passes_deletes` those that only took some are no error."""
        on = "does" if self.keeps_feed else "does not yet, so these versions are not in it"
        for at, each in enumerate(found):
            if each.rewrites and not (passes_deletes and each.only_deletes):
                deletes = {"on_rewrite: ignore_deletes": "The rows it took stay in the destinations."}
                raise OriginError(
                    f"Version {each} of {self.name} changed or took away rows that were there before; "
                    "this origin reads what is added. Nothing of what waits was read.",
                    hint=_ways(
                        {
                            "changes: true": "The origin reads what each version inserts, updates and deletes. The "
                            f"table must keep a change data feed: it {on}.",
                            "on_rewrite: snapshot": "The whole table comes again, as it is behind the rewrite.",
                            **(deletes if each.only_deletes else {}),
                        },
                        skip=(self.command(each.number), f"This skips {named(found[: at + 1])}."),
                        start_over="All rows that the table has come again.",
                    ),
                )

    def check_feed(self, spark: SparkSession, found: Sequence[Version], *, known: bool) -> None:
        """Raise `OriginError` unless the change data feed tells all of these versions.

        `known` says that it was kept right before them.
        """
        from pyspark.errors import PySparkException

        if not self.keeps_feed:
            raise OriginError(
                f"{self.name} keeps no change data feed, and the origin reads changes. Nothing was read.",
                hint=_ways(
                    {
                        "turn it on": f"ALTER TABLE {self.name} SET TBLPROPERTIES ({FEED} = true)",
                        "leave `changes` out": "The origin reads added rows; on_rewrite says what a rewrite does.",
                    },
                    start_over="Once the feed is on: all rows that the table has come as inserts.",
                ),
            )
        if not found or (known and not any(version.columns for version in found)):
            return
        first, last = found[0].number, found[-1].number
        try:
            feed(spark, self, first, last).where(f"{COMMIT} < 0").count()
        except PySparkException as error:
            why = next((why for sign, why in _UNTOLD.items() if sign in str(error)), None)
            if why is None:
                raise
            raise OriginError(
                f"The change data feed of {self.name} does not tell versions {first} to {last}: {why}. "
                "Nothing of them was read.",
                hint=lost_feed((self.command(last), f"This skips {named(found)}.")),
            ) from error

    def command(self, version: int) -> str:
        """The command that goes on behind a version."""
        offset = json.dumps(self.offset(version))
        return f"wherry offsets set FILE --lane {self.lane} --reason … --offset '{offset}'"

    def newest(self, spark: SparkSession) -> int:
        """The newest version, as Spark says."""
        return self.newest_and_when(spark)[0]

    def newest_and_when(self, spark: SparkSession) -> tuple[int, int]:
        """The newest version, and when it was committed, in milliseconds since 1970."""
        history = spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1")
        ((version, moment),) = history.selectExpr("version", "unix_millis(timestamp)").collect()
        return int(version), int(moment)

    def check_columns(self, columns: str, versions: Sequence[Version]) -> None:
        """Raise `OriginError` if one of these versions gave the table other columns."""
        for version in versions:
            if version.columns and json.loads(bare(version.columns)) != json.loads(columns):
                raise OriginError(
                    f"The columns of {self.name} changed in version {version.number} while it was being followed.",
                    hint="Run again: a run reads with the columns that the table has when it begins.",
                )


def feed(spark: SparkSession, table: Table, first: int, last: int) -> DataFrame:
    """What these versions of a table changed, both inclusive, as Delta tells it."""
    range_ = {"readChangeFeed": "true", "startingVersion": str(first), "endingVersion": str(last)}
    return spark.read.format("delta").options(**range_).table(table.name)


def whole(spark: SparkSession, place: str, *, named: bool, version: int | None = None) -> DataFrame:
    """All rows of a table, as of a version."""
    if named:
        return spark.table(place) if version is None else spark.sql(f"SELECT * FROM {place} VERSION AS OF {version}")
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(place)


def bare(schema: str) -> str:
    """A schema without what only Delta needs to know of its columns; both as Spark's JSON."""
    return json.dumps(_bare(json.loads(schema)))


def with_changes(columns: str) -> str:
    """The columns of a table's change data feed, of those of the table; both as Spark's JSON."""
    told = json.loads(columns)
    beside = ((CHANGE, "string"), (COMMIT, "long"), (MOMENT, "timestamp"))
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in beside]
    return json.dumps({**told, "fields": [*told["fields"], *fields]})


def _bare(kind: JSON) -> JSON:
    """A type as Spark's JSON, in which everything may be NULL and nothing has metadata."""
    if isinstance(kind, list):
        return [_bare(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    told = {"nullable": True, "metadata": {}, "containsNull": True, "valueContainsNull": True}
    return {name: told.get(name, _bare(value)) for name, value in kind.items()}


def _none(place: str) -> OriginError:
    return OriginError(
        f"There is no Delta table at {place}.",
        hint="Correct the origin's path or table, or make the table first; an empty one is fine.",
    )


def lost_feed(skip: tuple[str, str] | None = None) -> str:
    """The ways on where a change data feed no longer tells what is wanted."""
    told = "All rows that the table has come as inserts. Rows deleted meanwhile stay in a table that is merged into."
    return _ways(skip=skip, start_over=told)


def _ways(options: Mapping[str, str] = {}, *, skip: tuple[str, str] | None = None, start_over: str) -> str:
    """The ways on, each with what it does."""
    lines = [f"{option}  {told}" for option, told in options.items()]
    lines += ["skip it:  " + skip[0], "  " + skip[1]] if skip else []
    return "\n".join([*lines, f"start over:  {_AGAIN}", "  " + start_over])
