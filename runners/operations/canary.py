"""A canary: a run tries another definition on a share of its batches, and stores the resulting rows in shadow tables.

A worker's thread tries a batch after its delivery and before its offset moves. An error in the trial never stops the
batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import field, replace

from destinations.destination import Label, Written
from origins.batch import JSON, Batch
from origins.batch_rows import FrameRows
from origins.errors import WherryError
from origins.lazy import DataFrame, SparkSession
from origins.names import quote_text
from origins.origin import Origin
from origins.quick_dataclass import dataclass
from runners.definitions.definition import Definition
from runners.engine.worker_pool import Process
from runners.model.comparison import CanaryReport, ComparedBatch, ShadowTable
from runners.model.errors import CarryFailed, Refusal
from runners.model.masking import without
from runners.model.pipeline_state import is_aside
from runners.model.planned_batch import PlannedBatch
from runners.model.tasks import (
    Answers,
    Deliver,
    GroupWritten,
    Landed,
    Outcome,
    Prepared,
    ShowEmptyBatch,
    Task,
    WriteGroup,
)
from runners.model.text import summarise_error
from runners.operations.compare import BatchPair, OriginPair, pair_origins
from runners.operations.pipeline_access import open_state
from runners.operations.trial import TrialRun
from runners.running.opening import make_chain
from runners.running.run import CarriedRun
from runners.spark.own_session import make_own_session
from runners.spark.session_pool import cancel, tag_work
from runners.state.location import SHADOW_STAMP, StateLocation

PATIENCE = 1_800.0
"""The most seconds that a batch waits for the canary. After that the run continues without it."""
TICK = 0.1
"""The seconds between two checks whether to wait any longer."""
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)\s*(%?)", re.ASCII)

log = logging.getLogger("wherry")


def parse_share(text: str | float) -> float:
    """Parse a share such as `5%` or 0.05 to a fraction. Raises `Refusal`."""
    found = _SHARE.fullmatch(str(text).strip())
    share = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < share <= 1:
        raise Refusal(f"share: expected a share such as 5% or 0.05, above 0 and up to 100%, got {text!r}.")
    return share


def is_chosen(plan: str, share: float) -> bool:
    """Whether the canary takes the batch of this plan. The answer is always the same for a plan."""
    return int(hashlib.sha256(plan.encode()).hexdigest()[:12], 16) < share * 16**12


class _Left(Exception):
    """A batch does not wait for the canary any longer, for this reason."""


@dataclass
class Canary:
    """Another definition that one run tries on a share of its batches.

    Raises `Refusal` if it cannot read what the run reads, or if that cannot be read twice.
    """

    old: Definition
    new: Definition
    share: float
    patience: float = PATIENCE
    report: CanaryReport = field(init=False)
    """The result so far."""

    def __post_init__(self) -> None:
        self.report = CanaryReport(share=self.share)
        self._origins = {
            origin.name or "origin": (origin, other)
            for origin, other in pair_origins(self.old.pipeline, self.new.pipeline)
        }
        _check_run(self.old, [origin for origin, _ in self._origins.values()])
        self._chains = {
            name: (make_chain(self.old.pipeline, origin), make_chain(self.new.pipeline, other))
            for name, (origin, other) in self._origins.items()
        }
        self._turn = threading.Lock()
        """Held while a batch is tried, perhaps for minutes."""
        self._lock = threading.Lock()
        """Held while a result is recorded."""
        self._taken: set[str] = set()
        self._pins: dict[str, Mapping[str, JSON]] = {}
        self._is_over = False
        """Whether a batch has waited too long, so that no other batch waits."""
        self._spark: SparkSession | None = None
        self._pairs: Mapping[str, OriginPair] = {}

    def wrap_process(self, process: Process, run: CarriedRun) -> Process:
        """Return a function that does a worker's task, and tries its batches after their delivery."""

        def carry(task: Task) -> Outcome:
            for plan in _list_plans(task):
                with contextlib.suppress(Exception):  # the trial has the same error, and reports it
                    self._note_pins(run, plan)
            outcome = process(task)
            began = time.monotonic()
            for plan in _list_plans(task):
                part = outcome.outcomes[plan.batch.lane] if isinstance(outcome, GroupWritten) else outcome
                if _is_delivered(part) and self._takes(plan):
                    self._try(run, plan, _count_read(task, part, plan))
            return _leave_out(outcome, time.monotonic() - began)

        return carry

    def _note_pins(self, run: CarriedRun, plan: PlannedBatch) -> None:
        """Keep the new stages' pins from before the delivery. A stage of both definitions keeps the plan's pin."""
        batch = plan.batch
        if batch.plan not in self._pins and (not self._taken or is_chosen(batch.plan, self.share)):
            old, new = self._chains[batch.origin]
            now, stages = new.pins(run.spark), {step.name: step.stage for step in old.steps}
            same = {step.name for step in new.steps if stages.get(step.name) == step.stage}
            self._pins[batch.plan] = {
                name: plan.pins.get(name, pin) if name in same else pin for name, pin in now.items()
            }

    def _takes(self, plan: PlannedBatch) -> bool:
        """Whether to try the batch now. It must be chosen or the first batch of the run, and not tried yet."""
        name = plan.batch.plan
        with self._lock:
            if name in self._taken or not (not self._taken or is_chosen(name, self.share)):
                return False
            self._taken.add(name)
            return True

    def _try(self, run: CarriedRun, plan: PlannedBatch, read: int) -> None:
        """Try the batch, and report the result. Raises nothing."""
        batch, group = plan.batch, f"wherry-{run.id}-canary-{plan.batch.plan}"
        try:
            with self._take_turn(run):
                work = _begin(lambda: self._carry(run, plan, group))
                try:
                    self._wait(run, work)
                except _Left:
                    if self._spark is not None:
                        cancel(self._spark, group)
                    raise
                compared, refused, tables = work.result()
                rows = read or max((each.same + each.differing for each in compared.destinations), default=0)
                with self._lock:
                    self.report = self.report.add(compared, rows=rows, refused=refused, tables=tables)
        except Exception as error:  # noqa: BLE001 -- no error of the new definition may stop the batch
            self._note_failure(batch, error)
        finally:
            self._pins.pop(batch.plan, None)

    @contextlib.contextmanager
    def _take_turn(self, run: CarriedRun) -> Iterator[None]:
        while not self._turn.acquire(timeout=TICK):
            _check_stop(run)
        try:
            _check_stop(run)
            if self._is_over:
                raise _Left("an earlier batch took too long, and the run goes on without the canary")
            yield
        finally:
            self._turn.release()

    def _wait(self, run: CarriedRun, work: Future[_Tried]) -> None:
        until = time.monotonic() + self.patience
        while not wait([work], TICK).done:
            _check_stop(run)
            if time.monotonic() >= until:
                self._is_over = True
                raise _Left(f"it took longer than {self.patience:,.0f} s; the run goes on without the canary")

    def _carry(self, run: CarriedRun, plan: PlannedBatch, group: str) -> _Tried:
        """Compare both definitions on the batch, count what the new one refuses, and write the shadow tables."""
        spark, batch = self._open(run), plan.batch
        with tag_work(spark, group):
            both = BatchPair(self._pairs[batch.origin], batch, (plan.pins, self._pins.get(batch.plan)))
            compared, refused = both.compare(), both.count_refused()
            return compared, refused, {name: self._write(run, spark, both, name, batch) for name in both.new_names}

    def _open(self, run: CarriedRun) -> SparkSession:
        """Return the session for trials. The first trial makes it."""
        if self._spark is None:
            pipeline = self.old.pipeline
            spark = make_own_session(run.spark, pipeline.run_options.time_zone)
            old = TrialRun(definition=self.old, journal=open_state(pipeline)[1], spark=spark)
            new = replace(old, definition=self.new)
            self._pairs = {name: OriginPair(old, new, *pair) for name, pair in self._origins.items()}
            self._spark = spark
        return self._spark

    def _write(self, run: CarriedRun, spark: SparkSession, both: BatchPair, name: str, batch: Batch) -> ShadowTable:
        """Write the rows of one destination into its shadow table, in place of rows that an earlier trial left."""
        shadow = StateLocation.of(self.old.pipeline).make_shadow(name, self.new.hash)
        earlier = _list_earlier(run, batch)
        replaced = f"{SHADOW_STAMP} IN ({', '.join(map(quote_text, earlier))})" if earlier else ""
        labelled = replace(batch, replaces={name: replaced} if replaced else {})
        label = Label(batch=labelled, destination=name, deadline=run.deadline)

        def write(rows: DataFrame) -> Written:
            with contextlib.closing(shadow.open()) as opened:
                opened.grow(spark, rows.schema)
                opened.ensure_place(spark, rows.schema)
                if earlier:
                    opened.fence(spark, uuid.uuid4().hex)
                return opened.write(spark, FrameRows(rows), [label])

        return ShadowTable(place=shadow.place, rows=both.write_new(name, write).rows or 0)

    def _note_failure(self, batch: Batch, error: Exception) -> None:
        where = f"batch {batch.number} of lane {batch.lane} ({batch.span.label})"
        notice = f"{where} was not tried with the new definition: {self._mask(error)}"
        with self._lock:
            self.report = self.report.add_failure(notice)
        log.warning("%s: %s", batch.pipeline, notice)

    def _mask(self, error: BaseException) -> str:
        """Return the error in one line, without what either definition masks."""
        if isinstance(error, CarryFailed) and error.__cause__ is not None:
            error = error.__cause__
        ours = isinstance(error, _Left) or (isinstance(error, WherryError) and error.__cause__ is None)
        message = getattr(error, "message", str(error)) if ours else summarise_error(error)
        for definition in (self.old, self.new):
            pipeline = definition.pipeline
            message = message if ours else pipeline.protection.mask_error(error, message)
            message = str(without(pipeline.secrets, message))
        return message


