"""The rows of a DLQ for a few refused rows, made in this process: those that `dead_letters` would make with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from destinations.dead_letters import SCHEMA, of_batch
from origins.batch import JSON, Batch
from origins.secret import make_mask

if TYPE_CHECKING:
    import pyarrow


def few_dead_letters(
    refused: Sequence[Mapping[str, JSON]],
    batch: Batch,
    *,
    original: bool,
    secrets: Mapping[str, str],
    replayed: Sequence[str] = (),
) -> pyarrow.Table:
    """As `dead_letters`, of rows with `nack`, `part` and `position`."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "array<string>": pa.list_(pa.string()),
    }
    columns = [column.split(" ", 1) for column in SCHEMA.split(", ")]
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns])
    same = {**of_batch(batch), "delivered_to": [], "nacked_at": datetime.now(timezone.utc)}
    mask = make_mask(secrets)
    rows = [
        {
            **row["nack"],
            **({} if original else {"original": None, "original_schema": None}),
            **same,
            "id": f"{batch.plan}/{row['position']}",
            "message": None if row["nack"]["message"] is None else mask(row["nack"]["message"]),
            "part": row["part"],
            "position": row["position"],
            "replays": replayed[row["position"] - 1] if 1 <= row["position"] <= len(replayed) else None,
        }
        for row in refused
    ]
    return pa.Table.from_pylist(rows, schema)
