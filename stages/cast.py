"""`cast`: gives columns another type, and refuses rows whose values cannot have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from origins.files.bad_lines import CONTROL, INFINITE
from origins.lazy import F, T
from origins.nack import make_reason, show_value
from origins.names import HIDDEN
from origins.quick_dataclass import dataclass
from stages.expressions import check_row_expressions
from stages.stage import Stage, check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column

    from stages.rows import Rows

_FLOATS = ("float", "real", "double")
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

    def apply(self, rows: Rows) -> Rows:
        check_columns(self.columns, rows)
        schema = rows.schema
        kinds = {rows.spell_name(name): kind.strip() for name, kind in self.columns.items()}
        put = {name: f"{HIDDEN}{index}" for index, name in enumerate(kinds)}
        exactly = rows.on_error == "keep"
        tried = {
            put[name]: _cast_column(rows.column(name), schema[name].dataType, kind, exactly=exactly)
            for name, kind in kinds.items()
        }
        wrong = [
            F.when(
                _is_lost(rows.column(name), schema[name].dataType, kind, F.col(put[name])),
                _make_message(name, kind, rows.column(name)),
            )
            for name, kind in kinds.items()
        ]
        why = F.when(F.coalesce(*wrong).isNotNull(), make_reason("CAST", F.concat_ws("; ", *wrong)))
        return rows.attempt(tried, why, put)


def _make_message(name: str, kind: str, value: Column) -> Column:
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return F.concat(F.lit(f"column {name}: "), show_value(value), F.lit(f" is not {article} {kind}"))


def _cast_column(before: Column, old: T.DataType, kind: str, *, exactly: bool) -> Column:
    """The column with the type; NULL where it cannot have it, or `exactly` where a cast would make another value."""
    after = before.try_cast(kind)
    if not exactly:
        return F.try_validate_utf8(after) if _is_bytes_to_text(old, kind) else after
    changed = _is_changed(before, old, after, kind) if "<" not in kind else None
    return after if changed is None else F.when(changed, F.lit(None)).otherwise(after)


def _is_bytes_to_text(old: T.DataType, kind: str) -> bool:
    return old.typeName() == "binary" and kind.lower().partition("(")[0].strip() in _TEXTS


def _is_lost(before: Column, old: T.DataType, kind: str, after: Column) -> Column:
    """Whether the cast made NULL of a value, or NULL or another value of one inside it."""
    if "<" not in kind:
        return _is_other(before, old, after, kind)
    return _is_lost_inside(before, old, after, T.DataType.fromDDL(kind))


def _is_other(before: Column, old: T.DataType, after: Column, kind: str) -> Column:
    """Whether a cast of a value without parts made NULL or another value of it."""
    lost, changed = before.isNotNull() & after.isNull(), _is_changed(before, old, after, kind)
    return lost if changed is None else lost | F.coalesce(changed, F.lit(False))


def _is_changed(before: Column, old: T.DataType, after: Column, kind: str) -> Column | None:
    """Whether a cast of a value without parts makes another value of it: a number too large for a float becomes
    infinite, casts from text cut off control characters, and bytes become text whatever they are. None where it never
    does. What is cheap is asked first: a pattern is held against few texts."""
    name, source = kind.lower().partition("(")[0].strip(), old.typeName()
    if _is_bytes_to_text(old, kind):
        return ~F.is_valid_utf8(after)
    if source in ("float", "double", "variant") and name in _FLOATS:
        return _is_infinite(after) & ~_is_infinite(before.try_cast("double"))
    if source != "string" or name in (*_TEXTS, "binary", "variant"):
        return None
    last = F.substring(before, -1, 1)
    changed = ((before < "!") | (last < "!") | (last > "~")) & before.rlike(CONTROL)
    if name in _FLOATS:
        changed |= _is_infinite(after) & ~before.rlike(INFINITE)
    return changed


def _is_infinite(value: Column) -> Column:
    return F.abs(value) == F.lit(float("inf"))


def _is_lost_inside(before: Column, old: T.DataType, after: Column, new: T.DataType) -> Column:
    if not isinstance(new, T.ArrayType | T.MapType | T.StructType):
        return _is_other(before, old, after, new.simpleString())
    lost = before.isNotNull() & after.isNull()
    if isinstance(old, T.ArrayType) and isinstance(new, T.ArrayType):
        inner = old.elementType, new.elementType
        each = F.zip_with(before, after, lambda one, other: _is_lost_inside(one, inner[0], other, inner[1]))
        return lost | F.coalesce(F.exists(each, lambda is_lost: is_lost), F.lit(False))
    if isinstance(old, T.MapType) and isinstance(new, T.MapType):
        values = (F.map_values(before), T.ArrayType(old.valueType), F.map_values(after), T.ArrayType(new.valueType))
        return lost | _is_lost_inside(*values)
    if isinstance(old, T.StructType) and isinstance(new, T.StructType):
        for one, other in zip(old, new, strict=True):
            lost = lost | _is_lost_inside(before[one.name], one.dataType, after[other.name], other.dataType)
    return lost
