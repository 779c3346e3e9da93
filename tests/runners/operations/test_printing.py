"""The text that commands print on a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from origins.batch import Json
from origins.errors import WherryError
from runners.model.causes import CauseCounter
from runners.model.errors import WindowTripped
from runners.model.planned_batch import StageCount
from runners.model.run_report import DestinationReport, Report, RunError
from runners.model.text import escape_html, format_sections, table
from runners.operations import printing, printing_state
from runners.operations.offsets import LaneMove, Lanes, OffsetMove
from runners.operations.preview import BatchPreview, Preview, SeenRow, StagePreview


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 60 columns."""
    monkeypatch.setenv("COLUMNS", "60")


def make_report(**more: object) -> Report:
    """A run that processed two batches."""
    counts = DestinationReport(read=1_200, delivered=1_195, filtered=2, nacked=3)
    facts: dict[str, object] = {
        "pipeline": "orders",
        "run": "r",
        "status": "succeeded",
        "batches": 2,
        "read": 1_200,
        "nacked": 3,
        "destinations": {"orders": counts},
        "seconds": 1.26,
    }
    return Report(**{**facts, **more})  # type: ignore[arg-type]


def test_a_report_shows_its_equation() -> None:
    """It has the rows read, delivered, filtered and refused for each destination, and the command for refused rows."""
    assert printing.format_report(make_report(), "orders.yaml").splitlines() == [
        "orders succeeded after 1.3 s: 2 batches.",
        "to      read   delivered  filtered  refused",
        "orders  1,200  1,195      2         3",
        "See the refused rows:  wherry dlq show orders.yaml",
    ]


def test_rows_that_stages_added_or_merged_have_a_column() -> None:
    """The column is shown only if a destination has such rows."""
    doubled = DestinationReport(read=3, changed=2, delivered=4, nacked=1)
    merged = DestinationReport(read=3, changed=-1, delivered=1, nacked=1)
    report = make_report(destinations={"a": doubled, "b": merged, "c": DestinationReport(read=3, delivered=3)})
    assert printing.format_report(report, "orders.yaml").splitlines()[1:5] == [
        "to  read  changed  delivered  filtered  refused",
        "a   3     +2       4          0         1",
        "b   3     -1       1          0         1",
        "c   3     +0       3          0         0",
    ]
    assert report.json()["destinations"]["b"]["changed"] == -1


@pytest.mark.parametrize(("lane", "shown"), [("0", ["orders", "latest"]), ("backfill-6c17/0", ["latest"])])
def test_a_destination_left_out_of_a_backfill_is_not_shown(lane: str, shown: list[str]) -> None:
    """Its equation would not hold. A destination that received no rows in a run is shown with zeros."""
    counts = {"orders": DestinationReport(), "latest": DestinationReport(read=1_200, delivered=1_200)}
    report = make_report(nacked=0, destinations=counts, lanes={lane: {"offset": 1, "batches": 2}})
    lines = printing.format_report(report, "orders.yaml").splitlines()
    assert [line.split()[0] for line in lines[2:]] == shown


def test_a_run_without_new_rows_is_no_failure() -> None:
    """The report states that there were no new rows."""
    said = printing.format_report(make_report(batches=0, seconds=123.4), "orders.yaml")
    assert said == "orders succeeded after 123 s: no new rows."


@pytest.mark.parametrize(
    ("left_open", "said"),
    [
        (0, "The next run continues:  wherry run orders.yaml"),
        (1, "The next run finishes 1 open batch first, then continues:  wherry run orders.yaml"),
        (2, "The next run finishes 2 open batches first, then continues:  wherry run orders.yaml"),
    ],
)
def test_a_stopped_run_shows_how_to_continue(left_open: int, said: str) -> None:
    """This is so even if it processed no batch. Open batches are named."""
    report = make_report(batches=0, status="stopped", left_open=left_open)
    assert printing.format_report(report, "orders.yaml").splitlines() == [
        "orders stopped after 1.3 s: no batch was processed.",
        said,
    ]


