"""The contract of the ledger: an append-only sequence of entries, in which every append is conditional."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from origins.errors import WherryError
from runners.model.entry import Entry, Settled


class Conflict(WherryError):
    """Another process appended since the ledger was read. Nothing of this append landed."""

    code = "CONFLICT"


class LedgerError(WherryError):
    """The ledger cannot be read or written; the run stops, and nothing after its last entry counts."""

    code = "LEDGER"


RESTORE = "Restore the ledger from a backup. The run processed nothing."
"""What to do about a ledger that cannot be understood."""


class Ledger(ABC):
    """The memory of a pipeline. One implementation, fixed when it is made, writes a given ledger."""

    @abstractmethod
    def read(self, after: int = 0) -> list[Entry]:
        """The entries with a sequence number above `after`, in order.

        Where older ones were compacted away the first is a `snapshot`, which stands for all before it.
        A ledger that does not exist yet is empty, and reading does not make it. Raises `LedgerError` for one
        of a newer format.
        """

    @abstractmethod
    def append(self, entries: Sequence[Entry], *, after: int) -> list[Entry]:
        """Add the entries, all or none, with the numbers `after + 1` and on; returns them numbered.

        Raises `Conflict` if the last number is not `after`. An append that failed in some other way and yet
        landed counts as landed: the entries' own ids tell. Makes the ledger at its first append.
        """

    @abstractmethod
    def compact(self, snapshot: Entry, settled: Sequence[Settled], *, after: int) -> Entry:
        """Put `snapshot` in the place of all entries up to `after`, once `settled` is in the history.

        Conditional like `append`, and numbered like it; returns the snapshot numbered. `settled` are the
        batches that these entries settled; one that is in the history already is not added again.
        """

    @abstractmethod
    def history(self) -> Iterator[Settled]:
        """The batches that were settled before the last snapshot, in no order."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Its place, for messages."""


TRIES = 5
"""How often a commit is tried that fails without another process's entry."""


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
