"""A notebook shows lists and dicts about a pipeline as tables, and code uses them as before. Without Spark."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from destinations.memory import Memory
from origins.memory import Memory as Rows
from runners.operations.notebook_tables import MOST, PipelineStatus, RefusedRowList
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.state.run_history import RunHistory, RunRow
from tests.runners.operations.dlq.test_discard import acquire_journal, record_run
from tests.runners.operations.reports.test_notebook import Shown
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
    made.discard_dead_letters(Choice(ids=("p/1",)), reason="a test")
    history = RunHistory(tmp_path / "state" / "runs", timedelta(days=9_999))
    history.write([RunRow.make_running("orders", "run <a>", "", datetime(2026, 1, 1, 12, tzinfo=timezone.utc))])
    return made


def test_refused_rows_are_shown_as_a_table(pipeline: Pipeline) -> None:
    """Each line has the state, the stage, the reason and the row. Values are text, and never HTML."""
    shown = Shown(pipeline.dead_letters()._repr_html_())
    assert shown.rows == [
        ["state", "refused (UTC)", "by", "code", "reason", "row", "from", "id"],
        ["discarded", "2026-01-01 12:01:00", "cast", "CAST", "no", '{"id": 7}', "file <b>.json", "p/1"],
        [
            "waiting",
            "2026-01-01 12:02:00",
            "cast",
            "CAST",
            "<script>no</script>",
            '{"id": 7}',
            "batch 1 of lane 0",
            "p/2",
        ],
    ]


def test_causes_are_shown_as_a_table(pipeline: Pipeline) -> None:
    """Each line has the rows, the waiting rows, the time and an example."""
    shown = Shown(pipeline.dead_letter_causes()._repr_html_())
    assert shown.rows[1:] == [
        ["CAST", "cast", "2", "1", "2026-01-01 12:01:00", "2026-01-01 12:02:00", "<script>no</script>"]
    ]


def test_runs_are_shown_as_a_table(pipeline: Pipeline) -> None:
    """A run that has no end has no counts."""
    shown = Shown(pipeline.runs()._repr_html_())
    assert shown.rows == [
        ["status", "run", "began (UTC)", "seconds", "batches", "read", "filtered", "refused", "error"],
        ["killed", "run <a>", "2026-01-01 12:00:00", "", "", "", "", "", ""],
    ]


def test_the_status_is_shown_as_a_table_of_facts(pipeline: Pipeline) -> None:
    """It has the same facts as the command `wherry status`."""
    shown = Shown(pipeline.status()._repr_html_())
    facts = dict(shown.rows[1:])
    assert shown.rows[0] == ["", "orders"]
    assert (facts["state"], facts["next"]) == ("idle", "wherry dlq show FILE --waiting")
    assert facts["refused rows"] == "2 rows in the DLQ, 1 of them waiting"
    assert facts["lane 0"].startswith("batch 2, up to ")


def test_the_status_shows_a_run_under_way(pipeline: Pipeline) -> None:
    """It has the process of the run."""
    acquire_journal(pipeline, run="c")
    facts = dict(Shown(pipeline.status()._repr_html_()).rows[1:])
    assert facts["state"] == "running"
    assert f"process {os.getpid()}, since " in facts["run by"]


def test_the_status_shows_what_a_definition_leaves_out_and_what_a_stop_does(pipeline: Pipeline) -> None:
    """The command shows the same."""
    more = {"left_out": {"files": ["extra"]}, "removed": ["old"], "stopping": "by ann", "forced": True}
    facts = dict(Shown(PipelineStatus({**pipeline.status(), **more})._repr_html_()).rows[1:])
    assert facts["left out"] == "extra of files, not in the schema"
    assert facts["removed"] == "old: the next run delivers nothing to it; its rows stay"
    assert facts["stops"] == "by ann; open batches are cancelled"


def test_code_uses_them_as_lists_and_dicts(pipeline: Pipeline) -> None:
    """They are equal to plain ones, and become the same JSON."""
    for listed in (pipeline.dead_letters(), pipeline.dead_letter_causes(), pipeline.runs()):
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
    assert Shown(made.dead_letters()._repr_html_()).text == "The DLQ has no such row."
    assert Shown(made.dead_letter_causes()._repr_html_()).text == "The DLQ has no such row."
    assert Shown(made.runs()._repr_html_()).text == "No run matches."
    assert "never run" in Shown(made.status()._repr_html_()).text


def test_a_long_list_shows_its_newest_rows(pipeline: Pipeline) -> None:
    """It counts all of them."""
    first, last = pipeline.dead_letters()
    shown = Shown(RefusedRowList([*[first] * MOST, last])._repr_html_())
    assert [len(shown.rows), shown.rows[-1][-1]] == [MOST + 1, "p/2"]
    assert "100 of 101 refused rows are shown." in shown.text
