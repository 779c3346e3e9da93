"""Rows that a Python function is given, and answers, as a frame: pandas' or Arrow's.

Like `calling.py` it is sent to Spark's Python workers by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.answer import ANSWER_CODE, discard, shown
from stages.halving import Raised

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Rows that were answered by columns: Arrow's, Series of pandas', or lists. They are in the order of the rows."""

    columns: Mapping[str, Any]
    verdicts: Sequence[Any]
    """What becomes of each row; None of one that goes on."""


def as_pandas(rows: pa.Table) -> Any:
    """The rows as a DataFrame. Numbers among which NULLs are stay whole numbers, so that none is rounded.

    Its labels are 0, 1, 2 and so on. Its index has a name, which a fresh index does not have.
    """
    import pandas as pd
    import pyarrow as pa

    kinds = {pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype()}
    whole = {**kinds, pa.int64(): pd.Int64Dtype()}

    def series(column: Any) -> Any:
        mapper = whole.get if column.null_count else None
        return column.to_pandas(types_mapper=mapper, use_threads=False, maps_as_pydicts="strict")

    frame = pd.DataFrame({name: series(rows[name]) for name in rows.column_names})
    return frame.rename_axis(_index_name(rows))


def _index_name(rows: pa.Table) -> str:
    """The name that `reset_index()` gives to the labels by default, unless a column has it."""
    name = "index"
    while name in rows.column_names:
        name = f"_{name}"
    return name


def is_frame(value: Any) -> bool:
    """Whether a function returned a frame."""
    module = type(value).__module__.partition(".")[0]
    return (module, type(value).__name__) in (("pandas", "DataFrame"), ("pyarrow", "Table"))


def is_series(value: Any) -> bool:
    """Whether it is a Series of pandas'."""
    return type(value).__module__.partition(".")[0] == "pandas" and type(value).__name__ == "Series"


def framed(frame: Any, rows: pa.Table, verdicts: Any, name: str) -> Frame:
    """What the function of this name returned for these rows. A row that a DataFrame leaves out is not wanted."""
    count = rows.num_rows
    if not hasattr(frame, "index"):
        if len(frame) != count:
            raise Raised(f"{name} gave {len(frame)} rows for {count}; expected one for each", ANSWER_CODE)
        places, columns = [*range(count)], _columns(frame, frame.column_names, name)
    else:
        places, columns = places_of(frame, rows, name), _columns(frame, frame.columns, name)
    if places != [*range(count)]:
        columns = {key: _placed(places, listed(values), count, None) for key, values in columns.items()}
    fates = _placed(places, [None] * len(places), count, discard)
    if is_series(verdicts) and verdicts.index.name == _index_name(rows):
        for at, verdict in zip(places_of(verdicts, rows, name), listed(verdicts), strict=True):
            fates[at] = fates[at] if verdict is None else verdict
    elif verdicts is not None:
        given = one_by_one(verdicts, name, "a list with one verdict for each row")
        if len(given) != len(places):
            said = f"{name} gave {len(given)} verdicts for {len(places)} rows; expected one for each"
            raise Raised(said, ANSWER_CODE)
        fates = _placed(places, given, count, discard)
    return Frame(columns=columns, verdicts=fates)


def places_of(answer: Any, rows: pa.Table, name: str) -> list[int]:
    """Which rows a DataFrame or a Series answers, in its order, as their places from 0.

    The index that the rows came with names them, whatever is left of it and in whatever order. A fresh index (0, 1, 2
    and so on, without a name) names none, so it needs one label for each row. Raises `Raised` for all else.
    """
    count, given = rows.num_rows, _index_name(rows)
    labels: list[int] = answer.index.tolist()
    if answer.index.name == given:
        known = all(type(label) is int and 0 <= label < count for label in labels)
        if known and len({*labels}) == len(labels):
            return labels
        why = "its index names a row twice" if known else "its index names rows that are not there"
    elif answer.index.name is None and labels == [*range(count)]:
        return labels
    elif len(labels) == count:
        why = "its index is neither the one that the rows came with nor a fresh one"
    else:
        why = "expected one for each, or the index that the rows came with"
    raise Raised(f"{name} gave {len(labels)} rows for {count}; {why}", ANSWER_CODE)


def one_by_one(values: Any, name: str, expected: str) -> list[Any]:
    """What was returned, as a list. Raises `Raised` for what has no order, and for what is one value."""
    if isinstance(values, str | bytes | Mapping | AbstractSet) or not isinstance(values, Iterable):
        raise Raised(f"{name} returned {shown(values)}; expected {expected}", ANSWER_CODE)
    return list(values)


def _columns(frame: Any, names: Iterable[Any], name: str) -> dict[str, Any]:
    """The columns by their names in small letters."""
    keys = [str(each).lower() for each in names]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise Raised(f"{name} gave the column '{twice}' twice", ANSWER_CODE)
    return {key: frame[each] for key, each in zip(keys, names, strict=True)}


def _placed(places: Sequence[int], values: Sequence[Any], count: int, other: Any) -> list[Any]:
    """The values at their places, and another one at all others."""
    found = [other] * count
    for at, value in zip(places, values, strict=True):
        found[at] = value
    return found


def listed(values: Any) -> list[Any]:
    """The values as Python's; of what pandas has for NULL, None."""
    if isinstance(values, list):
        return values
    if hasattr(values, "to_pylist"):
        return list(values.to_pylist(maps_as_pydicts="strict"))
    missing = values.isna().tolist()
    return [None if gone else value for value, gone in zip(values.tolist(), missing, strict=True)]
