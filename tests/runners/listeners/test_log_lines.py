"""What a run writes to standard error without a terminal."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Literal

import pytest

from origins.batch import Batch, Span
from runners.command_line import cli
from runners.listeners.log_lines import LogLines, complain, configure_logs
from runners.listeners.standard_error import flush
from runners.model.events import (
    BatchPlanned,
    BatchSettled,
    Event,
    Noticed,
    RunEnded,
    RunStarted,
    RunStopping,
)
from runners.model.planned_batch import SettledCounts


@pytest.fixture(autouse=True)
def lines() -> Iterator[None]:
    """Install the command's handler. Restore text at the end."""
    cli.execute(["--version"])
    yield
    configure_logs("text")


def make_batch(number: int, label: str = "") -> Batch:
    """Return a batch of lane 0."""
    span = Span(start=None, end=number, label=label)
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return Batch(
        pipeline="p", run="r", origin="o", lane="0", number=number, plan=f"{number}", span=span, schema="", time=when
    )


def make_settled(number: int, **more: object) -> BatchSettled:
    """Return the event of a batch with 1,000 rows, one of which was refused."""
    counts = SettledCounts(read=1_000, nacked=1, delivered={"orders": 999})
    return BatchSettled(batch=make_batch(number), counts=counts, **more)  # type: ignore[arg-type]


def test_text_lines_show_changes_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Batches have no lines."""
    listener = LogLines("text")
    events: list[Event] = [RunStarted(pipeline="orders", run="7f"), BatchPlanned(batch=make_batch(1)), make_settled(1)]
    for event in [*events, Noticed(origin="files", message="two are empty")]:
        listener(event)
    listener(RunStopping(reason="signal SIGTERM"))
    flush()
    assert capsys.readouterr().err.splitlines() == [
        "orders: run 7f begins",
        "files: two are empty",
        "stopping: signal SIGTERM; a second signal cancels open batches",
    ]


def test_a_notice_that_was_shown_is_not_written_again(capsys: pytest.CaptureFixture[str]) -> None:
    """This is true of text. Written notices are recorded for the report that follows. JSON has every notice."""
    seen = {"two rows stay"}
    notices = [Noticed(origin="orders", message="two rows stay"), Noticed(origin="orders", message="one is late")]
    text, program = LogLines("text", shown=seen), LogLines("json", shown=seen)
    for notice in [*notices, *notices]:
        text(notice)
    flush()
    assert capsys.readouterr().err.splitlines() == ["orders: one is late"]
    assert seen == {"two rows stay", "orders: one is late"}
    for notice in notices:
        program(notice)
    flush()
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_json_lines_have_every_event_as_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Each object has the facts of its event. Secrets are hidden in free text, but not in names."""
    configure_logs("json")
    listener = LogLines("json", secrets={"hunter2": "${secret:KEY}"})
    for event in (
        RunStarted(pipeline="orders", run="7f"),
        BatchPlanned(batch=make_batch(1, "landing/hunter2.json")),
        make_settled(1, seconds={"write": 0.5}),
        Noticed(origin="orders", message="hunter2 is no folder"),
        RunEnded(status="succeeded", reason="hunter2 said so"),
    ):
        listener(event)
    complain("no room\nMake some.", code="LEDGER")
    logging.getLogger("wherry").warning("%d are late", 5)
    flush()
    began, planned, carried, noticed, ended, failed, late = map(json.loads, capsys.readouterr().err.splitlines())
    assert datetime.fromisoformat(began["at"]).tzinfo is not None
    assert (began["event"], began["run"], began["level"]) == ("run_started", "7f", "info")
    assert (planned["event"], planned["lane"], planned["number"]) == ("batch_planned", "0", 1)
    assert planned["of"] == "landing/hunter2.json"
    assert noticed["message"] == "orders: ${secret:KEY} is no folder"
    assert ended["reason"] == "${secret:KEY} said so"
    whose = [(each["pipeline"], each["run"]) for each in (began, planned, carried, ended)]
    assert whose == [("orders", "7f")] * 4
    assert (carried["lane"], carried["number"], carried["batch"]) == ("0", 1, "1")
    assert (carried["read"], carried["nacked"], carried["delivered"]) == (1_000, 1, {"orders": 999})
    assert carried["seconds"] == {"write": 0.5}
    assert (ended["event"], ended["status"]) == ("run_ended", "succeeded")
    assert (failed["level"], failed["code"], failed["message"]) == ("error", "LEDGER", "no room\nMake some.")
    assert (late["level"], late["message"]) == ("warning", "5 are late")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_log_line_is_always_one_line(capsys: pytest.CaptureFixture[str], log_format: Literal["text", "json"]) -> None:
    """Values cannot imitate another line, and cannot move the cursor of the terminal."""
    configure_logs(log_format)
    logging.getLogger("wherry").warning("%s", "a\x1b[2Jb\x9bc\rd\u202ee\norders: run 7f ended well")
    flush()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert set(said) & set("\x1b\x9b\r\u202e") == set()


def test_output_of_a_library_becomes_json(capsys: pytest.CaptureFixture[str]) -> None:
    """This includes tracebacks, logs of libraries and output of threads. Lines that are objects are unchanged."""
    configure_logs("json")
    try:
        raise ValueError("no\x1b[2J answer")
    except ValueError:
        traceback.print_exc()
    sys.stderr.write("half")
    complain("no room", code="LEDGER")
    flush()
    configure_logs("text")
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(isinstance(each, dict) and {"at", "level", "message"} <= set(each) for each in said)
    words = "\n".join(each["message"] for each in said)
    assert "ValueError: no\x1b[2J answer" in words
    assert "half" in words.splitlines()
    assert [each["code"] for each in said if "code" in each] == ["LEDGER"]
    sys.stderr.write("as before\n")
    assert capsys.readouterr().err == "as before\n"
