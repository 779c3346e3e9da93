"""Formats an audit and the DLQ for a person on a terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from runners.model.causes import Causes, name_part
from runners.model.text import (
    escape_controls,
    escape_line,
    format_batches,
    format_count,
    format_sections,
    name_batch,
    paint,
    paint_hint,
    show_moment,
    table,
    with_file,
)
from runners.operations.printing import format_dead_letters

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.operations.audit.finding import Audit, DestinationProof, Finding
    from runners.operations.correct_rows import CorrectedRows, ExportedRows
    from runners.operations.dlq import MergedFallback
    from runners.operations.explain_row import RefusedRow, TriedRow
    from runners.operations.fix_preview import FixPreview
    from runners.operations.redo import RedoPreview
    from runners.operations.repair import RepairResult
    from runners.operations.trace import TracedRow
    from runners.running.replay import ReplayPlan


def format_audit(audit: Audit, file: str) -> str:
    """Format whether everything adds up, what is proved, and each problem with the advice."""
    batches = sum(lane["batches"] for lane in audit.lanes.values())
    if not batches and audit.balanced:
        return f"{audit.pipeline} has processed nothing yet."
    count = format_count(len(audit.problems), "problem", "problems")
    verdict = paint("balances", "green") if audit.balanced else paint("does not balance", "red")
    adds_up = f"{verdict}: {'every row is where it should be' if audit.balanced else count}."
    named: list[tuple[str, Sequence[str]]] = [
        ("read", [f"{format_count(audit.read)} in {format_batches(batches)}; {audit.nacked:,} refused"]),
        *((name, list(_format_destination(each, audit.lanes))) for name, each in audit.destinations.items()),
        *((name, [_format_removed(each)]) for name, each in audit.removed.items()),
        ("refused rows", _format_letters(audit, file)),
        ("open", [f"batch {each['number']} of lane {each['lane']}: {each['label']}" for each in audit.open]),
        ("accepted", [f"{each.code}  {_format_where(each)}: {each.message}" for each in audit.accepted]),
    ]
    parts = [f"{audit.pipeline} {adds_up}", "", format_sections(named)]
    for finding in audit.problems:
        parts += ["", format_problem(finding, file)]
    return "\n".join(parts)


def format_problem(finding: Finding, file: str = "FILE") -> str:
    """Format one finding: what, where, and what to do."""
    repair = with_file(finding.repair, file).replace("--accept ID", f"--accept {finding.id}")
    lines = [_format_where(finding), finding.message, *repair.split("\n")]
    return paint(finding.code, "red") + escape_controls("\n".join(f"  {line}" for line in lines))


def format_repairs(findings: Sequence[Finding], accept: Sequence[str] = ()) -> str:
    rows = [
        [finding.code, _format_where(finding), _ACCEPTED if finding.id in accept else _DOES[finding.remedy]]
        for finding in findings
    ]
    return table(["finding", "where", "repair"], rows)


def format_repaired(result: RepairResult, file: str) -> str:
    done: list[tuple[str, Sequence[str]]] = [
        ("done", [*result.done, *(f"accepted: {each}" for each in result.accepted)]),
        ("not done", [with_file(each, file) for each in result.failed]),
    ]
    return "\n\n".join(part for part in (format_sections(done), format_audit(result.audit, file)) if part)


_ACCEPTED = "none: the finding is accepted as it is"
_DOES: Mapping[str, str] = {
    "finish": "finish what the last run left open; plan nothing new",
    "put_back": "put the rows back as they were, in one commit with the batch's own tag",
}


def _format_where(finding: Finding) -> str:
    return ", ".join(part for part in (finding.batches, finding.destination) if part)


def _format_destination(proved: DestinationProof, lanes: Collection[str]) -> Iterator[str]:
    owed = f", {format_batches(proved.owed)} owed" if proved.owed else ""
    yield f"{format_count(proved.delivered)} delivered in all batches, {proved.filtered:,} filtered{owed}"
    if proved.proved_from is None:
        nothing, _, why = proved.proof.partition("nothing: ")
        yield "checked: no batch" if nothing or not why else f"not checked: {why}"
        return
    since = ", ".join(name_batch(first, lane, lanes) for lane, first in sorted(proved.proved_from.items()))
    yield f"checked since {since or 'the beginning'}: {proved.proof}"


def _format_removed(got: Mapping[str, JSON]) -> str:
    """Describe what a destination got that the definition no longer has."""
    batches = f"{format_count(got['rows'])} in {format_batches(got['batches'])}"
    return f"{batches}; it is not in the definition any more, so it is not checked"


def _format_letters(audit: Audit, file: str) -> Sequence[str]:
    if audit.dlq is None:
        return [f"{audit.nacked:,} rows; their destination cannot be read, so they are not checked"]
    waits = audit.dlq["fallback"]
    wait = format_count(waits, "of them waits", "of them wait")
    merge = with_file("wherry dlq merge FILE", file)
    beside = [f"{wait} in the fallback; bring them back:  {merge}"] if waits else []
    return [f"{audit.dlq['refused']:,} went to the DLQ, which has {format_count(audit.dlq['rows'])}", *beside]


def format_merged(merged: MergedFallback) -> str:
    """Format what was moved from the fallback into the DLQ."""
    if not merged.batches:
        return "No refused row waits in the fallback." if not merged.waiting else "Stopped before the first batch."
    done = f"Merged into the DLQ: {format_count(merged.rows)} of {format_batches(merged.batches)}."
    return f"{done} Still in the fallback: {format_count(merged.waiting)}." if merged.waiting else done


def format_summary(causes: Sequence[Mapping[str, JSON]]) -> str:
    """Format why rows were refused, the most frequent cause first."""
    if not causes:
        return "The DLQ has no rows."
    parts = []
    for cause in causes:
        first, last = (show_moment(cause[name])[:16] for name in ("first", "last"))
        row = [f"{cause['rows']:,}", f"{cause['waiting']:,}", first, last]
        example = cause["example"]
        parts += [
            escape_line(_name_cause(cause)),
            table(["rows", "waiting", "first (UTC)", "last (UTC)"], [row]),
            *(f"  {line}" for line in Causes.of(cause["forms"]).describe(placed=False)),
            escape_line(f"  {json.dumps(example['row'], ensure_ascii=False)}"),
            "",
        ]
    return "\n".join(parts).rstrip()


def _name_cause(cause: Mapping[str, JSON]) -> str:
    where = [each for each in (cause["stage"], cause["destination"]) if each]
    return f"{cause['code']}, {' for '.join(where)}"


def format_letters(rows: Sequence[Mapping[str, JSON]], file: str, *, wide: bool = False) -> str:
    """Format refused rows as tables, and how to explain the last one."""
    if not rows:
        return format_dead_letters(rows)
    hint = with_file(f"wherry dlq explain FILE {escape_line(rows[-1]['id'])}", file)
    return f"{format_dead_letters(rows, wide=wide)}\n\n{paint_hint(f'Explain a row:  {hint}')}"


def format_settings(facts: Mapping[str, JSON]) -> str:
    """Format the limits for the next batch."""
    limits = ", ".join(f"{name} {limit}" for name, limit in facts["limits"].items()) or "none"
    changed = ", ".join(facts.get("changed", ())) or None
    named = [("window", [f"{facts['window']:,}"]), ("threshold", [f"{facts['threshold']:,}"]), ("limits", [limits])]
    return format_sections([*named, *([("changed", [f"{changed}, for this run"])] if changed else [])])


def format_replay(found: ReplayPlan) -> str:
    """Format what a replay would process, and what it leaves out."""
    rows = [
        [origin, f"{each.rows:,}", f"{each.batches:,}", ", ".join(each.destinations)]
        for origin, each in found.origins.items()
    ]
    heading = ["rows of origin", "rows", "batches", "go to"]
    carried = table(heading, rows) if rows else "No row of the DLQ can be replayed."
    return "\n".join([carried, *map(escape_line, found.notices)])


def format_exported(exported: ExportedRows, file: str) -> str:
    """Format what an export wrote and left out, and how to replay with its file. Without a row it wrote no file."""
    left = [f"{format_count(rows)} cannot be corrected: {why}" for why, rows in exported.left.items()]
    long = f"{format_count(exported.long, 'value is', 'values are')} longer than a cell of a spreadsheet can be."
    if not exported.rows:
        found = "None of the chosen rows can be corrected" if left else "No row that waits meets the choice"
        return "\n".join([f"{found}, so no file was written.", *map(escape_line, left)])
    typed = f"wherry dlq replay {shlex.quote(file)} --with {shlex.quote(str(exported.file))} --reason …"
    return "\n".join(
        [
            f"Wrote {format_count(exported.rows)} to {exported.file}.",
            *map(escape_line, left),
            *([long] if exported.long else []),
            "Protected values are masked, so no replay takes the file. --reveal writes the values."
            if exported.masked
            else paint_hint(f"When they are corrected:  {typed}"),
        ]
    )


def format_corrected(corrected: CorrectedRows) -> str:
    """Format how many rows of the file were edited, and how many were replayed or discarded before."""
    known = [(corrected.replayed, "replayed before"), (corrected.discarded, "discarded before")]
    decided = [f"{rows:,} {'was' if rows == 1 else 'were'} {what}" for rows, what in known if rows]
    twice = f" {format_count(corrected.duplicated, 'row is', 'rows are')} in the file twice."
    return (
        f"{format_count(corrected.changed)} changed, {corrected.unchanged:,} unchanged."
        + (f" Of these, {' and '.join(decided)}." if decided else "")
        + (twice if corrected.duplicated else "")
    )


_CELL = 40
"""The most characters that are shown of a value before and after a fix."""


def format_fix_preview(preview: FixPreview) -> str:
    """Format how many rows would pass, why others would not, and some of them before and after the fix."""
    counts = [
        (preview.passing, "would pass"),
        (preview.filtered, "would be filtered"),
        (preview.refused, "would be refused again"),
    ]
    outcomes = ", ".join(f"{rows:,} {what}" for rows, what in counts if rows)
    goes = [f"{name} would get {format_count(rows)}." for name, rows in preview.destinations.items()]
    shown = [
        [each.id if not number else "", *cells, _describe_outcome(each.row) if not number else ""]
        for each in preview.rows
        for number, cells in enumerate(_list_changes(each.row))
    ]
    return "\n".join(
        [
            f"Of {format_count(preview.read)} {outcomes}. Nothing is written yet.",
            *(f"  {line}" for line in preview.causes.describe()),
            *goes,
            table(["row", "column", "before", "after", "then"], shown) if shown else "",
        ]
    ).rstrip()


def _list_changes(row: TracedRow) -> Sequence[Sequence[str]]:
    """Return the columns that the fix changes, each before and after it."""
    before, after = row.before, row.after
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return [("", "", "")]
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    cells = [(name, _show_cell(before, name), _show_cell(after, name)) for name in names]
    return [[*map(escape_line, each)] for each in cells] or [["", "unchanged", ""]]


def _show_cell(row: Mapping[str, JSON], name: str) -> str:
    shown = _show_value(row[name]) if name in row else ""
    return shown if len(shown) <= _CELL else f"{shown[: _CELL - 1]}…"


def _describe_outcome(row: TracedRow) -> str:
    if row.outcome == "rejected":
        return escape_line(f"{row.stage} refuses it: {row.message}")
    if row.outcome == "changed":
        return f"{row.stage} makes other rows"
    filters = ", ".join(dict.fromkeys(each for each in [row.stage, *row.filtered_for.values()] if each))
    goes = f"goes to {', '.join(row.destinations)}" if row.destinations else ""
    return "; ".join(each for each in (goes, f"{filters} filters it" if filters else "") if each)


def format_redo(found: RedoPreview, file: str = "FILE") -> str:
    letters = [paint_hint(escape_line(with_file(notice, file))) for notice in found.notices]
    if found.read is None:
        return "\n".join([f"{found.file} has not changed since it was read: there is nothing to redo.", *letters])
    rows = [[name, *_describe_leaving(leaving, found.conditions.get(name))] for name, leaving in found.leaving.items()]
    return "\n".join(
        [
            f"{found.file} has {format_count(found.read)} now.",
            table(["destination", "old rows", "how"], rows) if rows else "No destination has rows of it.",
            *letters,
        ]
    )


def _describe_leaving(leaving: int | None, condition: str | None) -> tuple[str, str]:
    if leaving is None:
        return "", "merges the new rows; an old row whose keys are not in the file any more stays"
    return f"{leaving:,}", f"replaces the rows where {escape_line(str(condition))}"


def format_refused_row(row: RefusedRow) -> str:
    """Format a row of the DLQ, with the facts that need no Spark."""

    letter = row.letter
    file = f", {name_part(letter['part'], whole=True)}" if letter["part"] else ""
    shown = _show_value(letter["row"])
    original = "was not kept" if letter["original"] is None else _show_value(letter["original"])
    others = f"{row.refuser} refused {format_count(row.alike, 'other row', 'other rows')} with {letter['code']}"
    named: list[tuple[str, Sequence[str]]] = [
        ("refused", [f"{show_moment(letter['nacked_at'])} by {row.refuser}, {letter['code']}"]),
        ("from", [f"lane {letter['lane']}, batch {letter['number']}, row {row.position}{file}"]),
        ("why", [letter["message"], *(f"{name} is {_show_value(value)}" for name, value in row.values.items())]),
        ("row", [shown]),
        ("as read", ["the same" if original == shown else original]),
        ("alike", [others]),
        ("earlier", [f"row {each}, which was replayed" for each in row.earlier]),
    ]
    return f"{escape_line(letter['id'])} {row.state}\n\n{_format_facts(named)}"


def _format_facts(named: Sequence[tuple[str, Sequence[str]]]) -> str:
    safe = [(name, [escape_line(each) for each in sentences]) for name, sentences in named]
    return format_sections(safe, least=len("as read"))


def format_tried_row(row: RefusedRow, tried: TriedRow, file: str) -> str:
    """Format what today's definition does with the row, and what to type next."""
    hints = list_next_commands(row, tried, file)
    shown = [paint_hint(escape_line(f"{each['what']}:  {each['command']}")) for each in hints]
    return "\n".join([_format_facts([("today", [_describe_today(tried)])]), *(["", *shown] if shown else [])])


