"""Brings the refused rows of a pipeline back from the fallback, in a run of its own."""

from __future__ import annotations

from origins.batch import JSON
from origins.quick_dataclass import dataclass
from runners.definitions.definition import Definition
from runners.model.run_report import PipelineFailed
from runners.operations.pipeline_access import open_state
from runners.running.run import PipelineRun


@dataclass(frozen=True, kw_only=True)
class MergedFallback:
    """The refused rows that came from the fallback into the DLQ."""

    rows: int = 0
    batches: int = 0
    waiting: int = 0
    """How many rows still wait in the fallback, since a stop ended the merge."""

    def json(self) -> dict[str, JSON]:
        return {"merged": self.rows, "batches": self.batches, "waiting": self.waiting}


def merge_fallback(definition: Definition) -> MergedFallback:
    """Bring all refused rows into the DLQ that wait in its fallback, each once. Twice is once.

    Finishes open batches first, as the next run would. Raises `Owned` while the pipeline is run, and `PipelineFailed`
    where the DLQ or the fallback cannot be used; what was merged until then is.
    """
    if not open_state(definition.pipeline)[1].state.fallen:
        return MergedFallback()
    run = PipelineRun(pipeline=definition.pipeline, text=definition.text, hash=definition.hash, merge=True)
    report = run.carry()
    if report.error is not None:
        raise PipelineFailed(report)
    waiting = sum(open_state(definition.pipeline)[1].state.fallen.values())
    merged = run.merged
    return MergedFallback(rows=merged.rows if merged else 0, batches=merged.batches if merged else 0, waiting=waiting)
