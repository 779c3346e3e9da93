"""A run as one self-contained HTML file, or as the output of a notebook cell. Neither has scripts or requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from origins.batch import JSON
from runners.model.causes import Causes
from runners.model.run_report import Report
from runners.model.text import escape_html, format_batches, format_percent

_WIDTH, _HEIGHT, _EDGE = 160, 28, 3
Facts: TypeAlias = Sequence[Mapping[str, JSON]]
"""Rows, runs or results, each as a mapping by name."""


def render_quality(report: Mapping[str, JSON], trends: Facts = ()) -> Iterator[str]:
    """Yield the results of the run's rules, with their earlier results. Yield nothing if the run has no rules."""
    before = {(trend["stage"], trend["rule"]): trend["runs"] for trend in trends}
    rows = []
    for asked in report.get("quality") or ():
        stage, rule = asked["stage"], asked["rule"]
        plot = render_plot(rule, before.get((stage, rule), ()))
        rows.append([stage, rule, format_percent(asked), asked["failed"], asked["batches"], plot])
    if rows:
        head = ["stage", "rule", "passed", "batches that failed it", "batches", "run by run"]
        yield f"<h2>Quality</h2>{render_table(head, rows, called='Quality by rule')}"


def render_plot(rule: str, runs: Facts) -> Markup:
    """Draw the share that passed in each run, as a line from 0 to 100%. Empty if fewer than two runs have a share."""
    shares = [run["share"] for run in runs if run["share"] is not None]
    if len(shares) < 2:
        return Markup("")
    step = (_WIDTH - 2 * _EDGE) / (len(shares) - 1)
    heights = [_EDGE + (1 - share) * (_HEIGHT - 2 * _EDGE) for share in shares]
    points = " ".join(f"{_EDGE + at * step:.1f},{height:.1f}" for at, height in enumerate(heights))
    message = f"{rule}: {', '.join(format_percent({'share': share}) for share in shares)}"
    return Markup(
        f'<svg role="img" aria-label="{escape_html(message)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>{escape_html(message)}</title>'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="2"/></svg>'
    )


MOST_SAMPLES = 20
"""The refused rows that a report shows."""
_UNDER_WAY = "The run has not ended: its row counts are not known yet."
_UNKNOWN = "The run's process was killed, so its row counts are not known."


def render_page(run: Mapping[str, JSON], definition: JSON = None, samples: Facts = (), trends: Facts = ()) -> str:
    """Render the page of a run from the run history.

    `definition` is the definition of the run if it is still known. `samples` are some of its refused rows, already
    masked. `trends` are the results of its rules from run to run.
    """
    content = "".join(_render_sections(run, definition, samples, trends))
    return make_document(f"{run['pipeline']} {run['run'][:8]}", content)


def render_cell(run: Mapping[str, JSON], definition: JSON = None, samples: Facts = ()) -> str:
    """Render the same for a notebook."""
    content = "".join(_render_sections(run, definition, samples, ()))
    return f'<style>{STYLE}</style><div class="wherry">{content}</div>'


def render_report_cell(
    report: Report, *, definition_hash: str = "", definition: JSON = None, samples: Facts = ()
) -> str:
    """Render a run that has just ended for a notebook."""
    facts = {**report.json(), "timeline": report.timeline}
    return render_cell({**facts, "report": facts, "definition": definition_hash}, definition, samples)


