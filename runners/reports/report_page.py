"""A run as one HTML file that needs nothing else, or as a cell's output in a notebook: no script, no request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from origins.batch import JSON
from runners.reports.report_flow import flow, spent, timeline
from runners.reports.report_html import document, fragment, state, table, text
from runners.reports.report_quality import quality

MOST_SAMPLES = 20
"""The refused rows that a report shows."""
_UNDER_WAY = "It has not ended: nothing is known of its rows yet."
_UNKNOWN = "Its process ended without a word, so it reported nothing of its rows."


def page(
    run: Mapping[str, JSON],
    definition: JSON = None,
    samples: Sequence[Mapping[str, JSON]] = (),
    trends: Sequence[Mapping[str, JSON]] = (),
) -> str:
    """The page of a run as the run history has it, with the definition that it ran where that is still known, some of
    its refused rows, masked already, and how its rules fared from run to run."""
    return document(f"{run['pipeline']} {run['run'][:8]}", "".join(_sections(run, definition, samples, trends)))


def cell(run: Mapping[str, JSON], definition: JSON = None, samples: Sequence[Mapping[str, JSON]] = ()) -> str:
    """The same as a notebook shows it."""
    return fragment("".join(_sections(run, definition, samples, ())))


def _sections(
    run: Mapping[str, JSON],
    definition: JSON,
    samples: Sequence[Mapping[str, JSON]],
    trends: Sequence[Mapping[str, JSON]],
) -> Iterator[str]:
    report: Mapping[str, JSON] = run["report"] or {}
    yield f"<h1>{text(run['pipeline'])}: {state(run['status'])}</h1>"
    yield f'<p class="dim">{text(_when(run))}</p>'
    yield from _error(report)
    if not report:
        yield f"<p>{_UNKNOWN if run['status'] == 'killed' else _UNDER_WAY}</p>"
    elif report["batches"] or report["read"]:
        yield from flow(report)
        yield from _balance(report)
        yield from _destinations(report)
        yield from spent(report)
        yield from timeline(report.get("timeline") or {}, len(report["lanes"]))
    else:
        yield "<p>No batch was carried.</p>"
        yield from _balance(report) if report["balanced"] is not True else ()
    yield from quality(report, trends)
    yield from _samples(samples)
    yield from _stages(report)
    yield from _lanes(report)
    yield from _notices(report)
    yield from _definition(run, definition)


def _when(run: Mapping[str, JSON]) -> str:
    took = "" if run["seconds"] is None else f", {run['seconds']:,.1f} s"
    why = f", {run['reason']}" if run["reason"] else ""
    began = f", began {str(run['started_at'])[:19].replace('T', ' ')} UTC" if run.get("started_at") else ""
    host = f", on {run['host']}" if run.get("host") else ""
    return f"Run {run['run']}{began}{took}{why}{host}"


def _error(report: Mapping[str, JSON]) -> Iterator[str]:
    error, kept = report.get("error"), report.get("snapshot")
    if error:
        where = ", ".join(f"{name} {error[name]}" for name in ("stage", "lane") if error.get(name))
        yield f'<h2 class="failed">Why it failed</h2><p class="dim">{text(error["code"])} {text(where)}</p>'
        yield f'<pre class="failed">{text(error["message"])}</pre>'
        yield f"<pre>{text(error['hint'])}</pre>" if error.get("hint") else ""
    if kept and kept["rows"]:
        rows = "\n".join(json.dumps(row, ensure_ascii=False) for row in kept["rows"])
        said = f"Rows of batch {kept['number']} of lane {kept['lane']}"
        yield f"<details><summary>{text(said)}</summary><pre>{text(rows)}</pre></details>"


def _balance(report: Mapping[str, JSON]) -> Iterator[str]:
    balanced = report["balanced"]
    said = {True: "All counts balance.", False: "The counts do not balance."}
    bad = "" if balanced is True else ' class="failed"'
    yield f"<p{bad}>{said.get(balanced, 'Some rows could not be counted.')}</p>"


def _destinations(report: Mapping[str, JSON]) -> Iterator[str]:
    rows = [
        [name, to.get("read", report["read"]), to["filtered"], to["nacked"], to["delivered"], to["owed"]]
        for name, to in report["destinations"].items()
    ]
    yield table(["to", "read", "filtered", "refused", "delivered", "batches owed"], rows, called="Rows by destination")


def _samples(samples: Sequence[Mapping[str, JSON]]) -> Iterator[str]:
    if samples:
        rows = [
            [
                each["stage"] or each["destination"],
                each["message"],
                json.dumps(each["row"], ensure_ascii=False),
                f"lane {each['lane']}, batch {each['number']}",
            ]
            for each in samples[:MOST_SAMPLES]
        ]
        more = f'<p class="dim">and {len(samples) - MOST_SAMPLES:,} more</p>' if len(samples) > MOST_SAMPLES else ""
        yield f"<h2>Refused rows</h2>{table(['by', 'why', 'row', 'where'], rows, called='Refused rows')}{more}"


def _stages(report: Mapping[str, JSON]) -> Iterator[str]:
    stages = [
        [each["stage"], each["in"], each["filtered"], each["nacked"], each["out"]] for each in report.get("stages", ())
    ]
    if stages:
        yield f"<h2>Stages</h2>{table(['stage', 'in', 'filtered', 'refused', 'out'], stages)}"


def _lanes(report: Mapping[str, JSON]) -> Iterator[str]:
    lanes = [
        [name, lane["batches"], json.dumps(lane["offset"], ensure_ascii=False)[:200]]
        for name, lane in report.get("lanes", {}).items()
    ]
    if lanes:
        yield f"<h2>Lanes</h2>{table(['lane', 'batches', 'offset'], lanes)}"


def _notices(report: Mapping[str, JSON]) -> Iterator[str]:
    notices = [[each] for each in report.get("notices", ())]
    if notices:
        yield f"<h2>Noticed</h2>{table(['what a person should know'], notices)}"


def _definition(run: Mapping[str, JSON], definition: JSON) -> Iterator[str]:
    if definition is not None:
        said = text(json.dumps(definition, ensure_ascii=False, indent=2))
        summary = f"<summary>all of it ({text(run['definition'])})</summary>"
        yield f"<h2>Definition</h2><details>{summary}<pre>{said}</pre></details>"
    elif run.get("definition"):
        yield f'<p class="dim">Definition {text(run["definition"])}; the pipeline runs another one by now.</p>'
