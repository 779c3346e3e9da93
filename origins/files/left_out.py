"""The columns of files that a written schema leaves out, by the heads of a few files. It needs no Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

from origins.errors import OriginError
from origins.files.csv_header import OPENERS, get_encoding, read_header
from origins.files.file_systems import File
from origins.files.heads import look_at_json
from origins.files.listing import PACKED, FilePattern
from origins.lazy import SparkSession, pa, pq
from origins.store_access import StoreError

_HEAD, _OBJECTS = 64 << 10, 20
"""How many bytes and objects of a JSON file are looked at."""
_FEW = 3
"""How many files of this machine are looked at. In a store only the newest one is, since each is a request."""


def list_left_out(
    place: FilePattern, files: Sequence[File], kind: str, options: Mapping[str, str], known: Collection[str]
) -> list[str]:
    """Return the columns of a few of these files, the newest last, that are not `known`. Case does not matter.

    A file that cannot be read has none: a run reports it.
    """
    if not place.is_read_here:
        return []
    some = [*files[:1], *files[1:][1 - _FEW :]] if place.local else files[-1:]
    ours, found = {name.lower() for name in known}, dict[str, str]()
    for file in some:
        try:
            place.look_at(file)
            columns = _list_columns(place, file.name, kind, options)
        except (OriginError, StoreError, OSError, EOFError, LookupError, ValueError, pa.ArrowException):
            continue
        for column in map(str.strip, columns):
            if column and column.lower() not in ours:
                found.setdefault(column.lower(), column)
    return list(found.values())


def _list_columns(place: FilePattern, name: str, kind: str, options: Mapping[str, str]) -> Sequence[str]:
    if name.endswith(PACKED) and not name.endswith((*OPENERS,)):
        return ()
    if kind == "csv":
        has_header = options.get("header", "true") == "true"
        return read_header(cast("SparkSession", None), place, name, options) or () if has_header else ()
    file = place.find_file(name)
    with file.open("rb") as packed:
        if kind == "parquet":
            return cast("list[str]", pq.read_schema(packed).names)
        opener = OPENERS.get(Path(name).suffix)
        start = bytes((opener(packed) if opener else packed).read(_HEAD))
    lines = start.decode(get_encoding(options), "replace").split("\n", _OBJECTS)  # the last one is the rest
    return look_at_json([line for line in lines if line.strip()], _OBJECTS, {}, is_cut=True).columns
