"""What one destination, and the DLQ, can show of each batch against what the ledger says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from destinations.destination import BroughtBatch, DeliveryAccount
from destinations.dlq import DLQ
from origins.batch import JSON
from runners.model.entry import Settled
from runners.operations.audit_finding import ACCEPT, Finding, FindingWriter
from runners.operations.ledger_claims import (
    LedgerClaims,
    count_decided_for,
    count_rows_for,
    group_same_rows,
    list_meant_destinations,
    make_rows_key,
)

_OTHER = -1
"""What a batch's rows are in a write whose number of rows is another one than the ledger's."""


class DeliveryAudit:
    """What was to be delivered to one destination, and what it shows."""

    def __init__(
        self, said: LedgerClaims, name: str, account: DeliveryAccount | None, names: Mapping[str, str]
    ) -> None:
        self.said = said
        self.name = name
        self.account = account
        self.names = frozenset(each for each, now in names.items() if now == name)
        """All names that it has or had."""
        self.words = FindingWriter(name, several_lanes=len(said.lanes) > 1)

    def has(self, key: str) -> bool | None:
        """Whether it shows the batch with this key; None if it can show nothing."""
        return None if self.account is None else key in self._brought

    def count_shown(self, settled: Settled, own: str) -> int | None:
        """How many rows of the batch it shows; None where it can show nothing of it."""
        if self.account is None or not self._is_reached(settled) or count_rows_for(settled, own) == 0:
            return None
        found = self._list_standing(f"{settled.plan}/{own}")
        if not found:
            return None if self.account_is_silent and not self._brought.get(f"{settled.plan}/{own}") else 0
        rows = self._count_rows(found[0], settled, own)
        return None if rows == _OTHER else rows

    def count_delivered(self, settled: Settled, own: str) -> int | None:
        """How many rows of the batch it has: by what it shows, else by the ledger's word; None where neither says."""
        shown = self.count_shown(settled, own)
        return count_rows_for(settled, own) if shown is None else shown

    def is_expected(self, settled: Settled, own: str) -> bool:
        """Whether the batch's rows are to be here, in this batch's name: it is not on its way, and no later one brought
        the same rows again."""
        return not self._open(settled, own) and (
            bool(self._list_standing(f"{settled.plan}/{own}")) or not self._is_covered(settled)
        )

    def find_unproved(self, settled: Settled, own: str) -> Finding | None:
        """The finding about a batch whose equation is not proved; None if it is."""
        counts, delivered = settled.counts, self.count_delivered(settled, own)
        branch = (counts.get("branches") or {}).get(own)
        read, unknown = counts.get("read", 0), counts.get("balanced") == "unknown"
        if delivered is None:
            return self.words.report_unproved(
                settled, f"the ledger does not know how many of its {read:,} rows were delivered here"
            )
        if unknown and None not in counts["delivered"].values():
            return self.words.report_unproved(
                settled, f"{delivered:,} rows were delivered here, but the number of rows read is unknown"
            )
        if branch is None:
            return None
        read, gone = read + branch.get("changed", 0), branch.get("filtered", 0) + counts.get("nacked", 0)
        if read == delivered + gone:
            return None
        said = f"{read:,} rows were read, {delivered:,} were delivered here, and {gone:,} were filtered or refused"
        return self.words.report_unproved(settled, said) if unknown else self.words.report_unbalanced(settled, said)

    @property
    def proved_from(self) -> Mapping[str, int] | None:
        """For each lane the first batch of which its history tells."""
        if self.account is None or not self.account.there:
            return None
        first = {lane: number for lane in self._lanes if (number := self._find_first(lane)) is not None}
        return first if first or not self._lanes else None

    def list_findings(self) -> Iterator[Finding]:
        """What does not add up here."""
        if self.account is None:
            return
        if not self.account.there:
            pairs = [pair for lane in self._lanes.values() for pair in lane if count_rows_for(*pair) != 0]
            if pairs:
                yield self.words.report_gone(self.account.place, len(pairs))
            return
        known = self.said.state.identities.get(self.name)
        other = bool(known and known.id and self.account.id and known.id != self.account.id)
        if other:
            yield self.words.report_replaced(self.account.place)
        for loss in self.account.losses:
            yield self.words.report_unnamed(loss)
        for lane in self._lanes.values():
            for settled, own in lane:
                yield from self._check_batch(settled, own, replaced=other)
        yield from self._find_strays()

    @cached_property
    def _brought(self) -> Mapping[str, Sequence[BroughtBatch]]:
        found: dict[str, list[BroughtBatch]] = {}
        for each in self.account.brought if self.account else ():
            found.setdefault(each.key, []).append(each)
        return found

    @cached_property
    def _lanes(self) -> Mapping[str, Sequence[tuple[Settled, str]]]:
        """The batches that were meant for it, by lane, each with the name that it had then."""
        found: dict[str, list[tuple[Settled, str]]] = {}
        for lane, batches in self.said.lanes.items():
            mine = [(each, own) for each in batches for own in list_meant_destinations(each) if own in self.names]
            if mine:
                found[lane] = mine
        return found

    @cached_property
    def _again(self) -> Mapping[str, Sequence[Settled]]:
        return group_same_rows(self.said.settled)

    @property
    def account_is_silent(self) -> bool:
        """Whether a batch may have left no trace here."""
        return self.account is not None and self.account.silent

    @cached_property
    def _firsts(self) -> dict[str, int | None]:
        return {}

    def _find_first(self, lane: str) -> int | None:
        """The first batch of a lane of which the history tells."""
        assert self.account is not None
        if lane not in self._firsts:
            mine = self._lanes.get(lane, ())
            told = mine if self.account.whole else [pair for pair in mine if self.has(f"{pair[0].plan}/{pair[1]}")]
            self._firsts[lane] = min((settled.number for settled, _ in told), default=None)
        return self._firsts[lane]

    def _is_reached(self, settled: Settled) -> bool:
        first = self._find_first(settled.lane)
        return first is not None and settled.number >= first

    def _list_standing(self, key: str) -> Sequence[BroughtBatch]:
        """The writes of a batch whose rows are all there."""
        return [each for each in self._brought.get(key, ()) if each.loss is None]

    def _check_batch(self, settled: Settled, own: str, *, replaced: bool) -> Iterator[Finding]:
        """One batch that the ledger says was delivered here; one that was rewound need not be there any more."""
        key, expected = f"{settled.plan}/{own}", count_rows_for(settled, own)
        writes, standing = self._brought.get(key, ()), self._list_standing(key)
        partly = [each for each in writes if each.loss is not None and not each.loss.whole]
        if len(standing) > 1 or (standing and partly):
            yield self.words.report_twice(settled, [*standing, *partly])
        elif standing:
            yield from self._check_count(settled, own, standing[0])
            if standing[0].doubt is not None:
                yield self.words.report_doubtful(settled, standing[0].doubt)
        elif expected == 0 or self._is_excused(settled, own):
            return
        elif writes:
            yield self.words.report_lost(settled, writes[-1], mends=self.account is not None and self.account.mends)
        elif not replaced and not self.account_is_silent:
            rows = "its rows" if expected is None else f"{expected:,} rows"
            yield self.words.report_undelivered(settled, rows)

    def _check_count(self, settled: Settled, own: str, brought: BroughtBatch) -> Iterator[Finding]:
        expected, rows = count_rows_for(settled, own), self._count_rows(brought, settled, own)
        if brought.listed is not None and brought.rows is not None and brought.listed != brought.rows:
            said = f"its commit counts {brought.rows:,} rows, but its files have {brought.listed:,}"
            yield self.words.report_miscounted(settled, said)
        elif expected is not None and rows is not None and rows != expected:
            said = f"the ledger counts {expected:,} rows as delivered, but its commit has {brought.rows:,}"
            yield self.words.report_miscounted(settled, said)

    def _count_rows(self, brought: BroughtBatch, settled: Settled, own: str) -> int | None:
        """The rows of one batch in a write that may have brought several; `_OTHER` where the ledger's figures of these
        do not make the write's. A batch that has none has what was decided for it, if all together make the write's."""
        if len(brought.together) < 2:
            return brought.rows
        expected = count_rows_for(settled, own)
        others = [self._meant.get(key) for key in brought.together]
        known = [(count_rows_for(*pair), count_decided_for(*pair)) for pair in others if pair is not None]
        if len(known) < len(others) or brought.rows is None:
            return expected
        if sum((decided if rows is None else rows) for rows, decided in known) == brought.rows:
            return count_decided_for(settled, own) if expected is None else expected
        return _OTHER if all(rows is not None for rows, _ in known) else expected

    @cached_property
    def _meant(self) -> Mapping[str, tuple[Settled, str]]:
        return {f"{settled.plan}/{own}": (settled, own) for lane in self._lanes.values() for settled, own in lane}

    def _is_excused(self, settled: Settled, own: str) -> bool:
        """Whether nobody has to show the batch: its history is over, it was rewound, carried again, or is under way."""
        counts = self._is_reached(settled) and self.said.state.is_carried(settled)
        return not counts or self._is_covered(settled) or self._open(settled, own)

    def _is_covered(self, settled: Settled) -> bool:
        """Whether a later batch brought the same rows here, a backfill's for example."""
        for other in self._again.get(make_rows_key(settled), ()):
            if other.plan != settled.plan and other.at >= settled.at:
                keys = [f"{other.plan}/{own}" for own in list_meant_destinations(other) if own in self.names]
                if any(self._list_standing(key) for key in keys):
                    return True
        return False

    def _open(self, settled: Settled, own: str) -> bool:
        """Whether it is on its way still: what is owed is said elsewhere."""
        plan = self.said.state.get_lane(settled.lane).open
        return plan is not None and plan.batch.plan == settled.plan and own in plan.destinations

    def _find_strays(self) -> Iterator[Finding]:
        """Batches that are here and of which the ledger knows nothing."""
        for writes in self._brought.values():
            for each in writes:
                label = each.label
                mine = label["pipeline"] == self.said.state.pipeline and label["destination"] in self.names
                there = each.loss is None or not each.loss.whole
                if mine and there and label["plan"] not in self.said.known:
                    yield self.words.report_stranger(each)


