"""The result of a search for rows: in batches, filtered, in the DLQ, in destinations. Also its text for a person."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from origins.batch import JSON
from origins.codec import JsonForm
from runners.model.text import escape_line, format_batches, format_count, format_sections, shorten_paths, show_moment
from runners.operations.trace import TracedRow

SHOWN = 20
"""The most rows, batches and writes that are shown of each kind."""


@dataclass(frozen=True, kw_only=True)
class BatchMatches(JsonForm):
    """The matching rows of one batch, and their outcomes."""

    lane: str
    number: int
    label: str
    at: str
    """When the batch was settled; empty for an open batch."""
    read: int
    filtered: Mapping[str, int]
    """The filtered rows by stage."""
    rejected: Mapping[str, int]
    """The refused rows by stage."""
    wanted: Mapping[str, int]
    """How many rows would go to each destination."""
    rows: Sequence[TracedRow] = ()

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return {**super().json(), "at": self.at or None}


@dataclass(frozen=True, kw_only=True)
class UnreadBatch(JsonForm):
    """A batch whose rows cannot be read again."""

    lane: str
    number: int
    label: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Write(JsonForm):
    """One version of a table, with the number of matching rows in its files."""

    rows: int
    version: int | None
    """The version; None if the history of the table does not show it."""
    batches: Sequence[tuple[str, int]] = ()
    """The lane and number of each batch that the version brought; empty if the version has no label."""

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return {**super().json(), "batches": [{"lane": lane, "number": number} for lane, number in self.batches]}


@dataclass(frozen=True, kw_only=True)
class DestinationMatches(JsonForm):
    """The matching rows that a destination has now."""

    rows: int | None
    """The number of rows; None if the destination cannot be searched."""
    why: str = ""
    """Why it cannot be searched."""
    writes: Sequence[Write] = ()
    merges: bool = False
    """Whether a later merge may have copied a row into the file that has it now."""


@dataclass(frozen=True, kw_only=True)
class LetterMatch(JsonForm):
    """A matching row of the DLQ; masked."""

    id: str
    lane: str
    number: int
    stage: str
    state: Literal["open", "replayed", "discarded"]
    at: str
    code: str
    message: str
    row: JSON


@dataclass(frozen=True, kw_only=True)
class DlqMatches(JsonForm):
    """The matching rows of the DLQ."""

    states: Mapping[str, int] = field(default_factory=dict)
    """How many rows are `open` (they wait), `replayed` and `discarded`."""
    rows: Sequence[LetterMatch] = ()
    why: str = ""
    """Why some or all of its rows cannot be searched."""


@dataclass(frozen=True, kw_only=True)
class KeptMatch(JsonForm):
    """A matching row that a stage filtered, as it was before that stage; masked."""

    lane: str
    number: int
    stage: str
    destination: str | None
    """The destination for which it was filtered; None if it was filtered for all."""
    at: str
    message: str
    """Why the stage refused the row, if the stage discards refused rows."""
    row: JSON


@dataclass(frozen=True, kw_only=True)
class KeptMatches(JsonForm):
    """The matching filtered rows that the state keeps."""

    stages: Mapping[str, int] = field(default_factory=dict)
    """How many rows each stage filtered."""
    rows: Sequence[KeptMatch] = ()
    why: str = ""
    """Why some or all of its rows cannot be searched."""


@dataclass(frozen=True, kw_only=True)
class FoundRows(JsonForm):
    """The places of the rows for which a condition is true."""

    pipeline: str
    where: str
    since: str
    searched: int
    """How many batches were read again."""
    read: int
    """How many rows in these batches match."""
    matching: int
    """How many batches have matching rows. `batches` has the newest of them."""
    batches: Sequence[BatchMatches]
    unread: Sequence[UnreadBatch]
    destinations: Mapping[str, DestinationMatches]
    dlq: DlqMatches
    kept: KeptMatches | None = None
    """None if the state keeps no filtered rows."""
    not_compared: int = 0
    """How many rows have a value that cannot be compared. They do not match."""
    notices: Sequence[str] = ()

    def count(self, name: Literal["filtered", "rejected", "wanted"]) -> Mapping[str, int]:
        """Return how many matching rows each stage filters or refuses, or each destination gets, in all `batches`."""
        found: Counter[str] = Counter()
        for batch in self.batches:
            found.update(getattr(batch, name))
        return dict(found)

    def json(self) -> dict[str, JSON]:
        """Return the form that `wherry find --json` prints."""
        names: tuple[Literal["filtered", "rejected", "wanted"], ...] = ("filtered", "rejected", "wanted")
        return {**super().json(), "since": self.since or None, **{name: self.count(name) for name in names}}

    def __str__(self) -> str:
        return "\n\n".join(self._format_parts())

    def _format_parts(self) -> Iterator[str]:
        read = f"{format_count(self.read)} in {format_batches(self.matching)}; searched {format_batches(self.searched)}"
        failed = f"{format_count(self.not_compared)} could not be compared, and so did not match"
        named: list[tuple[str, Sequence[str]]] = [
            ("read", [read, *([failed] if self.not_compared else [])]),
            ("today", [f"{format_count(rows)} would {what}" for what, rows in self._list_outcomes()]),
            *((name, list(_format_destination(each))) for name, each in self.destinations.items()),
            ("DLQ", list(_format_dlq(self.dlq))),
            ("kept", list(_format_kept(self.kept))),
            ("not read", list(_format_unread(self.unread, keeps=self.kept is not None))),
            ("note", self.notices),
        ]
        since = f", since {show_moment(self.since)}" if self.since else ""
        yield escape_line(f"{self.pipeline}: rows with {self.where}{since}")
        yield format_sections(named)
        left = SHOWN
        for batch in self.batches:
            if left > 0 and batch.rows:
                yield "\n".join(_format_batch(batch, left))
                left -= len(batch.rows)
        yield from _format_more("rows that were read", self.read, SHOWN - max(left, 0))
        if self.dlq.rows:
            yield "\n".join(["In the DLQ", *map(_format_row, self.dlq.rows)])
        yield from _format_more("rows of the DLQ", sum(self.dlq.states.values()), len(self.dlq.rows))
        if self.kept and self.kept.rows:
            yield "\n".join(["Kept filtered rows", *map(_format_row, self.kept.rows)])
            yield from _format_more("kept rows", sum(self.kept.stages.values()), len(self.kept.rows))

    def _list_outcomes(self) -> Iterator[tuple[str, int]]:
        """Yield what today's definition does with the matching rows."""
        yield from ((f"go to {name}", rows) for name, rows in self.count("wanted").items())
        yield from ((f"be filtered by {name}", rows) for name, rows in self.count("filtered").items())
        yield from ((f"be refused by {name}", rows) for name, rows in self.count("rejected").items())


