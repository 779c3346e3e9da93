"""What a failing run was doing, kept beside its error: the batch, the stage, and some of the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from origins.batch import JSON, Batch
from origins.nack import REFUSED
from origins.names import quoted
from origins.protection import Protection
from origins.secret import cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONGEST = 200
"""So many characters of a text are kept."""


def snapshot(batch: Batch, stage: str | None, rows: Sequence[JSON]) -> dict[str, JSON]:
    """What is kept of the batch; the rows are masked already."""
    return {
        "lane": batch.lane,
        "number": batch.number,
        "of": batch.span.label,
        "stage": stage,
        "rows": [_cut(row) for row in rows],
    }


def rows_of(frame: DataFrame, names: Sequence[str], most: int, protection: Protection) -> list[JSON]:
    """The first rows of a batch as they are read, masked. A line that could not be read is `{"raw": line}`."""
    from pyspark.sql import functions as F

    from origins.payload import payload

    columns = [F.col(quoted(name)) for name in names]
    refused = F.col(REFUSED)["raw"] if REFUSED in frame.columns else F.lit(None).cast("string")
    row = payload({name: F.col(quoted(name)) for name in names}, frame.select(*columns).schema)
    found = frame.select(row.alias("row"), refused.alias("raw")).limit(most).collect()
    return [_masked(json.loads(each["row"]), each["raw"], protection) for each in found]


def _masked(row: JSON, raw: str | None, protection: Protection) -> JSON:
    if raw is None:
        return protection.row(row)
    return protection.nack({"stage": "origin", "row": {"raw": raw}, "message": ""})["row"]


def _cut(value: JSON) -> JSON:
    if isinstance(value, Mapping):
        return {name: _cut(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner) for inner in value]
    return cut(value, LONGEST) if isinstance(value, str) else value
