"""A preview: what would become of the rows that wait, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from origins.batch import JSON
from runners.counts import StageCount

READ = "as read"
"""What stands in the place of a stage's name where no stage has seen the rows yet."""


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
class StagePreview:
    """What one stage does: to how many rows of the batch, and some of them."""

    counts: StageCount
    rows: tuple[Seen, ...]

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {**self.counts.json(), "rows": [row.json() for row in self.rows]}


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
    """How many rows each destination would get."""

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {**vars(self), "stages": [stage.json() for stage in self.stages]}


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