def _render_sections(run: Mapping[str, JSON], definition: JSON, samples: Facts, trends: Facts) -> Iterator[str]:
    report: Mapping[str, JSON] = run["report"] or {}
    yield f"<h1>{escape_html(run['pipeline'])}: {render_state(run['status'])}</h1>"
    yield f'<p class="dim">{escape_html(_describe_times(run))}</p>'
    yield from _render_error(report)
    if not report:
        yield f"<p>{_UNKNOWN if run['status'] == 'killed' else _UNDER_WAY}</p>"
    elif report["batches"] or report["read"]:
        yield from render_flow(report)
        yield from _balance(report)
        yield from _render_destinations(report)
        yield from render_time_spent(report)
        yield from render_timeline(report.get("timeline") or {}, len(report["lanes"]))
    else:
        yield "<p>No batch was processed.</p>"
        yield from _balance(report) if report["balanced"] is not True else ()
    yield from render_quality(report, trends)
    yield from _render_refused_causes(report)
    yield from _render_samples(samples)
    stages, lanes = report.get("stages", ()), report.get("lanes", {})
    passed = [[each["stage"], each["in"], each["filtered"], each["nacked"], each["out"]] for each in stages]
    yield _render_section("Stages", ["stage", "in", "filtered", "refused", "out"], passed)
    offsets = [[name, lane["batches"], _dump(lane["offset"])[:200]] for name, lane in lanes.items()]
    yield _render_section("Lanes", ["lane", "batches", "offset"], offsets)
    yield _render_section("Notices", ["notice"], [[notice] for notice in report.get("notices", ())])
    yield from _render_definition(run, definition)


def _render_section(title: str, head: Sequence[str], rows: Sequence[Sequence[JSON]]) -> str:
    """Render a table below its heading, or nothing if it has no rows."""
    return f"<h2>{title}</h2>{render_table(head, rows)}" if rows else ""


def _dump(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)


def _describe_times(run: Mapping[str, JSON]) -> str:
    took = "" if run["seconds"] is None else f", {run['seconds']:,.1f} s"
    why = f", {run['reason']}" if run["reason"] else ""
    began = f", began {str(run['started_at'])[:19].replace('T', ' ')} UTC" if run.get("started_at") else ""
    host = f", on {run['host']}" if run.get("host") else ""
    return f"Run {run['run']}{began}{took}{why}{host}"


def _render_error(report: Mapping[str, JSON]) -> Iterator[str]:
    error, kept = report.get("error"), report.get("snapshot")
    if error:
        where = ", ".join(f"{name} {error[name]}" for name in ("stage", "lane") if error.get(name))
        yield (
            f'<h2 class="failed">Why it failed</h2><p class="dim">{escape_html(error["code"])} {escape_html(where)}</p>'
        )
        yield f'<pre class="failed">{escape_html(error["message"])}</pre>'
        yield f"<pre>{escape_html(error['hint'])}</pre>" if error.get("hint") else ""
    if kept and kept["rows"]:
        rows = "\n".join(map(_dump, kept["rows"]))
        message = f"Rows of batch {kept['number']} of lane {kept['lane']}"
        yield f"<details><summary>{escape_html(message)}</summary><pre>{escape_html(rows)}</pre></details>"


def _balance(report: Mapping[str, JSON]) -> Iterator[str]:
    balanced = report["balanced"]
    sentences = {True: "All counts balance.", False: "The counts do not balance."}
    bad = "" if balanced is True else ' class="failed"'
    yield f"<p{bad}>{sentences.get(balanced, 'Some rows could not be counted.')}</p>"


def _render_destinations(report: Mapping[str, JSON]) -> Iterator[str]:
    destinations = report["destinations"]
    changed = ["changed"] if any(to.get("changed") for to in destinations.values()) else []
    rows = [
        [
            *(name, to.get("read", report["read"]), *(to.get(key, 0) for key in changed)),
            *(to["filtered"], to["nacked"], to["delivered"], to["owed"]),
        ]
        for name, to in destinations.items()
    ]
    head = ["to", "read", *changed, "filtered", "refused", "delivered", "batches owed"]
    yield render_table(head, rows, called="Rows by destination")


def _render_refused_causes(report: Mapping[str, JSON]) -> Iterator[str]:
    lines = Causes.of(report.get("causes", ())).describe()
    if lines:
        yield f"<h2>Causes of refused rows</h2><ul>{''.join(f'<li>{escape_html(line)}</li>' for line in lines)}</ul>"


def _render_samples(samples: Facts) -> Iterator[str]:
    if samples:
        rows = [
            [
                row["stage"] or row["destination"],
                row["message"],
                _dump(row["row"]),
                f"lane {row['lane']}, batch {row['number']}",
            ]
            for row in samples[:MOST_SAMPLES]
        ]
        more = f'<p class="dim">and {len(samples) - MOST_SAMPLES:,} more</p>' if len(samples) > MOST_SAMPLES else ""
        yield f"<h2>Refused rows</h2>{render_table(['by', 'why', 'row', 'where'], rows, called='Refused rows')}{more}"


