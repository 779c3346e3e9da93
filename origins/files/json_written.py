"""SQL that parses JSON, and keeps the texts that numbers have in it.

Spark's parser takes each fraction for a double, also in a column of text. It rounds decimals silently, and needs
minutes for one like `1e10000000`. Only its reader of files keeps a text. So a line with such numbers is parsed a second
time, with a string in place of each number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from origins.files.bad_lines import (
    CORRUPT,
    ONCE,
    complete_parser_options,
    describe_misfit,
    get_fineness,
    has_huge_exponent,
    is_too_fine,
    join_conditions,
    make_any_inside_sql,
    widen_columns,
)
from origins.lazy import DataFrame, F, T
from origins.names import HIDDEN, quote_name, quote_text
from origins.schema import walk_types

PARSED = HIDDEN + "parsed"
"""The column with the parsed line."""
INEXACT = HIDDEN + "inexact"
"""The column with the message about values of a line that cannot be read exactly; NULL if there are none."""
MARK = "\ufdd0"
"""The first character of each string that stands for a number."""
_WRITTEN = HIDDEN + "written"
"""The column with the texts of numbers, for lines whose parsed values may differ from them; NULL for other lines."""
_NOT_EXACT = quote_text("a number has too many digits or too large an exponent, or cannot be read exactly")
_HAS_MARK = quote_text(rf"{MARK}|\\u(?i:fdd0)")
_MARKED = quote_text(f'^{MARK}|"{MARK}([^"]*)"')
_STRING = r""""(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'"""
_SIGNS, _COMMENT = r"[ \t\r\n,:\[\]{}]++", r"/\*.*?\*/|//[^\n]*+"
_WORD = r"""[^ \t\r\n,:\[\]{}"'/]++"""
_NUMBER = r"-?{whole}(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+|[+-]?(?:Infinity|INF)|NaN"
_ZEROS, _WHOLE = "allownumericleadingzeros", r"(?:0|[1-9][0-9]*+)"
_END = r"(?=[ \t\r\n,\]}/]|\z)(?![ \t\r\n]*+:)"
_AGAIN = r'\A(?:[\[{]|-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)\z|"-?Infinity"\z|"NaN"\z|-?0\z)'
"""A pattern for every text that the parser may have written differently."""
_ANY_NUMBER = r'\A(?:[\[{]|-?[0-9]|"-?Infinity"\z|"NaN"\z)'
_ESCAPED = r"\\u00(?:2[bBdDeE]|3[0-9]|[46]5)"
"""A pattern for a part of a number that is escaped in a string."""


