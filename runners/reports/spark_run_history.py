"""The run history as a table of a catalog, written and read through Spark: where the state lies in a schema."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from origins.batch import JSON
from origins.names import text
from runners.causes import forgotten
from runners.ledgers.catalog_table import in_sql
from runners.reconnecting import reconnect
from runners.reports.run_history import ARCHIVE, FILES, NEWEST, RunRow, Wanted, conditions, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TYPES = {"started_at": "timestamp", "ended_at": "timestamp", "seconds": "double"} | dict.fromkeys(
    ("batches", "read", "filtered", "nacked"), "bigint"
)
_COLUMNS = ", ".join(f"{each.name} {_TYPES.get(each.name, 'string')}" for each in fields(RunRow))
_KEPT_APART = "TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 7 days', 'delta.checkpointInterval' = '100')"


@dataclass(frozen=True)
class SparkRunHistory:
    """The table and, beside it, the archive; for one thread at a time."""

    spark: Callable[[], SparkSession]
    """Gives the session, when there is something to write or to read."""
    table: str
    retain: timedelta
    """How long a run stays in it before it goes into the archive."""

    def write(self, rows: Sequence[RunRow]) -> None:
        """Add rows. Makes the tables if they are missing."""
        try:
            self._add(rows)
        except Exception as error:
            if not forgotten(error):
                raise
            reconnect(self._session)
            self._add(rows)

    def _add(self, rows: Sequence[RunRow]) -> None:
        from pyspark.sql import functions as F

        spark, name = self._session, self._made()
        told = json.dumps([{**vars(row), **_moments(row)} for row in rows])
        literal = F.from_json(F.lit(told), f"array<struct<{_COLUMNS.replace(' ', ':').replace(',:', ',')}>>")
        spark.range(0, 1, 1, 1).select(F.inline(literal)).writeTo(name).append()
        if spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["numFiles"] > FILES:
            self._archive(max(row.started_at for row in rows) - self.retain)

    def runs(self, wanted: Wanted = NEWEST) -> list[dict[str, JSON]]:
        """As `History.runs` says."""
        spark = self._session
        if not spark.catalog.tableExists(self._name):
            return []
        found = f"(SELECT * FROM {self._name})"
        if wanted.archived:
            found = f"(SELECT * FROM {self._name} UNION ALL SELECT * FROM {self._archived})"
        where = " AND ".join(conditions(found, wanted, _moment))
        names = ", ".join(
            f"{wanted.status_in_sql} AS status" if each.name == "status" else each.name
            for each in fields(RunRow)
            if wanted.report or each.name != "report"
        )
        order = f"ORDER BY started_at DESC, run LIMIT {wanted.limit}"
        rows = spark.sql(f"SELECT {names} FROM {found} WHERE {where} {order}")
        return [shown(_aware(row.asDict())) for row in rows.collect()]

    @functools.cached_property
    def _session(self) -> SparkSession:
        return self.spark()

    @property
    def _name(self) -> str:
        return in_sql(self.table)

    @property
    def _archived(self) -> str:
        return in_sql(self.table, ARCHIVE)

    def _made(self) -> str:
        if not self._session.catalog.tableExists(self._archived):
            for name in (self._name, self._archived):
                self._session.sql(f"CREATE TABLE IF NOT EXISTS {name} ({_COLUMNS}) USING delta {_KEPT_APART}")
        return self._name

    def _archive(self, before: datetime) -> None:
        """Those that began before go, without their reports, into the archive; twice is once."""
        spark, old = self._session, f"started_at < {_moment(before)}"
        names = ", ".join("NULL" if each.name == "report" else each.name for each in fields(RunRow))
        new = f"run NOT IN (SELECT run FROM {self._archived})"
        ended = conditions(self._name)[0]
        spark.sql(f"INSERT INTO {self._archived} SELECT {names} FROM {self._name} WHERE {old} AND {new} AND {ended}")
        spark.sql(f"DELETE FROM {self._name} WHERE {old}").collect()
        spark.sql(f"OPTIMIZE {self._name}").collect()
        spark.sql(f"VACUUM {self._name}").collect()


def _moments(row: RunRow) -> dict[str, JSON]:
    return {name: at and at.isoformat() for name, at in (("started_at", row.started_at), ("ended_at", row.ended_at))}


def _moment(moment: datetime) -> str:
    return f"timestamp {text(moment.astimezone(timezone.utc).isoformat())}"


def _aware(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its times in UTC; Spark gives them in this machine's zone, without saying so."""
    times = {name: row[name] and row[name].astimezone(timezone.utc) for name in ("started_at", "ended_at")}
    return {**row, **times}
