"""Lines of JSON as text: what they hold, when one is no row, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT, Verdict, as_map, misfits
from origins.exact import exact, finer_columns, is_finer, is_inexact
from origins.json_changes import JsonChanges
from origins.json_tail import as_array, has_tail, is_array, is_whole, parts
from origins.names import HIDDEN, quoted, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

LINE = HIDDEN + "line"
"""The column with a line as it was found."""
NO_FILE = HIDDEN + "no_file"
"""The column that is true where that is a whole file, which is neither an object nor an array of them."""
_PARSED = HIDDEN + "parsed"
_ROW = HIDDEN + "row"
_WRONG = HIDDEN + "wrong"
_ONCE = "spark_partition_id() >= 0"


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
    """SQL that is true for a `LINE` with more than one object, or with other keys than it may have."""
    return f"{has_more(wrong.options)} or {_wrong(wrong)} is not null"


def of_more(wrong: JsonChanges) -> Verdict:
    """The verdict on a `LINE` of which `is_more` is true; it says no more than that."""
    return Verdict(is_bad="true", why=text(said_of_more(wrong.options)), raw=quoted(LINE))


def of_json_text(wrong: JsonChanges) -> Verdict:
    """The verdict on what was `parsed`."""
    line, options = quoted(LINE), wrong.options
    is_read = "true" if is_whole(options) else f"({_PARSED}.{CORRUPT} is null or {is_array(line)})"
    is_change = f"{_WRONG} is not null and not ({_is_broken(options)})"
    why = (
        f"case when {is_read} and {has_more(options)} then {text(said_of_more(options))} "
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
    said = misfits((column, f"{_PARSED}.{quoted(column.name)}", quoted(column.name)) for column in schema)
    return f"coalesce(transform(array({again}), {_PARSED} -> {said})[0], {text(_no_object(options))})"


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
    is_bad = f"{_is_broken(options)} or {_WRONG} is not null or {_is_inexact(schema, options)}"
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
    line = quoted(LINE)
    is_broken = f"{_PARSED}.{CORRUPT} is not null or not is_valid_utf8({line}) or {has_more(options)}"
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