_Tried = tuple[ComparedBatch, Mapping[str, int], Mapping[str, ShadowTable]]


def _check_run(old: Definition, origins: Sequence[Origin]) -> None:
    """Raises `Refusal` if this run cannot read the rows of a batch a second time."""
    once = next((origin for origin in origins if not origin.repeatable), None)
    if once is not None:
        raise Refusal(
            f"A canary reads each batch a second time, and {once.place} gives its rows only once.",
            hint="Run without --canary. Try the new definition on rows in files:  wherry compare FILE NEW",
        )
    if old.pipeline.run_options.assignment != "single":
        raise Refusal(
            "A canary needs a run that has all lanes, and this pipeline shares its lanes between runs.",
            hint="Run without --canary; or once with  --set run.assignment=single",
        )


def _list_plans(task: Task) -> Sequence[PlannedBatch]:
    """Return the batches of a task, without the open batches of a backfill or a replay."""
    if isinstance(task, ShowEmptyBatch):
        return []
    plans = [each.plan for each in task.writes] if isinstance(task, WriteGroup) else [task.plan]
    return [plan for plan in plans if not is_aside(plan.batch.lane)]


def _is_delivered(outcome: Outcome) -> bool:
    """Whether a destination has the batch, or no destination gets a row from it. Then its rows are final."""
    if isinstance(outcome, Landed):
        return bool(outcome.written) or outcome.counts is not None
    if isinstance(outcome, Prepared):
        return not outcome.nacks and not any(branch.expected for branch in outcome.counts.branches.values())
    return isinstance(outcome, Answers) and bool(outcome.found)


