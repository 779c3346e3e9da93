"""Lines of JSON, or objects of whole files, of which all that fits is kept; what does not is rescued or refused, key by
key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from origins.bad_lines import CORRUPT, Verdict, as_map, is_wider, misfit
from origins.changes import Changes
from origins.exact import exact, finer, finer_columns, is_inexact
from origins.json_changes import JsonChanges
from origins.json_keys import inside, keys_of
from origins.json_lines import (
    LINE,
    NO_FILE,
    NO_TEXT,
    as_written,
    has_more,
    is_no_text,
    is_other_value,
    objects,
    said_of_more,
)
from origins.json_tail import is_whole
from origins.names import HIDDEN, quoted, text
from origins.schema import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

_PARSED = HIDDEN + "parsed"
_NO_OBJECT = HIDDEN + "no_object"
_MISFITS = HIDDEN + "misfits"
_PATHS = HIDDEN + "paths"
_WRONG = HIDDEN + "wrong"
_KEPT = HIDDEN + "kept"
_ONCE = "spark_partition_id() >= 0"
_NOTHING = "cast(array() as array<struct<name: string, wider: boolean, said: string>>)"
_SAID = text("this line is not one JSON object")
_LARGE_NUMBER = (
    r"(?<=[:\[,\s])(-?[0-9.]*[eE]\+?[0-9]{2}[0-9]*|-?[0-9]{39}[0-9.eE+-]*|[+-]?(?:Infinity|INF)|NaN)(?=\s*[,\]}])"
)
_AS_TEXT = '"$1"'
_OUTSIDE = r'(?=(?:[^"\\]|\\.|"(?:[^"\\]++|\\.)*+")*+\z)'
"""What stands behind a place that is in no text."""


@dataclass(frozen=True, kw_only=True)
class JsonRescue:
    """Lines taken apart by the policies, each of which may be another; with `multiLine` the objects of files."""

    wrong: JsonChanges

    @property
    def _changes(self) -> Changes:
        return self.wrong.changes

    @property
    def _each(self) -> JsonChanges:
        """The same for an object by itself."""
        return replace(self.wrong, options=self._options)

    @property
    def _options(self) -> Mapping[str, str]:
        return {name: value for name, value in self.wrong.options.items() if name != "multiline"}

    @property
    def kept(self) -> str:
        """SQL for what was rescued of a line, as JSON; NULL if there is nothing."""
        line, keys = quoted(LINE), _KEPT
        whole = f"to_json(named_struct('_line', {line}))"
        chosen = f"map_filter({{values}}, (key, value) -> array_contains({keys}, key))"
        digits = f"regexp_replace({line}, {text(_LARGE_NUMBER + _OUTSIDE)}, {text(_AS_TEXT)})"
        exact = chosen.format(values=f"try_cast(try_parse_json({digits}) as map<string, variant>)")
        as_text = chosen.format(values=f"from_json({line}, 'map<string,string>', {as_map(self._options)})")
        some = f"coalesce(to_json({exact}), to_json({as_text}))"
        takes = str(self._changes.corrupt == "rescue").lower()
        return f"case when {_NO_OBJECT} then if({takes}, {whole}, null) when size({keys}) > 0 then {some} end"

    def rows(self, lines: DataFrame) -> DataFrame:
        """The columns of the schema beside each `LINE`; what does not fit is NULL there. Blank lines are left out."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        line, schema, is_file = quoted(LINE), self.wrong.schema, "false"
        if is_whole(self.wrong.options):
            lines, is_file = objects(lines, self.wrong.options), NO_FILE
        told = {**self._options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        kind = StructType([*finer_columns(schema), StructField(CORRUPT, StringType())])
        frame = lines.withColumn(_PARSED, F.when(F.expr(_ONCE), F.from_json(line, kind, told)))
        frame = frame.where(f"{_PARSED} is not null")
        steps = {
            _NO_OBJECT: f"{is_file} or {has_more(self._options)} or {is_no_text(self._options)} or "
            f"({_PARSED}.{CORRUPT} is not null and {_is_no_object(line)})",
            _MISFITS: f"if({self._fits(schema)} or {_NO_OBJECT}, {_NOTHING}, {self._misfits(schema)})",
            _PATHS: f"if({_NO_OBJECT}, cast(array() as array<string>), {self._each.strange(line)})",
            _WRONG: f"if({_NO_OBJECT}, null, {self._each.refused(line, _PATHS)})",
            _KEPT: f"if({_NO_OBJECT}, cast(array() as array<string>), {self._keys()})",
        }
        for name, step in steps.items():
            frame = frame.withColumn(name, F.expr(f"case when {_ONCE} then {step} end"))
        columns = [F.expr(_fitting(column)).alias(column.name) for column in schema]
        kept = [name for name in lines.columns if name not in schema.names]
        return frame.select(*kept, *steps, *columns)

    def verdict(self) -> Verdict:
        """The verdict on such a row."""
        line, takes = quoted(LINE), ("rescue",)
        bad = [kind for kind in ("wider", "other") if getattr(self._changes, kind) not in takes]
        said = f"array_join(transform({_of_kinds(bad)}, each -> each.said), '; ')"
        refuses = str(self._changes.corrupt not in takes).lower()
        stop = [kind for kind in ("wider", "other") if getattr(self._changes, kind) == "stop"]
        ends = str(self._changes.corrupt == "stop").lower()
        stops = f"size({_of_kinds(stop)}) > 0 or {self._each.stopping(line, _PATHS)} is not null"
        broken = f"if({is_no_text(self._options)}, {text(NO_TEXT)}, {self._said})"
        return Verdict(
            is_bad=f"({_NO_OBJECT} and {refuses}) or {_WRONG} is not null or size({_of_kinds(bad)}) > 0",
            why=f"if({_NO_OBJECT}, {broken}, concat_ws('; ', nullif({said}, ''), {_WRONG}))",
            raw=line,
            is_change=f"not {_NO_OBJECT} and size({_of_kinds(bad)}) = 0",
            stops=f"if({_NO_OBJECT}, {ends}, {stops})" if self.wrong.any_stops else "false",
        )

    @property
    def _said(self) -> str:
        return text(said_of_more(self.wrong.options)) if is_whole(self.wrong.options) else _SAID

    def _fits(self, schema: StructType) -> str:
        inexact = " or ".join(f"{_is_inexact(column)} or {self._is_other(column)}" for column in schema)
        return f"({_PARSED}.{CORRUPT} is null and not coalesce({inexact}, false))"

    def _is_other(self, column: StructField) -> str:
        return is_other_value(quoted(LINE), column, self._options, f"{_PARSED}.{quoted(column.name)}")

    def _misfits(self, schema: StructType) -> str:
        line, items = quoted(LINE), []
        for column in schema:
            own = f"{quoted(column.name)} {sql_type(finer(column.dataType))}, {CORRUPT} string"
            alone = f"from_json({line}, {text(own)}, {as_map(self._options)}).{CORRUPT} is not null"
            is_lost = f"{alone} or {_is_inexact(column)} or {self._is_other(column)}"
            value = as_written(line, column, inside(line, column.name, "string", self._options))
            items.append(f"if({is_lost}, {_item(column, value)}, null)")
        return f"filter(array({', '.join(items)}), each -> each is not null)"

    def _keys(self) -> str:
        """The keys whose values are rescued."""
        line = quoted(LINE)
        kinds = [kind for kind in ("wider", "other") if getattr(self._changes, kind) == "rescue"]
        begins = "exists(paths, path -> path = key or startswith(path, concat(key, '.')))"
        strange = f"filter({keys_of(line, self._options)}, key -> {begins})"
        above = f"transform(array({self._each.rescued(_PATHS)}), paths -> if(size(paths) = 0, paths, {strange}))[0]"
        return f"array_distinct(concat(transform({_of_kinds(kinds)}, each -> each.name), {above}))"


def _item(column: StructField, value: str) -> str:
    wider = is_wider(column, value)
    return f"named_struct('name', {text(column.name)}, 'wider', {wider}, 'said', {misfit(column, value)})"


def _of_kinds(kinds: list[str]) -> str:
    """Those of the misfits that are of these kinds."""
    any_of = " or ".join({"wider": "each.wider", "other": "not each.wider"}[kind] for kind in kinds)
    asked = any_of or "false"
    return f"filter({_MISFITS}, each -> {asked})"


def _is_inexact(column: StructField) -> str:
    return is_inexact(f"{_PARSED}.{quoted(column.name)}", column.dataType)


def _fitting(column: StructField) -> str:
    lost = f"{_NO_OBJECT} or exists({_MISFITS}, each -> each.name = {text(column.name)})"
    return f"case when not ({lost}) then {exact(f'{_PARSED}.{quoted(column.name)}', column.dataType)} end"


def _is_no_object(line: str) -> str:
    """SQL that is true for text that is no JSON object; one with a key twice is, though one parser refuses it."""
    is_none = f"json_object_keys({line}) is null"
    return f"coalesce(schema_of_variant(try_parse_json({line})) not like 'OBJECT%', {is_none})"
