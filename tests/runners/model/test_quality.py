"""Results of quality rules: in a batch, over a run, and from run to run."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from origins.batch import JSON, Batch, Span
from runners.command_line import cli
from runners.command_line.state_commands import format_trends
from runners.model.run_report import MOST_VALIDATIONS, Quality, Report, compute_trends
from runners.model.text import format_percent
from runners.operations.reports.report_page import render_plot, render_quality
from runners.state.run_history import RunHistory
from stages.expect import gx
from stages.expect.expect import Expect
from stages.expect.expectation import VERSION
from tests.runners.state.test_run_history import ORDERS, begin_row

RULES: list[dict[str, JSON]] = [
    {"expect_column_values_to_be_between": {"column": "a", "min_value": 0, "mostly": 0.9}},
    {"expect_table_row_count_to_equal": {"value": 10, "severity": "warning"}},
]


def make_findings(unexpected: int = 1, *, rows: int = 10, observed: int = 10) -> list[dict[str, JSON]]:
    """Return what both rules found in a batch with one missing value."""
    return [
        {
            "success": (rows - unexpected) / rows >= 0.9,
            "element_count": rows + 1,
            "missing_count": 1,
            "unexpected_count": unexpected,
        },
        {"success": observed == 10, "result": {"observed_value": observed}, "exception": None},
    ]


def make_batch(number: int = 1) -> Batch:
    return Batch(
        pipeline="orders",
        run="r1",
        origin="landing",
        lane="0",
        number=number,
        plan=f"p{number}",
        span=Span(start=None, end=1),
        schema="{}",
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def make_quality(*batches: list[dict[str, JSON]]) -> Quality:
    quality = Quality({"landing": {"rules": Expect(RULES)}})
    for number, each in enumerate(batches, 1):
        quality.add(make_batch(number), {"rules": each})
    return quality


def test_a_run_adds_up_the_results_of_its_batches() -> None:
    """For a rule about rows this is the share of rows. For a rule about batches it is the share of batches."""
    rows, batches = make_quality(make_findings(1), make_findings(3), make_findings(0, observed=9)).json()
    assert (rows["rows"], rows["unexpected"], rows["batches"], rows["failed"]) == (30, 4, 3, 1)
    assert rows["share"] == pytest.approx(26 / 30)
    assert (batches["rows"], batches["failed"], batches["severity"]) == (None, 1, "warning")
    assert batches["share"] == pytest.approx(2 / 3)
    assert rows["rule"] == "expect_column_values_to_be_between(a) min_value 0"


def test_rules_that_the_definition_no_longer_has_are_omitted() -> None:
    """A batch that an earlier run checked by other rules is not counted."""
    quality = Quality({"landing": {"rules": Expect(RULES[:1])}})
    quality.add(make_batch(), {"rules": make_findings(), "gone": make_findings()})
    assert (quality.json(), list(quality.validations)) == ([], [])


def test_the_last_batches_are_kept_whole() -> None:
    """The report keeps as many as it can hold."""
    kept = make_quality(*[make_findings()] * (MOST_VALIDATIONS + 5)).validations
    assert len(kept) == MOST_VALIDATIONS
    assert kept[-1]["meta"]["active_batch_definition"]["data_asset_name"] == "landing, lane 0, batch 25"


def test_a_validation_result_is_valid_for_great_expectations() -> None:
    """A class of Great Expectations reads it, and Data Docs render every expectation."""
    gx.load()
    from great_expectations.core.expectation_validation_result import expectationSuiteValidationResultSchema
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaPageView

    said = Expect(RULES).make_validation(
        make_findings(3), suite="rules", run="r1", batch="landing", at="2026-01-01T00:00:00+00:00"
    )
    said = json.loads(json.dumps(said))
    with gx.silence_logs():
        known = expectationSuiteValidationResultSchema.load(said)
        page = DefaultJinjaPageView().render(ValidationResultsPageRenderer().render(known))
    assert (known.success, known.statistics["successful_expectations"]) == (False, 1)
    assert known.results[0].result["unexpected_percent"] == 30.0
    assert "greater than or equal to" in re.sub(r"<[^>]*>|\s+", " ", page)
    assert "30%" in page


def test_the_format_has_the_installed_version() -> None:
    """The version that a report names is the installed version."""
    gx.load()
    from great_expectations import __version__

    assert __version__ == VERSION


def make_run(name: str, *batches: list[dict[str, JSON]]) -> dict[str, Any]:
    """Return a run as in the run history."""
    return {"run": name, "started_at": f"2026-01-{name}", "report": {"quality": make_quality(*batches).json()}}


def test_trends_list_the_runs_from_old_to_new() -> None:
    """A run without checks has no point in the line."""
    rows, batches = compute_trends(
        [
            make_run("03", make_findings(2)),
            {"run": "02", "started_at": "x", "report": None},
            make_run("01", make_findings(0)),
        ]
    )
    assert [(each["run"], each["share"]) for each in rows["runs"]] == [("01", 1), ("03", 0.8)]
    assert [each["share"] for each in batches["runs"]] == [1, 1]


def test_a_table_shows_the_share_of_each_rule_in_each_run() -> None:
    """A share below one is never shown as 100%. A run that did not check a rule has no share."""
    asked = [
        *compute_trends([make_run("02", make_findings(1, rows=99_999)), make_run("01", make_findings(0))]),
        *compute_trends([make_run("03", make_findings(0))]),
    ]
    head, runs, rule, shares, *_, late = format_trends(asked).splitlines()
    assert head.split()[:2] == ["stage", "rule,"]
    assert runs.split() == ["01", "02", "03"]
    assert rule.split()[:2] == ["rules", "expect_column_values_to_be_between(a)"]
    assert shares.split() == ["100%", "99.99%", "-"]
    assert [shares.index("99"), late.index("100%")] == [runs.index("02"), runs.index("03")]
    assert format_percent({"share": None}) == "-"
    assert "No run has checked expectations yet" in format_trends([])


def test_a_report_plots_the_share_of_each_rule() -> None:
    """The plot is a line from 0 to 100%, with its values as a label for screen readers. One run has no line."""
    shared = compute_trends([make_run("02", make_findings(5)), make_run("01", make_findings(0))])
    (section,) = render_quality({"quality": make_quality(make_findings(5)).json()}, shared)
    assert "<h2>Quality</h2>" in section
    assert section.count("<polyline") == 2
    assert 'aria-label="expect_column_values_to_be_between(a) min_value 0: 100%, 50.00%"' in section
    assert 'points="3.0,3.0 157.0,14.0"' in section
    assert render_plot("rule", shared[0]["runs"][:1]) == ""
    assert list(render_quality({}, ())) == []


def test_a_rule_with_markup_is_shown_as_text() -> None:
    """A regular expression may contain markup."""
    drawn = render_plot('"><script>', [{"share": 1.0}, {"share": 0.5}])
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn


def test_the_command_reads_the_run_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lists the runs from old to new. With an empty history it reports what is missing."""
    (tmp_path / "orders.yaml").write_text(ORDERS)
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["quality", "orders.yaml"]) == 0
    assert "No run has checked expectations yet" in capsys.readouterr().out
    runs = RunHistory(tmp_path / ".wherry" / "orders" / "runs", timedelta(days=90))
    for minutes, name, unexpected in ((0, "aaa", 0), (1, "bbb", 5)):
        row = begin_row(name, minutes=minutes)
        facts = {"reason": "", "error": None, "quality": make_quality(make_findings(unexpected)).json()}
        runs.write([row.end(Report(pipeline="orders", run=name, status="succeeded"), facts, row.started_at)])
    assert cli.execute(["quality", "orders.yaml", "--json"]) == 0
    rows, _ = json.loads(capsys.readouterr().out)["rules"]
    assert [(each["run"], each["share"]) for each in rows["runs"]] == [("aaa", 1), ("bbb", 0.5)]
    assert cli.execute(["quality", "orders.yaml", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert "bbb" in shown
    assert "aaa" not in shown
