"""`filter`: keeps the rows for which a condition is true."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from origins.quick_dataclass import dataclass
from stages.expressions import check_row_expression, is_repeatable_sql
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Filter(Stage):
    """Keeps only rows for which the condition is true. All other rows, also where it is NULL, count as filtered.

    Example:
        filter: "email is not null"
    """

    condition: str = field(kw_only=False)
    """The condition: a SQL expression over the columns of one row."""

    def __post_init__(self) -> None:
        check_row_expression("condition", self.condition)

    @property
    def repeatable(self) -> bool:
        return is_repeatable_sql(self.condition)

    def apply(self, rows: Rows) -> Rows:
        return rows.filter(rows.sql(self.condition))