@pytest.mark.parametrize(
    ("balanced", "said"),
    [(False, "The counts do not balance."), ("unknown", "Some rows could not be counted."), (True, "")],
)
def test_a_report_shows_counts_that_do_not_balance(balanced: bool | str, said: str) -> None:
    """If they balance, nothing is printed about it."""
    lines = printing.format_report(make_report(balanced=balanced, nacked=0), "orders.yaml").splitlines()
    assert lines[3:] == [said] * bool(said)


def test_a_notice_that_was_shown_before_is_not_repeated() -> None:
    """A log line showed it with its origin, or the plan of a replay showed it without."""
    report = make_report(notices=("orders: two rows stay", "orders: one is late", "items: a file is empty"))
    lines = printing.format_report(report, "x", shown={"two rows stay", "orders: one is late"}).splitlines()
    assert [line for line in lines if line.startswith("note:")] == ["note: items: a file is empty"]


def test_a_failure_shows_its_message() -> None:
    """It also has the duration, the hint, and the number of finished batches."""
    error = RunError(cls="LedgerError", code="LEDGER", message="the disk is full.", hint="Make room.")
    report = make_report(status="failed", error=error)
    assert printing.format_failure(report).splitlines() == [
        "orders failed after 1.3 s: the disk is full.",
        "Make room.",
        "more         wherry explain LEDGER",
    ]
    assert printing.format_report(report, "orders.yaml").splitlines()[0] == "2 batches before the error:"
    assert (
        printing.format_report(make_report(status="failed", error=error, batches=0), "x") == "No batch was processed."
    )


AT = "2026-01-01T00:00:00.123+00:00"
FACTS: dict[str, Any] = {
    "pipeline": "orders",
    "state": "never_run",
    "owner": None,
    "differs": False,
    "stopping": "",
    "lanes": {},
    "open": [],
    "dlq": {"rows": None, "unreplayed": None, "fallback": 0},
    "last_run": None,
    "next": "wherry run orders.yaml",
}


def test_a_pipeline_that_never_ran_shows_the_command_to_type() -> None:
    """The status has nothing else."""
    assert printing.format_status(FACTS) == "orders: never run\n\nnext  wherry run orders.yaml"


@pytest.mark.parametrize(
    ("waiting", "said"),
    [
        (2, ["refused  3 rows in the DLQ; 2 wait", "next     wherry dlq show orders.yaml --waiting"]),
        (1, ["refused  3 rows in the DLQ; 1 waits", "next     wherry dlq show orders.yaml --waiting"]),
        (0, ["refused  3 rows in the DLQ; none waits", "next     wherry dlq show orders.yaml --waiting"]),
    ],
)
def test_a_next_command_is_named_once(waiting: int, said: list[str]) -> None:
    """The number of waiting rows of the DLQ is above it."""
    facts = {
        **FACTS,
        "dlq": {"rows": 3, "unreplayed": waiting, "fallback": 0},
        "next": "wherry dlq show orders.yaml --waiting",
    }
    assert printing.format_status(facts, "orders.yaml").splitlines()[2:] == said


def test_runs_that_share_a_pipeline_are_shown_with_their_lanes() -> None:
    """A run that was silent for longer than its lease is marked."""
    first = {"host": "a", "process": 7, "since": "noon", "heard": "one", "lanes": ["0", "2"], "lives": True}
    second = {**first, "process": 8, "lanes": ["1"], "lives": False}
    third = {**first, "process": 9, "lanes": []}
    said = printing.format_status({**FACTS, "state": "running", "owner": first, "owners": [first, second, third]})
    assert said.splitlines()[2:6] == [
        "run by  a, process 7, since noon: lanes 0, 2",
        "        a, process 8, since noon: lanes 1, not heard since",
        "        one",
        "        a, process 9, since noon: no lanes yet",
    ]


