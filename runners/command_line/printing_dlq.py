"""The DLQ as a person reads of it on a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from origins.batch import JSON
from runners.command_line.printing import sections, table
from runners.printable import escape_line

if TYPE_CHECKING:
    from runners.dlq.replay import Sorted


def summary(causes: Sequence[Mapping[str, JSON]]) -> str:
    """Why rows were refused, the most frequent cause first."""
    if not causes:
        return "No refused rows are kept."
    parts = []
    for cause in causes:
        where = cause["stage"] if cause["destination"] is None else f"{cause['stage']} for {cause['destination']}"
        rows = [
            [f"{cause['rows']:,}", f"{cause['waiting']:,}", _minute(cause["first"]), _minute(cause["last"])],
        ]
        example = cause["example"]
        parts += [
            escape_line(f"{cause['code']}, {where}"),
            table(["rows", "waiting", "first (UTC)", "last (UTC)"], rows),
            escape_line(f"  {example['message']}"),
            escape_line(f"  {json.dumps(example['row'], ensure_ascii=False)}"),
            "",
        ]
    return "\n".join(parts).rstrip()


def settings(facts: Mapping[str, JSON]) -> str:
    """By what the next batch is judged."""
    limits = ", ".join(f"{code} {limit}" for code, limit in facts["limits"].items()) or "none"
    changed = ", ".join(facts.get("changed", ())) or None
    named = [("window", [f"{facts['window']:,}"]), ("threshold", [f"{facts['threshold']:,}"]), ("limits", [limits])]
    return sections([*named, *([("changed", [f"{changed}, for this run"])] if changed else [])])


def replay(found: Sorted) -> str:
    """What a replay would carry, and what it leaves."""
    rows = [
        [origin, f"{sum(len(span.parts) for span in spans):,}", f"{len(spans):,}", ", ".join(_to(found, origin))]
        for origin, spans in found.spans.items()
    ]
    carried = (
        table(["rows read from", "rows", "batches", "go to"], rows) if rows else "There is nothing to carry again."
    )
    return "\n".join([carried, *map(escape_line, found.notices)])


def _to(found: Sorted, origin: str) -> Sequence[str]:
    return list(dict.fromkeys(name for span in found.spans[origin] for name in found.wanted[span.end]))


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")
