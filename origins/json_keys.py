"""The keys of a JSON object beside a schema: as SQL over a line, and as a look at files without Spark."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from origins.bad_lines import as_map
from origins.look import is_moderate, is_small, pieces
from origins.names import quoted, text

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_NONE = "cast(array() as array<string>)"
_MAP = text("map<string,string>")


def none_differs(files: Sequence[Path], schema: StructType, *, extra: bool, missing: bool, whole_file: bool) -> bool:
    """Whether a look at these files shows that all keys are as the schema has them; it does not look at large ones.

    Keys that the schema has not count with `extra`, or if they are one of its names in other letters; columns that a
    line has not count with `missing`.
    """
    try:
        if not is_moderate(files):
            return False
        small, shape, names = is_small(files), _shape(schema), {*names_in(schema)}
        for content in pieces(files, "utf-8-sig"):
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


def _shape(kind: DataType) -> _Shape:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        inside = ((field.name, _shape(field.dataType)) for field in kind if any(names_in(field.dataType)))
        names = frozenset(field.name for field in kind)
        return _Shape(names, frozenset(name.lower() for name in names), tuple(inside))
    if isinstance(kind, ArrayType):
        return _Shape(each=_shape(kind.elementType))
    return _Shape(each=_shape(kind.valueType)) if isinstance(kind, MapType) else _Shape()


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


def may_have_other(line: str, schema: DataType, *, any_name: bool) -> str:
    """SQL that is true for a line with a key that the schema has not, or only with one of its names in other letters.

    It may be true for other lines as well, but costs no parsing.
    """
    names = "|".join(sorted({_literal(name) for name in names_in(schema)}))
    other = r'(?:[^"\\]|\\.)*+' if any_name else f"(?iu:{names})"
    unlike = rf'"(?!(?:{names})"[ \t\r\n]*:){other}"[ \t\r\n]*:'
    escaped = r'"[^"]*\\u[^"]*"[ \t\r\n]*:'
    return f"{line} rlike {text(f'{unlike}|{escaped}')}"


def keys_of(line: str, options: Mapping[str, str]) -> str:
    """SQL for the keys of the object in a text; none if it is no object."""
    return f"coalesce(map_keys(from_json({line}, {_MAP}, {as_map(options)})), {_NONE})"


def strange(line: str, schema: StructType, options: Mapping[str, str]) -> str:
    """SQL for the paths (`address.zip`) of the keys that the schema has not, however deep."""
    return _paths(line, schema, options, "", lambda keys, names: f"array_except({keys}, {names})")


def doubled(line: str, kind: DataType, options: Mapping[str, str], before: str = "") -> str:
    """SQL for the paths of the fields that an object has more than once, whatever the case of letters, and of the keys
    of a map; of what no field has nothing is lost. One parser that knows of such keys looks first."""
    found = _doubled(line, kind, options, before)
    known = may_have_other(line, kind, any_name=False)
    return f"if(try_parse_json({line}) is null or {known}, {found}, {_NONE})"


def _doubled(line: str, kind: DataType, options: Mapping[str, str], before: str) -> str:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        parts = [_twice(_list(kind.names), keys_of(line, options), before)]
        for field in kind:
            if isinstance(field.dataType, ArrayType | MapType | StructType):
                value = inside(line, field.name, "string", options)
                parts.append(_doubled(value, field.dataType, options, f"{before}{field.name}."))
        return f"concat({', '.join(parts)})" if len(parts) > 1 else parts[0]
    if isinstance(kind, ArrayType):
        own, values, element = [], f"from_json({line}, 'array<string>', {as_map(options)})", kind.elementType
    else:
        assert isinstance(kind, MapType)
        own = [_twice(f"array_distinct({keys_of(line, options)})", keys_of(line, options), before, exactly=True)]
        values, element = f"map_values(from_json({line}, {_MAP}, {as_map(options)}))", kind.valueType
    if isinstance(element, ArrayType | MapType | StructType):
        each = f"each{before.count('.')}"
        inner = _doubled(each, element, options, before)
        own.append(f"coalesce(array_distinct(flatten(transform({values}, {each} -> {inner}))), {_NONE})")
    return f"concat({', '.join(own)})" if own else _NONE


def _twice(names: str, keys: str, before: str, *, exactly: bool = False) -> str:
    """SQL for those of the names that are several of the keys, with what stands before them in their paths."""
    same = "key = name" if exactly else "lower(key) = lower(name)"
    found = f"filter({names}, name -> size(filter({keys}, key -> {same})) > 1)"
    return f"transform({found}, name -> concat({text(before)}, name))" if before else found


def lacking(line: str, schema: StructType, options: Mapping[str, str]) -> str:
    """SQL for the paths of what the schema has and the object has not; of a struct that is NULL nothing is lacking."""
    found = f"if(size({{keys}}) = 0, {_NONE}, array_except({{names}}, {{keys}}))"
    inner = _paths(line, schema, options, "", lambda keys, names: found.format(keys=keys, names=names))
    return f"if({_is_empty(line, options)}, {_list(schema.names)}, {inner})"


def _is_empty(line: str, options: Mapping[str, str]) -> str:
    return f"coalesce(size(from_json({line}, {_MAP}, {as_map(options)})) = 0, false)"


def paths_in(kind: DataType, before: str = "") -> Iterator[str]:
    """The paths of all fields in a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for field in kind:
            yield before + field.name
            yield from paths_in(field.dataType, f"{before}{field.name}.")
    if isinstance(kind, ArrayType):
        yield from paths_in(kind.elementType, before)
    if isinstance(kind, MapType):
        yield from paths_in(kind.valueType, before)


def names_in(kind: DataType) -> Iterator[str]:
    """The names of all fields in a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        for field in kind:
            yield field.name
            yield from names_in(field.dataType)
    if isinstance(kind, ArrayType):
        yield from names_in(kind.elementType)
    if isinstance(kind, MapType):
        yield from names_in(kind.valueType)


def inside(line: str, name: str, kind: str, options: Mapping[str, str]) -> str:
    """SQL for the value under a key of the object in a text, as this type; as text, an object is JSON."""
    return f"from_json({line}, {text(f'{quoted(name)} {kind}')}, {as_map(options)}).{quoted(name)}"


def _paths(line: str, kind: DataType, options: Mapping[str, str], before: str, found: Any) -> str:
    """SQL for what is `found` of the keys beside the names, in the object and in those inside it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        own = found(keys_of(line, options), _list(kind.names))
        parts = [f"transform({own}, key -> concat({text(before)}, key))" if before else own]
        for field in kind:
            if any(names_in(field.dataType)):
                value = inside(line, field.name, "string", options)
                parts.append(_paths(value, field.dataType, options, f"{before}{field.name}.", found))
        return f"concat({', '.join(parts)})" if len(parts) > 1 else parts[0]
    if isinstance(kind, ArrayType):
        values, element = f"from_json({line}, 'array<string>', {as_map(options)})", kind.elementType
    else:
        assert isinstance(kind, MapType)
        values, element = f"map_values(from_json({line}, {_MAP}, {as_map(options)}))", kind.valueType
    each = f"each{before.count('.')}"
    inner = _paths(each, element, options, before, found)
    return f"coalesce(array_distinct(flatten(transform({values}, {each} -> {inner}))), {_NONE})"


def _list(names: Sequence[str]) -> str:
    return f"array({', '.join(map(text, names))})" if names else _NONE


def _literal(name: str) -> str:
    """A pattern for exactly this name."""
    return "".join(each if each.isalnum() or each == "_" else f"\\{each}" for each in name)
