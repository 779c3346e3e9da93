"""The destination that passes rows to a Python function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from destinations.destination import DestinationError, Identity, StatelessDestination, Written
from destinations.labels import Label
from origins.batch_rows import BatchRows
from origins.functions import check_function, load_function, shorten_name
from origins.lazy import SparkSession, T
from stages.python_call import as_text, show_value


@dataclass(frozen=True, kw_only=True)
class Python(StatelessDestination):
    """Passes each batch to a Python function: its rows as a DataFrame, and its label.

    Example:
        python: "load:write"
    """

    guarantee: ClassVar[str] = (
        "at least once: after a crash the function gets the open batch again, under the same label"
    )
    again: ClassVar[str] = "is given the rows again"

    function: str | Callable[..., Any] = field(kw_only=False, metadata={"path": True, "like": "load:write"})
    """The function as `module:function`, in a file beside the definition or in an installed module. It returns how many
    rows it wrote. If it returns nothing, all rows count as written."""

    def __post_init__(self) -> None:
        check_function("function", self.function)

    @property
    def place(self) -> str:
        return shorten_name(self.function)

    def ensure_place(self, spark: SparkSession, schema: T.StructType | None) -> Identity:
        load_function(self.function)
        return super().ensure_place(spark, schema)

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        (label,), frame = labels, rows.frame()
        function = load_function(self.function)
        try:
            answer: Any = function(frame, label)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            raise self._failure(label, f"raised {type(error).__name__}: {as_text(error)}") from error
        if answer is None:
            return Written(rows=frame.count())
        try:
            count = operator.index(answer)
        except TypeError:
            count = -1
        if count < 0 or isinstance(answer, bool):
            raise self._failure(
                label, f"returned {show_value(answer)}; expected the number of rows that it has written, or nothing"
            )
        return Written(rows=count)

    def _failure(self, label: Label, why: str) -> DestinationError:
        batch = label.batch
        return DestinationError(
            f"{self.place}, given batch {batch.number} of lane {batch.lane}, {why}",
            hint=f"The function gets the same rows again, under the same label ({label.key}).",
        )
