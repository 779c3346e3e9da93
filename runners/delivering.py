"""How the rows of a decided batch reach a destination: in the files in which they lie, through this process where they
are few, or by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from destinations.delta import Delta
from destinations.destination import Destination, Label, Written
from destinations.dlq import DLQ
from origins.batch import Batch
from runners.few_rows import is_small
from runners.plan import Decision
from runners.state import is_replay
from runners.store import Store

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

FEW = 100_000
"""Rows up to which those of a small batch are few."""
FEW_REFUSED = 10_000
"""Refused rows up to which those of any batch are few."""


@dataclass(frozen=True)
class Delivering:
    """To one destination after the other; any number of threads may do it at once."""

    store: Store
    keep_original: bool
    """Whether the DLQ keeps rows as they were read, too."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """What no reason for which a row is refused says, with what stands in its place."""

    def written(
        self, spark: SparkSession, destination: Destination, label: Label, decision: Decision, rows: int
    ) -> Written:
        """Deliver what is the destination's of the batch, so many rows."""
        label = replace(label, few=is_small(label.batch) and rows <= FEW and not decision.again)
        written = None if decision.again else self._written_here(spark, destination, label, decision, rows)
        if written is not None:
            return written
        return destination.write(spark, self._rows(spark, destination, label, decision), [label])

    def _rows(self, spark: SparkSession, destination: Destination, label: Label, decision: Decision) -> DataFrame:
        from destinations.dead_letters import dead_letters, lacking
        from runners.preparing import refused_rows, rows_for

        if label.destination != DLQ:
            return rows_for(spark, self.store, decision, label.destination)
        refused = refused_rows(spark, self.store, decision)
        rows = dead_letters(
            refused, label.batch, original=self.keep_original, secrets=self.secrets, replayed=_replayed(label.batch)
        )
        if decision.again:
            assert isinstance(destination, Delta), "another one could not tell what it has"
            rows = lacking(spark, destination, rows, label.batch)
        return rows

    def _written_here(
        self, spark: SparkSession, destination: Destination, label: Label, decision: Decision, count: int
    ) -> Written | None:
        """Deliver rows without Spark: in the files in which they lie, or read in this process. None, with nothing
        written, where Spark has to read them."""
        from runners.preparing import files_for, rows_here_for

        refused = label.destination == DLQ
        files = () if refused or not destination.takes_by("write_files") else files_for(self.store, decision)
        written = destination.write_files(spark, files, label) if files else None
        many = refused and not label.few and count > FEW_REFUSED
        if written is not None or many or not destination.takes_by("write_here"):
            return written
        if refused:
            rows = self._refused_here(label.batch, decision)
        else:
            rows = rows_here_for(self.store, decision, label.destination)
        return None if rows is None else destination.write_here(spark, rows, [label])

    def _refused_here(self, batch: Batch, decision: Decision) -> pyarrow.RecordBatchReader | None:
        from destinations.few_dead_letters import few_dead_letters
        from runners.preparing import refused_rows_here

        refused = refused_rows_here(self.store, decision)
        if refused is None:
            return None
        letters = few_dead_letters(
            refused, batch, original=self.keep_original, secrets=self.secrets, replayed=_replayed(batch)
        )
        return letters.to_reader()


def _replayed(batch: Batch) -> Sequence[str]:
    """The refused rows that the batch carries again, by their places in it."""
    return batch.span.parts if is_replay(batch.lane) else ()
