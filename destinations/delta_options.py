"""What the options of a Delta destination may be, one beside the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from destinations.destination import LANE
from origins.names import TABLE
from stages.expressions import check_condition, check_names

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from destinations.delta import Delta

_BELONG: Mapping[str, str] = {
    "keys": "merge",
    "sequence_by": "merge",
    "apply_as_deletes": "merge",
    "except_column_list": "merge",
    "where": "replace",
}
"""The mode to which an option belongs."""


def check(delta: Delta) -> None:
    """Raises ValueError that names an option which cannot be as it is."""
    if bool(delta.path) == bool(delta.table):
        raise ValueError("path: expected either path or table, got " + ("both" if delta.path else "neither"))
    if delta.table and not TABLE.fullmatch(delta.table.replace(LANE, "lane")):
        raise ValueError(f"table: expected a name such as catalog.schema.table, got {delta.table!r}")
    if delta.mode not in ("append", "merge", "replace"):
        raise ValueError(f"mode: expected append, merge or replace, got {delta.mode!r}")
    if delta.mode == "replace" and LANE in (delta.table or delta.path or ""):
        raise ValueError(
            f"mode: expected append or merge with {LANE} in the place, for a run replaces once; got replace"
        )
    for option, mode in _BELONG.items():
        if getattr(delta, option) and delta.mode != mode:
            raise ValueError(f"{option}: expected with mode: {mode} only, got it with mode: {delta.mode}")
    for option in ("keys", "except_column_list", "partition_by", "cluster_by"):
        names = getattr(delta, option)
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise ValueError(f"{option}: expected a list of columns, got {names!r}")
        check_names(option, names)
    if delta.optimize is not None and delta.optimize < 1:
        raise ValueError(f"optimize: expected at least 1 commit, got {delta.optimize}")
    if delta.mode == "merge" and not delta.keys:
        raise ValueError("keys: expected the columns by which a merge finds rows, got none")
    left_out = {name.lower() for name in delta.except_column_list}
    for option, names in (("keys", delta.keys), ("sequence_by", [delta.sequence_by or ""])):
        for name in names:
            if name.lower() in left_out:
                raise ValueError(f"{option}: {name!r} must be in the table, and except_column_list leaves it out")
    if delta.partition_by and delta.cluster_by:
        raise ValueError("cluster_by: expected either partition_by or cluster_by, got both")
    for option, column in (("sequence_by", delta.sequence_by), ("stamp", delta.stamp)):
        if column is not None:
            check_names(option, [column])
    for option, condition in (("apply_as_deletes", delta.apply_as_deletes), ("where", delta.where)):
        if condition is not None:
            check_condition(option, condition)


def missing(delta: Delta, rows: StructType) -> Iterator[str]:
    """Which options name columns that the rows do not have, or have already."""
    there = {field.name.lower() for field in rows}
    left_out = {name.lower() for name in delta.except_column_list}
    named = {
        "keys": delta.keys,
        "sequence_by": [delta.sequence_by] if delta.sequence_by else [],
        "except_column_list": delta.except_column_list,
    }
    for option, names in named.items():
        yield from (f"{option}: the rows have no column '{name}'" for name in names if name.lower() not in there)
    written = (there - left_out) | ({delta.stamp.lower()} if delta.stamp else set())
    for option, names in {"partition_by": delta.partition_by, "cluster_by": delta.cluster_by}.items():
        yield from (f"{option}: the table has no column '{name}'" for name in names if name.lower() not in written)
    if delta.stamp and delta.stamp.lower() in there:
        yield f"stamp: the rows have a column '{delta.stamp}' already; give the stamp another name"
