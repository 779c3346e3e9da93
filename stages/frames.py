"""Rows that a Python function is given, and answers, as a frame: pandas' or Arrow's.

Like `calling.py` it is sent to Spark's Python workers by value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.answer import unanswered

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Rows that were answered by columns: Arrow's, or Series of pandas'."""

    columns: Mapping[str, Any]
    rows: int
    verdicts: Sequence[Any]
    """What becomes of the first rows; None of one that goes on."""


def as_pandas(rows: pa.Table) -> Any:
    """The rows as a DataFrame. Numbers among which NULLs are stay whole numbers, so that none is rounded."""
    import pandas as pd
    import pyarrow as pa

    kinds = {pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype()}
    whole = {**kinds, pa.int64(): pd.Int64Dtype()}

    def series(column: Any) -> Any:
        mapper = whole.get if column.null_count else None
        return column.to_pandas(types_mapper=mapper, use_threads=False, maps_as_pydicts="strict")

    return pd.DataFrame({name: series(rows[name]) for name in rows.column_names})


def is_frame(value: Any) -> bool:
    """Whether a function returned a frame."""
    module = type(value).__module__.partition(".")[0]
    return (module, type(value).__name__) in (("pandas", "DataFrame"), ("pyarrow", "Table"))


def framed(frame: Any, rows: int, verdicts: list[Any] | None) -> Frame:
    """What a function returned. The rows of a DataFrame are told by its index, where that is the one it came with: one
    that was filtered or sorted still answers for the right rows."""
    if not hasattr(frame, "index"):
        columns: Mapping[str, Any] = {name: frame[name] for name in frame.column_names}
        return Frame(columns=columns, rows=len(frame), verdicts=verdicts or [])
    index, columns = list(frame.index), {str(name): frame[name] for name in frame.columns}
    known = len({*index}) == len(index) and all(isinstance(at, int) and 0 <= at < rows for at in index)
    if not known or index == list(range(len(index))):
        return Frame(columns=columns, rows=len(frame), verdicts=verdicts or [])

    def placed(values: Sequence[Any], other: Any) -> list[Any]:
        found = dict(zip(index, [*values, *[None] * len(index)], strict=False))
        return [found.get(at, other) for at in range(rows)]

    return Frame(
        columns={name: placed(listed(values), None) for name, values in columns.items()},
        rows=rows,
        verdicts=placed(verdicts or [], unanswered(len(index), rows)),
    )


def listed(values: Any) -> list[Any]:
    """The values as Python's; of what pandas has for NULL, None."""
    if isinstance(values, list):
        return values
    if hasattr(values, "to_pylist"):
        return list(values.to_pylist(maps_as_pydicts="strict"))
    missing = values.isna().tolist()
    return [None if gone else value for value, gone in zip(values.tolist(), missing, strict=True)]
