"""Names of columns and tables, as they are put into SQL."""

from __future__ import annotations

HIDDEN = "_wherry_"
"""How the names of our own columns begin; an origin's rows may not have such a column."""


def quoted(name: str) -> str:
    """The name as one SQL identifier, whatever stands in it."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """The value as a SQL string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def below(root: str, path: str) -> str:
    """SQL for the name of a file relative to a root; `path` is SQL for its path as Spark's `_metadata` has it."""
    told = f"url_decode(replace({path}, '+', '%2B'))"  # which would make a space of a plus sign
    base = text(root.removeprefix("file:").rstrip("/") + "/")
    return f"substring({told}, locate({base}, {told}) + char_length({base}))"
