"""Whether a table's files on this machine are as its log says: each is there, as large, with as many rows, and holds
values between the same bounds. Rows are read only of files in which somebody changed rows that may be others'.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.account import Loss
from origins.batch import Json
from origins.delta_actions import AddedFile, StatisticsBody

if TYPE_CHECKING:
    import pyarrow

_SHORT = 24
"""The bytes up to which a text surely stands whole in a file's statistics."""
_MOST_ROWS = 1_000_000
"""Of more rows than these no files are compared row by row."""


def find_harm(folder: Path, files: Iterable[AddedFile]) -> dict[str, Loss]:
    """What is wrong with these files of the table in the folder, by their names."""
    found = {
        file.path: _find_wrong(place, file) for file in files if (place := _find_place(folder, file.path)) is not None
    }
    return {name: loss for name, loss in found.items() if loss is not None}


def find_untouched(
    folder: Path, before: Sequence[str], after: Sequence[str], mine: Sequence[str]
) -> dict[str, bool | None]:
    """Whether all rows that each of the files `mine` brought are still there as they came. They stood in the files
    `before` with others, until the files `after` took their place.

    None where that cannot be told: a file is gone or too large, or rows that went look like ours and like others.
    """
    told: dict[str, bool | None] = dict.fromkeys(mine)
    try:
        were, are = _count_rows(folder, before), _count_rows(folder, after)
        brought = {name: _count_rows(folder, [name]) for name in mine}
    except (OSError, ValueError):  # of Arrow's errors each is one of these
        return told
    ours = sum(brought.values(), Counter[str]())
    if ours - were:  # they are written otherwise than they came
        return told
    went, others = were - are, were - ours
    for name, rows in brought.items():
        alike = [row for row in rows if went[row]]
        if all(went[row] <= others[row] for row in alike):
            told[name] = None if alike else True
        else:
            told[name] = False
    return told


def _count_rows(folder: Path, names: Sequence[str]) -> Counter[str]:
    """The rows of these files and how often each is there. Raises `ValueError` for too many."""
    from pyarrow import parquet

    found: Counter[str] = Counter()
    for name in names:
        place = _find_place(folder, name)
        if place is None:
            raise ValueError(f"{name} is not on this machine")
        with parquet.ParquetFile(place, coerce_int96_timestamp_unit="us") as file:
            if file.metadata.num_rows + found.total() > _MOST_ROWS:
                raise ValueError(f"{name} has too many rows")
            rows = file.read().to_pylist()
        within = name.rpartition("/")[0]  # the values of a partition stand in no file
        found.update(f"{within} {sorted((key, repr(each)) for key, each in row.items())}" for row in rows)
    return found


def _find_place(folder: Path, path: str) -> Path | None:
    """Where a file lies; None if that is not on this machine."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if ":/" in path else folder / path


def _find_wrong(place: Path, file: AddedFile) -> Loss | None:
    try:
        size = place.stat().st_size
    except OSError:
        return Loss(code="FILE_GONE", said=f"the file {place} is missing, though the table needs it")
    said = f"{size:,} bytes instead of {file.size:,}" if size != file.size else next(_list_differences(place, file), "")
    if not said:
        return None
    return Loss(code="FILE_CHANGED", said=f"the file {place} differs from what its commit wrote: {said}")


def _list_differences(place: Path, file: AddedFile) -> Iterator[str]:
    """What its own footer says otherwise than the log does."""
    from pyarrow import ArrowException, parquet

    try:
        footer = parquet.read_metadata(place)
    except (ArrowException, OSError):
        yield "it is not a whole parquet file"
        return
    if file.rows is not None and footer.num_rows != file.rows:
        yield f"{footer.num_rows:,} rows instead of {file.rows:,}"
    noted: StatisticsBody = json.loads(file.stats or "{}")
    least, highest = noted.get("minValues"), noted.get("maxValues")
    for name, nulls, bounds in _column_statistics(footer):
        counted = (noted.get("nullCount") or {}).get(name)
        if nulls is not None and isinstance(counted, int) and counted != nulls:
            yield f"{nulls:,} NULLs in column {name} instead of {counted:,}"
        for said, kept, bound in zip(("least", "highest"), (least, highest), bounds, strict=True):
            value = (kept or {}).get(name)
            if type(value) is type(bound) and value != bound and _is_whole(value):
                yield f"the {said} value of column {name} is {bound!r} instead of {value!r}"


def _column_statistics(footer: Any) -> Iterator[tuple[str, int | None, tuple[Any, Any]]]:
    """The columns with no others inside: how many NULLs they have, and the least and the highest value."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    for at in range(footer.num_columns if groups else 0):
        name = groups[0].column(at).path_in_schema
        told = [group.column(at).statistics for group in groups]
        if "." in name or any(each is None for each in told):
            continue
        counted = all(each.has_null_count for each in told)
        ends = [end for each in told if each.has_min_max for end in _read_ends(each)]
        comparable = len({type(end) for end in ends}) == 1 and None not in ends
        bounds = (min(ends), max(ends)) if comparable else (None, None)
        yield name, sum(each.null_count for each in told) if counted else None, bounds


def _read_ends(noted: pyarrow.parquet.Statistics) -> tuple[Any, Any]:
    """The least and the highest value of a group of rows; None where Python has no such value."""
    try:
        return noted.min, noted.max
    except (OverflowError, UnicodeDecodeError):  # a day after 9999, or bytes that are no text
        return None, None


def _is_whole(value: Json) -> bool:
    """Whether a bound is noted alike by every writer."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and len(value.encode()) <= _SHORT
    )
