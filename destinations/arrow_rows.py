"""The rows of an Arrow table as Python's values, without pandas."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from origins.batch import JSON

if TYPE_CHECKING:
    import pyarrow

_EPOCH = datetime.fromtimestamp(0, timezone.utc)


def python_rows(table: pyarrow.Table) -> list[dict[str, JSON]]:
    """The rows of a table. Times, which are microseconds in Delta, take a way of their own: pyarrow's would import
    pandas, and a cast `pyarrow.compute`, which take longer than all the rest (and so would `pyarrow.table`)."""
    import pyarrow

    times = [field.name for field in table.schema if pyarrow.types.is_timestamp(field.type)]
    for name in times:
        chunks = [chunk.view(pyarrow.int64()) for chunk in table[name].chunks]
        counted = pyarrow.chunked_array(chunks, type=pyarrow.int64())
        table = table.set_column(table.schema.get_field_index(name), name, counted)
    rows: list[dict[str, JSON]] = table.to_pylist()
    return [{**row, **{name: _moment(row[name]) for name in times}} for row in rows]


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
