"""What stands behind the value on a line of JSON. Spark's parser stops there, and never sees the rest.

A line is looked at as text. One whose first closing brace is its last character is clean; a pattern knows most of the
others. What it does not know is parsed once more, inside brackets that anything behind the value would break. Files on
this machine that are not large are looked at without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from origins.files.scan_small import is_moderate, is_small, read_pieces
from origins.names import quote_text

_DEEPEST = 5
"""Objects inside objects, as many as the pattern follows."""
_AROUND = r"^[ \t\r\n]*+(?:\[[ \t\r\n,]*+\][ \t\r\n]*+)?\z"
"""What stands around the objects of a whole file."""
_BLANK = r"[ \t\r\n]*+"
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_IS_ARRAY = r"^[ \t\r\n]*\["
_ENDS_ARRAY = r"[}\]][ \t\r\n]*\]"
_OBJECT = "struct<x string>"


def has_tail(value: str, options: str, *, whole_file: bool) -> str:
    """SQL that is true for a line with more on it than one object; for a whole file, than one object or one array.

    It is never NULL. What is no JSON at all may or may not be said to have a tail.
    """
    if whole_file:
        return f"(not {_matches_sql(value, _ONE_VALUE)} and not {_stands_alone_sql(value, options, 'string')})"
    trimmed = f"rtrim({value})"
    nested = f"locate('}}', {trimmed}) <> char_length({trimmed})"
    alone = f"not {is_array(value)} and {_stands_alone_sql(value, options, _OBJECT)}"
    return f"({nested} and not {_matches_sql(value, _ONE_OBJECT)} and not ({alone}))"


def is_array(value: str) -> str:
    """SQL that is true for text that begins as an array does."""
    return _matches_sql(value, _IS_ARRAY)


def as_array(value: str) -> str:
    """SQL for the text of a whole file as an array, if it is one or an object."""
    return f"if({is_array(value)}, {value}, concat('[', {value}, '\\n]'))"


def split_objects_sql(value: str) -> str:
    """SQL for the texts of the objects in the text of a whole file, unchanged; NULL if some are too deep."""
    pattern = quote_text(_pattern(_DEEPEST))
    rest = f"regexp_replace({value}, {pattern}, '')"
    return f"if({_matches_sql(rest, _AROUND)}, regexp_extract_all({value}, {pattern}, 0), null)"


def none_has_tail(files: Sequence[Path], *, whole_file: bool) -> bool:
    """Whether a look at these files shows that no value has a tail; it does not look at large ones, or at odd JSON."""
    try:
        if not is_moderate(files):
            return False
        small = is_small(files)
        flat = _all_flat if not whole_file else lambda _: False
        contents = read_pieces(files, "utf-8-sig")
        return all(flat(content) or (small and _is_clean(content, whole_file)) for content in contents)
    except (ValueError, RecursionError, OSError):
        return False


def _all_flat(content: str) -> bool:
    """Whether on every line an object begins that can only end at its end, as numbers of what stands there show: each
    line begins with an opening brace, each closing one ends a line, and there are as many of these as lines."""
    lines = content.count("\n") + (not content.endswith("\n"))
    begins = content.startswith("{") + content.count("\n{")
    ends = content.endswith("}") + content.count("}\n")
    return begins == lines == ends == content.count("}")


def _is_clean(content: str, whole_file: bool) -> bool:
    if whole_file:
        return isinstance(json.loads(content), dict | list)
    lines = (line.strip(" \t") for line in content.split("\n"))
    return all(_is_flat(line) or isinstance(json.loads(line), dict) for line in lines if line)


def _is_flat(line: str) -> bool:
    """Whether an object that begins here can only end at the end."""
    return line[0] == "{" and line.find("}") == len(line) - 1


def _pattern(depth: int) -> str:
    """A pattern for an object with so many inside each other. It knows text, so that braces there mean nothing."""
    inside = [r"""[^{}"'/]++""", _STRING, *([_pattern(depth - 1)] if depth else [])]
    return rf"\{{(?:{'|'.join(inside)})*+\}}"


_ONE_OBJECT = rf"(?s)^{_BLANK}(?:\{{[^{{}}]*+\}}|{_pattern(_DEEPEST)})?{_BLANK}\z"
_ONE_VALUE = rf"(?s)^{_BLANK}(?:\[(?:[^\[\]{{}}\"'/]++|{_STRING}|{_pattern(2)})*+\]|{_pattern(_DEEPEST)})?{_BLANK}\z"


def _stands_alone_sql(value: str, options: str, kind: str) -> str:
    """Whether the value is all there is. What breaks out of the one pair of brackets breaks the other."""
    in_an_array = _is_one(f"concat('[', {value}, '\\n]')", options, kind)
    in_an_object = _is_one(f"concat('[{{\"\":', {value}, '\\n}}]')", options, _OBJECT)
    return f"({in_an_array} and (not {_matches_sql(value, _ENDS_ARRAY)} or {in_an_object}))"


def _is_one(array: str, options: str, kind: str) -> str:
    return f"size(from_json({array}, {quote_text(f'array<{kind}>')}, {options})) <=> 1"


def _matches_sql(value: str, pattern: str) -> str:
    return f"{value} rlike {quote_text(pattern)}"
