"""The HTML page of a run: its content, and that it loads nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from runners.command_line import cli
from runners.model.causes import CauseCounter
from runners.operations.reports.report_page import render_page
from runners.state.run_history import RunHistory, Timeline
from tests.manual_clock import ManualClock
from tests.pace import measure_pace
from tests.runners.command_line.test_carrying import make_settled
from tests.runners.state.test_run_history import ORDERS, history

__all__ = ["history"]

REPORT: dict[str, Any] = {
    "batches": 12,
    "read": 1_000,
    "filtered": 20,
    "nacked": 5,
    "changed": 0,
    "balanced": True,
    "destinations": {
        "orders": {"filtered": 20, "nacked": 5, "delivered": 975, "owed": 0},
        "copy": {"filtered": 0, "nacked": 5, "delivered": 995, "owed": 1},
    },
    "stages": [
        {"stage": "cast", "in": 1_000, "filtered": 0, "nacked": 5, "out": 995},
        {"stage": "orders/filter", "in": 995, "filtered": 20, "nacked": 0, "out": 975},
    ],
    "spent": {"plan": 1.0, "read": 2.0, "write": 6.0, "dlq": 0.0, "ledger": 1.0},
    "lanes": {"0": {"batches": 12, "offset": {"file": "b.json"}}},
    "timeline": {
        "0": [
            {"start": 0.0, "end": 2.5, "batches": 5, "spent": {"plan": 0.5, "write": 2.0}},
            {"start": 5.0, "end": 10.0, "batches": 7, "spent": {"write": 4.0, "ledger": 1.0}},
        ]
    },
    "notices": [],
    "error": None,
}
RUN: dict[str, Any] = {
    "run": "abcdef0123456789",
    "pipeline": "orders",
    "status": "succeeded",
    "reason": "nothing left to do",
    "started_at": "2026-06-01T12:00:00.000+00:00",
    "seconds": 12.34,
    "host": "here",
    "definition": "0f0f",
}


SAMPLES: list[dict[str, Any]] = [
    {
        "stage": "cast",
        "destination": None,
        "message": "column amount: 'sieben' is not a decimal(10,2)",
        "row": {"id": 7, "email": "a***", "amount": "sieben"},
        "lane": "0",
        "number": 3,
    }
]


class Seen(HTMLParser):
    """The parts of a page that can be checked without a browser."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self.boxes: list[str] = []
        """The number and the text of each box."""
        self.boxed = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if "box" in (dict(attrs).get("class") or "").split():
            self.boxed = 2

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.boxed:
            self.boxed -= 1
            self.boxes.append(data)
        elif self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)
        elif self.open and self.open[-1] != "style":
            self.text.append(data)


def see_page(report: dict[str, Any] | None = None, known: Any = None, **run: Any) -> Seen:
    return Seen(render_page({**RUN, **run, "report": {**REPORT, **(report or {})}}, known))


def test_a_page_shows_where_every_row_went() -> None:
    """It has the counts of each destination, cause and stage, and whether they balance."""
    seen = see_page()
    assert ["orders", "1,000", "20", "5", "975", "0"] in seen.rows
    assert ["copy", "1,000", "0", "5", "995", "1"] in seen.rows
    assert list_flow(seen) == [
        ("1,000", "read"),
        ("5", "refused by cast"),
        ("995", "taken"),
        ("975", "delivered to orders; 20 filtered on the way"),
        ("995", "delivered to copy; 1 batch still owed"),
    ]
    assert ["cast", "1,000", "0", "5", "995"] in seen.rows
    assert ["0", "12", '{"file": "b.json"}'] in seen.rows
    assert "All counts balance." in seen.text
    assert "The counts do not balance." in see_page({"balanced": False}).text
    assert "Some rows could not be counted." in see_page({"balanced": "unknown"}).text


def list_flow(seen: Seen) -> list[tuple[str, str]]:
    """Return the number and text of each box of the flow, in order."""
    return list(zip(seen.boxes[::2], seen.boxes[1::2], strict=True))


