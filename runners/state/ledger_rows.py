"""How entries and settled batches stand in a table: a row each, what is nested as JSON text; and how it stays small."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypedDict

from origins.json_shape import check_shape
from runners.model.counts import SettledCounts
from runners.model.entry import FORMAT, Entry, Settled, SpanBody, as_text
from runners.model.version import find_version
from runners.state.ledger import RESTORE, LedgerError

Body = Mapping[str, object]


def migrate_entry(entry: Entry) -> Entry:
    """The entry in the format of today."""
    if entry.format == FORMAT:
        return entry
    change = _CHANGES.get(entry.kind)
    return replace(entry, format=FORMAT, body=change(entry.body) if change else entry.body)


class _OldOrigin(TypedDict):
    name: str
    lanes: Sequence[str]
    place: str


class _OldSnapshot(TypedDict):
    opened: Mapping[str, object]
    lanes: Mapping[str, Mapping[str, object]]


def _plan(body: Body) -> Body:
    return {"pins": {}, "first": False, **body, "decision": _migrate_in(body.get("decision"), _decision)}


def _migrate_in(value: object, change: Callable[[Body], Body]) -> Body | None:
    """What stands in another body, if anything does."""
    return change(check_shape(_Nested, {"body": value})["body"]) if value else None


class _Nested(TypedDict):
    body: Mapping[str, object]


def _decision(body: Body) -> Body:
    return {"sections": 1, "bases": {}, **body}


def _opened(body: Body) -> Body:
    """There was one origin, and its schema stood beside it."""
    if not body or "origins" in body:
        return body
    origin = check_shape(_OldOrigin, body.get("origin") or {"name": "origin", "lanes": ["0"], "place": ""})
    schema = body.get("schema")
    return {**body, "origins": {origin["name"]: {"lanes": origin["lanes"], "place": origin["place"], "schema": schema}}}


def _snapshot(body: Body) -> Body:
    old = check_shape(_OldSnapshot, body)
    lanes = {name: _lane(lane) for name, lane in old["lanes"].items()}
    shared = {"held": {}, "done": [], "owners": _owners(body)}
    return {"midway": False, "backfills": {}, **shared, **body, "opened": _opened(old["opened"]), "lanes": lanes}


def _owners(body: Body) -> list[Body]:
    """There was one at most, and when it was heard stood beside it."""
    seq, at = check_shape(_Heard, {"heard": body.get("heard", (0, ""))})["heard"]
    owner = _migrate_in(body.get("owner"), lambda owner: owner)
    return [{**owner, "heard": seq, "heard_at": at}] if owner else []


class _Heard(TypedDict):
    heard: tuple[int, str]


def _lane(lane: Body) -> Body:
    return {**lane, **{name: _migrate_in(lane.get(name), _plan) for name in ("open", "told")}}


_CHANGES: Mapping[str, Callable[[Body], Body]] = {
    "open": _opened,
    "plan": _plan,
    "prepared": _decision,
    "snapshot": _snapshot,
}

Columns = Mapping[str, str]
"""The columns of a table, in order, with their types as Delta and Spark write them in JSON."""

ENTRIES: Columns = {
    "seq": "long",
    "kind": "string",
    "lane": "string",
    "plan": "string",
    "epoch": "long",
    "owner": "string",
    "id": "string",
    "at": "string",
    "format": "integer",
    "body": "string",
}
SETTLED: Columns = {
    "number": "long",
    "lane": "string",
    "plan": "string",
    "run": "string",
    "at": "string",
    "span": "string",
    "counts": "string",
}
BODIES: Columns = {
    "seq": "long",
    "id": "string",
    "body": "string",
}
Row = dict[str, Any]


def make_schema(columns: Columns) -> str:
    """The schema of a table with these columns, as Delta and Spark write it."""
    described = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": described})


def parse_columns(schema: str) -> Columns:
    """The columns of a table with this schema, as Delta and Spark write it."""
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


def make_foreign_table_error(place: str, expected: Columns, found: Columns) -> LedgerError:
    """What is wrong with a table that has other columns than a ledger."""
    return LedgerError(
        f"{place} is a Delta table, but not a ledger of Wherry {find_version()}: expected the columns "
        f"{_describe_columns(expected)}; found {_describe_columns(found)}.",
        hint="Set `state` to another place. Wherry wrote nothing here.",
    )


def check_format(place: str, newest: int) -> None:
    """Raises `LedgerError` when this version does not know the newest format in a ledger."""
    if newest > FORMAT:
        raise LedgerError(
            (f"The ledger at {place} has entries of format {newest}; Wherry {find_version()} reads up to {FORMAT}."),
            hint=f"Upgrade Wherry to a version that reads format {newest}: a newer version has written this state.",
        )


def to_row(item: Entry | Settled) -> Row:
    """The entry, or the settled batch, as a row."""
    return {name: as_text(value) if name in _NESTED else value for name, value in vars(item).items()}


def to_entries(place: str, rows: Iterable[Row]) -> list[Entry]:
    """The rows as entries of today's format, in order. Raises `LedgerError` when one is of a newer format."""
    found = list(rows)
    check_format(place, max((row["format"] for row in found), default=0))
    return [_to_entry(place, row) for row in sorted(found, key=lambda row: row["seq"])]


