"""What an audit finds: which batch, where, what was expected, what is there, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from destinations.destination import BroughtBatch, Loss
from origins.batch import JSON
from runners.model.entry import Settled
from runners.model.pipeline_state import is_aside
from runners.model.text import format_count, format_repr

FOUND = frozenset({
    "NOT_DELIVERED", "NOT_COMMITTED", "NOT_SETTLED", "NOT_PROVED", "OWED", "TWICE", "MISCOUNT", "ROWS_GONE",
    "RESTORED", "REPLACED", "TABLE_GONE", "FILE_GONE", "FILE_CHANGED", "LOG_BROKEN", "GAP", "OVERLAP", "DLQ_MISSING",
    "DLQ_GONE", "DLQ_STRAY", "DLQ_TWICE", "UNBALANCED", "ORIGIN_CHANGED",
})  # fmt: skip
"""The codes of all that can be found; what each means is explained where the codes of errors are."""
ACCEPT = 'If everything is right as it is:  wherry repair FILE --accept ID --reason "…"'
"""The last sentence of most findings."""
Remedy: TypeAlias = Literal["", "finish", "put_back"]
"""What `wherry repair` does about it: nothing, finish the open batches, or put rows back as they were."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that does not add up."""

    code: str
    message: str
    repair: str
    """What to do, as a person reads it."""
    lane: str | None = None
    number: int | None = None
    last: int | None = None
    """The last of several batches that stand together, `number` being the first."""
    destination: str | None = None
    version: int | None = None
    """The version of the destination that did it."""
    remedy: Remedy = ""
    plans: Sequence[str] = ()
    """The batches' ids."""
    members: Sequence[str] = ()
    """What each of several findings was called before they were put together."""

    def __post_init__(self) -> None:
        if self.code not in FOUND:
            raise ValueError(f"code: expected one of {', '.join(FOUND)}, got {self.code!r}")

    @property
    def id(self) -> str:
        """What is the same in every audit that finds this again."""
        last = None if self.last == self.number else self.last
        parts = [self.destination, self.lane, self.number, last, self.version]
        return ":".join([self.code, *("" if part is None else str(part) for part in parts)])

    @property
    def batches(self) -> str:
        """The batches, as a person names them."""
        if self.number is None:
            return "" if self.lane is None else f"lane {self.lane}"
        if self.last in (None, self.number):
            return f"batch {self.number} of lane {self.lane}"
        return f"batches {self.number} to {self.last} of lane {self.lane}"

    def json(self) -> dict[str, JSON]:
        """As `wherry audit --json` prints it."""
        return {
            "code": self.code,
            "lane": self.lane,
            "number": self.number,
            "last": self.last if self.last is not None else self.number,
            "destination": self.destination,
            "version": self.version,
            "message": self.message,
            "repair": self.repair,
            "safe": bool(self.remedy),
            "id": self.id,
        }


