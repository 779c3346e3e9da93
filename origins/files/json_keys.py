"""The keys of a JSON object beside a schema: as SQL over a line, and as a look at files without Spark; which lines
are refused."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from origins.files.bad_lines import as_map
from origins.files.changes import Changes
from origins.files.json_tail import as_array
from origins.files.options import is_whole
from origins.files.scan_small import is_moderate, is_small, read_pieces
from origins.lazy import T
from origins.names import quote_name, quote_text

_NONE = "cast(array() as array<string>)"
_MAP = quote_text("map<string,string>")


def none_differs(files: Sequence[Path], schema: T.StructType, *, extra: bool, missing: bool, whole_file: bool) -> bool:
    """Whether a look at these files shows that all keys are as the schema has them; it does not look at large ones.

    Keys that the schema has not count with `extra`, or if they are one of its names in other letters; columns that a
    line has not count with `missing`.
    """
    try:
        if not is_moderate(files):
            return False
        small, shape, names = is_small(files), _shape(schema), {*list_names(schema)}
        for content in read_pieces(files, "utf-8-sig"):
            if not extra and not missing and _has_no_other_letters(content, names):
                continue
            if not small:
                return False
            lines = [content] if whole_file else content.split("\n")
            values = (json.loads(line) for line in lines if line.strip())
            objects = (each for value in values for each in (value if isinstance(value, list) else [value]))
            if any(_differs(each, shape, extra, missing) for each in objects):
                return False
        return True
    except (ValueError, RecursionError, OSError):
        return False


def _has_no_other_letters(content: str, names: Collection[str]) -> bool:
    """Whether no name stands there in quotes with other letters than its own, so that there is nothing to parse for."""
    small = content.lower()
    alike = (small.count(f'"{name.lower()}"') == content.count(f'"{name}"') for name in names)
    return "\\u" not in content and all(alike)


@dataclass(frozen=True)
class _Shape:
    """What is inside a type, as plain values, so that thousands of lines are looked at quickly."""

    names: frozenset[str] = frozenset()
    """Of a struct."""
    in_small: frozenset[str] = frozenset()
    """The same in small letters."""
    inside: tuple[tuple[str, _Shape], ...] = ()
    """Those of a struct's fields that have something inside."""
    each: _Shape | None = None
    """What is inside the elements of an array, or the values of a map."""


def _shape(kind: T.DataType) -> _Shape:
    if isinstance(kind, T.StructType):
        inside = ((field.name, _shape(field.dataType)) for field in kind if any(list_names(field.dataType)))
        names = frozenset(field.name for field in kind)
        return _Shape(names, frozenset(name.lower() for name in names), tuple(inside))
    if isinstance(kind, T.ArrayType):
        return _Shape(each=_shape(kind.elementType))
    return _Shape(each=_shape(kind.valueType)) if isinstance(kind, T.MapType) else _Shape()


def _differs(value: Any, shape: _Shape, extra: bool, missing: bool) -> bool:
    if shape.each is not None:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return any(_differs(each, shape.each, extra, missing) for each in inside)
    if not isinstance(value, dict):
        return False
    keys = value.keys()
    if keys != shape.names:
        strange = keys - shape.names
        if strange and (extra or not shape.in_small.isdisjoint(key.lower() for key in strange)):
            return True
        if missing and not shape.names <= keys:
            return True
    return any(_differs(value[name], inner, extra, missing) for name, inner in shape.inside if name in value)


def may_have_other(line: str, schema: T.DataType, *, any_name: bool) -> str:
    """SQL that is true for a line with a key that the schema has not, or only with one of its names in other letters.

    It may be true for other lines as well, but costs no parsing.
    """
    names = "|".join(sorted({_escape_pattern(name) for name in list_names(schema)}))
    other = r'(?:[^"\\]|\\.)*+' if any_name else f"(?iu:{names})"
    unlike = rf'"(?!(?:{names})"[ \t\r\n]*:){other}"[ \t\r\n]*:'
    escaped = r'"[^"]*\\u[^"]*"[ \t\r\n]*:'
    return f"{line} rlike {quote_text(f'{unlike}|{escaped}')}"


def keys_sql(line: str, options: Mapping[str, str]) -> str:
    """SQL for the keys of the object in a text; none if it is no object."""
    return f"coalesce(map_keys(from_json({line}, {_MAP}, {as_map(options)})), {_NONE})"


def strange_paths_sql(line: str, schema: T.StructType, options: Mapping[str, str]) -> str:
    """SQL for the paths (`address.zip`) of the keys that the schema has not, however deep."""
    return _collect_paths_sql(line, schema, options, "", lambda keys, names: f"array_except({keys}, {names})")


def doubled_paths_sql(line: str, kind: T.DataType, options: Mapping[str, str]) -> str:
    """SQL for the paths of the fields that an object has more than once, whatever the case of letters, and of the keys
    of a map; of what no field has nothing is lost. One parser that knows of such keys looks first."""
    found = _doubled_inside_sql(line, kind, options, "")
    known = may_have_other(line, kind, any_name=False)
    return f"if(try_parse_json({line}) is null or {known}, {found}, {_NONE})"