def _render_definition(run: Mapping[str, JSON], definition: JSON) -> Iterator[str]:
    if definition is not None:
        text = escape_html(json.dumps(definition, ensure_ascii=False, indent=2))
        summary = f"<summary>all of it ({escape_html(run['definition'])})</summary>"
        yield f"<h2>Definition</h2><details>{summary}<pre>{text}</pre></details>"
    elif run.get("definition"):
        yield f'<p class="dim">Definition {escape_html(run["definition"])}; the pipeline has a newer definition.</p>'


SHOWN = 12
"""The most stages and destinations that are drawn. Tables have more."""


def render_flow(report: Mapping[str, JSON]) -> Iterator[str]:
    """Draw the flow: read → filtered, refused by cause, taken → each destination."""
    destinations, stages = report["destinations"], report["stages"]
    several = destinations if len(destinations) > 1 else {}
    own = {name: sum(stage["filtered"] for stage in stages if _is_of(stage, several, name)) for name in destinations}
    first = next(iter(destinations), "")
    shared = [stage for stage in stages if not any(_is_of(stage, several, name) for name in own)]
    filtered = {stage["stage"]: stage["filtered"] for stage in shared}
    refused = {stage["stage"]: stage["nacked"] for stage in stages}
    parted = sum(counts.get("read", report["read"]) for counts in destinations.values()) == report["read"]
    lost = report["filtered"] - (sum(own.values()) if parted else own[first] if first else 0)
    taken = report["read"] + report["changed"] - report["nacked"] - lost
    middle = [
        *_render_causes("", "filtered", filtered, lost),
        *_render_causes("bad", "refused", refused, report["nacked"]),
    ]
    if report["changed"]:
        more = "more" if report["changed"] > 0 else "fewer"
        middle.append(_render_box("", abs(report["changed"]), f"{more} after stages that make new rows"))
    middle.append(_render_box("good", taken, "taken"))
    ends = [_render_destination(name, counts, own[name]) for name, counts in list(destinations.items())[:SHOWN]]
    yield "<h2>Where the rows went</h2>"
    yield '<div class="flow" role="group" aria-label="Where the rows went">'
    yield f"<div>{_render_box('', report['read'], 'read')}</div>{_ARROW}<div>{''.join(middle)}</div>{_ARROW}"
    yield f"<div>{''.join(ends)}</div></div>"


def _render_causes(kind: str, outcome: str, stages: Mapping[str, int], whole: int) -> Iterator[str]:
    """Yield a box for each stage, and one for the rows that no stage counts."""
    named = {name: rows for name, rows in stages.items() if rows}
    for name, rows in list(named.items())[:SHOWN]:
        yield _render_box(kind, rows, f"{outcome} by {name}")
    rest = whole - sum(list(named.values())[:SHOWN])
    if rest > 0:
        yield _render_box(kind, rest, f"{outcome} otherwise" if named else outcome)


def _is_of(stage: Mapping[str, JSON], several: Mapping[str, JSON], destination: str) -> bool:
    """Whether the stage belongs to this destination. If only one destination exists, its stages belong to all."""
    return bool(several) and stage["stage"].startswith(f"{destination}/")


_ARROW = '<div class="to" aria-hidden="true"><span>→</span></div>'


def _render_box(kind: str, rows: int, text: str) -> str:
    return f'<div class="box {kind}"><b>{rows:,}</b>{escape_html(text)}</div>'


def _render_destination(name: str, counts: Mapping[str, JSON], filtered: int) -> str:
    lost = f"; {filtered:,} filtered on the way" if filtered else ""
    owed = f"; {format_batches(counts['owed'])} still owed" if counts["owed"] else ""
    return _render_box("bad" if counts["owed"] else "good", counts["delivered"], f"delivered to {name}{lost}{owed}")


