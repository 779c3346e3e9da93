"""Writes reports: one about a run, or many with an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from origins.batch import JSON
from origins.errors import WherryError
from runners.definitions.definition import Definition, DefinitionsFolder, definition_of, load
from runners.model.errors import Refusal
from runners.model.run_report import Report, compute_trends
from runners.model.spec import PipelineSpec
from runners.model.text import escape_html, show_moment
from runners.operations.dlq import list_dead_letters
from runners.operations.reports.report_page import (
    MOST_SAMPLES,
    Markup,
    make_document,
    render_link,
    render_page,
    render_report_cell,
    render_state,
    render_table,
)
from runners.operations.status import list_runs
from runners.state.location import StateLocation
from runners.state.run_history import WantedRuns

Runs = Mapping[str, "Sequence[Mapping[str, JSON]] | str"]
"""The newest runs by pipeline, the newest first; or the reason why they are not known."""


def render_index(runs: Runs, broken: Mapping[str, str], pages: Mapping[str, str]) -> str:
    """Render the index. `pages` has the file of each run's page, and `broken` the problems of files."""
    parts = ["<h1>Pipelines</h1>", _render_overview(runs)]
    for name, newest in runs.items():
        parts.append(f'<h2 id="{escape_html(_make_anchor(name))}">{escape_html(name)}</h2>')
        if isinstance(newest, str):
            parts.append(f"<p>{escape_html(newest)}</p>")
        else:
            parts.append(_render_runs(name, newest, pages) if newest else "<p>It has no runs yet.</p>")
    parts += [
        f'<h2>{escape_html(file)} is broken</h2><pre class="failed">{escape_html(why)}</pre>'
        for file, why in broken.items()
    ]
    return make_document("Pipelines", "".join(parts))


def _render_overview(runs: Runs) -> str:
    """Render the last run of each pipeline, and how many of its known runs failed."""
    if not runs:
        return "<p>There are none.</p>"
    rows: list[Sequence[JSON]] = []
    for name, newest in runs.items():
        link = render_link(f"#{_make_anchor(name)}", name)
        if isinstance(newest, str) or not newest:
            rows.append([link, "unknown" if isinstance(newest, str) else "no run yet", "", ""])
        else:
            last, failed = newest[0], sum(run["status"] == "failed" for run in newest)
            state = Markup(render_state(last["status"]))
            rows.append([link, state, show_moment(last["started_at"]), f"{failed} of {len(newest)} failed"])
    return render_table(["pipeline", "last run", "began (UTC)", "of the newest"], rows)


def _render_runs(name: str, newest: Sequence[Mapping[str, JSON]], pages: Mapping[str, str]) -> str:
    rows = [
        [
            render_link(pages[run["run"]], run["run"][:8]) if run["run"] in pages else run["run"][:8],
            Markup(render_state(run["status"])),
            show_moment(run["started_at"]),
            *(run[key] for key in ("batches", "read", "nacked")),
            "" if run["seconds"] is None else f"{run['seconds']:,.1f}",
            (run["error"] or "").partition("\n")[0][:200],
        ]
        for run in newest
    ]
    head = ["run", "status", "began (UTC)", "batches", "read", "refused", "seconds", "error"]
    return render_table(head, rows, called=name)


def _make_anchor(name: str) -> str:
    return f"pipeline-{name}"


NEWEST = 20
"""The number of runs of each pipeline in an index."""
LOOKED_THROUGH = 1_000
"""The number of the newest refused rows among which the rows of a run are searched."""


def write_run(pipeline: PipelineSpec, run: Mapping[str, JSON], file: Path | None = None) -> Path:
    """Write the page of a run, by default to a file with the run's name. Raises `Refusal` if that is impossible."""
    pipeline = definition_of(pipeline).pipeline
    file = file or Path(f"{pipeline.name}-{run['run'][:8]}.html")
    parts = _find_definition(pipeline, run), read_samples(pipeline, run), _read_trends(pipeline, run)
    return _write_file(file, render_page(run, *parts))


def write_directory(
    directory: Path, folder: Path, *, variables: Mapping[str, str], note_secrets: Callable[[Mapping[str, str]], None]
) -> Path:
    """Write the pages of the newest runs of all pipelines that a directory defines, and an index."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "Choose another folder:  --to DIR"
        raise Refusal(f"{folder} cannot be created: {error.strerror}.", hint=hint) from error
    read_file = partial(load, variables=variables, needs_secrets=False, note_secrets=note_secrets)
    definitions = DefinitionsFolder(path=directory, load=read_file).open()
    runs: dict[str, Sequence[Mapping[str, JSON]] | str] = {}
    pages: dict[str, str] = {}
    for definition in [read for read in definitions.values() if not isinstance(read, str)]:
        pipeline = definition.pipeline
        try:
            newest = list_runs(pipeline, WantedRuns(limit=NEWEST, report=True))
            for run in newest:
                pages[run["run"]] = f"{pipeline.name}-{run['run'][:12]}.html"
                write_run(pipeline, run, folder / pages[run["run"]])
            runs[pipeline.name] = newest
        except WherryError as error:
            runs[pipeline.name] = str(error)
    broken = {file: why for file, why in definitions.items() if isinstance(why, str)}
    return _write_file(folder / "index.html", render_index(runs, broken, pages))


def show(definition: Definition, report: Report) -> str:
    """Render a run of this definition that has just ended for a notebook, with some of its refused rows."""
    samples = read_samples(definition.pipeline, {"run": report.run, "nacked": report.nacked})
    return render_report_cell(
        report, definition_hash=definition.hash, definition=json.loads(definition.text), samples=samples
    )


def _find_definition(pipeline: PipelineSpec, run: Mapping[str, JSON]) -> JSON:
    """Return the definition of the run, if the ledger's last opening used the same one."""
    opened = StateLocation.of(pipeline).open_journal(pipeline).state.opened
    return json.loads(opened.definition) if opened.hash == run["definition"] else None


def read_samples(pipeline: PipelineSpec, run: Mapping[str, JSON]) -> Sequence[Mapping[str, JSON]]:
    """Return some of the rows that the run refused, masked. Empty if the DLQ cannot be read."""
    if not run["nacked"]:
        return ()
    try:
        rows = list_dead_letters(pipeline, LOOKED_THROUGH)
    except WherryError:
        return ()
    return [row for row in rows if row["run"] == run["run"]][: MOST_SAMPLES + 1]


def _read_trends(pipeline: PipelineSpec, run: Mapping[str, JSON]) -> Sequence[Mapping[str, JSON]]:
    """Return the results of the run's rules in this run and in earlier runs."""
    if not (run["report"] or {}).get("quality"):
        return ()
    newest = list_runs(pipeline, WantedRuns(limit=NEWEST, report=True))
    return compute_trends([earlier for earlier in newest if earlier["started_at"] <= run["started_at"]])


def _write_file(file: Path, content: str) -> Path:
    try:
        file.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise Refusal(f"{file} cannot be written: {error.strerror}.", hint="Choose another file:  --to FILE") from error
    return file
