"""`deduplicate`: one row for each key, in the batch and against a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from origins.batch import JSON
from origins.lazy import F, SparkSession
from origins.nack import REASON
from origins.names import HIDDEN, quote_name
from stages.expressions import check_names, check_row_expression, is_repeatable_sql
from stages.pinned_table import PinnedTable, match_keys, spell_keys
from stages.rows import Rows
from stages.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Deduplicate(Stage):
    """Keeps only the latest of the rows in a batch that have the same keys. The others count as filtered.

    A row with NULL in one of its keys always stays.

    Example:
        deduplicate: {keys: [id], sequence_by: at}
    """

    gathers: ClassVar[bool] = True

    keys: Sequence[str]
    """The columns that two rows must share to count as the same."""
    sequence_by: str | None = None
    """The row with the highest value of this expression stays, and NULL is lowest. The default is the last row read."""
    against: PinnedTable | None = None
    """A Delta table. Rows whose keys are already in it count as filtered too."""

    def __post_init__(self) -> None:
        if isinstance(self.keys, str) or not isinstance(self.keys, Sequence) or not self.keys:
            raise ValueError(f"keys: expected a list of names, got {self.keys!r}")
        check_names("keys", self.keys)
        if self.sequence_by is not None:
            check_row_expression("sequence_by", self.sequence_by)

    @property
    def may_mix(self) -> bool:
        return False

    @property
    def repeatable(self) -> bool:
        return self.sequence_by is None or is_repeatable_sql(self.sequence_by)

    @property
    def needs_places(self) -> bool:
        return self.sequence_by is None

    def pin(self, spark: SparkSession) -> JSON:
        return self.against.find_version(spark) if self.against else None

    def apply(self, rows: Rows) -> Rows:
        keys = spell_keys(self.keys, rows)
        if self.against is not None:
            rows = _exclude_known(self.against, rows, keys)
        return rows.latest(keys, None if self.sequence_by is None else rows.sql(self.sequence_by))


_FOUND = HIDDEN + "found"
_IS_THERE = HIDDEN + "is_there"


def _exclude_known(against: PinnedTable, rows: Rows, keys: Sequence[str]) -> Rows:
    """Return the rows whose keys are not in the table. A table that a destination has not made yet has no keys."""
    table = against.read_rows(rows.frame.sparkSession, rows.pin)
    if table is None:
        return rows
    met = match_keys({key: key for key in keys}, rows, table.schema, against.place)
    there = {own: f"{HIDDEN}{index}" for index, own in enumerate(met)}
    known = table.select(*[F.col(quote_name(met[own])).alias(name) for own, name in there.items()]).distinct()
    beside = rows.beside(known.withColumn(_FOUND, F.lit(True)), there)
    judged = beside.attempt({_IS_THERE: F.col(_FOUND)}, F.lit(None).cast(REASON), {_IS_THERE: _IS_THERE})
    return judged.filter(F.col(_IS_THERE).isNull()).select({name: name for name in rows.names})