def _doubled_inside_sql(line: str, kind: T.DataType, options: Mapping[str, str], before: str) -> str:
    if isinstance(kind, T.StructType):
        parts = [_repeated_names_sql(_array_sql(kind.names), keys_sql(line, options), before)]
        for field in kind:
            if isinstance(field.dataType, T.ArrayType | T.MapType | T.StructType):
                value = value_under_key_sql(line, field.name, "string", options)
                parts.append(_doubled_inside_sql(value, field.dataType, options, f"{before}{field.name}."))
        return f"concat({', '.join(parts)})" if len(parts) > 1 else parts[0]
    if isinstance(kind, T.ArrayType):
        own, values, element = [], f"from_json({line}, 'array<string>', {as_map(options)})", kind.elementType
    else:
        assert isinstance(kind, T.MapType)
        own = [
            _repeated_names_sql(
                f"array_distinct({keys_sql(line, options)})", keys_sql(line, options), before, exactly=True
            )
        ]
        values, element = f"map_values(from_json({line}, {_MAP}, {as_map(options)}))", kind.valueType
    if isinstance(element, T.ArrayType | T.MapType | T.StructType):
        each = f"each{before.count('.')}"
        inner = _doubled_inside_sql(each, element, options, before)
        own.append(f"coalesce(array_distinct(flatten(transform({values}, {each} -> {inner}))), {_NONE})")
    return f"concat({', '.join(own)})" if own else _NONE


def _repeated_names_sql(names: str, keys: str, before: str, *, exactly: bool = False) -> str:
    """SQL for those of the names that are several of the keys, with what stands before them in their paths."""
    same = "key = name" if exactly else "lower(key) = lower(name)"
    found = f"filter({names}, name -> size(filter({keys}, key -> {same})) > 1)"
    return f"transform({found}, name -> concat({quote_text(before)}, name))" if before else found


def lacking_paths_sql(line: str, schema: T.StructType, options: Mapping[str, str]) -> str:
    """SQL for the paths of what the schema has and the object has not; of a struct that is NULL nothing is lacking."""
    found = f"if(size({{keys}}) = 0, {_NONE}, array_except({{names}}, {{keys}}))"
    inner = _collect_paths_sql(line, schema, options, "", lambda keys, names: found.format(keys=keys, names=names))
    return f"if({_is_empty(line, options)}, {_array_sql(schema.names)}, {inner})"


def _is_empty(line: str, options: Mapping[str, str]) -> str:
    return f"coalesce(size(from_json({line}, {_MAP}, {as_map(options)})) = 0, false)"


def list_paths(kind: T.DataType, before: str = "") -> Iterator[str]:
    """The paths of all fields in a type."""
    if isinstance(kind, T.StructType):
        for field in kind:
            yield before + field.name
            yield from list_paths(field.dataType, f"{before}{field.name}.")
    if isinstance(kind, T.ArrayType):
        yield from list_paths(kind.elementType, before)
    if isinstance(kind, T.MapType):
        yield from list_paths(kind.valueType, before)


def list_names(kind: T.DataType) -> Iterator[str]:
    """The names of all fields in a type."""
    if isinstance(kind, T.StructType):
        for field in kind:
            yield field.name
            yield from list_names(field.dataType)
    if isinstance(kind, T.ArrayType):
        yield from list_names(kind.elementType)
    if isinstance(kind, T.MapType):
        yield from list_names(kind.valueType)


def value_under_key_sql(line: str, name: str, kind: str, options: Mapping[str, str]) -> str:
    """SQL for the value under a key of the object in a text, as this type; as text, an object is JSON."""
    return f"from_json({line}, {quote_text(f'{quote_name(name)} {kind}')}, {as_map(options)}).{quote_name(name)}"


def _collect_paths_sql(line: str, kind: T.DataType, options: Mapping[str, str], before: str, found: Any) -> str:
    """SQL for what is `found` of the keys beside the names, in the object and in those inside it."""
    if isinstance(kind, T.StructType):
        own = found(keys_sql(line, options), _array_sql(kind.names))
        parts = [f"transform({own}, key -> concat({quote_text(before)}, key))" if before else own]
        for field in kind:
            if any(list_names(field.dataType)):
                value = value_under_key_sql(line, field.name, "string", options)
                parts.append(_collect_paths_sql(value, field.dataType, options, f"{before}{field.name}.", found))
        return f"concat({', '.join(parts)})" if len(parts) > 1 else parts[0]
    if isinstance(kind, T.ArrayType):
        values, element = f"from_json({line}, 'array<string>', {as_map(options)})", kind.elementType
    else:
        assert isinstance(kind, T.MapType)
        values, element = f"map_values(from_json({line}, {_MAP}, {as_map(options)}))", kind.valueType
    each = f"each{before.count('.')}"
    inner = _collect_paths_sql(each, element, options, before, found)
    return f"coalesce(array_distinct(flatten(transform({values}, {each} -> {inner}))), {_NONE})"


def _array_sql(names: Sequence[str]) -> str:
    return f"array({', '.join(map(quote_text, names))})" if names else _NONE


