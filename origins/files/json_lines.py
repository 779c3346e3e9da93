"""SQL over lines of JSON: their content, when a line is not a row, the message about it, and the text for the DLQ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from origins.files.bad_lines import (
    CONTROL,
    CORRUPT,
    ONCE,
    Verdict,
    as_map,
    complete_parser_options,
    describe_misfit,
    describe_misfits,
    fits_wider_number,
    is_inexact,
    is_infinite,
    join_conditions,
    make_any_inside_sql,
    make_exact_sql,
    widen_type,
)
from origins.files.changes import Changes
from origins.files.json_text import (
    JsonChanges,
    as_array,
    has_tail,
    is_array,
    make_keys_sql,
    make_value_under_key_sql,
    split_objects_sql,
)
from origins.files.json_written import INEXACT, MARK, PARSED, parse_exactly, quote_numbers, unquote_numbers
from origins.files.options import is_whole
from origins.lazy import DataFrame, F, T
from origins.names import HIDDEN, quote_name, quote_text
from origins.schema import get_sql_type

LINE = HIDDEN + "line"
"""The column with the line as it is in the file."""
NO_FILE = HIDDEN + "no_file"
"""The column that is true if `LINE` is a whole file that is neither an object nor an array of objects."""
_ROW = HIDDEN + "row"
_WRONG = HIDDEN + "wrong"
"""The column with the problem of a line's keys; empty if there is none, and NULL for a plain line."""
_AGAIN = HIDDEN + "again"
_LARGE = r"[eE]\+?[0-9]{2}|[0-9]{39}"
"""A pattern that occurs in every number that is too large for a `float`."""
_LITERAL = r'(?<=[:\[,\s])(?:[+-]?(?:Infinity|INF)|"[+-]?(?:Infinity|INF)")(?=\s*[,\]}])'
_NO_ASCII, _ESCAPE, _MAY_BE_CUT = r"[^\x00-\x7f]", r"\u", CONTROL + r"|\\[bu]"
_BACKSLASH, _DELETE = quote_text("\\"), quote_text("\x7f")
"""Characters of which each line with a control character has one, because parsers accept no other form."""
_TIMES = ("date", "timestamp", "timestamp_ntz")
_WHOLE_PAIRS = r"(?s)\A(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F]).{4}|\\u[dD][89abAB].{2}\\u[dD][c-fC-F].{2})*+\z"
NO_TEXT = "some bytes are not valid UTF-8, or half of a surrogate pair is missing"


def has_more(options: Mapping[str, str]) -> str:
    """Return SQL that is true if `LINE` contains more than one object."""
    return has_tail(quote_name(LINE), as_map(options), whole_file=is_whole(options))


def judge_json(
    schema: T.StructType, options: Mapping[str, str], typed: Mapping[str, str], *, in_words: bool
) -> Verdict:
    """Return the verdict on rows from Spark's reader, except on text after a line's first value.

    `typed` names the columns that were read with a finer type. Spark parses only the columns that are used. So the
    verdict also uses all of them, in a condition that is never true and that no optimizer can remove. A line must not
    be bad or good depending on the use of its row.
    """
    corrupt = quote_name(CORRUPT)
    nothing = " and ".join(f"{quote_name(name)} is null" for name in schema.names)
    lost = [f" or ({quote_name(name)} is not null and {at} is null)" for name, at in typed.items()]
    is_bad = f"{corrupt} is not null or coalesce({nothing} and char_length({corrupt}) < 0, false){''.join(lost)}"
    message = quote_text(_make_no_object_message(options))
    why = _describe_misfits(schema, corrupt, options) if in_words else message
    return Verdict(is_bad=is_bad, why=why, raw=corrupt)


def is_more(wrong: JsonChanges) -> str:
    """Return SQL that is true for a `LINE` that Spark's reader would not read completely and unchanged.

    Such a line has more than one object, or keys that it may not have, or values that the reader changes.
    """
    line, options = quote_name(LINE), wrong.options
    if is_whole(options):
        line = _make_parsed_text_sql(options)
    infinite = [_is_made_infinite(line, column, options) for column in _parse_fields(wrong)]
    cut = [_is_cut_value(line, column, options) for column in _parse_fields(wrong)]
    problem = _find_in_line(wrong, wrong.make_refusal_sql)
    odd = join_conditions([has_more(options), is_no_text(options), *cut, f"{problem} is not null"])
    return join_conditions([f"not ({_is_plain(wrong, line)}) and ({odd})", *infinite])


