"""Compares what one destination can show of each batch with the ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from destinations.capabilities import BroughtBatch, DeliveryAccount, Loss
from runners.model.entry import Settled
from runners.model.pipeline_state import is_aside, make_rows_key
from runners.model.text import format_count
from runners.operations.audit.finding import ACCEPT, DestinationProof, Finding
from runners.operations.audit.ledger_claims import (
    LedgerClaims,
    count_decided_for,
    count_rows_for,
    list_meant_destinations,
)

NO_PROOF = "nothing: its kind proves no batches, so only the ledger counts"
PUT_BACK = 'Wherry can put them back while their files exist:  wherry repair FILE --reason "…"\nOtherwise: '
_COMPARE = f"Compare its rows at the origin with the rows in the destination. {ACCEPT}"
_MISSING = ("ROWS_GONE", "RESTORED", "FILE_GONE")
"""The codes of a loss after which rows are certainly missing."""
_OTHER = -1
"""The row count of a batch if the counts in the ledger do not add up to the rows of the write."""


class DeliveryAudit:
    """The batches that the ledger has for one destination, compared with what the destination shows."""

    def __init__(
        self, claims: LedgerClaims, name: str, account: DeliveryAccount | None, names: Mapping[str, str]
    ) -> None:
        self.claims = claims
        self.name = name
        self.account = account
        self.names = frozenset(old for old, today in names.items() if today == name)
        """All names that the destination has or had."""

    def has(self, key: str) -> bool | None:
        """Whether the destination shows the batch with this key, or None if it can show nothing."""
        return None if self.account is None else key in self._brought

    def prove(self) -> DestinationProof:
        """Return this destination's side of the equation."""
        there = self.account is not None and self.account.there
        branches = [settled.counts.branches.get(own) for settled, own in self._expected]
        return DestinationProof(
            delivered=sum(self._count_delivered(*pair) or 0 for pair in self._expected),
            read=sum(settled.counts.read for settled, _ in self._expected),
            filtered=sum(branch.filtered for branch in branches if branch),
            nacked=sum(settled.counts.nacked for settled, _ in self._expected),
            changed=sum(branch.changed for branch in branches if branch),
            owed=sum(
                plan.published and not self.has(f"{plan.batch.plan}/{own}")
                for plan in self.claims.state.open_plans
                for own in self.names.intersection(plan.destinations)
            ),
            proved_from=(self._first_covered if self._first_covered or not self._expected_batches else None)
            if there
            else None,
            proof=NO_PROOF if self.account is None else self.account.proof,
        )

    def find_unproved(self) -> Iterator[Finding]:
        """Yield findings about batches for which Wherry cannot show that read = delivered + filtered + nacked."""
        for pair in self._expected:
            yield from self._find_unproved(*pair)

    def list_findings(self) -> Iterator[Finding]:
        """Yield findings about what does not add up at this destination."""
        if self.account is None:
            return
        place = self.account.place
        if not self.account.there:
            batches = sum(count_rows_for(*pair) != 0 for pair in self._expected_batches.values())
            if batches:
                message = f"{place} is missing; {batches:,} batches were delivered to it"
                again = "Put it back from a backup. Or deliver all batches again, into a new one:"
                repair = f"{again}  {self._make_backfill_command()}"
                yield Finding(code="TABLE_GONE", destination=self.name, message=message, repair=repair)
            return
        known = self.claims.state.identities.get(self.name)
        replaced = bool(known and known.id and self.account.id and known.id != self.account.id)
        if replaced:
            message = f"{place} was replaced after the last run; the delivered rows are in the old one"
            again = "Put the old one back. Or, if the new one is right and has none of these rows, deliver them again:"
            repair = f"{again}  {self._make_backfill_command()}\n{ACCEPT}"
            yield Finding(code="REPLACED", destination=self.name, message=message, repair=repair)
        for loss in self.account.losses:
            yield Finding(
                code=loss.code,
                destination=self.name,
                version=loss.version,
                message=f"rows of unknown batches: {loss.reason}",
                repair=f"Read the table's history. {_suggest_restore(loss)}",
            )
        for settled, own in self._expected_batches.values():
            yield from self._check_batch(settled, own, replaced=replaced)
        yield from self._find_strays()

    @cached_property
    def _brought(self) -> Mapping[str, Sequence[BroughtBatch]]:
        brought: dict[str, list[BroughtBatch]] = {}
        for write in self.account.brought if self.account else ():
            brought.setdefault(write.key, []).append(write)
        return brought

    @cached_property
    def _expected_batches(self) -> Mapping[str, tuple[Settled, str]]:
        """The batches for this destination, each with the name that it had then, by key. Ordered by lane."""
        return {
            f"{settled.plan}/{own}": (settled, own)
            for batches in self.claims.lanes.values()
            for settled in batches
            for own in list_meant_destinations(settled)
            if own in self.names
        }

    @cached_property
    def _expected(self) -> Sequence[tuple[Settled, str]]:
        """The batches whose rows should be here.

        Open batches are left out. So is a batch whose rows a later batch brought again, unless the batch's rows are
        still complete.
        """
        return [
            (settled, own)
            for settled in self.claims.counting
            for own in list_meant_destinations(settled)
            if own in self.names
            and not self._is_open(settled, own)
            and (self._list_standing(f"{settled.plan}/{own}") or not self._is_covered(settled))
        ]

    @cached_property
    def _first_covered(self) -> Mapping[str, int]:
        """By lane, the first batch that the history covers."""
        whole = self.account is not None and self.account.whole
        first: dict[str, int] = {}
        for key, (settled, _) in self._expected_batches.items():
            if whole or self.has(key):
                first[settled.lane] = min(settled.number, first.get(settled.lane, settled.number))
        return first

    def _is_in_history(self, settled: Settled) -> bool:
        """Whether the history covers batches as old as this one."""
        first = self._first_covered.get(settled.lane)
        return first is not None and settled.number >= first

    def _count_delivered(self, settled: Settled, own: str) -> int | None:
        """Return how many rows of the batch it shows, or else what the ledger counts. None if both are unknown."""
        shown = self._count_shown(settled, own)
        return count_rows_for(settled, own) if shown is None else shown

    def _count_shown(self, settled: Settled, own: str) -> int | None:
        """Return how many rows of the batch it shows, or None if it can show nothing about the batch."""
        if self.account is None or not self._is_in_history(settled) or count_rows_for(settled, own) == 0:
            return None
        key = f"{settled.plan}/{own}"
        standing = self._list_standing(key)
        if not standing:
            return None if self.account.silent and not self._brought.get(key) else 0
        rows = self._count_rows(standing[0], settled, own)
        return None if rows == _OTHER else rows

    def _find_unproved(self, settled: Settled, own: str) -> Iterator[Finding]:
        counts, delivered = settled.counts, self._count_delivered(settled, own)
        branch = counts.branches.get(own)
        read, unknown = counts.read, counts.balanced == "unknown"
        if delivered is None:
            message = f"the ledger does not know how many of its {read:,} rows were delivered here"
            yield self._report_unproved(settled, message)
        elif unknown and None not in counts.delivered.values():
            message = f"{delivered:,} rows were delivered here, but the number of rows read is unknown"
            yield self._report_unproved(settled, message)
        elif branch is not None:
            read, gone = read + branch.changed, branch.filtered + counts.nacked
            message = (
                f"{read:,} rows were read, {delivered:,} were delivered here, and {gone:,} were filtered or refused"
            )
            if read != delivered + gone and unknown:
                yield self._report_unproved(settled, message)
            elif read != delivered + gone:
                yield self._make_finding("UNBALANCED", settled, message, _COMPARE)

    def _report_unproved(self, settled: Settled, message: str) -> Finding:
        why = f"{message}: the run died before it had counted its rows"
        return self._make_finding("NOT_PROVED", settled, why, _COMPARE)

    def _list_standing(self, key: str) -> Sequence[BroughtBatch]:
        """Return the writes of a batch whose rows all still exist."""
        return [write for write in self._brought.get(key, ()) if write.loss is None]

    def _check_batch(self, settled: Settled, own: str, *, replaced: bool) -> Iterator[Finding]:
        """Check a batch that was delivered here according to the ledger. The rows of a rewound batch may be missing."""
        assert self.account is not None
        key, expected = f"{settled.plan}/{own}", count_rows_for(settled, own)
        writes, standing = self._brought.get(key, ()), self._list_standing(key)
        partly = [write for write in writes if write.loss is not None and not write.loss.whole]
        if len(standing) > 1 or (standing and partly):
            yield self._report_twice(settled, [*standing, *partly])
        elif standing:
            yield from self._check_count(settled, own, standing[0])
            if standing[0].doubt is not None:
                yield self._report_doubt(settled, standing[0].doubt)
        elif expected == 0 or self._is_excused(settled, own):
            return
        elif writes:
            yield self._report_lost(settled, writes[-1])
        elif not replaced and not self.account.silent:
            rows = "its rows" if expected is None else f"{expected:,} rows"
            message = f"the ledger counts {rows} as delivered, but no commit here has them"
            yield self._make_finding("NOT_DELIVERED", settled, message, self._suggest_backfill(settled, None))

    def _check_count(self, settled: Settled, own: str, brought: BroughtBatch) -> Iterator[Finding]:
        expected, rows = count_rows_for(settled, own), self._count_rows(brought, settled, own)
        if brought.listed is not None and brought.rows is not None and brought.listed != brought.rows:
            message = f"its commit counts {brought.rows:,} rows, but its files have {brought.listed:,}"
        elif expected is not None and rows is not None and rows != expected:
            message = f"the ledger counts {expected:,} rows as delivered, but its commit has {brought.rows:,}"
        else:
            return
        repair = f"Compare its rows with the origin: another program changed the ledger or the table's log. {ACCEPT}"
        yield self._make_finding("MISCOUNT", settled, message, repair)

    def _count_rows(self, brought: BroughtBatch, settled: Settled, own: str) -> int | None:
        """Return the row count of one batch in a write that may have brought several batches.

        A batch without a count in the ledger has the count that was decided for it, if all counts add up to the
        write's. Return `_OTHER` if the ledger has all counts and they do not add up.
        """
        if len(brought.together) < 2:
            return brought.rows
        expected = count_rows_for(settled, own)
        others = [self._expected_batches.get(key) for key in brought.together]
        known = [(count_rows_for(*pair), count_decided_for(*pair)) for pair in others if pair is not None]
        if len(known) < len(others) or brought.rows is None:
            return expected
        if sum((decided if rows is None else rows) for rows, decided in known) == brought.rows:
            return count_decided_for(settled, own) if expected is None else expected
        return _OTHER if all(rows is not None for rows, _ in known) else expected

    def _is_excused(self, settled: Settled, own: str) -> bool:
        """Whether the batch need not be shown: it is too old for the history, rewound, brought again, or open."""
        counts = self._is_in_history(settled) and self.claims.state.is_carried(settled)
        return not counts or self._is_covered(settled) or self._is_open(settled, own)

    def _is_covered(self, settled: Settled) -> bool:
        """Whether a later batch, for example of a backfill, brought the same rows here."""
        return any(
            self._list_standing(f"{other.plan}/{own}")
            for other in self.claims.same_rows.get(make_rows_key(settled), ())
            if other.plan != settled.plan and other.at >= settled.at
            for own in list_meant_destinations(other)
            if own in self.names
        )

    def _is_open(self, settled: Settled, own: str) -> bool:
        """Whether the batch is still open. Another finding reports what it owes."""
        plan = self.claims.state.get_lane(settled.lane).open
        return plan is not None and plan.batch.plan == settled.plan and own in plan.destinations

    def _find_strays(self) -> Iterator[Finding]:
        """Yield findings about batches that are here and that the ledger does not know."""
        for brought in (write for writes in self._brought.values() for write in writes):
            label = brought.label
            mine = label.pipeline == self.claims.state.pipeline and label.destination in self.names
            there = brought.loss is None or not brought.loss.whole
            if not mine or not there or label.plan in self.claims.known:
                continue
            rows = "rows" if brought.rows is None else f"{brought.rows:,} rows"
            came = "" if brought.version is None else f" (version {brought.version})"
            yield Finding(
                code="NOT_COMMITTED",
                lane=label.lane,
                number=label.number,
                destination=self.name,
                version=brought.version,
                plans=[label.plan],
                message=f"{rows} of it are here{came}, but the ledger has no such batch: it never settled the batch, "
                "or it is an old copy",
                repair="If the ledger is an old copy, put the newest back. Otherwise delete these rows by hand, since "
                f"a run delivers them again. {ACCEPT}",
            )

    def _report_lost(self, settled: Settled, brought: BroughtBatch) -> Finding:
        """Report a batch whose rows were written and are not complete any more."""
        assert brought.loss is not None
        assert self.account is not None
        loss, whole = brought.loss, brought.loss.whole
        back = self.account.mends and whole and loss.version is not None and bool(brought.files) and not brought.copied
        repair = (PUT_BACK if back else "") + self._suggest_backfill(settled, loss)
        if not whole:
            restore = _suggest_restore(loss)
            repair = f"Some of its rows are still there, so a backfill would deliver these twice. {restore}"
        some = "" if whole else "some of "
        rows = "rows" if brought.rows is None else format_count(brought.rows)
        where = "" if brought.version is None else f" written in version {brought.version}"
        are = "is" if brought.rows == 1 and whole else "are"
        lost = "missing" if loss.code in _MISSING else "changed or missing"
        message = f"{some}the {rows}{where} {are} {lost}: {loss.reason}"
        remedy = "put_back" if back else ""
        return self._make_finding(loss.code, settled, message, repair, version=loss.version, remedy=remedy)

    def _report_twice(self, settled: Settled, writes: list[BroughtBatch]) -> Finding:
        """Report a batch that several commits brought, if their rows still exist."""
        versions = " and ".join(str(write.version) for write in writes if write.version is not None)
        message = f"its rows are there {len(writes)} times{f': versions {versions} brought them' if versions else ''}"
        repair = (
            "Remove the later rows by hand: RESTORE TABLE … TO VERSION AS OF the version before, if no other commit "
            f"followed; otherwise DELETE. {ACCEPT}"
        )
        return self._make_finding("TWICE", settled, message, repair, version=writes[-1].version)

    def _report_doubt(self, settled: Settled, doubt: Loss) -> Finding:
        """Report a batch whose rows shared a file with others, after rows of that file were changed."""
        since = "" if doubt.version is None else f" since version {doubt.version}"
        message = f"Wherry cannot check{since} whether its rows are unchanged: {doubt.reason}"
        repair = f"Look for its rows in the destination. {ACCEPT}"
        return self._make_finding("NOT_PROVED", settled, message, repair, version=doubt.version)

    def _suggest_backfill(self, settled: Settled, loss: Loss | None) -> str:
        if is_aside(settled.lane):
            how = _suggest_restore(loss) if loss else f"Restore the table from a backup. {ACCEPT}"
            return f"It came from a backfill, a redo or a replay, so no command delivers it alone. {how}"
        lane = f" --lane {settled.lane}" if len(self.claims.lanes) > 1 else ""
        command = self._make_backfill_command(f" --from FIRST --to LAST{lane}")
        return f"Deliver it again, with today's definition:  {command}"

    def _make_backfill_command(self, which: str = "") -> str:
        return f'wherry backfill FILE{which} --only {self.name} --again --reason "…"'

    def _make_finding(
        self, code: str, settled: Settled, message: str, repair: str, *, version: int | None = None, remedy: str = ""
    ) -> Finding:
        return Finding.about(settled, code, message, repair, destination=self.name, version=version, remedy=remedy)


def _suggest_restore(loss: Loss) -> str:
    """Return what a person can do to bring the rows back."""
    if loss.restore and loss.takes_later:
        return (
            f"Restore the table in Spark:  {loss.restore}\nThen put the later batches back:  wherry repair FILE "
            f'--reason "…"\n{ACCEPT}'
        )
    if loss.restore:
        return f"Restore the table in Spark:  {loss.restore}\n{ACCEPT}"
    if loss.insert:
        return (
            "Other rows came later, which a restore would take away. Insert the missing rows in Spark:  "
            f"{loss.insert}\nThen accept this finding. {ACCEPT}"
        )
    return f"Restore the table or the file from a backup, or insert the missing rows by hand. {ACCEPT}"
