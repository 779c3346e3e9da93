"""Parquet files as a Delta table in a folder has them. Those that Spark wrote it takes over, without a row being read
and written again; few rows are written here as Spark would have."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.delta_append import open_to_readers
from origins.batch import JSON
from origins.parquet_here import LEGACY, opened

if TYPE_CHECKING:
    import pyarrow

COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
"""Where Spark notes in a file which columns it has."""
_INDEXED = 32
"""Of so many columns a table's log says what is in a file."""
_BEGIN = datetime(1970, 1, 1)
_COMPARED = ("byte", "short", "integer", "long", "float", "double", "decimal", "string", "date", "timestamp")
"""The types of which it says the least and the highest."""
_EXACT = 15
"""The digits up to which a decimal survives as a floating point number, which is how readers read what it says of one;
by a wrong one they would pass over the file."""
_NOTED = ("byte", "short", "integer", "long", "string", "date")
"""Those of which a file of Spark's notes them itself, in a form that Python compares as Spark does."""
_LONGEST = 32
"""The characters of a text that are enough to compare it."""
_LAST = "\U0010ffff"
"""No character comes behind it."""
_GROUP = 64 << 20
"""The bytes, before they are packed, that lie together in a file."""


@dataclass(frozen=True)
class Adoptable:
    """Files with rows, all of the same columns."""

    files: Sequence[Path]
    columns: Mapping[str, JSON]
    """As Spark describes them."""
    rows: int

    @staticmethod
    def of(files: Sequence[Path]) -> Adoptable | None:
        """Of these files; None if Spark did not write them, or not with one schema, or with the days of another
        calendar."""
        from pyarrow import parquet

        footers = {file: parquet.read_metadata(file) for file in files}
        told = {(footer.metadata or {}).get(COLUMNS.encode()) for footer in footers.values()}
        (columns,) = told if len(told) == 1 else [None]
        if columns is None or any(LEGACY & set(footer.metadata) for footer in footers.values()):
            return None
        filled = [file for file, footer in footers.items() if footer.num_rows]
        return Adoptable(filled, json.loads(columns), sum(footer.num_rows for footer in footers.values()))


def renamed(found: Adoptable) -> dict[str, Path]:
    """The files by the names that they get in a table's folder, where no others have them."""
    return {
        f"part-{at:05}-{uuid.uuid4()}-c000{''.join(file.suffixes[-2:])}": file for at, file in enumerate(found.files)
    }


