"""The errors with which a run can fail, in words for the person on duty."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from destinations.dlq import DLQ, MOST_NACKS
from origins.batch import Batch, Json
from origins.errors import WherryError
from origins.names import SCHEME
from runners.model.causes import Causes
from runners.model.text import escape_line, format_count


class WindowTripped(WherryError):
    """Too many of the last rows of a lane were refused. The batch that exceeded the window was not delivered."""

    code = "WINDOW"
    batch: Batch

    def __init__(
        self,
        batch: Batch,
        *,
        place: int,
        window: int,
        threshold: int,
        nacks: Sequence[Mapping[str, Json]],
        nacked: int = 1,
        causes: Causes = Causes(),
    ) -> None:
        many, counts = (
            "too many rows were",
            f"{threshold:,} of the last {window:,} rows were refused, which is the limit",
        )
        if threshold == 1:
            many, counts = "a row was", "the first refused row stops the run, because dlq.threshold is 1"
        super().__init__(
            _describe_refusal(batch, f"{many} refused", f", row {place}", [counts], nacks, causes),
            hint="see it       wherry preview FILE\n"
            "let it pass  wherry run FILE --set dlq.window=0  (this run only; refused rows go to the DLQ)\n"
            f"permanent    dlq: {_widen_window(window, threshold, nacked)}  in the definition",
        )
        self.batch = batch
        self.stage = nacks[0]["stage"] if nacks else None
        self.rows = [nack["row"] for nack in nacks]
        """The refused rows. The first is the row that exceeded the window."""
        self.causes = causes


def _widen_window(window: int, threshold: int, nacked: int) -> str:
    """Return a window that a batch with so many nacks does not trip.

    It has the same length, except where the first nack tripped the old one.
    """
    rows = max(window, 1_000) if window == 1 else window
    nacks = max(2 * threshold, threshold + nacked, 50 if window == 1 else 0)
    return f"{{window: {rows}, threshold: {nacks}}}" if nacks <= min(rows, MOST_NACKS) else "{window: 0}"


class StageStopped(WherryError):
    """A stage with `on_error: stop` refused a row. The batch was not delivered."""

    code = "STAGE_STOP"

    def __init__(self, batch: Batch, *, stages: Sequence[str], nacks: Sequence[Mapping[str, Json]]) -> None:
        what = f"the stage '{stages[0]}' refused a row, and its on_error is stop"
        super().__init__(
            _describe_refusal(batch, what, "", [], nacks, Causes()),
            hint="see it       wherry preview FILE\n"
            "let it pass  on_error: nack  at the stage; its refused rows then go to the DLQ",
        )
        self.batch = batch
        self.stage = stages[0]


class LimitTripped(WherryError):
    """More of a batch was refused than a limit allows. The batch was not delivered."""

    code = "LIMIT"

    def __init__(
        self,
        batch: Batch,
        *,
        message: str,
        pauses: bool = False,
        nacks: Sequence[Mapping[str, Json]],
        causes: Causes = Causes(),
    ) -> None:
        paused = "; the pipeline is paused" if pauses else ""
        resume = f"{RESUME}  (before the next run)\n" if pauses else ""
        super().__init__(
            _describe_refusal(batch, f"too many rows were refused{paused}", "", [message], nacks, causes),
            hint=f"see it       wherry preview FILE\n{resume}"
            f"let it pass  wherry run FILE --set dlq.limits.rows=off  (this run only; refused rows go to the DLQ)",
        )
        self.batch = batch
        self.causes = causes
        self.stage = nacks[0]["stage"] if nacks else None


RESUME = 'go on        wherry resume FILE --reason "…"'
"""The hint with the command that ends a pause."""


class Paused(WherryError):
    """A limit paused the pipeline, and no person has resumed it yet."""

    code = "PAUSED"

    def __init__(self, pipeline: str, *, since: str, lane: str, number: int, reason: str) -> None:
        super().__init__(
            f"{pipeline} has been paused since {since}, and no row was read. In batch {number} of lane {lane}, "
            f"{escape_line(reason)}.",
            hint=f"see it       wherry preview FILE\n{RESUME}",
        )


class RefusedLate(WherryError):
    """A destination refuses rows of a batch that other destinations already have."""

    code = "REFUSED_LATE"

    def __init__(self, batch: Batch, *, refusing: str, having: Sequence[str], reason: str) -> None:
        without = (
            f'\ngo without   wherry run FILE --forget {refusing} --reason "…"\n'
            f"             wherry backfill FILE --only {refusing} --lane {batch.lane} --from {batch.number} "
            f'--to {batch.number} --reason "…"  (refuses these rows alone)'
        )
        super().__init__(
            f"'{refusing}' refuses rows of batch {batch.number} of lane {batch.lane}, but "
            f"{' and '.join(having)} {'has' if len(having) == 1 else 'have'} rows of it already: {reason}",
            hint="No row is lost: the batch stays open, and the next run continues with it.\n"
            f"let it in    remove the new constraint or NOT NULL of '{refusing}'; run; add it again"
            + ("" if list(having) == [DLQ] else without),
        )
        self.batch = batch


def _describe_refusal(
    batch: Batch, what: str, row: str, counts: Sequence[str], nacks: Sequence[Mapping[str, Json]], causes: Causes
) -> str:
    """Describe a batch whose refused rows stop the run, with some of these rows."""
    place, label = f"batch {batch.number} of lane {batch.lane}", escape_line(batch.span.label)
    lines = [f"lane {batch.lane}, batch {batch.number}{row}{f': {label}' if label else ''}", *counts]
    for nack in nacks[:3]:
        lines.append(f"stage '{nack['stage']}': {escape_line(str(nack['message']))}")
        lines.append(f"  {json.dumps(nack['row'], ensure_ascii=False)}")
    if causes.found:
        lines += ["all refused rows of the batch:", *(f"  {line}" for line in causes.describe())]
    first = f"{what}. No row is lost; {place} was not delivered, and its offset stays."
    return "\n  ".join([first, *lines])


class Unbalanced(WherryError):
    """The counts of a batch do not add up."""

    code = "UNBALANCED"


class Fenced(WherryError):
    """Another process owns the pipeline now. This process stops without any change."""

    code = "FENCED"


class Owned(WherryError):
    """Another run owns the pipeline."""

    code = "OWNED"


class Refusal(WherryError):
    """The state and the definition do not fit together, and a person must decide what is meant."""

    code = "REFUSED"


def check_reason(reason: str, what: str) -> None:
    """Raise `Refusal` if the reason for this is empty."""
    if not reason.strip():
        raise Refusal(f"{what} needs a reason, which the ledger keeps.", hint='--reason "…"')


class StageError(WherryError):
    """A stage cannot be applied to its rows, because of an unknown column, a type or a syntax error."""

    code = "STAGE"


class SplitAggregate(WherryError):
    """A stage sees one batch at a time, but a destination that is replaced would get its results for several."""

    code = "AGGREGATE"


class CarryFailed(WherryError):
    """A batch could not be carried. The message describes the batch, the place and the cause."""

    code = "CARRY"


class BudgetExceeded(WherryError):
    """More refused rows wait than `dlq.budget` allows. No row is lost, and no further batch was planned."""

    code = "BUDGET"

    def __init__(self, waiting: int, limit: int) -> None:
        rows = f"{format_count(waiting, 'refused row waits', 'refused rows wait')} in the DLQ"
        super().__init__(
            f"{rows}, and dlq.budget is {limit:,}. The run stopped before its next batch.",
            hint="see them      wherry dlq summary FILE\n"
            'process them  wherry dlq replay FILE --reason "…"\n'
            'give them up  wherry dlq discard FILE --reason "…"\n'
            f"allow more    dlq: {{budget: {2 * waiting}}}  in the definition",
        )


class FallbackFailed(CarryFailed):
    """Neither the DLQ nor its fallback could take the refused rows of a batch."""

    code = "FALLBACK"

    def __init__(self, batch: Batch, *, dlq: Exception, fallback: Exception) -> None:
        of_dlq, of_fallback = (getattr(each, "message", str(each)) for each in (dlq, fallback))
        super().__init__(
            f"Neither the DLQ nor the fallback took the refused rows of batch {batch.number} of lane {batch.lane}.\n"
            f"  the DLQ: {of_dlq}\n  the fallback: {of_fallback}",
            hint="The offset of the batch stays. Make one of the two writable; the next run finishes this batch first.",
        )
        self.batch = batch
        self.__cause__ = fallback


class Inaccessible(WherryError):
    """The system does not let this user read or write a file, or has no room for it."""

    code = "ACCESS"


def wrap_file_error(error: Exception) -> WherryError | None:
    """Return the error for a person if the system refused access to a file, and None for other errors."""
    if not isinstance(error, OSError) or error.filename is None or error.errno not in (*_NO_RIGHT, *NO_ROOM):
        return None
    right = f"Run as another user, or change the owner or the mode:  ls -ld {error.filename}"
    return Inaccessible(
        f"{error.filename} cannot be read or written: {error.strerror}.",
        hint=f"{describe_full_disks({'the file': str(error.filename)})} {MAKE_ROOM}"
        if error.errno in NO_ROOM
        else right,
    )


def add_full_disk(hint: str, places: Mapping[str, str]) -> str:
    """Return an error's hint with the full disk added. A hint that already mentions it stays the same."""
    if MAKE_ROOM in hint:
        return hint
    return " ".join(part for part in (describe_full_disks(places), MAKE_ROOM, hint) if part)


