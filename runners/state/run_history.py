"""The history of runs: a Delta table beside the ledger that SQL can read, and that no batch waits for.

It uses `deltalake` for a state in a directory or an object store, and Spark for a state in a catalog.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypedDict

from origins.batch import JSON
from origins.lazy import SparkSession
from origins.names import quote_in_hex, quote_moment
from origins.store_access import StoreUrl
from runners.model.clock import Clock
from runners.model.entry import OwnerBody, as_text
from runners.model.events import BatchSettled, Event
from runners.model.run_report import Report
from runners.state.background_writer import BackgroundWriter
from runners.state.ledger import Columns, LedgerTable, Row
from runners.state.process_locks import identify_host
from runners.state.spark_ledger import CatalogTable, quote_table

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
    before: str = ""
    """The id of a run. Only runs that come after it in the list, which began before it."""
    limit: int = 20
    report: bool = False
    """Whether the reports are included."""
    archived: bool = False
    """Whether archived runs are included. They have no reports."""
    fates: Mapping[str, str] = field(default_factory=dict)
    """The outcomes of runs without a recorded end, if they are known from elsewhere."""

    @property
    def status_in_sql(self) -> str:
        known = (f"WHEN run = {quote_in_hex(run)} THEN {quote_in_hex(status)}" for run, status in self.fates.items())
        return f"CASE WHEN status <> 'running' THEN status {' '.join(known)} ELSE status END"

    def format_query(self, source: str) -> str:
        """Return the query for these runs of a table, or of a query in brackets."""
        names = [f"{self.status_in_sql} AS status" if name == "status" else name for name in RUNS]
        listed = ", ".join(name for name in names if self.report or name != "report")
        where = " AND ".join(make_conditions(source, self))
        return f"SELECT {listed} FROM {source} AS runs WHERE {where} ORDER BY started_at DESC, run LIMIT {self.limit}"


NEWEST = WantedRuns()
RUNS: Columns = {
    **dict.fromkeys((each.name for each in fields(RunRow)), "string"),
    **dict.fromkeys(("started_at", "ended_at"), "timestamp"),
    "seconds": "double",
    **dict.fromkeys(("batches", "read", "filtered", "nacked"), "long"),
}


class RunHistory:
    """A store of runs: a table, and the archive beside it. Only one thread may use it at a time.

    `place` is a folder, or with a Spark the name of a table in a catalog.
    """

    def __init__(self, place: Path | str, retain: timedelta, spark: SparkSession | None = None) -> None:
        self.place, self.spark = place, spark
        self.retain = retain
        """How long a run stays in the table before it moves to the archive."""
        self.kept, self.archive = (self._make_table(ending) for ending in ("", ARCHIVE))

    def write(self, rows: Sequence[RunRow]) -> None:
        """Add rows. Create the table if it is missing."""
        self.kept.add([vars(row) for row in rows])
        if self.kept.count_files() > FILES:
            self._archive(max(row.started_at for row in rows) - self.retain)
            self.kept.optimize()
            self.kept.vacuum()

    def list_runs(self, wanted: WantedRuns = NEWEST) -> list[dict[str, JSON]]:
        """Return the wanted runs, the newest first. A `running` run may have been killed without a record."""
        if not self.kept.exists():
            return []
        archived = [self.archive] if wanted.archived and self.archive.exists() else []
        source = " UNION ALL ".join(f"SELECT * FROM {table.name}" for table in [self.kept, *archived])
        return [to_json_row(row) for row in self.kept.select(wanted.format_query(f"({source})"), *archived)]

    def _archive(self, before: datetime) -> None:
        """Move the runs that began before a moment to the archive, without their reports.

        A repeated call has no effect.
        """
        where = [f"started_at < {quote_moment(before)}", *make_conditions(self.kept.name)]
        old = self.kept.select(f"SELECT * FROM {self.kept.name} WHERE {' AND '.join(where)}")
        if not old:
            return
        runs = f"run IN ({', '.join(quote_in_hex(row['run']) for row in old)})"
        query = f"SELECT run FROM {self.archive.name} WHERE {runs}"
        there = {row["run"] for row in self.archive.select(query)} if self.archive.exists() else set()
        new = [{**row, "report": None} for row in old if row["run"] not in there]
        if new:
            self.archive.add(new)
        self.kept.remove(runs)

    def _make_table(self, ending: str) -> LedgerTable:
        if self.spark is not None:
            return CatalogTable(self.spark, quote_table(str(self.place), ending), RUNS, "run history")
        from runners.state.delta_ledger import LocalTable, name_beside

        assert isinstance(self.place, Path | StoreUrl)
        return LocalTable(name_beside(self.place, ending), RUNS, "run history")


def get_writer(history: RunHistory) -> BackgroundWriter[RunRow]:
    """Return the writer of this history.

    Without Spark, all runs of this process with the same history share a writer.
    """
    if history.spark is not None:
        return BackgroundWriter(history.write)
    access = getattr(history.place, "settings", {})
    return _make_writer(history.place, history.retain, frozenset(access.items()))


@functools.lru_cache(maxsize=256)
def _make_writer(place: Path | str, retain: timedelta, access: frozenset[tuple[str, str]]) -> BackgroundWriter[RunRow]:
    """Return the writer of a place. `access` separates writers that reach the same place with different settings."""
    return BackgroundWriter(RunHistory(place, retain).write)


def record_begin(
    history: RunHistory | None, row: RunRow, before: Sequence[OwnerBody]
) -> BackgroundWriter[RunRow] | None:
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
            "The run history of %s is not whole, %d entries were dropped: %s", name, writer.dropped, writer.error
        )


def make_conditions(table: str, wanted: WantedRuns = NEWEST) -> list[str]:
    """Return the SQL conditions for the rows that describe the wanted runs.

    The row of a run is that of its end, or of its beginning if no end is recorded. An end that the run itself reported
    counts more than an end that another run concluded.
    """
    ended = f"SELECT run FROM {table} AS ended WHERE status"
    conditions = [
        f"(status NOT IN ('running', '{KILLED}') OR (status = 'running' AND run NOT IN ({ended} <> 'running')) "
        f"OR (status = '{KILLED}' AND run NOT IN ({ended} NOT IN ('running', '{KILLED}'))))"
    ]
    conditions += [f"{wanted.status_in_sql} = {quote_in_hex(wanted.status)}"] if wanted.status else []
    conditions += [f"left(run, {len(wanted.run)}) = {quote_in_hex(wanted.run)}"] if wanted.run else []
    conditions += [f"started_at >= {quote_moment(wanted.since)}"] if wanted.since else []
    if wanted.before:
        began, name = f"SELECT min(started_at) FROM {table} AS last WHERE run =", quote_in_hex(wanted.before)
        conditions.append(f"(started_at < ({began} {name}) OR (started_at = ({began} {name}) AND run > {name}))")
    return conditions


def to_json_row(row: Row) -> dict[str, JSON]:
    """Return the row as JSON."""
    times = {name: row[name] and row[name].isoformat(timespec="milliseconds") for name in ("started_at", "ended_at")}
    report = {"report": json.loads(row["report"]) if row["report"] else None} if "report" in row else {}
    return {**row, **times, **report}


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
