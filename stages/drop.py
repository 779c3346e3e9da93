"""`drop`: takes columns away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stages.expressions import check_names
from stages.stage import Stage, check_columns

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Drop(Stage):
    """Removes columns, and keeps all others.

    Example:
        drop: [internal_note, debug]
    """

    columns: Sequence[str] = field(kw_only=False)
    """The names of the columns to remove."""

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence) or not self.columns:
            raise ValueError(f"columns: expected a list of names, got {self.columns!r}")
        check_names("columns", self.columns)

    def apply(self, rows: Rows) -> Rows:
        check_columns(self.columns, rows)
        dropped = {rows.spell_name(name) for name in self.columns}
        kept = [name for name in rows.names if name not in dropped]
        if not kept:
            raise ValueError("no column would be left")
        return rows.select({name: name for name in kept})
