"""How a run can end other than well, in words for the person who has to do something about it."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from destinations.dlq import DLQ, MOST_NACKS
from origins.batch import JSON, Batch
from origins.errors import WherryError
from runners.printable import escape_line

if TYPE_CHECKING:
    from runners.report import Report


class WindowTripped(WherryError):
    """There were too many nacks in the last rows of a lane. The batch that tripped it delivered nothing."""

    code = "WINDOW"
    batch: Batch

    def __init__(
        self,
        batch: Batch,
        *,
        place: int,
        window: int,
        threshold: int,
        nacks: Sequence[Mapping[str, JSON]],
        nacked: int = 1,
    ) -> None:
        counted = "1 nack" if threshold == 1 else f"{threshold} nacks"
        rows = "row" if window == 1 else f"{window} rows"
        lines = [
            f"the dead letter queue's window tripped. Nothing is lost; batch {batch.number} of lane {batch.lane} "
            "was not delivered, and its offset stays.",
            f"  lane {batch.lane}, batch {batch.number}, row {place}{_label(batch)}",
            f"  {counted} in the last {rows}; dlq.threshold is {threshold}",
        ]
        super().__init__(
            "\n".join([*lines, *_examples(nacks)]),
            hint="see it       wherry preview FILE\n"
            "let it pass  wherry run FILE --set dlq.window=0  (this run only; refused rows go to the DLQ)\n"
            f"for good     dlq: {_wider(window, threshold, nacked)}  in the definition",
        )
        self.batch = batch
        self.stage = nacks[0]["stage"] if nacks else None
        self.rows = [nack["row"] for nack in nacks]
        """The refused rows, the one that tripped it first."""


def _wider(window: int, threshold: int, nacked: int) -> str:
    """A window that a batch with so many nacks does not trip, where this one tripped. It is as long, unless that was
    the first nack at once."""
    rows = max(window, 1_000) if window == 1 else window
    nacks = max(2 * threshold, threshold + nacked, 50 if window == 1 else 0)
    return f"{{window: {rows}, threshold: {nacks}}}" if nacks <= min(rows, MOST_NACKS) else "{window: 0}"


class StageStopped(WherryError):
    """A stage refused a row, and its `on_error` is stop. The batch delivered nothing."""

    code = "STAGE_STOP"

    def __init__(self, batch: Batch, *, stages: Sequence[str], nacks: Sequence[Mapping[str, JSON]]) -> None:
        lines = [
            f"the stage '{stages[0]}' refused a row, and its on_error is stop. Nothing is lost; batch "
            f"{batch.number} of lane {batch.lane} was not delivered, and its offset stays.",
            f"  lane {batch.lane}, batch {batch.number}{_label(batch)}",
        ]
        for nack in nacks[:3]:
            lines.append(f"  stage '{nack['stage']}': {escape_line(nack['message'])}")
            lines.append(f"    {json.dumps(nack['row'], ensure_ascii=False)}")
        super().__init__(
            "\n".join(lines),
            hint="see it       wherry preview FILE\n"
            "let it pass  on_error: nack  at the stage: such rows go to the dead letter queue, if its window lets them",
        )
        self.batch = batch
        self.stage = stages[0]


class LimitTripped(WherryError):
    """More rows of a batch were refused for one reason than that reason may have. The batch delivered nothing."""

    code = "LIMIT"

    def __init__(self, batch: Batch, *, of: str, limit: str, rows: int, read: int, nacks: Sequence[Mapping[str, JSON]]):
        lines = [
            f"too many rows were refused with {of}. Nothing is lost; batch {batch.number} of lane {batch.lane} was not "
            "delivered, and its offset stays.",
            f"  lane {batch.lane}, batch {batch.number}{_label(batch)}",
            f"  {rows:,} of its {read:,} rows; dlq.limits allows {limit} of a batch",
            *_examples(nacks),
        ]
        super().__init__(
            "\n".join(lines),
            hint="see it       wherry preview FILE\n"
            f"let it pass  wherry run FILE --set dlq.limits.{of}=off  (this run only; refused rows go to the DLQ)",
        )
        self.batch = batch
        self.stage = nacks[0]["stage"] if nacks else None


class RefusedLate(WherryError):
    """A destination refuses rows of a batch that others have got already."""

    code = "REFUSED_LATE"

    def __init__(self, batch: Batch, *, refusing: str, having: Sequence[str], said: str) -> None:
        without = (
            f'\ngo without   wherry run FILE --forget {refusing} --reason "…"\n'
            f"             wherry backfill FILE --only {refusing} --lane {batch.lane} --from {batch.number} "
            f'--to {batch.number} --reason "…"  (refuses these rows alone)'
        )
        super().__init__(
            f"'{refusing}' refuses rows of batch {batch.number} of lane {batch.lane}, of which "
            f"{' and '.join(having)} {'has' if len(having) == 1 else 'have'} got rows already: {said}",
            hint="Nothing is lost: the batch stays open, and the next run goes on with it.\n"
            f"let it in    take back what '{refusing}' demands by now, a constraint or NOT NULL; run; demand it again"
            + ("" if list(having) == [DLQ] else without),
        )
        self.batch = batch


class Unbalanced(WherryError):
    """A batch was delivered, and its counts do not add up."""

    code = "UNBALANCED"


def _label(batch: Batch) -> str:
    return f": {escape_line(batch.span.label)}" if batch.span.label else ""


def _examples(nacks: Sequence[Mapping[str, JSON]]) -> Sequence[str]:
    said = [(nack["stage"], escape_line(nack["message"]), nack["row"]) for nack in nacks[:3]]
    return [f"  stage '{stage}': {message}\n    {json.dumps(row, ensure_ascii=False)}" for stage, message, row in said]


class Fenced(WherryError):
    """Another process owns the pipeline now; this one stops without touching anything."""

    code = "FENCED"


class Owned(WherryError):
    """Another run owns the pipeline."""

    code = "OWNED"


class Refusal(WherryError):
    """The state and the definition do not go together, and a person must say what is meant."""

    code = "REFUSED"


class StageError(WherryError):
    """A stage cannot be applied to the rows that reach it: an unknown column, a type, a syntax error."""

    code = "STAGE"


class SplitAggregate(WherryError):
    """A stage sees one batch at a time, and a destination that is replaced would get its results of several."""

    code = "AGGREGATE"


class CarryFailed(WherryError):
    """A batch could not be carried; what it was, where, and in whose words."""

    code = "CARRY"


class Inaccessible(WherryError):
    """The system does not let this user read or write a file, or has no room for it."""

    code = "ACCESS"


def inaccessible(error: Exception) -> WherryError | None:
    """The error as a person is told of it, where it is the system's answer about a file; None for any other."""
    if not isinstance(error, OSError) or error.filename is None or error.errno not in (*_NO_RIGHT, *_NO_ROOM):
        return None
    right = f"Run as a user who may, or change whose it is, or its mode:  ls -ld {error.filename}"
    return Inaccessible(
        f"{error.filename} cannot be read or written: {error.strerror}.",
        hint="Make room, then run again." if error.errno in _NO_ROOM else right,
    )


_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class PipelineFailed(WherryError):
    """A run failed. `report` says how far it came."""

    code = "RUN_FAILED"

    def __init__(self, report: Report) -> None:
        super().__init__(str(report.error))
        self.report = report
