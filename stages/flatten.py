"""`flatten`: fields of structs become columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.lazy import T
from stages.expressions import check_names
from stages.stage import Stage, check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column

    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Flatten(Stage):
    """Replaces a struct by a column for each of its fields. Arrays and maps stay as they are.

    Example:
        flatten: {columns: [customer]}
    """

    columns: Sequence[str] = ()
    """The structs to replace. The default is every struct."""
    separator: str = "_"
    """The text between the name of a struct and the name of its field."""
    depth: int | None = None
    """How many levels of structs to replace. The default is all levels."""

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence):
            raise ValueError(f"columns: expected a list of names, got {self.columns!r}")
        check_names("columns", self.columns)
        if not isinstance(self.separator, str):
            raise ValueError(f"separator: expected text, got {self.separator!r}")
        if self.depth is not None and (isinstance(self.depth, bool) or not isinstance(self.depth, int)):
            raise ValueError(f"depth: expected a whole number, got {self.depth!r}")
        if self.depth is not None and self.depth < 1:
            raise ValueError(f"depth: expected at least 1, got {self.depth}")

    def apply(self, rows: Rows) -> Rows:
        check_columns(self.columns, rows)
        chosen = {rows.spell_name(name) for name in self.columns}
        columns: list[tuple[str, Column | str]] = []
        for field in rows.schema:
            if isinstance(field.dataType, T.StructType) and (field.name in chosen or not self.columns):
                columns += self._split_column(field.name, rows.column(field.name), field.dataType, self.depth)
            elif field.name in chosen:
                raise ValueError(f"column {field.name} is {field.dataType.simpleString()}, not a struct")
            else:
                columns.append((field.name, field.name))
        names = [name.lower() for name, _ in columns]
        twice = next((name for name, _ in columns if names.count(name.lower()) > 1), None)
        if twice is not None:
            raise ValueError(
                f"there would be two columns called {twice}; rename one of them before, or choose another separator"
            )
        return rows.select(dict(columns))

    def _split_column(
        self, name: str, value: Column, kind: T.DataType, depth: int | None
    ) -> Iterator[tuple[str, Column]]:
        """The columns that come of one, by name; itself where there is nothing to take apart any more."""
        if not isinstance(kind, T.StructType) or not kind.fields or depth == 0:
            yield name, value
            return
        for field in kind:
            below, left = f"{name}{self.separator}{field.name}", None if depth is None else depth - 1
            yield from self._split_column(below, value.getField(field.name), field.dataType, left)
