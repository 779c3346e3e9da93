"""Keys by which rows are the same, among themselves or as those of a table."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from stages.ordering import can_be_ordered
from stages.stage import check_columns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from stages.rows import Rows


def own_keys(keys: Iterable[str], rows: Rows) -> list[str]:
    """The keys as the rows spell them. Raises ValueError for a column that is none."""
    keys = list(keys)
    check_columns(keys, rows)
    spelled = [rows.spelled(key) for key in keys]
    for key in spelled:
        kind = rows.schema[key].dataType
        if not can_be_ordered(kind):
            raise ValueError(f"column {key} is {kind.simpleString()}, of which no two are the same; name another key")
    return spelled


def column_of(name: str, table: StructType, place: str) -> str:
    """The column as the table spells it. Raises ValueError, with the nearest, when it has none."""
    names = {own.lower(): own for own in table.names}
    if name.lower() in names:
        return names[name.lower()]
    near = difflib.get_close_matches(name.lower(), names, n=1)
    meant = f"did you mean '{names[near[0]]}'?" if near else f"there are: {', '.join(table.names)}"
    raise ValueError(f"{place} has no column '{name}'; {meant}")


def meeting(on: Mapping[str, str], rows: Rows, table: StructType, place: str) -> Mapping[str, str]:
    """The keys as the rows spell them, each with the column of the table that it meets. Raises ValueError for two
    that cannot meet."""
    met = dict(zip(own_keys(on, rows), [column_of(theirs, table, place) for theirs in on.values()], strict=True))
    for own, theirs in met.items():
        kinds = rows.schema[own].dataType, table[theirs].dataType
        if not _can_meet(*kinds):
            said = f"column {own} is {kinds[0].simpleString()}, and {theirs} of {place} is {kinds[1].simpleString()}"
            raise ValueError(f"{said}; cast it before")
    return met


def _can_meet(one: DataType, other: DataType) -> bool:
    from pyspark.sql.types import CharType, NumericType, StringType, VarcharType

    texts = (StringType, CharType, VarcharType)
    return (
        one == other
        or (isinstance(one, NumericType) and isinstance(other, NumericType))
        or (isinstance(one, texts) and isinstance(other, texts))
    )
