"""The history of runs: a Delta table beside the ledger that SQL can read, and that no batch waits for.

It uses `deltalake` for a state in a directory or an object store, and Spark for a state in a catalog.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypedDict

from arro3.core import Array, DataType, Field, Schema, Table

from origins.batch import JSON
from origins.batch_rows import to_python_rows
from origins.errors import list_spark_errors
from origins.lazy import SparkSession, delta_errors, deltalake, pa
from origins.names import quote_text
from origins.object_store import open_delta_table
from origins.store_access import StoreUrl, get_options
from runners.model.clock import Clock
from runners.model.entry import OwnerBody, as_text
from runners.model.error_kinds import classify
from runners.model.events import BatchSettled, Event
from runners.model.run_report import Report
from runners.spark.session import reconnect
from runners.state.background_writer import BackgroundWriter
from runners.state.process_locks import identify_host
from runners.state.spark_ledger import make_frame, quote_table

FILES = 64
"""How many files the table may have. Every write adds one.

With more files, they are combined, and old runs are archived.
"""
ARCHIVE = "_archive"
"""The ending of the name of the table for old runs."""
MOST_BEGUN = 1_000
"""How many runs without a recorded end, counted from the newest, are checked for how they went."""
KILLED = "killed"
"""The status of a run whose process ended without a report."""
PATIENCE = 5.0
"""How many seconds a run that has ended waits for its entry to be written."""

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row of the table. A run has one row when it begins, and one more when it ends."""

    run: str
    pipeline: str
    status: str
    """`running`, `succeeded`, `failed`, `stopped`, or `killed` if its process ended without a report."""
    reason: str = ""
    started_at: datetime
    ended_at: datetime | None = None
    seconds: float | None = None
    batches: int | None = None
    read: int | None = None
    filtered: int | None = None
    nacked: int | None = None
    error: str | None = None
    definition: str = ""
    host: str = ""
    report: str | None = None

    def end(self, report: Report, facts: Mapping[str, JSON], now: datetime) -> RunRow:
        """Return the row of the same run at its end. `facts` are the report's facts, without secrets."""
        return replace(
            self,
            status=report.status,
            reason=facts["reason"],
            ended_at=now,
            seconds=report.seconds,
            batches=report.batches,
            read=report.read,
            filtered=report.filtered,
            nacked=report.nacked,
            error=facts["error"]["message"] if facts["error"] else None,
            report=as_text(facts),
        )

    @staticmethod
    def make_running(pipeline: str, run: str, definition: str, now: datetime) -> RunRow:
        """Return the row of a run of this process that begins."""
        host = identify_host().host
        return RunRow(run=run, pipeline=pipeline, status="running", started_at=now, definition=definition, host=host)

    @staticmethod
    def make_killed(owner: OwnerBody, pipeline: str, by: str) -> RunRow:
        """Return the row of a run from which another run took the pipeline over. `owner` is its entry in the ledger."""
        return RunRow(
            run=owner.run,
            pipeline=pipeline,
            status=KILLED,
            reason=f"its process ended without a report; run {by} took over",
            started_at=datetime.fromisoformat(owner.at),
            ended_at=datetime.fromisoformat(owner.heard_at),
            definition=str(owner.hash or ""),
            host=str(owner.host),
        )


@dataclass(frozen=True, kw_only=True)
class WantedRuns:
    """Which runs are listed, and which facts about them."""

    status: str = ""
    since: datetime | None = None
    run: str = ""
    """The beginning of a run's name."""
    limit: int = 20
    report: bool = False
    """Whether the reports are included."""
    archived: bool = False
    """Whether archived runs are included. They have no reports."""
    fates: Mapping[str, str] = field(default_factory=dict)
    """The outcomes of runs without a recorded end, if they are known from elsewhere."""

    @property
    def status_in_sql(self) -> str:
        known = (f"WHEN run = {_quote_text(run)} THEN {_quote_text(status)}" for run, status in self.fates.items())
        return f"CASE WHEN status <> 'running' THEN status {' '.join(known)} ELSE status END"

    def format_query(self, source: str, moment: Callable[[datetime], str]) -> str:
        """Return the query for these runs of a table. `moment` writes a time in SQL."""
        names = [f"{self.status_in_sql} AS status" if name == "status" else name for name in _NAMES]
        listed = ", ".join(name for name in names if self.report or name != "report")
        where = " AND ".join(make_conditions(source, self, moment))
        return f"SELECT {listed} FROM {source} AS runs WHERE {where} ORDER BY started_at DESC, run LIMIT {self.limit}"


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


