"""The stages that look at a row's conditions: `require` refuses rows, and `filter` removes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from origins.names import HIDDEN, quote_text
from origins.secret import put_references
from stages.expressions import check_row_expression, check_row_expressions, is_repeatable_sql
from stages.rows import Reason, Rows
from stages.stage import Stage


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
        tried = {f"{HIDDEN}{index}": rows.sql(sql) for index, sql in enumerate(self.rules.values())}
        codes, messages = [], []
        for (name, sql), column in zip(self.rules.items(), tried, strict=True):
            codes.append(f"if(coalesce({column}, false), NULL, {quote_text(name)})")
            messages.append(f"if(coalesce({column}, false), NULL, {self._make_message(name, sql, column)})")
        refused = f"NOT ({' AND '.join(f'coalesce({column}, false)' for column in tried)})"
        message = f"concat_ws('; ', {', '.join(messages)})"
        return rows.attempt(tried, Reason(refused=refused, code=f"coalesce({', '.join(codes)})", message=message), {})

    def _make_message(self, name: str, sql: str, answer: str) -> str:
        condition = " ".join(put_references(sql).split())
        rule = condition if name == "REQUIRE" else f"{name}: {condition}"
        return f"if({answer} IS NULL, {quote_text(f'{rule} is NULL')}, {quote_text(f'{rule} is false')})"


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
