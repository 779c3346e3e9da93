"""An audit as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from runners.audits.finding import Audit, Finding, Proved
from runners.command_line.printing import sections, table
from runners.command_line.to_type import with_file
from runners.numbered import batches_of, counted
from runners.printable import escape_controls

if TYPE_CHECKING:
    from runners.audits.repairing import Repaired


def audit(said: Audit, file: str) -> str:
    """Whether all adds up, what of it is proved, and each thing that does not, with what to do."""
    batches = sum(lane["batches"] for lane in said.lanes.values())
    if not batches and said.balanced:
        return f"{said.pipeline} has carried nothing yet."
    count = counted(len(said.problems), "problem", "problems")
    adds_up = "balances: every row is where it should be." if said.balanced else f"does not balance: {count}."
    named: list[tuple[str, Sequence[str]]] = [
        ("read", [f"{counted(said.read)} in {batches_of(batches)}; {said.nacked:,} refused"]),
        *((name, list(_destination(each))) for name, each in said.destinations.items()),
        ("refused rows", _letters(said)),
        ("open", [f"batch {each['number']} of lane {each['lane']}: {each['label']}" for each in said.open]),
        ("accepted", [f"{each.code}  {_where(each)}: {each.message}" for each in said.accepted]),
    ]
    parts = [f"{said.pipeline} {adds_up}", "", sections(named)]
    for finding in said.problems:
        parts += ["", problem(finding, file)]
    return "\n".join(parts)


def problem(finding: Finding, file: str = "FILE") -> str:
    """One finding: what, where, and what to do."""
    repair = with_file(finding.repair, file).replace("--accept ID", f"--accept {finding.id}")
    lines = [
        f"{finding.code}  {_where(finding)}",
        f"  {finding.message}",
        *(f"  {line}" for line in repair.split("\n")),
    ]
    return escape_controls("\n".join(lines))


def repairs(found: Sequence[Finding], accept: Sequence[str] = ()) -> str:
    """What would be done."""
    rows = [[each.code, _where(each), _ACCEPTED if each.id in accept else _DOES[each.remedy]] for each in found]
    return table(["finding", "where", "is mended by"], rows)


def repaired(said: Repaired, file: str) -> str:
    """What was done, what was not, and what is left."""
    done: list[tuple[str, Sequence[str]]] = [
        ("done", [*said.done, *(f"accepted: {each}" for each in said.accepted)]),
        ("not done", said.failed),
    ]
    return "\n\n".join(part for part in (sections(done), audit(said.audit, file)) if part)


_ACCEPTED = "nothing: it is accepted as it is"
_DOES: Mapping[str, str] = {
    "finish": "finishing what the last run left open; nothing new is planned",
    "put_back": "putting the rows back as they were, in one commit with the batch's own tag",
}


def _where(finding: Finding) -> str:
    return ", ".join(part for part in (finding.batches, finding.destination) if part)


def _destination(proved: Proved) -> Iterator[str]:
    owed = f", {batches_of(proved.owed)} owed" if proved.owed else ""
    yield f"{counted(proved.delivered)} delivered, {proved.filtered:,} filtered{owed}"
    if proved.proved_from is None:
        yield f"proved: {proved.proof}" if proved.proof.startswith("nothing") else "proved: nothing of what was carried"
        return
    since = ", ".join(f"batch {number} of lane {lane}" for lane, number in sorted(proved.proved_from.items()))
    yield f"proved from {since or 'the beginning'} on: {proved.proof}"


def _letters(said: Audit) -> Sequence[str]:
    if said.dlq is None:
        return [f"{said.nacked:,} rows; where they went cannot be read again, so nothing of them is proved"]
    return [f"{said.dlq['refused']:,} went to the dead letter queue, which has {said.dlq['rows']:,} rows"]