def test_a_status_has_a_line_for_each_fact() -> None:
    """It shows the owner, the last run, the progress of each lane, open batches and refused rows."""
    said = printing.format_status(
        {
            **FACTS,
            "state": "running",
            "owner": {"host": "box", "process": 7, "since": AT, "heard": "2026-01-01T00:01:00.123+00:00"},
            "stopping": "lunch",
            "lanes": {"0": {"offset": {"file": "a", "modified": 1795512234000}, "number": 3, "behind": "2 files"}},
            "open": [{"lane": "0", "number": 4, "label": "b.json", "since": AT}],
            "dlq": {"rows": 1_200, "unreplayed": 1_000, "fallback": 0},
            "last_run": {
                "status": "failed",
                "reason": "failed",
                "at": AT,
                "batches": 3,
                "read": 30,
                "error": {
                    "code": "WINDOW",
                    "message": "the window tripped\n  column amount: 'x'",
                    "hint": "see it  wherry preview FILE",
                },
            },
        },
        "orders.yaml",
    )
    assert said.splitlines()[2:] == [
        "run by    box, process 7, since 2026-01-01 00:00:00",
        "heard     2026-01-01 00:01:00",
        "stops     lunch; open batches are finished first",
        "last run  failed at 2026-01-01 00:00:00, 3 batches, 30 rows",
        "          read",
        "error     the window tripped",
        "            column amount: 'x'",
        "          see it  wherry preview orders.yaml",
        "          More:  wherry explain WINDOW",
        "progress  batch 3, read up to a, changed 2026-11-24",
        "          09:23:54, waiting: 2 files",
        "open      batch 4 (b.json) is being processed since",
        "          2026-01-01 00:00:00",
        "refused   1,200 rows in the DLQ; 1,000 wait",
        "          See:  wherry dlq show orders.yaml --waiting",
        "next      wherry run orders.yaml",
    ]


def test_offsets_are_shown_as_a_table() -> None:
    """Open batches are below it. Before the first run there is no table."""
    lanes = {"0": {"number": 3, "committed_at": AT, "offset": None, "epoch": 1}}
    open_batch = {"lane": "0", "number": 4, "label": ""}
    assert str(Lanes(pipeline="orders", lanes=lanes, open=[open_batch])).splitlines() == [
        "lane  batch  committed (UTC)      offset",
        "0     3      2026-01-01 00:00:00  the beginning",
        "batch 4 is open; the next run finishes it first",
    ]
    assert str(Lanes(pipeline="orders", lanes={}, open=[])) == "No batch was processed yet."


def test_a_move_shows_what_is_repeated_and_its_effect() -> None:
    """It is shown before anything is moved."""
    move = OffsetMove(
        lanes={"0": LaneMove(before=5, after=None, batches=2, rows=2_000)},
        destinations={"orders": "the rows will be there twice"},
    )
    assert printing.format_move(move).splitlines() == [
        "lane  from  to             batches again  rows again",
        "0     5     the beginning  2              2,000",
        "",
        "orders        the rows will be there twice",
        "refused rows  stay in the DLQ; a row that is refused again",
        "              is added to it again",
    ]
    unknown = OffsetMove(lanes={"0": LaneMove(before=500, after=250, batches=None, rows=None)})
    assert "0     500   250  not known      not known" in printing.format_move(unknown)
    assert printing.format_move(OffsetMove(lanes={})) == "There is nothing to move: no batch was processed yet."


