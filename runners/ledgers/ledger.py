"""The contract of the ledger: an append-only sequence of entries, in which every append is conditional."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from origins.errors import WherryError
from runners.ledgers.entry import Entry, Settled


class Conflict(WherryError):
    """Somebody else appended since the ledger was read. Nothing of this append landed."""

    code = "CONFLICT"


class LedgerError(WherryError):
    """The ledger cannot be read or written; the run stops, and nothing after its last entry counts."""

    code = "LEDGER"


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
        """Where it lies, as a person would name it."""