def _to_entry(place: str, row: Row) -> Entry:
    try:
        return migrate_entry(Entry(**{**row, "body": check_shape(_Nested, {"body": json.loads(row["body"])})["body"]}))
    except ValueError as error:
        raise LedgerError(
            f"Entry {row['seq']} of the ledger at {place} ({row['kind']}) cannot be understood: {error}.", hint=RESTORE
        ) from error


def to_settled(place: str, row: Row) -> Settled:
    """The row as a settled batch. Raises `LedgerError` when it is none."""
    try:
        span = check_shape(SpanBody, json.loads(row["span"]))
        return Settled(**{**row, "span": span, "counts": check_shape(SettledCounts, json.loads(row["counts"]))})
    except ValueError as error:
        raise LedgerError(
            f"Batch {row['number']} of lane {row['lane']} in the history of the ledger at {place} cannot be "
            f"understood: {error}.",
            hint=RESTORE,
        ) from error


_NESTED = {"body", "span", "counts"}


def _describe_columns(columns: Columns) -> str:
    return ", ".join(f"{name} {kind if isinstance(kind, str) else kind['type']}" for name, kind in columns.items())


LARGEST = 15 * 1024
"""So many bytes of a body stand in the ledger; with its other columns an entry stays below 16 KiB."""
BESIDE = '"beside"'
"""What replaces a body that is in the table beside. A body is an object, so none looks like this."""


def split_bodies(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The entries as the ledger keeps them, and the bodies that are too large for it."""
    large = [row for row in rows if len(row["body"].encode()) > LARGEST]
    kept = [{**row, "body": BESIDE} if row in large else row for row in rows]
    return kept, [{name: row[name] for name in BODIES} for row in large]


def join_bodies(place: str, rows: Iterable[Row], look: Callable[[str], Iterable[Row]]) -> list[Row]:
    """The entries with their whole bodies; `look` gives bodies in the table beside that meet a condition.

    Raises `LedgerError` when one is not there.
    """
    found = list(rows)
    beside = [row["seq"] for row in found if row["body"] == BESIDE]
    if not beside:
        return found
    bodies = {(row["seq"], row["id"]): row["body"] for row in look(f"seq >= {min(beside)} and seq <= {max(beside)}")}
    for row in found:
        if row["body"] == BESIDE:
            if (row["seq"], row["id"]) not in bodies:
                raise LedgerError(
                    f"The ledger at {place} has lost the body of entry {row['seq']}, which the table beside it should "
                    "have.",
                    hint=f"Put the table {place}_bodies back from a backup; without it Wherry reads nothing.",
                )
            row["body"] = bodies[row["seq"], row["id"]]
    return found


FILES = 64
"""How many files a history may have. Every compaction that settled something adds one."""
KEPT_DAYS = 7
"""How long a file stays that is not part of its table any more: somebody may be reading."""


class LedgerTable(Protocol):
    """What both kinds of ledger tables can do."""

    def count_files(self) -> int:
        """How many files the table has."""

    def optimize(self) -> None:
        """Put small files together."""

    def vacuum(self) -> None:
        """Remove files that have not been part of the table for `KEPT_DAYS`."""

    def remove(self, condition: str) -> None:
        """Remove the rows for which the condition holds."""


def tidy(entries: LedgerTable, settled: LedgerTable, bodies: LedgerTable, *, first: int) -> None:
    """Remove the bodies of entries before `first`; once in `FILES` compactions put the history together and sweep.

    What goes wrong here costs space and time only, and the next compaction makes up for it.
    """
    with contextlib.suppress(Exception):  # deltalake has no type for a file that is gone, and no row depends on this
        bodies.remove(f"seq < {first}")
        if settled.count_files() > FILES:
            settled.optimize()
            for table in (settled, entries, bodies):
                table.vacuum()
