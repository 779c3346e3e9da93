"""Fills the search index from ledgers, run histories and DLQs. No run waits for it, and it rests while one works."""

from __future__ import annotations

import fcntl
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from destinations.dead_letters import format_moment, query_dlq
from origins.batch_rows import to_python_rows
from origins.errors import WherryError
from origins.lazy import pa, pc
from origins.quantities import parse_seconds
from origins.secret import make_mask
from runners.definitions.definition import Definition
from runners.model.clock import Clock
from runners.model.entry import Settled
from runners.model.spec import PipelineSpec
from runners.operations.status import list_runs
from runners.running.choice import Choice
from runners.service.index import Index, Indexed
from runners.state.journal import list_settled_ever
from runners.state.location import StateLocation, find_dlq
from runners.state.progress import list_settled_among
from runners.state.run_history import WantedRuns

EVERY = 2.0
"""How many seconds pass between two looks at the states."""
_EVERY_ELSEWHERE = 60.0
"""The same for states that are not on this machine."""
BEHIND = 30.0
"""After how many seconds without a whole look the index counts as behind."""
_AT_ONCE = 200
"""How many entries are written at once."""
_REST, _REST_OF_RUNS = 1.0, 100.0
"""How many times longer than it worked the thread rests: when nothing runs here, and while a run works."""
_EVERY_RUN = 1_000_000
ROUND = "round"
"""The mark, of no pipeline, with the time of the last whole look."""
_ROW = ("id", "run", "stage", "destination", "code", "message", "`row`", "original", "part", "nacked_at")
_UNUSABLE = (sqlite3.Error, OSError)
log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Indexer:
    """Keeps the index near the states. One indexer of a folder works at a time, also if several servers have one."""

    index: Index
    folder: Path
    """The folder of the server's own files."""
    list_definitions: Callable[[], Mapping[str, Definition]]
    hidden: Mapping[str, str]
    """The secrets of all definitions. The index gets none of them."""
    is_busy: Callable[[], bool] = lambda: False
    """Whether a run works in this process."""
    clock: Clock = field(default_factory=Clock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _looked: dict[str, float] = field(default_factory=dict)
    """When each pipeline was looked at whose state is elsewhere, where a look costs more."""
    _broken: str = ""

    def follow(self) -> None:
        """Look at the states again and again, until `end` is called."""
        while not self._ended.wait(EVERY):
            self.look()

    def end(self) -> None:
        """Let `follow` end soon."""
        self._ended.set()

    def look(self) -> None:
        """Take in everything that is new. What fails is logged once, and tried again by the next look."""
        broken = ""
        try:
            with (self.folder / "index.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                broken = self._look_at_all()
        except (BlockingIOError, InterruptedError):  # another server fills it, or this one ends
            return
        except (WherryError, *_UNUSABLE) as error:
            broken = f"the search index cannot be filled: {error}"
        if broken and broken != self._broken:
            log.warning("%s. Runs go on, and searches miss what is new.", make_mask(self.hidden)(broken))
        self._broken = broken

    def _look_at_all(self) -> str:
        broken, definitions = "", self.list_definitions()
        for gone in sorted({*self.index.list_pipelines()} - definitions.keys()):
            self.index.forget(gone)
        for name, definition in definitions.items():
            if self._ended.is_set():
                return broken
            try:
                self._look_at(definition.pipeline)
            except _UNUSABLE:
                raise
            except Exception as error:  # noqa: BLE001 -- a state that cannot be read hides no other
                broken = f"the search index misses {name}: {type(error).__name__}: {error}"
        if not broken:
            self.index.mark("", {ROUND: format_moment(self.clock.now())})
        return broken

    def _look_at(self, pipeline: PipelineSpec) -> None:
        """Take in what is new in one pipeline. A state that only Spark can read is left out."""
        place = StateLocation.of(pipeline)
        if place.needs_spark:
            return
        if place.directory is None:
            before, now = self._looked.get(pipeline.name), self.clock.elapsed()
            if before is not None and now - before < _EVERY_ELSEWHERE:
                return
            self._looked[pipeline.name] = now
        marks = self.index.read_marks(pipeline.name)
        protected = json.dumps([*pipeline.protection.columns, str(place)])
        if marks.get("protected") != protected:  # what is masked now may be there in clear
            self.index.forget(pipeline.name)
            self.index.mark(pipeline.name, {"protected": protected})
            marks = {}
        for table, read in (("dlq", self._read_rows), ("ledger", self._read_batches), ("runs", self._read_runs)):
            commit = _find_commit(place, table)
            seen, _, mark = marks.get(table, "").partition(" ")
            if not commit or commit != seen:
                mark, may_change = read(pipeline, mark)
                self.index.mark(pipeline.name, {table: f"{'' if may_change else commit} {mark}"})

    def _read_rows(self, pipeline: PipelineSpec, mark: str) -> tuple[str, bool]:
        """Take in the refused rows since the mark. If others are gone from the DLQ, all are read again."""
        if pipeline.dlq.destination is not None:
            return "", False
        dlq, spark = find_dlq(pipeline)
        since = last = datetime.fromisoformat(mark) if mark else None
        mask = make_mask(self.hidden)
        for table in Choice(since=since).stream_rows(dlq, spark, ", ".join(_ROW)):
            for some in table.to_batches(max_chunksize=_AT_ONCE):
                rows = to_python_rows(pa.Table.from_batches([some]))
                self._put(_make_row(pipeline, row, mask) for row in rows)
            newest = pc.max(table["nacked_at"]).as_py()
            last = newest if last is None else max(last, newest)
        there = query_dlq(dlq, spark, "SELECT count(DISTINCT id) AS n FROM {table}")
        if mark and self.index.count(pipeline.name, "row") != (there[0]["n"] if there else 0):
            self.index.forget(pipeline.name, "row")
            return self._read_rows(pipeline, "")
        return "" if last is None else last.isoformat(), False

    def _read_batches(self, pipeline: PipelineSpec, mark: str) -> tuple[str, bool]:
        """Take in the batches since the mark. If the ledger was compacted since, its whole history is read."""
        journal = StateLocation.of(pipeline).open_journal(pipeline)
        first = journal.tail[0] if journal.tail else None
        known = bool(mark) and (first is None or first.kind != "snapshot" or first.seq <= int(mark))
        settled = list_settled_among(journal.tail) if known else list_settled_ever(journal)
        self._put(_make_batch(pipeline, each) for each in settled)
        return str(journal.state.seq), False

    def _read_runs(self, pipeline: PipelineSpec, mark: str) -> tuple[str, bool]:
        """Take in the runs since the mark. The next mark is before the runs that work still."""
        if not parse_seconds(pipeline.run_options.history):
            return "", False
        since = datetime.fromisoformat(mark) if mark else None
        runs = list_runs(pipeline, WantedRuns(since=since, limit=_EVERY_RUN, archived=since is None))
        mask = make_mask(self.hidden)
        self._put(_make_run(pipeline, each, mask) for each in runs)
        working = [str(run["started_at"]) for run in runs if run["status"] == "running"]
        return min(working, default=str(runs[0]["started_at"]) if runs else mark), bool(working)

    def _put(self, entries: Iterable[Indexed]) -> None:
        """Write the entries some at a time, and rest in between."""
        waiting = iter(entries)
        while not self._ended.is_set():
            began = self.clock.elapsed()
            some = [*islice(waiting, _AT_ONCE)]
            if not some:
                return
            self.index.put(some)
            rest = _REST_OF_RUNS if self.is_busy() else _REST
            self._ended.wait(rest * (self.clock.elapsed() - began))
        raise InterruptedError("the server ends")


def _find_commit(place: StateLocation, table: str) -> str:
    """Return a text that changes with each commit to a table, or an empty one if that cannot be seen cheaply."""
    if place.directory is None:
        return ""
    try:
        return str((place.directory / table / "_delta_log").stat().st_mtime_ns)
    except OSError:
        return "none"


def _make_row(pipeline: PipelineSpec, row: Mapping[str, Any], mask: Callable[[str], str]) -> Indexed:
    nack = pipeline.protection.mask_nack(
        {
            **row,
            "message": row["message"] or "",
            "row": json.loads(row["row"]),
            "original": None if row["original"] is None else json.loads(row["original"]),
        }
    )
    facts = [nack["message"], row["code"], row["stage"], row["destination"], row["part"]]
    values = [json.dumps(nack[name], ensure_ascii=False, default=str) for name in ("row", "original") if nack[name]]
    return Indexed(
        pipeline=pipeline.name,
        kind="row",
        name=row["id"],
        run=row["run"] or "",
        status="refused",
        at=format_moment(row["nacked_at"]),
        text=mask(" ".join(str(each) for each in (*facts, *values) if each)),
    )


def _make_batch(pipeline: PipelineSpec, batch: Settled) -> Indexed:
    parts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in batch.span.parts[:100]]
    counts = f"read {batch.counts.read}, refused {batch.counts.nacked}"
    return Indexed(
        pipeline=pipeline.name,
        kind="batch",
        name=batch.plan,
        run=batch.run,
        status="settled",
        at=batch.at,
        text=" ".join([f"batch {batch.number} of lane {batch.lane}: {batch.span.label}", counts, *parts, batch.plan]),
    )


def _make_run(pipeline: PipelineSpec, run: Mapping[str, Any], mask: Callable[[str], str]) -> Indexed:
    facts = [run[name] for name in ("run", "status", "reason", "error", "definition", "host")]
    return Indexed(
        pipeline=pipeline.name,
        kind="run",
        name=run["run"],
        run=run["run"],
        status=run["status"],
        at=run["started_at"],
        text=mask(" ".join(str(each) for each in facts if each)),
    )