def render_time_spent(report: Mapping[str, JSON]) -> Iterator[str]:
    """Draw how the batches' time was spent, in colours and in words."""
    parts = {name: seconds for name, seconds in report.get("spent", {}).items() if seconds and name in PHASES}
    if sum(parts.values()):
        texts = {name: f"{PHASES[name][0]} {seconds:,.1f} s" for name, seconds in parts.items()}
        label = escape_html(", ".join(texts.values()))
        yield "<h2>Time in batches</h2>"
        yield f'<div class="bar" role="img" aria-label="{label}">{_render_phases(parts)}</div>'
        keys = [
            f'<span class="key"><i style="background:{PHASES[name][1]}"></i>{text}</span>'
            for name, text in texts.items()
        ]
        yield f"<p>{' '.join(keys)}</p>"


def render_timeline(lanes: Mapping[str, Sequence[Mapping[str, JSON]]], lanes_in_all: int) -> Iterator[str]:
    """Draw a line for each lane from the beginning to the end of the run: when it worked on batches, and on what."""
    whole = max((part["end"] for parts in lanes.values() for part in parts), default=0)
    if not whole:
        return
    yield "<h2>Work of each lane over time</h2>"
    for name, parts in lanes.items():
        batches = sum(part["batches"] for part in parts)
        busy = sum(sum(part["spent"].values()) for part in parts)
        label = f"lane {name}: {format_batches(batches)}, {busy:,.1f} s of work"
        drawn = ""
        for part in parts:
            left, width = 100 * part["start"] / whole, 100 * (part["end"] - part["start"]) / whole
            drawn += f'<span style="left:{left:.2f}%;width:{width:.2f}%">{_render_phases(part["spent"])}</span>'
        yield f'<div class="lane"><span title="{escape_html(label)}">{escape_html(name)}</span>'
        yield f'<div class="track" role="img" aria-label="{escape_html(label)}">{drawn}</div></div>'
    yield f'<div class="lane"><span></span><div class="ends"><span>0 s</span><span>{whole:,.1f} s</span></div></div>'
    if lanes_in_all > len(lanes):
        yield f'<p class="dim">and {lanes_in_all - len(lanes):,} more lanes</p>'


def _render_phases(parts: Mapping[str, float]) -> str:
    whole = sum(parts.values())
    return "".join(
        f'<span style="width:{100 * seconds / whole:.2f}%;background:{PHASES[name][1]}"></span>'
        for name, seconds in parts.items()
        if name in PHASES and seconds
    )


PHASES = {
    "plan": ("planning", "#7a6ff0"),
    "read": ("reading", "#2f86d1"),
    "write": ("writing", "#1f9d6b"),
    "dlq": ("refused rows", "#d1652f"),
    "ledger": ("ledger", "#9a8a2f"),
    "rest": ("resting", "#8a8f98"),
}
"""The phases of a batch, in words, with their colours."""

