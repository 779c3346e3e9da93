"""Rows that pass through this process: few of them on their way to a file, as Spark would have written them without its
job; and those of files that Spark wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.delta_adopted import COLUMNS
from destinations.delta_adopted import write as written
from destinations.delta_short import in_arrow
from origins.batch import JSON, Batch
from origins.parquet_here import LEGACY, ROWS, opened

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SMALL = 4 << 20
"""Bytes up to which a batch is small."""
MOST_BYTES = 64 << 20
"""Up to so many bytes, once nothing of them is packed, one thread here reads and writes rows more quickly than Spark
with a few."""
PIECE = 8 << 20
"""About how many of these bytes are read at a time."""
_SIMPLE = frozenset({
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
})  # fmt: skip


def is_small(batch: Batch) -> bool:
    """Whether few rows can come of it, if its stages make no more of them."""
    return batch.span.bytes is not None and batch.span.bytes <= SMALL


def fetched(frame: DataFrame) -> Any:
    """The rows as a table of Arrow's; None where their types, or how many they are, want Spark's own way."""
    return in_arrow(frame) if _is_plain(frame.schema.jsonValue()) else None


def table_of(rows: Sequence[Mapping[str, JSON]], schema: StructType) -> Any:
    """Rows that are in this process as the table of Arrow's that Spark would make of them."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.Table.from_pylist(list(rows), to_arrow_schema(schema, timezone="UTC"))


def write(table: Any, schema: StructType, file: Path) -> None:
    """Write the rows as one file, as Spark would."""
    file.parent.mkdir(parents=True)
    written([table], table.schema, schema.json(), file)


def scanned(files: Sequence[Path], wanted: Callable[[str], bool]) -> pyarrow.RecordBatchReader | None:
    """Some columns of such files, with the types that Spark would read, piece by piece in the order of the files; None
    where they are many, or would read otherwise here."""
    import pyarrow as pa
    from pyarrow import parquet

    footers = [parquet.read_metadata(file) for file in files]
    size = sum(footer.row_group(at).total_byte_size for footer in footers for at in range(footer.num_row_groups))
    if not footers or size > MOST_BYTES or any(LEGACY & set(footer.metadata or {}) for footer in footers):
        return None
    rows = max(1, sum(footer.num_rows for footer in footers))
    most = max(1, PIECE * rows // max(1, size))
    first = opened(files[0]).schema_arrow
    told = {field["name"]: field["type"] for field in json.loads(first.metadata[COLUMNS.encode()])["fields"]}
    columns = [column for column in first.names if wanted(column)]
    schema = pa.schema([pa.field(column, _typed(first.field(column).type, told[column])) for column in columns])

    def pieces() -> Iterator[pyarrow.RecordBatch]:
        for file in files:
            for piece in opened(file).iter_batches(min(most, ROWS), columns=columns):
                yield from pa.Table.from_batches([piece]).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, pieces())


def _typed(kind: pyarrow.DataType, told: JSON) -> pyarrow.DataType:
    """The type that Arrow reads with what only Spark knows of it: that a time stands for a moment."""
    import pyarrow as pa

    if told == "timestamp":
        return pa.timestamp("us", "UTC")
    if isinstance(told, dict) and told["type"] == "struct":
        inner = zip(kind, told["fields"], strict=True)
        return pa.struct([pa.field(each.name, _typed(each.type, said["type"])) for each, said in inner])
    return kind


def _is_plain(kind: JSON) -> bool:
    if isinstance(kind, str):
        return kind in _SIMPLE or kind.startswith("decimal")
    inner: Mapping[str, JSON] = kind
    if inner["type"] == "struct":
        return all(_is_plain(each["type"]) for each in inner["fields"])
    if inner["type"] == "map":
        return _is_plain(inner["keyType"]) and _is_plain(inner["valueType"])
    return inner["type"] == "array" and _is_plain(inner["elementType"])
