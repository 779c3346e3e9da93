"""What a notebook shows of reports, previews and lanes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from runners.model.planned_batch import StageCount
from runners.model.run_report import DestinationReport, Report, RunError
from runners.operations.audit.finding import Audit
from runners.operations.offsets import Lanes
from runners.operations.preview import BatchPreview, Preview, SeenRow, StagePreview
from runners.operations.repair import RepairResult
from runners.operations.reports.report_page import render_report_cell
from tests.runners.command_line.test_quick_commands import DEFINITION


class Shown(HTMLParser):
    """The rows of all tables, and the text. An element that is not closed fails the test."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data


def test_a_report_is_shown_as_its_page() -> None:
    """The equation of each destination is shown as a flow and as a table."""
    counts = DestinationReport(read=1_200, delivered=1_195, filtered=2, nacked=3)
    shown = Shown(
        render_report_cell(
            Report(pipeline="orders", run="r", status="succeeded", batches=2, read=1_200, destinations={"a<b": counts})
        )
    )
    assert ["a<b", "1,200", "2", "3", "1,195", "0"] in shown.rows
    assert "orders: succeeded" in shown.text
    assert "1,195delivered to a<b" in shown.text


def test_a_report_of_a_failed_run_shows_the_reason() -> None:
    """It has the error's message, in which angle brackets are text. It also states that the counts do not balance."""
    error = RunError(cls="X", code="X", message="no <array>", hint="Make one.")
    shown = Shown(render_report_cell(Report(pipeline="orders", run="r", status="failed", error=error, balanced=False)))
    assert "no <array>" in shown.text
    assert "Make one." in shown.text
    assert "do not balance" in shown.text
    assert shown.rows == []


def test_a_report_shows_refused_rows_and_the_definition() -> None:
    """The page is made only when the report is shown."""
    refused = {"stage": "cast", "message": "no <number>", "row": {"id": 7}, "lane": "0", "number": 3}
    show = partial(
        render_report_cell, definition_hash="abc123", definition={"name": "orders", "mode": "<b>"}, samples=[refused]
    )
    report = Report(pipeline="orders", run="r", status="succeeded", batches=1, read=1, nacked=1, html=show)
    shown = Shown(report._repr_html_() or "")
    assert ["cast", "no <number>", '{"id": 7}', "lane 0, batch 3"] in shown.rows
    assert "abc123" in shown.text
    assert '"mode": "<b>"' in shown.text


def test_python_shows_a_result_in_one_line() -> None:
    """This is so for a report, a preview, an audit, a repair and lanes."""
    counts = DestinationReport(read=120, delivered=118, filtered=1, nacked=1)
    facts: dict[str, Any] = {"pipeline": "orders", "run": "r", "batches": 3, "read": 120, "filtered": 1, "nacked": 1}
    report = Report(**facts, status="succeeded", destinations={"table": counts}, notices=("n" * 500,))
    told = "3 batches, 120 rows read, 118 delivered to table, 1 filtered, 1 refused"
    assert repr(report) == f"<Report orders: succeeded, {told}>"
    error = RunError(cls="X", code="WINDOW", message="m" * 500)
    assert repr(replace(report, status="failed", error=error)) == f"<Report orders: failed, {told}, WINDOW>"
    batch = BatchPreview(lane="0", number=7, label="a", read=2, stages=(), destinations={})
    assert repr(Preview(pipeline="orders", batches=(batch,))) == "<Preview orders: batch 7 of lane 0, 2 rows>"
    assert repr(Preview(pipeline="orders", batches=())) == "<Preview orders: no rows wait>"
    audit = Audit(pipeline="orders", lanes={}, read=120, filtered=1, nacked=1, destinations={}, problems=[])
    assert repr(audit) == "<Audit orders: balances, 120 rows read>"
    done = RepairResult(done=["a"], audit=audit)
    assert repr(done) == f"<RepairResult orders: 1 done, 0 not done, 0 accepted, {audit!r}>"
    assert repr(Lanes(pipeline="orders", lanes={"0": {}}, open=[])) == "<Lanes orders: 1 lane, 0 batches open>"


def test_python_shows_a_pipeline_in_one_line(tmp_path: Path) -> None:
    """The line has the origin, the number of stages, and the destination."""
    from runners.pipeline import Pipeline

    (tmp_path / "orders.yaml").write_text(DEFINITION)
    assert re.fullmatch(r"<Pipeline orders: \w+ → \d stages? → \w+>", repr(Pipeline.load(tmp_path / "orders.yaml")))


def test_a_preview_is_shown_as_its_text() -> None:
    """Rows are whole. A refused row has its reason."""
    long = "n" * 300
    rows = (
        SeenRow(outcome="kept", row={"id": 1, "note": f"<script>{long}"}),
        SeenRow(outcome="refused", row={"id": None, "other": [2]}, code="CAST", message="no number"),
    )
    stage = StagePreview(counts=StageCount(stage="cast", entered=2, left=1, nacked=1), rows=rows)
    batch = BatchPreview(lane="0", number=7, label="a&b.json", read=2, stages=(stage,), destinations={"orders": 1})
    preview = Preview(pipeline="orders", batches=(batch,))
    shown = Shown(preview._repr_html_()).text
    assert shown.splitlines()[0] == str(preview).splitlines()[0]
    assert "lane 0 (a&b.json)" in shown
    assert f"<script>{long}" in shown
    assert "no number" in shown
    empty = Preview(pipeline="orders", batches=())
    assert Shown(empty._repr_html_()).text == str(empty)


def test_lanes_are_shown_as_their_text() -> None:
    """Open batches are below the table."""
    lane = {"offset": {"file": "a"}, "number": 3, "epoch": 1, "committed_at": None}
    lanes = Lanes(pipeline="orders", lanes={"0": lane}, open=[{"lane": "0", "number": 4, "label": ""}])
    assert Shown(lanes._repr_html_()).text == str(lanes)
    assert "batch 4 is open; the next run finishes it first" in str(lanes)
    two = Lanes(pipeline="orders", lanes={"0": lane, "1": lane}, open=lanes.open)
    assert "batch 4 of lane 0 is open" in str(two)


def test_a_pipeline_that_never_ran_has_no_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the lanes creates no state."""
    from runners.pipeline import Pipeline

    (tmp_path / "orders.yaml").write_text(DEFINITION)
    lanes = Pipeline.load(tmp_path / "orders.yaml").offsets.read()
    assert (str(lanes), lanes.json()) == ("No batch was processed yet.", {"lanes": {}, "open": []})
    assert [file.name for file in tmp_path.iterdir()] == ["orders.yaml"]
