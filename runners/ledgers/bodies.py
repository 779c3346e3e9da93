"""Bodies that are too large for the ledger: they lie in a table beside it, and an entry is small whatever it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from runners.ledgers.ledger import LedgerError
from runners.ledgers.ledger_rows import BODIES, Row

LARGEST = 15 * 1024
"""So many bytes of a body stand in the ledger; with its other columns an entry stays below 16 KiB."""
BESIDE = '"beside"'
"""What stands in the place of a body that lies beside. A body is an object, so none looks like this."""


def apart(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The entries as the ledger keeps them, and the bodies that are too large for it."""
    large = [row for row in rows if len(row["body"].encode()) > LARGEST]
    kept = [{**row, "body": BESIDE} if row in large else row for row in rows]
    return kept, [{name: row[name] for name in BODIES} for row in large]


def together(place: str, rows: Iterable[Row], look: Callable[[str], Iterable[Row]]) -> list[Row]:
    """The entries with their whole bodies; `look` gives those that lie beside for which a condition holds.

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
                    f"The ledger at {place} has lost the body of entry {row['seq']}, which lay in the table beside it.",
                    hint=f"Put the table {place}_bodies back as it was, from a backup; without it nothing is read.",
                )
            row["body"] = bodies[row["seq"], row["id"]]
    return found
