"""`rename`: gives columns other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stages.expressions import check_names
from stages.stage import Stage, check_columns

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Rename(Stage):
    """Gives columns other names. Their order stays.

    Example:
        rename: {e_mail: email, ts: at}
    """

    columns: Mapping[str, str] = field(kw_only=False)
    """The new name of each column, by its present name."""

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise ValueError(f"columns: expected a mapping from names to new names, got {self.columns!r}")
        check_names("columns", self.columns)
        check_names("columns", self.columns.values())

    def apply(self, rows: Rows) -> Rows:
        check_columns(self.columns, rows)
        new = {rows.spell_name(old): name for old, name in self.columns.items()}
        names = [new.get(name, name) for name in rows.names]
        lowered = [name.lower() for name in names]
        twice = sorted({name for name in names if lowered.count(name.lower()) > 1})
        if twice:
            raise ValueError(f"there would be two columns called {twice[0]}")
        return rows.select(dict(zip(names, rows.names, strict=True)))
