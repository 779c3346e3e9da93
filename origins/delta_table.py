"""A Delta table that rows are read from: which one it is, what columns it has, and what came after a version."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.batch import JSON
from origins.delta_versions import Version, Versions
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
_OTHERWISE = "or start over with the table as it is:  wherry run FILE --from-beginning"


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table."""

    name: str
    """As it is named in SQL."""
    id: str
    log: Versions
    is_plain: bool
    """Whether its files hold its columns under their names, and nothing else is needed to read them."""

    @staticmethod
    def find(spark: SparkSession, place: str, *, named: bool) -> Table:
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
        return Table(name=name, id=table_id, log=Versions(here), is_plain=is_plain)

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
                hint=f"Set one such as  {json.dumps(self.offset(7))}",
            ) from error
        if table != self.id:
            raise OriginError(
                f"{self.name} is not the table that was read before: it was replaced, or dropped and made "
                f"anew. Its id is {self.id} and was {table}.",
                hint="Start over with the table as it is:  wherry run FILE --from-beginning",
            )
        return version

    def following(self, spark: SparkSession, version: int) -> list[Version]:
        """What came after a version. Raises `OriginError` if that is not known, or was not all added."""
        found = self.log.after(spark, version)
        first = found[0].number if found else None
        if first is None and not self.log.has(version) and (newest := self.newest(spark)) != version:
            first = newest if newest > version else None
            if first is None and version >= 0:
                raise OriginError(
                    f"{self.name} has no version {version}; its newest is {newest}.",
                    hint="Set the offset to a version that it has, " + _OTHERWISE,
                )
        if first is not None and first != version + 1:
            raise OriginError(
                f"The log of {self.name} no longer tells what version {version + 1} added; it begins with {first}.",
                hint=f"If nothing was added in between:  {self._set(first - 1)}, {_OTHERWISE}",
            )
        for each in found:
            if each.rewrites:
                raise OriginError(
                    f"Version {each.number} of {self.name} ({each.operation or 'by an unknown operation'}) changed or "
                    "took away rows that were there before; this origin reads what is added. Nothing of it was read.",
                    hint=f"Go on behind it:  {self._set(each.number)}, {_OTHERWISE}",
                )
        return found

    def _set(self, version: int) -> str:
        return f"wherry offsets set FILE --lane 0 --reason … --offset '{json.dumps(self.offset(version))}'"

    def newest(self, spark: SparkSession) -> int:
        """The newest version, as Spark says."""
        return int(spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1").select("version").collect()[0][0])

    def check_columns(self, columns: str, versions: Sequence[Version]) -> None:
        """Raise `OriginError` if one of these versions gave the table other columns."""
        for version in versions:
            if version.columns and json.loads(bare(version.columns)) != json.loads(columns):
                raise OriginError(
                    f"The columns of {self.name} changed in version {version.number} while it was being followed.",
                    hint="Run again: a run reads with the columns that the table has when it begins.",
                )


def whole(spark: SparkSession, place: str, *, named: bool, version: int | None = None) -> DataFrame:
    """All rows of a table, as of a version."""
    if named:
        return spark.table(place) if version is None else spark.sql(f"SELECT * FROM {place} VERSION AS OF {version}")
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(place)


def bare(schema: str) -> str:
    """A schema without what only Delta needs to know of its columns; both as Spark's JSON."""
    return json.dumps(_bare(json.loads(schema)))


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
