"""How an append lands: what a commit says of itself is a hint, what the ledger holds afterwards counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from runners.ledgers.entry import Entry
from runners.ledgers.ledger import Conflict, LedgerError

TRIES = 5
"""How often a commit is tried that fails though nobody else's entry is in its way."""


def land(
    entries: Sequence[Entry],
    *,
    after: int,
    fresh: bool,
    look: Callable[[int], tuple[list[Entry], int]],
    commit: Callable[[Sequence[Entry]], None],
) -> list[Entry]:
    """Add the entries behind the last one, whose number must be `after`; returns them numbered.

    `fresh` says that it was, at the last look. `look` reads anew: the entries above a number, and the last number.
    `commit` adds entries if nothing was added since the last look, and raises `LedgerError` unless it is sure of it.
    """
    if not entries:
        return []
    numbered = [replace(entry, seq=seq) for seq, entry in enumerate(entries, after + 1)]
    failures: list[LedgerError] = []
    while True:
        if failures or not fresh:
            later, last = look(after)
            if [entry.id for entry in later[: len(numbered)]] == [entry.id for entry in numbered]:
                return numbered
            if last != after:
                raise Conflict(f"The ledger's last entry is {last}; {after} was expected.")
        if len(failures) == TRIES:
            raise failures[-1]
        try:
            commit(numbered)
        except LedgerError as error:
            failures.append(error)
        else:
            return numbered
