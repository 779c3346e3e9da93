"""A DLQ on this machine, written without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow
from deltalake import write_deltalake

from origins.nack import DLQ_COLUMNS

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
READ = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
"""The schema with which the rows were read."""
_TYPES = {"bigint": pyarrow.int64(), "timestamp": pyarrow.timestamp("us", "UTC"), "string": pyarrow.string()}
_ROW = {
    "pipeline": "orders",
    "origin": "origin",
    "lane": "0",
    "number": 1,
    "plan": "p",
    "stage": "cast",
    "code": "CAST",
    "message": "no",
    "row": '{"id": 7}',
    "original": '{"id": 7}',
    "original_schema": READ,
    "delivered_to": [],
}


def make_letters(*places: int, **columns: Any) -> list[dict[str, Any]]:
    """Return refused rows at these places of a batch. Each was refused as many minutes after noon as its place says."""
    found = []
    for place in places:
        row = {**_ROW, "position": place, "nacked_at": NOON + timedelta(minutes=place), **columns}
        found.append({"id": f"{row['plan']}/{place}", **row})
    return found


def append_letters(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append the rows to the DLQ in the folder."""
    kinds = [column.split(" ", 1) for column in DLQ_COLUMNS.split(", ")]
    fields = [(name, _TYPES.get(kind, pyarrow.list_(pyarrow.string()))) for name, kind in kinds]
    write_deltalake(folder, pyarrow.Table.from_pylist(list(rows), pyarrow.schema(fields)), mode="append")