MAKE_ROOM = "Free disk space, then run again."
"""What to do about a full disk."""
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class WorkCancelled(Exception):
    """The run was stopped before the Spark session that its work needs had started."""


_LITTLE = 0.02
"""A disk with a smaller free share counts as full. The data that failed to be written may already be removed."""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A file system of this machine."""

    mount: str
    free: int
    """How many bytes this user may still write."""
    size: int
    files: bool = True
    """Whether the disk has room for another file (a free inode)."""

    @staticmethod
    def of(place: str) -> Disk | None:
        """Return the disk of this path, or of its nearest existing parent folder. None for a place elsewhere."""
        local = place.removeprefix("file:")
        if SCHEME.match(local):
            return None
        path = os.path.realpath(local)
        while not os.path.exists(path):
            path = os.path.dirname(path)
        try:
            stats = os.statvfs(path)
        except OSError:
            return None
        while not os.path.ismount(path):
            path = os.path.dirname(path)
        return Disk(
            mount=path,
            free=stats.f_bavail * stats.f_frsize,
            size=stats.f_blocks * stats.f_frsize,
            files=not stats.f_files or stats.f_favail > 0,
        )

    @property
    def is_full(self) -> bool:
        """Whether almost nothing can be written to the disk."""
        return self.free < _LITTLE * self.size or not self.files

    def __str__(self) -> str:
        inodes = "" if self.files else ", and it takes no more files (0 inodes are free)"
        return f"{format_bytes(self.free)} of {format_bytes(self.size)} are free{inodes}"


def describe_full_disks(places: Mapping[str, str]) -> str:
    """Name the full disk, its free space, and what is stored on it.

    `places` maps what is stored to its path. Disks with free space are named only if none is full.
    """
    disks: dict[str, tuple[Disk, list[str]]] = {}
    for what, place in places.items():
        disk = Disk.of(place)
        if disk is not None:
            disks.setdefault(disk.mount, (disk, []))[1].append(f"{what} ({place})")
    full = [each for each in disks.values() if each[0].is_full]
    lines = [] if full else ["A disk was full, and has room again or is on another machine."]
    for disk, held in full or disks.values():
        lines.append(f"The disk at {disk.mount}{' is full' if full else ''}: {disk}. It holds {', '.join(held)}.")
    return " ".join(lines)


def format_bytes(count: int) -> str:
    """Format a number of bytes for a person."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
