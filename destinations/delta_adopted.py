"""Parquet files as a Delta table in a folder has them. Those that Spark wrote it takes over, without a row being read
and written again; few rows are written here as Spark would have."""

from __future__ import annotations

import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from destinations.delta_append import open_to_readers
from destinations.delta_statistics import read_statistics
from origins.batch import JSON
from origins.parquet_here import LEGACY

if TYPE_CHECKING:
    import pyarrow

COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
"""Where Spark notes in a file which columns it has."""
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
    """What a table's log says of files with these names in its folder. `columns` is how the table describes its own."""
    return [
        {
            "path": quote(name),
            "partitionValues": {},
            "size": found.st_size,
            "modificationTime": found.st_mtime_ns // 1_000_000,
            "dataChange": True,
            "stats": read_statistics(file, columns),
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
        parquet.ParquetWriter(
            new, schema.remove_metadata(), store_schema=False, write_statistics=_list_exact_columns(schema)
        ) as writer,
    ):
        for group in _grouped(pieces):
            writer.write_table(concat_tables(group).replace_schema_metadata())
        writer.add_key_value_metadata({"org.apache.spark.version": pyspark.__version__, COLUMNS: columns})


def _list_exact_columns(within: pyarrow.Schema | pyarrow.DataType, above: str = "") -> list[str]:
    """The columns whose statistics stand in the file itself. Those of numbers that may be NaN leave it out there, and
    readers that have NaN above all others would pass over it."""
    import pyarrow as pa

    found = []
    for at in range(len(within) if isinstance(within, pa.Schema) else within.num_fields):
        field = within.field(at)
        if pa.types.is_struct(field.type):
            found += _list_exact_columns(field.type, f"{above}{field.name}.")
        elif not pa.types.is_floating(field.type):
            found.append(above + field.name)
    return found


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
