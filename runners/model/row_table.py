"""Rows of data as a table that fits a terminal."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from origins.batch import JSON
from runners.model.colors import paint, paint_hint, paint_word
from runners.model.text import escape_line, fit_text, format_count, measure_width, pad_column

_NARROWEST = 12
"""A value is not cut below so many columns of the terminal; before that, the last columns of the table are hidden."""
_GAP = "  "


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """A row of data, and what stands beside it."""

    row: JSON
    lead: str = ""
    """What stands in front of it: what became of it."""
    note: str = ""
    """What stands below it: why it is shown."""
    source: str = ""
    """Where it comes from."""


def format_rows(rows: Sequence[ShownRow], *, wide: bool = False) -> list[str]:
    """The lines of a table of the rows, with columns in the order in which they are first seen.

    Long values are cut, and columns for which there is no room are counted in the heading. With `wide` nothing is cut
    and no column is hidden.
    """
    if not rows:
        return []
    fields = [each.row if isinstance(each.row, Mapping) else {"": each.row} for each in rows]
    names = list(dict.fromkeys(name for row in fields for name in row)) or [""]
    cells = [[_format_cell(row, name) for name in names] for row in fields]
    columns = [[escape_line(name), *column] for name, column in zip(names, zip(*cells, strict=True), strict=True)]
    leads = pad_column(["", *(escape_line(each.lead) for each in rows)])
    indent = _GAP + (leads[0] + _GAP if leads[0] else "")
    room = shutil.get_terminal_size((100, 24)).columns - len(indent)
    natural = [max(map(measure_width, column)) for column in columns]
    widths = natural if wide else _fit_widths(natural, room)
    missing = len(columns) - len(widths)
    hidden = f"{_GAP}+{format_count(missing, 'column', 'columns')}" if missing else ""
    fitted = [
        pad_column([fit_text(cell, width) for cell in column]) for column, width in zip(columns, widths, strict=False)
    ]
    head, *lines = [_GAP.join(cells) for cells in zip(*fitted, strict=True)]
    shown = [indent + paint((head + hidden).rstrip(), "bold")] if head.strip() else []
    for lead, line, each in zip(leads[1:], lines, rows, strict=True):
        shown.append((_GAP + (paint_word(lead) + _GAP if lead else "") + line).rstrip())
        note = escape_line(each.note)
        notes = [note] if wide and note else textwrap.wrap(note, max(room - len(_GAP), 30))
        shown += [indent + _GAP + paint(part, "yellow") for part in notes]
        shown += [indent + _GAP + paint_hint(escape_line(each.source))] if each.source else []
    return shown


def _fit_widths(natural: Sequence[int], room: int) -> list[int]:
    """The widths of the first columns, as many as fit into the room. The widest are cut first, all equally."""
    shown = len(natural)
    while shown > 1 and _sum_widths([min(width, _NARROWEST) for width in natural[:shown]], shown < len(natural)) > room:
        shown -= 1
    kept = natural[:shown]
    limit = min(max(kept), max(room, 1))
    while limit > 1 and _sum_widths([min(width, limit) for width in kept], shown < len(natural)) > room:
        limit -= 1
    return [min(width, limit) for width in kept]


def _sum_widths(widths: Sequence[int], hides: bool) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1) + (len(f"{_GAP}+99 columns") if hides else 0)


def _format_cell(row: Mapping[str, JSON], name: str) -> str:
    """The value as it is read best: a text that would be mistaken for something else stands in quotes."""
    if name not in row:
        return ""
    value = row[name]
    plain = isinstance(value, str) and value == value.strip() and value not in ("", "null")
    return escape_line(value if plain else json.dumps(value, ensure_ascii=False))
