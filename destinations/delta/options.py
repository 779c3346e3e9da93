"""The options of a Delta destination, and the checks of their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from destinations.destination import LANE, Destination
from origins.lazy import T
from origins.names import SCHEME, TABLE, make_absolute, quote_name
from origins.store_access import is_read_here
from stages.expressions import check_condition, check_names

_BELONG: Mapping[str, str] = {
    "keys": "merge",
    "sequence_by": "merge",
    "apply_as_deletes": "merge",
    "except_column_list": "merge",
    "where": "replace",
}
"""The mode to which an option belongs."""


@dataclass(frozen=True, kw_only=True)
class DeltaOptions(Destination):
    """What a definition sets for a Delta destination. Raises ValueError that names an option which cannot be."""

    path: str | None = field(default=None, metadata={"path": True})
    """The table's folder, relative to the definition; or a URL."""
    table: str | None = field(default=None, metadata={"like": "main.shop.orders"})
    """The table's name in a catalog. Give either this or `path`."""
    mode: Literal["append", "merge", "replace"] = "append"
    """`append` adds rows. `merge` replaces rows with the same keys. `replace` replaces the table in each run."""
    keys: Sequence[str] = ()
    """The columns by which a merge finds the row to replace."""
    sequence_by: str | None = None
    """The column that decides which of two rows wins a merge: the highest value. The default is the later row."""
    apply_as_deletes: str | None = None
    """A condition. A row for which it is true deletes the row with the same keys."""
    except_column_list: Sequence[str] = ()
    """Columns that a merge uses in its conditions but does not write."""
    where: str | None = None
    """The condition for the rows that a run replaces; the default is all rows. New rows must match it."""
    partition_by: Sequence[str] = ()
    """The partition columns of a table that Wherry creates."""
    cluster_by: Sequence[str] = ()
    """The columns for liquid clustering of a table that Wherry creates."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Table properties of a table that Wherry creates. An existing table keeps its own."""
    comment: str | None = None
    """The comment of a table that Wherry creates."""
    stamp: str | None = field(default=None, metadata={"like": "_batch"})
    """A column that names the batch of each row, as `lane/number`."""

    optimize: int | None = None
    """After how many commits Wherry compacts small files, while batches go on. The default is never."""

    def __post_init__(self) -> None:  # noqa: C901, PLR0912 -- one branch for each option
        if bool(self.path) == bool(self.table):
            raise ValueError("path: expected either path or table, got " + ("both" if self.path else "neither"))
        if self.table and not TABLE.fullmatch(self.table.replace(LANE, "lane")):
            raise ValueError(f"table: expected a name such as catalog.schema.table, got {self.table!r}")
        if self.mode not in ("append", "merge", "replace"):
            raise ValueError(f"mode: expected append, merge or replace, got {self.mode!r}")
        if self.mode == "replace" and LANE in (self.table or self.path or ""):
            raise ValueError(
                f"mode: expected append or merge with {LANE} in the place, since a run replaces a table once; got "
                "replace"
            )
        for option, mode in _BELONG.items():
            if getattr(self, option) and self.mode != mode:
                raise ValueError(f"{option}: expected with mode: {mode} only, got mode: {self.mode}")
        for option in ("keys", "except_column_list", "partition_by", "cluster_by"):
            names = getattr(self, option)
            if isinstance(names, str) or not isinstance(names, Sequence):
                raise ValueError(f"{option}: expected a list of columns, got {names!r}")
            check_names(option, names)
        if self.optimize is not None and self.optimize < 1:
            raise ValueError(f"optimize: expected at least 1 commit, got {self.optimize}")
        if self.mode == "merge" and not self.keys:
            raise ValueError("keys: expected the columns by which a merge matches rows, got none")
        left_out = {name.lower() for name in self.except_column_list}
        for option, names in (("keys", self.keys), ("sequence_by", [self.sequence_by or ""])):
            for name in names:
                if name.lower() in left_out:
                    raise ValueError(f"{option}: {name!r} must be in the table, but except_column_list leaves it out")
        if self.partition_by and self.cluster_by:
            raise ValueError("cluster_by: expected either partition_by or cluster_by, got both")
        for option, column in (("sequence_by", self.sequence_by), ("stamp", self.stamp)):
            if column is not None:
                check_names(option, [column])
        for option, condition in (("apply_as_deletes", self.apply_as_deletes), ("where", self.where)):
            if condition is not None:
                check_condition(option, condition)

    @property
    def place(self) -> str:
        if self.table:
            return self.table
        assert self.path is not None
        return make_absolute(self.path)

    @property
    def folder(self) -> Path | None:
        """The table's folder, if its path is on this machine; Spark may see another folder."""
        if self.table:
            return None
        local = self.place.removeprefix("file:")
        return None if SCHEME.match(local) else Path("/" + local.lstrip("/"))

    @property
    def found_here(self) -> Path | str | None:
        """The folder or URL at which this process finds the table; None if only Spark can find it."""
        return self.folder or (self.place if self.path and is_read_here(self.place) else None)

    @property
    def sql_name(self) -> str:
        return self.table or f"delta.{quote_name(self.place)}"

    @property
    def has_layout(self) -> bool:
        """Whether a table that Wherry creates needs more than columns and properties."""
        return bool(self.partition_by or self.cluster_by) or self.comment is not None

    @property
    def replaces(self) -> bool:
        return self.mode == "replace"

    def select_written_columns(self, rows: T.StructType) -> T.StructType:
        left_out = {name.lower() for name in self.except_column_list}
        return type(rows)([field for field in rows if field.name.lower() not in left_out])

    def list_missing_columns(self, rows: T.StructType) -> Iterator[str]:
        """Return a problem for each option that names a missing column, or a column that the rows already have."""
        there = {field.name.lower() for field in rows}
        left_out = {name.lower() for name in self.except_column_list}
        named = {
            "keys": self.keys,
            "sequence_by": [self.sequence_by] if self.sequence_by else [],
            "except_column_list": self.except_column_list,
        }
        for option, names in named.items():
            yield from (f"{option}: the rows have no column '{name}'" for name in names if name.lower() not in there)
        written = (there - left_out) | ({self.stamp.lower()} if self.stamp else set())
        for option, names in {"partition_by": self.partition_by, "cluster_by": self.cluster_by}.items():
            yield from (f"{option}: the table has no column '{name}'" for name in names if name.lower() not in written)
        if self.stamp and self.stamp.lower() in there:
            yield f"stamp: the rows have a column '{self.stamp}' already; rename the stamp"