@dataclass(frozen=True, kw_only=True)
class DestinationProof:
    """One destination's side of the equation."""

    delivered: int
    """The rows that it shows, and for batches from before its history those that the ledger says."""
    read: int = 0
    """The rows of the batches that were for it; of rows that were carried again, those of the last time."""
    filtered: int = 0
    nacked: int = 0
    changed: int = 0
    owed: int = 0
    """Batches that it has not confirmed."""
    proved_from: Mapping[str, int] | None = None
    """For each lane the first batch of which its own history still tells; None if it tells of none."""
    proof: str = ""

    def json(self) -> dict[str, JSON]:
        """As `wherry audit --json` prints it."""
        return {**vars(self), "proved_from": None if self.proved_from is None else dict(self.proved_from)}


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Whether every row that was read can be shown to be where it should be."""

    pipeline: str
    lanes: Mapping[str, Mapping[str, JSON]]
    read: int
    filtered: int
    nacked: int
    destinations: Mapping[str, DestinationProof]
    problems: Sequence[Finding]
    accepted: Sequence[Finding] = ()
    """The findings that were accepted."""
    open: Sequence[Mapping[str, JSON]] = ()
    """Batches on their way, of which nothing is wrong."""
    dlq: Mapping[str, JSON] | None = None
    """How many refused rows should be there and how many are; None where it cannot be looked into."""

    @property
    def balanced(self) -> bool:
        """Whether nothing was found."""
        return not self.problems

    def __repr__(self) -> str:
        verdict = "balances" if self.balanced else format_count(len(self.problems), "problem", "problems")
        return format_repr("Audit", self.pipeline, verdict, f"{format_count(self.read)} read")

    def json(self) -> dict[str, JSON]:
        """As `wherry audit --json` prints it."""
        return {
            "pipeline": self.pipeline,
            "balanced": self.balanced,
            "lanes": {name: dict(lane) for name, lane in self.lanes.items()},
            "read": self.read,
            "filtered": self.filtered,
            "nacked": self.nacked,
            "destinations": {name: each.json() for name, each in self.destinations.items()},
            "dlq": self.dlq,
            "open": list(self.open),
            "problems": [finding.json() for finding in self.problems],
            "accepted": [finding.json() for finding in self.accepted],
        }


_BACK = 'Wherry can put them back while their files exist:  wherry repair FILE --reason "…"\nOtherwise: '


_MISSING = ("ROWS_GONE", "RESTORED", "FILE_GONE")
"""The codes of a loss after which rows are certainly gone."""


@dataclass(frozen=True)
class FindingWriter:
    """The findings of one destination."""

    name: str
    several_lanes: bool

    def report_undelivered(self, settled: Settled, rows: str) -> Finding:
        """The ledger settled rows that were never delivered."""
        said = f"the ledger counts {rows} as delivered, but no commit here has them"
        return self._make_finding("NOT_DELIVERED", settled, said, self._carry_again(settled, None))

    def report_lost(self, settled: Settled, brought: BroughtBatch, *, mends: bool) -> Finding:
        """Rows were brought, and are not all there any more."""
        assert brought.loss is not None
        loss = brought.loss
        back = mends and loss.whole and loss.version is not None and bool(brought.files) and not brought.copied
        repair = (_BACK if back else "") + self._carry_again(settled, loss)
        if not loss.whole:
            repair = f"Some of its rows are still there, so a backfill would deliver these twice. {_take_back(loss)}"
        some = "" if loss.whole else "some of "
        rows = "rows" if brought.rows is None else format_count(brought.rows)
        where = "" if brought.version is None else f" written in version {brought.version}"
        are = "is" if brought.rows == 1 and loss.whole else "are"
        lost = "missing" if loss.code in _MISSING else "changed or missing"
        said = f"{some}the {rows}{where} {are} {lost}: {loss.said}"
        return self._make_finding(loss.code, settled, said, repair, version=loss.version, back=back)

    def report_twice(self, settled: Settled, writes: list[BroughtBatch]) -> Finding:
        """Several commits brought it, and their rows are there."""
        versions = " and ".join(str(each.version) for each in writes if each.version is not None)
        said = f"its rows are there {len(writes)} times{f': versions {versions} brought them' if versions else ''}"
        repair = (
            "Remove the later rows by hand: RESTORE TABLE … TO VERSION AS OF the version before, if no other commit "
            f"followed; otherwise DELETE. {ACCEPT}"
        )
        return self._make_finding("TWICE", settled, said, repair, version=writes[-1].version)

    def report_miscounted(self, settled: Settled, said: str) -> Finding:
        """Its commit has another number of rows."""
        repair = f"Compare its rows with the origin: another program changed the ledger or the table's log. {ACCEPT}"
        return self._make_finding("MISCOUNT", settled, said, repair)

    def report_unproved(self, settled: Settled, said: str) -> Finding:
        """It is unknown whether all of it is here."""
        repair = f"Compare its rows at the origin with the rows in the destination. {ACCEPT}"
        message = f"{said}: the run died before it had counted its rows"
        return self._make_finding("NOT_PROVED", settled, message, repair)

    def report_doubtful(self, settled: Settled, doubt: Loss) -> Finding:
        """Its rows shared a file with others, and rows of that file were changed."""
        since = "" if doubt.version is None else f" since version {doubt.version}"
        message = f"Wherry cannot check{since} whether its rows are unchanged: {doubt.said}"
        repair = f"Look for its rows in the destination. {ACCEPT}"
        return self._make_finding("NOT_PROVED", settled, message, repair, version=doubt.version)

    def report_unbalanced(self, settled: Settled, said: str) -> Finding:
        """Its rows do not add up, though the ledger says that they do."""
        repair = f"Compare its rows at the origin with the rows in the destination. {ACCEPT}"
        return self._make_finding("UNBALANCED", settled, said, repair)

    def report_stranger(self, brought: BroughtBatch) -> Finding:
        """A batch is here of which the ledger knows nothing."""
        rows = "rows" if brought.rows is None else f"{brought.rows:,} rows"
        came = "" if brought.version is None else f" (version {brought.version})"
        return Finding(
            code="NOT_COMMITTED",
            lane=brought.label["lane"],
            number=brought.label["number"],
            destination=self.name,
            version=brought.version,
            plans=[brought.label["plan"]],
            message=f"{rows} of it are here{came}, but the ledger has no such batch: it never settled the batch, or "
            "it is an old copy",
            repair="If the ledger is an old copy, put the newest back. Otherwise delete these rows by hand, since a "
            f"run delivers them again. {ACCEPT}",
        )

    def report_gone(self, place: str, batches: int) -> Finding:
        """There is no such place any more."""
        return Finding(
            code="TABLE_GONE",
            destination=self.name,
            message=f"{place} is missing; {batches:,} batches were delivered to it",
            repair="Put it back from a backup. Or deliver all batches again into an empty place:  "
            f"{self._backfill_command()}",
        )

    def report_replaced(self, place: str) -> Finding:
        """Another one is in its place."""
        return Finding(
            code="REPLACED",
            destination=self.name,
            message=f"{place} was replaced after the last run; the delivered rows are in the old one",
            repair="Put the old one back. Or, if the new one is right, deliver the missing batches again:  "
            f"{self._backfill_command()}\n{ACCEPT}",
        )

    def report_unnamed(self, loss: Loss) -> Finding:
        """Rows of unknown batches are missing."""
        return Finding(
            code=loss.code,
            destination=self.name,
            version=loss.version,
            message=f"rows of unknown batches: {loss.said}",
            repair=f"Read the table's history. {_take_back(loss)}",
        )

    def _carry_again(self, settled: Settled, loss: Loss | None) -> str:
        if is_aside(settled.lane):
            how = _take_back(loss) if loss else f"Restore the table from a backup. {ACCEPT}"
            return f"It came from a backfill, a redo or a replay, so no command delivers it alone. {how}"
        lane = f" --lane {settled.lane}" if self.several_lanes else ""
        command = self._backfill_command(f" --from FIRST --to LAST{lane}")
        return f"Deliver it again, with today's definition:  {command}"

    def _backfill_command(self, which: str = "") -> str:
        return f'wherry backfill FILE{which} --only {self.name} --reason "…"'

    def _make_finding(
        self, code: str, settled: Settled, message: str, repair: str, version: int | None = None, back: bool = False
    ) -> Finding:
        return Finding(
            code=code,
            lane=settled.lane,
            number=settled.number,
            destination=self.name,
            version=version,
            plans=[settled.plan],
            message=message,
            repair=repair,
            remedy="put_back" if back else "",
        )


def _take_back(loss: Loss) -> str:
    """What to type so that the rows are there again, as a person reads it."""
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


_ALIKE = ("code", "destination", "lane", "remedy", "repair")


def group_findings(found: Iterable[Finding]) -> list[Finding]:
    """The findings, with those of one kind about neighbouring batches of a lane put together."""
    groups: list[list[Finding]] = []
    for finding in sorted(found, key=_sort_key):
        if groups and _continues(groups[-1][-1], finding):
            groups[-1].append(finding)
        else:
            groups.append([finding])
    return [_merge_group(group) for group in groups]


def _sort_key(finding: Finding) -> tuple[str, str, str, int, int]:
    numbers = (finding.version if finding.version is not None else -1, finding.number or 0)
    return (finding.code, finding.destination or "", finding.lane or "", *numbers)


def _continues(before: Finding, finding: Finding) -> bool:
    alike = all(getattr(before, name) == getattr(finding, name) for name in _ALIKE)
    same = before.version == finding.version or finding.code == "NOT_COMMITTED"
    return alike and same and before.number is not None and finding.number == before.number + 1


def _merge_group(group: list[Finding]) -> Finding:
    first, last = group[0], group[-1]
    more = f" ({len(group) - 1:,} more like it, up to batch {last.number})" if len(group) > 1 else ""
    return replace(
        first,
        last=last.number,
        message=first.message + more,
        repair=first.repair.replace("FIRST", str(first.number)).replace("LAST", str(last.number)),
        plans=[plan for finding in group for plan in finding.plans],
        members=[finding.id for finding in group],
    )
