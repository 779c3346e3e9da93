"""`with_columns`: adds columns, or puts others in the place of those of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stages.expressions import check_row_expressions, is_repeatable_sql
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class WithColumns(Stage):
    """Adds columns, and replaces those that have the same name. Every expression sees the row as it came.

    Example:
        with_columns: {email: "lower(email)", day: "date(at)"}
    """

    columns: Mapping[str, str] = field(kw_only=False)
    """The expression for each column, by the column's name."""

    def __post_init__(self) -> None:
        check_row_expressions("columns", self.columns)

    @property
    def repeatable(self) -> bool:
        return all(map(is_repeatable_sql, self.columns.values()))

    def apply(self, rows: Rows) -> Rows:
        return rows.with_columns({name: rows.expression(sql) for name, sql in self.columns.items()})
