"""`filter`: keeps the rows for which a condition is true."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stages.expressions import check_row_expression, repeatable
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Filter(Stage):
    """Keeps the rows for which the condition is true. The others, NULL included, leave and count as filtered."""

    condition: str = field(kw_only=False)
    """An expression over the columns of a row."""

    def __post_init__(self) -> None:
        check_row_expression("condition", self.condition)

    @property
    def repeatable(self) -> bool:
        return repeatable(self.condition)

    def apply(self, rows: Rows) -> Rows:
        return rows.filter(rows.expression(self.condition))
