"""Which runs there were: a Delta table beside the ledger that SQL can read, and that no batch waits for.

Through `deltalake` here, for a state in a directory; `spark_run_history.py` has the one in a catalog.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from destinations.arrow_rows import python_rows
from origins.batch import JSON
from runners.clock import Clock
from runners.ledgers.entry import as_text
from runners.listeners.scribe import Scribe
from runners.owners.taking import owner_lives
from runners.report import Report

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from runners.place import Place
    from runners.state import State

FILES = 64
"""How many files the table may have. Every write adds one; above this they are put together, and what is old is
removed."""
ARCHIVE = "_archive"
"""How the name of the table ends into which old runs go."""
MOST_BEGUN = 1_000
"""Of so many runs of which only the beginning is kept, the newest, it is found out how they went."""
KILLED = "killed"
"""How a run went whose process ended without a word."""
PATIENCE = 5.0
"""How many seconds a run that has ended waits for its entry to be written."""

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run as the table has it: once when it began, and once more when it ended."""

    run: str
    pipeline: str
    status: str
    """`running`, `succeeded`, `failed`, `stopped` or `killed`: its process ended without a word."""
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
    """The hash of the definition."""
    host: str = ""
    report: str | None = None
    """The whole report, as JSON."""

    def ended(self, report: Report, facts: JSON, now: datetime) -> RunRow:
        """The row of the same run at its end; `facts` are the report's, without secrets."""
        return RunRow(
            run=self.run,
            pipeline=self.pipeline,
            status=report.status,
            reason=facts["reason"],
            started_at=self.started_at,
            ended_at=now,
            seconds=report.seconds,
            batches=report.batches,
            read=report.read,
            filtered=report.filtered,
            nacked=report.nacked,
            error=facts["error"]["message"] if facts["error"] else None,
            definition=self.definition,
            host=self.host,
            report=as_text(facts),
        )

    @staticmethod
    def killed(owner: Mapping[str, JSON], pipeline: str, by: str) -> RunRow:
        """The row of a run from which this one has taken the pipeline over: an owner as the ledger knew it."""
        return RunRow(
            run=owner["run"],
            pipeline=pipeline,
            status=KILLED,
            reason=f"its process ended without a word; run {by} took over",
            started_at=datetime.fromisoformat(owner["at"]),
            ended_at=datetime.fromisoformat(owner["heard_at"]),
            definition=str(owner.get("hash") or ""),
            host=str(owner["host"]),
        )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which runs are listed, and what of them."""

    status: str = ""
    since: datetime | None = None
    run: str = ""
    """How the name of one begins."""
    limit: int = 20
    """The newest so many."""
    report: bool = False
    """Whether with what each reported."""
    archived: bool = False
    """Whether also those that are older than is kept, without what they reported."""
    fates: Mapping[str, str] = field(default_factory=dict)
    """How runs went of which only the beginning is kept, where that is known from elsewhere."""

    @property
    def status_in_sql(self) -> str:
        """SQL for how a run went."""
        if not self.fates:
            return "status"
        known = " ".join(f"WHEN run = {_quoted(run)} THEN {_quoted(status)}" for run, status in self.fates.items())
        return f"CASE WHEN status <> 'running' THEN status {known} ELSE status END"


NEWEST = Wanted()


class History(Protocol):
    """Where runs are kept."""

    def write(self, rows: Sequence[RunRow]) -> None:
        """Add rows. Makes the table if it is missing."""

    def runs(self, wanted: Wanted = NEWEST) -> list[dict[str, JSON]]:
        """Those of the runs, the newest first. One that is `running` may have been killed: nobody has said so yet."""


class RunHistory:
    """The table, in a folder, through `deltalake`; for one thread at a time."""

    def __init__(self, path: Path, retain: timedelta) -> None:
        self.path = path
        self.retain = retain
        """How long a run stays in it before it goes into the archive."""

    def write(self, rows: Sequence[RunRow]) -> None:
        """Add rows. Makes the table if it is missing."""
        import pyarrow as pa
        from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

        from runners.ledgers.local_table import PROPERTIES

        write_deltalake(
            str(self.path),
            pa.Table.from_pylist([vars(row) for row in rows], schema=_schema()),
            mode="append",
            configuration=PROPERTIES,
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True),
        )
        table = DeltaTable(str(self.path))
        if len(table.file_uris()) > FILES:
            old = f"started_at < {_moment(max(row.started_at for row in rows) - self.retain)}"
            self._archive(table, old)
            table.delete(old)
            table.optimize.compact()
            table.vacuum(retention_hours=168, dry_run=False)

    def runs(self, wanted: Wanted = NEWEST) -> list[dict[str, JSON]]:
        """As `History.runs` says."""
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        if not self.path.exists():
            return []
        tables, source = QueryBuilder().register("kept", DeltaTable(str(self.path))), "kept"
        if wanted.archived and self._archived.exists():
            tables = tables.register("archived", DeltaTable(str(self._archived)))
            source = "(SELECT * FROM kept UNION ALL SELECT * FROM archived)"
        where = " AND ".join(conditions(source, wanted, _moment))
        names = ", ".join(
            f"{wanted.status_in_sql} AS status" if each.name == "status" else f'"{each.name}"'
            for each in fields(RunRow)
            if wanted.report or each.name != "report"
        )
        query = f"SELECT {names} FROM {source} AS runs WHERE {where} ORDER BY started_at DESC, run LIMIT {wanted.limit}"
        found = pa.RecordBatchReader.from_stream(tables.execute(query)).read_all()
        return [shown(row) for row in python_rows(found)]

    @property
    def _archived(self) -> Path:
        return self.path.with_name(self.path.name + ARCHIVE)

    def _archive(self, table: DeltaTable, old: str) -> None:
        """Old runs go, without their reports, into the archive; twice is once."""
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder, write_deltalake

        tables, where = QueryBuilder().register("kept", table), [old, *conditions("kept")]
        if self._archived.exists():
            tables = tables.register("archived", DeltaTable(str(self._archived)))
            where.append("run NOT IN (SELECT run FROM archived)")
        names = ", ".join("NULL" if each.name == "report" else f'"{each.name}"' for each in fields(RunRow))
        found = pa.table(tables.execute(f"SELECT {names} FROM kept WHERE {' AND '.join(where)}").read_all())
        if found.num_rows:
            write_deltalake(str(self._archived), pa.Table.from_pylist(_named(found), schema=_schema()), mode="append")


def fates(begun: Sequence[Mapping[str, JSON]], state: State, place: Place) -> Mapping[str, str]:
    """How these runs went, of which only the beginning is kept: as the ledger says it of the last one that ended; and
    whoever does not own the pipeline any more, or is dead, or has said nothing for a whole lease, was killed."""
    alive = {owner["run"] for owner in state.owners if owner_lives(owner, place, Clock())}
    known = {state.ended["run"]: state.ended["status"]} if state.ended and "run" in state.ended else {}
    return {each["run"]: known.get(each["run"], KILLED) for each in begun if each["run"] not in alive}


def scribe_of(history: History) -> Scribe[RunRow]:
    """Who writes this history: of one in a folder the same in a process, also where one run follows the other."""
    if isinstance(history, RunHistory):
        return _scribe(history.path, history.retain)
    return Scribe(history.write)


@functools.lru_cache(maxsize=256)
def _scribe(path: Path, retain: timedelta) -> Scribe[RunRow]:
    return Scribe(RunHistory(path, retain).write)


def told(scribe: Scribe[RunRow], name: str) -> None:
    """The run has ended: wait a little for its entry, and say what was dropped."""
    if not scribe.flush(PATIENCE):
        log.warning("The run history of %s is not whole: it takes too long to write.", name)
    elif scribe.dropped:
        log.warning(
            "The run history of %s is not whole, %d entries were dropped: %s", name, scribe.dropped, scribe.error
        )


def conditions(table: str, wanted: Wanted = NEWEST, moment: Callable[[datetime], str] = str) -> list[str]:
    """SQL for which of its rows tell how those runs of a table are: as they ended, or began where no end is known. What
    a run says of its own end counts more than what another one has concluded.

    `moment` writes one in SQL.
    """
    ended = f"SELECT run FROM {table} AS ended WHERE status"
    found = [
        f"(status NOT IN ('running', '{KILLED}') OR (status = 'running' AND run NOT IN ({ended} <> 'running')) "
        f"OR (status = '{KILLED}' AND run NOT IN ({ended} NOT IN ('running', '{KILLED}'))))"
    ]
    found += [f"{wanted.status_in_sql} = {_quoted(wanted.status)}"] if wanted.status else []
    found += [f"left(run, {len(wanted.run)}) = {_quoted(wanted.run)}"] if wanted.run else []
    found += [f"started_at >= {moment(wanted.since)}"] if wanted.since else []
    return found


def _schema() -> pa.Schema:
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    kinds = {"started_at": moment, "ended_at": moment, "seconds": pa.float64()}
    kinds |= {name: pa.int64() for name in ("batches", "read", "filtered", "nacked")}
    return pa.schema([(each.name, kinds.get(each.name, pa.string())) for each in fields(RunRow)])


def _named(found: pa.Table) -> list[dict[str, Any]]:
    return [dict(zip((each.name for each in fields(RunRow)), row.values(), strict=True)) for row in found.to_pylist()]


def _moment(moment: datetime) -> str:
    """As the engine of `deltalake` compares it with a column."""
    at = moment.astimezone(timezone.utc).isoformat()
    return f"arrow_cast('{at}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def shown(row: dict[str, Any]) -> dict[str, JSON]:
    """A row as `json.dumps` takes it."""
    moments = {name: row[name] and row[name].isoformat(timespec="milliseconds") for name in ("started_at", "ended_at")}
    report = {"report": json.loads(row["report"]) if row["report"] else None} if "report" in row else {}
    return {**row, **moments, **report}
