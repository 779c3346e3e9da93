"""A run as one HTML file that needs nothing else: no script, no request, readable in the dark and on a phone."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence

from origins.batch import JSON

MOST_ROWS = 200
"""The lanes, notices and stages that are shown at most."""
PHASES = {
    "plan": ("planning", "#7a6ff0"),
    "read": ("reading", "#2f86d1"),
    "write": ("writing", "#1f9d6b"),
    "dlq": ("refused rows", "#d1652f"),
    "ledger": ("ledger", "#9a8a2f"),
}
_STYLE = """
:root{color-scheme:light dark;--ink:#1c1e21;--paper:#fff;--dim:#5c6470;--line:#d5d9df;--good:#1f7a4d;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#15171a;--dim:#9aa3af;--line:#343a42;--good:#5ccf95;
--bad:#ff8a80}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;max-width:60rem;
padding:1rem}
h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}
.succeeded{color:var(--good)}.failed{color:var(--bad)}.dim{color:var(--dim)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
pre{overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid var(--line);padding-left:.8rem}
.bar{display:flex;height:1.2rem;border-radius:3px;overflow:hidden;background:var(--line)}
:focus-visible{outline:2px solid currentColor}
"""


def page(run: Mapping[str, JSON], definition: JSON = None) -> str:
    """The page of a run as the run history has it, with the definition that it ran where that is still known."""
    report: Mapping[str, JSON] = run["report"] or {}
    body = [
        f"<h1>{_text(run['pipeline'])}: <span class={_word(run['status'])}>{_text(run['status'])}</span></h1>",
        f'<p class="dim">{_text(_when(run))}</p>',
        *_error(report),
        *_equation(report),
        *_time(report),
        *_stages(report),
        *_lanes(report),
        *_notices(report),
        *_definition(run, definition),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(run['pipeline'])} {_text(run['run'][:8])}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _when(run: Mapping[str, JSON]) -> str:
    took = "" if run["seconds"] is None else f", {run['seconds']:,.1f} s"
    why = f", {run['reason']}" if run["reason"] else ""
    began = str(run["started_at"])[:19].replace("T", " ")
    return f"Run {run['run']}, began {began} UTC{took}{why}, on {run['host']}"


def _error(report: Mapping[str, JSON]) -> Iterator[str]:
    error = report.get("error")
    if error:
        where = ", ".join(f"{name} {error[name]}" for name in ("stage", "lane") if error.get(name))
        yield f'<h2 class="failed">Why it failed</h2><p class="dim">{_text(error["code"])} {_text(where)}</p>'
        yield f"<pre>{_text(error['message'])}</pre>"
        yield f"<pre>{_text(error['hint'])}</pre>" if error.get("hint") else ""


def _equation(report: Mapping[str, JSON]) -> Iterator[str]:
    """For every destination what was read, and where each of these rows went."""
    if not report:
        yield "<p>It has not ended, or was killed: nothing is known of its rows yet.</p>"
        return
    rows = [
        [name, report["read"], to["filtered"], to["nacked"], to["delivered"], to["owed"]]
        for name, to in report["destinations"].items()
    ]
    yield "<h2>Where the rows went</h2>"
    yield _table(["to", "read", "filtered", "refused", "delivered", "batches owed"], rows)
    said = {True: "All counts balance.", False: "The counts do not balance."}
    balanced = report["balanced"]
    bad = "" if balanced is True else ' class="failed"'
    yield f"<p{bad}>{said.get(balanced, 'Some rows could not be counted.')}</p>"
    causes = [[each["stage"], each["nacked"]] for each in report["stages"] if each["nacked"]]
    if causes:
        yield f"<h2>Refused, by stage</h2>{_table(['stage', 'refused'], causes)}"


def _time(report: Mapping[str, JSON]) -> Iterator[str]:
    spent = {name: seconds for name, seconds in report.get("spent", {}).items() if seconds and name in PHASES}
    whole = sum(spent.values())
    if whole:
        said = ", ".join(f"{PHASES[name][0]} {seconds:,.1f} s" for name, seconds in spent.items())
        parts = "".join(
            f'<span style="width:{100 * seconds / whole:.2f}%;background:{PHASES[name][1]}"></span>'
            for name, seconds in spent.items()
        )
        yield "<h2>Where the batches' time went</h2>"
        yield f'<div class="bar" role="img" aria-label="{_text(said)}">{parts}</div>'
        keys = (
            f'<span style="color:{PHASES[name][1]}">■</span> {PHASES[name][0]} {spent[name]:,.1f} s' for name in spent
        )
        yield f"<p>{' &nbsp; '.join(keys)}</p>"


def _stages(report: Mapping[str, JSON]) -> Iterator[str]:
    stages = [
        [each["stage"], each["in"], each["filtered"], each["nacked"], each["out"]] for each in report.get("stages", ())
    ]
    if stages:
        yield f"<h2>Stages</h2>{_table(['stage', 'in', 'filtered', 'refused', 'out'], stages)}"


def _lanes(report: Mapping[str, JSON]) -> Iterator[str]:
    lanes = [
        [name, lane["batches"], json.dumps(lane["offset"], ensure_ascii=False)[:200]]
        for name, lane in report.get("lanes", {}).items()
    ]
    if lanes:
        yield f"<h2>Lanes</h2>{_table(['lane', 'batches', 'offset'], lanes)}"


def _notices(report: Mapping[str, JSON]) -> Iterator[str]:
    notices = [[each] for each in report.get("notices", ())]
    if notices:
        yield f"<h2>Noticed</h2>{_table(['what was found and not read'], notices)}"


def _definition(run: Mapping[str, JSON], definition: JSON) -> Iterator[str]:
    if definition is None:
        yield f'<p class="dim">Definition {_text(run["definition"])}; the pipeline runs another one by now.</p>'
    else:
        text = _text(json.dumps(definition, ensure_ascii=False, indent=2))
        yield f"<h2>Definition</h2><details><summary>{_text(run['definition'])}</summary><pre>{text}</pre></details>"


def _table(head: Sequence[str], rows: Sequence[Sequence[JSON]]) -> str:
    """A table; columns of numbers stand right, and of many rows the first are shown."""
    numbers = [all(isinstance(row[at], int) for row in rows) for at in range(len(head))]
    kind = [' class="n"' if number else "" for number in numbers]
    heads = "".join(f'<th scope="col"{kind[at]}>{_text(name)}</th>' for at, name in enumerate(head))
    lines = [
        "<tr>" + "".join(f"<td{kind[at]}>{_cell(value)}</td>" for at, value in enumerate(row)) + "</tr>"
        for row in rows[:MOST_ROWS]
    ]
    more = f'<p class="dim">and {len(rows) - MOST_ROWS:,} more</p>' if len(rows) > MOST_ROWS else ""
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="{_text(head[0])}">{body}</div>{more}'


def _cell(value: JSON) -> str:
    return f"{value:,}" if isinstance(value, int) else _text(value)


def _text(value: JSON) -> str:
    return html.escape(str(value))


def _word(status: str) -> str:
    return f'"{status}"' if status in ("succeeded", "failed", "stopped", "running") else '""'