def parse_exactly(lines: DataFrame, text: str, schema: T.StructType, options: Mapping[str, str]) -> DataFrame:
    """Return the lines with `PARSED`, which has the columns of an object in the text and `CORRUPT`, and with `INEXACT`.

    `text` is SQL. Decimals are as fine as `widen_columns` makes them.
    """
    fine, again = "|".join(list_fine_patterns(schema)), _is_written_again(text, schema, options)
    parser_options = complete_parser_options(options)
    texts = T.StructType([*_get_written_fields(schema), T.StructField(CORRUPT, T.StringType())])
    written = F.from_json(F.expr(quote_numbers(text, options)), texts, parser_options)
    frame, safe, message = lines.withColumn(_WRITTEN, F.lit(None)), text, "cast(null as string)"
    if fine:
        may_be_rounded = f"{text} rlike {quote_text(fine)}"
        frame = lines.withColumn(_WRITTEN, F.when(F.expr(f"{ONCE} and {may_be_rounded}"), written))
        rounded = f"if({_WRITTEN} is null, null, {_describe_rounded(schema, text)})"
        frame = frame.withColumn(INEXACT, F.expr(f"case when {ONCE} then {rounded} end"))
        safe, message = f"if({INEXACT} is null, {text}, '{{')", INEXACT
    kind = T.StructType([*widen_columns(schema), T.StructField(CORRUPT, T.StringType())])
    frame = frame.withColumn(PARSED, F.when(F.expr(ONCE), F.from_json(F.expr(safe), kind, parser_options)))
    if again != "false":
        first = F.when(F.expr(f"{ONCE} and {_WRITTEN} is null and {again}"), written)
        frame = frame.withColumn(_WRITTEN, first.otherwise(F.col(_WRITTEN)))
    if fine or again != "false":
        not_followed = f"{PARSED}.{CORRUPT} is null and {_WRITTEN}.{CORRUPT} is not null"
        lost = f"{_WRITTEN} is not null and ({not_followed} or {text} rlike {_HAS_MARK})"
        message = f"case when {ONCE} then if({lost}, {_NOT_EXACT}, {message}) end"
    frame = frame.withColumn(INEXACT, F.expr(message))
    if again == "false":
        return frame
    parts = [
        f"{quote_text(each.name)}, {_keep_text(f'{PARSED}.{at}', f'{_WRITTEN}.{at}', each.dataType)}"
        for each, at in zip(schema, map(quote_name, schema.names), strict=True)
    ]
    exact = f"named_struct({', '.join(parts)}, {quote_text(CORRUPT)}, {PARSED}.{CORRUPT})"
    return frame.withColumn(PARSED, F.expr(f"case when {ONCE} then if({_WRITTEN} is null, {PARSED}, {exact}) end"))


def quote_numbers(text: str, options: Mapping[str, str], number: str | None = None, mark: str = MARK) -> str:
    """Return SQL for text of JSON in which each number, or each of a pattern, is a string that begins with the mark."""
    whole = "[0-9]++" if options.get(_ZEROS) == "true" else _WHOLE
    found = f"(?:{number or _NUMBER.format(whole=whole)}){_END}"
    before = f"(?:{_SIGNS}|{_STRING}|{_COMMENT}|(?!{found}){_WORD})*+"
    pattern, replaced = quote_text(rf"(?s)\G({before})({found})"), quote_text(f'$1"{mark}$2"')
    return f"regexp_replace({text}, {pattern}, {replaced})"


def unquote_numbers(text: str) -> str:
    """Return SQL for a text that was parsed from `quote_numbers`, as it was before."""
    return f"regexp_replace({text}, {_MARKED}, '$1')"


def has_text(kind: T.DataType) -> bool:
    """Return whether a type is text, or has text inside."""
    return any(isinstance(each, T.StringType) for _, each in walk_types(kind))


def has_decimal(kind: T.DataType) -> bool:
    return any(isinstance(each, T.DecimalType) for _, each in walk_types(kind))


def list_fine_patterns(kind: T.DataType) -> list[str]:
    """Return patterns of which one occurs in every text with a decimal that Spark may round.

    There are none without decimals. A decimal is read with more digits than its type has, but not inside a map. Each
    pattern begins with a fixed character, so that Python's search is fast.
    """
    decimals = [each for _, each in walk_types(kind) if isinstance(each, T.DecimalType)]
    digits = min((_count_read_digits(each, kind) for each in decimals), default=None)
    exponents = [rf"{e}(?<=[0-9.]{e})(?:-|[+]?[0-9]{{6}})" for e in "eE"]
    return [] if digits is None else [rf"[.][0-9]{{{digits + 1}}}", *exponents, _ESCAPED]


def _count_read_digits(kind: T.DecimalType, column: T.DataType) -> int:
    """Return how many digits behind the point are surely read of a decimal in a column."""
    has_map = any(isinstance(each, T.MapType) for _, each in walk_types(column))
    return kind.scale if has_map else get_fineness(kind)


