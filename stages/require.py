"""`require`: refuses rows that break a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from origins.lazy import F
from origins.names import HIDDEN
from origins.quick_dataclass import dataclass
from origins.secret import put_references
from stages.expressions import check_row_expression, check_row_expressions, is_repeatable_sql
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import Column

    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Require(Stage):
    """Refuses rows for which a condition is false or NULL. The condition's name is the row's code.

    Example:
        require:
          positive_amount: "amount > 0"
          known_country: "country in ('AT', 'CH', 'DE')"
    """

    conditions: Mapping[str, str] | str = field(kw_only=False)
    """The condition of each rule, by the rule's name; or one condition without a name."""

    def __post_init__(self) -> None:
        if isinstance(self.conditions, Mapping):
            check_row_expressions("conditions", self.conditions)
        else:
            check_row_expression("conditions", self.conditions)

    @property
    def rules(self) -> Mapping[str, str]:
        return self.conditions if isinstance(self.conditions, Mapping) else {"REQUIRE": self.conditions}

    @property
    def repeatable(self) -> bool:
        return all(map(is_repeatable_sql, self.rules.values()))

    def apply(self, rows: Rows) -> Rows:
        tried = {f"{HIDDEN}{index}": rows.expression(sql) for index, sql in enumerate(self.rules.values())}
        code, messages = F.lit(None), []
        for (name, sql), column in reversed(list(zip(self.rules.items(), map(F.col, tried), strict=True))):
            broken = ~F.coalesce(column, F.lit(False))
            code = F.when(broken, F.lit(name)).otherwise(code)
            messages.append(F.when(broken, self._make_message(name, sql, column)))
        why = F.struct(code.alias("code"), F.concat_ws("; ", *reversed(messages)).alias("message"))
        return rows.attempt(tried, F.when(code.isNotNull(), why), {})

    def _make_message(self, name: str, sql: str, answer: Column) -> Column:
        condition = " ".join(put_references(sql).split())
        rule = condition if name == "REQUIRE" else f"{name}: {condition}"
        return F.when(answer.isNull(), F.lit(f"{rule} is NULL")).otherwise(F.lit(f"{rule} is false"))
