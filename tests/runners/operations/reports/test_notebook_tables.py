"""A notebook shows lists and dicts about a pipeline as a terminal does, and code uses them. Without Spark."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from destinations.memory import Memory
from origins.memory import Memory as Rows
from runners.command_line import cli
from runners.operations.notebook_tables import MOST, RefusedRowList
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.state.run_history import RunHistory, RunRow
from tests.runners.operations.reports.test_notebook import Shown
from tests.runners.operations.test_dlq import acquire_journal, record_run
from tests.runners.running.letterbox import append_letters, make_letters


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline with two runs and two refused rows, of which one was discarded. A message looks like HTML."""
    made = Pipeline(
        name="orders",
        origin=Rows(name="origin", schema="id long"),
        destinations=[Memory(name="a")],
        state=str(tmp_path / "state"),
    )
    record_run(made, "a", "2026-01-01T12:00:00.000+00:00", read=1_200)
    record_run(made, "b", "2026-01-02T12:00:00.000+00:00", read=10)
    letters = make_letters(1, run="a", part="landing/<b>.json") + make_letters(
        2, run="b", message="<script>no</script>"
    )
    append_letters(tmp_path / "state" / "dlq", letters)
    made.refused.discard(Choice(ids=("p/1",)), reason="a test")
    record_history(tmp_path / "state" / "runs", "run <a>")
    return made


def record_history(folder: Path, run: str) -> None:
    history = RunHistory(folder, timedelta(days=9_999))
    history.write([RunRow.make_running("orders", run, "", datetime(2026, 1, 1, 12, tzinfo=timezone.utc))])


def read_cell(shown: object) -> str:
    """Return the text of the only element of what a notebook shows."""
    html: str = shown._repr_html_()  # type: ignore[attr-defined]
    assert html.startswith("<pre>")
    assert html.count("<") == 2
    return Shown(html).text


def test_values_are_text_and_never_html(pipeline: Pipeline) -> None:
    """Each refused row has its state, its stage, the reason and its file."""
    shown = read_cell(pipeline.refused.list())
    assert "cast: <script>no</script>" in shown
    assert "discarded  id p/1  file <b>.json" in shown
    assert "waiting  id p/2" in shown
    assert "run <a>" in read_cell(pipeline.history.list())


def test_a_notebook_shows_the_text_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands name their file, and some add a hint."""
    (tmp_path / "orders.yaml").write_text(
        'name: orders\norigin: {files: {path: x, format: json, schema: "id long"}}\n'
        "destinations: [{delta: {path: t}}]\n"
    )
    monkeypatch.chdir(tmp_path)
    made = Pipeline.load(tmp_path / "orders.yaml")
    record_run(made, "a", "2026-01-01T12:00:00.000+00:00", read=1_200)
    record_run(made, "b", "2026-01-02T12:00:00.000+00:00", read=10)
    append_letters(tmp_path / ".wherry/orders/dlq", make_letters(1, run="a") + make_letters(2, run="b"))
    record_history(tmp_path / ".wherry/orders/runs", "c")
    cells: dict[str, list[object]] = {
        "status": [made.status()],
        "runs": [made.history.list()],
        "offsets": [made.offsets.read()],
        "dlq show": [made.refused.list()],
        "dlq summary": [made.refused.causes()],
    }
    for typed, shown in cells.items():
        assert cli.execute([*typed.split(), "orders.yaml"]) == 0
        out = capsys.readouterr().out
        texts = [read_cell(each).replace("FILE", "orders.yaml") for each in shown]
        assert [text for text in texts if text not in out] == []
        assert min(map(len, texts)) > 20


def test_the_status_shows_a_run_under_way(pipeline: Pipeline) -> None:
    """It has the process of the run."""
    acquire_journal(pipeline, run="c")
    shown = read_cell(pipeline.status())
    assert shown.startswith("orders: running\n")
    assert f"process {os.getpid()}, since " in shown


def test_code_uses_them_as_lists_and_dicts(pipeline: Pipeline) -> None:
    """They are equal to plain ones, and become the same JSON."""
    for listed in (pipeline.refused.list(), pipeline.refused.causes(), pipeline.history.list()):
        assert isinstance(listed, list)
        assert listed == list(listed)
        assert json.loads(json.dumps(listed)) == [*listed]
    status = pipeline.status()
    assert isinstance(status, dict)
    assert status == dict(status)
    assert json.loads(json.dumps(status)) == {**status}


def test_an_empty_list_is_shown_as_a_sentence(tmp_path: Path) -> None:
    """A pipeline that never ran has nothing to show."""
    made = Pipeline(
        name="orders", origin=Rows(schema="id long"), destinations=[Memory()], state=str(tmp_path / "state")
    )
    assert read_cell(made.refused.list()) == read_cell(made.refused.causes()) == "The DLQ has no rows."
    assert read_cell(made.history.list()) == "No run matches."
    assert read_cell(made.offsets.read()) == "No batch was processed yet."
    assert "never run" in read_cell(made.status())


def test_a_long_list_shows_its_newest_rows(pipeline: Pipeline) -> None:
    """It counts all of them."""
    first, last = pipeline.refused.list()
    shown = read_cell(RefusedRowList([*[first] * MOST, last]))
    assert [shown.count("id p/1"), shown.count("id p/2")] == [MOST - 1, 1]
    assert shown.endswith("100 of 101 rows are shown.")
