"""SQL over the reader's output that detects lines that are not rows, and values that Spark would change silently.

Decimals are read with the greatest possible number of digits. So most of those that a type would round are noticed by
their value, and the others by their text. A `tinyint` is read as `smallint`, because JSON's parser reads 200 as -56. It
is not checked inside maps, which SQL does not compare. A number that is too large for a float becomes infinite, and
casts from text drop control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from origins.lazy import T
from origins.names import HIDDEN, quote_map, quote_name, quote_text
from origins.schema import get_sql_type
from origins.secret import EXCERPT


def join_conditions(conditions: Iterable[str]) -> str:
    """Return SQL that is true if one of these is; "false" if none can be true."""
    return " or ".join(f"({condition})" for condition in conditions if condition != "false") or "false"


CORRUPT = HIDDEN + "corrupt"
"""The column in which Spark's reader keeps a line that it could not read."""
ONCE = "spark_partition_id() >= 0"
"""A condition that is always true, and keeps the optimizer from computing the expression behind it twice."""
_PATTERNS = {"date": "dateformat", "timestamp": "timestampformat", "timestamp_ntz": "timestampntzformat"}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """SQL expressions over a line: whether it is bad, why, and the line itself."""

    is_bad: str
    why: str
    raw: str
    is_change: str = "false"
    """Whether it is bad because of its columns, and not because of their values."""
    stops: str = "false"
    """Whether the run stops at the line."""


def make_typed_field(column: T.StructField, options: Mapping[str, str]) -> str:
    """Return SQL for a CSV field with the column's type; NULL if its text does not fit."""
    kind, value = column.dataType.simpleString(), quote_name(column.name)
    if isinstance(column.dataType, T.DecimalType):
        return parse_decimal_sql(value, column.dataType)
    pattern = options.get(_PATTERNS.get(kind, ""))
    if pattern is None:
        return f"try_cast({value} as {kind})"
    function = "try_to_date" if kind == "date" else "try_to_timestamp"
    return f"cast({function}({value}, {quote_text(pattern)}) as {kind})"


def is_lost_field(column: T.StructField, value: str, typed: str) -> str:
    """Return SQL that is true if a CSV field is not NULL and its cast (`typed`) is NULL or another value."""
    changed = is_changed(value, column.dataType.simpleString(), typed)
    return f"({value} is not null and ({typed} is null{'' if changed == 'false' else f' or {changed}'}))"


def describe_misfits(columns: Iterable[tuple[T.StructField, str, str]]) -> str:
    """Return SQL for the message about columns whose text does not fit; NULL if all fit."""
    misfits = [f"case when {is_lost} then {describe_misfit(column, value)} end" for column, value, is_lost in columns]
    return f"nullif(array_join(array({', '.join(misfits)}), '; '), '')"


def describe_misfit(column: T.StructField, value: str) -> str:
    """Return SQL for the message about a text that is no value of the column's type."""
    kind = column.dataType.simpleString()
    cut = f"if(char_length({value}) > {EXCERPT}, concat(left({value}, {EXCERPT}), '…'), {value})"
    before = quote_text(f"column {column.name}: '")
    after = quote_text(f"' is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}")
    return f"concat({before}, {cut}, {after})"


def fits_wider_number(column: T.StructField, value: str) -> str:
    """Return SQL that is true if a wider number of the column's kind can hold a text. It is false for other types."""
    kind = column.dataType
    if isinstance(kind, T.IntegralType):
        return f"coalesce(trim({value}) rlike '^[+-]?[0-9]{{1,38}}$', false)"
    if isinstance(kind, T.DecimalType):
        is_number = f"trim({value}) rlike '^[+-]?[0-9]*[.]?[0-9]*$' and try_cast({value} as double) is not null"
        return f"coalesce({is_number}, false)"
    if isinstance(kind, T.FloatType):
        return f"coalesce(abs(try_cast({value} as double)) < double('Infinity'), false)"
    return "false"


