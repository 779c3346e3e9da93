"""How far every lane of a pipeline is, as a value that a notebook shows as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from origins.batch import JSON
from runners.pipeline import Pipeline


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """What `wherry offsets show` says."""

    pipeline: str
    lanes: Mapping[str, Mapping[str, JSON]]
    """`{"offset", "number", "epoch", "committed_at"}` of each."""
    open: Sequence[Mapping[str, JSON]]
    """The batches that are planned and not settled."""

    @staticmethod
    def of(pipeline: Pipeline) -> Lanes:
        """As the pipeline's state has them."""
        from runners.offsets import show

        facts = show(pipeline)
        return Lanes(pipeline=pipeline.name, lanes=facts["lanes"], open=facts["open"])

    def json(self) -> dict[str, JSON]:
        """As `--json` prints it."""
        return {"lanes": dict(self.lanes), "open": list(self.open)}

    def __str__(self) -> str:
        from runners.command_line.printing import offsets

        return offsets(self.json())

    def _repr_html_(self) -> str:
        from runners.reports.notebook import lanes

        return lanes(self)
