"""`deduplicate`: one row for each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stages.expressions import check_names, check_row_expression, repeatable
from stages.stage import Stage, check_columns

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Deduplicate(Stage):
    """Keeps of the rows of a batch that have the same keys only the latest; the others count as filtered.

    A row with NULL among its keys is like no other, and stays.
    """

    keys: Sequence[str]
    """The columns by which two rows are the same."""
    sequence_by: str | None = None
    """The row for which this expression is highest stays, NULL being the lowest; by default the one read last."""

    def __post_init__(self) -> None:
        if isinstance(self.keys, str) or not isinstance(self.keys, Sequence) or not self.keys:
            raise ValueError(f"keys: expected a list of names, got {self.keys!r}")
        check_names("keys", self.keys)
        if self.sequence_by is not None:
            check_row_expression("sequence_by", self.sequence_by)

    @property
    def repeatable(self) -> bool:
        return self.sequence_by is None or repeatable(self.sequence_by)

    @property
    def needs_places(self) -> bool:
        return self.sequence_by is None

    def apply(self, rows: Rows) -> Rows:
        from stages.ordering import can_be_ordered

        check_columns(self.keys, rows)
        keys = [rows.spelled(key) for key in self.keys]
        for key in keys:
            kind = rows.schema[key].dataType
            if not can_be_ordered(kind):
                raise ValueError(
                    f"column {key} is {kind.simpleString()}, of which nothing can be the same; name others"
                )
        return rows.latest(keys, None if self.sequence_by is None else rows.expression(self.sequence_by))
