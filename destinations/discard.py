"""The destination that counts rows and throws them away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from destinations.destination import StatelessDestination, Written
from destinations.labels import Label
from origins.batch_rows import BatchRows
from origins.lazy import SparkSession


@dataclass(frozen=True, kw_only=True)
class Discard(StatelessDestination):
    """Counts rows and throws them away. As the DLQ it keeps no refused row; the report still counts them.

    Example:
        discard: {}
    """

    guarantee: ClassVar[str] = "none: rows are counted and discarded"

    @property
    def place(self) -> str:
        return "discard"

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        frame = rows.frame()
        frame.write.format("noop").mode("overwrite").save()  # a count alone would not compute the columns
        return Written(rows=frame.count())