def is_no_text(options: Mapping[str, str]) -> str:
    """Return SQL that is true for a `LINE` with bytes that are not text, or with half of a surrogate pair."""
    line = quote_name(LINE)
    is_broken = f"not is_valid_utf8({line})"
    if options.get("encoding", "").upper() == "US-ASCII":
        is_broken = f"{line} rlike {quote_text(_NO_ASCII)}"
    return f"({is_broken} or contains({line}, {quote_text(_ESCAPE)}) and not {line} rlike {quote_text(_WHOLE_PAIRS)})"


def is_other_value(line: str, column: T.StructField, options: Mapping[str, str], value: str | None = None) -> str:
    """Return SQL that is true if Spark's parser changes a column's value of the line.

    It makes a number infinite, or drops control characters. `value` is the parsed value, if it is known.
    """
    return join_conditions([_is_made_infinite(line, column, options, value), _is_cut_value(line, column, options)])


def _is_made_infinite(line: str, column: T.StructField, options: Mapping[str, str], value: str | None = None) -> str:
    """Return SQL that is true if Spark's parser makes a number infinite; "false" for a column without floats."""
    kind = column.dataType

    def infinite(at: str) -> str:
        return make_any_inside_sql(
            at, kind, lambda each, of: is_infinite(each) if of.typeName() in ("float", "double") else "false"
        )

    if infinite(_AGAIN) == "false":
        return "false"
    may = infinite(value) if value else f"{line} rlike {quote_text(_LARGE)}"
    without = f"regexp_replace({line}, {quote_text(_LITERAL)}, 'null')"
    again = make_value_under_key_sql(without, column.name, get_sql_type(kind), options)
    return f"(({may}) and coalesce(exists(array({again}), {_AGAIN} -> {infinite(_AGAIN)}), false))"


def _is_cut_value(line: str, column: T.StructField, options: Mapping[str, str]) -> str:
    """Return SQL that is true if Spark's parser drops control characters of a time; "false" without times."""
    found = make_any_inside_sql(_AGAIN, column.dataType, _is_cut)
    if found == "false":
        return "false"
    may = f"{line} rlike {quote_text(_MAY_BE_CUT)}"
    if "allowunquotedcontrolchars" not in options:
        may = f"(contains({line}, {_BACKSLASH}) or contains({line}, {_DELETE})) and {may}"
    as_text = make_value_under_key_sql(line, column.name, get_sql_type(_make_times_text(column.dataType)), options)
    return f"({may} and coalesce(exists(array({as_text}), {_AGAIN} -> {found}), false))"


def _is_cut(value: str, kind: T.DataType) -> str:
    return f"{value} rlike {quote_text(CONTROL)}" if kind.typeName() in _TIMES else "false"


def _is_plain(wrong: JsonChanges, line: str, parsed: str | None = None) -> str:
    """Return SQL that is true only for a line, if it is JSON, with one object, the right keys and no cut value."""
    is_plain = wrong.is_plain_sql(line, parsed)
    may_be_cut = any(_is_cut_value(line, each, wrong.options) != "false" for each in wrong.schema)
    return f"{is_plain} and not contains({line}, {_DELETE})" if may_be_cut else is_plain


def _make_times_text(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _make_times_text(field.dataType)) for field in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_make_times_text(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, _make_times_text(kind.valueType))
    return T.StringType() if kind.typeName() in _TIMES else kind


def _parse_fields(wrong: JsonChanges) -> Sequence[T.StructField]:
    """Return the columns that are parsed from a line. For a whole file that is the array of its rows."""
    if not is_whole(wrong.options):
        return wrong.schema.fields
    return [T.StructField(_ROW, T.ArrayType(wrong.schema))]


