"""Lists and mappings about a pipeline that a notebook shows as tables. For code they are plain lists and dicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from origins.batch import JSON
from origins.lazy import DataFrame, SparkSession
from runners.model.causes import name_part
from runners.model.text import (
    escape_html,
    format_count,
    join_some,
    render_html_table,
    show_moment,
    show_offset,
    show_open_batch,
)

MOST = 100
"""How many lines a notebook shows of a list."""


class RefusedRowList(list[dict[str, JSON]]):
    """Refused rows, the newest last."""

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Return a Spark DataFrame of this session. `row` is JSON, and `state` is `waiting` or what ended that."""
        names = ("stage", "destination", "code", "message", "part", "lane", "number", "run", "id")
        rows = [
            (
                _name_state(row),
                datetime.fromisoformat(row["nacked_at"]),
                *(row[name] for name in names),
                _as_text(row["row"]),
            )
            for row in self
        ]
        return spark.createDataFrame(
            rows,
            "state string, nacked_at timestamp, stage string, destination string, code string, message string, "
            "part string, lane string, number bigint, run string, id string, row string",
        )

    def _repr_html_(self) -> str:
        head = ["state", "refused (UTC)", "by", "code", "reason", "row", "from", "id"]
        rows = [
            [
                _name_state(row),
                show_moment(row["nacked_at"]),
                row["stage"] or row["destination"],
                row["code"],
                row["message"],
                _as_text(row["row"]),
                name_part(row["part"]) if row["part"] else f"batch {row['number']} of lane {row['lane']}",
                row["id"],
            ]
            for row in self[-MOST:]
        ]
        return _render(head, rows, len(self), "refused rows", nothing="The DLQ has no such row.")


class CauseList(list[dict[str, JSON]]):
    """The causes of refused rows."""

    def _repr_html_(self) -> str:
        head = ["code", "by", "rows", "waiting", "first (UTC)", "last (UTC)", "example"]
        rows = [
            [
                cause["code"],
                _name_refuser(cause),
                cause["rows"],
                cause["waiting"],
                show_moment(cause["first"]),
                show_moment(cause["last"]),
                cause["example"]["message"],
            ]
            for cause in self[:MOST]
        ]
        return _render(head, rows, len(self), "causes", nothing="The DLQ has no such row.")


class RunList(list[dict[str, JSON]]):
    """Runs, the newest first."""

    def _repr_html_(self) -> str:
        head = ["status", "run", "began (UTC)", "seconds", "batches", "read", "filtered", "refused", "error"]
        rows = [
            [
                run["status"],
                run["run"],
                show_moment(run["started_at"]),
                *(_count(run[name]) for name in ("seconds", "batches", "read", "filtered", "nacked")),
                run["error"] or "",
            ]
            for run in self[:MOST]
        ]
        return _render(head, rows, len(self), "runs", nothing="No run matches.")


class PipelineStatus(dict[str, JSON]):
    """The status of a pipeline, as `wherry status --json` has it."""

    def _repr_html_(self) -> str:
        return _render(["", self["pipeline"]], list(self._list_facts()), 0, "facts", nothing="")

    def _list_facts(self) -> Iterator[Sequence[str]]:
        last, dlq, paused = self["last_run"], self["dlq"], self["paused"]
        yield "state", str(self["state"]).replace("_", " ")
        for owner in self.get("owners", [self["owner"]] if self["owner"] else []):
            yield "run by", f"{owner['host']}, process {owner['process']}, since {show_moment(owner['since'])}"
        if self["stopping"]:
            yield "stops", f"{self['stopping']}; open batches are {'cancelled' if self['forced'] else 'finished first'}"
        if paused:
            yield "paused", f"since {show_moment(paused['at'])}: {paused['reason']}"
        if last:
            read = "" if last.get("read") is None else f", {format_count(last['read'])} read"
            yield "last run", f"{last['status']} at {show_moment(last['at'])}{read}"
            if last.get("error"):
                yield "error", f"{last['error']['code']}: {last['error']['message']}"
        for name, lane in self["lanes"].items():
            behind = f", {lane['behind']}" if lane["behind"] else ""
            yield f"lane {name}", f"batch {lane['number']}, up to {show_offset(lane['offset'])}{behind}"
        for batch in self["open"]:
            yield "open", show_open_batch(batch, self["lanes"], under_way=self["state"] == "running")
        yield from [
            ("removed", f"{name}: the next run delivers nothing to it; its rows stay") for name in self["removed"]
        ]
        yield from [
            ("left out", f"{join_some(each)} of {name}, not in the schema") for name, each in self["left_out"].items()
        ]
        if "unreadable" in dlq:
            yield "refused rows", dlq["unreadable"]
        elif dlq["rows"]:
            yield "refused rows", f"{format_count(dlq['rows'])} in the DLQ, {dlq['unreplayed']:,} of them waiting"
        if dlq["fallback"]:
            yield "fallback", format_count(dlq["fallback"], "row waits", "rows wait")
        if self["first"]:
            yield "first", self["first"]
        yield "next", self["next"]


def _name_state(row: Mapping[str, JSON]) -> str:
    return "replayed" if row["replayed"] else "discarded" if row["discarded"] else "waiting"


def _render(head: Sequence[str], rows: Iterable[Sequence[Any]], count: int, what: str, *, nothing: str) -> str:
    lines = [[_count(cell) if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    if not lines:
        return f"<p>{escape_html(nothing)}</p>"
    more = f"<p>{len(lines):,} of {count:,} {what} are shown.</p>" if count > len(lines) else ""
    return render_html_table(head, lines) + more


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _as_text(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)


def _name_refuser(cause: Mapping[str, JSON]) -> str:
    return " for ".join(each for each in (cause["stage"], cause["destination"]) if each)
