"""What can be done with a pipeline from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.batch import JSON
from origins.origin import Origin
from origins.quick_dataclass import dataclass
from runners.model.spec import (
    Hook,
    PipelineSpec,
    RunOptions,
    ScheduleOptions,
    SchemaState,
    SparkOptions,
)
from runners.model.text import format_count, format_repr
from stages.stage import Stage

if TYPE_CHECKING:
    from runners.definitions.definition import Definition
    from runners.model.comparison import Comparison
    from runners.model.events import Listener
    from runners.model.run_report import Report
    from runners.operations.audit_finding import Audit
    from runners.operations.canary import Canary
    from runners.operations.correct_rows import CorrectedRows, ExportedRows
    from runners.operations.explain_row import RefusedRow
    from runners.operations.fix_preview import FixPreview
    from runners.operations.found_rows import FoundRows
    from runners.operations.offsets import Lanes
    from runners.operations.preview import Preview
    from runners.operations.repair import MergedFallback, RepairResult
    from runners.operations.suggest_fix import Suggestion
    from runners.running.backfill import Backfill
    from runners.running.choice import Choice
    from runners.running.compatibility import OperatorOverrides
    from runners.running.replay import Replay


@dataclass(frozen=True, kw_only=True, init=False)
class Pipeline(PipelineSpec):
    """A pipeline that can be run, stopped and asked how it is."""

    def __init__(
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
    ) -> None:
        """The fields of a `PipelineSpec`; its `run_options` are called `run`, as in a definition.

        `run` may be a mapping, which is read as a definition's is. Raises `DefinitionError` with all that is wrong.
        """
        if isinstance(run, Mapping):
            from runners.definitions.yaml_reader import read_options

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
        )

    def __repr__(self) -> str:
        origins = [type(origin).__name__ for origin in self.every_origin]
        stages = format_count(len(self.stages), "stage", "stages")
        destinations = [type(destination).__name__ for destination in self.every_destination]
        return format_repr("Pipeline", self.name, f"{' + '.join(origins)} → {stages} → {' + '.join(destinations)}")

    @staticmethod
    def of(spec: PipelineSpec) -> Pipeline:
        """The pipeline that a definition describes."""
        return Pipeline(**{field.name: getattr(spec, field.name) for field in fields(spec)})

    @staticmethod
    def load(
        path: str | Path,
        *,
        variables: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Pipeline:
        """The pipeline in a definition file; `overrides` are values by their paths, such as `dlq.window`.

        `variables` are put in for `${NAME}` and `secrets` for `${secret:NAME}`, before the environment's.

        Raises `DefinitionError` with all that is wrong with it.
        """
        from runners.definitions.definition import load

        return Pipeline.of(load(path, variables=variables, overrides=overrides, secrets=secrets).pipeline)

    def run(
        self,
        *,
        check: bool = True,
        follow: bool = False,
        listeners: Sequence[Listener] = (),
        take_over: str = "",
        ruling: OperatorOverrides | None = None,
        canary: Pipeline | None = None,
        share: str | float = "5%",
    ) -> Report:
        """Carry what waits; listeners hear every event. Raises `PipelineFailed` unless `check` is false.

        With `follow` it goes on when nothing is left, and carries what comes until it is stopped. Raises `Owned`
        when another run has the pipeline, and `Refusal` when state and definition do not fit. From a run that has said
        nothing for a whole lease it is taken; `take_over` says why one on another host is surely gone, and nobody
        waits. A `ruling` says what no state can know.

        A `canary` is another pipeline that reads from the same place. It is tried on a share of the batches, and on the
        first one. Its rows go to shadow tables in this pipeline's state, and `Report.canary` says what differs. Raises
        `Refusal` where that cannot be done.
        """
        from runners.running.compatibility import OperatorOverrides

        how: dict[str, Any] = {"follow": follow, "listeners": listeners, "take_over": take_over}
        how["ruling"] = ruling or OperatorOverrides()
        if canary is None:
            return self._carry(check, **how)
        trial = self.make_canary(canary, share)
        report = self._carry(check=False, accompany=trial.accompany, **how)
        return self._check(replace(report, canary=trial.report), check)

    def make_canary(self, canary: Pipeline, share: str | float) -> Canary:
        """A trial of another pipeline on a share of a run's batches. Raises `Refusal` where that cannot be done."""
        from runners.definitions.definition import definition_of
        from runners.operations.canary import Canary, parse_share

        return Canary(self._definition(), definition_of(canary), parse_share(share))

    def _carry(self, check: bool, **how: Any) -> Report:
        from runners.listeners.run_progress import show_in_notebook
        from runners.running.run import PipelineRun

        definition = self._definition()
        with show_in_notebook(self.name) as shown:
            how["listeners"] = [*how.get("listeners", ()), *shown]
            run = PipelineRun(pipeline=definition.pipeline, text=definition.text, hash=definition.hash, **how)
            report = run.carry()
        report = replace(report, html=partial(_show_report, definition))
        return self._check(report, check)

    def _check(self, report: Report, check: bool) -> Report:
        """The report. Raises `PipelineFailed` for a run that failed, with `check`."""
        from runners.model.run_report import PipelineFailed

        if check and report.status == "failed":
            raise PipelineFailed(report)
        return report

    def backfill(self, backfill: Backfill, *, check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Carry again what was carried before, in lanes of its own; the pipeline's own offsets stay where they are.

        Called again after a crash it goes on where it was. Raises as `run` does.
        """
        return self._carry(check, listeners=listeners, backfill=backfill)

    def redo(self, file: str, *, reason: str = "", check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Read a file again that was edited in place: its old rows leave each table in the commit that brings the new
        ones, and its old rows in the DLQ are discarded, which the notices of the report count. A file that is as it was
        read last is left alone.

        Called again after a crash it goes on where it was. Raises `Refusal` where a destination cannot tell the rows of
        the file, and else as `run` does.
        """
        from runners.operations.redo import check_redo, discard_old_letters
        from runners.running.redo import Redo

        check_redo(self._definition().pipeline, file)
        report = self._carry(check, listeners=listeners, redo=Redo(file=file, reason=reason))
        if report.status == "succeeded":
            said = discard_old_letters(self._definition().pipeline, file, reason=reason)
            report = replace(report, notices=(*report.notices, *said))
        return report

    def replay(self, replay: Replay, *, check: bool = True, listeners: Sequence[Listener] = ()) -> Report:
        """Carry rows of the DLQ again, as they were read or with a fix, through this definition, to the destinations
        that do not have them; each once, however often this is called. Raises as `run` does, and `Refusal` where a
        replay with another fix was cut short.
        """
        return self._carry(check, listeners=listeners, replay=replay)

    def preview_replay(self, replay: Replay, *, say: Callable[[str], None] = lambda _: None) -> FixPreview:
        """What the replay would do: how many rows pass, why others are refused, and some rows before and behind its
        fix. Writes nothing. `say` gets word of progress. Raises as `replay` does before it begins.
        """
        from runners.operations.fix_preview import preview_fix
        from runners.running.replay import plan_replay

        definition = self._definition()
        return preview_fix(definition, plan_replay(definition.pipeline, replay.choice, replay.fix), replay, say=say)

    def export_dead_letters(
        self, to: str | Path, *, choice: Choice | None = None, reveal: bool = False
    ) -> ExportedRows:
        """Write the chosen rows of the DLQ that wait into a new file, so that a person can correct them: `.csv`,
        `.json` or `.parquet`. Each has its id, its code and its message, and the columns that were read.

        Protected columns are masked unless `reveal`, and a file with masks cannot be imported. Raises `Refusal` for a
        file that exists.
        """
        from runners.operations.correct_rows import export_rows
        from runners.running.choice import Choice

        return export_rows(self._definition().pipeline, Path(to), choice or Choice(), reveal=reveal)

    def correct_dead_letters(
        self, corrected: str | Path | Mapping[str, Mapping[str, Any]], *, unchanged: bool = False
    ) -> CorrectedRows:
        """Corrected rows of the DLQ: an edited file that `export_dead_letters` wrote, or by the id of each row the
        columns to set. Its `make_replay` is what `preview_replay` and `replay` take.

        Rows that are as they were read are left out unless `unchanged`. Writes nothing. Raises `Refusal` with all rows
        that cannot be taken.
        """
        from runners.operations.correct_rows import correct_from_file, correct_from_values

        pipeline = self._definition().pipeline
        if isinstance(corrected, Mapping):
            return correct_from_values(pipeline, corrected, unchanged=unchanged)
        return correct_from_file(pipeline, Path(corrected), unchanged=unchanged)

    def find_cut_replay(self) -> Replay:
        """The replay with a fix that was cut short, so that `replay` can go on with it. Raises `Refusal` where there is
        none."""
        from runners.operations.pipeline_access import open_state
        from runners.running.replay import Replay

        return Replay.resume(open_state(self._definition().pipeline)[1].state)

    def discard_dead_letters(self, choice: Choice | None = None, *, reason: str) -> int:
        """Throw rows of the DLQ away on purpose, by default all that wait; how many there were. They stay in the table,
        and no replay takes them. Raises `Owned` while a replay is under way."""
        from runners.operations.dlq import discard
        from runners.running.choice import Choice

        return discard(self._definition().pipeline, choice or Choice(), reason=reason)

    def dead_letter_causes(self, choice: Choice | None = None) -> list[dict[str, JSON]]:
        """Why rows were refused: by cause how many, how many of them wait, the first and the last, and an example.
        `forms` groups the rows of a cause by column and form of the value."""
        from runners.operations.dlq import summarise
        from runners.running.choice import Choice

        return summarise(self._definition().pipeline, choice or Choice())

    def compare_causes(self, choice: Choice | None = None, *, by: Literal["run", "day"] = "run") -> dict[str, JSON]:
        """How many rows the last runs refused by cause, or the last days, and what is new or gone; with the share of
        the rows that were read. Needs no Spark where `dead_letters` needs none."""
        from runners.operations.dlq import compare_causes
        from runners.running.choice import Choice

        return compare_causes(self._definition().pipeline, choice or Choice(), by=by)

    def preview(
        self,
        *,
        rows: int | None = None,
        shown: int = 3,
        lane: str | None = None,
        from_beginning: bool = False,
    ) -> Preview:
        """What would become of the next batch of each origin: rows behind every stage, kept, filtered, refused and why.

        Reads what waits and the ledger; nothing is written, and no offset moves. With `rows` only the batch's first so
        many rows pass; of each kind of row `shown` are seen. `lane` chooses one; without it the lane in which the last
        run failed, or else the first that has something. A Python function in front of a stage that changes rows is
        called twice. Raises `StageError` where a stage does not fit the rows that reach it.
        """
        from runners.operations.trial import preview

        return preview(self._definition(), rows=rows, shown=shown, lane=lane, from_beginning=from_beginning)

    def compare(self, other: Pipeline, *, batches: int = 1) -> Comparison:
        """Which rows of the next batches another pipeline treats differently, by column and cause.

        Where no row waits, the newest batches that this pipeline carried are tried. Nothing is written, and no offset
        moves. Raises `Refusal` where the other pipeline reads from another place, and where there is no batch.
        """
        from runners.operations.compare import compare_definitions

        return compare_definitions(self._definition(), other._definition(), batches=batches)

    def find(self, *, where: str, since: datetime | None = None) -> FoundRows:
        """What became of the rows as read for which this condition is true, and where they are now.

        With `since` only batches settled since then are read again; a time without a zone is in UTC. Tables are
        searched whole. Writes nothing.
        The stages and destinations are those of today. Raises `Refusal` for a condition on columns that no row has.
        """
        from runners.operations.find_rows import find_rows

        return find_rows(self._definition(), where=where, since=since)

    def stop(self, reason: str = "asked to stop", *, force: bool = False, within: str = "") -> bool:
        """Ask a run of this pipeline, in any process, to stop after its open batches.

        It hears at its next entry in the ledger. With `force` it hears within seconds (a state in a catalog: half a
        minute) and leaves what is in flight as it is, for the next run to look at; with `within`, such as "30s", it
        does so when that time is over. Whether anybody was there to ask.
        """
        from runners.running.stop import stop

        return stop(self._definition().pipeline, reason, force=force, within=within)

    def resume(self, *, reason: str) -> bool:
        """Let runs begin again after a limit of the DLQ paused the pipeline; whether it was paused."""
        from runners.operations.dlq import resume

        return resume(self._definition().pipeline, reason=reason) is not None

    def status(self) -> dict[str, JSON]:
        """How the pipeline is, as its state says."""
        from runners.operations.status import read_status

        definition = self._definition()
        return read_status(definition.pipeline, definition=definition.hash)

    def audit(self) -> Audit:
        """Whether every row that was read can be shown to be where it should be, by the destinations' own history and
        rows and by the DLQ. Changes nothing."""
        from runners.operations.audit import audit

        return audit(self._definition().pipeline)

    def repair(self, *, reason: str, accept: Sequence[str] = ()) -> RepairResult:
        """Mend what an audit finds and what can be mended without guessing; `accept` are the ids of findings that are
        right as they are. Each is kept in the ledger. Raises `Owned` while the pipeline is run."""
        from runners.operations.repair import repair

        return repair(self._definition().pipeline, reason=reason, accept=accept)

    def runs(
        self,
        *,
        status: str = "",
        since: datetime | None = None,
        run: str = "",
        limit: int = 20,
        report: bool = False,
        archived: bool = False,
    ) -> list[dict[str, JSON]]:
        """The newest runs, the newest first; `run` is how the name of one begins. With `report` what each reported,
        with `archived` also those that are older than `run.history`, without what they reported.

        The status of one is `running`, `succeeded`, `failed`, `stopped`, or `killed` where its process ended without a
        word: another run took over, or the ledger shows that it lives no more.

        Raises `Refusal` where no run history is kept.
        """
        from runners.operations.status import list_runs
        from runners.state.run_history import WantedRuns

        wanted = WantedRuns(status=status, since=since, run=run, limit=limit, report=report, archived=archived)
        return list_runs(self._definition().pipeline, wanted)

    def lanes(self) -> Lanes:
        """How far every lane is, and what is open; in a notebook a table."""
        from runners.operations.offsets import Lanes

        return Lanes.of(self._definition().pipeline)

    def dead_letters(
        self,
        limit: int | None = None,
        *,
        choice: Choice | None = None,
        reveal: bool = False,
        waiting: bool = False,
    ) -> list[dict[str, JSON]]:
        """The last `limit` of the chosen refused rows (default: all), the newest last; with `reveal` protected columns
        as they are, and with `waiting` only rows that were neither replayed nor discarded.

        Raises `DestinationError` for a DLQ that cannot be read again, and `Refusal` for a choice that cannot be made.
        """
        from runners.operations.dlq import list_dead_letters
        from runners.running.choice import Choice

        pipeline, choice = self._definition().pipeline, choice or Choice()
        return list_dead_letters(pipeline, limit, choice=choice, reveal=reveal, waiting=waiting)

    def merge_dead_letters(self) -> MergedFallback:
        """Bring all refused rows into the DLQ that wait in its fallback, each once. Raises `Owned` while the pipeline
        is run, and `PipelineFailed` where the DLQ or the fallback cannot be used."""
        from runners.operations.repair import merge_fallback

        return merge_fallback(self._definition())

    def explain_dead_letter(self, letter: str, *, reveal: bool = False) -> RefusedRow:
        """The row of the DLQ with this id: why it was refused, and by which stage, then and now.

        Its `try_again` passes it through the stages of today, and reads the rows beside it. Writes nothing. With
        `reveal` protected columns are shown as they are. Raises `Refusal` for an id that is not there.
        """
        from runners.operations.explain_row import load_refused_row

        return load_refused_row(self._definition(), letter, reveal=reveal)

    def suggest_fixes(
        self, choice: Choice | None = None, *, say: Callable[[str], None] = lambda _: None
    ) -> Sequence[Suggestion]:
        """For each cause of the chosen rows that wait: the change with which the most of them would pass today.

        Wherry tries up to 200 rows of a cause. It writes nothing, and applies no change. `say` gets word of progress.
        Raises `Refusal` for a choice that cannot be made.
        """
        from runners.operations.suggest_fix import suggest_fixes
        from runners.running.choice import Choice

        return suggest_fixes(self._definition(), choice or Choice(), say=say)

    def _definition(self) -> Definition:
        """The pipeline with everything that it leaves out. Raises `DefinitionError` where something in it is wrong."""
        from runners.definitions.definition import definition_of

        return definition_of(self)


def _show_report(definition: Definition, report: Report) -> str:
    """What a notebook shows of a run. Only a notebook asks for it."""
    from runners.reports.write_html import show

    return show(definition, report)
