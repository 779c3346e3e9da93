"""What becomes of a row of parquet whose columns have other types: which values fit, what is refused, what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.bad_lines import Verdict, is_wider, misfit
from origins.changes import Changes
from origins.names import quoted
from origins.parquet_values import Fit, as_text, fit

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


@dataclass(frozen=True)
class Other:
    """A column that a file has with another type."""

    wanted: StructField
    own: StructField

    @property
    def value(self) -> str:
        """SQL for its values with the type that is wanted; NULL where one does not fit."""
        return f"if({self._fit.lost}, null, {self._fit.value})"

    def lost(self, changes: Changes, *policies: str) -> str:
        """SQL that is true for a value that does not fit, where the policy for that is one of these."""
        wider, other = changes.wider in policies, changes.other in policies
        if wider == other:
            return self._fit.lost if wider else "false"
        return f"{self._fit.lost} and {'' if wider else 'not '}{is_wider(self.wanted, self._text)}"

    @property
    def said(self) -> str:
        """SQL for what is said of a value that does not fit."""
        return misfit(self.wanted, self._text)

    @property
    def _fit(self) -> Fit:
        return fit(quoted(self.own.name), self.own.dataType, self.wanted.dataType)

    @property
    def _text(self) -> str:
        return as_text(quoted(self.own.name), self.own.dataType)


@dataclass(frozen=True, kw_only=True)
class ParquetVerdict:
    """A row of a file with these columns, of which some have other types and some are rescued."""

    columns: Sequence[str]
    others: Sequence[Other]
    extra: Sequence[str]
    changes: Changes

    @property
    def kept(self) -> str:
        """SQL for what was rescued of a row, as JSON; NULL if there is nothing."""
        values = {name: quoted(name) for name in self.extra}
        for other in self.others:
            is_kept = other.lost(self.changes, "rescue")
            if is_kept != "false":
                values[other.own.name] = f"if({is_kept}, {quoted(other.own.name)}, null)"
        pairs = ", ".join(f"{value} as {quoted(name)}" for name, value in values.items())
        return f"nullif(to_json(struct({pairs})), '{{}}')" if pairs else "cast(null as string)"

    @property
    def of(self) -> Verdict:
        """The verdict on the row."""
        bad = {other: other.lost(self.changes, "stop", "nack", "evolve") for other in self.others}
        stops = [other.lost(self.changes, "stop") for other in self.others]
        said = ", ".join(f"case when {is_lost} then {other.said} end" for other, is_lost in bad.items())
        return Verdict(
            is_bad=_any(bad.values()),
            why=f"concat_ws('; ', {said})" if said else "cast(null as string)",
            raw=row_of(self.columns),
            stops=_any(stops),
        )


def row_of(columns: Sequence[str]) -> str:
    """SQL for a row as it was read."""
    return f"to_json(struct({', '.join(map(quoted, columns))}))"


def _any(conditions: Iterable[str]) -> str:
    return " or ".join(f"({each})" for each in conditions if each != "false") or "false"