def judge_surplus(wrong: JsonChanges) -> Verdict:
    """Return the verdict on a `LINE` for which `is_more` is true. It gives no details."""
    return Verdict(is_bad="true", why=quote_text(make_surplus_message(wrong.options)), raw=quote_name(LINE))


def judge_json_text(wrong: JsonChanges) -> Verdict:
    """Return the verdict on the rows of `parse_lines`."""
    line, options = quote_name(LINE), wrong.options
    is_read = "true" if is_whole(options) else f"({PARSED}.{CORRUPT} is null or {is_array(line)})"
    is_change = f"coalesce({_WRONG} <> '', false) and not ({_is_broken(options)})"
    why = (
        f"case when {is_no_text(options)} then {quote_text(NO_TEXT)} when {INEXACT} is not null then {INEXACT} "
        f"when {is_read} and {has_more(options)} then {quote_text(make_surplus_message(options))} "
        f"when {is_change} then {_WRONG} else {_describe_misfits(wrong.schema, line, options)} end"
    )
    stops = "false"
    if wrong.any_stops:
        keys_stop = _find_in_line(wrong, wrong.stop_sql)
        stops = f"if({is_change}, {keys_stop} is not null, {str(wrong.changes.corrupt == 'stop').lower()})"
    return Verdict(is_bad=f"{CORRUPT} is not null", why=why, raw=CORRUPT, is_change=is_change, stops=stops)


def _find_in_line(wrong: JsonChanges, find: Callable[[str], str]) -> str:
    """Return the SQL that `find` makes for the line; for a whole file, the first value of it that is not NULL."""
    line = quote_name(LINE)
    return wrong.make_first_in_file_sql(line, find("object")) if is_whole(wrong.options) else find(line)


def _describe_misfits(schema: T.StructType, line: str, options: Mapping[str, str]) -> str:
    """Return SQL for the values of a bad line that do not fit. The line is parsed again for that, as text."""
    as_text = quote_text(", ".join(f"{quote_name(name)} string" for name in schema.names))
    again = f"from_json({quote_numbers(line, options)}, {as_text}, {as_map(options)})"
    misfits = []
    for column in schema:
        value, typed = unquote_numbers(f"{PARSED}.{quote_name(column.name)}"), quote_name(column.name)
        is_lost = f"{typed} is null and {value} is not null or {is_other_value(line, column, options, typed)}"
        misfits.append((column, value, is_lost))
    message, otherwise = describe_misfits(misfits), quote_text(_make_no_object_message(options))
    return f"coalesce(transform(array({again}), {PARSED} -> {message})[0], {otherwise})"


