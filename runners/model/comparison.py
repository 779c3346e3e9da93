"""What two definitions do with the same batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from origins.batch import JSON
from origins.codec import JsonForm
from runners.model.text import escape_line, format_count, paint, shorten_paths

Fate = Literal["delivered", "filtered", "refused"]


@dataclass(frozen=True, kw_only=True)
class Outcome(JsonForm):
    """What a definition does with a row on its way to one destination."""

    fate: Fate
    stage: str = ""
    """The stage that filtered or refused the row."""
    code: str | None = None
    """Why the row is refused."""

    def __str__(self) -> str:
        by = f" by {self.stage}" if self.stage else ""
        return f"{self.fate}{by}{f' ({self.code})' if self.code else ''}"


@dataclass(frozen=True, kw_only=True)
class Difference(JsonForm):
    """Rows that the two definitions treat differently, all in the same way."""

    rows: int
    old: Outcome | None
    new: Outcome | None
    """None for a row that only the other definition gives."""
    columns: Sequence[str] = ()
    """The columns that differ, in rows that both definitions deliver."""
    example: Mapping[str, JSON] = field(default_factory=dict)
    """One of the rows, masked: `read`, `old` and `new` as delivered, and `why` it is refused."""


@dataclass(frozen=True, kw_only=True)
class ComparedDestination(JsonForm):
    """What both definitions do with the rows of a batch for one destination."""

    name: str
    same: int
    """How many rows have the same result in both definitions."""
    differences: Sequence[Difference]
    """The differences, the most frequent first."""
    changed_columns: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """Columns with different types, or that only one definition has: the old type and the new type."""

    @property
    def differing(self) -> int:
        """How many rows have a different result."""
        return sum(each.rows for each in self.differences)

    def json(self) -> dict[str, JSON]:
        return {**super().json(), "differing": self.differing}


@dataclass(frozen=True, kw_only=True)
class ComparedBatch(JsonForm):
    """One batch that both definitions were tried on."""

    origin: str
    lane: str
    number: int
    label: str
    by_row: bool
    """Whether each row is compared with itself. If not, rows are counted by their final content."""
    destinations: Sequence[ComparedDestination]
    only_old: Sequence[str] = ()
    only_new: Sequence[str] = ()
    """The destinations that only one of the definitions has."""

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        lists = (
            self.only_old,
            self.only_new,
            *((*each.differences, *each.changed_columns) for each in self.destinations),
        )
        return not any(lists)

    def json(self) -> dict[str, JSON]:
        return {**super().json(), "same": self.is_same}


@dataclass(frozen=True, kw_only=True)
class Comparison(JsonForm):
    """What two definitions make of the same batches."""

    batches: Sequence[ComparedBatch]
    carried: bool = False
    """Whether no batch waited, so that batches of earlier runs were compared."""

    @property
    def is_same(self) -> bool:
        """Whether both definitions give the same result for every row."""
        return all(each.is_same for each in self.batches)

    def json(self) -> dict[str, JSON]:
        return {**super().json(), "same": self.is_same}

    def __str__(self) -> str:
        return format_comparison(self)


def format_comparison(comparison: Comparison) -> str:
    """Describe for each batch and destination how many rows are the same, and how the others differ."""
    first = "No rows wait, so Wherry tried the newest batches of earlier runs.\n" if comparison.carried else ""
    return first + "\n\n".join("\n".join(_format_batch(batch)) for batch in comparison.batches)


def _format_batch(batch: ComparedBatch) -> Iterator[str]:
    label = f" ({escape_line(shorten_paths(batch.label))})" if batch.label else ""
    yield f"Batch {batch.number} of lane {batch.lane}{label}. Nothing is written."
    if not batch.by_row:
        yield "Rows are counted by what they hold, since their origins differ or a stage makes other rows."
    for each in batch.destinations:
        yield from _format_destination(each)
    for names, side in ((batch.only_old, "old"), (batch.only_new, "new")):
        yield from (f"{paint(escape_line(name), 'bold')}: only the {side} definition has it." for name in names)


def _format_destination(destination: ComparedDestination) -> Iterator[str]:
    name, rows = paint(escape_line(destination.name), "bold"), destination.differing
    differing = f", {paint(format_count(rows), 'yellow')} {'differs' if rows == 1 else 'differ'}" if rows else ""
    verb = "is" if destination.same == 1 else "are"
    yield f"{name}: {format_count(destination.same)} {verb} the same{differing}."
    for column, (old, new) in destination.changed_columns.items():
        side = "old" if new is None else "new"
        types = f"{old} before, {new} now" if old and new else f"only the {side} definition has it ({old or new})"
        yield f"  column {escape_line(column)}: {types}"
    for each in destination.differences:
        yield from _format_difference(each)


def _format_difference(difference: Difference) -> Iterator[str]:
    old, new, example = difference.old, difference.new, difference.example
    if difference.columns:
        what = f"other values in {', '.join(map(escape_line, difference.columns))}"
    elif old is None or new is None:
        what = f"delivered by the {'old' if new is None else 'new'} definition alone"
    else:
        what = f"{old} before, {new} now"
    yield f"  {format_count(difference.rows)}: {what}{', for example' if example else ''}"
    before, now = example.get("old"), example.get("new")
    if difference.columns and isinstance(before, Mapping) and isinstance(now, Mapping):
        values = ((name, _show(before.get(name)), _show(now.get(name))) for name in difference.columns)
        yield from (escape_line(f"    {name}  {was}  →  {value}") for name, was, value in values)
    if why := example.get("why"):
        yield escape_line(f"    {why}")
    if "read" in example:
        yield escape_line(f"    row as read  {_show(example['read'])}")
    elif example:
        yield escape_line(f"    {_show(now or before)}")


def _show(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