def _count_read(task: Task, outcome: Outcome, plan: PlannedBatch) -> int:
    """Return how many rows the batch has, or 0 if they were not counted."""
    decision = task.decision if isinstance(task, Deliver) else plan.decision
    counts = (outcome.counts if isinstance(outcome, Landed | Prepared) else None) or (decision and decision.counts)
    return counts.read if counts else 0


def _leave_out(outcome: Outcome, seconds: float) -> Outcome:
    """Add the canary's time to the outcome, so that it does not count as the batch's time."""
    if isinstance(outcome, GroupWritten):
        return replace(
            outcome, outcomes={lane: replace(each, beside=seconds) for lane, each in outcome.outcomes.items()}
        )
    return replace(outcome, beside=seconds) if isinstance(outcome, Landed) else outcome


def _list_earlier(run: CarriedRun, batch: Batch) -> Sequence[str]:
    """Return the stamps of rows that earlier trials of these rows may have left.

    These are the stamp of this batch, if another run planned it, and the stamps of cancelled plans before it.
    """
    committed = run.journal.state.get_lane(batch.lane).committed
    cancelled = range(committed + 1, batch.number)
    if batch.run == run.id and not cancelled:
        return []
    return [f"{batch.lane}/{number}" for number in (*cancelled, batch.number)]


def _check_stop(run: CarriedRun) -> None:
    if run.is_stopping():
        raise _Left("the run is stopping")


def _begin(work: Callable[[], _Tried]) -> Future[_Tried]:
    """Begin the work in a new thread, which the run may abandon."""
    future: Future[_Tried] = Future()

    def carry() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- the edge of the thread: the runner raises it
            future.set_exception(error)

    threading.Thread(target=carry, name="wherry-canary", daemon=True).start()
    return future
