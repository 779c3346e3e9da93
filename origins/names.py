"""Names of columns, tables and files: in SQL, in a definition, and in Spark's metadata."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import SupportsIndex

from origins.errors import has_condition
from origins.lazy import SparkSession
from origins.secret import NotedValue

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""The beginning of a URL."""
TABLE = re.compile(r"(?:[^\W\d]\w*|\d\w*|`(?:``|[^`])+`)(?:\.(?:\w+|`(?:``|[^`])+`)){0,3}")
"""A table's name, with or without its catalog and schema."""
_NO_TABLE = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
)
HIDDEN = "_wherry_"
"""The prefix of Wherry's column names. An origin's rows may not have such a column."""


def get_last_part(place: str) -> str:
    """Return the last part of a path or of a table's name."""
    if "/" in place or "\\" in place:
        return re.split(r"[/\\]", place.rstrip("/\\"))[-1]
    return get_table_name(place)


def get_table_name(name: str) -> str:
    """Return the last part of a table's name, with any characters."""
    parts: list[str] = re.findall(r"`(?:``|[^`])*`|[^.`]+", name)
    return unquote_name(parts[-1]) if parts else ""


def quote_name(name: str) -> str:
    """Return the name as one SQL identifier, with any characters."""
    return "`" + name.replace("`", "``") + "`"


def unquote_name(name: str) -> str:
    """Return the name in this SQL identifier, which may be quoted."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def quote_text(value: str) -> str:
    """Return the value as a SQL string literal in which Spark sees no variable such as `${name}`."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{") + "'"


def quote_in_hex(value: str) -> str:
    """Return the value as a SQL string for Spark and for deltalake, whose literals differ."""
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def quote_moment(moment: datetime) -> str:
    """Return the moment as SQL for Spark and for deltalake. It must have a zone."""
    return f"timestamp '{moment.astimezone(timezone.utc).isoformat()}'"


def escape_name(name: str) -> str:
    """Return a pattern for Java that fits only this name."""
    return re.sub(r"\W", r"\\\g<0>", name)


def quote_map(entries: Mapping[str, str]) -> str:
    """Return a map of texts as SQL."""
    return f"map({', '.join(quote_text(each) for entry in entries.items() for each in entry)})"


def make_relative_name_sql(root: str, path: str) -> str:
    """Return SQL for a file's name relative to a root. `path` is SQL for its path in Spark's `_metadata`."""
    path_sql = make_file_path_sql(path)
    base = quote_text(root.removeprefix("file:").rstrip("/") + "/")
    return f"substring({path_sql}, locate({base}, {path_sql}) + char_length({base}))"


def make_file_path_sql(path: str) -> str:
    """Return SQL for a file's path as people write it, from the URL in Spark's `_metadata`."""
    decoded = f"url_decode(replace({path}, '+', '%2B'))"  # url_decode would turn a plus sign into a space
    return f"if(contains({path}, '%'), {decoded}, {path})"  # decoding is expensive and seldom needed


def is_no_such_table(error: Exception) -> bool:
    """Return whether Spark reports that no table has this name or is at this place."""
    return has_condition(error, *_NO_TABLE)


class GivenPath(NotedValue, str):
    """A complete path. `given` is the same path as the definition gives it."""

    given: str

    def __new__(cls, path: str, given: str) -> GivenPath:
        made = super().__new__(cls, path)
        made.given = given
        return made

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> GivenPath:
        return GivenPath(super().replace(old, new, count), self.given.replace(old, new, count))


def list_given_paths(paths: Iterable[str | None]) -> list[str]:
    """Return the paths as given if all are relative; else an empty list.

    An absolute path always names the same place.
    """
    found = []
    for path in paths:
        given = path.given if isinstance(path, GivenPath) else path
        if not given or os.path.isabs(given) or SCHEME.match(given):
            return []
        found.append(os.path.normpath(given))
    return found


def make_absolute(path: str) -> str:
    """Return the path from the root of this machine; a URL is returned unchanged."""
    return path if SCHEME.match(path) else os.path.abspath(path)


_ON_ONE_DISK: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def declare_one_disk(spark: SparkSession) -> None:
    """Record that this session's Spark and this process see the same files."""
    _ON_ONE_DISK.add(spark)


def is_one_disk(spark: SparkSession) -> bool:
    """Return whether that was recorded for the session. Spark is not asked."""
    return spark in _ON_ONE_DISK
