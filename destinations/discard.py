"""Rows are counted and thrown away, on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from destinations.destination import Destination, Label, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Discard(Destination):
    """Throws rows away, counted. As the DLQ: nacked rows are gone, and the report says how many."""

    guarantee: ClassVar[str] = "none: rows are counted and thrown away"

    @property
    def place(self) -> str:
        return "discard"

    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        rows.write.format("noop").mode("overwrite").save()  # a count alone leaves out what no count needs
        return Written(rows=rows.count())