NEWEST = WantedRuns()
_NAMES = [field.name for field in fields(RunRow)]
_WITHOUT_REPORT = ", ".join("NULL" if name == "report" else name for name in _NAMES)


class History(ABC):
    """A store of runs: a table, and the archive beside it. Only one thread may use it at a time."""

    @abstractmethod
    def write(self, rows: Sequence[RunRow]) -> None:
        """Add rows. Create the table if it is missing."""

    @abstractmethod
    def list_runs(self, wanted: WantedRuns = NEWEST) -> list[dict[str, JSON]]:
        """Return the wanted runs, the newest first. A `running` run may have been killed without a record."""


class RunHistory(History):
    """A run history in a folder or an object store, through `deltalake`."""

    def __init__(self, path: Path | StoreUrl, retain: timedelta) -> None:
        self.path = path
        self.retain = retain
        """How long a run stays in the table before it moves to the archive."""

    def write(self, rows: Sequence[RunRow]) -> None:
        from runners.state.delta_ledger import find_home

        home, options = find_home(self.path), get_options(self.path)
        home.check_space()
        try:
            table = deltalake.DeltaTable(str(self.path), storage_options=options)
        except delta_errors.TableNotFoundError:
            table = None
        deltalake.write_deltalake(
            table or str(self.path),
            _make_table(rows),
            mode="append",
            configuration=dict(home.properties),
            storage_options=options,
            post_commithook_properties=deltalake.PostCommitHookProperties(
                create_checkpoint=True, cleanup_expired_logs=True
            ),
        )
        table = table or deltalake.DeltaTable(str(self.path), storage_options=options)
        if len(table.file_uris()) > FILES:
            old = f"started_at < {_make_moment_sql(max(row.started_at for row in rows) - self.retain)}"
            self._archive(table, old)
            table.delete(old)
            table.optimize.compact()
            table.vacuum(retention_hours=168, dry_run=False)

    def list_runs(self, wanted: WantedRuns = NEWEST) -> list[dict[str, JSON]]:
        table = open_delta_table(self.path)
        if table is None:
            return []
        tables, source = deltalake.QueryBuilder().register("kept", table), "kept"
        archived = open_delta_table(self._archived) if wanted.archived else None
        if archived is not None:
            tables = tables.register("archived", archived)
            source = "(SELECT * FROM kept UNION ALL SELECT * FROM archived)"
        query = wanted.format_query(source, _make_moment_sql)
        rows = pa.RecordBatchReader.from_stream(tables.execute(query)).read_all()
        return [to_json_row(row) for row in to_python_rows(rows)]

    @property
    def _archived(self) -> Path | StoreUrl:
        from runners.state.delta_ledger import name_beside

        return name_beside(self.path, ARCHIVE)

    def _archive(self, table: deltalake.DeltaTable, old: str) -> None:
        """Copy old runs to the archive, without their reports. A repeated call has no effect."""
        tables, where = deltalake.QueryBuilder().register("kept", table), [old, *make_conditions("kept")]
        archived = open_delta_table(self._archived)
        if archived is not None:
            tables = tables.register("archived", archived)
            where.append("run NOT IN (SELECT run FROM archived)")
        query = f"SELECT {_WITHOUT_REPORT} FROM kept WHERE {' AND '.join(where)}"
        ended = pa.RecordBatchReader.from_stream(tables.execute(query)).read_all()
        if ended.num_rows:
            deltalake.write_deltalake(
                str(self._archived),
                ended.rename_columns(_NAMES).cast(pa.schema(_make_schema())),
                mode="append",
                storage_options=get_options(self._archived),
            )


def get_writer(history: History) -> BackgroundWriter[RunRow]:
    """Return the writer of this history.

    Without Spark, all runs of this process with the same history share a writer.
    """
    if isinstance(history, RunHistory):
        access = getattr(history.path, "settings", {})
        return _make_writer(history.path, history.retain, frozenset(access.items()))
    return BackgroundWriter(history.write)


@functools.lru_cache(maxsize=256)
def _make_writer(
    path: Path | StoreUrl, retain: timedelta, access: frozenset[tuple[str, str]]
) -> BackgroundWriter[RunRow]:
    """Return the writer of a place. `access` separates writers that reach the same place with different settings."""
    return BackgroundWriter(RunHistory(path, retain).write)


