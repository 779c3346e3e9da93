"""Why rows were refused: by cause how many there are, since when, and one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from destinations.dead_letters import asked, said
from destinations.destination import Destination
from origins.batch import JSON
from runners.dlq.letters import Decided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CAUSES = "SELECT id, code, stage, destination, nacked_at FROM {table} ORDER BY nacked_at, lane, number, position"
_EXAMPLES = "SELECT id, message, `row` FROM {{table}} WHERE id IN ({ids})"


def summary(dlq: Destination, spark: Callable[[], SparkSession], known: Decided) -> list[dict[str, JSON]]:
    """The causes, the most frequent first; `waiting` are the rows of which nobody decided anything, and the example is
    the newest of them, or the newest of all."""
    causes: dict[tuple[JSON, ...], dict[str, JSON]] = {}
    for row in asked(dlq, spark, _CAUSES):
        cause = causes.setdefault(
            (row["code"], row["stage"], row["destination"]),
            {**{key: row[key] for key in ("code", "stage", "destination")}, "rows": 0, "waiting": 0, "first": None},
        )
        waits = row["id"] not in known
        cause.update(
            rows=cause["rows"] + 1,
            waiting=cause["waiting"] + waits,
            first=cause["first"] or said(row["nacked_at"]),
            last=said(row["nacked_at"]),
        )
        if waits or not cause["waiting"]:
            cause["example"] = row["id"]
    examples = _examples(dlq, spark, [cause["example"] for cause in causes.values()])
    found = [{**cause, "example": examples[cause["example"]]} for cause in causes.values()]
    return sorted(found, key=lambda cause: (-cause["waiting"], -cause["rows"], cause["code"]))


def _examples(dlq: Destination, spark: Callable[[], SparkSession], ids: Iterable[str]) -> Mapping[str, JSON]:
    listed = ", ".join(f"'{each}'" for each in ids)
    rows = asked(dlq, spark, _EXAMPLES.format(ids=listed)) if listed else []
    return {row["id"]: {**row, "row": json.loads(row["row"])} for row in rows}
