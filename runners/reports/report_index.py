"""Many pipelines and their runs as pages: an index, and beside it one page for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from origins.batch import JSON
from runners.reports.report_html import Markup, document, link, state, table, text

Runs = Mapping[str, "Sequence[Mapping[str, JSON]] | str"]
"""The newest runs by pipeline, the newest first; in their place why they are not known."""


def index(runs: Runs, broken: Mapping[str, str], pages: Mapping[str, str]) -> str:
    """The page over all of them; `pages` has the file of each run's page, and `broken` what is wrong with files."""
    parts = ["<h1>Pipelines</h1>", _overview(runs)]
    for name, found in runs.items():
        parts.append(f'<h2 id="{text(_anchor(name))}">{text(name)}</h2>')
        if isinstance(found, str):
            parts.append(f"<p>{text(found)}</p>")
        else:
            parts.append(_runs(name, found, pages) if found else "<p>It never ran.</p>")
    parts += [f'<h2>{text(file)} is broken</h2><pre class="failed">{text(why)}</pre>' for file, why in broken.items()]
    return document("Pipelines", "".join(parts))


def _overview(runs: Runs) -> str:
    """The last run of each, and how many of those that are known failed."""
    rows: list[Sequence[JSON]] = []
    for name, found in runs.items():
        name_cell = link(f"#{_anchor(name)}", name)
        if isinstance(found, str) or not found:
            rows.append([name_cell, "unknown" if isinstance(found, str) else "never ran", "", ""])
        else:
            failed = sum(each["status"] == "failed" for each in found)
            rows.append(
                [name_cell, Markup(state(found[0]["status"])), _began(found[0]), f"{failed} of {len(found)} failed"]
            )
    return table(["pipeline", "last run", "began (UTC)", "of the newest"], rows) if rows else "<p>There are none.</p>"


def _runs(name: str, found: Sequence[Mapping[str, JSON]], pages: Mapping[str, str]) -> str:
    rows = [
        [
            link(pages[each["run"]], each["run"][:8]) if each["run"] in pages else each["run"][:8],
            Markup(state(each["status"])),
            _began(each),
            *(each[key] if each[key] is not None else "" for key in ("batches", "read", "nacked")),
            "" if each["seconds"] is None else f"{each['seconds']:,.1f}",
            (each["error"] or "").partition("\n")[0][:200],
        ]
        for each in found
    ]
    return table(["run", "status", "began (UTC)", "batches", "read", "refused", "seconds", "error"], rows, called=name)


def _began(run: Mapping[str, JSON]) -> str:
    return str(run["started_at"])[:19].replace("T", " ")


def _anchor(name: str) -> str:
    return f"pipeline-{name}"
