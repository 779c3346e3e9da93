"""A preview: what would become of the rows that wait, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from origins.batch import JSON
from runners.counts import StageCount

READ = "as read"
"""What stands in the place of a stage's name where no stage has seen the rows yet."""
_OUTCOMES = {
    "stop": "which stops the run",
    "quarantine": "and goes to the dead letter queue whole",
    "report": "which is only reported",
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One of the rows at a stage: as it left if it was kept, else as it came."""

    outcome: Literal["kept", "filtered", "refused"]
    row: JSON
    code: str | None = None
    message: str | None = None
    """Why it is refused."""

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return vars(self).copy()


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A batch that fails at a stage as a whole."""

    why: tuple[str, ...]
    """What was expected of it and found, a line for each."""
    then: Literal["stop", "quarantine", "report"]
    """What becomes of it: it stops the run, goes to the DLQ whole, or is only reported. Rows are shown as if a batch
    that stops the run were only reported."""

    @property
    def outcome(self) -> str:
        """What becomes of it, in words."""
        return _OUTCOMES[self.then]

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {"why": list(self.why), "then": self.then}


@dataclass(frozen=True, kw_only=True)
class StagePreview:
    """What one stage does: to how many rows of the batch, and some of them."""

    counts: StageCount
    rows: tuple[Seen, ...]
    failure: Failure | None = None
    """How the batch fails as a whole, where it does."""

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        failure = self.failure and self.failure.json()
        return {**self.counts.json(), "failure": failure, "rows": [row.json() for row in self.rows]}


@dataclass(frozen=True, kw_only=True)
class BatchPreview:
    """The next batch of one lane, tried out."""

    lane: str
    number: int
    label: str
    """What it is read from, as a person would name it."""
    read: int
    stages: tuple[StagePreview, ...]
    destinations: Mapping[str, int]
    """How many rows each destination would get, if no batch that fails stopped the run."""

    @property
    def stops(self) -> bool:
        """Whether it stops the run, so that nothing of it is delivered."""
        return any(stage.failure is not None and stage.failure.then == "stop" for stage in self.stages)

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {**vars(self), "stages": [stage.json() for stage in self.stages], "stops": self.stops}


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What would become of the rows that wait. In a notebook it shows as tables."""

    pipeline: str
    batches: tuple[BatchPreview, ...]
    """The next batch of each origin; none where nothing waits."""

    def json(self) -> dict[str, Any]:
        """As `wherry preview --json` prints it."""
        return {"pipeline": self.pipeline, "batches": [batch.json() for batch in self.batches]}

    def __str__(self) -> str:
        from runners.command_line.printing_preview import preview

        return preview(self)

    def _repr_html_(self) -> str:
        from runners.reports.notebook import preview

        return preview(self)
