"""The DLQ's rows, batch by batch, against those that the ledger says were refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from destinations.account import Account
from destinations.dlq import DLQ
from origins.batch import JSON
from runners.audits.finding import ACCEPT, Finding
from runners.audits.said import Said
from runners.ledgers.entry import Settled

_STRAY = f"If the ledger is an old one, put the newest back. Else delete these rows. {ACCEPT}"


@dataclass(frozen=True, kw_only=True)
class Held:
    """The rows that the DLQ has of one batch."""

    plan: str
    lane: str
    number: int
    rows: int
    ids: frozenset[str] = frozenset()
    """Of those of which it matters which they are: where the number is not the one that was refused."""
    distinct: int = 0


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What the DLQ can show."""

    place: str = ""
    held: Sequence[Held] | None = None
    """None for one whose rows cannot be read again."""
    account: Account | None = None
    there: bool = True
    unreadable: str = ""
    """Why its rows cannot be read, though it keeps them."""
    by_plan: Mapping[str, Held] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_plan", {each.plan: each for each in self.held or ()})

    def json(self, said: Said) -> Mapping[str, JSON] | None:
        """How many rows should be there, and how many are."""
        if self.held is None:
            return None
        refused = sum(_refused(each) for each in said.settled)
        return {"refused": refused, "decided": len(said.decided), "rows": sum(each.rows for each in self.held)}


def letters_of(said: Said, queue: Queue) -> Iterator[Finding]:
    """Refused rows that are missing, that are there twice, or that no batch has refused."""
    if queue.unreadable:
        yield from _harmed(queue)
    if queue.held is None:
        return
    lacking = [each for each in said.counting if _missing(said, queue, each) > 0]
    if not queue.there and lacking:
        yield Finding(
            code="DLQ_GONE",
            destination=DLQ,
            message=f"{queue.place} is gone, which held the refused rows of {len(lacking):,} batches",
            repair=f"Put a backup there; without one the batches that refused rows must be read again. {ACCEPT}",
        )
        return
    for each in lacking:
        yield _lacks(said, queue, each)
    for held in queue.by_plan.values():
        if held.distinct < held.rows:
            said_so = f"{held.rows - held.distinct} of its refused rows are there twice"
            yield _finding(held, "DLQ_TWICE", said_so, f"Delete one of each id by hand. {ACCEPT}")
        if held.plan not in said.known:
            said_so = f"{held.rows} rows are there of a batch that the ledger does not know"
            yield _finding(held, "DLQ_STRAY", said_so, _STRAY)
    for each in said.settled:
        held_now = queue.by_plan.get(each.plan)
        if held_now is not None and held_now.distinct > _refused(each):
            said_so = f"the ledger says that {_refused(each)} rows were refused, and {held_now.distinct} are there"
            yield _finding(held_now, "DLQ_STRAY", said_so, f"Somebody wrote there. {ACCEPT}")


def _harmed(queue: Queue) -> Iterator[Finding]:
    """Whose rows lie in files that cannot be read."""
    repair = f"Put the file back from a backup. {ACCEPT}"
    found = False
    for each in queue.account.brought if queue.account else ():
        if each.loss is not None and each.loss.version is None:
            found = True
            yield Finding(
                code=each.loss.code,
                lane=each.label["lane"],
                number=each.label["number"],
                destination=DLQ,
                plans=[each.label["plan"]],
                message=f"its refused rows cannot be read: {each.loss.said}",
                repair=repair,
            )
    if not found:
        yield Finding(code="LOG_BROKEN", destination=DLQ, message=queue.unreadable, repair=repair)


def _refused(settled: Settled) -> int:
    """How many rows of the batch went to the DLQ."""
    nacked: int = settled.counts.get("nacked", 0)
    discarded: int = settled.counts.get("discarded", 0)
    return 0 if discarded else nacked


def _missing(said: Said, queue: Queue, settled: Settled) -> int:
    """How many rows are missing of which nobody decided anything."""
    refused, held = _refused(settled), queue.by_plan.get(settled.plan)
    there = held.distinct if held else 0
    if there >= refused:
        return 0
    ids = held.ids if held else frozenset()
    return refused - there - sum(each not in ids for each in said.letters.get(settled.plan, ()))


def _lacks(said: Said, queue: Queue, settled: Settled) -> Finding:
    missing = _missing(said, queue, settled)
    writes = [each for each in (queue.account.brought if queue.account else ()) if each.label["plan"] == settled.plan]
    loss = next((each.loss for each in reversed(writes) if each.loss is not None), None)
    back = loss is not None and loss.version is not None and queue.account is not None and queue.account.mends
    how = f": {loss.said}" if loss is not None else ""
    again = (
        'They can be put back as they were while their files are there:  wherry repair FILE --reason "…"\nElse: '
        if back
        else ""
    )
    return Finding(
        code="DLQ_MISSING",
        lane=settled.lane,
        number=settled.number,
        destination=DLQ,
        version=loss.version if loss is not None else None,
        plans=[settled.plan],
        message=f"{missing:,} of {_refused(settled):,} refused rows are missing, of which nobody decided anything{how}",
        repair=f"{again}Put the queue back from a backup. {ACCEPT}",
        remedy="put_back" if back else "",
    )


def _finding(held: Held, code: str, message: str, repair: str) -> Finding:
    return Finding(
        code=code,
        lane=held.lane,
        number=held.number,
        destination=DLQ,
        plans=[held.plan],
        message=message,
        repair=repair,
    )
