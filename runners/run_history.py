"""Which runs there were: a Delta table beside the ledger that SQL can read, and that no batch waits for."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from origins.batch import JSON
from runners.entry import as_text
from runners.report import Report
from runners.scribe import Scribe

FILES = 64
"""How many files the table may have. Every write adds one; above this they are put together, and what is old is
removed."""
PATIENCE = 5.0
"""How many seconds a run that has ended waits for its entry to be written."""

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A run as the table has it: once when it began, and once more when it ended."""

    run: str
    pipeline: str
    status: str
    """`running`, `succeeded`, `failed` or `stopped`."""
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


class RunHistory:
    """The table, in a folder, through `deltalake`; for one thread at a time."""

    def __init__(self, path: Path, retain: timedelta) -> None:
        self.path = path
        self.retain = retain
        """How long a run stays in it."""

    def write(self, rows: Sequence[RunRow]) -> None:
        """Add rows. Makes the table if it is missing."""
        import pyarrow as pa
        from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

        from runners.local_table import PROPERTIES

        moment = pa.timestamp("us", tz="UTC")
        kinds = {"started_at": moment, "ended_at": moment, "seconds": pa.float64()}
        kinds |= {name: pa.int64() for name in ("batches", "read", "filtered", "nacked")}
        schema = pa.schema([(each.name, kinds.get(each.name, pa.string())) for each in fields(RunRow)])
        write_deltalake(
            str(self.path),
            pa.Table.from_pylist([vars(row) for row in rows], schema=schema),
            mode="append",
            configuration=PROPERTIES,
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=True),
        )
        table = DeltaTable(str(self.path))
        if len(table.file_uris()) > FILES:
            oldest = max(row.started_at for row in rows) - self.retain
            table.delete(f"started_at < {_moment(oldest)}")
            table.optimize.compact()
            table.vacuum(retention_hours=168, dry_run=False)

    def runs(
        self, *, status: str = "", since: datetime | None = None, run: str = "", limit: int = 20, report: bool = False
    ) -> list[dict[str, JSON]]:
        """The newest runs, the newest first; `run` is how the name of one begins. With `report` what each reported.

        One that is `running` may have been killed; nobody was there to say so.
        """
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        if not self.path.exists():
            return []
        ended = "SELECT run FROM runs WHERE status <> 'running'"
        conditions = [f"(status <> 'running' OR run NOT IN ({ended}))"]
        conditions += [f"status = {_quoted(status)}"] if status else []
        conditions += [f"starts_with(run, {_quoted(run)})"] if run else []
        conditions += [f"started_at >= {_moment(since)}"] if since else []
        names = ", ".join(f'"{each.name}"' for each in fields(RunRow) if report or each.name != "report")
        where = " AND ".join(conditions)
        query = f"SELECT {names} FROM runs WHERE {where} ORDER BY started_at DESC, run LIMIT {limit}"
        table = QueryBuilder().register("runs", DeltaTable(str(self.path)))
        found: list[dict[str, Any]] = pa.table(table.execute(query).read_all()).to_pylist()
        return [_shown(row) for row in found]


@functools.lru_cache(maxsize=256)
def scribe_of(path: Path, retain: timedelta) -> Scribe[RunRow]:
    """Who writes this history: one in a process, also where one run follows the other."""
    return Scribe(RunHistory(path, retain).write)


def told(scribe: Scribe[RunRow], name: str) -> None:
    """The run has ended: wait a little for its entry, and say what was dropped."""
    if not scribe.flush(PATIENCE):
        log.warning("The run history of %s is not whole: it takes too long to write.", name)
    elif scribe.dropped:
        log.warning(
            "The run history of %s is not whole, %d entries were dropped: %s", name, scribe.dropped, scribe.error
        )


def _moment(moment: datetime) -> str:
    """As the engine of `deltalake` compares it with a column."""
    at = moment.astimezone(timezone.utc).isoformat()
    return f"arrow_cast('{at}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _shown(row: dict[str, Any]) -> dict[str, JSON]:
    moments = {name: row[name] and row[name].isoformat(timespec="milliseconds") for name in ("started_at", "ended_at")}
    report = {"report": json.loads(row["report"]) if row["report"] else None} if "report" in row else {}
    return {**row, **moments, **report}
