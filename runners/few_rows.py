"""Few rows that pass through this process on their way to a file: what Spark would have written, without its job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.delta_short import in_arrow
from origins.batch import JSON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_SIMPLE = frozenset({
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
})  # fmt: skip


def fetched(frame: DataFrame) -> Any:
    """The rows as a table of Arrow's; None where their types, or how many they are, want Spark's own way."""
    return in_arrow(frame) if _is_plain(frame.schema.jsonValue()) else None


def write(table: Any, schema: StructType, file: Path) -> None:
    """Write the rows as one parquet file, of which Spark reads the very types and days that it would have written."""
    import pyspark
    from pyarrow import parquet

    file.parent.mkdir(parents=True)
    said = {"org.apache.spark.version": pyspark.__version__, "org.apache.spark.sql.parquet.row.metadata": schema.json()}
    parquet.write_table(table.replace_schema_metadata(said), file)


def _is_plain(kind: JSON) -> bool:
    if isinstance(kind, str):
        return kind in _SIMPLE or kind.startswith("decimal")
    inner: Mapping[str, JSON] = kind
    if inner["type"] == "struct":
        return all(_is_plain(each["type"]) for each in inner["fields"])
    if inner["type"] == "map":
        return _is_plain(inner["keyType"]) and _is_plain(inner["valueType"])
    return inner["type"] == "array" and _is_plain(inner["elementType"])
