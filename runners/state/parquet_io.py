"""Rows that pass through this process: few of them on their way to a file, as Spark would have written them without its
job; and those of files that Spark wrote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.delta.adopt import COLUMNS
from destinations.delta.adopt import write as written
from destinations.delta.direct_append import collect_arrow
from origins.batch import Batch, Json
from origins.delta_actions import TypeBody
from origins.files.parquet_rows import LEGACY, ROWS, ReadsOtherwise, open_file, read_pieces

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_SHARE = 128 << 20
"""About how many bytes of files become one file, where rows are copied."""
_THREADS = 4
_SIMPLE = frozenset({
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
})  # fmt: skip


def is_small(batch: Batch, most: int) -> bool:
    """Whether the batch is known to have at most so many bytes."""
    return batch.span.bytes is not None and batch.span.bytes <= most


def fetch_table(frame: DataFrame) -> Any:
    """The rows as a table of Arrow's; None where their types, or how many they are, want Spark's own way."""
    return collect_arrow(frame) if _is_plain(json.loads(frame.schema.json())) else None


def make_table(rows: Sequence[Mapping[str, Json]], schema: StructType) -> Any:
    """Rows that are in this process as the table of Arrow's that Spark would make of them."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.Table.from_pylist(list(rows), to_arrow_schema(schema, timezone="UTC"))


def write(table: Any, schema: StructType, file: Path) -> None:
    """Write the rows as one file, as Spark would."""
    file.parent.mkdir(parents=True)
    written([table], table.schema, schema.json(), file)


def scan_files(
    files: Sequence[Path], wanted: Callable[[str], bool], *, most: int, piece: int
) -> pyarrow.RecordBatchReader | None:
    """Some columns of such files, with the types that Spark would read, in pieces of so many bytes in the order of the
    files; None where they have more bytes than `most`, or would read otherwise here."""
    import pyarrow as pa
    from pyarrow import parquet

    footers = [parquet.read_metadata(file) for file in files]
    size = sum(footer.row_group(at).total_byte_size for footer in footers for at in range(footer.num_row_groups))
    if not footers or size > most or any(LEGACY & set(footer.metadata or {}) for footer in footers):
        return None
    rows = max(1, sum(footer.num_rows for footer in footers))
    at_once = max(1, piece * rows // max(1, size))
    first = open_file(files[0]).schema_arrow
    types = {field["name"]: field["type"] for field in json.loads(first.metadata[COLUMNS.encode()])["fields"]}
    columns = [column for column in first.names if wanted(column)]
    schema = pa.schema(
        [pa.field(column, _to_arrow_type(first.field(column).type, types[column])) for column in columns]
    )

    def pieces() -> Iterator[pyarrow.RecordBatch]:
        for file in files:
            for each in open_file(file).iter_batches(min(at_once, ROWS), columns=columns):
                yield from pa.Table.from_batches([each]).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, pieces())


def copy(files: Mapping[Path, Sequence[int]], schema: StructType, folder: Path) -> int | None:
    """Write the rows of these files into the folder, without those at these places in each; how many. None where a
    value is not surely what Spark reads, or cannot be read or written here."""
    from pyarrow import ArrowException
    from pyspark.sql.pandas.types import to_arrow_schema

    def one(number: int, share: Sequence[Path]) -> int:
        rows = 0

        def count_pieces() -> Iterator[pyarrow.Table]:
            nonlocal rows
            for file in share:
                for piece in read_pieces(file, schema, files[file]):
                    rows += piece.num_rows
                    yield piece

        written(
            count_pieces(), to_arrow_schema(schema, timezone="UTC"), schema.json(), folder / f"part-{number:05}.parquet"
        )
        return rows

    threads = min(_THREADS, os.cpu_count() or 1)
    try:
        shares = _split_files(files, threads)
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(one, range(len(shares)), shares))
    except (ReadsOtherwise, ArrowException, OSError, KeyError):
        return None


def _split_files(files: Collection[Path], threads: int) -> Sequence[Sequence[Path]]:
    """The files in as many shares as there are threads, or more if they are large: each becomes one file."""
    sizes = {file: file.stat().st_size for file in files}
    most = min(_SHARE, -(-sum(sizes.values()) // threads))
    shares: list[list[Path]] = []
    room = 0
    for file, size in sizes.items():
        if room <= 0:
            shares.append([])
            room = most
        shares[-1].append(file)
        room -= size
    return shares


def _to_arrow_type(kind: pyarrow.DataType, told: TypeBody) -> pyarrow.DataType:
    """The type that Arrow reads with what only Spark knows of it: that a time stands for a moment."""
    import pyarrow as pa

    if told == "timestamp":
        return pa.timestamp("us", "UTC")
    if isinstance(told, dict) and told["type"] == "struct":
        inner = zip(kind, told["fields"], strict=True)
        return pa.struct([pa.field(each.name, _to_arrow_type(each.type, said["type"])) for each, said in inner])
    return kind


def _is_plain(kind: TypeBody) -> bool:
    if isinstance(kind, str):
        return kind in _SIMPLE or kind.startswith("decimal")
    if kind["type"] == "struct":
        return all(_is_plain(each["type"]) for each in kind["fields"])
    if kind["type"] == "map":
        return _is_plain(kind["keyType"]) and _is_plain(kind["valueType"])
    return kind["type"] == "array" and _is_plain(kind["elementType"])
