"""Columns that no line holds: what the folders above a file say (`day=2026-01-01`), and what is known of the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from origins.errors import OriginError
from origins.exact import is_changed
from origins.listing import Place
from origins.names import HIDDEN, below, path_told, text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

FILE = HIDDEN + "file"
"""The column with Spark's own `_metadata`."""
_PATH = path_told(f"{FILE}.file_path")
METADATA: Mapping[str, tuple[str, str]] = {
    "file_path": ("string", _PATH),
    "file_name": ("string", f"substring_index({_PATH}, '/', -1)"),
    "file_size": ("long", f"{FILE}.file_size"),
    "file_modification_time": ("timestamp", f"{FILE}.file_modification_time"),
}
"""What may be asked of a file: the type, and how it is got."""
_NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""How a folder is called in which the column is NULL."""


def with_folders(schema: StructType | None, folders: Sequence[str]) -> StructType | None:
    """The schema that was found in files, with columns of text for what their folders say."""
    from pyspark.sql.types import StringType, StructField, StructType

    if schema is None:
        return None
    known = {name.lower() for name in schema.names}
    return StructType(
        [*schema.fields, *(StructField(name, StringType()) for name in folders if name.lower() not in known)]
    )


def with_metadata(schema: StructType, names: Sequence[str]) -> StructType:
    """The schema with columns of what is known of a file."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    types = {"string": StringType(), "long": LongType(), "timestamp": TimestampType()}
    return StructType([*schema.fields, *(StructField(name, types[METADATA[name][0]]) for name in names)])


def folder_columns(name: str) -> dict[str, str | None]:
    """The columns that the folders of a file give, by their names in small letters, with their values."""
    return {key.lower(): None if value == _NOTHING else unquote(value) for key, value in _pairs(name)}


def names_of_folders(names: Iterable[str]) -> list[str]:
    """The columns that the folders of these files give, as they are written there first."""
    found: dict[str, str] = {}
    for name in names:
        for key, _ in _pairs(name) if "=" in name else ():
            found.setdefault(key.lower(), key)
    return list(found.values())


def _pairs(name: str) -> Iterator[tuple[str, str]]:
    for folder in name.split("/")[:-1]:
        key, is_one, value = folder.partition("=")
        if is_one and key:
            yield key, value


def from_folder(root: str, column: StructField) -> str:
    """SQL for the value that the folders above a file give for a column."""
    key = re.sub(r"([^\w])", r"\\\1", column.name)
    found = f"regexp_extract({below(root, f'{FILE}.file_path')}, {text(f'(?iu)(?:^|/){key}=([^/]*)/')}, 1)"
    value = f"coalesce(try_url_decode(replace({found}, '+', '%2B')), {found})"
    return f"cast(nullif({value}, {text(_NOTHING)}) as {column.dataType.simpleString()})"


def index_of(root: str, groups: Sequence[Sequence[str]]) -> str:
    """SQL for the place, from 0, of the group that a file is in; raises if it is in none."""
    path = below(root, f"{FILE}.file_path")
    cases = [f"when {path} in ({', '.join(map(text, names))}) then {at}" for at, names in enumerate(groups) if names]
    said = f"concat({path}, ' is read, and belongs to none of the batches that are read with it')"
    return f"case {' '.join(cases)} else raise_error({said}) end"


def check_folders(spark: SparkSession, place: Place, names: Sequence[str], columns: Sequence[StructField]) -> None:
    """Raises `OriginError` for the first file whose folders give a value that is none of the column's type."""
    typed = {column.name.lower(): column for column in columns if column.dataType.typeName() != "string"}
    first: dict[tuple[str, str], str] = {}
    for name in names if typed else ():
        for key, value in folder_columns(name).items():
            if key in typed and value is not None:
                first.setdefault((key, value), name)
    if not first:
        return
    casts = []
    for key, value in first:
        kind = typed[key].dataType.simpleString()
        cast = f"try_cast({text(value)} as {kind})"
        casts.append(f"{cast} is null or coalesce({is_changed(text(value), kind, cast)}, false)")
    wrong = spark.sql(f"select array({', '.join(casts)})").collect()[0][0]
    for ((key, value), name), is_wrong in zip(first.items(), wrong, strict=True):
        if is_wrong:
            raise OriginError(
                f"{place.full(name)} lies in a folder that says {typed[key].name}={value}, "
                f"and {value!r} is no {typed[key].dataType.simpleString()}.",
                hint="Give the folder another name, move it out of the path, or make the column a string.",
            )
