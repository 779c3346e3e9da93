"""What a notebook shows in the place of text: tables, in plain HTML that any notebook takes."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from origins.batch import JSON
from runners.printable import escape_controls

if TYPE_CHECKING:
    from runners.lanes import Lanes
    from runners.previews.preview import BatchPreview, Preview, StagePreview

_COLORS = {"refused": "#b00020", "filtered": "#777777", "failed": "#b00020"}


def preview(said: Preview) -> str:
    """Every stage of every batch with some of its rows, columns side by side."""
    if not said.batches:
        return f"<p>Nothing waits for <b>{_text(said.pipeline)}</b>.</p>"
    return "".join(part for batch in said.batches for part in _batch(batch))


def lanes(said: Lanes) -> str:
    """How far every lane is, and what is open."""
    rows = [
        [name, str(lane["number"]), str(lane["committed_at"] or ""), json.dumps(lane["offset"], ensure_ascii=False)]
        for name, lane in said.lanes.items()
    ]
    waiting = "".join(f"<p>Batch {each['number']} of lane {_text(each['lane'])} is open.</p>" for each in said.open)
    if not rows:
        return f"<p>Nothing was carried by <b>{_text(said.pipeline)}</b> yet.</p>{waiting}"
    return _table(["lane", "batch", "committed at", "offset"], rows) + waiting


def _batch(batch: BatchPreview) -> Iterator[str]:
    yield f"<h4>Batch {batch.number} of lane {_text(batch.lane)}, tried out: {_text(batch.label)}</h4>"
    for stage in batch.stages:
        counts = stage.counts
        yield (
            f"<p><b>{_text(counts.stage)}</b>: {counts.entered:,} in, {counts.left:,} out, "
            f"{counts.filtered:,} filtered, {counts.nacked:,} refused</p>"
        )
        if stage.failure is not None:
            why = "".join(f"<li>{_text(line)}</li>" for line in stage.failure.why)
            yield f"<p>The batch fails, {stage.failure.outcome}:</p><ul>{why}</ul>"
        yield _rows(stage)
    if batch.stops:
        yield "<p>Nothing of it would be delivered: the run would stop. If that batch were only reported:</p>"
    rows = [[name, f"{rows:,}"] for name, rows in batch.destinations.items()]
    yield _table(["destination", "would get"], rows)


def _rows(stage: StagePreview) -> str:
    seen = [(each, each.row if isinstance(each.row, Mapping) else {"": each.row}) for each in stage.rows]
    names = list(dict.fromkeys(name for _, row in seen for name in row))
    lines = [[each.outcome, *(_cell(row, name) for name in names), each.message or ""] for each, row in seen]
    return _table(["", *names, "why"], lines)


def _cell(row: Mapping[str, JSON], name: str) -> str:
    if name not in row:
        return ""
    value = row[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{_text(title)}</th>" for title in head)
    lines = "".join(
        f"<tr>{''.join(f'<td>{_colored(cell) if at == 0 else _text(cell)}</td>' for at, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def _colored(word: str, text: str = "") -> str:
    color = _COLORS.get(word)
    return f'<span style="color: {color}">{_text(text or word)}</span>' if color else _text(text or word)


def _text(value: str) -> str:
    return html.escape(escape_controls(value))
