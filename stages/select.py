"""`select`: keeps exactly these columns, in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stages.expressions import check_names, check_row_expression, check_row_expressions, is_repeatable_sql
from stages.stage import Stage, check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column

    from stages.rows import Rows

_ALIASED = re.compile(r"(?P<sql>.+?)\s+as\s+(?P<name>[^\W\d]\w*|`(?:``|[^`])+`)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[^\W\d]\w*|`(?:``|[^`])+`")
_PATH = re.compile(rf"(?:{_NAME.pattern})(?:\.(?:{_NAME.pattern}))+")
_CONSTANTS = re.compile("null|true|false|current_date|current_time|current_timestamp|localtimestamp", re.IGNORECASE)
_ALL = "*"


@dataclass(frozen=True, kw_only=True)
class Select(Stage):
    """Keeps exactly these columns, in this order.

    Example:
        select: [id, "lower(email) as email", address.city, at]
    """

    columns: Sequence[str] | Mapping[str, str] = field(kw_only=False)
    """A list of columns, such as `id`, `lower(email) as email`, `address.city`, or `*` for all. Or a mapping from names
    to expressions."""

    def __post_init__(self) -> None:
        if isinstance(self.columns, Mapping):
            check_row_expressions("columns", self.columns)
            return
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence) or not self.columns:
            raise ValueError(f"columns: expected a list of columns, got {self.columns!r}")
        for index, column in enumerate(self.columns):
            check_row_expression(f"columns[{index}]", column)
        check_names("columns", [_split_alias(column)[0] for column in self.columns])

    @property
    def expressions(self) -> Mapping[str, str]:
        """From each column's name to the expression that gives it."""
        return self.columns if isinstance(self.columns, Mapping) else dict(map(_split_alias, self.columns))

    @property
    def repeatable(self) -> bool:
        return all(map(is_repeatable_sql, self.expressions.values()))

    def apply(self, rows: Rows) -> Rows:
        columns: list[tuple[str, Column | str]] = []
        for name, sql in self.expressions.items():
            if sql == _ALL:
                columns += [(own, own) for own in rows.names]
            elif _NAME.fullmatch(sql) and not _CONSTANTS.fullmatch(sql):
                own = _unquote(sql)
                check_columns([own], rows)
                columns.append((rows.spell_name(own) if name == own else name, rows.spell_name(own)))
            else:
                columns.append((name, rows.expression(sql)))
        check_names("columns", [name for name, _ in columns])
        return rows.select(dict(columns))


def _split_alias(column: str) -> tuple[str, str]:
    """A column's name, and the expression that gives it."""
    column = column.strip()
    aliased = _ALIASED.fullmatch(column)
    if aliased:
        return _unquote(aliased.group("name")), aliased.group("sql").strip()
    if column == _ALL or _NAME.fullmatch(column):
        return _unquote(column), column
    if _PATH.fullmatch(column):
        return _unquote(_NAME.findall(column)[-1]), column
    raise ValueError(f'columns: {column!r} needs a name; write "{column} as name"')


def _unquote(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
