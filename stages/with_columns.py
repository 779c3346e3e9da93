"""`with_columns`: adds columns, or puts others in the place of those of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stages.expressions import check_row_expressions, repeatable
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class WithColumns(Stage):
    """Adds columns, or puts others in the place of those of the same name. All see the row as it was."""

    columns: Mapping[str, str] = field(kw_only=False)
    """From each column's name to the expression that gives it."""

    def __post_init__(self) -> None:
        check_row_expressions("columns", self.columns)

    @property
    def repeatable(self) -> bool:
        return all(map(repeatable, self.columns.values()))

    def apply(self, rows: Rows) -> Rows:
        return rows.with_columns({name: rows.expression(sql) for name, sql in self.columns.items()})
