"""Fills the search index from ledgers, run histories and DLQs. No run waits for it, and it rests while one works."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from destinations.dead_letters import format_moment, query_dlq
from destinations.destination import Destination
from origins.batch_rows import to_python_rows
from origins.errors import WherryError
from origins.lazy import SparkSession, pa, pc
from origins.quantities import parse_seconds
from origins.secret import make_mask
from runners.model.clock import Clock
from runners.model.entry import Settled
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from runners.operations.status import list_runs
from runners.running.choice import Choice
from runners.schedules.schedule_plan import ScheduleCatalog
from runners.service.kept_answers import find_last_commit
from runners.service.search.index import Index, Indexed, IndexUnusable
from runners.service.tasks import repeat
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
_OVERLAP = timedelta(minutes=10)
ROUND, PROTECTED, BROKEN = "round", "protected", "broken"
"""The marks with the time of the last whole look, with what is protected, and whether a state cannot be read.

The first is of no pipeline.
"""
_ROW = ("id", "run", "stage", "destination", "code", "message", "`row`", "original", "part", "nacked_at")
log = logging.getLogger("wherry")


@dataclass(kw_only=True)
class Indexer:
    """Keeps the index near the states. One indexer works at a time, also if several servers have one."""

    index: Index
    list_definitions: Callable[[], ScheduleCatalog]
    hidden: Mapping[str, str]
    """The secrets of all definitions. The index gets none of them."""
    is_busy: Callable[[], bool] = lambda: False
    """Whether a run works in this process."""
    clock: Clock = field(default_factory=Clock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _looked: dict[str, float] = field(default_factory=dict)
    """When each pipeline was looked at whose state is elsewhere, where a look costs more."""
    _broken: str = ""
    _worked: float = 0.0
    """Since when it has worked without a rest."""

    def follow(self) -> None:
        """Look at the states again and again, until `end` is called."""
        repeat(self.look, EVERY, self._ended)

    def end(self) -> None:
        """Let `follow` end soon."""
        self._ended.set()

    def look(self) -> None:
        """Take in everything that is new. What fails is logged once, and tried again by the next look."""
        broken = ""
        try:
            with self.index.claim() as is_mine:  # else another server fills it
                if is_mine:
                    self._look_at_all()
        except InterruptedError:  # this server ends
            return
        except (WherryError, IndexUnusable, OSError) as error:
            broken = f"the search index cannot be filled: {error}"
        if broken and broken != self._broken:
            log.warning("%s. Runs go on, and searches miss what is new.", make_mask(self.hidden)(broken))
        self._broken = broken

    def _look_at_all(self) -> None:
        catalog = self.list_definitions()
        gone = {*self.index.read_source(PROTECTED)} - catalog.definitions.keys()
        for name in sorted(gone) if not catalog.broken else ():
            self.index.forget(name)
        for name, definition in catalog.definitions.items():
            try:
                self._look_at(definition.pipeline)
            except (IndexUnusable, InterruptedError):
                raise
            except Exception as error:  # noqa: BLE001 -- a state that cannot be read hides no other
                if not self.index.read_marks(name).get(BROKEN):
                    what = make_mask(self.hidden)(f"{type(error).__name__}: {error}")
                    log.warning("The search index misses what is new in %s: %s", name, what)
                self.index.mark(name, {BROKEN: "yes"})
        self.index.mark("", {ROUND: format_moment(self.clock.now())})

    def _look_at(self, pipeline: PipelineSpec) -> None:
        """Take in what is new in one pipeline. A state that only Spark can read is left out."""
        place = StateLocation.of(pipeline)
        folder, marks, now = place.directory, self.index.read_marks(pipeline.name), describe_protection(pipeline)
        then = marks.get(PROTECTED)
        if then not in (None, now):  # what is masked now may be there in clear
            self.index.forget(pipeline.name)
            self._looked.pop(pipeline.name, None)
            marks = {}
        if place.needs_spark:
            return
        if folder is None:
            before = self._looked.get(pipeline.name)
            if before is not None and self.clock.elapsed() - before < _EVERY_ELSEWHERE:
                return
            self._looked[pipeline.name] = self.clock.elapsed()
        if then != now:
            self.index.mark(pipeline.name, {PROTECTED: now})
        for table, read in (("ledger", self._read_batches), ("dlq", self._read_rows), ("runs", self._read_runs)):
            commit, self._worked = "" if folder is None else str(find_last_commit(folder / table)), self.clock.elapsed()
            seen, _, mark = marks.get(table, "").partition(" ")
            if not commit or commit != seen:
                mark, may_change = read(pipeline, mark)
                self.index.mark(pipeline.name, {table: f"{'' if may_change else commit} {mark}"})
                marks = self.index.read_marks(pipeline.name)
                self._rest()
        if marks.get(BROKEN):
            self.index.mark(pipeline.name, {BROKEN: ""})

    def _read_batches(self, pipeline: PipelineSpec, mark: str) -> tuple[str, bool]:
        """Take in the batches since the mark. If the ledger was compacted since, its history since the mark is read."""
        journal = StateLocation.of(pipeline).open_journal(pipeline)
        number, _, at = mark.partition(" ")
        if number and journal.state.seq < int(number):
            self.index.forget(pipeline.name)  # a new state
            self.index.mark(pipeline.name, {PROTECTED: describe_protection(pipeline)})
            number = at = ""
        first = journal.tail[0] if journal.tail else None
        known = bool(number) and (first is None or first.kind != "snapshot" or first.seq <= int(number))
        old = () if known else journal.ledger.history(_go_back(at).isoformat() if at else "")
        settled, mask = [*old, *list_settled_among(journal.tail)], make_mask(self.hidden)
        self._put(_make_batch(pipeline, each, mask) for each in settled)
        return f"{journal.state.seq} {max([at, *(each.at for each in settled)])}", False

    def _read_rows(self, pipeline: PipelineSpec, mark: str) -> tuple[str, bool]:
        """Take in the refused rows since the mark. If others are gone from the DLQ, all are read again."""
        if pipeline.dlq.destination is not None:
            return "", False
        dlq = find_dlq(pipeline)[0]
        last = self._put_rows(pipeline, dlq, mark)
        there = query_dlq(dlq, _refuse_spark, "SELECT count(*) AS n FROM {table}")  # after the rows were read
        more = self.index.count(pipeline.name, "row") - (there[0]["n"] if there else 0)
        if more > 0:
            self.index.forget(pipeline.name, "row")
            last = self._put_rows(pipeline, dlq, "")
        elif more < 0 and mark:  # they were refused before others that came first
            self._put_rows(pipeline, dlq, _go_back(mark).isoformat())
        return last, False

    def _put_rows(self, pipeline: PipelineSpec, dlq: Destination, mark: str) -> str:
        """Take in the refused rows since the mark. Return the next mark."""
        last, mask = mark, make_mask(self.hidden)
        choice = Choice(since=datetime.fromisoformat(mark) if mark else None)
        for table in choice.stream_rows(dlq, _refuse_spark, ", ".join(_ROW)):
            for some in table.to_batches(max_chunksize=_AT_ONCE):
                rows = to_python_rows(pa.Table.from_batches([some]))
                self._put(_make_row(pipeline, row, mask) for row in rows)
            last = max(last, pc.max(table["nacked_at"]).as_py().isoformat(timespec="microseconds"))
        return last

    def _read_runs(self, pipeline: PipelineSpec, mark: str) -> tuple[str, bool]:
        """Take in the runs since the mark. The next mark is before the runs that work still."""
        if not parse_seconds(pipeline.run_options.history):
            return "", False
        since = _go_back(mark) if mark else None  # a run that took over may tell another beginning
        runs = list_runs(pipeline, WantedRuns(since=since, limit=_EVERY_RUN, archived=since is None))
        mask = make_mask(self.hidden)
        self._put(_make_run(pipeline, each, mask) for each in runs)
        working = [str(run["started_at"]) for run in runs if run["status"] == "running"]
        return min(working, default=str(runs[0]["started_at"]) if runs else mark), bool(working)

    def _put(self, entries: Iterable[Indexed]) -> None:
        """Write the entries some at a time, and rest in between."""
        waiting = iter(entries)
        while some := [*islice(waiting, _AT_ONCE)]:
            self.index.put(some)
            self._rest()

    def _rest(self) -> None:
        """Rest for a time that depends on how long the thread has worked. Raise `InterruptedError` at the end."""
        rest = _REST_OF_RUNS if self.is_busy() else _REST
        if self._ended.wait(rest * (self.clock.elapsed() - self._worked)):
            raise InterruptedError("the server ends")
        self._worked = self.clock.elapsed()


def describe_protection(pipeline: PipelineSpec) -> str:
    """Return a text that differs if other columns are protected, or if the state is in another place."""
    return json.dumps([*pipeline.protection.columns, str(StateLocation.of(pipeline))])


def _refuse_spark() -> SparkSession:
    raise Refusal("The search index reads nothing through Spark.")


def _go_back(mark: str) -> datetime:
    """Return a moment before this one, because clocks differ and what began later may be there first."""
    return datetime.fromisoformat(mark) - _OVERLAP


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


def _make_batch(pipeline: PipelineSpec, batch: Settled, mask: Callable[[str], str]) -> Indexed:
    parts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in batch.span.parts[:100]]
    counts = f"read {batch.counts.read}, refused {batch.counts.nacked}"
    return Indexed(
        pipeline=pipeline.name,
        kind="batch",
        name=batch.plan,
        run=batch.run,
        status="settled",
        at=batch.at,
        text=mask(
            " ".join([f"batch {batch.number} of lane {batch.lane}: {batch.span.label}", counts, *parts, batch.plan])
        ),
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