def record_begin(history: History | None, row: RunRow, before: Sequence[OwnerBody]) -> BackgroundWriter[RunRow] | None:
    """Record that a run begins, and that each run from which it took the pipeline was killed.

    It does not wait. Return the writer, or None without a history.
    """
    if history is None:
        return None
    writer = get_writer(history)
    for owner in before:
        writer.put(RunRow.make_killed(owner, row.pipeline, row.run))
    writer.put(row)
    return writer


def await_writer(writer: BackgroundWriter[RunRow], name: str, seconds: float = PATIENCE) -> None:
    """Wait a short time for the entry of a run that has ended, and log if entries were dropped."""
    if not writer.flush(seconds):
        log.warning("The run history of %s is not whole: it takes too long to write.", name)
    elif writer.dropped:
        log.warning(
            "The run history of %s is not whole, %d entries were dropped: %s",
            name,
            writer.dropped,
            writer.error,
        )


def make_conditions(table: str, wanted: WantedRuns = NEWEST, moment: Callable[[datetime], str] = str) -> list[str]:
    """Return the SQL conditions for the rows that describe the wanted runs.

    The row of a run is that of its end, or of its beginning if no end is recorded. An end that the run itself reported
    counts more than an end that another run concluded. `moment` writes a time in SQL.
    """
    ended = f"SELECT run FROM {table} AS ended WHERE status"
    conditions = [
        f"(status NOT IN ('running', '{KILLED}') OR (status = 'running' AND run NOT IN ({ended} <> 'running')) "
        f"OR (status = '{KILLED}' AND run NOT IN ({ended} NOT IN ('running', '{KILLED}'))))"
    ]
    conditions += [f"{wanted.status_in_sql} = {_quote_text(wanted.status)}"] if wanted.status else []
    conditions += [f"left(run, {len(wanted.run)}) = {_quote_text(wanted.run)}"] if wanted.run else []
    conditions += [f"started_at >= {moment(wanted.since)}"] if wanted.since else []
    return conditions


