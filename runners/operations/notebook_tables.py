"""Lists and mappings about a pipeline that a notebook shows as a terminal does. For code they are lists and dicts."""

from __future__ import annotations

import json
from datetime import datetime

from origins.batch import JSON
from origins.lazy import DataFrame, SparkSession
from runners.model.text import render_text
from runners.operations.printing import format_dead_letters, format_runs, format_status
from runners.operations.printing_state import format_summary

MOST = 100
"""How many items a notebook shows of a list."""


class RefusedRowList(list[dict[str, JSON]]):
    """Refused rows, the newest last."""

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Return a Spark DataFrame of this session. `row` is JSON, and `state` is `waiting` or what ended that."""
        names = ("stage", "destination", "code", "message", "part", "lane", "number", "run", "id")
        rows = [
            (
                "replayed" if row["replayed"] else "discarded" if row["discarded"] else "waiting",
                datetime.fromisoformat(row["nacked_at"]),
                *(row[name] for name in names),
                json.dumps(row["row"], ensure_ascii=False),
            )
            for row in self
        ]
        return spark.createDataFrame(
            rows,
            "state string, nacked_at timestamp, stage string, destination string, code string, message string, "
            "part string, lane string, number bigint, run string, id string, row string",
        )

    def _repr_html_(self) -> str:
        return _render(format_dead_letters(self[-MOST:], wide=True), len(self), "rows")


class CauseList(list[dict[str, JSON]]):
    """The causes of refused rows."""

    def _repr_html_(self) -> str:
        return _render(format_summary(self[:MOST]), len(self), "causes")


class RunList(list[dict[str, JSON]]):
    """Runs, the newest first."""

    def _repr_html_(self) -> str:
        return _render(format_runs(self[:MOST]), len(self), "runs")


class PipelineStatus(dict[str, JSON]):
    """The status of a pipeline, as `wherry status --json` has it."""

    def _repr_html_(self) -> str:
        return render_text(format_status(self))


def _render(text: str, count: int, what: str) -> str:
    more = f"\n\n{MOST:,} of {count:,} {what} are shown." if count > MOST else ""
    return render_text(text + more)