def split_objects(files: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Return the objects of whole files, each as a `LINE` with its text from the file.

    An object that is nested very deep is written again. A file that is `NO_FILE` is one `LINE`.
    """
    parser_options = complete_parser_options(options)
    value = F.from_json(
        F.expr(_make_parsed_text_sql(options)), f"{_ROW} array<string>, {CORRUPT} string", parser_options
    )
    frame = files.withColumn(PARSED, F.when(F.expr(ONCE), value))
    line = quote_name(LINE)
    values = f"try_cast(try_parse_json({as_array(line)}) as array<variant>)"
    deep = f"if(exists({values}, each -> schema_of_variant(each) not like 'OBJECT%'), null, {values})"
    found = f"coalesce({split_objects_sql(line)}, transform({deep}, each -> to_json(each)))"
    frame = frame.withColumn(_ROW, F.expr(f"case when {ONCE} and not ({_is_broken(options)}) then {found} end"))
    frame = frame.withColumn(NO_FILE, F.expr(f"{_ROW} is null"))
    return frame.withColumn(LINE, F.explode(F.expr(f"coalesce({_ROW}, array({line}))"))).select(*files.columns, NO_FILE)


def parse_lines(lines: DataFrame, wrong: JsonChanges, *, keep_blank: bool = False) -> DataFrame:
    """Return the schema's columns beside each `LINE`, with `PARSED` and `CORRUPT`.

    `PARSED` is NULL for a blank line, and `CORRUPT` is NULL unless the line is bad. Blank lines are dropped unless
    `keep_blank` is true. A whole file gives as many rows as its array has, or one row if it is bad.
    """
    schema, options = wrong.schema, wrong.options
    text, fields = _make_parsed_text_sql(options), _parse_fields(wrong)
    frame = parse_exactly(lines, text, T.StructType([*fields]), options)
    if not keep_blank:
        frame = frame.where(f"{PARSED} is not null")
    line, row = quote_name(LINE), PARSED
    problem = _find_in_line(wrong, wrong.make_refusal_sql)
    refusal = f"if({_is_plain(wrong, line, PARSED)}, null, coalesce({problem}, ''))"
    frame = frame.withColumn(_WRONG, F.expr(f"case when {ONCE} then {refusal} end"))
    values = {f"{PARSED}.{quote_name(each.name)}": each for each in fields}
    infinite = [_is_made_infinite(text, each, options, value) for value, each in values.items()]
    cut = [_is_cut_value(text, each, options) for each in values.values()]
    odd = join_conditions([_is_broken(options), f"{_WRONG} <> ''", *cut])
    unread = f"{PARSED}.{CORRUPT} is not null or {INEXACT} is not null"
    is_bad = join_conditions([unread, f"{_WRONG} is not null and ({odd})", _is_inexact(schema, options), *infinite])
    frame = frame.withColumn(CORRUPT, F.expr(f"case when {is_bad} then {line} end"))
    if is_whole(options):
        rows = f"if({CORRUPT} is null, {PARSED}.{_ROW}, array(null))"
        frame, row = frame.withColumn(_ROW, F.explode(F.expr(rows))), _ROW
    columns = [
        F.expr(make_exact_sql(f"{row}.{quote_name(each.name)}", each.dataType)).alias(each.name) for each in schema
    ]
    return frame.select(*lines.columns, PARSED, _WRONG, INEXACT, CORRUPT, *columns)


def _is_inexact(schema: T.StructType, options: Mapping[str, str]) -> str:
    """Return SQL that is true if a parsed value is too fine for its column."""
    row = "row" if is_whole(options) else PARSED
    lost = join_conditions(is_inexact(f"{row}.{quote_name(each.name)}", each.dataType) for each in schema)
    return f"coalesce(exists({PARSED}.{_ROW}, row -> {lost}), false)" if lost != "false" and row == "row" else lost


def _is_broken(options: Mapping[str, str]) -> str:
    """Return SQL that is true if the parsed text is not an object, or has values of other types."""
    is_broken = f"{PARSED}.{CORRUPT} is not null or {is_no_text(options)} or {has_more(options)}"
    return f"{is_broken} or exists({PARSED}.{_ROW}, row -> row is null)" if is_whole(options) else is_broken


def _make_parsed_text_sql(options: Mapping[str, str]) -> str:
    """Return SQL for the text to parse: the line, or the file as an array with a name."""
    line = quote_name(LINE)
    if not is_whole(options):
        return line
    return f"concat('{{\"{_ROW}\":', {as_array(line)}, '\\n}}')"


def make_surplus_message(options: Mapping[str, str]) -> str:
    """Return the message about a line, or a whole file, with more than one object."""
    if is_whole(options):
        return "this file is not one JSON object or one array of objects; without multiLine each line is one object"
    return "this line has more than one object; each needs a line of its own"


def _make_no_object_message(options: Mapping[str, str]) -> str:
    if is_whole(options):
        return "this file is not a JSON object, or an array of objects, whose values have the types of the schema"
    return "this line is not a JSON object whose values have the types of the schema"


_NO_OBJECT = HIDDEN + "no_object"
_MISFITS = HIDDEN + "misfits"
_PATHS = HIDDEN + "paths"
_KEPT = HIDDEN + "kept"
_NOTHING = "cast(array() as array<struct<name: string, wider: boolean, message: string>>)"
_NOT_ONE_OBJECT = quote_text("this line is not one JSON object")
_ODD_NUMBER = (
    r"-?(?:[0-9.]+[eE][+-]?[0-9]{2}|[0-9.]{17,}[eE]|[0-9]{39}|[0-9.]{40})[0-9.eE+-]*|[+-]?(?:Infinity|INF)|NaN"
)
"""A pattern for numbers that a variant does not have exactly."""


@dataclass(frozen=True, kw_only=True)
class JsonRescue:
    """Lines that are parsed key by key under different policies; with `multiLine` the objects of files."""

    wrong: JsonChanges

    @property
    def _changes(self) -> Changes:
        return self.wrong.changes

    @property
    def _each(self) -> JsonChanges:
        """Return the same for a single object."""
        return replace(self.wrong, options=self._options)

    @property
    def _options(self) -> Mapping[str, str]:
        return {name: value for name, value in self.wrong.options.items() if name != "multiline"}

    @property
    def rescued_sql(self) -> str:
        """Return SQL for the rescued values of a line, as JSON; NULL if nothing was rescued."""
        line, keys = quote_name(LINE), _KEPT
        whole = f"to_json(named_struct('_line', {line}))"
        chosen = f"map_filter({{values}}, (key, value) -> array_contains({keys}, key))"
        digits = quote_numbers(line, self._options, _ODD_NUMBER, mark="")
        exact = chosen.format(values=f"try_cast(try_parse_json({digits}) as map<string, variant>)")
        texts = f"from_json({quote_numbers(line, self._options)}, 'map<string,string>', {as_map(self._options)})"
        as_text = f"replace(to_json({chosen.format(values=texts)}), {quote_text(MARK)}, '')"
        some = f"coalesce(to_json({exact}), {as_text})"
        takes = str(self._changes.corrupt == "rescue").lower()
        return f"case when {_NO_OBJECT} then if({takes}, {whole}, null) when size({keys}) > 0 then {some} end"

    def rows(self, lines: DataFrame) -> DataFrame:
        """Return the schema's columns beside each `LINE`.

        A value that does not fit is NULL. Blank lines are dropped.
        """
        line, schema, is_file = quote_name(LINE), self.wrong.schema, "false"
        if is_whole(self.wrong.options):
            lines, is_file = split_objects(lines, self.wrong.options), NO_FILE
        frame = parse_exactly(lines, line, schema, self._options)
        frame = frame.where(f"{PARSED} is not null")
        steps = {
            _NO_OBJECT: f"{is_file} or {INEXACT} is not null or {has_more(self._options)} "
            f"or {is_no_text(self._options)} "
            f"or ({PARSED}.{CORRUPT} is not null and {_is_no_object(line, self._options)})",
            _MISFITS: f"if({self._fits_sql(schema)} or {_NO_OBJECT}, {_NOTHING}, {self._make_misfits_sql(schema)})",
            _PATHS: f"if({_NO_OBJECT}, cast(array() as array<string>), {self._each.make_strange_paths_sql(line)})",
            _WRONG: f"if({_NO_OBJECT}, null, {self._each.make_refusal_sql(line, _PATHS)})",
            _KEPT: f"if({_NO_OBJECT}, cast(array() as array<string>), {self._make_rescued_keys_sql()})",
        }
        for name, step in steps.items():
            frame = frame.withColumn(name, F.expr(f"case when {ONCE} then {step} end"))
        columns = [F.expr(_make_fitting_value_sql(column)).alias(column.name) for column in schema]
        kept = [name for name in lines.columns if name not in schema.names]
        return frame.select(*kept, INEXACT, *steps, *columns)

    def make_verdict(self) -> Verdict:
        line = quote_name(LINE)
        bad = [kind for kind in ("wider", "other") if getattr(self._changes, kind) != "rescue"]
        messages = f"array_join(transform({_filter_kinds_sql(bad)}, each -> each.message), '; ')"
        refuses = str(self._changes.corrupt != "rescue").lower()
        stop = [kind for kind in ("wider", "other") if getattr(self._changes, kind) == "stop"]
        ends = str(self._changes.corrupt == "stop").lower()
        stops = f"size({_filter_kinds_sql(stop)}) > 0 or {self._each.stop_sql(line, _PATHS)} is not null"
        surplus = (
            quote_text(make_surplus_message(self.wrong.options)) if is_whole(self.wrong.options) else _NOT_ONE_OBJECT
        )
        broken = f"if({is_no_text(self._options)}, {quote_text(NO_TEXT)}, coalesce({INEXACT}, {surplus}))"
        return Verdict(
            is_bad=f"({_NO_OBJECT} and {refuses}) or {_WRONG} is not null or size({_filter_kinds_sql(bad)}) > 0",
            why=f"if({_NO_OBJECT}, {broken}, concat_ws('; ', nullif({messages}, ''), {_WRONG}))",
            raw=line,
            is_change=f"not {_NO_OBJECT} and size({_filter_kinds_sql(bad)}) = 0",
            stops=f"if({_NO_OBJECT}, {ends}, {stops})" if self.wrong.any_stops else "false",
        )

    def _fits_sql(self, schema: T.StructType) -> str:
        inexact = " or ".join(f"{_is_inexact_part(column)} or {self._is_other(column)}" for column in schema)
        return f"({PARSED}.{CORRUPT} is null and not coalesce({inexact}, false))"

    def _is_other(self, column: T.StructField) -> str:
        return is_other_value(quote_name(LINE), column, self._options, f"{PARSED}.{quote_name(column.name)}")

    def _make_misfits_sql(self, schema: T.StructType) -> str:
        line, items = quote_name(LINE), []
        for column in schema:
            own = f"{quote_name(column.name)} {get_sql_type(widen_type(column.dataType))}, {CORRUPT} string"
            alone = f"from_json({line}, {quote_text(own)}, {as_map(self._options)}).{CORRUPT} is not null"
            is_lost = f"{alone} or {_is_inexact_part(column)} or {self._is_other(column)}"
            quoted = quote_numbers(line, self._options)
            value = unquote_numbers(make_value_under_key_sql(quoted, column.name, "string", self._options))
            kind = f"'wider', {fits_wider_number(column, value)}, 'message', {describe_misfit(column, value)}"
            items.append(f"if({is_lost}, named_struct('name', {quote_text(column.name)}, {kind}), null)")
        return f"filter(array({', '.join(items)}), each -> each is not null)"

    def _make_rescued_keys_sql(self) -> str:
        line = quote_name(LINE)
        kinds = [kind for kind in ("wider", "other") if getattr(self._changes, kind) == "rescue"]
        begins = "exists(paths, path -> path = key or startswith(path, concat(key, '.')))"
        strange = f"filter({make_keys_sql(line, self._options)}, key -> {begins})"
        above = (
            f"transform(array({self._each.make_rescued_paths_sql(_PATHS)}), paths "
            f"-> if(size(paths) = 0, paths, {strange}))[0]"
        )
        return f"array_distinct(concat(transform({_filter_kinds_sql(kinds)}, each -> each.name), {above}))"


def _filter_kinds_sql(kinds: list[str]) -> str:
    is_asked = join_conditions({"wider": "each.wider", "other": "not each.wider"}[kind] for kind in kinds)
    return f"filter({_MISFITS}, each -> {is_asked})"


def _is_inexact_part(column: T.StructField) -> str:
    return is_inexact(f"{PARSED}.{quote_name(column.name)}", column.dataType)


def _make_fitting_value_sql(column: T.StructField) -> str:
    lost = f"{_NO_OBJECT} or exists({_MISFITS}, each -> each.name = {quote_text(column.name)})"
    return f"case when not ({lost}) then {make_exact_sql(f'{PARSED}.{quote_name(column.name)}', column.dataType)} end"


def _is_no_object(line: str, options: Mapping[str, str]) -> str:
    """Return SQL that is true for text that is not a JSON object.

    An object with a key twice is one, although one of the parsers refuses it. Text with a bare control character is
    none, although two of them take it.
    """
    is_none = f"json_object_keys({line}) is null"
    is_other = f"coalesce(schema_of_variant(try_parse_json({line})) not like 'OBJECT%', {is_none})"
    return f"({is_other} or from_json({line}, '{CORRUPT} string', {as_map(options)}).{CORRUPT} is not null)"
