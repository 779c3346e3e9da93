"""Writes reports: one about a run, or many with an index over them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from origins.batch import JSON
from origins.errors import WherryError
from runners.errors import Refusal
from runners.journal import Journal
from runners.pipeline import Pipeline
from runners.place import Place
from runners.report import Beside, Report
from runners.reports.report_index import index
from runners.reports.report_page import MOST_SAMPLES, page

if TYPE_CHECKING:
    from runners.definitions.definition import Definition

NEWEST = 20
"""So many runs of each pipeline stand in an index."""
LOOKED_THROUGH = 1_000
"""Among so many of the newest refused rows those of a run are looked for."""


@dataclass(frozen=True)
class Reports:
    """Pages at a place: a file, or the folder of an index; None for a file named after the run, here."""

    place: Path | None = None

    def of_run(self, pipeline: Pipeline, run: Mapping[str, JSON]) -> Path:
        """Write the page of a run. Raises `Refusal` where that cannot be done."""
        file = self.place or Path(f"{pipeline.name}-{run['run'][:8]}.html")
        parts = _definition(pipeline, run), samples_of(pipeline, run), _trends(pipeline, run)
        return _written(file, page(run, *parts))

    def of_directory(self, directory: Path, variables: Mapping[str, str]) -> Path:
        """Write the pages of the newest runs of all pipelines that are defined there, and an index over them."""
        from runners.schedules.scheduling import folder_of

        folder = self.place or Path("reports")
        _made(folder)
        found = folder_of(directory, variables=variables, needs_secrets=False).open()
        runs: dict[str, Sequence[Mapping[str, JSON]] | str] = {}
        pages: dict[str, str] = {}
        for definition in [each for each in found.values() if not isinstance(each, str)]:
            pipeline = definition.pipeline
            try:
                newest = pipeline.runs(limit=NEWEST, report=True)
                for run in newest:
                    pages[run["run"]] = f"{pipeline.name}-{run['run'][:12]}.html"
                    Reports(folder / pages[run["run"]]).of_run(pipeline, run)
                runs[pipeline.name] = newest
            except WherryError as error:
                runs[pipeline.name] = str(error)
        broken = {file: each for file, each in found.items() if isinstance(each, str)}
        return _written(folder / "index.html", index(runs, broken, pages))


def beside(definition: Definition, report: Report) -> Beside:
    """What a notebook shows with the report of a run that has just ended."""
    samples = samples_of(definition.pipeline, {"run": report.run, "nacked": report.nacked})
    return Beside(hash=definition.hash, definition=json.loads(definition.text), samples=samples)


def _definition(pipeline: Pipeline, run: Mapping[str, JSON]) -> JSON:
    """The definition that the run ran, if it is the last that the ledger was opened with."""
    from runners.definitions.definition import of
    from runners.session import obtain

    place = Place.of(of(pipeline).pipeline)
    spark = obtain(pipeline.spark.conf, pipeline.spark.packages) if place.needs_spark else None
    opened = Journal(place.ledger(spark)).state.opened
    return json.loads(opened["definition"]) if opened.get("hash") == run["definition"] else None


def samples_of(pipeline: Pipeline, run: Mapping[str, JSON]) -> Sequence[Mapping[str, JSON]]:
    """Some of the rows that the run refused, masked; none where the DLQ cannot be read again."""
    if not run["nacked"]:
        return ()
    try:
        rows = pipeline.dead_letters(LOOKED_THROUGH)
    except WherryError:
        return ()
    return [row for row in rows if row["run"] == run["run"]][: MOST_SAMPLES + 1]


def _trends(pipeline: Pipeline, run: Mapping[str, JSON]) -> Sequence[Mapping[str, JSON]]:
    """How the rules of the run fared in it and in those before it."""
    from runners.quality import trends

    if not (run["report"] or {}).get("quality"):
        return ()
    newest = pipeline.runs(limit=NEWEST, report=True)
    return trends([each for each in newest if each["started_at"] <= run["started_at"]])


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(f"{folder} cannot be made: {error.strerror}.", hint="Name another folder:  --to DIR") from error


def _written(file: Path, content: str) -> Path:
    try:
        file.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise Refusal(f"{file} cannot be written: {error.strerror}.", hint="Name another file by --to.") from error
    return file