def complete_parser_options(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options for Spark's parsers with which they keep unreadable text in `CORRUPT`."""
    return {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def as_map(options: Mapping[str, str]) -> str:
    """Return the same options as SQL."""
    return quote_map(complete_parser_options(options))


_DIGITS = 38
_HUGE = r"[eE][+-]?[0-9]{6}"
_SHIFT = r"[eE]([+-]?[0-9]{1,5})\s*\z"
_BEHIND = r"[.]([0-9]*?)0*+(?:[eE\s]|\z)"
_ZEROS = r"\A\s*[+-]?[0-9]*?(0*)[.]?0*+(?:[eE\s]|\z)"
_NOT_ZERO = r"\A[^1-9eE]*[1-9]"
CONTROL = r"[\x00-\x08\x0e-\x1f\x7f]"
"""A pattern for the control characters that casts drop beside white space."""
INFINITE = r"(?i)inf"
"""A pattern for text that means infinity explicitly."""
_AS_THEY_ARE = ("string", "binary", "variant", "char", "varchar")
"""The types whose values keep control characters."""


def get_fineness(kind: T.DecimalType) -> int:
    """Return how many digits behind the point are read of a decimal."""
    return _DIGITS - kind.precision + kind.scale


def widen_type(kind: T.DataType) -> T.DataType:
    """Return the type with which to read a value of this type: equally large, and as fine as possible."""
    if isinstance(kind, T.DecimalType):
        return T.DecimalType(_DIGITS, get_fineness(kind))
    if isinstance(kind, T.ByteType):
        return T.ShortType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(widen_type(kind.elementType), kind.containsNull)
    return widen_columns(kind) if isinstance(kind, T.StructType) else kind


def widen_columns(schema: T.StructType) -> T.StructType:
    return T.StructType(
        [T.StructField(each.name, widen_type(each.dataType), each.nullable, each.metadata) for each in schema]
    )


def is_finer(kind: T.DataType) -> bool:
    return widen_type(kind) != kind


def make_exact_sql(value: str, kind: T.DataType) -> str:
    """Return SQL for a value that was read with `widen_type`, in its type; NULL if the cast would change it."""
    if not is_finer(kind):
        return value
    typed, read = f"try_cast({value} as {get_sql_type(kind)})", get_sql_type(widen_type(kind))
    return f"if(try_cast({typed} as {read}) = {value}, {typed}, null)"


def parse_decimal_sql(text: str, kind: T.DecimalType) -> str:
    """Return SQL for a text as a decimal; NULL if it does not fit, or if the type would round it."""
    name = get_sql_type(kind)
    return f"if({is_too_fine(text, kind.scale)}, cast(null as {name}), try_cast({text} as {name}))"


def is_too_fine(text: str, scale: int) -> str:
    """Return SQL that is true for the text of a number that has more digits behind the point; never NULL.

    It is also true if `has_huge_exponent` is.
    """
    shift = f"cast(coalesce(nullif({_extract(text, _SHIFT)}, ''), '0') as int)"
    digits = f"char_length({_extract(text, _BEHIND)}) - char_length({_extract(text, _ZEROS)}) - {shift}"
    too_fine = f"{has_huge_exponent(text)} or ({text} rlike {quote_text(_NOT_ZERO)} and {digits} > {scale})"
    return f"coalesce({text} rlike {quote_text(rf'[eE]|[.][0-9]{{{scale + 1}}}')} and ({too_fine}), false)"


def has_huge_exponent(text: str) -> str:
    """Return SQL that is true for the text of a number that Spark may need minutes for, or fail at, as a decimal."""
    has_exponent = f"contains({text}, 'e') or contains({text}, 'E')"  # Spark asks this far quicker than a pattern
    return f"(({has_exponent}) and {text} rlike {quote_text(_HUGE)})"


def _extract(text: str, pattern: str) -> str:
    return f"regexp_extract({text}, {quote_text(pattern)}, 1)"


def is_inexact(value: str, kind: T.DataType) -> str:
    """Return SQL that is true if a value is not NULL and `make_exact_sql` gives NULL for it."""
    return f"({value} is not null and {make_exact_sql(value, kind)} is null)" if is_finer(kind) else "false"


def is_changed(value: str, kind: str, typed: str) -> str:
    """Return SQL that is true for text that a cast to this type changed (`typed`) without making it NULL."""
    name = kind.lower().partition("(")[0].strip()
    if name in _AS_THEY_ARE:
        return "false"
    last = f"substring(cast({value} as binary), -1)"  # for text, Spark would count all characters
    ends = f"{value} < '!' or {last} < X'21' or {last} > X'7e'"
    is_cut = f"({ends}) and {value} rlike {quote_text(CONTROL)}"
    if name not in ("float", "real", "double"):
        return f"({is_cut})"
    return f"({is_infinite(typed)} and not {value} rlike {quote_text(INFINITE)} or {is_cut})"


def is_infinite(value: str) -> str:
    """Return SQL that is true for an infinite float; NULL for NULL."""
    return f"abs({value}) = double('Infinity')"


def make_any_inside_sql(value: str, kind: T.DataType, found: Callable[[str, T.DataType], str], depth: int = 0) -> str:
    """Return SQL that is true if `found` is true for a leaf value inside this value; "false" if that is impossible.

    `found` returns SQL, or "false".
    """
    if isinstance(kind, T.StructType):
        return join_conditions(
            make_any_inside_sql(f"{value}.{quote_name(field.name)}", field.dataType, found, depth) for field in kind
        )
    if isinstance(kind, T.ArrayType | T.MapType):
        element = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType
        name = f"{HIDDEN}inside_{depth}"
        inner = make_any_inside_sql(name, element, found, depth + 1)
        values = value if isinstance(kind, T.ArrayType) else f"map_values({value})"
        return "false" if inner == "false" else f"coalesce(exists({values}, {name} -> {inner}), false)"
    return found(value, kind)
