"""Lines of JSON as text: what they hold, when one is no row, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT, Verdict, as_map, misfits
from origins.exact import CONTROL, any_inside, exact, finer_columns, is_finer, is_inexact, is_infinite
from origins.json_changes import JsonChanges
from origins.json_keys import inside
from origins.json_tail import as_array, has_tail, is_array, is_whole, parts
from origins.names import HIDDEN, quoted, text
from origins.schema import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

LINE = HIDDEN + "line"
"""The column with a line as it was found."""
NO_FILE = HIDDEN + "no_file"
"""The column that is true where that is a whole file, which is neither an object nor an array of them."""
_PARSED = HIDDEN + "parsed"
_ROW = HIDDEN + "row"
_WRONG = HIDDEN + "wrong"
_AGAIN = HIDDEN + "again"
_ONCE = "spark_partition_id() >= 0"
_LARGE = r"[eE]\+?[0-9]{2}|[0-9]{39}"
"""What stands in every number that is too large for a `float`."""
_LITERAL = r'(?<=[:\[,\s])(?:[+-]?(?:Infinity|INF)|"[+-]?(?:Infinity|INF)")(?=\s*[,\]}])'
_NO_ASCII, _ESCAPE, _MAY_BE_CUT = r"[^\x00-\x7f]", r"\u", CONTROL + r"|\\[bu]"
_TIMES = ("date", "timestamp", "timestamp_ntz")
_WHOLE_PAIRS = r"(?s)\A(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F]).{4}|\\u[dD][89abAB].{2}\\u[dD][c-fC-F].{2})*+\z"
NO_TEXT = "some bytes are no text in UTF-8, or there is half of a surrogate pair"


def has_more(options: Mapping[str, str]) -> str:
    """SQL that is true where more stands in `LINE` than one object."""
    return has_tail(quoted(LINE), as_map(options), whole_file=is_whole(options))


def of_json(schema: StructType, options: Mapping[str, str], typed: Mapping[str, str], *, in_words: bool) -> Verdict:
    """The verdict on what Spark's reader has read, but for what stands behind a line's first value. `typed` says where
    columns stand that were read with a finer type.

    Spark parses only the columns that are used. So the verdict asks for all of them, in a condition that is never
    true and that no optimizer sees through: whether a line is bad must not depend on what is done with it.
    """
    corrupt = quoted(CORRUPT)
    nothing = " and ".join(f"{quoted(name)} is null" for name in schema.names)
    lost = [f" or ({quoted(name)} is not null and {at} is null)" for name, at in typed.items()]
    is_bad = f"{corrupt} is not null or coalesce({nothing} and char_length({corrupt}) < 0, false){''.join(lost)}"
    why = _misfits(schema, corrupt, options) if in_words else text(_no_object(options))
    return Verdict(is_bad=is_bad, why=why, raw=corrupt)


def is_more(wrong: JsonChanges) -> str:
    """SQL that is true for a `LINE` with more than one object, with other keys than it may have, or of which Spark's
    reader makes other values."""
    line, options = quoted(LINE), wrong.options
    if is_whole(options):
        line = _value(options)
    others = [is_other_value(line, column, options) for column in _as_one(wrong)]
    return " or ".join([has_more(options), is_no_text(options), *others, f"{_wrong(wrong)} is not null"])


def is_no_text(options: Mapping[str, str]) -> str:
    """SQL that is true for a `LINE` with bytes that are no text, or with half of a surrogate pair."""
    line = quoted(LINE)
    is_broken = f"not is_valid_utf8({line})"
    if options.get("encoding", "").upper() == "US-ASCII":
        is_broken = f"{line} rlike {text(_NO_ASCII)}"
    return f"({is_broken} or contains({line}, {text(_ESCAPE)}) and not {line} rlike {text(_WHOLE_PAIRS)})"


def is_other_value(line: str, column: StructField, options: Mapping[str, str], value: str | None = None) -> str:
    """SQL that is true where Spark's parser makes another value of a column than stands on the line: an infinite one
    of a number, or one without control characters. `value` is what was parsed, if that is known."""
    kind, parts = column.dataType, []

    def infinite(at: str) -> str:
        return any_inside(at, kind, lambda each, of: is_infinite(each) if _is_float(of) else "false")

    def cut(at: str, of: DataType) -> str:
        return f"{at} rlike {text(CONTROL)}" if of.typeName() in _TIMES else "false"

    if infinite(_AGAIN) != "false":
        may = infinite(value) if value else f"{line} rlike {text(_LARGE)}"
        without = f"regexp_replace({line}, {text(_LITERAL)}, 'null')"
        again = inside(without, column.name, sql_type(kind), options)
        parts.append(f"(({may}) and coalesce(exists(array({again}), {_AGAIN} -> {infinite(_AGAIN)}), false))")
    if any_inside(_AGAIN, kind, cut) != "false":
        may = f"{line} rlike {text(_MAY_BE_CUT)}"
        as_text = inside(line, column.name, sql_type(_times_as_text(kind)), options)
        found = any_inside(_AGAIN, kind, cut)
        parts.append(f"({may} and coalesce(exists(array({as_text}), {_AGAIN} -> {found}), false))")
    return f"({' or '.join(parts)})" if parts else "false"


def as_written(line: str, column: StructField, value: str) -> str:
    """SQL for a column's value as it stands on the line; Spark gives the text of a number as it has read it."""
    if not _is_float(column.dataType):
        return value
    escaped = "".join(each if each.isalnum() or each == "_" else f"\\{each}" for each in column.name)
    number = text(rf'"{escaped}"\s*:\s*(-?[0-9][0-9.eE+-]*)')
    return f"coalesce(nullif(regexp_extract({line}, {number}, 1), ''), {value})"