_STRAY = f"If the ledger is an old copy, put the newest back. Otherwise delete these rows. {ACCEPT}"


@dataclass(frozen=True, kw_only=True)
class HeldLetters:
    """The rows that the DLQ has of one batch."""

    plan: str
    lane: str
    number: int
    rows: int
    ids: frozenset[str] = frozenset()
    """Of the batches whose rows matter one by one: where the number is not the one that was refused."""
    distinct: int = 0


@dataclass(frozen=True, kw_only=True)
class DlqContent:
    """What the DLQ can show."""

    place: str = ""
    held: Sequence[HeldLetters] | None = None
    """None for one whose rows cannot be read again."""
    account: DeliveryAccount | None = None
    there: bool = True
    unreadable: str = ""
    """Why its rows cannot be read, though it keeps them."""
    by_plan: Mapping[str, HeldLetters] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_plan", {each.plan: each for each in self.held or ()})

    def json(self, said: LedgerClaims) -> Mapping[str, JSON] | None:
        """How many rows should be there, and how many are."""
        if self.held is None:
            return None
        refused = sum(_count_refused(each) for each in said.settled)
        return {"refused": refused, "decided": len(said.decided), "rows": sum(each.rows for each in self.held)}


def check_letters(said: LedgerClaims, queue: DlqContent) -> Iterator[Finding]:
    """Refused rows that are missing, that are there twice, or that no batch has refused."""
    if queue.unreadable:
        yield from _find_harmed(queue)
    if queue.held is None:
        return
    lacking = [each for each in said.counting if _count_missing(said, queue, each) > 0]
    if not queue.there and lacking:
        yield Finding(
            code="DLQ_GONE",
            destination=DLQ,
            message=f"{queue.place} is missing; it held the refused rows of {len(lacking):,} batches",
            repair=f"Restore a backup there; without a backup, process these batches again. {ACCEPT}",
        )
        return
    for each in lacking:
        yield _make_missing_finding(said, queue, each)
    for held in queue.by_plan.values():
        if held.distinct < held.rows:
            said_so = f"{held.rows - held.distinct} of its refused rows are there twice"
            yield _make_finding(held, "DLQ_TWICE", said_so, f"Delete one of each id by hand. {ACCEPT}")
        if held.plan not in said.known:
            said_so = f"{held.rows} rows belong to a batch that the ledger does not know"
            yield _make_finding(held, "DLQ_STRAY", said_so, _STRAY)
    for each in said.settled:
        held_now = queue.by_plan.get(each.plan)
        if held_now is not None and held_now.distinct > _count_refused(each):
            said_so = f"the ledger counts {_count_refused(each)} refused rows, but the DLQ has {held_now.distinct}"
            yield _make_finding(
                held_now, "DLQ_STRAY", said_so, f"Another program wrote to the DLQ. Delete its rows. {ACCEPT}"
            )


