"""What two definitions do with the same batches, in a comparison and in a run with a canary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from origins.batch import JSON
from origins.quick_dataclass import dataclass
from runners.model.json_form import JsonForm
from runners.model.text import escape_line, format_batches, format_count, paint, shorten_paths

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

    def add(self, other: ComparedDestination) -> ComparedDestination:
        """Return the sum of both batches. Each kind of difference keeps its first example."""
        kinds: dict[tuple[Outcome | None, Outcome | None, tuple[str, ...]], Difference] = {}
        for each in (*self.differences, *other.differences):
            kind = (each.old, each.new, tuple(each.columns))
            kinds[kind] = replace(kinds[kind], rows=kinds[kind].rows + each.rows) if kind in kinds else each
        return ComparedDestination(
            name=self.name,
            same=self.same + other.same,
            differences=sorted(kinds.values(), key=lambda each: -each.rows),
            changed_columns={**self.changed_columns, **other.changed_columns},
        )

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
class Comparison:
    """What two definitions make of the same batches."""

    batches: Sequence[ComparedBatch]
    carried: bool = False
    """Whether no batch waited, so that batches of earlier runs were compared."""

    @property
    def is_same(self) -> bool:
        """Whether both definitions give the same result for every row."""
        return all(each.is_same for each in self.batches)

    def json(self) -> dict[str, JSON]:
        return {"same": self.is_same, "carried": self.carried, "batches": [each.json() for each in self.batches]}

    def __str__(self) -> str:
        return format_comparison(self)


MOST_FAILED = 20
"""How many batches that could not be tried are named."""


@dataclass(frozen=True, kw_only=True)
class ShadowTable(JsonForm):
    """The shadow table of one destination of the new definition."""

    place: str
    rows: int = 0
    """The rows that the run wrote to it."""


@dataclass(frozen=True, kw_only=True)
class CanaryReport(JsonForm):
    """What a run with a canary found. It tried another definition on a share of its batches."""

    share: float
    """The share of batches that was requested, as a fraction."""
    batches: int = 0
    """How many batches were tried."""
    rows: int = 0
    """The rows of these batches."""
    by_row: bool = True
    """Whether each row is compared with itself. If not, rows are counted by their final content."""
    destinations: Mapping[str, ComparedDestination] = field(default_factory=dict)
    """What differs, for each destination that both definitions have."""
    only_old: Sequence[str] = ()
    """The destinations that only the old definition has."""
    only_new: Sequence[str] = ()
    """The destinations that only the new definition has."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """The rows that the new definition refused, by stage and code."""
    tables: Mapping[str, ShadowTable] = field(default_factory=dict)
    """The shadow tables, by the destinations of the new definition."""
    failed: int = 0
    """How many batches could not be tried."""
    notices: Sequence[str] = ()
    """Which batches could not be tried, and why. Only the first twenty."""

    @property
    def is_same(self) -> bool:
        """Whether both definitions gave the same result for every row that was tried."""
        differ = any(each.differences or each.changed_columns for each in self.destinations.values())
        return not (differ or self.failed or self.only_old or self.only_new)

    def add(
        self, batch: ComparedBatch, *, rows: int, refused: Mapping[str, int], tables: Mapping[str, ShadowTable]
    ) -> CanaryReport:
        """Return the report with one more batch."""
        before, shadows = self.destinations, self.tables
        return replace(
            self,
            batches=self.batches + 1,
            rows=self.rows + rows,
            by_row=self.by_row and batch.by_row,
            destinations={
                **before,
                **{
                    each.name: before[each.name].add(each) if each.name in before else each
                    for each in batch.destinations
                },
            },
            only_old=list(dict.fromkeys([*self.only_old, *batch.only_old])),
            only_new=list(dict.fromkeys([*self.only_new, *batch.only_new])),
            refused=Counter(self.refused) + Counter(refused),
            tables={
                **shadows,
                **{
                    name: replace(table, rows=table.rows + (shadows[name].rows if name in shadows else 0))
                    for name, table in tables.items()
                },
            },
        )

    def add_failure(self, notice: str) -> CanaryReport:
        """Return the report with one more batch that could not be tried."""
        return replace(self, failed=self.failed + 1, notices=[*self.notices, notice][:MOST_FAILED])

    def json(self) -> dict[str, JSON]:
        return {
            **super().json(),
            "same": self.is_same,
            "destinations": [each.json() for each in self.destinations.values()],
        }

    def __str__(self) -> str:
        return "\n".join(self._format())

    def _format(self) -> Iterator[str]:
        batches = f"{format_batches(self.batches)} with {format_count(self.rows)}"
        yield f"Canary with a share of {100 * self.share:g}%: Wherry tried the new definition on {batches}."
        yield from _format_destinations(self)
        for cause, rows in self.refused.items():
            yield f"The new definition refused {format_count(rows)} by {escape_line(cause)}."
        for name, table in self.tables.items():
            place = escape_line(shorten_paths(table.place))
            yield f"Shadow table of {escape_line(name)}: {place} ({format_count(table.rows)} from this run)"
        note, shown = paint("note:", "yellow"), self.notices[:5]
        yield from (f"{note} {escape_line(notice)}" for notice in shown)
        if self.failed > len(shown):
            yield f"{note} {self.failed - len(shown):,} more; --json names the first {MOST_FAILED}"


def format_comparison(comparison: Comparison) -> str:
    """Describe for each batch and destination how many rows are the same, and how the others differ."""
    first = "No rows wait, so Wherry tried the newest batches of earlier runs.\n" if comparison.carried else ""
    return first + "\n\n".join("\n".join(_format_batch(batch)) for batch in comparison.batches)


def _format_batch(batch: ComparedBatch) -> Iterator[str]:
    label = f" ({escape_line(shorten_paths(batch.label))})" if batch.label else ""
    yield f"Batch {batch.number} of lane {batch.lane}{label}. Nothing is written."
    yield from _format_destinations(batch)


def _format_destinations(compared: ComparedBatch | CanaryReport) -> Iterator[str]:
    if not compared.by_row:
        yield "Rows are counted by what they hold, since their origins differ or a stage makes other rows."
    destinations = compared.destinations
    for each in destinations.values() if isinstance(destinations, Mapping) else destinations:
        yield from _format_destination(each)
    for names, side in ((compared.only_old, "old"), (compared.only_new, "new")):
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
