"""`cast`: converts columns to other types, and refuses rows whose values cannot be converted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from origins.files.bad_lines import has_huge_exponent, is_changed, is_infinite
from origins.lazy import T
from origins.nack import join_messages_sql, show_text_sql
from origins.names import HIDDEN, quote_name, quote_text
from stages.expressions import SqlText, check_row_expressions, enclose
from stages.rows import Reason, Rows
from stages.stage import Stage, check_columns

_FLOATS = ("float", "real", "double")
_DECIMALS = ("decimal", "dec", "numeric")
_TEXTS = ("string", "varchar", "char")


@dataclass(frozen=True, kw_only=True)
class Cast(Stage):
    """Converts columns to other types. It refuses a row with a value that cannot be converted; NULL stays NULL.

    It also refuses values that Spark would change silently. These are numbers too large for a float, text with control
    characters at its ends, and bytes that are not UTF-8.

    Example:
        cast: {amount: "decimal(10,2)", at: timestamp}
    """

    columns: Mapping[str, str] = field(kw_only=False)
    """The new type of each column, as in SQL, by the column's name."""

    def __post_init__(self) -> None:
        check_row_expressions("columns", self.columns)
        for name, kind in self.columns.items():
            if enclose(kind) is None:
                raise ValueError(f"columns.{name}: expected a type such as decimal(10,2), got {kind!r}")

    def apply(self, rows: Rows) -> Rows:
        check_columns(self.columns, rows)
        kinds = {each.name: each.dataType for each in rows.schema}
        exactly = rows.on_error == "keep"
        tried, put, lost, messages = {}, {}, [], []
        wanted = {rows.spell_name(name): kind.strip() for name, kind in self.columns.items()}
        for index, (name, kind) in enumerate(wanted.items()):
            before, old, after = quote_name(name), kinds[name], f"{HIDDEN}{index}"
            tried[after] = SqlText(_cast_column(before, old, kind, exactly=exactly))
            put[name] = after
            lost.append(_is_lost(before, old, kind, after))
            messages.append(f"CASE WHEN {lost[-1]} THEN {_make_message(name, kind, before, old)} END")
        reason = Reason(refused=" OR ".join(lost), code="'CAST'", message=join_messages_sql(messages))
        return rows.attempt(tried, reason, put)


def _make_message(name: str, kind: str, value: str, old: T.DataType) -> str:
    article = "an" if kind[0].lower() in "aeiou" else "a"
    text = value if old == T.StringType() else f"coalesce(try_cast({value} as string), 'this value')"
    return show_text_sql(f"column {name}: ", text, f" is not {article} {kind}")


def _cast_column(before: str, old: T.DataType, kind: str, *, exactly: bool) -> str:
    """Return SQL for the column with the type; NULL if the value cannot be converted.

    With `exactly`, it is also NULL if a cast would change the value.
    """
    after = f"try_cast({before} AS {kind})"
    if old.typeName() == "string" and kind.lower().startswith(_DECIMALS):
        after = f"if({has_huge_exponent(before)}, NULL, {after})"
    if not exactly:
        return f"try_validate_utf8({after})" if _is_bytes_to_text(old, kind) else after
    changed = _is_changed(before, old, after, kind) if "<" not in kind else "false"
    return after if changed == "false" else f"if({changed}, NULL, {after})"


def _is_bytes_to_text(old: T.DataType, kind: str) -> bool:
    return old.typeName() == "binary" and kind.lower().partition("(")[0].strip() in _TEXTS


def _is_lost(before: str, old: T.DataType, kind: str, after: str) -> str:
    """Return SQL that is true if the cast made NULL of a value, or made NULL or another value of a part inside it."""
    if "<" not in kind:
        return _is_other(before, old, after, kind)
    return _is_lost_inside(before, old, after, T.DataType.fromDDL(kind))


def _is_other(before: str, old: T.DataType, after: str, kind: str) -> str:
    """Return SQL that is true if a cast made NULL or another value of a value without parts."""
    changed = _is_changed(before, old, after, kind)
    also = "" if changed == "false" else f" OR coalesce({changed}, false)"
    return f"({before} IS NOT NULL AND {after} IS NULL{also})"


def _is_changed(before: str, old: T.DataType, after: str, kind: str) -> str:
    """Return SQL that is true if a cast changes a value without parts; "false" if it never does.

    A number that is too large for a float becomes infinite. Casts from text drop control characters. Bytes become text
    even if they are not UTF-8.
    """
    name, source = kind.lower().partition("(")[0].strip(), old.typeName()
    if _is_bytes_to_text(old, kind):
        return f"NOT is_valid_utf8({after})"
    if source in ("float", "double", "variant") and name in _FLOATS:
        return f"({is_infinite(after)} AND NOT {is_infinite(f'try_cast({before} AS double)')})"
    return is_changed(before, kind, after) if source == "string" else "false"


def _is_lost_inside(before: str, old: T.DataType, after: str, new: T.DataType, depth: int = 0) -> str:
    if not isinstance(new, T.ArrayType | T.MapType | T.StructType):
        return _is_other(before, old, after, new.simpleString())
    lost = [f"{before} IS NOT NULL AND {after} IS NULL"]
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        was, now, is_lost = (f"{HIDDEN}{name}_{depth}" for name in ("was", "now", "lost"))
        inside = _is_lost_inside(was, old.elementType, now, new.elementType, depth + 1)
        each = f"zip_with({before}, {after}, ({was}, {now}) -> {inside})"
        lost.append(f"coalesce(exists({each}, {is_lost} -> {is_lost}), false)")
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        values = f"map_values({before})", T.ArrayType(old.valueType), f"map_values({after})", T.ArrayType(new.valueType)
        lost.append(_is_lost_inside(*values, depth))
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        for one, other in zip(old, new, strict=True):
            parts = f"{before}[{quote_text(one.name)}]", f"{after}[{quote_text(other.name)}]"
            lost.append(_is_lost_inside(parts[0], one.dataType, parts[1], other.dataType, depth))
    return f"({' OR '.join(lost)})"