def test_the_flow_names_rows_that_no_stage_counts() -> None:
    """These are rows that could not be read, and rows of batches that were finished after a crash."""
    one = {"orders": {"filtered": 30, "nacked": 9, "delivered": 971, "owed": 0}}
    stages = [
        {"stage": "orders/filter", "in": 9, "filtered": 20, "nacked": 0, "out": 9},
        {"stage": "cast", "in": 9, "filtered": 0, "nacked": 5, "out": 9},
    ]
    seen = see_page({"destinations": one, "stages": stages, "filtered": 30, "nacked": 9, "changed": 10})
    assert list_flow(seen)[1:] == [
        ("20", "filtered by orders/filter"),
        ("10", "filtered otherwise"),
        ("5", "refused by cast"),
        ("4", "refused otherwise"),
        ("10", "more after stages that make new rows"),
        ("971", "taken"),
        ("971", "delivered to orders"),
    ]


def test_every_lane_has_a_timeline() -> None:
    """Each part has its position in the run, and is divided by the time of each activity."""
    seen = see_page()
    tracks = [attrs for tag, attrs in seen.tags if tag == "div" and attrs.get("class") == "track"]
    assert [attrs["aria-label"] for attrs in tracks] == ["lane 0: 12 batches, 7.5 s of work"]
    styles = [str(attrs.get("style")) for tag, attrs in seen.tags if tag == "span" and attrs.get("style")]
    assert "left:0.00%;width:25.00%" in styles
    assert "left:50.00%;width:50.00%" in styles
    assert "width:80.00%;background:#1f9d6b" in styles
    assert "10.0 s" in seen.text


def test_a_page_shows_some_refused_rows() -> None:
    """They are shown as in the DLQ. If there are many, the page states how many more there are."""
    seen = Seen(render_page({**RUN, "report": REPORT}, None, SAMPLES))
    row = '{"id": 7, "email": "a***", "amount": "sieben"}'
    assert ["cast", "column amount: 'sieben' is not a decimal(10,2)", row, "lane 0, batch 3"] in seen.rows
    assert "and 1 more" in Seen(render_page({**RUN, "report": REPORT}, None, SAMPLES * 21)).text


def test_a_page_shows_the_causes_of_refused_rows() -> None:
    """The words are those of the command line. A report of an older version has no causes."""
    counter = CauseCounter()
    counter.add({"code": "CAST", "stage": "cast", "message": "column amount: '1,5' is not an int"}, 3, ["a.csv"])
    line = "CAST, cast: amount is not an int: 3 rows like '1,5' in a.csv"
    assert line in see_page({"causes": counter.count().json()}).text
    assert "Causes of refused rows" not in see_page().text


def test_a_page_of_a_failed_run_shows_its_last_rows() -> None:
    """These are the rows that the run kept."""
    kept = {"lane": "0", "number": 7, "of": "a.json", "stage": None, "rows": [{"id": 1}]}
    seen = see_page({"snapshot": kept, "error": {"code": "X", "message": "no", "hint": ""}}, status="failed")
    assert {"Rows of batch 7 of lane 0", '{"id": 1}'} <= set(seen.text)


def test_a_page_shows_where_the_time_went() -> None:
    """The width of each bar is its share of the time. A label has the same figures as text."""
    bars = [
        attrs
        for tag, attrs in see_page({"timeline": {}}).tags
        if tag == "span" and "width" in (attrs.get("style") or "")
    ]
    widths = [str(attrs["style"]).partition("%")[0] for attrs in bars]
    assert widths == ["width:10.00", "width:20.00", "width:60.00", "width:10.00"]
    (label,) = [attrs["aria-label"] for _, attrs in see_page({"timeline": {}}).tags if attrs.get("role") == "img"]
    assert label == "planning 1.0 s, reading 2.0 s, writing 6.0 s, ledger 1.0 s"


def test_a_page_shows_why_the_run_failed_and_the_hint() -> None:
    """It names the stage and the lane."""
    error = {"code": "WINDOW", "message": "tripped\n  here", "hint": "let it pass", "stage": "cast", "lane": "0"}
    seen = see_page({"error": error}, status="failed")
    assert {"tripped\n  here", "let it pass", "WINDOW stage cast, lane 0"} <= set(seen.text)


def test_a_page_of_a_run_without_an_end_has_no_counts() -> None:
    """It states whether the run is active or its process was killed."""
    seen = Seen(render_page({**RUN, "status": "running", "seconds": None, "reason": "", "report": None}))
    assert "The run has not ended: its row counts are not known yet." in seen.text
    assert seen.rows == []
    killed = Seen(render_page({**RUN, "status": "killed", "seconds": None, "reason": "", "report": None}))
    assert "The run's process was killed, so its row counts are not known." in killed.text