def _make_table(rows: Sequence[RunRow]) -> Table:
    """Return the rows as a table, without pyarrow.

    Its arrays import pandas, which takes longer than everything else.
    """
    schema = _make_schema()
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        values = [getattr(row, name) for row in rows]
        if DataType.is_timestamp(kind):
            micros = [None if value is None else (value - _EPOCH) // _MICROSECOND for value in values]
            columns.append(Array(micros, DataType.int64()).cast(kind))
        else:
            columns.append(Array(values, kind))
    return Table.from_arrays(columns, schema=schema)


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(microseconds=1)


def _make_schema() -> Schema:
    kinds = {"timestamp": DataType.timestamp("us", tz="UTC"), "double": DataType.float64(), "bigint": DataType.int64()}
    return Schema([Field(name, kinds.get(kind, DataType.utf8())) for name, kind in _TYPES.items()])


def _make_moment_sql(moment: datetime) -> str:
    """Return the moment in SQL, as the engine of `deltalake` compares it with a column."""
    at = moment.astimezone(timezone.utc).isoformat()
    return f"arrow_cast('{at}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def to_json_row(row: dict[str, Any]) -> dict[str, JSON]:
    """Return the row as JSON, with its times in UTC. Spark gives them in this machine's zone, without naming it."""
    times = {name: row[name] and row[name].astimezone(timezone.utc) for name in ("started_at", "ended_at")}
    moments = {name: at and at.isoformat(timespec="milliseconds") for name, at in times.items()}
    report = {"report": json.loads(row["report"]) if row["report"] else None} if "report" in row else {}
    return {**row, **moments, **report}


_TYPES = {
    **dict.fromkeys(_NAMES, "string"),
    **dict.fromkeys(("started_at", "ended_at"), "timestamp"),
    "seconds": "double",
    **dict.fromkeys(("batches", "read", "filtered", "nacked"), "bigint"),
}
"""The types of the columns, as Spark names them."""
_KEPT_APART = "TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 7 days', 'delta.checkpointInterval' = '100')"


@dataclass(frozen=True)
class SparkRunHistory(History):
    """A run history in a catalog, through Spark."""

    spark: Callable[[], SparkSession]
    """Returns the session. It is called when there is something to write or to read."""
    table: str
    retain: timedelta
    """How long a run stays in the table before it moves to the archive."""

    def write(self, rows: Sequence[RunRow]) -> None:
        try:
            self._add(rows)
        except list_spark_errors() as error:
            if not classify(error).is_session_lost:
                raise
            reconnect(self._session)
            self._add(rows)

    def _add(self, rows: Sequence[RunRow]) -> None:
        needs_archive = self._is_long
        listed = json.dumps([vars(row) for row in rows], default=datetime.isoformat)
        make_frame(self._session, listed, _TYPES).writeTo(self._name).append()
        if needs_archive:
            self._archive(max(row.started_at for row in rows) - self.retain)
            self.__dict__["_is_long"] = False

    @functools.cached_property
    def _is_long(self) -> bool:
        """Whether the table had many files before the first write. It is created if it is missing."""
        spark, name = self._session, self._name
        if spark.catalog.tableExists(self._archived):
            return bool(spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["numFiles"] > FILES)
        for table in (name, self._archived):
            columns = ", ".join(f"{column} {kind}" for column, kind in _TYPES.items())
            spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING delta {_KEPT_APART}")
        return False

    def list_runs(self, wanted: WantedRuns = NEWEST) -> list[dict[str, JSON]]:
        if not self._session.catalog.tableExists(self._name):
            return []
        source = f"(SELECT * FROM {self._name})"
        if wanted.archived:
            source = f"(SELECT * FROM {self._name} UNION ALL SELECT * FROM {self._archived})"
        rows = self._session.sql(wanted.format_query(source, _make_spark_moment_sql))
        return [to_json_row(row.asDict()) for row in rows.collect()]

    @functools.cached_property
    def _session(self) -> SparkSession:
        return self.spark()

    @property
    def _name(self) -> str:
        return quote_table(self.table)

    @property
    def _archived(self) -> str:
        return quote_table(self.table, ARCHIVE)

    def _archive(self, before: datetime) -> None:
        spark, old = self._session, f"started_at < {_make_spark_moment_sql(before)}"
        where = [old, f"run NOT IN (SELECT run FROM {self._archived})", *make_conditions(self._name)]
        spark.sql(
            f"INSERT INTO {self._archived} SELECT {_WITHOUT_REPORT} FROM {self._name} WHERE {' AND '.join(where)}"
        )
        spark.sql(f"DELETE FROM {self._name} WHERE {old}").collect()
        spark.sql(f"OPTIMIZE {self._name}").collect()
        spark.sql(f"VACUUM {self._name}").collect()


def _make_spark_moment_sql(moment: datetime) -> str:
    return f"timestamp {quote_text(moment.astimezone(timezone.utc).isoformat())}"


MOST_LANES = 30
"""How many lanes have a timeline: the lanes that worked first."""
MOST_PARTS = 40
"""How many parts a lane's timeline has at most. With more, neighbours are joined in pairs."""


class TimelinePart(TypedDict):
    """Consecutive batches of a lane: when they began and ended, and how their time was spent, in seconds."""

    start: float
    end: float
    batches: int
    spent: Mapping[str, float]


@dataclass
class Timeline:
    """A listener that records how time was spent. Seconds count from the listener's beginning."""

    clock: Clock
    lanes: dict[str, list[TimelinePart]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = self.clock.elapsed()

    def __call__(self, event: Event) -> None:
        if not isinstance(event, BatchSettled) or event.owed:
            return
        lane = event.batch.lane
        if lane not in self.lanes and len(self.lanes) >= MOST_LANES:
            return
        parts = self.lanes.setdefault(lane, [])
        end = self.clock.elapsed() - self._began
        took = sum(event.seconds.values())
        spent = {phase: seconds for phase, seconds in event.seconds.items() if seconds}
        parts.append({"start": max(0.0, end - took), "end": end, "batches": 1, "spent": spent})
        if len(parts) > MOST_PARTS:
            self.lanes[lane] = [_join_parts(*pair) for pair in itertools.zip_longest(parts[::2], parts[1::2])]

    def json(self) -> Mapping[str, Sequence[TimelinePart]]:
        """Return the parts of each lane in order: `start`, `end`, `batches`, and the time by phase as `spent`."""
        return {lane: [_round_part(part) for part in parts] for lane, parts in self.lanes.items()}


def _join_parts(first: TimelinePart, second: TimelinePart | None) -> TimelinePart:
    if second is None:
        return first
    phases = {**first["spent"], **second["spent"]}
    spent = {phase: first["spent"].get(phase, 0.0) + second["spent"].get(phase, 0.0) for phase in phases}
    return {**first, "end": second["end"], "batches": first["batches"] + second["batches"], "spent": spent}


def _round_part(part: TimelinePart) -> TimelinePart:
    spent = {phase: round(seconds, 3) for phase, seconds in part["spent"].items()}
    return {**part, "start": round(part["start"], 3), "end": round(part["end"], 3), "spent": spent}
