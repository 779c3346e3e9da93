"""The refused rows of a pipeline, for Python code: `pipeline.refused`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from origins.batch import JSON
from runners.definitions.definition import definition_of
from runners.model.spec import PipelineSpec
from runners.operations import dlq
from runners.operations.correct_rows import (
    CorrectedRows,
    ExportedRows,
    correct_from_file,
    correct_from_values,
    export_rows,
)
from runners.operations.explain_row import RefusedRow, load_refused_row
from runners.operations.fix_preview import FixPreview, preview_fix
from runners.operations.notebook_tables import CauseList, RefusedRowList
from runners.operations.pipeline_access import open_state
from runners.running.choice import Choice
from runners.running.replay import Replay, ReplayPlan, plan_replay


@dataclass(frozen=True)
class PipelineRefusedRows:
    """The rows that a pipeline refused: see them, correct or discard them, and change their limits.

    `Pipeline.replay` processes them again.
    """

    pipeline: PipelineSpec

    def list(
        self, limit: int | None = None, *, choice: Choice | None = None, reveal: bool = False, waiting: bool = False
    ) -> RefusedRowList:
        """Return the last `limit` of the chosen refused rows (default: all), the newest last.

        It is a list that a notebook shows as a table.
        `reveal` shows protected columns. `waiting` leaves out rows that were replayed or discarded.

        Raises `DestinationError` if the DLQ cannot be read, and `Refusal` for a choice that is not possible.
        """
        found = dlq.list_dead_letters(self._pipeline, limit, choice=choice or Choice(), reveal=reveal, waiting=waiting)
        return RefusedRowList(found)

    def causes(self, choice: Choice | None = None) -> CauseList:
        """Return the causes of refused rows, as a list that a notebook shows as text.

        Each has its rows, its waiting rows, the first and last time, and an example. `forms` groups the rows of a cause
        by column and by the form of the value.
        """
        return CauseList(dlq.summarise(self._pipeline, choice or Choice()))

    def explain(self, letter: str, *, reveal: bool = False) -> RefusedRow:
        """Return the row with this id: why it was refused, and by which stage.

        Its `try_again` passes the row through the stages of today. It writes nothing.
        `reveal` shows protected columns. Raises `Refusal` if there is no such id.
        """
        return load_refused_row(definition_of(self.pipeline), letter, reveal=reveal)

    def count_waiting(self, choice: Choice | None = None) -> int:
        """Return how many of the chosen rows wait. Raises `Owned` while a replay runs."""
        return len(dlq.choose_letters(self._pipeline, choice or Choice())[1])

    def discard(self, choice: Choice | None = None, *, reason: str, expected: int | None = None) -> int:
        """Discard rows, by default all that wait, and return their number.

        The rows stay in the table, and no replay takes them. `expected` is the number that a person was shown: if more
        rows wait now, it raises `Refusal`. Raises `Owned` while a replay runs.
        """
        return dlq.discard(self._pipeline, choice or Choice(), reason=reason, expected=expected)

    def plan_replay(self, replay: Replay) -> ReplayPlan:
        """Return how many rows a replay would process, and how many it would leave out. It writes nothing.

        Raises `Refusal` if a destination must not get old rows.
        """
        return plan_replay(self._pipeline, replay).plan

    def preview_replay(self, replay: Replay, *, say: Callable[[str], None] = lambda _: None) -> FixPreview:
        """Return what the replay would do: passing rows, reasons of refusals, and some rows before and after the fix.

        It writes nothing. `say` gets messages about progress. Raises as `Pipeline.replay` does before it begins.
        """
        definition = definition_of(self.pipeline)
        return preview_fix(definition, plan_replay(definition.pipeline, replay), replay, say=say)

    def find_cut_replay(self) -> Replay:
        """Return the interrupted replay with a fix, so that `Pipeline.replay` can continue it.

        Raises `Refusal` if there is none.
        """
        return Replay.resume(open_state(self._pipeline)[1].state)

    def export(self, to: str | Path, *, choice: Choice | None = None, reveal: bool = False) -> ExportedRows:
        """Write chosen waiting rows into a new file, so that a person can correct them.

        The file is `.csv` or `.json`. Each row has its id, its code, its message and the columns that were
        read. Protected columns are masked unless `reveal`, and no replay takes a file with masks. Without a row
        that can be corrected there is no file. Raises `Refusal` if the file exists.
        """
        return export_rows(self._pipeline, Path(to), choice or Choice(), reveal=reveal)

    def correct(
        self, corrected: str | Path | Mapping[str, Mapping[str, Any]], *, unchanged: bool = False
    ) -> CorrectedRows:
        """Return corrected rows.

        They come from an edited file of `export`, or from the columns to set by the id of each row. Pass the result of
        their `make_replay` to `preview_replay` and `Pipeline.replay`. Unchanged rows are left out unless `unchanged`.
        It writes nothing. Raises `Refusal`, which names all rows that it cannot accept.
        """
        if isinstance(corrected, Mapping):
            return correct_from_values(self._pipeline, corrected, unchanged=unchanged)
        return correct_from_file(self._pipeline, Path(corrected), unchanged=unchanged)

    def merge_fallback(self) -> dlq.MergedFallback:
        """Move all refused rows that wait in the fallback into the DLQ, each once.

        Raises `Refusal` if the definition has no fallback, `Owned` while the pipeline runs, and `PipelineFailed` if the
        DLQ or the fallback cannot be used.
        """
        return dlq.merge_fallback(definition_of(self.pipeline))

    def limits(self) -> Mapping[str, JSON]:
        """Return the limits of the DLQ for the next batch, and which of them were changed since the run began."""
        return dlq.read_settings(self._pipeline)

    def change_limits(self, settings: Mapping[str, str], *, reason: str) -> Mapping[str, JSON]:
        """Change limits of the DLQ of the active run, and return them. They hold from its next batch to its end.

        A setting is `window`, `threshold`, or `limits.rows`, which an empty value removes. Raises `Refusal` if no run
        is active, and for an impossible setting.
        """
        return dlq.change_settings(self._pipeline, settings, reason=reason)

    @property
    def _pipeline(self) -> PipelineSpec:
        """The pipeline with all its defaults."""
        return definition_of(self.pipeline).pipeline