STYLE = """
.wherry{color-scheme:light dark;--ink:#1c1e21;--paper:#fff;--dim:#5c6470;--line:#d5d9df;--box:#f4f6f8;--good:#1f7a4d;
--bad:#b3261e;--none:#6b7280;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:64rem;margin:0 auto;padding:1rem;box-sizing:border-box}
@media(prefers-color-scheme:dark){.wherry{--ink:#e6e8eb;--paper:#15171a;--dim:#9aa3af;--line:#343a42;--box:#1e2227;
--good:#5ccf95;--bad:#ff8a80;--none:#a3aab5}html:has(>body>main.wherry){background:#15171a}}
body:has(>main.wherry){margin:0}
.wherry h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0;overflow-wrap:anywhere}
.wherry h2{font-size:1.1rem;margin:2rem 0 .6rem}
.wherry p{margin:.5rem 0;overflow-wrap:anywhere}
.wherry .succeeded{color:var(--good)}.wherry .failed,.wherry .killed{color:var(--bad)}.wherry .dim{color:var(--dim)}
.wherry a{color:inherit}
.wherry .wide{overflow-x:auto}
.wherry table{border-collapse:collapse;width:100%;font-size:.95rem}
.wherry th,.wherry td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);
vertical-align:top;background:none;color:inherit}
.wherry th{color:var(--dim);font-weight:600;white-space:nowrap}
.wherry td{max-width:32rem;overflow-wrap:break-word}
.wherry td.n,.wherry th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.wherry pre{overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid var(--line);
padding:.1rem 0 .1rem .8rem;margin:.5rem 0;background:none;color:inherit;font:14px/1.45 ui-monospace,monospace}
.wherry pre.failed{border-color:var(--bad)}
.wherry summary{cursor:pointer;padding:.4rem 0}
.wherry .flow{display:flex;align-items:stretch;gap:.5rem}
.wherry .flow>div{flex:1;display:flex;flex-direction:column;justify-content:center;gap:.5rem;min-width:0}
.wherry .flow>.to{flex:none;color:var(--dim);font-size:1.3rem}
.wherry .box{background:var(--box);border:1px solid var(--line);border-left:4px solid var(--none);border-radius:6px;
padding:.5rem .7rem;overflow-wrap:anywhere}
.wherry .box b{display:block;font-size:1.15rem;font-variant-numeric:tabular-nums}
.wherry .box.good{border-left-color:var(--good)}.wherry .box.bad{border-left-color:var(--bad)}
.wherry .bar{display:flex;height:1.2rem;border-radius:3px;overflow:hidden;background:var(--line)}
.wherry .key{display:inline-block;margin-right:1rem;white-space:nowrap}
.wherry .key i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.35rem}
.wherry .lane{display:grid;grid-template-columns:minmax(4rem,9rem) 1fr;gap:.6rem;align-items:center;margin:.25rem 0}
.wherry .lane>span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;font-size:.9rem}
.wherry .track{position:relative;height:1.1rem;background:var(--box);border-radius:3px;overflow:hidden}
.wherry .track>span{position:absolute;top:0;bottom:0;display:flex;min-width:2px}
.wherry .ends{display:flex;justify-content:space-between;color:var(--dim);font-size:.85rem}
.wherry :focus-visible{outline:2px solid currentColor;outline-offset:2px}
@media(max-width:40rem){.wherry .flow{flex-direction:column}.wherry .flow>.to{text-align:center;line-height:1}
.wherry .flow>.to span{display:inline-block;transform:rotate(90deg)}.wherry{padding:.8rem}
.wherry .lane{grid-template-columns:5rem 1fr}}
"""

MOST_ROWS = 200
"""The most rows that a table shows."""
STATES = ("succeeded", "failed", "stopped", "killed", "running")


def make_document(title: str, content: str) -> str:
    """Make a whole page. Its content security policy allows only its style."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape_html(title)}</title><style>{STYLE}</style></head><body><main "
        f'class="wherry">{content}</main></body>'
        "</html>\n"
    )


def render_state(status: str) -> str:
    kind = f' class="{status}"' if status in STATES else ""
    return f"<span{kind}>{escape_html(status)}</span>"


def render_table(head: Sequence[str], rows: Sequence[Sequence[JSON]], *, called: str = "") -> str:
    """Render a table that scrolls by keyboard. Numbers are right-aligned, and only the first `MOST_ROWS` rows show."""
    numbers = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(head))]
    kind = [' class="n"' if number else "" for number in numbers]
    heads = "".join(f'<th scope="col"{kind[at]}>{escape_html(name)}</th>' for at, name in enumerate(head))
    lines = [
        "<tr>" + "".join(f"<td{kind[at]}>{_render_cell(value)}</td>" for at, value in enumerate(row)) + "</tr>"
        for row in rows[:MOST_ROWS]
    ]
    more = f'<p class="dim">and {len(rows) - MOST_ROWS:,} more</p>' if len(rows) > MOST_ROWS else ""
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape_html(called or head[0])}">{body}</div>{more}'
    )


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def render_link(place: str, text: str) -> Markup:
    return Markup(f'<a href="{escape_html(place)}">{escape_html(text)}</a>')


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _render_cell(value: JSON) -> str:
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    return f"{value:,}" if _is_number(value) else escape_html(value)
