"""A limit pauses a pipeline, the ledger keeps the pause, and a user ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from destinations.dlq import Dlq
from origins.codec import encode
from runners.command_line import cli
from runners.engine.batch_machine import DeliveryRules
from runners.model.entry import Entry
from runners.model.errors import LimitTripped, Paused
from runners.model.events import BatchCancelled, LimitExceeded
from runners.model.run_report import Report
from runners.model.spec import Hook, make_limit_facts
from runners.model.tasks import Declined, Explained, Prepared
from runners.operations.status import read_status
from runners.pipeline import Pipeline
from runners.running.run import PipelineRun
from runners.running.work import OpenBatches
from runners.state.journal import Journal
from runners.state.location import StateLocation
from runners.state.progress import apply_entries
from tests.runners.engine.test_batch_machine import make_counts
from tests.runners.engine.test_dispatcher import Bench
from tests.runners.operations.test_dlq import acquire_journal

YAML = (
    'name: orders\norigin: {memory: {schema: "id long"}}\ndestinations: [{memory: {}}]\nstate: state\n'
    'dlq: {window: 0, limits: {rows: "5% pause"}}\n'
)
PAUSE = Entry(kind="pause", lane="0", body={"number": 3, "limit": "rows", "reason": "9 of its 10 rows were refused"})


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline that a run paused before it ended."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(YAML)
    pipeline = Pipeline.load("orders.yaml")
    owner = acquire_journal(pipeline)
    owner.record(PAUSE)
    owner.record(Entry(kind="release", body=Report(pipeline="orders", run="r", status="failed").json()))
    return pipeline


def read_journal(pipeline: Pipeline) -> Journal:
    return Journal(StateLocation.of(pipeline).open_ledger(None))


def settle_with(bench: Bench, limits: dict[str, str], *lanes: str) -> None:
    """Let the current batches of these lanes refuse two of their ten rows each."""
    bench.dispatcher.rules = DeliveryRules(dlq=Dlq(window=0, limits=limits))
    bench.turn()
    steps = []
    for lane in lanes or ("0",):
        bench.dispatcher._decide(lane, Declined(reason="a row is refused", way="straight"))
        path = bench.dispatcher.work.flights[lane].plan.batch.plan
        refused = Prepared(path=path, counts=make_counts("orders", nacked=2), nacks=[1, 2])
        steps.append(bench.dispatcher._decide(lane, refused))
    bench.dispatcher._record(steps)


def test_a_run_that_exceeds_a_limit_records_the_pause_and_stops() -> None:
    """The batch is cancelled, and no other batch is planned."""
    bench = Bench()
    settle_with(bench, {"rows": "5% pause"})
    bench.dispatcher._record([bench.dispatcher._decide("0", Explained(nacks=()))])
    state = bench.journal.state
    assert state.paused is not None
    assert (state.paused.lane, state.paused.limit, state.open_plans) == ("0", "rows", ())
    assert [type(error) for error in bench.dispatcher.errors] == [LimitTripped]
    assert bench.dispatcher.stopping
    assert [type(each) for each in bench.events if isinstance(each, BatchCancelled | LimitExceeded)] == [BatchCancelled]


def test_two_lanes_that_exceed_a_limit_together_pause_the_pipeline_once() -> None:
    """Both batches end, and one `resume` is enough."""
    bench = Bench(lanes=2, runners=2)
    settle_with(bench, {"rows": "5% pause"}, "0", "1")
    bench.dispatcher._record([bench.dispatcher._decide(lane, Explained(nacks=())) for lane in ("1", "0")])
    state = bench.journal.state
    assert state.paused is not None
    assert (state.paused.lane, state.open_plans) == ("1", ())
    assert [type(error) for error in bench.dispatcher.errors] == [LimitTripped, LimitTripped]
    bench.journal.record(Entry(kind="resume", body={"who": "a@b", "reason": "mended"}))
    assert bench.journal.state.paused is None


def test_a_lane_finishes_its_batch_when_another_lane_pauses() -> None:
    """No batch stays open, and no new batch begins."""
    bench = Bench(lanes=2, runners=2)
    settle_with(bench, {"rows": "5% pause"}, "0")
    bench.dispatcher._record([bench.dispatcher._decide("0", Explained(nacks=()))])
    assert [plan.batch.lane for plan in bench.journal.state.open_plans] == ["1"]
    bench.turn("1")
    bench.turn()
    assert (bench.settled(), bench.journal.state.open_plans) == ([("1", 1)], ())
    assert [lane for lane, _ in bench.planned()] == ["0", "1"]
    assert bench.journal.state.paused is not None


def test_a_limit_that_only_notifies_does_not_stop_the_run() -> None:
    """The event has the figures, as attributes and as JSON."""
    bench = Bench()
    settle_with(bench, {"rows": "5% notify"})
    assert (bench.journal.state.paused, bench.dispatcher.errors, bench.dispatcher.stopping) == (None, [], "")
    (told,) = [each for each in bench.events if isinstance(each, LimitExceeded)]
    assert (told.limit, told.allowed, told.share, told.rows) == ("rows", "5%", 0.2, 2)
    facts = make_limit_facts(told, "now")
    assert (facts["event"], facts["lane"], facts["limit"], facts["share"]) == ("limit", "0", "rows", 0.2)
    assert json.loads(json.dumps(facts)) == facts
    wanted = {on: Hook(on=on, command="true").wants(facts) for on in ("limit", "refused", "failure")}
    assert wanted == {"limit": True, "refused": False, "failure": False}


def test_no_run_begins_until_a_user_resumes_the_pipeline(pipeline: Pipeline) -> None:
    """The refused run does not start Spark, and does not change the ledger."""
    before = read_journal(pipeline).state.seq
    with pytest.raises(Paused, match=r"batch 3 of lane 0, 9 of its 10 rows were refused\.") as caught:
        pipeline.run()
    assert 'wherry resume FILE --reason "…"' in caught.value.hint
    assert read_journal(pipeline).state.seq == before
    assert pipeline.resume(reason="mended")
    assert not pipeline.resume(reason="mended")
    assert read_journal(pipeline).state.paused is None
    (entry,) = [each for each in StateLocation.of(pipeline).open_ledger(None).read() if each.kind == "resume"]
    assert (entry.body["reason"], "@" in entry.body["who"]) == ("mended", True)


def test_a_paused_pipeline_can_finish_open_batches(pipeline: Pipeline) -> None:
    """A run that only finishes open batches acquires the ledger despite the pause."""
    run = PipelineRun(pipeline=pipeline, text="", hash="", work=OpenBatches())
    assert run.make_ownership().open_journal(None).state.paused


def test_a_pause_outlasts_runs_and_snapshots(pipeline: Pipeline) -> None:
    """A second pause does not replace the first."""
    journal = read_journal(pipeline)
    state = apply_entries([Entry(kind="snapshot", seq=journal.state.seq + 1, body=encode(journal.state))])
    assert state.paused == journal.state.paused
    again = Entry(kind="pause", lane="1", body={"number": 9, "limit": "CAST", "reason": "x"}, seq=state.seq + 1)
    assert apply_entries([again], state).paused == journal.state.paused
    assert apply_entries([again], state).stopping


def test_the_commands_show_and_end_a_pause(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """`status` shows the pause and the command that ends it. `run` refuses, and `resume` needs a reason."""
    assert cli.execute(["status", "orders.yaml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("orders: paused ")
    assert "by dlq.limits.rows: batch 3 of lane 0, 9 of its 10 rows were refused" in said
    assert 'wherry resume orders.yaml --reason "…"' in said
    assert cli.execute(["run", "orders.yaml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "PAUSED"
    assert cli.execute(["resume", "orders.yaml"]) == 2
    assert "the ledger keeps a reason" in capsys.readouterr().err
    assert cli.execute(["resume", "orders.yaml", "--reason", "mended", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["resumed"] is True
    assert cli.execute(["resume", "orders.yaml", "--reason", "mended"]) == 0
    assert capsys.readouterr().out == "orders is not paused.\n"
    assert json.loads(json.dumps(read_status(pipeline)))["paused"] is None
