"""A redo: Wherry reads one file again that was edited in place.

In each table, one commit removes the old rows of the file and adds the new rows.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from destinations.delta.delta import Delta
from destinations.delta.table import TargetTable
from destinations.destination import Destination
from origins.batch import Span
from origins.capabilities import KeepsParts
from origins.lazy import DataFrame, SparkSession
from origins.names import make_absolute, quote_name, quote_text
from origins.origin import Origin
from origins.store_access import canonicalise
from runners.model.entry import Settled
from runners.model.errors import Refusal
from runners.model.pipeline_state import is_replay
from runners.model.spec import PipelineSpec
from runners.running.aggregates import OF_A_BACKFILL
from runners.running.choice import Letter
from runners.running.compatibility import resolve_names
from runners.running.opening import get_lane_read, list_carried_parts
from runners.running.work import OpenRun, PastLane, Work, begin_backfill
from runners.state.journal import Journal, list_settled_ever
from runners.ways.stage_chain import name_destinations


@dataclass(frozen=True, kw_only=True)
class OldRows:
    """How a table identifies the rows of a file: by a condition, or by the keys of a merge."""

    condition: str = ""
    """The condition for the rows to remove; empty if the new rows are merged."""
    stamp: str = ""
    """The column that names the batch of each row, if the condition uses it."""

    def format_condition(self, lane: str) -> str:
        """Return the condition for the rows to remove when this lane adds the new rows. New rows meet it too."""
        own = f" OR startswith({quote_name(self.stamp)}, {quote_text(f'{lane}/')})" if self.stamp else ""
        return f"{self.condition}{own}"


@dataclass(frozen=True, kw_only=True)
class OldLetters:
    """The ids of the waiting rows in the DLQ that an edited file may have left."""

    old: tuple[str, ...] = ()
    """The old file had these rows."""
    unsure: tuple[str, ...] = ()
    """Wherry cannot know whether the old file or another file had these rows."""


@dataclass(frozen=True, kw_only=True)
class FileRedo:
    """The plan for the redo of a file."""

    origin: Origin
    file: str
    lane: str
    """The lane that brought the file last."""
    key: str
    """A text that is equal for two calls that redo the same version of the file."""
    span: Span | None
    """The current version of the file; None if that version was read last."""
    tables: Mapping[str, OldRows] = field(default_factory=dict)
    """How each destination that has the file identifies its rows."""
    alone: Sequence[str] = ()
    """The ids of the batches that brought only this file."""
    mixed: Sequence[str] = ()
    """The ids of the batches that brought it with other files."""

    replayed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By the id of each batch of a replay, the ids of the DLQ rows that it took."""

    def sort_letters(self, letters: Sequence[Letter], waiting: Sequence[Letter]) -> OldLetters:
        """Return which of the waiting rows the old file left in the DLQ. `letters` are all rows of the DLQ."""
        known = {letter.id: letter for letter in letters}
        found = {letter.id: self._is_old(letter.id, known) for letter in waiting}
        return OldLetters(
            old=tuple(letter for letter, is_old in found.items() if is_old),
            unsure=tuple(letter for letter, is_old in found.items() if is_old is None),
        )

    def _is_old(self, letter: str, known: Mapping[str, Letter]) -> bool | None:
        """Whether the old file had this row, or None if Wherry cannot know.

        A row that a replay refused is traced back to the row that the replay took.
        """
        plan, found = letter.rpartition("/")[0], known.get(letter)
        if plan in self.alone:
            return True
        if plan in self.mixed:
            return found.part == self.file if found and found.part else None
        if found and found.replays:
            return self._is_old(found.replays, known)
        taken = {self._is_old(each, known) for each in self.replayed.get(plan, ())}
        return None if len(taken) > 1 else True in taken or (None if None in taken else False)