def _is_float(kind: DataType) -> bool:
    return kind.typeName() in ("float", "double")


def _times_as_text(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _times_as_text(field.dataType)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_times_as_text(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _times_as_text(kind.valueType))
    return StringType() if kind.typeName() in _TIMES else kind


def _as_one(wrong: JsonChanges) -> Sequence[StructField]:
    """The columns as they are parsed of a line; of a whole file the array of its rows."""
    from pyspark.sql.types import ArrayType, StructField

    if not is_whole(wrong.options):
        return wrong.schema.fields
    return [StructField(_ROW, ArrayType(wrong.schema))]


def of_more(wrong: JsonChanges) -> Verdict:
    """The verdict on a `LINE` of which `is_more` is true; it says no more than that."""
    return Verdict(is_bad="true", why=text(said_of_more(wrong.options)), raw=quoted(LINE))


def of_json_text(wrong: JsonChanges) -> Verdict:
    """The verdict on what was `parsed`."""
    line, options = quoted(LINE), wrong.options
    is_read = "true" if is_whole(options) else f"({_PARSED}.{CORRUPT} is null or {is_array(line)})"
    is_change = f"{_WRONG} is not null and not ({_is_broken(options)})"
    why = (
        f"case when {is_no_text(options)} then {text(NO_TEXT)} "
        f"when {is_read} and {has_more(options)} then {text(said_of_more(options))} "
        f"when {is_change} then {_WRONG} else {_misfits(wrong.schema, line, options)} end"
    )
    stops = "false"
    if wrong.any_stops:
        keys_stop = wrong.in_file(line, wrong.stopping("object")) if is_whole(options) else wrong.stopping(line)
        stops = f"if({is_change}, {keys_stop} is not null, {str(wrong.changes.corrupt == 'stop').lower()})"
    return Verdict(is_bad=f"{CORRUPT} is not null", why=why, raw=CORRUPT, is_change=is_change, stops=stops)


def _wrong(wrong: JsonChanges) -> str:
    line = quoted(LINE)
    return wrong.in_file(line, wrong.refused("object")) if is_whole(wrong.options) else wrong.refused(line)


def _misfits(schema: StructType, line: str, options: Mapping[str, str]) -> str:
    """What a bad line has that does not fit; it is parsed once more for that, as text."""
    as_text = text(", ".join(f"{quoted(name)} string" for name in schema.names))
    again = f"from_json({line}, {as_text}, {as_map(options)})"
    said = misfits(_lost_of(line, column, options) for column in schema)
    return f"coalesce(transform(array({again}), {_PARSED} -> {said})[0], {text(_no_object(options))})"


def _lost_of(line: str, column: StructField, options: Mapping[str, str]) -> tuple[StructField, str, str]:
    value, typed = f"{_PARSED}.{quoted(column.name)}", quoted(column.name)
    is_lost = f"{typed} is null and {value} is not null or {is_other_value(line, column, options, typed)}"
    return column, as_written(line, column, value), is_lost


def objects(files: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """The objects of whole files, each of them a `LINE` as it was found, or written anew where objects lie in it very
    deep; a file that is `NO_FILE` stays whole."""
    from pyspark.sql import functions as F

    told = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    value = F.from_json(F.expr(_value(options)), f"{_ROW} array<string>, {CORRUPT} string", told)
    frame = files.withColumn(_PARSED, F.when(F.expr(_ONCE), value))
    line = quoted(LINE)
    values = f"try_cast(try_parse_json({as_array(line)}) as array<variant>)"
    deep = f"if(exists({values}, each -> schema_of_variant(each) not like 'OBJECT%'), null, {values})"
    found = f"coalesce({parts(line)}, transform({deep}, each -> to_json(each)))"
    frame = frame.withColumn(_ROW, F.expr(f"case when {_ONCE} and not ({_is_broken(options)}) then {found} end"))
    frame = frame.withColumn(NO_FILE, F.expr(f"{_ROW} is null"))
    return frame.withColumn(LINE, F.explode(F.expr(f"coalesce({_ROW}, array({line}))"))).select(*files.columns, NO_FILE)


def parsed(lines: DataFrame, wrong: JsonChanges) -> DataFrame:
    """The columns of the schema beside each `LINE`, and `CORRUPT`, which is NULL unless it is bad.

    Blank lines are left out. A whole file is as many rows as its array has, or a single one if it is bad.
    """
    from pyspark.sql import functions as F

    schema, options = wrong.schema, wrong.options
    told = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    value = F.from_json(F.expr(_value(options)), _kind(schema, options), told)
    frame = lines.withColumn(_PARSED, F.when(F.expr(_ONCE), value)).where(f"{_PARSED} is not null")
    frame = frame.withColumn(_WRONG, F.expr(f"case when {_ONCE} then {_wrong(wrong)} end"))
    line, row = quoted(LINE), _PARSED
    told_of = _value(options) if is_whole(options) else quoted(LINE)
    others = [is_other_value(told_of, each, options, f"{_PARSED}.{quoted(each.name)}") for each in _as_one(wrong)]
    is_bad = " or ".join([_is_broken(options), f"{_WRONG} is not null", _is_inexact(schema, options), *others])
    frame = frame.withColumn(CORRUPT, F.expr(f"case when {is_bad} then {line} end"))
    if is_whole(options):
        rows = f"if({CORRUPT} is null, {_PARSED}.{_ROW}, array(null))"
        frame, row = frame.withColumn(_ROW, F.explode(F.expr(rows))), _ROW
    columns = [F.expr(exact(f"{row}.{quoted(each.name)}", each.dataType)).alias(each.name) for each in schema]
    return frame.select(*lines.columns, _PARSED, _WRONG, CORRUPT, *columns)


def _is_inexact(schema: StructType, options: Mapping[str, str]) -> str:
    """SQL that is true where something was parsed that is too fine for its column."""
    row = "row" if is_whole(options) else _PARSED
    lost = [is_inexact(f"{row}.{quoted(each.name)}", each.dataType) for each in schema if is_finer(each.dataType)]
    any_of = " or ".join(lost) or "false"
    return f"coalesce(exists({_PARSED}.{_ROW}, row -> {any_of}), false)" if lost and row == "row" else any_of


def _is_broken(options: Mapping[str, str]) -> str:
    """SQL that is true for what was parsed and is no object, or has values of other types."""
    is_broken = f"{_PARSED}.{CORRUPT} is not null or {is_no_text(options)} or {has_more(options)}"
    return f"{is_broken} or exists({_PARSED}.{_ROW}, row -> row is null)" if is_whole(options) else is_broken


def _value(options: Mapping[str, str]) -> str:
    """What is parsed: the line, or the file as an array with a name."""
    line = quoted(LINE)
    if not is_whole(options):
        return line
    return f"concat('{{\"{_ROW}\":', {as_array(line)}, '\\n}}')"


def _kind(schema: StructType, options: Mapping[str, str]) -> StructType:
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    fine = finer_columns(schema)
    columns = [StructField(_ROW, ArrayType(fine))] if is_whole(options) else fine.fields
    return StructType([*columns, StructField(CORRUPT, StringType())])


def said_of_more(options: Mapping[str, str]) -> str:
    """What is said of a line, or of a whole file, with more on it than it may have."""
    if is_whole(options):
        return "this file is not one JSON object or one array of them; without multiLine it is one object a line"
    return "more stands on this line than one object; each needs a line of its own"


def _no_object(options: Mapping[str, str]) -> str:
    if is_whole(options):
        return "this file is not a JSON object, or an array of them, whose values have the types of the schema"
    return "this line is not a JSON object whose values have the types of the schema"
