"""`wherry schedule` without Spark: plans, pauses, signals, and examples for other schedulers."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest

import destinations
import origins
import stages
from runners.command_line import cli
from runners.command_line.commands import wherry
from runners.command_line.help_sections import GivenValues
from runners.definitions.definition import Definition, DefinitionsFolder, load
from runners.definitions.kinds import get_our_kinds
from runners.listeners.standard_error import flush
from runners.model.events import BatchPlanned, Listener
from runners.schedules.run_marks import RunMarks
from runners.schedules.scheduler import Carrier, RunOutcome, Stop
from tests.pages import GUIDES, list_blocks
from tests.runners.command_line.test_carrying import make_batch
from tests.runners.engine.toys import TOYS

BODY = "origin: {folder: {path: landing}}\ndestinations: [{table: {table: main.orders}}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with two scheduled definitions and one without a schedule."""
    for package, table in ((origins, TOYS.origins), (stages, TOYS.stages), (destinations, TOYS.destinations)):
        monkeypatch.setattr(package, "KINDS", table, raising=False)
    get_our_kinds.cache_clear()
    schedules = {"orders": "schedule: {every: 5m}", "prices": "schedule: {after: orders}", "odd": ""}
    for name, schedule in schedules.items():
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n{BODY}{schedule}\n")
    yield tmp_path
    get_our_kinds.cache_clear()


