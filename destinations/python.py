"""Rows are given to a Python function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from destinations.destination import Destination, DestinationError, Identity, Label, Written
from origins.functions import check_function, function_of, short_name
from stages.answer import as_text, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class Python(Destination):
    """Gives each batch to a Python function: its rows as a DataFrame, and its label."""

    guarantee: ClassVar[str] = (
        "at least once: a function cannot be asked, so it gets the batch that was open again, under the same label"
    )
    again: ClassVar[str] = "is given the rows again"

    function: str | Callable[..., Any] = field(kw_only=False, metadata={"path": True, "like": "load:write"})
    """`module:function`: of a file beside the definition, or of a module that is installed. It returns how many rows
    it has written; or nothing, and then all are counted."""

    def __post_init__(self) -> None:
        check_function("function", self.function)

    @property
    def place(self) -> str:
        return short_name(self.function)

    def open(self, spark: SparkSession, schema: StructType | None) -> Identity:
        function_of(self.function)
        return super().open(spark, schema)

    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        (label,) = labels
        function = function_of(self.function)
        try:
            said: Any = function(rows, label)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise self._failed(label, f"raised {type(error).__name__}: {as_text(error)}") from error
        if said is None:
            return Written(rows=rows.count())
        try:
            count = operator.index(said)
        except TypeError:
            count = -1
        if count < 0 or isinstance(said, bool):
            raise self._failed(label, f"returned {shown(said)}; expected how many rows it has written, or nothing")
        return Written(rows=count)

    def _failed(self, label: Label, why: str) -> DestinationError:
        batch = label.batch
        return DestinationError(
            f"{self.place}, given batch {batch.number} of lane {batch.lane}, {why}",
            hint=f"It gets the same rows again, under the same label ({label.key}).",
        )