def test_the_plan_of_a_folder_is_a_table_in_order_of_time() -> None:
    """Each pipeline has a line. Broken definitions are below the table, with the reason."""
    orders = {"pipeline": "orders", "next": ["2026-06-01T12:05:00+00:00"] * 3, "paused": None, "when": "every 5m"}
    prices = {"pipeline": "prices", "next": [], "paused": "a move", "when": "after each run of orders"}
    facts = {
        "scheduled": [orders, prices],
        "by_hand": {"odd": "odd.yaml"},
        "broken": {"bad.yaml": "bad.yaml: 1 problem\n  line 1"},
    }
    assert printing.format_schedule(facts).splitlines() == [
        "pipeline  next (UTC)               runs",
        "orders    Mon 2026-06-01 12:05:00  every 5m",
        "prices    paused: a move           after each run of orders",
        "odd                                manual:  wherry run odd.yaml",
        "",
        "bad.yaml is broken: 1 problem",
        "  line 1",
    ]
    assert printing.format_schedule({"scheduled": [], "by_hand": {}, "broken": {}}) == "No definition was found here."


def test_refused_rows_of_a_batch_are_one_table() -> None:
    """Below each row are its reason, state and source. Rows with other columns are another table of the batch."""
    row = {
        "id": "p/7",
        "part": "landing/a.csv",
        "nacked_at": "2026-01-01T00:00:00.123+00:00",
        "lane": "0",
        "number": 3,
        "stage": "cast",
        "destination": None,
        "message": "column amount: 'sieben' is no number",
        "row": {"name": "Jürgen"},
        "replayed": False,
        "discarded": False,
    }
    assert printing.format_dead_letters([row]).splitlines() == [
        "2026-01-01 00:00:00  lane 0, batch 3",
        "  name",
        "  Jürgen",
        "    cast: column amount: 'sieben' is no number",
        "    waiting  id p/7  file a.csv",
    ]
    decided = [{**row, "replayed": True}, {**row, "discarded": True}, {**row, "part": "", "first": "p/3"}]
    sources = [line.strip() for line in printing.format_dead_letters(decided).splitlines() if "id p/7" in line]
    assert sources == [
        "replayed  id p/7  file a.csv",
        "discarded  id p/7  file a.csv",
        "waiting  id p/7  first refused as p/3",
    ]
    assert "id p/7  partition orders/0" in printing.format_dead_letters([{**row, "part": "orders/0"}])
    assert printing.format_dead_letters([row, {**row, "stage": "require"}]).count("lane 0") == 1
    assert printing.format_dead_letters([row, {**row, "row": "{broken"}, row]).count("lane 0") == 1
    assert printing.format_dead_letters([row, {**row, "number": 4}]).count("lane 0") == 2
    assert printing.format_dead_letters([]) == "The DLQ has no rows."


def test_a_command_is_not_wrapped() -> None:
    """So it can be copied from a narrow terminal."""
    command = "wherry run orders.yaml --set dlq.window=0 --set dlq.threshold=1"
    assert f"  {command}" in format_sections([("x", [f"To let them pass in one run:  {command}"])]).splitlines()[-1]


def test_facts_for_programs_are_json_in_utf_8() -> None:
    """Umlauts are not escaped."""
    assert json.loads(printing.as_json({"a": "ü"})) == {"version": 1, "a": "ü"}
    assert "ü" in printing.as_json({"a": "ü"})


@pytest.mark.promise("CD-35")
def test_the_first_error_is_shown_first_and_later_errors_below() -> None:
    """This holds for the printed text, the text of the error, and JSON."""
    error = RunError.of(WherryError("the disk is full", hint="make room"), later=[OSError("and then\nthe net")])
    said = Report(pipeline="orders", run="r", status="failed", error=error)
    first, hint, *_, last = printing.format_failure(said).splitlines()
    assert (first.endswith("the disk is full"), hint, last) == (True, "make room", "later        and then")
    assert str(error) == "the disk is full\nmake room\nlater: and then"
    assert said.json()["error"]["later"] == ["and then"]


