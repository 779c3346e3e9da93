"""`select`: keeps exactly these columns, in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stages.expressions import check_names, check_row_expression, check_row_expressions, repeatable
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
    """Keeps exactly these columns, in this order."""

    columns: Sequence[str] | Mapping[str, str] = field(kw_only=False)
    """A list of columns (`id`, `lower(email) as email`, `address.city`, or `*` for all that there are), or a mapping
    from names to expressions."""

    def __post_init__(self) -> None:
        if isinstance(self.columns, Mapping):
            check_row_expressions("columns", self.columns)
            return
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence) or not self.columns:
            raise ValueError(f"columns: expected a list of columns, got {self.columns!r}")
        for index, column in enumerate(self.columns):
            check_row_expression(f"columns[{index}]", column)
        check_names("columns", [_named(column)[0] for column in self.columns])

    @property
    def expressions(self) -> Mapping[str, str]:
        """From each column's name to the expression that gives it."""
        return self.columns if isinstance(self.columns, Mapping) else dict(map(_named, self.columns))

    @property
    def repeatable(self) -> bool:
        return all(map(repeatable, self.expressions.values()))

    def apply(self, rows: Rows) -> Rows:
        columns: list[tuple[str, Column | str]] = []
        for name, sql in self.expressions.items():
            if sql == _ALL:
                columns += [(own, own) for own in rows.names]
            elif _NAME.fullmatch(sql) and not _CONSTANTS.fullmatch(sql):
                own = _bare(sql)
                check_columns([own], rows)
                columns.append((rows.spelled(own) if name == own else name, rows.spelled(own)))
            else:
                columns.append((name, rows.expression(sql)))
        check_names("columns", [name for name, _ in columns])
        return rows.select(dict(columns))


def _named(column: str) -> tuple[str, str]:
    """A column's name, and the expression that gives it."""
    column = column.strip()
    aliased = _ALIASED.fullmatch(column)
    if aliased:
        return _bare(aliased.group("name")), aliased.group("sql").strip()
    if column == _ALL or _NAME.fullmatch(column):
        return _bare(column), column
    if _PATH.fullmatch(column):
        return _bare(_NAME.findall(column)[-1]), column
    raise ValueError(f'columns: {column!r} needs a name; write "{column} as name"')


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
