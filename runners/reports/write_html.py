"""Writes reports: one about a run, or many with an index over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from origins.batch import JSON
from origins.errors import WherryError
from runners.definitions.definition import Definition, definition_of, folder_of
from runners.model.errors import Refusal
from runners.model.run_report import Report, compute_trends
from runners.model.spec import PipelineSpec
from runners.operations.dlq import list_dead_letters
from runners.operations.status import list_runs
from runners.reports.report_page import (
    MOST_SAMPLES,
    Markup,
    escape_text,
    link,
    make_document,
    render_page,
    render_report_cell,
    render_state,
    render_table,
)
from runners.state.location import StateLocation

Runs = Mapping[str, "Sequence[Mapping[str, JSON]] | str"]
"""The newest runs by pipeline, the newest first; in their place why they are not known."""


def render_index(runs: Runs, broken: Mapping[str, str], pages: Mapping[str, str]) -> str:
    """The page over all of them; `pages` has the file of each run's page, and `broken` what is wrong with files."""
    parts = ["<h1>Pipelines</h1>", _render_overview(runs)]
    for name, found in runs.items():
        parts.append(f'<h2 id="{escape_text(_make_anchor(name))}">{escape_text(name)}</h2>')
        if isinstance(found, str):
            parts.append(f"<p>{escape_text(found)}</p>")
        else:
            parts.append(_render_runs(name, found, pages) if found else "<p>It has no runs yet.</p>")
    parts += [
        f'<h2>{escape_text(file)} is broken</h2><pre class="failed">{escape_text(why)}</pre>'
        for file, why in broken.items()
    ]
    return make_document("Pipelines", "".join(parts))


def _render_overview(runs: Runs) -> str:
    """The last run of each, and how many of those that are known failed."""
    rows: list[Sequence[JSON]] = []
    for name, found in runs.items():
        name_cell = link(f"#{_make_anchor(name)}", name)
        if isinstance(found, str) or not found:
            rows.append([name_cell, "unknown" if isinstance(found, str) else "no run yet", "", ""])
        else:
            failed = sum(each["status"] == "failed" for each in found)
            rows.append(
                [
                    name_cell,
                    Markup(render_state(found[0]["status"])),
                    _format_begin(found[0]),
                    f"{failed} of {len(found)} failed",
                ]
            )
    return (
        render_table(["pipeline", "last run", "began (UTC)", "of the newest"], rows)
        if rows
        else "<p>There are none.</p>"
    )


def _render_runs(name: str, found: Sequence[Mapping[str, JSON]], pages: Mapping[str, str]) -> str:
    rows = [
        [
            link(pages[each["run"]], each["run"][:8]) if each["run"] in pages else each["run"][:8],
            Markup(render_state(each["status"])),
            _format_begin(each),
            *(each[key] if each[key] is not None else "" for key in ("batches", "read", "nacked")),
            "" if each["seconds"] is None else f"{each['seconds']:,.1f}",
            (each["error"] or "").partition("\n")[0][:200],
        ]
        for each in found
    ]
    return render_table(
        ["run", "status", "began (UTC)", "batches", "read", "refused", "seconds", "error"], rows, called=name
    )


def _format_begin(run: Mapping[str, JSON]) -> str:
    return str(run["started_at"])[:19].replace("T", " ")


def _make_anchor(name: str) -> str:
    return f"pipeline-{name}"


NEWEST = 20
"""So many runs of each pipeline stand in an index."""
LOOKED_THROUGH = 1_000
"""Among so many of the newest refused rows those of a run are looked for."""


@dataclass(frozen=True)
class ReportWriter:
    """Pages at a place: a file, or the folder of an index; None for a file named after the run, here."""

    place: Path | None = None

    def write_run(self, pipeline: PipelineSpec, run: Mapping[str, JSON]) -> Path:
        """Write the page of a run. Raises `Refusal` where that cannot be done."""
        pipeline = definition_of(pipeline).pipeline
        file = self.place or Path(f"{pipeline.name}-{run['run'][:8]}.html")
        parts = _find_definition(pipeline, run), read_samples(pipeline, run), _read_trends(pipeline, run)
        return _write_file(file, render_page(run, *parts))

    def write_directory(
        self,
        directory: Path,
        variables: Mapping[str, str],
        tell_secrets: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> Path:
        """Write the pages of the newest runs of all pipelines that are defined there, and an index over them."""
        folder = self.place or Path("reports")
        _make_folder(folder)
        found = folder_of(directory, variables=variables, needs_secrets=False, tell_secrets=tell_secrets).open()
        runs: dict[str, Sequence[Mapping[str, JSON]] | str] = {}
        pages: dict[str, str] = {}
        for definition in [each for each in found.values() if not isinstance(each, str)]:
            pipeline = definition.pipeline
            try:
                newest = list_runs(pipeline, limit=NEWEST, report=True)
                for run in newest:
                    pages[run["run"]] = f"{pipeline.name}-{run['run'][:12]}.html"
                    ReportWriter(folder / pages[run["run"]]).write_run(pipeline, run)
                runs[pipeline.name] = newest
            except WherryError as error:
                runs[pipeline.name] = str(error)
        broken = {file: each for file, each in found.items() if isinstance(each, str)}
        return _write_file(folder / "index.html", render_index(runs, broken, pages))


def show(definition: Definition, report: Report) -> str:
    """What a notebook shows of a run of this definition that has just ended, with some of the rows that it refused."""
    samples = read_samples(definition.pipeline, {"run": report.run, "nacked": report.nacked})
    return render_report_cell(
        report, definition_hash=definition.hash, definition=json.loads(definition.text), samples=samples
    )


def _find_definition(pipeline: PipelineSpec, run: Mapping[str, JSON]) -> JSON:
    """The definition that the run ran, if it is the last that the ledger was opened with."""
    opened = StateLocation.of(pipeline).open_journal(pipeline).state.opened
    return json.loads(opened["definition"]) if opened.get("hash") == run["definition"] else None


def read_samples(pipeline: PipelineSpec, run: Mapping[str, JSON]) -> Sequence[Mapping[str, JSON]]:
    """Some of the rows that the run refused, masked; none where the DLQ cannot be read again."""
    if not run["nacked"]:
        return ()
    try:
        rows = list_dead_letters(pipeline, LOOKED_THROUGH)
    except WherryError:
        return ()
    return [row for row in rows if row["run"] == run["run"]][: MOST_SAMPLES + 1]


def _read_trends(pipeline: PipelineSpec, run: Mapping[str, JSON]) -> Sequence[Mapping[str, JSON]]:
    """How the rules of the run fared in it and in those before it."""
    if not (run["report"] or {}).get("quality"):
        return ()
    newest = list_runs(pipeline, limit=NEWEST, report=True)
    return compute_trends([each for each in newest if each["started_at"] <= run["started_at"]])


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(
            f"{folder} cannot be created: {error.strerror}.", hint="Choose another folder:  --to DIR"
        ) from error


def _write_file(file: Path, content: str) -> Path:
    try:
        file.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise Refusal(f"{file} cannot be written: {error.strerror}.", hint="Choose another file:  --to FILE") from error
    return file