def _format_more(what: str, rows: int, shown: int) -> Iterator[str]:
    """Yield a line if more rows exist than are shown."""
    if rows > shown:
        yield f"{rows - shown:,} more of the {what} are not shown. Narrow the search with --where or --since."


def _format_batch(batch: BatchMatches, most: int) -> Iterator[str]:
    label = f" ({shorten_paths(batch.label)})" if batch.label else ""
    when = f"settled {show_moment(batch.at)}" if batch.at else "open"
    yield escape_line(f"Batch {batch.number} of lane {batch.lane}{label}, {when}: {format_count(batch.read)}")
    for row in batch.rows[:most]:
        yield escape_line(f"  {_describe_outcome(row)}: {json.dumps(row.row, ensure_ascii=False)}")
        if row.message:
            yield escape_line(f"    {row.message}")


def _describe_outcome(row: TracedRow) -> str:
    if row.outcome == "changed":
        return f"goes into {row.stage}, which makes other rows"
    if row.outcome == "rejected":
        return f"refused by {row.stage}"
    stages = [row.stage, *row.filtered_for.values()]
    filtered = ", ".join(dict.fromkeys(stage for stage in stages if stage))
    parts = [f"goes to {', '.join(row.destinations)}"] if row.destinations else []
    return "; ".join([*parts, *([f"filtered by {filtered}"] if filtered else [])])


def _format_destination(found: DestinationMatches) -> Iterator[str]:
    if found.rows is None:
        yield f"cannot be searched: {found.why}"
        return
    yield f"has {format_count(found.rows)}"
    for write in found.writes:
        brought = " and ".join(f"batch {number} of lane {lane}" for lane, number in write.batches)
        how = "last written by" if found.merges else "from"
        version = f" (version {write.version})" if write.version is not None else ""
        yield f"{format_count(write.rows)} {how} {brought or 'a version without a batch label'}{version}"


_STATES = {"open": "waiting"}
"""The words for states that have another name in JSON."""


def _format_dlq(found: DlqMatches) -> Iterator[str]:
    if found.states:
        yield ", ".join(f"{number:,} {_STATES.get(state, state)}" for state, number in found.states.items())
    yield from found.why.splitlines()


def _format_kept(found: KeptMatches | None) -> Iterator[str]:
    if found is None:
        return
    for stage, rows in found.stages.items():
        yield f"{format_count(rows)} filtered by {stage}"
    if found.why:
        yield found.why
    elif not found.stages:
        yield "no filtered rows"


def _format_unread(unread: Sequence[UnreadBatch], *, keeps: bool) -> Iterator[str]:
    if not unread:
        return
    yield (
        f"{format_batches(len(unread))}, whose files are gone or changed. Wherry can no longer distinguish filtered "
        "rows of them from rows that never existed"
        + (", unless it kept them." if keeps else ". With `keep_filtered: 30d`, it keeps filtered rows from then on.")
    )
    for each in unread[:3]:
        yield f"batch {each.number} of lane {each.lane}: {each.why}"
    if len(unread) > 3:
        yield f"and {format_batches(len(unread) - 3)} more"


def _format_row(row: KeptMatch | LetterMatch) -> str:
    if isinstance(row, LetterMatch):
        where = f"{_STATES.get(row.state, row.state)}, lane {row.lane}, batch {row.number}, {row.stage}: {row.message}"
    else:
        where = f"{row.stage}, lane {row.lane}, batch {row.number}" + (f": {row.message}" if row.message else "")
    return f"  {escape_line(where)}\n    {escape_line(json.dumps(row.row, ensure_ascii=False))}"
