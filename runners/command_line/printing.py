"""Facts as a person reads them on a terminal; the same facts as JSON are somebody else's."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from origins.batch import JSON
from runners.codes import codes
from runners.command_line.to_type import with_file
from runners.numbered import batches_of, counted
from runners.printable import escape_controls, escape_line

if TYPE_CHECKING:
    from pathlib import Path

    from runners.definitions.kinds import Described, Kind
    from runners.definitions.validation import Explanation
    from runners.offsets import Move
    from runners.pipeline import Pipeline
    from runners.report import DestinationReport, Report

_WIDEST = 110
_KEPT = "\0"
_PHASES = {
    "plan": "planning",
    "read": "reading",
    "write": "writing",
    "dlq": "refused rows",
    "ledger": "ledger",
    "rest": "rests",
}


def as_json(facts: JSON) -> str:
    """Facts for a program."""
    return escape_controls(json.dumps(facts, ensure_ascii=False, indent=2, default=str))


def sections(named: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Headings in a column of their own, with sentences beside them."""
    rows = [(heading, sentence) for heading, sentences in named for heading, sentence in _headed(heading, sentences)]
    width = max((len(heading) for heading, _ in rows), default=0) + 2
    return "\n".join(_wrapped(sentence, f"{heading:<{width}}", " " * width) for heading, sentence in rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a heading; the last column may be long."""
    rows = [[escape_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    lines = []
    for row in [head, *rows]:
        first = "".join(f"{cell:<{width}}  " for cell, width in zip(row[:-1], widths, strict=False))
        lines.append(_wrapped(row[-1], first, " " * len(first)).rstrip())
    return "\n".join(lines)


def explanation(said: Explanation, file: str, columns: Mapping[str, str] | None = None) -> str:
    """What a definition will do."""
    through = f" → {', '.join(said.stages)}" if said.stages else ""
    into = ", ".join(str(each["name"]) for each in said.destinations)
    carried = [f"{_way_of(origin)}{through} → {into}" for origin in said.origins]
    guarantees = [_delivered(each) for each in said.destinations]
    analysed = [f"{name}: {ddl}" for name, ddl in (columns or {}).items()]
    if columns is None:
        analysed = [f"Types and SQL are not checked yet:  wherry validate {file} --spark"]
    elif not columns:
        analysed = ["Nothing waits from which the columns could be told, so the stages are not checked yet."]
    named: list[tuple[str, Sequence[str]]] = [
        ("carries", carried),
        ("delivers", guarantees),
        ("batches", [*said.batches, _way(said)]),
        ("commits", [said.delivery]),
        ("refused rows", said.dead_letters),
        ("restart", said.restart),
        ("state", [said.state]),
        ("schedule", said.schedule),
        ("columns", analysed),
        ("note", said.notes),
    ]
    told = [(heading, [with_file(here(sentence), file) for sentence in told]) for heading, told in named]
    return f"{said.pipeline} is well defined.\n\n{sections(told)}"


def report(said: Report, file: str) -> str:
    """What a run carried."""
    batches = batches_of(said.batches)
    if said.error:
        began = "No batch was carried." if said.batches == 0 else f"{batches} before that:"
    else:
        nothing = "no batch was carried" if said.status == "stopped" else "nothing new waits"
        began = f"{_ended(said)}: {batches if said.batches else nothing}."
    notices = [f"note: {escape_line(notice)}" for notice in said.notices[:5]]
    if len(said.notices) > 5:
        notices.append(f"note: {len(said.notices) - 5} more of the kind; --json has them")
    if said.status == "stopped":
        notices.append(f"The next run goes on from there, and finishes first what was in flight:  wherry run {file}")
    if said.batches == 0:
        return "\n".join([began, *notices])
    rows = [
        [name, *(f"{count:,}" for count in (each.read, each.delivered, each.filtered, each.nacked))]
        for name, each in said.destinations.items()
        if _took_part(said, each)
    ]
    parts = [began, table(["to", "read", "delivered", "filtered", "refused"], rows)]
    if said.balanced is not True:
        parts.append("The counts do not balance." if said.balanced is False else "Some rows could not be counted.")
    if any(said.spent.values()):
        parts.append(_spent(said.spent))
    if said.nacked > said.discarded:
        parts.append(f"The refused rows:  wherry dlq show {file}")
    return "\n".join([*parts, *notices])


def _took_part(said: Report, each: DestinationReport) -> bool:
    """Whether a destination was to get any of it; a backfill may be for others alone."""
    from runners.state import is_aside

    again = bool(said.lanes) and all(map(is_aside, said.lanes))
    return not again or any(vars(each).values())


def _spent(seconds: Mapping[str, float]) -> str:
    """Where the time went, the most first; what took less than a twentieth of it is left out."""
    whole = sum(seconds.values())
    worth = sorted(((spent, phase) for phase, spent in seconds.items() if spent > whole / 20), reverse=True)
    return "The batches' time: " + ", ".join(f"{_PHASES[phase]} {spent:.1f} s" for spent, phase in worth)


def demo(said: Report, pipeline: Pipeline, file: Path) -> str:
    """What the demo carried, where it lies, and what to type next."""
    named: list[tuple[str, Sequence[str]]] = [
        ("the definition", [str(file)]),
        *((f"{destination.name}", [destination.place]) for destination in pipeline.every_destination),
        ("the state", [str(pipeline.state)]),
    ]
    lie = [(heading, [here(place) for place in places]) for heading, places in named]
    rows = [
        [f"wherry dlq show {file}", "the refused rows, and why"],
        [f"wherry status {file}", "how far it is"],
        [f"wherry validate {file}", "what the definition does, in words"],
        [f"wherry run {file}", "what came since; nothing, unless you add files"],
    ]
    return f"{report(said, str(file))}\n\n{sections(lie)}\n\n{table(['type next', ''], rows)}"


def failure(said: Report, file: str = "FILE") -> str:
    """Why a run failed, and what to do."""
    error = said.error
    assert error is not None
    hint = [with_file(error.hint, file)] if error.hint else []
    later = [f"later        {escape_line(each)}" for each in error.later]
    return escape_controls("\n".join([f"{_ended(said)}: {error.message}", *hint, *explained(error.code), *later]))


def explained(code: str) -> list[str]:
    """Where more is said about an error; nothing for one that says all itself, or of which there is no more to say."""
    return [f"more         wherry explain {code}"] if code in codes() and code not in ("DEFINITION", "REFUSED") else []


def status(facts: Mapping[str, JSON], file: str = "FILE") -> str:
    """How a pipeline is."""
    owner, last, dlq = facts["owner"], facts["last_run"], facts["dlq"]
    under_way = facts["state"] == "running"
    named: list[tuple[str, Sequence[str]]] = [
        ("run by", [_owner(each) for each in facts.get("owners", [owner] if owner else [])]),
        (
            "differs",
            ["the run goes by another definition; the next one goes by this"] if facts["differs"] else [],
        ),
        ("heard", [_moment(owner["heard"])] if owner and owner.get("heard") and "owners" not in facts else []),
        ("stops", [f"{facts['stopping']}; batches in flight are finished first"] if facts["stopping"] else []),
        ("last run", [_last(last)] if last else []),
        ("error", _error(last["error"], file) if last and last["error"] else []),
        ("it was at", _snapshot(last.get("snapshot")) if last else []),
        ("lanes", [_lane(name, lane) for name, lane in facts["lanes"].items()]),
        ("open", [_open(each, under_way=under_way) for each in facts["open"]]),
        ("refused", _refused(dlq)),
        ("first", [facts["first"]] if facts.get("first") else []),
        ("next", [facts["next"]]),
    ]
    return f"{facts['pipeline']}: {facts['state'].replace('_', ' ')}\n\n{sections(named)}"


def _refused(dlq: Mapping[str, JSON]) -> list[str]:
    if not dlq["rows"]:
        return []
    waiting = "" if dlq["unreplayed"] == dlq["rows"] else f", of which {dlq['unreplayed']:,} wait"
    return [f"{counted(dlq['rows'])} in the dead letter queue{waiting}"]


def _owner(owner: Mapping[str, JSON]) -> str:
    said = f"{owner['host']}, process {owner['process']}, since {_moment(owner['since'])}"
    if "lanes" not in owner:
        return said
    gone = "" if owner["lives"] else f", not heard since {_moment(owner['heard'])}"
    return f"{said}: {'lanes ' + ', '.join(owner['lanes']) if owner['lanes'] else 'no lanes yet'}{gone}"


def dead_letters(rows: Sequence[Mapping[str, JSON]]) -> str:
    """Refused rows, each with the reason above it."""
    if not rows:
        return "No refused rows are kept."
    lines = []
    for row in rows:
        where = f"lane {row['lane']}, batch {row['number']}, {row['stage'] or row['destination']}"
        since = ", carried again" if row["replayed"] else ", discarded" if row["discarded"] else ""
        lines.append(escape_line(f"{_moment(row['nacked_at'])}  {where}{since}: {row['message']}"))
        lines.append(escape_line(f"  {json.dumps(row['row'], ensure_ascii=False)}"))
    return "\n".join(lines)


def offsets(facts: Mapping[str, JSON]) -> str:
    """How far each lane is."""
    rows = [
        [name, str(lane["number"]), _moment(lane["committed_at"]), _offset(lane["offset"])]
        for name, lane in facts["lanes"].items()
    ]
    if not rows:
        return "Nothing was carried yet."
    return "\n".join(
        [
            table(["lane", "batch", "committed (UTC)", "offset"], rows),
            *(escape_line(_open(each)) for each in facts["open"]),
        ]
    )


def move(said: Move) -> str:
    """What will happen when offsets are moved."""
    rows = [
        [name, _count(lane.batches), _count(lane.rows), f"{_offset(lane.before)} → {_offset(lane.after)}"]
        for name, lane in said.lanes.items()
    ]
    if not rows:
        return "There is nothing to move: nothing was carried yet."
    again = [(name, [what]) for name, what in said.destinations.items()]
    again += [(f"lane {name}", [f"skips {lane.skipped}"]) for name, lane in said.lanes.items() if lane.skipped]
    again.append(("refused rows", ["stay where they are; a row that is refused again is refused once more"]))
    return f"{table(['lane', 'batches again', 'rows again', 'from → to'], rows)}\n\n{sections(again)}"


def runs(found: Sequence[Mapping[str, JSON]]) -> str:
    """Runs, one a line."""
    if not found:
        return "No such run is known."
    rows = [
        [
            each["run"][:8],
            each["status"],
            _moment(each["started_at"]),
            *("" if each[key] is None else f"{each[key]:,.0f}" for key in ("seconds", "batches", "read", "nacked")),
            (each["error"] or "").partition("\n")[0],
        ]
        for each in found
    ]
    return table(["run", "status", "began (UTC)", "seconds", "batches", "read", "refused", "error"], rows)


def one_run(found: Mapping[str, JSON]) -> str:
    """One run, with all that is known of it."""
    known = [(key, [str(value)]) for key, value in found.items() if key != "report" and value not in (None, "")]
    report = found["report"] or {}
    known.append(("it was at", _snapshot(report.get("snapshot"))))
    parts = [
        (name, [", ".join(f"{key} {rows:,}" for key, rows in to.items())])
        for name, to in report.get("destinations", {}).items()
    ]
    return sections([*known, *parts])


def schedule_plan(facts: Mapping[str, JSON]) -> str:
    """What a scheduler would run when, what comes first at the top."""
    rows = [[each["pipeline"], _next_of(each), each["when"]] for each in facts["scheduled"]]
    rows += [[name, "", f"by hand:  wherry run {file}"] for name, file in facts["by_hand"].items()]
    broken = [f"{file} is broken: {why.removeprefix(f'{file}: ')}" for file, why in facts["broken"].items()]
    known = [table(["pipeline", "next (UTC)", "runs"], rows)] if rows else []
    return "\n\n".join([*known, *map(escape_controls, broken)]) or "There is no definition here."


def _next_of(scheduled: Mapping[str, JSON]) -> str:
    if scheduled["paused"] is not None:
        return f"paused: {scheduled['paused']}"
    return f"{datetime.fromisoformat(scheduled['next'][0]):%a %Y-%m-%d %H:%M:%S}" if scheduled["next"] else ""


def all_kinds(kinds: Sequence[Kind]) -> str:
    """Every kind in a line, by role."""
    rows = [[kind.name, kind.role, kind.summary] for kind in kinds]
    return f"{table(['kind', 'of', 'what it does'], rows)}\n\nwherry kinds KIND shows its options."


def one_kind(kind: Kind) -> str:
    """A kind with its options."""
    named: list[tuple[str, Sequence[str]]] = [(kind.name, [f"A kind of {kind.role}. {kind.summary}"])]
    named += [(promise, [text]) for promise, text in kind.promises.items()]
    named.append(("as in", [f"{kind.name}: {_example(kind)}"]))
    parts = [sections(named)]
    for heading, options in ((f"inside of {kind.name}", kind.options), (f"beside {kind.name}", kind.beside)):
        if options:
            rows = [[option.name, option.type, _default(option), option.text] for option in options]
            parts.append(table([heading, "takes", "default", ""], rows))
    return "\n\n".join(parts)


def here(text: str) -> str:
    """The text with paths beneath the current directory as they would be typed."""
    here = os.getcwd().rstrip(os.sep) + os.sep
    return text.replace(here, "") if len(here) > 1 else text


def _headed(heading: str, sentences: Sequence[str]) -> list[tuple[str, str]]:
    return [(heading if at == 0 else "", sentence) for at, sentence in enumerate(sentences)]


def _wrapped(text: str, first: str, indent: str) -> str:
    """The text in lines of the terminal's width; a command behind a colon and two spaces stays in one line."""
    width = min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)
    room = max(width - len(indent), 30)
    said, colon, command = escape_controls(text).partition(":  ")
    whole = said + colon + command.replace(" ", _KEPT)
    lines = textwrap.wrap(whole, room, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join([first + lines[0], *(indent + line for line in lines[1:])]).replace(_KEPT, " ")


def _way_of(origin: Mapping[str, JSON]) -> str:
    return " → ".join([str(origin["place"]), *([", ".join(origin["stages"])] if origin["stages"] else [])])


def _delivered(destination: Mapping[str, JSON]) -> str:
    through = f" through {', '.join(destination['stages'])}" if destination["stages"] else ""
    return (
        f"{destination['name']}{through} to {destination['place'] or destination['kind']}, {destination['guarantee']}."
    )


def _way(said: Explanation) -> str:
    if said.way == "straight":
        return "A clean batch goes straight: its write is its only Spark job, and raises at the first refused row."
    return f"Every batch is decided and written under the state before it is delivered: {'; '.join(said.because)}."


def _ended(said: Report) -> str:
    seconds = f"{said.seconds:,.0f} s" if said.seconds >= 10 else f"{said.seconds:.1f} s"
    return f"{said.pipeline} {said.status} after {seconds}"


def _last(run: Mapping[str, JSON]) -> str:
    if run["status"] == "killed":
        return f"killed: {run['reason']}; its last word is of {_moment(run['at'])}"
    reason = f" ({run['reason']})" if run["status"] == "stopped" else ""
    return f"{run['status']}{reason} at {_moment(run['at'])}, {batches_of(run['batches'])}, {counted(run['read'])} read"


def _error(error: Mapping[str, JSON], file: str) -> list[str]:
    """The whole error, and the ways out that it names."""
    hint = with_file(error.get("hint") or "", file).splitlines()
    more = f"More:  wherry explain {error['code']}"
    return [*error["message"].splitlines(), *hint, *([more] if explained(error["code"]) else [])]


def _snapshot(kept: Mapping[str, JSON] | None) -> list[str]:
    if not kept:
        return []
    stage = f", stage '{kept['stage']}'" if kept["stage"] else ""
    of = f" ({kept['of']})" if kept["of"] else ""
    where = f"batch {kept['number']} of lane {kept['lane']}{of}{stage}" + (", of whose rows:" if kept["rows"] else "")
    return [escape_line(where), *(json.dumps(row, ensure_ascii=False) for row in kept["rows"])]


def _lane(name: str, lane: Mapping[str, JSON]) -> str:
    behind = f", {lane['behind']} waiting" if lane["behind"] else ""
    return f"{name}: batch {lane['number']}, offset {_offset(lane['offset'])}{behind}"


def _count(count: int | None) -> str:
    return "not known" if count is None else f"{count:,}"


def _offset(offset: JSON) -> str:
    return "the beginning" if offset is None else json.dumps(offset, ensure_ascii=False)


def _moment(at: object) -> str:
    """A time in UTC to the second; nothing for none."""
    return str(at or "")[:19].replace("T", " ")


def _open(plan: Mapping[str, JSON], *, under_way: bool = False) -> str:
    label = f" ({plan['label']})" if plan["label"] else ""
    how = "is open; the next run finishes it first"
    if plan.get("owed"):
        how = "is owed to some destinations; the next run brings it first"
    elif under_way:
        how = "is being carried"
    return f"batch {plan['number']} of lane {plan['lane']}{label} {how}"


def _example(kind: Kind) -> str:
    """How the kind is written, in its shortest form."""
    main = next((option.type for option in kind.options if option.main), "")
    if not main:
        needed = [option.name for option in kind.options if option.required] or [each.name for each in kind.options[:1]]
        return f"{{{', '.join(f'{name}: …' for name in needed)}}}"
    return {"a mapping": "{name: …}", "a list": "[name, …]"}.get(main.split(" or ")[0], '"…"')


def _default(option: Described) -> str:
    if option.required:
        return "must be given"
    return json.dumps(option.default, ensure_ascii=False, default=str) if option.default is not None else "none"