def _find_harmed(queue: DlqContent) -> Iterator[Finding]:
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


def _count_refused(settled: Settled) -> int:
    """How many rows of the batch went to the DLQ."""
    nacked = settled.counts.get("nacked", 0)
    discarded = settled.counts.get("discarded", 0)
    return 0 if discarded else nacked


def _count_missing(said: LedgerClaims, queue: DlqContent, settled: Settled) -> int:
    """How many rows are missing of which nobody decided anything."""
    refused, held = _count_refused(settled), queue.by_plan.get(settled.plan)
    there = held.distinct if held else 0
    if there >= refused:
        return 0
    ids = held.ids if held else frozenset()
    return refused - there - sum(each not in ids for each in said.letters.get(settled.plan, ()))


def _make_missing_finding(said: LedgerClaims, queue: DlqContent, settled: Settled) -> Finding:
    missing = _count_missing(said, queue, settled)
    writes = [each for each in (queue.account.brought if queue.account else ()) if each.label["plan"] == settled.plan]
    loss = next((each.loss for each in reversed(writes) if each.loss is not None), None)
    back = loss is not None and loss.version is not None and queue.account is not None and queue.account.mends
    how = f": {loss.said}" if loss is not None else ""
    again = (
        'Wherry can put them back while their files exist:  wherry repair FILE --reason "…"\nOtherwise: '
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
        message=(
            f"{missing:,} of {_count_refused(settled):,} refused rows are "
            f"missing, and they were neither replayed nor discarded{how}"
        ),
        repair=f"{again}Put the DLQ back from a backup. {ACCEPT}",
        remedy="put_back" if back else "",
    )


def _make_finding(held: HeldLetters, code: str, message: str, repair: str) -> Finding:
    return Finding(
        code=code,
        lane=held.lane,
        number=held.number,
        destination=DLQ,
        plans=[held.plan],
        message=message,
        repair=repair,
    )
