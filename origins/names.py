"""Names of columns and tables, as they are put into SQL."""

from __future__ import annotations

import re

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""How a URL begins."""
TABLE = re.compile(r"(?:[^\W\d]\w*|\d\w*|`(?:``|[^`])+`)(?:\.(?:\w+|`(?:``|[^`])+`)){0,3}")
"""A table's name, with the catalog's and the schema's before it or without."""
_NO_TABLE = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
)
HIDDEN = "_wherry_"
"""How the names of our own columns begin; an origin's rows may not have such a column."""


def last_part(place: str) -> str:
    """The last part of a path or of a table's name."""
    if "/" in place or "\\" in place:
        return re.split(r"[/\\]", place.rstrip("/\\"))[-1]
    return last_of_table(place)


def last_of_table(name: str) -> str:
    """The table's own name, whatever stands in it."""
    parts: list[str] = re.findall(r"`(?:``|[^`])*`|[^.`]+", name)
    own = parts[-1] if parts else ""
    return own[1:-1].replace("``", "`") if own.startswith("`") else own


def quoted(name: str) -> str:
    """The name as one SQL identifier, whatever stands in it."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """The value as a SQL string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def below(root: str, path: str) -> str:
    """SQL for the name of a file relative to a root; `path` is SQL for its path as Spark's `_metadata` has it."""
    told = path_told(path)
    base = text(root.removeprefix("file:").rstrip("/") + "/")
    return f"substring({told}, locate({base}, {told}) + char_length({base}))"


def path_told(path: str) -> str:
    """SQL for a file's path as people write it, from the URL that Spark's `_metadata` has."""
    told = f"url_decode(replace({path}, '+', '%2B'))"  # which would make a space of a plus sign
    return f"if(contains({path}, '%'), {told}, {path})"  # decoding is dear, and seldom needed


def no_such_table(error: Exception) -> bool:
    """Whether Spark says that there is no table of this name, or none at this place."""
    return any(condition in str(error) for condition in _NO_TABLE)