def _escape_pattern(name: str) -> str:
    """A pattern for exactly this name."""
    return "".join(each if each.isalnum() or each == "_" else f"\\{each}" for each in name)


_TAKEN = ("ignore", "rescue")
_KEYS = ("extra", "other")
_TWICE = "an object has this key more than once, but only one value can be kept: "
_SPELLED = " is spelled differently from the column, and keys must match exactly"


@dataclass(frozen=True, kw_only=True)
class JsonChanges:
    """What the policies say about the keys of objects that are to have this schema."""

    schema: T.StructType
    changes: Changes
    options: Mapping[str, str]

    @property
    def asks_missing(self) -> bool:
        """Whether a column that a line has not is anything to speak of."""
        return self.changes.missing != "evolve"

    @property
    def asks_extra(self) -> bool:
        """Whether a key that the schema has not is."""
        return self.changes.extra != "ignore"

    @property
    def asks_doubled(self) -> bool:
        """Whether a key that stands twice is."""
        return self.changes.doubled != "keep_last"

    @property
    def takes_apart(self) -> bool:
        """Whether lines are taken apart key by key: not all that does not fit is refused alike."""
        policies = {self.changes.wider, self.changes.other, self.changes.corrupt}
        return self.changes.rescues or not (is_whole(self.options) or policies <= {"nack", "evolve"})

    @property
    def only_keys(self) -> bool:
        """Whether only extra keys are rescued, so that nothing is to be taken apart where there are none."""
        return {self.changes.wider, self.changes.other, self.changes.corrupt} <= {"nack", "evolve"}

    @property
    def any_stops(self) -> bool:
        """Whether the run stops at anything."""
        return "stop" in vars(self.changes).values()

    def strange_paths_sql(self, line: str) -> str:
        """SQL for the paths of a line's keys that the schema has not, or in other letters, as far as anybody asks."""
        is_asked = "true" if self.asks_extra else self._is_spelled
        suspect = may_have_other(line, self.schema, any_name=self.asks_extra)
        found = strange_paths_sql(line, self.schema, self.options)
        return f"if({suspect}, filter({found}, path -> {is_asked}), cast(array() as array<string>))"

    def refusal_sql(self, line: str, paths: str | None = None) -> str:
        """SQL for what is wrong with the keys of a line, by the policies; NULL if there is nothing. `paths` are its
        `strange_paths_sql` ones, where they are known."""
        kinds = [kind for kind in _KEYS if getattr(self.changes, kind) not in _TAKEN]
        kinds += ["missing"] if self.asks_missing else []
        return self._message_sql(line, paths, [*kinds, "doubled"] if self.asks_doubled else kinds)

    def stop_sql(self, line: str, paths: str | None = None) -> str:
        """SQL for what is wrong with the keys of a line so that the run stops; NULL if there is nothing."""
        stops = {kind for kind in ("extra", "other", "missing") if getattr(self.changes, kind) == "stop"}
        return self._message_sql(line, paths, sorted(stops))

    def rescued_paths_sql(self, paths: str) -> str:
        """SQL for those of the `strange_paths_sql` paths that are rescued."""
        return f"filter({paths}, path -> {self._is_of([k for k in _KEYS if getattr(self.changes, k) == 'rescue'])})"

    def first_in_file_sql(self, line: str, found: str) -> str:
        """What is `found` of a line, for a whole file: of the first of its objects in which something is."""
        objects = f"from_json({as_array(line)}, 'array<string>', {as_map(self.options)})"
        return f"get(filter(transform({objects}, object -> {found}), said -> said is not null), 0)"

    @property
    def _is_spelled(self) -> str:
        known = f"array({', '.join(quote_text(path.lower()) for path in list_paths(self.schema))})"
        return f"array_contains({known}, lower(path))"

    def _is_of(self, kinds: Sequence[str]) -> str:
        """SQL that is true for a strange path that is of one of these kinds of change."""
        if set(kinds) >= set(_KEYS):
            return "true"
        return {(): "false", ("extra",): f"not {self._is_spelled}"}.get((*kinds,), self._is_spelled)

    def _message_sql(self, line: str, paths: str | None, kinds: Sequence[str]) -> str:
        parts = []
        asked = [kind for kind in kinds if kind in _KEYS]
        if asked:
            said = f"if({self._is_spelled}, concat(path, {quote_text(_SPELLED)}), concat('the schema has no ', path))"
            found = (
                f"transform(filter({paths or self.strange_paths_sql(line)}, path "
                f"-> {self._is_of(asked)}), path -> {said})"
            )
            parts.append(f"nullif(array_join({found}, '; '), '')")
        if "missing" in kinds:
            absent = f"array_join({lacking_paths_sql(line, self.schema, self.options)}, ', ')"
            parts.append(f"concat('there is no ', nullif({absent}, ''))")
        if "doubled" in kinds:
            twice = f"array_join({doubled_paths_sql(line, self.schema, self.options)}, ', ')"
            parts.append(f"concat({quote_text(_TWICE)}, nullif({twice}, ''))")
        return f"nullif(concat_ws('; ', {', '.join(parts)}), '')" if parts else "cast(null as string)"
