"""What is said of one destination's batches that are not as they should be, and what is to be done."""

from __future__ import annotations

from dataclasses import dataclass

from destinations.account import Brought, Loss
from runners.audits.finding import ACCEPT, Finding
from runners.ledgers.entry import Settled
from runners.state import is_aside

_BACK = 'They can be put back as they were while their files are there:  wherry repair FILE --reason "…"\nElse: '


@dataclass(frozen=True)
class Words:
    """The findings of one destination."""

    name: str
    several_lanes: bool

    def undelivered(self, settled: Settled, rows: str) -> Finding:
        """The ledger has settled what nobody brought."""
        said = f"the ledger says that {rows} were delivered; no commit here has them"
        return self._finding("NOT_DELIVERED", settled, said, self._carry_again(settled))

    def lost(self, settled: Settled, brought: Brought, *, mends: bool) -> Finding:
        """Rows were brought, and are not all there any more."""
        assert brought.loss is not None
        loss, what = brought.loss, "its rows" if brought.rows is None else f"its {brought.rows:,} rows"
        back = mends and loss.whole and loss.version is not None and bool(brought.files)
        repair = (_BACK if back else "") + self._carry_again(settled)
        if not loss.whole:
            repair = (
                "A part of it is there still, so carrying it again would bring that part twice. Put the table or the "
                f"file back as it was before, or the rows by hand. {ACCEPT}"
            )
        some = "they are" if loss.whole else "at least some of them are"
        came = "" if brought.version is None else f" (version {brought.version})"
        said = f"{what} were brought here{came}, and {some} not there as they came: {loss.said}"
        return self._finding(loss.code, settled, said, repair, version=loss.version, back=back)

    def twice(self, settled: Settled, writes: list[Brought]) -> Finding:
        """Several commits brought it, and their rows are there."""
        versions = " and ".join(str(each.version) for each in writes if each.version is not None)
        said = f"its rows are there {len(writes)} times{f': versions {versions} brought them' if versions else ''}"
        repair = (
            "Take the later ones out by hand (RESTORE TABLE … TO VERSION AS OF the one before, if nothing else came "
            f"since; else DELETE). {ACCEPT}"
        )
        return self._finding("TWICE", settled, said, repair, version=writes[-1].version)

    def miscounted(self, settled: Settled, said: str) -> Finding:
        """Its commit has another number of rows."""
        repair = f"Compare it with its origin: somebody wrote in the ledger or in the table's log. {ACCEPT}"
        return self._finding("MISCOUNT", settled, said, repair)

    def unproved(self, settled: Settled, said: str) -> Finding:
        """Nobody can say whether all of it is here."""
        repair = f"Compare its rows at the origin with those that are there. {ACCEPT}"
        message = f"{said}: the run that carried it died before it had counted them"
        return self._finding("NOT_PROVED", settled, message, repair)

    def doubtful(self, settled: Settled, doubt: Loss) -> Finding:
        """Its rows stood in one file with others, and somebody changed rows of that file."""
        since = "" if doubt.version is None else f" since version {doubt.version}"
        message = f"it cannot be proved{since} that its rows are there as they came: {doubt.said}"
        repair = f"Look whether its rows are there. {ACCEPT}"
        return self._finding("NOT_PROVED", settled, message, repair, version=doubt.version)

    def unbalanced(self, settled: Settled, said: str) -> Finding:
        """Its rows do not add up, though the ledger says that they do."""
        repair = f"Compare its rows at the origin with those that are there. {ACCEPT}"
        return self._finding("UNBALANCED", settled, said, repair)

    def stranger(self, brought: Brought) -> Finding:
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
            message=f"{rows} of it are here{came}, and the ledger knows of no such batch: it never settled it, or was "
            "put back to an earlier state",
            repair="If the ledger is an old one, put the newest back. Else these rows come again, or came again "
            f"already: take them out by hand. {ACCEPT}",
        )

    def gone(self, place: str, batches: int) -> Finding:
        """There is no such place any more."""
        return Finding(
            code="TABLE_GONE",
            destination=self.name,
            message=f"{place} is gone, to which {batches:,} batches were delivered",
            repair=f"Put it back from a backup. Or carry all again into an empty one:  {self._backfill()}",
        )

    def replaced(self, place: str) -> Finding:
        """Another one is in its place."""
        return Finding(
            code="REPLACED",
            destination=self.name,
            message=f"{place} is another one than the last run wrote to; what it got is in the other",
            repair="Put the old one back. Or, if the new one is right, carry again what it lacks:  "
            f"{self._backfill()}\n{ACCEPT}",
        )

    def unnamed(self, loss: Loss) -> Finding:
        """Rows are gone of which nobody can say any more whose they were."""
        return Finding(
            code=loss.code,
            destination=self.name,
            version=loss.version,
            message=f"rows of batches that cannot be named any more: {loss.said}",
            repair=f"Look into the table's history, and put it back as it was. {ACCEPT}",
        )

    def _carry_again(self, settled: Settled) -> str:
        if is_aside(settled.lane):
            return f"It was carried beside the lanes, so nothing carries just it again: put the table back. {ACCEPT}"
        lane = f" --lane {settled.lane}" if self.several_lanes else ""
        command = self._backfill(f" --from FIRST --to LAST{lane}")
        return f"Carry it again, through the definition of today:  {command}"

    def _backfill(self, which: str = "") -> str:
        return f'wherry backfill FILE{which} --only {self.name} --reason "…"'

    def _finding(
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
