"""The stages that change the columns of a row: `with_columns`, `select`, `rename`, `drop` and `flatten`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from origins.lazy import Column, T
from origins.names import unquote_name
from stages.expressions import check_names, check_row_expression, check_row_expressions, is_repeatable_sql
from stages.rows import Expression, Rows
from stages.stage import Stage, check_columns


@dataclass(frozen=True, kw_only=True)
class WithColumns(Stage):
    """Adds columns, and replaces those that have the same name. Every expression sees the row as it came.

    Example:
        with_columns: {email: "lower(email)", day: "date(at)"}
    """

    columns: Mapping[str, str] = field(kw_only=False)
    """The expression for each column, by the column's name."""

    def __post_init__(self) -> None:
        check_row_expressions("columns", self.columns)

    @property
    def repeatable(self) -> bool:
        return all(map(is_repeatable_sql, self.columns.values()))

    def apply(self, rows: Rows) -> Rows:
        return rows.with_columns({name: rows.sql(sql) for name, sql in self.columns.items()})


_ALIASED = re.compile(r"(?P<sql>.*?\S)\s+as\s+(?P<name>[^\W\d]\w*|`(?:``|[^`])+`)", re.IGNORECASE | re.DOTALL)
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
        """Return the expression of each column, by the column's name."""
        return self.columns if isinstance(self.columns, Mapping) else dict(map(_split_alias, self.columns))

    @property
    def repeatable(self) -> bool:
        return all(map(is_repeatable_sql, self.expressions.values()))

    def apply(self, rows: Rows) -> Rows:
        columns: list[tuple[str, Expression | str]] = []
        for name, sql in self.expressions.items():
            if sql == _ALL:
                columns += [(own, own) for own in rows.names]
            elif _NAME.fullmatch(sql) and not _CONSTANTS.fullmatch(sql):
                own = unquote_name(sql)
                check_columns([own], rows)
                columns.append((rows.spell_name(own) if name == own else name, rows.spell_name(own)))
            else:
                columns.append((name, rows.sql(sql)))
        check_names("columns", [name for name, _ in columns])
        return rows.select(dict(columns))


def _split_alias(column: str) -> tuple[str, str]:
    column = column.strip()
    aliased = _ALIASED.fullmatch(column)
    if aliased:
        return unquote_name(aliased.group("name")), aliased.group("sql").strip()
    if column == _ALL or _NAME.fullmatch(column):
        return unquote_name(column), column
    if _PATH.fullmatch(column):
        return unquote_name(_NAME.findall(column)[-1]), column
    raise ValueError(f'columns: {column!r} needs a name; write "{column} as name"')


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


@dataclass(frozen=True, kw_only=True)
class Flatten(Stage):
    """Replaces a struct by a column for each of its fields. Arrays and maps stay as they are.

    Example:
        flatten: {columns: [customer]}
    """

    columns: Sequence[str] = ()
    """The structs to replace. The default is every struct."""
    separator: str = "_"
    """The text between the name of a struct and the name of its field."""
    depth: int | None = None
    """How many levels of structs to replace. The default is all levels."""

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not isinstance(self.columns, Sequence):
            raise ValueError(f"columns: expected a list of names, got {self.columns!r}")
        check_names("columns", self.columns)
        if not isinstance(self.separator, str):
            raise ValueError(f"separator: expected text, got {self.separator!r}")
        if self.depth is not None and (isinstance(self.depth, bool) or not isinstance(self.depth, int)):
            raise ValueError(f"depth: expected a whole number, got {self.depth!r}")
        if self.depth is not None and self.depth < 1:
            raise ValueError(f"depth: expected at least 1, got {self.depth}")

    def apply(self, rows: Rows) -> Rows:
        check_columns(self.columns, rows)
        chosen = {rows.spell_name(name) for name in self.columns}
        columns: list[tuple[str, Column | str]] = []
        for own in rows.schema:
            if isinstance(own.dataType, T.StructType) and (own.name in chosen or not self.columns):
                columns += self._split_column(own.name, rows.column(own.name), own.dataType, self.depth)
            elif own.name in chosen:
                raise ValueError(f"column {own.name} is {own.dataType.simpleString()}, not a struct")
            else:
                columns.append((own.name, own.name))
        names = [name.lower() for name, _ in columns]
        twice = next((name for name, _ in columns if names.count(name.lower()) > 1), None)
        if twice is not None:
            raise ValueError(
                f"there would be two columns called {twice}; rename one of them before, or choose another separator"
            )
        return rows.select(dict(columns))

    def _split_column(
        self, name: str, value: Column, kind: T.DataType, depth: int | None
    ) -> Iterator[tuple[str, Column]]:
        """Yield the columns that replace a column, by name.

        It is the column itself if it is no struct, or if the depth is reached.
        """
        if not isinstance(kind, T.StructType) or not kind.fields or depth == 0:
            yield name, value
            return
        for own in kind:
            below, left = f"{name}{self.separator}{own.name}", None if depth is None else depth - 1
            yield from self._split_column(below, value.getField(own.name), own.dataType, left)
