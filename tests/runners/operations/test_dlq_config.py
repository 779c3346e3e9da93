"""The DLQ's settings can be changed while a pipeline runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from destinations.dlq import Dlq
from destinations.memory import Memory
from origins.codec import encode
from origins.memory import Memory as Rows
from runners.command_line import cli
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.model.nack_window import DlqSettings
from runners.model.tasks import Declined, Explain, Prepare, Prepared
from runners.operations.dlq import change_settings, read_settings
from runners.pipeline import Pipeline
from runners.state.journal import Journal
from runners.state.location import StateLocation
from runners.state.progress import apply_entries
from tests.runners.engine.test_batch_machine import make_counts
from tests.runners.engine.test_dispatcher import Bench
from tests.runners.operations.test_dlq import acquire_journal


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline that is not running."""
    return Pipeline(
        name="orders",
        origin=Rows(name="origin", schema="id long"),
        destinations=[Memory(name="a")],
        state=str(tmp_path / "state"),
        dlq=Dlq(window=1000, threshold=50),
    )


def settle_with(bench: Bench, nacked: int) -> None:
    """Let the current batch refuse this many of its ten rows."""
    flight = bench.dispatcher.work.flights["0"]
    bench.dispatcher._decide("0", Declined(reason="a row is refused", way="straight"))
    assert isinstance(bench.dispatcher.work.flights["0"].task, Prepare)
    prepared = Prepared(
        path=flight.plan.batch.plan,
        counts=make_counts("orders", nacked=nacked),
        nacks=[*range(1, nacked + 1)],
    )
    bench.dispatcher._decide("0", prepared)


@pytest.mark.promise("DQ-13")
def test_a_changed_setting_applies_to_the_next_batch() -> None:
    """By the definition, one refused row would stop the run. After the ledger records the change, it does not."""
    tripping, going = Bench(), Bench()
    for bench in (tripping, going):
        bench.turn()
    going.ledger.append([Entry(kind="config", body={"dlq": {"window": 0}})], after=going.journal.state.seq)
    going.journal.refresh()
    for bench in (tripping, going):
        settle_with(bench, 1)
    assert isinstance(tripping.dispatcher.work.flights["0"].task, Explain)
    assert not isinstance(going.dispatcher.work.flights["0"].task, Explain)


def test_a_changed_setting_lasts_until_the_run_ends() -> None:
    """The next run uses the definition. A snapshot keeps the changed settings."""
    bench = Bench()
    config = Entry(kind="config", body={"dlq": {"window": 0}})
    bench.journal.record(config, Entry(kind="config", body={"dlq": {"threshold": 7}}))
    assert bench.journal.state.config == DlqSettings(window=0, threshold=7)
    kept = apply_entries([Entry(kind="snapshot", seq=9, body=encode(bench.journal.state))])
    assert kept.config == DlqSettings(window=0, threshold=7)
    bench.journal.acquire({"pipeline": "orders"})
    assert bench.journal.state.config == DlqSettings()
    bench.journal.record(config, Entry(kind="release", body={"status": "stopped"}))
    assert bench.journal.state.config == DlqSettings()


@pytest.mark.promise("DQ-13")
def test_settings_are_read_and_changed_from_another_process(pipeline: Pipeline) -> None:
    """The ledger records the change, the user and the reason. Settings that are not named stay the same."""
    owner = acquire_journal(pipeline)
    assert read_settings(pipeline) == {"window": 1000, "threshold": 50, "limits": {}, "changed": []}
    assert change_settings(pipeline, {"window": "0", "limits.rows": "5%"}, reason="known")["limits"] == {"rows": "5%"}
    change_settings(pipeline, {"limits.rows": ""}, reason="mended")
    settings = {"window": 0, "threshold": 50, "limits": {}}
    assert read_settings(pipeline) == {**settings, "changed": ["limits", "window"]}
    owner.refresh()
    assert owner.state.config == DlqSettings(window=0, limits={})
    (first, *_) = [entry for entry in StateLocation.of(pipeline).open_ledger(None).read() if entry.kind == "config"]
    assert (first.body["reason"], "@" in first.body["who"]) == ("known", True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"window": "many"}, "window: expected a whole number, got 'many'"),
        ({"window": "5"}, "50 refused rows never fit into a window of 5 rows"),
        ({"limits.rows": "200%"}, "limits.rows: expected off or a share"),
        ({"retain": "30d"}, "There is no setting 'retain'"),
    ],
)
def test_an_invalid_setting_is_refused(pipeline: Pipeline, settings: dict[str, str], said: str) -> None:
    """The ledger records nothing."""
    before = acquire_journal(pipeline).state.seq
    with pytest.raises(Refusal, match=said):
        change_settings(pipeline, settings, reason="a test")
    assert Journal(StateLocation.of(pipeline).open_ledger(None)).state.seq == before


def test_settings_change_only_while_the_pipeline_runs(pipeline: Pipeline) -> None:
    """A permanent change belongs into the definition. A change without a reason is refused too."""
    with pytest.raises(Refusal, match="orders is not running"):
        change_settings(pipeline, {"window": "0"}, reason="a test")
    with pytest.raises(Refusal, match="needs a reason"):
        change_settings(pipeline, {"window": "0"}, reason="")
    assert read_settings(pipeline)["window"] == 1000


def test_the_config_command_reads_and_changes_settings(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints text or JSON."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(
        'name: orders\norigin: {memory: {schema: "id long"}}\ndestinations: [{memory: {}}]\nstate: state\n'
        "dlq: {window: 9, threshold: 2, limits: {rows: 1% notify; 5%}}\n"
    )
    acquire_journal(pipeline)
    assert cli.execute(["dlq", "config", "orders.yaml", "window=0", "--reason", "known", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["window"] == 0
    assert cli.execute(["dlq", "config", "orders.yaml"]) == 0
    said = capsys.readouterr().out
    assert "rows 1% notify; 5%" in said
    assert "window, for this run" in said
    assert cli.execute(["dlq", "config", "orders.yaml", "window", "--reason", "known"]) == 2
    assert "expected NAME=VALUE, got 'window'" in capsys.readouterr().err
    assert cli.execute(["dlq", "config", "orders.yaml", "--reason", "known"]) == 2
    assert "--reason is for a change" in capsys.readouterr().err
    assert cli.execute(["dlq", "config", "orders.yaml", "--set", "dlq.limits.rows=many"]) == 2
    assert "dlq.limits.rows: expected off or a share" in capsys.readouterr().err