def list_planned(folder: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert cli.execute(["schedule", str(folder), "--plan", "--json"]) == code
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def parse_command(command: str, words: list[str]) -> dict[str, Any]:
    """Return the parameters that a command gets from these words. Raise for unknown words."""
    above = click.Context(wherry, info_name="wherry", **wherry.context_settings)
    return wherry.commands[command].make_context(command, words, parent=above).params


def test_a_plan_shows_what_runs_when(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan writes nothing."""
    before = datetime.now(timezone.utc)
    facts = list_planned(folder, capsys)
    orders, prices = facts["scheduled"]
    due = [datetime.fromisoformat(moment) for moment in orders["next"]]
    assert (orders["pipeline"], orders["file"], orders["paused"]) == ("orders", "orders.yaml", None)
    assert before < due[0] <= before + timedelta(minutes=5, seconds=60)
    assert due == [due[0] + number * timedelta(minutes=5) for number in range(3)]
    assert (prices["pipeline"], prices["next"]) == ("prices", [])
    assert "after each run of orders that succeeded" in prices["when"]
    assert facts["by_hand"] == {"odd": "odd.yaml"}
    assert not (folder / ".wherry").exists()


def test_a_plan_shows_the_group(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline without a group has none."""
    with (folder / "orders.yaml").open("a") as file:
        file.write("run: {group: warehouse}\n")
    orders, prices = list_planned(folder, capsys)["scheduled"]
    assert (orders["group"], prices["group"]) == ("warehouse", None)
    assert orders["when"] == "every 5m, in the group warehouse"


@pytest.mark.parametrize(
    "words",
    [
        ["--group", "warehouse"],
        ["--group", "=2"],
        ["--group", "warehouse="],
        ["--group", "warehouse=0"],
        ["--group", "warehouse=-1"],
        ["--group", "warehouse=two"],
        ["--group", "warehouse=2", "--group", "warehouse=3"],
    ],
)
def test_a_limit_without_a_number_from_1_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Nothing begins. The message says what was expected."""
    assert cli.execute(["schedule", str(folder), *words]) == 2
    assert re.search("--group.*expected", capsys.readouterr().err)
    assert not (folder / ".wherry").exists()


def test_a_plan_with_a_broken_definition_exits_with_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So a check before an installation notices the problem."""
    (folder / "prices.yaml").write_text(f"name: prices\n{BODY}schedule: {{after: order}}\n")
    facts = list_planned(folder, capsys, code=2)
    assert facts["broken"] == {
        "prices.yaml": "schedule.after: there is no pipeline 'order' here; did you mean 'orders'?"
    }
    assert cli.execute(["schedule", str(folder), "--plan"]) == 2
    said = capsys.readouterr().out
    assert "prices.yaml is broken: schedule.after: there is no pipeline 'order' here" in said
    assert re.search(r"orders    \w{3} \d{4}-\d\d-\d\d \d\d:\d\d:00  every 5m", said)
    assert "odd" in said


def test_a_plan_needs_no_secret(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It needs other values, which the command line gives."""
    (folder / "orders.yaml").write_text(
        'name: orders\norigin: {folder: {path: landing}}\nspark: {conf: {spark.key: "${secret:NO_SUCH_SECRET}"}}\n'
        'destinations: [{table: {table: main.orders}}]\nschedule: {every: "${STEP}"}\n'
    )
    assert cli.execute(["schedule", str(folder), "--plan", "--var", "STEP=7m"]) == 0
    assert "every 7m" in capsys.readouterr().out


def test_a_scheduler_needs_the_secrets(folder: Path) -> None:
    """A definition whose secret is missing is broken. Other definitions are not."""
    (folder / "orders.yaml").write_text(
        'name: orders\norigin: {folder: {path: landing, options: {key: "${secret:NO_SUCH_SECRET}"}}}\n'
        "destinations: [{table: {table: main.orders}}]\nschedule: {every: 5m}\n"
    )
    missing = DefinitionsFolder(path=folder, load=load).open()["orders.yaml"]
    assert isinstance(missing, str)
    assert "NO_SUCH_SECRET" in missing
    given = DefinitionsFolder(path=folder, load=partial(load, secrets={"NO_SUCH_SECRET": "hunter2"})).open()
    assert [each for each in given.values() if isinstance(each, str)] == []
    values = parse_command("schedule", [str(folder), "--secrets", "s.yaml"])["values"]
    assert values == GivenValues(secret_file=Path("s.yaml"))


def test_a_pause_and_its_end_are_stored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan shows the pause with its reason."""
    assert cli.execute(["schedule", str(folder), "--pause", "orders", "--reason", "the disk moves"]) == 0
    assert capsys.readouterr().out == "orders is paused: the disk moves.\n"
    orders = list_planned(folder, capsys)["scheduled"][0]
    assert (orders["paused"], orders["next"]) == ("the disk moves", [])
    assert cli.execute(["schedule", str(folder), "--resume", "orders"]) == 0
    assert capsys.readouterr().out == "orders is scheduled again.\n"
    mark = RunMarks(folder / ".wherry" / "schedule").get("orders")
    assert mark is not None
    assert mark.paused is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pause", "order"], "No pipeline 'order' is scheduled in"),
        (["--resume", "odd"], "No pipeline 'odd' is scheduled in"),
    ],
)
def test_only_a_scheduled_pipeline_can_be_paused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """A misspelled name is refused."""
    assert cli.execute(["schedule", str(folder), *words]) == 2
    assert capsys.readouterr().err.startswith(said)
    assert not (folder / ".wherry").exists()


def test_a_missing_directory_exits_with_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark is not started."""
    assert cli.execute(["schedule", str(folder / "nowhere")]) == 2
    assert capsys.readouterr().err.startswith("There is no directory")


@pytest.mark.parametrize(
    ("signals", "gone", "code"),
    [([signal.SIGTERM], False, 0), ([signal.SIGINT], False, 0), ([signal.SIGTERM] * 2, False, 3), ([], True, 1)],
)
def test_a_signal_ends_the_scheduler(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    signals: list[signal.Signals],
    gone: bool,
    code: int,
) -> None:
    """The first signal lets active runs finish, and the second cancels them. If Spark is gone, the scheduler ends
    itself.
    """
    RunMarks(folder / ".wherry" / "schedule").get_or_make("orders", datetime.now(timezone.utc) - timedelta(hours=1))
    (folder / "broken.yaml").write_text("name: [")
    asked: list[tuple[str, bool]] = []
    left = list(signals)

    def carry(definition: Definition, stoppable: Callable[[Stop], None]) -> RunOutcome:
        stopped = threading.Semaphore(0)

        def stop(reason: str, force: bool) -> None:
            asked.append((reason, force))
            if left:
                os.kill(os.getpid(), left.pop())
            else:
                stopped.release()

        stoppable(stop)
        if left:
            os.kill(os.getpid(), left.pop())
        if not gone:
            assert stopped.acquire(timeout=30)
        return RunOutcome(
            name="orders", status="failed" if gone else "stopped", message="no answer", spark_is_gone=gone
        )

    monkeypatch.setattr("runners.schedules.scheduling.open_shared_session", lambda definitions: None)
    monkeypatch.setattr("runners.schedules.scheduling.make_carrier", lambda spark, make_listeners: carry)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert cli.execute(["schedule", str(folder)]) == code
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert asked == [(f"signal {number.name}", again > 0) for again, number in enumerate(signals)]
    said = capsys.readouterr()
    lines = [line[21:] for line in said.err.splitlines()]
    assert said.out == ""
    assert "broken.yaml is left out:" in lines
    assert any(line.startswith(f"orders {'failed' if gone else 'stopped'} after") for line in lines)
    assert gone == (said.err.splitlines()[-1] == "Spark has ended: no answer")


def test_a_scheduler_serves_metrics_and_logs_json(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metrics are served on this machine only. Both include the events of runs."""
    RunMarks(folder / ".wherry" / "schedule").get_or_make("orders", datetime.now(timezone.utc) - timedelta(hours=1))
    asked: list[tuple[int, str]] = []
    said: list[str] = []

    def make_carrier(spark: object, make_listeners: Callable[[Definition], Sequence[Listener]]) -> Carrier:
        def carry(definition: Definition, stoppable: Callable[[Stop], None]) -> RunOutcome:
            for listener in make_listeners(definition):
                listener(BatchPlanned(batch=make_batch("0")))
            flush()
            said.append(capsys.readouterr().err)
            place = said[0].partition("metrics at ")[2].partition("\n")[0].removesuffix("/metrics")
            for page in ("/metrics", "/ready", "/live"):
                with urllib.request.urlopen(place + page, timeout=30) as answer:  # noqa: S310
                    asked.append((answer.status, answer.read().decode()))
            os.kill(os.getpid(), signal.SIGTERM)
            return RunOutcome(name=definition.pipeline.name, status="succeeded", message="done")

        return carry

    monkeypatch.setattr("runners.schedules.scheduling.open_shared_session", lambda definitions: None)
    monkeypatch.setattr("runners.schedules.scheduling.make_carrier", make_carrier)
    words = ["schedule", str(folder), "--metrics-port", "0", "--log-format", "json", "--at-once", "1"]
    assert cli.execute(words) == 0
    assert [status for status, _ in asked[:3]] == [200] * 3
    assert 'wherry_batches_in_flight{pipeline="orders"} 1' in asked[0][1]
    assert 'wherry_run_under_way{pipeline="orders"} 1' in asked[0][1]
    lines = "".join([*said, capsys.readouterr().err]).splitlines()
    assert lines[0].startswith("metrics at http://127.0.0.1:")
    facts = [json.loads(line) for line in lines[1:]]
    assert {"scheduled", "began", "batch_planned", "draining", "ended"} <= {each["event"] for each in facts}
    (planned,) = [each for each in facts if each["event"] == "batch_planned"]
    assert (planned["pipeline"], planned["run"], planned["lane"]) == ("orders", "r", "0")


def find_block(start: str) -> str:
    """Return the block of the page about schedules that begins with this text."""
    (page,) = [page for page in GUIDES if page.parts[-2:] == ("howto", "schedule.md")]
    (block,) = [block.text for block in list_blocks(page) if block.text.startswith(start)]
    return block


def test_the_example_for_cron_has_valid_commands() -> None:
    """Each line has five valid fields and a call that parses."""
    from runners.model.timetable import parse

    lines = [line for line in find_block("CRON_TZ=").splitlines() if line[:1] in "*0123456789"]
    assert len(lines) == 2
    for line in lines:
        *fields, command = line.split(maxsplit=5)
        assert parse(" ".join(fields))
        assert "%" not in command
        program, name, *words = shlex.split(command.partition(" > ")[0])
        assert (program, name) == ("/srv/venv/bin/wherry", "run")
        given = parse_command(name, words)
        assert (given["if_running"], given["quiet"], given["file"].parent) == ("skip", True, Path("/srv/pipelines"))


@pytest.mark.parametrize("words", [["--plan"], [], ["--pause", "orders"]])
def test_a_file_or_a_folder_without_a_definition_exits_with_2(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Each message has a command to type."""
    assert cli.execute(["schedule", str(folder / "orders.yaml"), *words]) == 2
    assert f"wherry schedule {folder}\n" in capsys.readouterr().err
    (folder / "above" / "pipelines").mkdir(parents=True)
    assert cli.execute(["schedule", str(folder / "above"), *words]) == 2
    assert "Write one:  wherry init" in capsys.readouterr().err
    (folder / "orders.yaml").rename(folder / "above" / "pipelines" / "orders.yaml")
    assert cli.execute(["schedule", str(folder / "above"), *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("There is no definition in")
    assert f"wherry schedule {folder / 'above' / 'pipelines'}\n" in said


def test_a_folder_without_a_schedule_exits_with_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message comes before Spark starts, and names what to add. A plan of such a folder is fine."""
    for name in ("orders", "prices"):
        (folder / f"{name}.yaml").unlink()
    assert cli.execute(["schedule", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"No definition in {folder} has a schedule, so there is nothing to wait for: odd.yaml.")
    assert "schedule: {every: 15m}" in said
    assert list_planned(folder, capsys)["scheduled"] == []


def test_systemd_signals_only_wherry_and_waits() -> None:
    """The JVM gets no signal. A run that ends with exit code 2 is not restarted."""
    unit = configparser.ConfigParser(comment_prefixes=("#",), interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(find_block("[Unit]"))
    service = unit["Service"]
    assert (service["KillMode"], service["TimeoutStopSec"]) == ("mixed", "10min")
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    program, name, *words = shlex.split(service["ExecStart"])
    assert (program, name) == ("/srv/venv/bin/wherry", "schedule")
    assert str(parse_command(name, words)["directory"]) == service["WorkingDirectory"]


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (0, None),
        (1, "AirflowException"),
        (2, "AirflowFailException"),
        (3, "AirflowException"),
        (4, "AirflowSkipException"),
    ],
)
def test_airflow_retries_only_what_a_retry_can_help(
    monkeypatch: pytest.MonkeyPatch, code: int, raised: str | None
) -> None:
    """An invalid definition fails at once. A pipeline that is running already is skipped."""
    tasks = load_airflow_dag(monkeypatch)
    exec(find_block("import subprocess"), {"__name__": "airflow_dag"})  # noqa: S102
    called: list[list[str]] = []

    def run(words: list[str]) -> SimpleNamespace:
        called.append(words)
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr("subprocess.run", run)
    found = None
    try:
        tasks["orders"]()
    except Exception as error:
        found = type(error).__name__
    assert found == raised
    assert called == [["/srv/venv/bin/wherry", "run", "/srv/pipelines/orders.yaml", "--quiet"]]
    assert sorted(tasks) == ["orders", "prices"]


def load_airflow_dag(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace the parts of Airflow that the example uses. Return the tasks by their ids."""
    tasks: dict[str, Any] = {}

    class Made:
        def __rshift__(self, other: object) -> object:
            return other

    class Task:
        def __init__(self, function: Any, name: str = "") -> None:
            self.function, self.name = function, name

        def override(self, *, task_id: str) -> Any:
            return Task(self.function, task_id)

        def __call__(self, *given: str) -> Made:
            tasks[self.name] = lambda: self.function(*given)
            return Made()

    sdk, errors = ModuleType("airflow.sdk"), ModuleType("airflow.exceptions")
    sdk.__dict__.update(task=lambda **_: Task, dag=lambda **_: lambda function: function)
    for name in ("AirflowException", "AirflowFailException", "AirflowSkipException"):
        errors.__dict__[name] = type(name, (Exception,), {})
    for module in (ModuleType("airflow"), sdk, errors):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return tasks
