"""What a destination demands of each row, as a stage: what it would refuse is refused before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from origins.nack import show_value
from stages.expressions import is_repeatable_sql
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import Column

    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that a place demands of every row."""

    code: str
    holds: str
    """A condition, as SQL; a row for which it is false or NULL is refused."""
    says: str
    """What is wrong with such a row."""
    shows: Sequence[str] = ()
    """The columns whose values belong to the message."""


@dataclass(frozen=True, kw_only=True)
class Demands(Stage):
    """Refuses the rows that break a rule of the place they are on their way to. The first one gives the code."""

    rules: Sequence[Rule]

    @property
    def repeatable(self) -> bool:
        return all(is_repeatable_sql(rule.holds) for rule in self.rules)

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F

        broken = [~F.coalesce(rows.expression(rule.holds), F.lit(False)) for rule in self.rules]
        code = F.coalesce(*[F.when(each, F.lit(rule.code)) for each, rule in zip(broken, self.rules, strict=True)])
        reasons = [F.when(each, _make_message(rows, rule)) for each, rule in zip(broken, self.rules, strict=True)]
        why = F.struct(code.alias("code"), F.concat_ws("; ", *reasons).alias("message"))
        return rows.refuse(F.when(code.isNotNull(), why))


def _make_message(rows: Rows, rule: Rule) -> Column:
    from pyspark.sql import functions as F

    parts = [F.lit(rule.says)]
    for index, name in enumerate(rule.shows):
        parts += [F.lit(f"{', ' if index else '; '}{name} = "), show_value(rows.column(name))]
    return F.concat(*parts)