def told_of(files: Mapping[str, Path], columns: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    """What a table's log says of files with these names in its folder."""
    plain = [each for each in columns["fields"][:_INDEXED] if isinstance(each["type"], str) and "." not in each["name"]]
    kinds = {each["name"]: each["type"] for each in plain}
    return [
        {
            "path": name,
            "partitionValues": {},
            "size": found.st_size,
            "modificationTime": found.st_mtime_ns // 1_000_000,
            "dataChange": True,
            "stats": json.dumps(statistics(file, kinds)),
        }
        for name, file in files.items()
        for found in [file.stat()]
    ]


def write(pieces: Iterable[pyarrow.Table], schema: pyarrow.Schema, columns: str, file: Path) -> None:
    """Write rows as one parquet file, of which Spark reads the very types and days that it would have written.
    `columns` is how Spark describes them."""
    import pyspark
    from pyarrow import concat_tables, parquet

    with (
        file.open("wb") as new,
        parquet.ParquetWriter(new, schema.remove_metadata(), store_schema=False) as writer,
    ):
        for group in _grouped(pieces):
            writer.write_table(concat_tables(group).replace_schema_metadata())
        writer.add_key_value_metadata({"org.apache.spark.version": pyspark.__version__, COLUMNS: columns})


def _grouped(pieces: Iterable[pyarrow.Table]) -> Iterator[list[pyarrow.Table]]:
    """The pieces, as many together as lie together in a file."""
    group: list[pyarrow.Table] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += piece.nbytes
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def bring(files: Mapping[str, Path], folder: Path) -> None:
    """The files under these names in the folder, too, as new ones: what clears the folder up may take old ones for
    left over. A file gets another name only if a new one in that folder would be just as open; else it is copied."""
    wanted = _access_of_new(folder)
    for name, file in files.items():
        here = folder / name
        try:
            if _access(file) == wanted:
                here.hardlink_to(file)
                os.utime(here)
                continue
        except OSError:  # another disk, one that knows no links, or a file of somebody else's
            here.unlink(missing_ok=True)
        shutil.copyfile(file, here)


def _access_of_new(folder: Path) -> tuple[object, ...]:
    """Who may do what with a file that Spark makes in the folder."""
    new = folder / f"_probe-{uuid.uuid4()}"
    try:
        new.touch()
        open_to_readers(new)
        return _access(new)
    finally:
        new.unlink(missing_ok=True)


def _access(file: Path) -> tuple[object, ...]:
    """Who may do what with a file: its owner, group and mode, and the lists and labels that a system keeps beside."""
    found = file.stat()
    try:
        beside = {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except (AttributeError, OSError):  # a system or a disk that keeps nothing beside
        beside = {}
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode), beside


def statistics(file: Path, kinds: Mapping[str, str]) -> dict[str, JSON]:
    """How many rows a file has, and of these columns how many are NULL, the least and the highest, as Delta writes it;
    nothing of one that other readers may compare otherwise."""
    whole = opened(file)
    found = {name: _noted(whole.metadata, name) for name, kind in kinds.items() if kind in _NOTED}
    read = [name for name in kinds if found.get(name) is None]
    found |= {name: (0, []) for name in read}
    for piece in whole.iter_batches(columns=read) if read else ():
        for name in read:
            nulls, ends = found[name] or (0, [])
            found[name] = nulls + piece[name].null_count, ends + _ends(piece[name], kinds[name])
    said: dict[str, dict[str, JSON]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, kind in kinds.items():
        said["nullCount"][name], ends = found[name] or (0, [])
        if ends and not any(isinstance(each, float) and not math.isfinite(each) for each in ends):
            said["minValues"][name] = _told(min(ends), kind, highest=False)
            said["maxValues"][name] = _told(max(ends), kind, highest=True)
    known = {of: {name: value for name, value in each.items() if value is not None} for of, each in said.items()}
    return {"numRecords": whole.metadata.num_rows, **known}


def _noted(footer: pyarrow.parquet.FileMetaData, name: str) -> tuple[int, list[Any]] | None:
    """What the file itself notes of a column: NULLs, and the ends of each group of rows; None where one is missing."""
    nulls, ends = 0, []
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        columns = (group.column(index) for index in range(group.num_columns))
        noted = next(each.statistics for each in columns if each.path_in_schema == name)
        if noted is None or not noted.has_null_count or not (noted.has_min_max or noted.null_count == group.num_rows):
            return None
        nulls += noted.null_count
        ends += [noted.min_raw, noted.max_raw] if noted.has_min_max else []
    return nulls, ends


def _ends(column: pyarrow.Array, kind: str) -> list[Any]:
    """The least and the highest, in such a form; NaN too, if it is there. Nothing where the type is not compared."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind.partition("(")[0] not in _COMPARED or (pa.types.is_decimal(column.type) and column.type.precision > _EXACT):
        return []
    if kind == "timestamp":
        column = column.cast(pa.timestamp("us", column.type.tz))
    plain = {"string": pa.binary(), "date": pa.int32(), "timestamp": pa.int64()}.get(kind)
    found = pc.min_max(column if plain is None else column.cast(plain)).as_py()
    values = [value for value in found.values() if value is not None]
    if kind in ("float", "double") and pc.any(pc.is_nan(column)).as_py():
        values.append(math.nan)
    return values


def _told(value: Any, kind: str, *, highest: bool) -> JSON:
    """A value as the log has it: surely no higher than the least, or no lower than the highest. None if it cannot."""
    try:
        if kind == "string":
            text = value.decode()
            if len(text) <= _LONGEST or not highest:
                return text[:_LONGEST]
            return None if text[_LONGEST] == _LAST else text[:_LONGEST] + _LAST
        if kind == "date":
            return (_BEGIN + timedelta(days=value)).date().isoformat()
        if kind == "timestamp":
            millis = -(-value // 1000) if highest else value // 1000
            moment = _BEGIN + timedelta(milliseconds=millis)
            return f"{moment:%Y-%m-%dT%H:%M:%S}.{millis % 1000:03}Z".rjust(24, "0")
    except (UnicodeDecodeError, OverflowError):
        return None
    if isinstance(value, float) and value == 0:  # there may be the other zero, too, and some readers order them
        return 0.0 if highest else -0.0
    return float(value) if isinstance(value, Decimal) else value