@dataclass(frozen=True, kw_only=True)
class Redo(Work):
    """The file to read again, and the reason.

    Each destination gets the new rows in the commit that removes the old rows. After a crash, another call continues. A
    file that has not changed since it was read last is skipped.
    """

    split = OF_A_BACKFILL

    file: str
    """The name of the file, as in the ledger or as a path."""
    reason: str = ""

    def select_rows(self, run: OpenRun) -> Sequence[PastLane]:
        """Return the current version of the file, unless it was read last."""
        plan = plan_redo(run.pipeline, run.journal, run.spark, self.file)
        if plan.span is None:
            return ()
        begun = run.journal.state.backfills.get(plan.key)
        begun = begun or begin_backfill(run.journal, plan.key, reason=self.reason or f"{plan.file} was edited")
        name = f"{begun.name}/{plan.lane}"
        old = {each: rows.format_condition(name) for each, rows in plan.tables.items() if rows.condition}
        batches = [(plan.span, tuple(plan.tables))]
        return [PastLane(origin=plan.origin.name or "origin", name=name, lane=plan.lane, batches=batches, replaces=old)]


def plan_redo(pipeline: PipelineSpec, journal: Journal, spark: SparkSession, file: str) -> FileRedo:
    """Plan the redo of this file. Raises `Refusal` if a destination cannot identify the rows of the file."""
    settled = sorted(list_settled_ever(journal), key=lambda each: each.at)
    carried = [each for each in settled if journal.state.is_carried(each)]
    plans = {each.plan for each in carried}
    origin, name = _find_file(pipeline, carried, file)
    if origin.read == "whole":
        raise Refusal(f"Each run reads {origin.place} whole, so a run redoes {name}.", hint="wherry run FILE")
    assert isinstance(origin, KeepsParts)  # only such an origin has files
    span = origin.make_span(spark, name)
    if span is None:
        raise Refusal(f"{name} is missing at {origin.place}.", hint="Put the corrected file there under its old name.")
    now = span.parts[0]
    loaded = [each for each in settled if not is_replay(each.lane) and pipeline.owns(origin, get_lane_read(each))]
    brought = [each for each in loaded if name in _list_names(each)]
    old = [each for each in brought if now not in each.span.parts]
    last = [each for each in brought if each.plan in plans][-1]
    plan = FileRedo(
        origin=origin,
        file=name,
        lane=get_lane_read(last),
        key=f"redo|{last.plan}|{now}",
        span=None if now in list_carried_parts(pipeline, origin, carried) else span,
        alone=[each.plan for each in old if _list_names(each) == [name]],
        mixed=[each.plan for each in old if len(_list_names(each)) > 1],
        replayed={
            each.plan: [str(letter) for letter in each.span.parts]
            for each in settled
            if is_replay(each.lane) and not each.counts.discards
        },
    )
    _check_open_redos(journal, plan.key)
    if plan.span is None:
        return plan
    origins = pipeline.origins_by_name.items()
    names = {(name, file) for name, each in origins for file in _list_files(pipeline, each, settled)}
    tracer = _Tracer(pipeline=pipeline, origin=origin, file=name, brought=brought, settled=settled, names=names)
    return replace(plan, tables=tracer.trace_all(spark))


def _check_open_redos(journal: Journal, key: str) -> None:
    """Raises `Refusal` if another redo is open, because the ledger does not have its batch yet."""
    begun = journal.state.backfills.get(key)
    own = begun.name if begun else ""
    for plan in journal.state.open_plans:
        if plan.batch.replaces and plan.batch.lane.partition("/")[0] != own:
            raise Refusal("A redo that began earlier is not finished.", hint="Finish it first:  wherry run FILE")