def list_next_commands(row: RefusedRow, tried: TriedRow, file: str) -> Sequence[Mapping[str, str]]:
    """Return commands for a row that waits, and for other rows that were refused for the same cause."""
    if row.state != "waiting":
        return []
    alike = f"--code {shlex.quote(str(row.letter['code']))} --stage {shlex.quote(row.refuser)}"
    replay = f"wherry dlq replay {shlex.quote(file)}"
    if tried.passes:
        one = {"what": "Deliver it", "command": f'{replay} --id {row.letter["id"]} --reason "…"'}
        all_alike = {"what": "Deliver all alike", "command": f'{replay} {alike} --reason "…"'}
        return [one, all_alike] if row.alike else [one]
    is_refused = tried.today is not None and tried.today.outcome == "rejected"
    fix = {"what": "Try a fix", "command": f'{replay} {alike} --set "COLUMN=EXPR" --dry-run'}
    return [fix] if is_refused else []


def _describe_today(tried: TriedRow) -> str:
    today = tried.today
    if today is None:
        return f"it cannot be tried: {tried.why_not}"
    if today.outcome == "rejected":
        return f"{today.stage} would refuse it: {today.message}"
    if today.outcome == "changed":
        return f"it would pass up to {today.stage}, which makes other rows"
    filters = ", ".join(dict.fromkeys(each for each in [today.stage, *today.filtered_for.values()] if each))
    goes = f"it would go to {', '.join(today.destinations)}" if today.destinations else ""
    return "; ".join(each for each in (goes, f"{filters} would filter it" if filters else "") if each)


def _show_value(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)
