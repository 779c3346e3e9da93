"""A pipeline of a server returns what the pipeline itself returns."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from origins.batch import Batch, Span
from origins.codec import decode
from runners.listeners.log_lines import make_facts
from runners.model.causes import Cause, Causes
from runners.model.errors import Owned, Refusal
from runners.model.events import BatchPlanned, BatchSettled, Event, Noticed, RunEnded, RunStarted, RunStopping
from runners.model.planned_batch import SettledCounts, StageCount
from runners.model.run_report import DestinationReport, Report, RunError
from runners.operations.audit.finding import Audit, Finding
from runners.operations.fix_preview import FixedRow, FixPreview
from runners.operations.history import PipelineHistory
from runners.operations.offsets import PipelineOffsets
from runners.operations.redo import RedoPreview
from runners.operations.refused_rows import PipelineRefusedRows
from runners.operations.trace import TracedRow
from runners.pipeline import Pipeline
from runners.running.backfill import Backfill
from runners.running.choice import Choice
from runners.running.fix import NO_FIX
from runners.running.replay import Replay
from runners.service.client import ServerProblem
from runners.service.messages import Happening
from runners.service.remote import (
    RemoteFolder,
    RemoteHistory,
    RemoteOffsets,
    RemotePipeline,
    RemoteRefusedRows,
    read_event,
)
from tests.runners.service.far import reach, write_folder, write_pipeline

AT = datetime(2026, 1, 31, 6, tzinfo=timezone.utc)
BATCH = Batch(
    pipeline="orders",
    origin="",
    lane="0",
    number=3,
    plan="p",
    run="r",
    span=Span(start=None, end=None, label="2 files"),
    schema="",
    time=AT,
)
CAUSES = Causes(found=(Cause(code="CAST", stage="cast", rows=2),), others=1)


def pass_on(value: Any) -> Any:
    """Return a value as it arrives over a network."""
    return json.loads(json.dumps(value))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `write_folder`. Tests copy it."""
    folder = tmp_path_factory.mktemp("written")
    write_folder(folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A folder of two pipelines."""
    return shutil.copytree(written, tmp_path / "pipelines")


@pytest.fixture
def there(folder: Path) -> Iterator[RemotePipeline]:
    """The pipeline `orders` of a server of the folder."""
    with reach(folder) as pipelines:
        yield pipelines.open_pipeline("orders")


@pytest.fixture
def here(folder: Path) -> Pipeline:
    """The same pipeline, from its definition."""
    return Pipeline.load(folder / "orders.yaml")


def test_a_look_returns_what_the_pipeline_returns(there: RemotePipeline, here: Pipeline) -> None:
    """The types are the same too."""
    some = Choice(code="PARSE", since=datetime(2026, 1, 1, tzinfo=timezone.utc))
    replay = Replay(choice=some, reason="again")
    assert there.history.list() == here.history.list()
    assert there.history.find("last") == pass_on(here.history.find("last"))
    assert there.history.quality() == here.history.quality()
    assert there.offsets.read() == replace(here.offsets.read(), lanes=pass_on(here.offsets.read().lanes))
    assert there.refused.list(2, choice=some, waiting=True) == here.refused.list(2, choice=some, waiting=True)
    assert there.refused.causes(some) == here.refused.causes(some)
    assert there.refused.count_waiting(some) == here.refused.count_waiting(some) == 2
    assert there.refused.limits() == here.refused.limits()
    assert there.refused.plan_replay(replay) == here.refused.plan_replay(replay)
    assert there.offsets.plan(batches=1).json() == pass_on(here.offsets.plan(batches=1).json())
    past = Backfill(again=True, start=1, end=AT.replace(year=2100), reason="again")
    assert there.plan_backfill(past).json() == pass_on(here.plan_backfill(past).json())


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (RemotePipeline, Pipeline),
        (RemoteRefusedRows, PipelineRefusedRows),
        (RemoteOffsets, PipelineOffsets),
        (RemoteHistory, PipelineHistory),
    ],
)
def test_a_method_over_a_server_takes_what_the_method_here_takes(there: type, here: type) -> None:
    """It may take less. Other public names are properties that a pipeline has too."""
    methods = {name: each for name, each in vars(there).items() if inspect.isfunction(each) and name[0] != "_"}
    taken = {name: {*inspect.signature(each).parameters} for name, each in methods.items()}
    known = {name: {*inspect.signature(getattr(here, name)).parameters} for name in methods}
    assert [name for name in taken if not taken[name] <= known[name]] == []
    properties = {name for name, each in vars(there).items() if isinstance(each, property)}
    assert properties <= {*dir(here), *here.__dataclass_fields__}  # type: ignore[attr-defined]


def test_a_run_over_a_server_reports_and_is_followed(there: RemotePipeline, here: Pipeline) -> None:
    """One new file waits. The listener gets the events of the run in their order."""
    events: list[Event] = []
    report = there.run(listeners=[events.append])
    assert (report.status, report.read, report.delivered) == ("succeeded", 1, {"orders": 1})
    assert report.run == here.history.list()[0]["run"]
    kinds = [type(each) for each in events]
    assert kinds[:2] == [RunStarted, BatchPlanned]
    assert [each.counts.read for each in events if isinstance(each, BatchSettled)] == [1]


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_stops_the_run_on_the_server(folder: Path, there: RemotePipeline, signals: int) -> None:
    """The first lets open batches finish, and the second leaves them to the next run."""
    write_pipeline(folder, "orders", rows={number: number for number in range(100, 400)})
    sent: list[int] = []

    def interrupt(event: Event) -> None:
        if isinstance(event, BatchSettled) and len(sent) < signals:
            sent.append(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    report = there.run(listeners=[interrupt])
    assert (report.status, report.reason) == ("stopped", "signal SIGINT")
    assert 0 < report.batches < 300


def test_a_move_is_not_made_if_it_would_do_something_else_now(there: RemotePipeline, here: Pipeline) -> None:
    """A run came between the question and the answer of a person."""
    move = there.offsets.plan(batches=1)
    here.run()
    before = here.offsets.read()
    with pytest.raises(ServerProblem, match="have changed in the meantime"):
        there.offsets.move(move, reason="wrong prices")
    assert here.offsets.read() == before


def test_no_more_rows_are_discarded_than_a_person_was_shown(there: RemotePipeline, here: Pipeline) -> None:
    """A preview discards nothing."""
    assert there.refused.count_waiting() == 3
    with pytest.raises(ServerProblem, match="expected 2 rows, found 3 rows"):
        there.refused.discard(reason="tests", expected=2)
    assert here.refused.count_waiting() == 3
    assert there.refused.discard(reason="tests", expected=3) == 3
    assert here.refused.count_waiting() == 0


def test_a_change_needs_a_reason(there: RemotePipeline) -> None:
    """The server is not asked."""
    with pytest.raises(Refusal, match="needs a reason"):
        there.resume(reason=" ")


def test_more_rows_than_a_server_lists_are_refused(there: RemotePipeline) -> None:
    """The hint names the option."""
    with pytest.raises(Refusal, match="at most 1,000 rows") as refused:
        there.refused.list(1_001)
    assert "--limit 1000" in refused.value.hint


def test_a_pipeline_that_runs_elsewhere_is_owned(there: RemotePipeline, here: Pipeline) -> None:
    """A command ends with 4, or skips it."""
    owned: list[str] = []

    def run_there(event: Event) -> None:
        if isinstance(event, BatchPlanned):
            with pytest.raises(Owned) as error:
                there.run()
            owned.append(error.value.code)

    assert here.run(listeners=[run_there]).status == "succeeded"
    assert owned == ["OWNED"]


def test_no_repr_shows_the_token(there: RemotePipeline) -> None:
    """A trace may show any of these."""
    token = there.client.token
    assert len(token) > 10
    assert not [each for each in (there, RemoteFolder(there.client), there.client) if token in repr(each)]


@pytest.mark.parametrize(
    "event",
    [
        RunStarted(pipeline="orders", run="r"),
        RunStopping(reason="by hand"),
        RunEnded(status="stopped", reason="by hand"),
        BatchPlanned(batch=BATCH),
        BatchSettled(
            batch=BATCH, counts=SettledCounts(read=5, nacked=1, delivered={"a": 4}), owed=("b",), seconds={"plan": 0.5}
        ),
    ],
)
def test_an_event_of_a_server_shows_the_same_as_one_here(event: Event) -> None:
    """Log lines and progress have the same facts."""
    facts = pass_on(make_facts(event))
    assert read_event(Happening(event=facts["event"], at=AT.isoformat(), pipeline="orders", facts=facts)) == event


def test_an_event_that_no_command_shows_is_left_out() -> None:
    """A server sends no text of a notice, and has events of its own."""
    notice = pass_on(make_facts(Noticed(origin="files", message="a notice")))
    for name, facts in ((notice["event"], notice), ("still_here", None), ("began", {"name": "orders"})):
        assert read_event(Happening(event=name, at=AT.isoformat(), facts=facts)) is None


def test_a_report_is_made_from_its_json() -> None:
    """Nothing that `--json` prints is lost."""
    error = RunError(cls="WindowTripped", code="WINDOW", message="too many", later=("more",), causes=CAUSES)
    report = Report(
        pipeline="orders",
        run="r",
        status="failed",
        causes=CAUSES,
        balanced="unknown",
        destinations={"a": DestinationReport(read=5, delivered=4)},
        stages=(StageCount(stage="cast", entered=5, left=4, nacked=1),),
        lanes={"0": {"offset": {"file": "a"}, "batches": 2}},
        notices=("a notice",),
        error=error,
        snapshot={"lane": "0", "rows": []},
    )
    assert Report.of(pass_on(report.json())) == report
    assert Report.of(pass_on(replace(report, error=None).json())) == replace(report, error=None)


def test_findings_of_an_audit_keep_their_remedy() -> None:
    """A command shows what a repair does with each."""
    finding = Finding(
        code="OWED", message="m", repair="do", lane="0", number=2, last=4, destination="a", remedy="finish"
    )
    audit = Audit(pipeline="orders", lanes={}, read=3, filtered=0, nacked=0, destinations={}, problems=[finding])
    (made,) = decode(Audit, pass_on(audit.json())).problems
    assert (made, made.id, made.remedy) == (finding, finding.id, "finish")


def test_previews_are_made_from_their_json() -> None:
    """That of a redo, and that of a replay without a fix."""
    redo = RedoPreview(
        file="a.json", read=3, leaving={"a": 2, "b": None}, conditions={"a": "id = 1"}, letters=1, unsure=["p/1"]
    )
    assert RedoPreview.of(pass_on(redo.json())) == redo
    row = TracedRow(row={"id": 1}, outcome="wanted", destinations=("a",), before={"id": 1}, after={"id": 2})
    fix = FixPreview(
        pipeline="orders",
        fix=NO_FIX,
        passing=1,
        filtered=0,
        refused=0,
        causes=CAUSES,
        destinations={"a": 1},
        rows=[FixedRow(id="p/1", row=row)],
        left={"gone": 2},
    )
    assert FixPreview.of(pass_on(fix.json())) == fix