def _describe_rounded(schema: T.StructType, text: str) -> str:
    """Return SQL for the message about decimals in `_WRITTEN` that Spark would round; NULL if there are none."""
    messages = []
    for each in schema:
        value = f"{_WRITTEN}.{quote_name(each.name)}"
        shown = value if isinstance(each.dataType, T.DecimalType) else f"to_json({value})"
        message = _NOT_EXACT if each.name.startswith(HIDDEN) else describe_misfit(each, unquote_numbers(shown))
        if has_decimal(each.dataType):
            messages.append(f"if({_is_rounded(value, each.dataType)}, {message}, null)")
    huge = join_conditions([has_huge_exponent(text), f"{text} rlike {quote_text(_ESCAPED)}"])
    unknown = f"if({_WRITTEN}.{CORRUPT} is not null and ({huge}), {_NOT_EXACT}, null)"
    return f"coalesce(nullif(concat_ws('; ', {', '.join(messages)}), ''), {unknown})"


def _is_rounded(written: str, kind: T.DataType) -> str:
    """Return SQL that is true if a column's text has a decimal that Spark would round, or read slowly."""

    def is_lost(text: str, of: T.DataType) -> str:
        if not isinstance(of, T.DecimalType):
            return "false"
        return is_too_fine(unquote_numbers(text), _count_read_digits(of, kind))

    return make_any_inside_sql(written, kind, is_lost)


def _is_written_again(line: str, schema: T.StructType, options: Mapping[str, str]) -> str:
    """Return SQL that is true if `PARSED` may have text that differs from the line's; "false" without text.

    Strings may look like numbers. They need no second parse if no number, object or array follows a key of the columns.
    """
    pattern = quote_text(_ANY_NUMBER if options.get(_ZEROS) == "true" else _AGAIN)

    def matches(text: str, of: T.DataType) -> str:
        return f"coalesce({text} rlike {pattern}, false)" if isinstance(of, T.StringType) else "false"

    again = make_any_inside_sql(PARSED, schema, matches)
    names = {path[-1] for path, kind in walk_types(schema) if path and has_text(kind)}
    is_usual = not any(name.startswith("allow") for name in options) and all(
        re.fullmatch(r"\w+", name) for name in names
    )
    if again == "false" or not is_usual:
        return again
    follows = rf"""(?:{"|".join(sorted(names))})["']?[ \t\r\n]*+:[ \t\r\n]*+[^ \t\r\n"'ntf]|\\u"""
    return f"(({again}) and {line} rlike {quote_text(follows)})"


def _get_written_fields(schema: T.StructType) -> list[T.StructField]:
    fields = []
    for each in schema:
        metadata = each.metadata if isinstance(each.dataType, T.StringType) else {}
        if has_text(each.dataType) or has_decimal(each.dataType):
            fields.append(T.StructField(each.name, _write(each.dataType), metadata=metadata))
    return fields


def _write(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType(_get_written_fields(kind))
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_write(kind.elementType))
    return T.MapType(T.StringType(), _write(kind.valueType)) if isinstance(kind, T.MapType) else T.StringType()


def _keep_text(value: str, written: str, kind: T.DataType, depth: int = 0) -> str:
    """Return SQL for a parsed value whose texts are those of `written`."""
    if isinstance(kind, T.StringType):
        return unquote_numbers(written)
    if not has_text(kind):
        return value
    if isinstance(kind, T.StructType):
        parts = [
            f"{quote_text(each.name)}, {_keep_text(f'{value}.{at}', f'{written}.{at}', each.dataType, depth)}"
            for each, at in zip(kind, map(quote_name, kind.names), strict=True)
        ]
        return f"if({value} is null, null, named_struct({', '.join(parts)}))"
    each_value, text = f"{HIDDEN}value_{depth}", f"{HIDDEN}written_{depth}"
    element = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType  # type: ignore[attr-defined]
    inner = f"({each_value}, {text}) -> {_keep_text(each_value, text, element, depth + 1)}"
    if isinstance(kind, T.ArrayType):
        return f"zip_with({value}, {written}, {inner})"
    return f"map_from_arrays(map_keys({value}), zip_with(map_values({value}), map_values({written}), {inner}))"
