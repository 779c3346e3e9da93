"""A pipeline and its operations, for Python code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.gone import describe_gone
from origins.origin import Origin
from runners.definitions.definition import Definition, definition_of, load
from runners.definitions.yaml_reader import read_options
from runners.listeners.run_progress import show_in_notebook
from runners.model.run_report import PipelineFailed, Report
from runners.model.spec import Hook, PipelineSpec, RunOptions, ScheduleOptions, SchemaState, SparkOptions
from runners.model.text import format_count, format_repr
from runners.operations import dlq, tracer
from runners.operations.audit import audit
from runners.operations.compare import compare_definitions
from runners.operations.find_rows import find_rows
from runners.operations.history import PipelineHistory
from runners.operations.notebook_tables import PipelineStatus
from runners.operations.offsets import OffsetMove, PipelineOffsets, plan_backfill
from runners.operations.redo import RedoPreview, check_redo, discard_old_letters, preview_redo
from runners.operations.refused_rows import PipelineRefusedRows
from runners.operations.status import read_status
from runners.running.compatibility import OperatorOverrides
from runners.running.redo import Redo
from runners.running.replay import Replay
from runners.running.run import PipelineRun
from runners.running.stop import stop
from stages.stage import Stage

if TYPE_CHECKING:
    from runners.model.comparison import Comparison
    from runners.model.events import Listener
    from runners.operations.audit.finding import Audit
    from runners.operations.found_rows import FoundRows
    from runners.operations.preview import Preview
    from runners.operations.repair import RepairPlan, RepairResult
    from runners.running.backfill import Backfill


@dataclass(frozen=True, kw_only=True, init=False)
class Pipeline(PipelineSpec):
    """A pipeline: run it, stop it, and ask for its state."""

    def __init__(  # noqa: PLR0913 -- each is a key of a definition
        self,
        *,
        name: str,
        origin: Origin | None = None,
        origins: Sequence[Origin] = (),
        destinations: Sequence[Destination],
        stages: Sequence[Stage] = (),
        delivery: Literal["after_all", "after_any"] = "after_all",
        dlq: Dlq = Dlq(),
        keep_filtered: str = "0s",
        protect: Sequence[str] = (),
        state: str | SchemaState | None = None,
        run: RunOptions | Mapping[str, Any] | None = None,
        run_options: RunOptions = RunOptions(),
        spark: SparkOptions = SparkOptions(),
        hooks: Sequence[Hook] = (),
        schedule: ScheduleOptions | None = None,
        secrets: Mapping[str, str] | None = None,
        job: Mapping[str, str] | None = None,
    ) -> None:
        """Take the fields of a `PipelineSpec`. Its `run_options` are called `run`, as in a definition.

        `run` may be a mapping, with the same keys as in a definition. Raises `DefinitionError`, which names every
        problem.
        """
        if isinstance(run, Mapping):
            run = read_options(RunOptions, run, "run", f"Pipeline {name!r}")
        super().__init__(
            name=name,
            origin=origin,
            origins=origins,
            destinations=destinations,
            stages=stages,
            delivery=delivery,
            dlq=dlq,
            keep_filtered=keep_filtered,
            protect=protect,
            state=state,
            run_options=run_options if run is None else run,
            spark=spark,
            hooks=hooks,
            schedule=schedule,
            secrets=secrets or {},
            job=job or {},
        )

    def __repr__(self) -> str:
        origins = [type(origin).__name__ for origin in self.every_origin]
        stages = format_count(len(self.stages), "stage", "stages")
        destinations = [type(destination).__name__ for destination in self.every_destination]
        return format_repr("Pipeline", self.name, f"{' + '.join(origins)} → {stages} → {' + '.join(destinations)}")

    @staticmethod
    def of(spec: PipelineSpec) -> Pipeline:
        """Return the pipeline that a definition describes."""
        return Pipeline(**{field.name: getattr(spec, field.name) for field in fields(spec)})

    @staticmethod
    def load(
        path: str | Path,
        *,
        variables: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Pipeline:
        """Load the pipeline from a definition file. `overrides` are values by their paths, for example `dlq.window`.

        `variables` replace `${NAME}` and `secrets` replace `${secret:NAME}`; they win over the environment.

        Raises `DefinitionError`, which names every problem.
        """
        return Pipeline.of(load(path, variables=variables, overrides=overrides, secrets=secrets).pipeline)

    def run(
        self,
        *,
        check: bool = True,
        follow: bool = False,
        listeners: Sequence[Listener] = (),
        take_over: str = "",
        ruling: OperatorOverrides | None = None,
    ) -> Report:
        """Process the waiting rows; listeners get every event. Raises `PipelineFailed` unless `check` is false.

        With `follow` the run continues when nothing is left, and processes new rows until it is stopped. Raises
        `Owned` if another run has the pipeline, and `Refusal` if state and definition do not fit. The run takes the
        pipeline from a run that was silent for a whole lease. With `take_over` it does not wait: the text says why the
        run on another host has surely ended. A `ruling` has a person's answers to questions that no state can answer.
        """
        how: dict[str, Any] = {"follow": follow, "listeners": listeners, "take_over": take_over}
        how["ruling"] = ruling or OperatorOverrides()
        return self._carry(check, **how)

    def _carry(self, check: bool, *, definition: Definition | None = None, **how: Any) -> Report:
        definition = definition or self._definition()
        with show_in_notebook(self.name) as shown:
            how["listeners"] = [*how.get("listeners", ()), *shown]
            run = PipelineRun(pipeline=definition.pipeline, text=definition.text, hash=definition.hash, **how)
            report = run.carry()
        report = replace(report, html=partial(_show_report, definition))
        return self._check(report, check)

    def _check(self, report: Report, check: bool) -> Report:
        """Return the report. With `check`, raises `PipelineFailed` if the run failed."""
        if check and report.status == "failed":
            raise PipelineFailed(report)
        return report

    def backfill(self, backfill: Backfill, *, check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Process old batches again, in separate lanes. The pipeline's offsets do not move.

        After a crash, another call continues. Raises as `run` does.
        """
        definition = self._definition()
        if backfill.where:
            definition = definition_of(backfill.narrow(definition.pipeline))
        return self._carry(check, definition=definition, listeners=listeners, work=backfill)

    def plan_backfill(self, backfill: Backfill) -> OffsetMove:
        """Return what a backfill would process again, by lane. The lanes do not move.

        Raises `Refusal` with the reason if the backfill would process nothing.
        """
        return plan_backfill(self._definition().pipeline, backfill)

    def redo(self, file: str, *, reason: str = "", check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Read a file again that was edited in place.

        In each table, one commit removes the old rows of the file and adds the new rows. Old rows in the DLQ are
        discarded, and the notices of the report count them. Wherry skips a file that has not changed since it was read
        last.

        After a crash, another call continues. Raises `Refusal` if a destination cannot identify the rows of the file,
        and otherwise as `run` does.
        """
        check_redo(self._definition().pipeline, file)
        report = self._carry(check, listeners=listeners, work=Redo(file=file, reason=reason))
        if report.status == "succeeded":
            notices = discard_old_letters(self._definition().pipeline, file, reason=reason)
            report = replace(report, notices=(*report.notices, *notices))
        return report

    def preview_redo(self, file: str, *, say: Callable[[str], None] = lambda _: None) -> RedoPreview:
        """Return what a redo of the file would do. `say` gets messages about progress.

        Raises `Refusal` if a destination cannot identify the rows of the file.
        """
        return preview_redo(self._definition().pipeline, file, say=say)

    def replay(self, replay: Replay, *, check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Process rows of the DLQ again, as they were read or with a fix.

        The rows pass this definition and go to the destinations that do not have them. Each row is processed once,
        however often you call this. Raises as `run` does, and `Refusal` if a replay with another fix was interrupted.
        """
        return self._carry(check, listeners=listeners, work=replay)

    def preview(
        self, *, rows: int | None = None, shown: int = 3, lane: str | None = None, from_beginning: bool = False
    ) -> Preview:
        """Return what would happen to the next batch of each origin: rows kept, filtered and refused by every stage.

        It reads the waiting rows and the ledger. It writes nothing, and no offset moves. With `rows` only the first
        rows of the batch pass. `shown` limits the examples of each kind. `lane` chooses a lane; the default is the
        lane in which the last run failed, or the first lane with waiting rows. A Python function before a stage that
        changes rows is called twice. Raises `StageError` if a stage does not fit its rows.
        """
        return tracer.preview(self._definition(), rows=rows, shown=shown, lane=lane, from_beginning=from_beginning)

    def compare(self, other: Pipeline, *, batches: int = 1) -> Comparison:
        """Return which rows of the next batches another pipeline treats differently, by column and cause.

        If no row waits, it tries the newest batches that this pipeline processed. It writes nothing, and no offset
        moves. Raises `Refusal` if the other pipeline reads from another place, or if there is no batch.
        """
        return compare_definitions(self._definition(), other._definition(), batches=batches)

    def find(self, *, where: str, since: datetime | None = None) -> FoundRows:
        """Return what happened to the rows that fulfil this condition as they were read, and where they are now.

        With `since` it reads only batches that were settled since then; a time without a zone is in UTC. It
        searches whole tables, and uses the stages and destinations of today. It writes nothing. Raises `Refusal` for a
        condition on columns that no row has.
        """
        return find_rows(self._definition(), where=where, since=since)

    def stop(self, reason: str = "asked to stop", *, force: bool = False, within: str = "") -> bool:
        """Ask a run of this pipeline, in any process, to stop after its open batches. Return whether there was a run.

        The run sees the request at its next entry in the ledger. With `force` it sees it within seconds, leaves
        its open batches to the next run, and ends within ten seconds. With `within`, for example "30s", it does so when
        that time is over.
        """
        return stop(self._definition().pipeline, reason, force=force, within=within)

    def resume(self, *, reason: str) -> bool:
        """Resume a pipeline that a limit of the DLQ paused. Return whether it was paused."""
        return dlq.resume(self._definition().pipeline, reason=reason) is not None

    def status(self) -> PipelineStatus:
        """Return the status of the pipeline, from its state, as a dict that a notebook shows as a table."""
        definition = self._definition()
        return PipelineStatus(read_status(definition.pipeline, definition=definition.hash))

    @property
    def refused(self) -> PipelineRefusedRows:
        """The rows that the pipeline refused."""
        return PipelineRefusedRows(self)

    @property
    def offsets(self) -> PipelineOffsets:
        """How far each lane has been read."""
        return PipelineOffsets(self)

    @property
    def history(self) -> PipelineHistory:
        """The runs of the pipeline, and what they reported."""
        return PipelineHistory(self)

    def audit(self) -> Audit:
        """Return whether every row that was read is where it should be. It changes nothing.

        The proof comes from the history and the rows of the destinations, and from the DLQ.
        """
        return audit.audit(self._definition().pipeline)

    def plan_repair(self) -> RepairPlan:
        """Return what there is to repair. It changes nothing."""
        from runners.operations.repair import plan_repair

        return plan_repair(self._definition().pipeline)

    def repair(self, *, reason: str, accept: Sequence[str] = ()) -> RepairResult:
        """Repair the findings of an audit that need no guess.

        `accept` has the ids of findings that are right as they are. The ledger keeps each repair. Raises `Owned` while
        the pipeline runs.
        """
        from runners.operations.repair import repair

        return repair(self._definition().pipeline, reason=reason, accept=accept)

    def _definition(self) -> Definition:
        """Return the pipeline with all its defaults. Raises `DefinitionError` if something in it is wrong."""
        return definition_of(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise an `AttributeError` that says what to use in place of an attribute that is gone."""
            if instead := describe_gone(f"Pipeline.{name}"):
                raise AttributeError(f"`Pipeline.{name}` {instead}")
            return super().__getattribute__(name)  # raises the error of a property again


def _show_report(definition: Definition, report: Report) -> str:
    """Show the report of a run in a notebook. Only a notebook calls this."""
    from runners.operations.reports.write_html import show

    return show(definition, report)