@dataclass(frozen=True, kw_only=True)
class _Tracer:
    """Finds how each table identifies the rows of a file."""

    pipeline: PipelineSpec
    origin: Origin
    file: str
    brought: Sequence[Settled]
    """The batches that brought the file, in order."""
    settled: Sequence[Settled]
    names: Collection[tuple[str, str]]
    """All files that were read, each with its origin."""

    def trace_all(self, spark: SparkSession) -> Mapping[str, OldRows]:
        """Return how each destination that has the file identifies its rows.

        Raises one `Refusal` that names all destinations which cannot.
        """
        self._check_only_origin()
        destinations = name_destinations(self.pipeline.every_destination)
        today = resolve_names(destinations)
        had = {today[name] for each in self.brought for name in each.counts.delivered if name in today}
        found, refused = {}, []
        for name, each in destinations.items():
            if name not in had:
                continue
            try:
                found[name] = self._trace(name, each, spark)
            except Refusal as refusal:
                refused.append(refusal.message)
        if not had:
            raise Refusal(f"No destination of the definition has rows of {self.file}.", hint="wherry audit FILE")
        if refused:
            raise Refusal(
                f"{self.file} cannot be redone, and nothing was done:\n  " + "\n  ".join(refused),
                hint="Delete the old rows by hand. Then put the corrected rows into a file with a new name, and run "
                "again:  wherry run FILE",
            )
        return found

    def _trace(self, name: str, destination: Destination, spark: SparkSession) -> OldRows:
        if not isinstance(destination, Delta):
            raise Refusal(f"'{name}' is not a Delta table, and Wherry can remove rows from Delta tables only.")
        if destination.mode == "replace":
            raise Refusal(f"'{name}' is replaced by each run, so one file cannot be replaced in it.")
        if destination.mode == "merge":
            self._check_order(name, destination)
            return OldRows()
        table = TargetTable.find(spark, destination.sql_name, destination.folder)
        if table is None:
            raise Refusal(f"'{name}' is missing at {destination.place}.")
        columns = {column.lower() for column in table.schema.names}
        facts = [each for each in ("file_path", "file_name") if each in getattr(self.origin, "metadata", ())]
        fact = next((each for each in facts if each in columns), "")
        mark = fact or destination.stamp
        if not mark:
            raise Refusal(
                f"'{name}' has no column that says from which file a row came. A new table has one if you set "
                "`metadata: [file_name]` at the origin before the first run."
            )
        self._check_alone_in(name, destination, spark)
        self._check_marks(name, spark.table(destination.sql_name), mark)
        if fact == "file_path":
            return OldRows(condition=f"{fact} IN ({', '.join(map(quote_text, _list_paths(self.origin, self.file)))})")
        if not fact:
            return self._trace_stamp(name, mark)
        base = os.path.basename(self.file)
        alike = [file for _, file in self.names if os.path.basename(file) == base]
        if len(alike) > 1:
            raise Refusal(f"'{name}' has rows of {len(alike)} files called {base}; `file_path` would tell them apart.")
        return OldRows(condition=f"{fact} = {quote_text(base)}")

    def _trace_stamp(self, name: str, stamp: str) -> OldRows:
        """Return the condition for the batches that brought the file.

        Raises `Refusal` if such a batch had other files too, or if a replay brought rows of the file.
        """
        mixed = next((each for each in self.brought if len(_list_names(each)) > 1), None)
        if mixed is not None:
            raise Refusal(
                f"'{name}' names the batch of each row in {stamp}, but batch {mixed.number} of lane {mixed.lane} had "
                "other files as well."
            )
        plans = {each.plan for each in self.brought}
        for each in self.settled:
            ids = map(str, each.span.parts) if is_replay(each.lane) and not each.counts.discards else ()
            if any(letter.rpartition("/")[0] in plans for letter in ids):
                raise Refusal(
                    f"'{name}' names the batch of each row in {stamp}, but rows of the file came with a replay as well."
                )
        batches = ", ".join(quote_text(f"{each.lane}/{each.number}") for each in self.brought)
        return OldRows(condition=f"{quote_name(stamp)} IN ({batches})", stamp=stamp)

    def _check_order(self, name: str, destination: Delta) -> None:
        """Raises `Refusal` if rows of the file would replace newer rows."""
        last = self.brought[-1]
        later = any(each.at > last.at and each.counts.delivered for each in self.settled)
        if destination.ordered and (later or len(_list_names(last)) > 1):
            raise Refusal(
                f"'{name}' keeps the row that arrives last, so old rows of the file would replace newer rows. "
                "`sequence_by` would tell which is newer."
            )

    def _check_marks(self, name: str, rows: DataFrame, mark: str) -> None:
        """Raises `Refusal` if some rows of the table do not show in this column which file they came from."""
        if rows.where(f"{quote_name(mark)} IS NULL").limit(1).collect():
            raise Refusal(
                f"'{name}' has rows with NULL in {mark}, perhaps from before the table had the column. They may belong "
                "to the file."
            )
        if mark != "file_path":
            return
        within = " OR ".join(f"startswith(file_path, {quote_text(folder)})" for folder in self._list_folders())
        strange = rows.where(f"NOT ({within})").select("file_path").limit(1).collect()
        if strange:
            raise Refusal(
                f"'{name}' has rows of {strange[0][0]}, which no origin of the definition reads now. If the folder was "
                "moved, rows of the file may have its old path."
            )

    def _list_folders(self) -> Sequence[str]:
        """Return the folders of all origins' files, as in the column `file_path`."""
        origins = self.pipeline.origins_by_name
        known = [(file, path) for name, file in self.names for path in _list_paths(origins[name], file)]
        return sorted({path.removesuffix(file) for file, path in known})

    def _check_only_origin(self) -> None:
        """Raises `Refusal` if another origin of the pipeline read the same file."""
        own = set(_list_paths(self.origin, self.file))
        for name, each in self.pipeline.origins_by_name.items():
            files = [file for origin, file in self.names if origin == name]
            if each != self.origin and any(own.intersection(_list_paths(each, file)) for file in files):
                raise Refusal(f"The origins {self.origin.name} and {name} both read {self.file}.")

    def _check_alone_in(self, name: str, destination: Delta, spark: SparkSession) -> None:
        """Raises `Refusal` if another pipeline wrote to the table. Its rows may have the same file name or stamp."""
        account = destination.account(lambda: spark, self.pipeline.name)
        others = sorted({each.label.pipeline for each in account.brought} - {self.pipeline.name})
        if others:
            raise Refusal(f"'{name}' has rows of the pipeline {others[0]} too, which may have the same marks.")


