"""Formats facts for a person on a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from runners.model.codes import read_codes
from runners.model.text import (
    ShownRow,
    escape_controls,
    escape_line,
    format_batches,
    format_count,
    format_rows,
    format_sections,
    join_some,
    paint,
    paint_hint,
    paint_word,
    shorten_paths,
    show_moment,
    show_offset,
    show_open_batch,
    table,
    with_file,
)

if TYPE_CHECKING:
    from pathlib import Path

    from origins.batch import JSON
    from runners.definitions.kinds import DescribedOption, Kind
    from runners.model.run_report import DestinationReport, Report
    from runners.model.spec import PipelineSpec
    from runners.operations.offsets import OffsetMove
    from runners.operations.validate import Explanation

VERSION = 1
"""The version of what `--json` prints. Removing or redefining a key makes a new version; adding a key does not."""

_PHASES = {
    "plan": "planning",
    "read": "reading",
    "write": "writing",
    "dlq": "refused rows",
    "ledger": "ledger",
    "rest": "rests",
}


def as_json(facts: Mapping[str, JSON]) -> str:
    return dump({"version": VERSION, **facts})


def dump(value: JSON) -> str:
    """Return a value as JSON that a terminal can show."""
    return escape_controls(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def format_explanation(explanation: Explanation, file: str, columns: Mapping[str, str] | None = None) -> str:
    into = ", ".join(str(destination["name"]) for destination in explanation.destinations)
    carried = []
    for origin in explanation.origins:
        stages = [", ".join(names) for names in (origin["stages"], explanation.stages) if names]
        carried.append(" → ".join([str(origin["place"]), *stages, into]))
    guarantees = [_format_destination(destination) for destination in explanation.destinations]
    analysed = [f"{name}: {ddl}" for name, ddl in (columns or {}).items()]
    if columns is None:
        analysed = [f"Types and SQL are not checked yet:  wherry validate {file} --spark"]
    elif not columns:
        analysed = ["There are no new rows to find the columns from, so the stages are not checked yet."]
    named: list[tuple[str, Sequence[str]]] = [
        ("flow", carried),
        ("delivers", guarantees),
        ("batches", [*explanation.batches, _format_way(explanation)]),
        ("commits", [explanation.delivery]),
        ("refused rows", explanation.dead_letters),
        ("restart", explanation.restart),
        ("state", [explanation.state]),
        ("schedule", explanation.schedule),
        ("hooks", explanation.hooks),
        ("columns", analysed),
        ("note", explanation.notes),
    ]
    sections = [(heading, [with_file(shorten_paths(line), file) for line in lines]) for heading, lines in named]
    return f"The definition of {explanation.pipeline} is valid.\n\n{format_sections(sections)}"


def format_report(report: Report, file: str, *, shown: Collection[str] = ()) -> str:
    """Format what a run processed, and its notices that are not in `shown`."""
    batches = format_batches(report.batches)
    if report.error:
        began = "No batch was processed." if report.batches == 0 else f"{batches} before the error:"
    else:
        nothing = "no batch was processed" if report.status == "stopped" else "no new rows"
        began = f"{_format_ending(report, paint_word(report.status))}: {batches if report.batches else nothing}."
    new = [notice for notice in report.notices if not {notice, notice.partition(": ")[2]} & {*shown}]
    note = paint("note:", "yellow")
    notices = [f"{note} {escape_line(with_file(notice, file))}" for notice in new[:5]]
    if len(new) > 5:
        notices.append(f"{note} {len(new) - 5} more; --json shows them all")
    if report.status == "stopped":
        first = f"finishes {format_count(report.left_open, 'open batch', 'open batches')} first, then "
        notices.append(paint_hint(f"The next run {first if report.left_open else ''}continues:  wherry run {file}"))
    if report.batches == 0:
        return "\n".join([began, *notices])
    parts = [began, _format_destinations(report)]
    if report.balanced is not True:
        unknown = report.balanced is not False
        parts.append(paint("Some rows could not be counted." if unknown else "The counts do not balance.", "red"))
    if any(report.spent.values()):
        parts.append(_format_time_spent(report.spent))
    if report.causes.found:
        parts += ["Refused rows by cause:", *(f"  {line}" for line in report.causes.describe())]
    if report.fallback:
        wait = format_count(report.fallback, "refused row waits", "refused rows wait")
        parts.append(paint(f"{wait} in the fallback, since the DLQ failed.", "red"))
        parts.append(paint_hint(f"When the DLQ works again, bring them back:  wherry dlq merge {file}"))
    if report.nacked > report.discarded + report.fallback:
        parts.append(paint_hint(f"See the refused rows:  wherry dlq show {file}"))
    return "\n".join([*parts, *notices])


def _format_destinations(report: Report) -> str:
    """Format the equation of each destination: read + changed = delivered + filtered + refused."""
    shown = {name: counts for name, counts in report.destinations.items() if _was_involved(report, counts)}
    rows = [
        [name, f"{to.read:,}", f"{to.changed:+,}", *(f"{count:,}" for count in (to.delivered, to.filtered, to.nacked))]
        for name, to in shown.items()
    ]
    head = ["to", "read", "changed", "delivered", "filtered", "refused"]
    if not any(to.changed for to in shown.values()):
        for row in (head, *rows):
            del row[2]
    return table(head, rows)


def _was_involved(report: Report, counts: DestinationReport) -> bool:
    """Whether the destination was to get rows. A backfill may be only for other destinations."""
    from runners.model.pipeline_state import is_aside

    again = bool(report.lanes) and all(map(is_aside, report.lanes))
    return not again or any(vars(counts).values())


def _format_time_spent(seconds: Mapping[str, float]) -> str:
    """Format how the time was spent, the largest part first, without parts of less than a twentieth."""
    whole = sum(seconds.values())
    worth = sorted(((spent, phase) for phase, spent in seconds.items() if spent > whole / 20), reverse=True)
    return "Time in batches: " + ", ".join(f"{_PHASES[phase]} {spent:.1f} s" for spent, phase in worth)


def format_demo(report: Report, pipeline: PipelineSpec, file: Path, first: Sequence[Sequence[str]] = ()) -> str:
    """Format what the demo processed, where it is, and what to type next after the `first` steps."""
    named = [("the definition", str(file))]
    named += [(str(destination.name), destination.place) for destination in pipeline.every_destination]
    named += [("the state", str(pipeline.state))]
    places = [(heading, [shorten_paths(place)]) for heading, place in named]
    rows = [
        *first,
        [f"wherry dlq show {file}", "shows the refused rows, and why"],
        [f"wherry status {file}", "shows progress and open batches"],
        [f"wherry validate {file}", "explains the definition in words"],
        [f"wherry run {file}", "processes new rows, after you add files"],
    ]
    return f"{format_report(report, str(file))}\n\n{format_sections(places)}\n\n{table(['type next', ''], rows)}"


def format_failure(report: Report, file: str = "FILE") -> str:
    error = report.error
    assert error is not None
    what = f"{_format_ending(report, report.status)}: {error.message}"
    hint = [with_file(error.hint, file)] if error.hint else []
    later = [f"later        {escape_line(text)}" for text in error.later]
    return escape_controls("\n".join([what, *hint, *suggest_explain(error.code), *later]))


def suggest_explain(code: str) -> list[str]:
    """Return where to read more about an error; empty if its message is complete."""
    explained = code in read_codes() and code not in ("DEFINITION", "REFUSED")
    return [f"more         wherry explain {code}"] if explained else []


def format_status(facts: Mapping[str, JSON], file: str = "FILE") -> str:
    owner, last, dlq = facts["owner"], facts["last_run"], facts["dlq"]
    under_way = facts["state"] == "running"
    named: list[tuple[str, Sequence[str]]] = [
        ("run by", list(map(_format_owner, facts.get("owners", [owner] if owner else [])))),
        ("differs", ["the run uses an older definition; the next run uses this one"] if facts["differs"] else []),
        ("heard", [show_moment(owner["heard"])] if owner and owner.get("heard") and "owners" not in facts else []),
        ("stops", [_format_stop(facts)] if facts["stopping"] else []),
        ("paused", [_format_pause(facts["paused"])] if facts.get("paused") else []),
        ("last run", [_format_last_run(last)] if last else []),
        ("error", _format_error(last["error"], file) if last and last["error"] else []),
        ("was processing", _format_snapshot(last.get("snapshot")) if last else []),
        ("progress", [_format_lane(name, lane, facts["lanes"]) for name, lane in facts["lanes"].items()]),
        ("open", [show_open_batch(item, facts["lanes"], under_way=under_way) for item in facts["open"]]),
        (
            "removed",
            [f"{name}: the next run delivers nothing to it; its rows stay" for name in facts.get("removed", ())],
        ),
        ("left out", [_format_left_out(name, columns) for name, columns in facts.get("left_out", {}).items()]),
        ("refused", [*_format_refused(dlq, file, facts["next"])]),
        ("first", [facts["first"]] if facts.get("first") else []),
        ("next", [facts["next"]]),
    ]
    return f"{facts['pipeline']}: {paint_word(describe_state(facts))}\n\n{format_sections(named)}"


def _format_stop(facts: Mapping[str, JSON]) -> str:
    batches = "cancelled; the next run finishes them" if facts.get("forced") else "finished first"
    return f"{facts['stopping']}; open batches are {batches}"


def _format_left_out(name: str, columns: Sequence[str]) -> str:
    count = format_count(len(columns), "column", "columns")
    return escape_line(f"{count} of {name} that the schema does not have: {join_some(columns)}")


def _format_pause(paused: Mapping[str, JSON]) -> str:
    where = f"batch {paused['number']} of lane {paused['lane']}"
    by = f", by dlq.limits.{paused['limit']}" if paused["limit"] else ""
    return escape_line(f"since {show_moment(paused['at'])}{by}: {where}, {paused['reason']}")


def describe_state(facts: Mapping[str, JSON]) -> str:
    """Describe the state of a pipeline in a word or two. A run that ended without a report was killed."""
    last = facts["last_run"]
    killed = facts["state"] == "failed" and last is not None and last["status"] == "killed"
    return "killed" if killed else str(facts["state"]).replace("_", " ")


def _format_refused(dlq: Mapping[str, JSON], file: str, coming: str) -> Iterator[str]:
    if dlq["rows"]:
        waits = f"{dlq['unreplayed']:,} wait{'s' if dlq['unreplayed'] == 1 else ''}"
        yield f"{format_count(dlq['rows'])} in the DLQ; {waits if dlq['unreplayed'] else 'none waits'}"
        show = with_file("wherry dlq show FILE --waiting", file)
        if dlq["unreplayed"] and coming != show:
            yield f"See:  {show}"
    if "unreadable" in dlq:
        yield escape_line(dlq["unreadable"])
    if dlq["fallback"]:
        yield f"{format_count(dlq['fallback'], 'row waits', 'rows wait')} in the fallback"
        merge = with_file("wherry dlq merge FILE", file)
        if coming != merge:
            yield f"Bring them back:  {merge}"


def _format_owner(owner: Mapping[str, JSON]) -> str:
    message = f"{owner['host']}, process {owner['process']}, since {show_moment(owner['since'])}"
    if "lanes" not in owner:
        return message
    gone = "" if owner["lives"] else f", not heard since {show_moment(owner['heard'])}"
    return f"{message}: {'lanes ' + ', '.join(owner['lanes']) if owner['lanes'] else 'no lanes yet'}{gone}"


def format_dead_letters(rows: Sequence[Mapping[str, JSON]], *, wide: bool = False) -> str:
    """Format refused rows as tables, one for each batch. Below each row are its stage, reason and state."""
    if not rows:
        return "The DLQ has no rows."
    parts = []
    batches = groupby(rows, lambda row: f"{show_moment(row['nacked_at'])}  lane {row['lane']}, batch {row['number']}")
    for place, of_batch in batches:
        lines = [escape_line(place)]
        for _, alike in groupby(of_batch, lambda row: [*row["row"]] if isinstance(row["row"], Mapping) else []):
            shown = [
                ShownRow(
                    row=row["row"],
                    note=f"{row['stage'] or row['destination']}: {row['message']}",
                    source=_describe_source(row),
                )
                for row in alike
            ]
            lines += format_rows(shown, wide=wide)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _describe_source(row: Mapping[str, JSON]) -> str:
    from runners.model.causes import name_part

    state = "replayed" if row["replayed"] else "discarded" if row["discarded"] else "waiting"
    file = [name_part(row["part"])] if row.get("part") else []
    before = [f"first refused as {row['first']}"] if row.get("first") else []
    return "  ".join([state, f"id {row['id']}", *file, *before])


def format_wide(render: Callable[..., str], *, wide: bool) -> str:
    """Return the rendered text, `wide` or not. If a table leaves something out, a last line names the option --wide."""
    whole = render(wide=True)
    text = whole if wide else render()
    return text if text == whole else f"{text}\n\n{paint_hint('Show all columns and whole values:  --wide')}"


def format_move(offset_move: OffsetMove) -> str:
    """Format the plan for a move of offsets."""
    rows = [
        [name, show_offset(lane.before), show_offset(lane.after), _count(lane.batches), _count(lane.rows)]
        for name, lane in offset_move.lanes.items()
    ]
    if not rows:
        return "There is nothing to move: no batch was processed yet."
    again = [(name, [what]) for name, what in offset_move.destinations.items()]
    again += [(f"lane {name}", [f"skips {lane.skipped}"]) for name, lane in offset_move.lanes.items() if lane.skipped]
    again.append(("refused rows", ["stay in the DLQ; a row that is refused again is added to it again"]))
    return f"{table(['lane', 'from', 'to', 'batches again', 'rows again'], rows)}\n\n{format_sections(again)}"


def format_runs(runs: Sequence[Mapping[str, JSON]]) -> str:
    if not runs:
        return "No run matches."
    rows = [
        [
            run["run"][:8],
            run["status"],
            show_moment(run["started_at"]),
            *("" if run[key] is None else f"{run[key]:,.0f}" for key in ("seconds", "batches", "read", "nacked")),
            (run["error"] or "").partition("\n")[0],
        ]
        for run in runs
    ]
    return table(["run", "status", "began (UTC)", "seconds", "batches", "read", "refused", "error"], rows)


def format_run(run: Mapping[str, JSON]) -> str:
    facts = [(key, [str(value)]) for key, value in run.items() if key != "report" and value not in (None, "")]
    report = run["report"] or {}
    facts.append(("was processing", _format_snapshot(report.get("snapshot"))))
    for name, counts in report.get("destinations", {}).items():
        facts.append((name, [", ".join(f"{key} {rows:,}" for key, rows in counts.items())]))
    return format_sections(facts)


def format_schedule(facts: Mapping[str, JSON]) -> str:
    """Format what a scheduler would run and when, the next run first."""
    rows = [[plan["pipeline"], _format_next(plan), plan["when"]] for plan in facts["scheduled"]]
    rows += [[name, "", f"manual:  wherry run {file}"] for name, file in facts["by_hand"].items()]
    broken = [f"{file} is broken: {why.removeprefix(f'{file}: ')}" for file, why in facts["broken"].items()]
    known = [table(["pipeline", "next (UTC)", "runs"], rows)] if rows else []
    return "\n\n".join([*known, *map(escape_controls, broken)]) or "No definition was found here."


def _format_next(scheduled: Mapping[str, JSON]) -> str:
    if scheduled["paused"] is not None:
        return f"paused: {scheduled['paused']}"
    return f"{datetime.fromisoformat(scheduled['next'][0]):%a %Y-%m-%d %H:%M:%S}" if scheduled["next"] else ""


def format_kinds(kinds: Sequence[Kind]) -> str:
    """Format a line for each kind, by role, with the package if some kinds come from other packages."""
    others = any(kind.source != "wherry" for kind in kinds)
    rows = [[kind.name, kind.role, *([kind.source] if others else []), kind.summary] for kind in kinds]
    heading = ["kind", "of", *(["from"] if others else []), "what it does"]
    return f"{table(heading, rows)}\n\nwherry kinds KIND shows its options."


def format_kind(kind: Kind) -> str:
    named: list[tuple[str, Sequence[str]]] = [(kind.name, [f"A kind of {kind.role}. {kind.summary}"])]
    named += [("from", [kind.source])] if kind.source != "wherry" else []
    named += [(promise, [text]) for promise, text in kind.promises.items()]
    named.append(("as in", [f"{kind.name}: {_format_example(kind)}"]))
    parts = [format_sections(named)]
    for heading, options in ((f"inside of {kind.name}", kind.options), (f"beside {kind.name}", kind.beside)):
        if options:
            rows = [[option.name, option.type, _format_default(option), option.text] for option in options]
            parts.append(table([heading, "takes", "default", ""], rows))
    return "\n\n".join(parts)


def _format_destination(destination: Mapping[str, JSON]) -> str:
    through = f" through {', '.join(destination['stages'])}" if destination["stages"] else ""
    place = destination["place"] or destination["kind"]
    return f"{destination['name']}{through} to {place}, {destination['guarantee']}."


def _format_way(explanation: Explanation) -> str:
    if explanation.way == "straight":
        return "A clean batch is written straight: its write is its only Spark job, and stops at the first refused row."
    because = "; ".join(explanation.because)
    return f"Wherry decides every batch and writes it under the state before delivery: {because}."


def _format_ending(report: Report, status: str) -> str:
    seconds = f"{report.seconds:,.0f} s" if report.seconds >= 10 else f"{report.seconds:.1f} s"
    return f"{report.pipeline} {status} after {seconds}"


def _format_last_run(run: Mapping[str, JSON]) -> str:
    if run["status"] == "killed":
        return f"killed: {run['reason']}; last heard at {show_moment(run['at'])}"
    reason = f" ({run['reason']})" if run["status"] == "stopped" else ""
    carried = f"{format_batches(run['batches'])}, {format_count(run['read'])} read"
    return f"{run['status']}{reason} at {show_moment(run['at'])}, {carried}"


def _format_error(error: Mapping[str, JSON], file: str) -> list[str]:
    hint = with_file(error.get("hint") or "", file).splitlines()
    more = f"More:  wherry explain {error['code']}"
    return [*error["message"].splitlines(), *hint, *([more] if suggest_explain(error["code"]) else [])]


def _format_snapshot(kept: Mapping[str, JSON] | None) -> list[str]:
    if not kept:
        return []
    stage = f", stage '{kept['stage']}'" if kept["stage"] else ""
    of = f" ({kept['of']})" if kept["of"] else ""
    where = f"batch {kept['number']} of lane {kept['lane']}{of}{stage}" + (", with these rows:" if kept["rows"] else "")
    return [escape_line(where), *(json.dumps(row, ensure_ascii=False) for row in kept["rows"])]


def _format_lane(name: str, lane: Mapping[str, JSON], lanes: Collection[str]) -> str:
    behind = f", waiting: {lane['behind']}" if lane["behind"] else ""
    named = f"{name}: " if len(lanes) > 1 else ""
    return f"{named}batch {lane['number']}, read up to {show_offset(lane['offset'])}{behind}"


def _count(count: int | None) -> str:
    return "not known" if count is None else f"{count:,}"


def _format_example(kind: Kind) -> str:
    main = next((option.type for option in kind.options if option.main), "")
    if not main:
        needed = [option for option in kind.options if option.required] or kind.options[:1]
        return f"{{{', '.join(f'{option.name}: …' for option in needed)}}}"
    return {"a mapping": "{name: …}", "a list": "[name, …]"}.get(main.split(" or ")[0], '"…"')


def _format_default(option: DescribedOption) -> str:
    if option.required:
        return "must be given"
    return json.dumps(option.default, ensure_ascii=False, default=str) if option.default is not None else "none"
