"""What went wrong with a task, as a person is told of it: which batch, in whose words, and no protected value."""

from __future__ import annotations

from collections.abc import Sequence

from origins.batch import Batch
from origins.changes import stopped
from origins.errors import WherryError
from origins.protection import Protection
from runners.errors import CarryFailed
from runners.printable import escape_line
from runners.session import in_short

_FULL = "No space left on device"


def told(batches: Sequence[Batch], error: Exception, protection: Protection) -> WherryError:
    """The error with the batches that were being carried; one of ours stays what it is."""
    stop = stopped(error, protection)
    failed: WherryError
    if isinstance(error, WherryError):
        failed = _without_values(error, protection)
    elif stop is not None:
        failed = stop
        failed.__cause__ = error
    else:
        failed = _of(batches, protection.words(error, in_short(error)))
        failed.__cause__ = error
    if len(batches) == 1 and failed.batch is None:
        failed.batch = batches[0]
    return failed


def _of(batches: Sequence[Batch], said: str) -> CarryFailed:
    named = [f"batch {batch.number} of lane {batch.lane} ({escape_line(batch.span.label)})" for batch in batches]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    room = "Make room on the disk, then run again. " if _FULL in said else ""
    stays = (
        "Its offset stays where it was; the next run looks at this batch first."
        if len(named) == 1
        else "Their offsets stay where they were; the next run looks at these batches first."
    )
    return CarryFailed(f"{', '.join(named[:3])}{more}: {said}", hint=room + stays)


def _without_values(error: WherryError, protection: Protection) -> WherryError:
    """An error of ours that quotes somebody else's, in other words."""
    cause = error.__cause__
    if cause is not None and protection and not isinstance(cause, WherryError):
        for said in (f"{type(cause).__name__}: {cause}", str(cause), str(cause).partition("\n")[0], in_short(cause)):
            error.message = error.message.replace(said, protection.words(cause, said)) if said else error.message
    return error
