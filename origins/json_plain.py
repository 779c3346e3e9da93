"""A look at files of JSON without Spark: whether each line surely is the row that Spark's parser makes of it.

Spark's parser changes some values without a word: a number that is too large for a float becomes infinite, half of a
surrogate pair a question mark, control characters around a time are cut off, and of a key that stands twice the last
value wins. Plain lines have none of these; they are known by one pattern. Others are looked at more closely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from origins.json_keys import names_in
from origins.look import is_moderate, is_small, pieces

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import DataType, StructType

_TRIES, _MOST = 8, 100
"""So often a pattern learns of other keys, and so many it knows at most."""
_TEXT = r'"(?:[^"\\\x7f]|\\[^ub])*"'
_NUMBER = r"-?[0-9]{1,38}(?:\.[0-9]*)?|-?[0-9]{1,9}(?:\.[0-9]*)?[eE](?:-[0-9]+|\+?[0-2]?[0-9])"
"""Surely finite, also as a `float`."""
_BLANK = r"[ \t]*"
_SINGLE = rf"(?:{_TEXT}|{_NUMBER}|true|false|null)"
_VALUE = rf"(?:{_SINGLE}|\[{_BLANK}(?:{_SINGLE}{_BLANK}(?:,{_BLANK})?)*\])"
_LARGE = r"[eE]\+?[0-9]{2}|[0-9]{39}"
_HALF = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
    r"|\\\\u[dD]"
)
_CUT = ("\\u00", "\\b", "\x7f")
"""How control characters are written, which Spark cuts off times."""


def all_plain(files: Sequence[Path], schema: StructType, *, extra: bool, missing: bool) -> bool:
    """Whether all lines of these files are plain: an object of single values, or arrays of them, whose keys come in
    one order, each once, exactly as the schema has them. It does not look at large files.

    Keys that the schema has not count with `extra`; columns that a line has not count with `missing`.
    """
    try:
        if not is_moderate(files):
            return False
        keys: list[str] = []
        for content in pieces(files, "utf-8-sig"):
            lines = _lines(content)
            for _ in range(_TRIES):
                lines = _unlike(lines, keys, all_there=missing)
                if not len(lines) or not _learn(keys, lines[0].as_py()):
                    break
            if len(lines):
                return False
        return _are_known(keys, {*schema.names}, extra) and not (missing and {*schema.names} - {*keys})
    except (ValueError, RecursionError, OSError):
        return False


def none_changes(files: Sequence[Path], schema: StructType, *, doubled: bool, whole_file: bool) -> bool:
    """Whether a look at these files shows that Spark's parser changes no value, and that no object has a key twice if
    that counts (`doubled`); it does not look at large files."""
    import pyarrow.compute as pc

    try:
        if not is_moderate(files):
            return False
        small, kinds, names = is_small(files), {*_kinds_in(schema)}, {*names_in(schema)}
        for content in pieces(files, "utf-8-sig"):
            if "\\u" in content and has_half(content):
                return False
            if kinds & {"date", "timestamp", "timestamp_ntz"} and any(each in content for each in _CUT):
                return False
            lines = _lines(content)
            if kinds & {"float", "double"} and pc.any(pc.match_substring_regex(lines, _LARGE)).as_py():
                return False
            if doubled and small:
                for text in [content] if whole_file else content.split("\n"):
                    if text.strip():
                        json.loads(text, object_pairs_hook=_once)
            elif doubled and (whole_file or "map" in kinds or not _stand_once(lines, names)):
                return False
        return True
    except (ValueError, RecursionError, OSError):
        return False


def has_half(content: str) -> bool:
    """Whether half of a surrogate pair may stand there; where backslashes are written in JSON that is not told."""
    return _HALF.search(content) is not None


def _lines(content: str) -> pyarrow.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.split_pattern(pa.array([content], pa.large_string()), "\n").flatten()


def _unlike(lines: pyarrow.Array, keys: Sequence[str], *, all_there: bool) -> pyarrow.Array:
    """The lines that are not plain objects with these keys, in this order."""
    import pyarrow.compute as pc

    once = "" if all_there else "?"
    items = "".join(
        rf'(?:"{re.escape(key)}"{_BLANK}:{_BLANK}{_VALUE}{_BLANK}(?:,{_BLANK}|\}}{_BLANK}\z)){once}' for key in keys
    )
    plain = rf"\A{_BLANK}(?:\{{{_BLANK}{items}(?:\}}{_BLANK})?)?\z"
    return lines.filter(pc.invert(pc.match_substring_regex(lines, plain)))


def _learn(keys: list[str], line: str) -> bool:
    """Put the keys of this line among those that are known, in its order; False where that is not to be had."""
    found = json.loads(line, object_pairs_hook=_once)
    if not isinstance(found, dict) or not found.keys() - {*keys} or any(map(_is_odd, found)):
        return False
    at = 0
    for key in found:
        if key not in keys:
            keys.insert(at, key)
        at = keys.index(key) + 1
    return len(keys) <= _MOST


def _is_odd(key: str) -> bool:
    return not re.fullmatch(r"[\w .-]*", key)


def _are_known(keys: Collection[str], names: Collection[str], extra: bool) -> bool:
    in_small = {name.lower() for name in names}
    strange = [key for key in keys if key not in names]
    return not strange or not (extra or any(key.lower() in in_small for key in strange))


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object none of whose keys stands twice, whatever the case of its letters. Raises ValueError for another."""
    found = dict(pairs)
    if len(found) < len(pairs) or len({key.lower() for key in found}) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _stand_once(lines: pyarrow.Array, names: Collection[str]) -> bool:
    """Whether none of these names stands on a line twice, so that there is nothing to parse for."""
    import pyarrow.compute as pc

    return all((pc.max(pc.count_substring(lines, f'"{name}"')).as_py() or 0) <= 1 for name in names)


def _kinds_in(kind: DataType) -> Iterator[str]:
    """The names of all types in a type."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield kind.typeName()
    if isinstance(kind, StructType):
        for field in kind:
            yield from _kinds_in(field.dataType)
    if isinstance(kind, ArrayType):
        yield from _kinds_in(kind.elementType)
    if isinstance(kind, MapType):
        yield from _kinds_in(kind.valueType)