def _find_file(pipeline: PipelineSpec, carried: Sequence[Settled], file: str) -> tuple[Origin, str]:
    """Return the origin that read the file, and the file's name there."""
    known = [(each, name) for each in pipeline.every_origin for name in _list_files(pipeline, each, carried)]
    path = make_absolute(canonicalise(file))
    for fits in (
        lambda origin, name: name == file,
        lambda origin, name: path in _list_paths(origin, name),
        lambda origin, name: name.endswith(f"/{file}"),
    ):
        found = [pair for pair in known if fits(*pair)]
        if len(found) == 1:
            return found[0]
        if found:
            raise Refusal(
                f"{len(found)} files fit {file}: {', '.join(name for _, name in found[:5])}.",
                hint="Give the whole path.",
            )
    near = difflib.get_close_matches(file, [name for _, name in known], n=1)
    raise Refusal(
        f"No batch has read a file {file}.{f' Did you mean {near[0]}?' if near else ''}",
        hint="If it waits still, a run reads it:  wherry run FILE",
    )


def _list_files(pipeline: PipelineSpec, origin: Origin, carried: Sequence[Settled]) -> list[str]:
    if not isinstance(origin, KeepsParts):
        return []
    own = (each for each in carried if pipeline.owns(origin, each.lane))
    return list(dict.fromkeys(name for each in own for name in _list_names(each)))


def _list_paths(origin: Origin, file: str) -> Sequence[str]:
    return origin.list_paths(file) if isinstance(origin, KeepsParts) else ()


def _list_names(settled: Settled) -> list[str]:
    return [str(part[0]) for part in settled.span.parts]  # type: ignore[index]  # a part that is a file is a list
