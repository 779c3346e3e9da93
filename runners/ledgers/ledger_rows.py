"""How entries and settled batches stand in a table: a row each, what is nested as JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from origins.batch import JSON
from runners.ledgers.entry import FORMAT, Entry, Settled, as_text
from runners.ledgers.ledger import LedgerError
from runners.ledgers.migration import migrated
from runners.version import version

Columns = Mapping[str, JSON]
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
Row = dict[str, JSON]


def schema_of(columns: Columns) -> str:
    """The schema of a table with these columns, as Delta and Spark write it."""
    described = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": described})


def columns_of(schema: str) -> Columns:
    """The columns of a table with this schema, as Delta and Spark write it."""
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}


def not_ours(place: str, expected: Columns, found: Columns) -> LedgerError:
    """What is wrong with a table that has other columns than a ledger."""
    return LedgerError(
        f"{place} is a Delta table, but not a ledger of this wherry ({version()}): "
        f"expected the columns {_said(expected)}; found {_said(found)}.",
        hint="Set `state` to another place; nothing was written here.",
    )


def check_format(place: str, newest: int) -> None:
    """Raises `LedgerError` when the newest format in a ledger is one that this version does not know."""
    if newest > FORMAT:
        raise LedgerError(
            f"The ledger at {place} has entries of format {newest}; this wherry ({version()}) reads up to {FORMAT}.",
            hint=f"Upgrade to a wherry that reads format {newest}: a newer one has been used on this state.",
        )


def row_of(item: Entry | Settled) -> Row:
    """The entry, or the settled batch, as a row."""
    return {name: as_text(value) if name in _NESTED else value for name, value in vars(item).items()}


def entries_of(place: str, rows: Iterable[Row]) -> list[Entry]:
    """The rows as entries of today's format, in order. Raises `LedgerError` when one is of a newer format."""
    found = list(rows)
    check_format(place, max((row["format"] for row in found), default=0))
    return [migrated(Entry(**_unpacked(row))) for row in sorted(found, key=lambda row: row["seq"])]


def settled_of(row: Row) -> Settled:
    """The row as a settled batch."""
    return Settled(**_unpacked(row))


_NESTED = {"body", "span", "counts"}


def _unpacked(row: Row) -> Row:
    return {name: json.loads(value) if name in _NESTED else value for name, value in row.items()}


def _said(columns: Columns) -> str:
    return ", ".join(f"{name} {kind if isinstance(kind, str) else kind['type']}" for name, kind in columns.items())