HOSTILE = "</style></pre><script>alert(1)</script><img src=x onerror=\"alert('&amp;')\">"


def make_hostile() -> dict[str, Any]:
    """A run in which every name is hostile."""
    report = {
        **REPORT,
        "destinations": {HOSTILE: REPORT["destinations"]["orders"]},
        "stages": [{**REPORT["stages"][0], "stage": HOSTILE}],
        "lanes": {HOSTILE: {"batches": 1, "offset": HOSTILE}},
        "timeline": {HOSTILE: REPORT["timeline"]["0"]},
        "notices": [HOSTILE],
        "error": {"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE, "stage": HOSTILE, "lane": HOSTILE},
        "snapshot": {"lane": HOSTILE, "number": 1, "of": HOSTILE, "stage": HOSTILE, "rows": [{HOSTILE: HOSTILE}]},
    }
    hostile = dict.fromkeys(("run", "pipeline", "status", "reason", "host", "definition"), HOSTILE)
    return {**RUN, **hostile, "report": report}


def make_timeline(*, lanes: int, batches: int) -> dict[str, Any]:
    """Return the timeline of a run with this many lanes, and this many batches in each."""
    clock = ManualClock()
    remembered = Timeline(clock)
    for _ in range(batches):
        clock.move(1.0)
        for lane in range(lanes):
            spent = {"plan": 0.1, "read": 0.2, "write": 0.5, "ledger": 0.1}
            remembered(replace(make_settled(read=10, lane=str(lane)), seconds=spent))
    return dict(remembered.json())


def test_names_with_html_are_shown_as_text() -> None:
    """They may be names of pipelines, stages, destinations or lanes, and text in an error or in the definition."""
    seen = Seen(render_page(make_hostile(), {"name": HOSTILE}, [{**SAMPLES[0], "stage": HOSTILE, "message": HOSTILE}]))
    names = {tag for tag, _ in seen.tags}
    assert names.isdisjoint({"script", "img", "link", "iframe", "object", "form"})
    assert not any(attribute.startswith("on") for _, attrs in seen.tags for attribute in attrs)
    assert seen.open == []
    assert [cell for row in seen.rows for cell in row].count(HOSTILE) == 6


def test_a_page_loads_nothing_from_the_network() -> None:
    """It has no address, and its content policy allows only its style."""
    text = render_page({**RUN, "report": REPORT}, {"name": "orders"})
    seen = Seen(text)
    assert not any({"src", "href", "action", "data"} & set(attrs) for _, attrs in seen.tags)
    assert "url(" not in text
    assert "@import" not in text
    policy = [attrs["content"] for _, attrs in seen.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_a_page_of_ten_thousand_lanes_stays_small() -> None:
    """It is smaller than 2 MiB, and made in less than a second on a quiet machine. Lanes that are not shown are
    counted.
    """
    lanes = {f"orders/{number}": {"batches": 1, "offset": {"file": "x" * 500}} for number in range(10_000)}
    began = time.process_time()
    text = render_page({**RUN, "report": {**REPORT, "lanes": lanes, "notices": ["n" * 500] * 100}}, {"name": "orders"})
    assert time.process_time() - began < measure_pace()
    assert len(text.encode()) < 2 << 20
    assert "and 9,800 more" in Seen(text).text


def test_the_report_command_writes_the_file_and_prints_its_name(
    history: RunHistory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reports the last run, or the given run."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(ORDERS)
    assert cli.execute(["report", "orders.yaml"]) == 0
    assert capsys.readouterr().out == "orders-d-run.html\n"
    assert ["orders", "1,000", "0", "3", "997", "0"] in Seen(Path("orders-d-run.html").read_text()).rows
    assert cli.execute(["report", "orders.yaml", "b", "--to", "b.html"]) == 0
    assert "it's <b>full</b>" in Seen(Path("b.html").read_text()).text
    assert cli.execute(["report", "orders.yaml", "x"]) == 2
    assert cli.execute(["report", "orders.yaml", "--to", "no/b.html"]) == 2
    assert "no/b.html cannot be written: No such file or directory." in capsys.readouterr().err
