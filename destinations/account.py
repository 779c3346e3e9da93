"""What a destination shows when it is asked what it got: the evidence of an audit, whatever the ledger says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict


class BatchLabel(TypedDict):
    """What a destination notes with the rows of a batch."""

    pipeline: str
    lane: str
    number: int
    plan: str
    destination: str
    key: str
    """The plan's id and the destination's name."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What took rows away, or harmed them, that a batch had brought."""

    code: str
    """`ROWS_GONE`, `RESTORED`, `FILE_GONE`, `FILE_CHANGED` or `LOG_BROKEN`; of a doubt `NOT_PROVED`."""
    said: str
    """What happened, as the end of a sentence about the rows."""
    version: int | None = None
    """The version that did it."""
    whole: bool = False
    """Whether none of the batch's rows is there any more."""
    restore: str = ""
    """The statement in SQL that takes the table back to before; empty where it would take rows of others away."""
    takes_later: bool = False
    """Whether `restore` also takes later batches away, which can be put back."""
    insert: str = ""
    """The statement in SQL that adds the missing rows, without the batch's label; empty where none can."""


@dataclass(frozen=True, kw_only=True)
class BroughtBatch:
    """A write that says which batch it brought."""

    label: BatchLabel
    rows: int | None
    """How many rows it brought, by its own figure, those of the batches that came with it included."""
    together: Sequence[str] = ()
    """The keys of all batches that it brought, this one's included."""
    version: int | None = None
    listed: int | None = None
    """How many rows the files have that it added, as far as that can be compared."""
    files: Sequence[str] = ()
    """The names of the files that it added, where they are those of a table."""
    copied: int = 0
    """How many rows its files hold beside its own, which others had brought before."""
    loss: Loss | None = None
    """What became of the rows, if they are not there any more as they came."""
    doubt: Loss | None = None
    """A change to a file with these rows and others, where the changed rows are unknown."""

    @property
    def key(self) -> str:
        """The plan's id and the destination's name."""
        return self.label["key"]


@dataclass(frozen=True, kw_only=True)
class DeliveryAccount:
    """What a destination can show for the batches that it got."""

    place: str
    proof: str
    """What can be proved of it and what cannot, in a sentence."""
    there: bool = True
    """Whether there is such a place at all."""
    id: str = ""
    """The id of the table or folder; empty if it has none."""
    silent: bool = False
    """Whether a batch may have left no trace though it had rows: a merge that changed nothing makes no commit."""
    mends: bool = False
    """Whether rows that are gone can be put back from their own files: they were only ever added."""
    since: int = 0
    """The first version of which it still tells."""
    brought: Sequence[BroughtBatch] = ()
    """In the order in which they came."""
    losses: Sequence[Loss] = ()
    """What removed rows whose batches are no longer known."""

    @property
    def whole(self) -> bool:
        """Whether its history goes back to its beginning."""
        return self.since == 0
