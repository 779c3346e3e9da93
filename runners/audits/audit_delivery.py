"""One destination's batches: those that the ledger settled against those that it can show. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from destinations.account import Account, Brought
from runners.audits.audit_words import Words
from runners.audits.finding import Finding
from runners.audits.said import Said, decided_for, meant_for, rows_for, rows_of, same_rows
from runners.ledgers.entry import Settled

_OTHER = -1
"""What a batch's rows are in a write whose number of rows is another one than the ledger's."""


class Delivery:
    """What was to be delivered to one destination, and what it shows."""

    def __init__(self, said: Said, name: str, account: Account | None, names: Mapping[str, str]) -> None:
        self.said = said
        self.name = name
        self.account = account
        self.names = frozenset(each for each, now in names.items() if now == name)
        """All names that it has or had."""
        self.words = Words(name, several_lanes=len(said.lanes) > 1)

    def has(self, key: str) -> bool | None:
        """Whether it shows the batch with this key; None if it can show nothing."""
        return None if self.account is None else key in self._brought

    def shown(self, settled: Settled, own: str) -> int | None:
        """How many rows of the batch it shows; None where it can show nothing of it."""
        if self.account is None or not self._reaches(settled) or rows_for(settled, own) == 0:
            return None
        found = self._standing(f"{settled.plan}/{own}")
        if not found:
            return None if self.account_is_silent and not self._brought.get(f"{settled.plan}/{own}") else 0
        rows = self._rows(found[0], settled, own)
        return None if rows == _OTHER else rows

    def delivered(self, settled: Settled, own: str) -> int | None:
        """How many rows of the batch it has: by what it shows, else by the ledger's word; None where neither says."""
        shown = self.shown(settled, own)
        return rows_for(settled, own) if shown is None else shown

    def counts(self, settled: Settled, own: str) -> bool:
        """Whether the batch's rows are to be here, in this batch's name: it is not on its way, and no later one brought
        the same rows again."""
        return not self._open(settled, own) and (
            bool(self._standing(f"{settled.plan}/{own}")) or not self._covered(settled)
        )

    def unproved(self, settled: Settled, own: str) -> Finding | None:
        """What is said of a batch of which the equation is not proved; None if it is."""
        counts, delivered = settled.counts, self.delivered(settled, own)
        branch: Mapping[str, int] | None = (counts.get("branches") or {}).get(own)
        read, unknown = counts.get("read", 0), counts.get("balanced") == "unknown"
        if delivered is None:
            return self.words.unproved(settled, f"the ledger does not say how many of its {read:,} rows came here")
        if unknown and None not in counts["delivered"].values():
            return self.words.unproved(settled, f"{delivered:,} rows came here; how many were read is not known")
        if branch is None:
            return None
        read, gone = read + branch.get("changed", 0), branch.get("filtered", 0) + counts.get("nacked", 0)
        if read == delivered + gone:
            return None
        said = f"{read:,} rows were read, {delivered:,} came here, and {gone:,} were filtered or refused"
        return self.words.unproved(settled, said) if unknown else self.words.unbalanced(settled, said)

    @property
    def proved_from(self) -> Mapping[str, int] | None:
        """For each lane the first batch of which its history tells."""
        if self.account is None or not self.account.there:
            return None
        first = {lane: number for lane in self._lanes if (number := self._first(lane)) is not None}
        return first if first or not self._lanes else None

    def findings(self) -> Iterator[Finding]:
        """What does not add up here."""
        if self.account is None:
            return
        if not self.account.there:
            pairs = [pair for lane in self._lanes.values() for pair in lane if rows_for(*pair) != 0]
            if pairs:
                yield self.words.gone(self.account.place, len(pairs))
            return
        known = self.said.state.identities.get(self.name)
        other = bool(known and known.id and self.account.id and known.id != self.account.id)
        if other:
            yield self.words.replaced(self.account.place)
        for loss in self.account.losses:
            yield self.words.unnamed(loss)
        for lane in self._lanes.values():
            for settled, own in lane:
                yield from self._batch(settled, own, replaced=other)
        yield from self._strays()

    @cached_property
    def _brought(self) -> Mapping[str, Sequence[Brought]]:
        found: dict[str, list[Brought]] = {}
        for each in self.account.brought if self.account else ():
            found.setdefault(each.key, []).append(each)
        return found

    @cached_property
    def _lanes(self) -> Mapping[str, Sequence[tuple[Settled, str]]]:
        """The batches that were meant for it, by lane, each with the name that it had then."""
        found: dict[str, list[tuple[Settled, str]]] = {}
        for lane, batches in self.said.lanes.items():
            mine = [(each, own) for each in batches for own in meant_for(each) if own in self.names]
            if mine:
                found[lane] = mine
        return found

    @cached_property
    def _again(self) -> Mapping[str, Sequence[Settled]]:
        return same_rows(self.said.settled)

    @property
    def account_is_silent(self) -> bool:
        """Whether a batch may have left no trace here."""
        return self.account is not None and self.account.silent

    @cached_property
    def _firsts(self) -> dict[str, int | None]:
        return {}

    def _first(self, lane: str) -> int | None:
        """The first batch of a lane of which the history tells."""
        assert self.account is not None
        if lane not in self._firsts:
            mine = self._lanes.get(lane, ())
            told = mine if self.account.whole else [pair for pair in mine if self.has(f"{pair[0].plan}/{pair[1]}")]
            self._firsts[lane] = min((settled.number for settled, _ in told), default=None)
        return self._firsts[lane]

    def _reaches(self, settled: Settled) -> bool:
        first = self._first(settled.lane)
        return first is not None and settled.number >= first

    def _standing(self, key: str) -> Sequence[Brought]:
        """The writes of a batch whose rows are all there."""
        return [each for each in self._brought.get(key, ()) if each.loss is None]

    def _batch(self, settled: Settled, own: str, *, replaced: bool) -> Iterator[Finding]:
        """One batch that the ledger says was delivered here; one that was rewound need not be there any more."""
        key, expected = f"{settled.plan}/{own}", rows_for(settled, own)
        writes, standing = self._brought.get(key, ()), self._standing(key)
        partly = [each for each in writes if each.loss is not None and not each.loss.whole]
        if len(standing) > 1 or (standing and partly):
            yield self.words.twice(settled, [*standing, *partly])
        elif standing:
            yield from self._counted(settled, own, standing[0])
            if standing[0].doubt is not None:
                yield self.words.doubtful(settled, standing[0].doubt)
        elif expected == 0 or self._excused(settled, own):
            return
        elif writes:
            yield self.words.lost(settled, writes[-1], mends=self.account is not None and self.account.mends)
        elif not replaced and not self.account_is_silent:
            rows = "its rows" if expected is None else f"{expected:,} rows"
            yield self.words.undelivered(settled, rows)

    def _counted(self, settled: Settled, own: str, brought: Brought) -> Iterator[Finding]:
        expected, rows = rows_for(settled, own), self._rows(brought, settled, own)
        if brought.listed is not None and brought.rows is not None and brought.listed != brought.rows:
            said = f"its commit says {brought.rows:,} rows, and the files that it names have {brought.listed:,}"
            yield self.words.miscounted(settled, said)
        elif expected is not None and rows is not None and rows != expected:
            said = f"the ledger says that {expected:,} rows were delivered, and its commit has {brought.rows:,}"
            yield self.words.miscounted(settled, said)

    def _rows(self, brought: Brought, settled: Settled, own: str) -> int | None:
        """The rows of one batch in a write that may have brought several; `_OTHER` where the ledger's figures of these
        do not make the write's. A batch that has none has what was decided for it, if all together make the write's."""
        if len(brought.together) < 2:
            return brought.rows
        expected = rows_for(settled, own)
        others = [self._meant.get(key) for key in brought.together]
        known = [(rows_for(*pair), decided_for(*pair)) for pair in others if pair is not None]
        if len(known) < len(others) or brought.rows is None:
            return expected
        if sum((decided if rows is None else rows) for rows, decided in known) == brought.rows:
            return decided_for(settled, own) if expected is None else expected
        return _OTHER if all(rows is not None for rows, _ in known) else expected

    @cached_property
    def _meant(self) -> Mapping[str, tuple[Settled, str]]:
        return {f"{settled.plan}/{own}": (settled, own) for lane in self._lanes.values() for settled, own in lane}

    def _excused(self, settled: Settled, own: str) -> bool:
        """Whether nobody has to show the batch: its history is over, it was rewound, carried again, or is under way."""
        counts = self._reaches(settled) and self.said.state.carried(settled)
        return not counts or self._covered(settled) or self._open(settled, own)

    def _covered(self, settled: Settled) -> bool:
        """Whether a later batch brought the same rows here, a backfill's for example."""
        for other in self._again.get(rows_of(settled), ()):
            if other.plan != settled.plan and other.at >= settled.at:
                keys = [f"{other.plan}/{own}" for own in meant_for(other) if own in self.names]
                if any(self._standing(key) for key in keys):
                    return True
        return False

    def _open(self, settled: Settled, own: str) -> bool:
        """Whether it is on its way still: what is owed is said elsewhere."""
        plan = self.said.open_in(settled.lane)
        return plan is not None and plan.batch.plan == settled.plan and own in plan.destinations

    def _strays(self) -> Iterator[Finding]:
        """Batches that are here and of which the ledger knows nothing."""
        for writes in self._brought.values():
            for each in writes:
                label = each.label
                mine = label["pipeline"] == self.said.state.pipeline and label["destination"] in self.names
                there = each.loss is None or not each.loss.whole
                if mine and there and label["plan"] not in self.said.known:
                    yield self.words.stranger(each)