HOSTILE = "a\x1b[2Jb\x9b2Jc\rd\u202ee\nforged: all is well\x00\x7f\u2028"
"""Data with controls that clear a terminal, return to the start of a line, reverse text, or begin a line."""
LETTER = {
    "nacked_at": "2026-01-31T06:00:00",
    "lane": HOSTILE,
    "number": 1,
    "stage": HOSTILE,
    "destination": None,
    "replayed": False,
    "discarded": False,
    "message": HOSTILE,
    "row": {HOSTILE: HOSTILE},
    "code": HOSTILE,
    "id": HOSTILE,
    "part": HOSTILE,
}
_COUNTER = CauseCounter()
_COUNTER.add(LETTER, files=[HOSTILE])
_COUNTER.add({**LETTER, "message": f"column {HOSTILE}: '{HOSTILE}' is not an int"}, files=[HOSTILE])
CAUSE = {
    **LETTER,
    "rows": 1,
    "waiting": 1,
    "first": "2026",
    "last": "2026",
    "example": LETTER,
    "forms": _COUNTER.count().json(),
}
RUN = {
    "run": "r" * 9,
    "status": "failed",
    "started_at": "2026",
    "seconds": 1,
    "batches": 1,
    "read": 1,
    "nacked": 1,
    "error": HOSTILE,
    "report": {"snapshot": {"stage": HOSTILE, "of": HOSTILE, "number": 1, "lane": HOSTILE, "rows": [HOSTILE]}},
}


def format_preview() -> str:
    seen = SeenRow(outcome="refused", row={"a": HOSTILE}, code="X", message=HOSTILE)
    stage = StagePreview(counts=StageCount(stage="cast", entered=1, left=0, nacked=1), rows=(seen,))
    batch = BatchPreview(lane="0", number=1, label=HOSTILE, read=1, stages=(stage,), destinations={})
    return str(Preview(pipeline="orders", batches=(batch,)))


def format_failed() -> str:
    batch = SimpleNamespace(number=1, lane="0", span=SimpleNamespace(label=HOSTILE))
    nack: dict[str, Json] = {"stage": "cast", "message": HOSTILE, "row": {"a": HOSTILE}}
    tripped = WindowTripped(batch, place=1, window=1, threshold=1, nacks=[nack])  # type: ignore[arg-type]
    error = RunError(cls="X", code="WINDOW", message=tripped.message, later=(HOSTILE,))
    return printing.format_failure(make_report(status="failed", error=error))


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda: printing.format_dead_letters([LETTER]), id="dlq show"),
        pytest.param(lambda: printing_state.format_summary([CAUSE]), id="dlq summary"),
        pytest.param(lambda: printing.format_runs([RUN]), id="runs"),
        pytest.param(lambda: printing.format_run(RUN), id="runs RUN"),
        pytest.param(lambda: table(["a", "b"], [[HOSTILE, HOSTILE]]), id="a table"),
        pytest.param(lambda: printing.format_report(make_report(notices=(HOSTILE,)), "x.yaml"), id="a notice"),
        pytest.param(lambda: "\n".join(_COUNTER.count().describe()), id="causes"),
        pytest.param(format_failed, id="a failure"),
        pytest.param(format_preview, id="preview"),
    ],
)
def test_data_moves_no_cursor_and_begins_no_line(said: Callable[[], str]) -> None:
    """Control characters and marks of text direction are shown as escapes."""
    text = said()
    assert set(text) & set("\x1b\x9b\r\u202e\x00\x7f\u2028") == set()
    assert [line for line in text.split("\n") if line.startswith("forged")] == []


def test_pages_show_control_characters_as_escapes() -> None:
    """A mark of text direction works in a browser, too."""
    assert set(escape_html(HOSTILE)) & set("\x1b\x9b\r\u202e\x00\x7f\u2028") == set()
    assert escape_html("<b>\u202e") == "&lt;b&gt;\\u202e"


def test_control_characters_in_json_are_escaped() -> None:
    """The JSON may be printed on a terminal. It has the same values."""
    text = printing.as_json({"rows": [LETTER]})
    assert set(text) & set("\x1b\x9b\r\u202e\x00\x7f\u2028") == set()
    assert json.loads(text)["rows"] == [LETTER]
