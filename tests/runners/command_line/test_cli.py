"""The command line: its output and its exit codes."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import pty
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import destinations
import origins
import stages
from runners.command_line import carrying, cli
from runners.definitions.definition import load
from runners.definitions.kinds import get_our_kinds
from runners.listeners.standard_error import flush
from runners.model.errors import Owned, Refusal
from runners.model.events import Listener, RunStarted
from runners.model.run_report import Report, RunError
from runners.operations.offsets import LaneMove, OffsetMove
from runners.operations.redo import RedoPreview
from runners.pipeline import Pipeline
from runners.running.backfill import Backfill
from runners.running.choice import Choice
from runners.running.compatibility import OperatorOverrides
from tests.pace import measure_pace
from tests.runners.command_line.test_carrying import make_settled, read_everything
from tests.runners.engine.toys import TOYS

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-c", "from runners.command_line.cli import main; main()"]
SMALLEST = "name: orders\norigin: {folder: {path: landing}}\ndestinations: [{table: {table: main.orders}}]\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A definition with the toy kinds, in the working directory."""
    for package, table in ((origins, TOYS.origins), (stages, TOYS.stages), (destinations, TOYS.destinations)):
        monkeypatch.setattr(package, "KINDS", table, raising=False)
    get_our_kinds.cache_clear()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yaml").write_text(SMALLEST)
    yield "orders.yaml"
    get_our_kinds.cache_clear()


def make_fail(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `validate` fail with this error."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("runners.command_line.trial_commands.explain", fail)


def test_validate_prints_its_explanation_to_stdout(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints nothing to stderr."""
    assert cli.execute(["validate", file]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("The definition of orders is valid.\n")
    assert err == ""


def test_validate_prints_json_for_programs(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has the same facts as the text."""
    assert cli.execute(["validate", file, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["pipeline"], facts["way"], facts["columns"]) == ("orders", "straight", None)
    assert facts["destinations"][0]["guarantee"] == "effectively once: the table remembers"


def test_an_invalid_definition_exits_with_2_and_prints_to_stderr(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All problems are on stderr. There is no text on stdout, and no stack trace."""
    Path(file).write_text(SMALLEST + "dlq: {windw: 5}\nstate: [a]\n")
    assert cli.execute(["validate", file]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "orders.yaml: 2 problems\n"
        "  line 4  dlq.windw: unknown option; did you mean 'window'?\n"
        "  line 5  state: expected text or a mapping, got a list\n"
    )


def test_fields_and_parameters_are_set_for_one_call(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--set` changes a field, and `--var` overrides `--vars`."""
    Path(file).write_text(SMALLEST + "dlq: {window: '${WINDOW}', threshold: '${THRESHOLD}'}\n")
    Path("vars.yaml").write_text("WINDOW: 7\nTHRESHOLD: 2\n")
    words = ["validate", file, "--json", "--vars", "vars.yaml", "--var", "WINDOW=9", "--set", "origin.lanes=3"]
    assert cli.execute(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert "2 of the last 9 rows" in facts["dead_letters"][1]
    assert facts["origins"][0]["lanes"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["validat", "x"], "Did you mean 'validate'?"),
        (["validate", "orders.yaml", "--sparc"], "No such option"),
        (["validate", "orders.yaml", "--set", "dlq.window"], "expected PATH=VALUE, got 'dlq.window'"),
        (["validate", "orders.yaml", "--var", "=1"], "expected NAME=VALUE, got '=1'"),
        (["validate", "orders.yaml", "--set", "=1"], "expected PATH=VALUE, got '=1'"),
        (["validate", "orders.yaml", "--set", "a..b=1"], "--set a..b=1: expected a path such as dlq.window"),
        (["validate", "orders.yaml", "--set", "dlq.windw=1"], "dlq.windw: unknown option; did you mean 'window'?"),
        (["validate", "orders.yaml", "--set", "destinations.1.name=x"], "destinations is a list of 1"),
        (["validate", "gone.yaml"], "there is no such file\nDid you mean orders.yaml?"),
        (["validate", "orders.yaml", "--vars", "gone.yaml"], "cannot be read: No such file"),
        (["kinds", "tabel"], "There is no kind 'tabel'; did you mean 'table'?"),
        (["offsets", "orders.yaml", "--lane", "0", "--offset", "{"], "expected JSON, got '{'"),
        (["stop", "orders.yaml", "--within", "soon"], "expected a duration such as 500ms"),
        (["offsets", "orders.yaml", "--to", "yesterday"], "expected a time such as 2026-01-31T06:00"),
        (["offsets", "orders.yaml", "--to-beginning", "--back", "1"], "Give one of --lane with --offset, --back N"),
        (["offsets", "orders.yaml", "--lane", "0"], "Give one of --lane with --offset, --back N"),
        (["offsets", "orders.yaml", "--reason", "by mistake"], "Give one of --lane with --offset, --back N"),
        (["runs", "orders.yaml", "3f9a", "--status", "failed"], "--status is for the list of runs"),
        (["offsets", "reset", "orders.yaml"], "Use `wherry offsets FILE --to-beginning`."),
    ],
)
def test_an_invalid_call_exits_with_2_and_states_what_is_valid(
    file: str, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """The message is one sentence on stderr."""
    assert cli.execute(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_an_error_states_what_is_wrong_and_what_to_do(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scheduler can distinguish errors by their exit codes."""
    make_fail(monkeypatch, Owned("orders is being run already.", hint="Wait for it."))
    assert cli.execute(["validate", file]) == 4
    assert capsys.readouterr().err == "orders is being run already.\nWait for it.\nmore         wherry explain OWNED\n"
    make_fail(monkeypatch, Refusal("Something was moved.", hint="Look:  wherry offsets FILE"))
    assert cli.execute(["validate", file]) == 2
    assert capsys.readouterr().err == f"Something was moved.\nLook:  wherry offsets {file}\n"
    make_fail(monkeypatch, Refusal("This state belongs to shop."))
    assert cli.execute(["validate", file]) == 2
    assert capsys.readouterr().err == "This state belongs to shop.\n"


def test_an_unknown_error_is_one_line_with_a_trace_file(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second line names the file of the trace."""
    make_fail(monkeypatch, ZeroDivisionError("one\ntwo"))
    assert cli.execute(["validate", file]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == "Wherry met an unknown error: ZeroDivisionError: one two"
    trace = Path(second.removeprefix("The trace is in ").removesuffix("; please report it."))
    assert "Traceback" in trace.read_text()
    trace.unlink()


def test_the_trace_of_an_unknown_error_shows_no_secret(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed lines show no secret either."""
    monkeypatch.setenv("WHERRY_TEST_KEY", "canary7f3a9")
    Path(file).write_text(SMALLEST.replace("main.orders", "'main.orders_${secret:WHERRY_TEST_KEY}'"))
    make_fail(monkeypatch, ZeroDivisionError("jdbc:postgresql://me:canary7f3a9@localhost/shop"))
    assert cli.execute(["validate", file]) == 1
    said = capsys.readouterr().err
    trace = Path(said.partition("The trace is in ")[2].partition("; please")[0])
    told = said + trace.read_text()
    trace.unlink()
    assert told.count("jdbc:postgresql://me:${secret:WHERRY_TEST_KEY}@localhost/shop") == 2
    assert "canary7f3a9" not in told


def test_a_command_masks_no_secret_of_another_definition(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """These are secrets of the previous command, and of a definition that the process loaded without a command."""
    Path("others.yaml").write_text(SMALLEST.replace("main.orders", "'main.orders_${secret:WHERRY_TEST_KEY}'"))
    load("others.yaml", secrets={"WHERRY_TEST_KEY": "canary1"})
    Path("secrets.yaml").write_text("WHERRY_TEST_KEY: canary2\n")
    assert cli.execute(["validate", "others.yaml", "--secrets", "secrets.yaml"]) == 0
    make_fail(monkeypatch, ZeroDivisionError("canary1 and canary2"))
    assert cli.execute(["validate", file]) == 1
    said = capsys.readouterr().err
    Path(said.partition("The trace is in ")[2].partition("; please")[0]).unlink()
    assert "canary1 and canary2" in said


def test_a_secret_is_masked_in_the_trace_if_the_definition_fails(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The definition was never completely read."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("canary7f3a9 is no table")

    monkeypatch.setenv("WHERRY_TEST_KEY", "canary7f3a9")
    monkeypatch.setattr("runners.definitions.yaml_reader.DefinitionReader.read_pipeline", fail)
    Path(file).write_text(SMALLEST.replace("main.orders", "'main.orders_${secret:WHERRY_TEST_KEY}'"))
    assert cli.execute(["validate", file]) == 1
    said = capsys.readouterr().err
    trace = Path(said.partition("The trace is in ")[2].partition("; please")[0])
    told = said + trace.read_text()
    trace.unlink()
    assert ("${secret:WHERRY_TEST_KEY} is no table" in said, "canary7f3a9" in told) == (True, False)


def test_an_interrupt_that_pyspark_logs_is_not_shown(file: str, caplog: pytest.LogCaptureFixture) -> None:
    """It logs the stack with the root logger. Its other errors are still logged."""
    assert cli.execute(["validate", file]) == 0
    for error in (KeyboardInterrupt(), ValueError("no")):
        try:
            raise error
        except (KeyboardInterrupt, ValueError):
            logging.exception("while sending")
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError]


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """It is the installed version, or that of the source tree."""
    assert cli.execute(["--version"]) == 0
    assert capsys.readouterr().out.startswith("wherry 0.")


def replace_runs(monkeypatch: pytest.MonkeyPatch, **outcome: Any) -> list[dict[str, Any]]:
    """Let every run end like this. Return the arguments of each run."""
    calls: list[dict[str, Any]] = []

    def run(_: Pipeline, **how: Any) -> Report:
        calls.append(how)
        return Report(pipeline="orders", run="r", **outcome)

    monkeypatch.setattr(Pipeline, "run", run)
    return calls


@pytest.mark.parametrize(
    ("status", "code", "err"),
    [("succeeded", 0, ""), ("stopped", 3, ""), ("failed", 1, "orders failed after 0.0 s: no room\nMake some.\n")],
)
def test_the_exit_code_shows_how_a_run_ended(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: str, code: int, err: str
) -> None:
    """The report is on stdout as JSON. The reason of a failure is on stderr."""
    error = RunError(cls="X", code="X", message="no room", hint="Make some.") if err else None
    replace_runs(monkeypatch, status=status, error=error)
    assert cli.execute(["run", file, "--json", "--quiet"]) == code
    out, said = capsys.readouterr()
    assert json.loads(out)["status"] == status
    assert said == err


@pytest.mark.parametrize(("code", "ends"), [("STAGE", 2), ("REFUSED", 2), ("OWNED", 4), ("CARRY", 1)])
def test_a_failed_run_has_the_exit_code_of_its_error(
    file: str, monkeypatch: pytest.MonkeyPatch, code: str, ends: int
) -> None:
    """An invalid definition or call exits with 2, also if only the run finds it."""
    replace_runs(monkeypatch, status="failed", error=RunError(cls="X", code=code, message="no"))
    assert cli.execute(["run", file]) == ends


def test_a_failed_run_shows_no_secret(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A database's error may repeat the address with the secret."""
    monkeypatch.setenv("WHERRY_KEY", "hunter2")
    Path(file).write_text(SMALLEST.replace("main.orders", "'main.${secret:WHERRY_KEY}'"))
    error = RunError(cls="X", code="X", message="no table main.hunter2")
    replace_runs(monkeypatch, status="failed", error=error)
    assert cli.execute(["run", file, "--json"]) == 1
    out, err = capsys.readouterr()
    assert "main.${secret:WHERRY_KEY}" in json.loads(out)["error"]["message"]
    assert "hunter2" not in out + err


@pytest.mark.parametrize(
    ("number", "said", "advice"),
    [
        (errno.EACCES, "Permission denied", "ls -ld /there"),
        (errno.ENOSPC, "No space left on device", "Free disk space"),
    ],
)
def test_an_error_of_the_system_names_the_file_and_what_to_do(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, said: str, advice: str
) -> None:
    """It is no fault of Wherry, so the output does not ask for a report."""
    make_fail(monkeypatch, OSError(number, said, "/there"))
    assert cli.execute(["validate", file]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"/there cannot be read or written: {said}.\n")
    assert advice in err
    assert "wherry explain ACCESS" in err


@pytest.mark.promise("CD-32")
def test_a_run_that_is_stopped_while_spark_starts_exits_with_3(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM stops it. Afterwards the signal handler is the same as before."""

    def run(_: Pipeline, **__: Any) -> Report:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("not reached")

    monkeypatch.setattr(Pipeline, "run", run)
    before = signal.getsignal(signal.SIGTERM)
    assert cli.execute(["run", file]) == 3
    assert capsys.readouterr().err.splitlines()[1:] == ["orders was stopped before processing anything."]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.promise("CD-32")
def test_a_signal_after_the_end_of_a_run_has_no_effect(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report still shows a run that succeeded."""

    @contextlib.contextmanager
    def told(*_: object, **__: object) -> Iterator[list[Listener]]:
        yield [lambda _: None]
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("runners.command_line.carrying.show_progress", told)
    replace_runs(monkeypatch, status="succeeded", batches=3)
    assert cli.execute(["run", file, "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["batches"], err) == (3, "")


JAVA = """#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1" 2021-10-19' >&2; exit;; esac
kill -TERM -"$GROUP"
cat > /dev/null
echo ended > "$GROUP.ended"
"""
"""A JVM that terminates the whole process group while it starts, as `timeout` does. The JVM ends with its standard
input.
"""


@pytest.mark.promise("CD-32")
def test_a_run_terminated_with_its_group_exits_with_3(tmp_path: Path) -> None:
    """The run does not wait for Spark. The JVM is not in the group, and ends with the run."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    (tmp_path / "orders.yaml").write_text(
        "name: orders\norigin: {generate: {rows: 6}}\ndestinations: [{delta: {path: tables/orders}}]\n"
    )
    program = ["sh", "-c", 'export GROUP=$$; exec "$@"', "sh", *COMMAND, "run", "orders.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_HOME": str(tmp_path / "java")}
    run = subprocess.Popen(
        program, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    out, err = run.communicate(timeout=120)
    assert (run.returncode, b"orders stopped" in out, b"Traceback" in err) == (3, True, False)
    assert (tmp_path / f"{run.pid}.ended").exists()


def test_an_error_that_an_interrupt_caused_counts_as_the_interrupt(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an interrupt the same error is an ordinary error."""

    def run(_: Pipeline, **__: Any) -> Report:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(Pipeline, "run", run)
    assert cli.execute(["run", file]) == 3
    assert capsys.readouterr().err.splitlines()[1:] == ["orders was stopped before processing anything."]
    refused = ConnectionRefusedError("nobody listens")
    refused.__context__ = KeyboardInterrupt()
    make_fail(monkeypatch, refused)
    assert cli.execute(["validate", file]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    make_fail(monkeypatch, ConnectionRefusedError("nobody listens"))
    assert cli.execute(["validate", file]) == 1


def test_a_run_of_a_running_pipeline_exits_with_4_or_is_skipped(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option decides this. The report of a skipped run has the status `skipped`."""

    def run(_: Pipeline, **__: Any) -> Report:
        raise Owned("orders is running already on this host.")

    monkeypatch.setattr(Pipeline, "run", run)
    assert cli.execute(["run", file]) == 4
    assert cli.execute(["run", file, "--if-running", "fail"]) == 4
    capsys.readouterr()
    assert cli.execute(["run", file, "--if-running", "skip", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[1:] == ["orders is running already on this host. This run is skipped."]
    assert json.loads(out)["status"] == "skipped"


def test_standard_error_is_json_if_requested(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This holds for each kind of error. The next command prints text again."""
    replace_runs(monkeypatch, status="failed", error=RunError(cls="X", code="LEDGER", message="no room"))
    assert cli.execute(["run", file, "--log-format", "json"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert (json.loads(line)["level"], json.loads(line)["code"]) == ("error", "LEDGER")
    assert cli.execute(["run", "gone.yaml", "--log-format", "json"]) == 2
    assert json.loads(capsys.readouterr().err)["code"] == "DEFINITION"
    assert cli.execute(["validate", "gone.yaml"]) == 2
    assert capsys.readouterr().err.startswith("gone.yaml: 1 problem\n")


def test_secrets_come_from_a_file_and_are_not_shown(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They override the environment. `${NAME}` does not find them."""
    monkeypatch.setenv("WHERRY_KEY", "wrong")
    Path("secrets.yaml").write_text("WHERRY_KEY: hunter2\nWHERRY_OTHER: hunter3\n")
    Path(file).write_text(SMALLEST.replace("main.orders", "'main.${secret:WHERRY_KEY}'"))
    replace_runs(monkeypatch, status="failed", error=RunError(cls="X", code="X", message="no main.hunter2, main.wrong"))
    assert cli.execute(["run", file, "--secrets", "secrets.yaml"]) == 1
    assert capsys.readouterr().err.endswith("no main.${secret:WHERRY_KEY}, main.wrong\n")
    Path(file).write_text(SMALLEST.replace("main.orders", "'main.${WHERRY_OTHER}'"))
    assert cli.execute(["validate", file, "--secrets", "secrets.yaml"]) == 2
    err = capsys.readouterr().err
    assert "the parameter WHERRY_OTHER is missing" in err
    assert "hunter" not in err


def test_a_shell_completes_commands_kinds_and_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Completion uses click's protocol for bash."""

    def completed(*words: str) -> list[str]:
        environment = {"COMP_WORDS": " ".join(["wherry", *words]), "COMP_CWORD": str(len(words))}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**environment, "_WHERRY_COMPLETE": "bash_complete"}.items():
                patch.setenv(name, value)
            assert cli.execute([]) == 0
        return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]

    assert completed("va") == ["validate"]
    assert completed("kinds", "with") == ["with_columns"]
    assert completed("explain", "win") == ["WINDOW"]
    assert "--if-running" in completed("run", "--if")


def test_a_run_receives_the_overrides_of_the_call(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are passed to the run with the reason."""
    calls = replace_runs(monkeypatch, status="succeeded")
    told = "--moved orders --moved folder --fresh a --forget b --assume missing --reason fire --take-over fire --follow"
    assert cli.execute(["run", file, "--quiet", *told.split()]) == 0
    (how,) = calls
    assert how["ruling"] == OperatorOverrides(
        moved=("orders", "folder"), fresh=("a",), forget=("b",), assume="missing", reason="fire"
    )
    assert how["follow"]
    assert (how["take_over"], how["check"], how["listeners"]) == ("fire", False, [])
    assert cli.execute(["run", file, "--moved", "orders"]) == 2


def test_a_backfill_receives_its_range(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The range has numbers or times, a destination and a lane. The command shows what is repeated and asks first."""
    calls: list[Backfill] = []

    def backfill(_: Pipeline, past: Backfill, **__: Any) -> Report:
        calls.append(past)
        return Report(pipeline="orders", run="r", status="succeeded")

    monkeypatch.setattr(Pipeline, "backfill", backfill)
    move = OffsetMove(lanes={"0": LaneMove(before=None, after=5, batches=2, rows=9)}, destinations={"orders": "twice"})
    monkeypatch.setattr(Pipeline, "plan_backfill", lambda *_: move)
    told = "--from 3 --to 2026-01-31T06:00 --only orders --lane 0 --again --reason lost --quiet"
    assert cli.execute(["backfill", file, *told.split()]) == 2
    assert "orders        twice" in capsys.readouterr().err
    assert calls == []
    assert cli.execute(["backfill", file, *told.split(), "--yes"]) == 0
    assert calls == [
        Backfill(
            start=3,
            end=datetime(2026, 1, 31, 6, tzinfo=timezone.utc),
            only="orders",
            lane="0",
            again=True,
            reason="lost",
        )
    ]
    assert cli.execute(["backfill", file, "--from", "soon", "--reason", "lost"]) == 2
    assert "expected a number or a time such as 2026-01-31T06:00, got 'soon'" in capsys.readouterr().err


def test_a_redo_shows_what_it_removes_and_adds(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks before it begins. It does not ask if the file has not changed."""
    calls: list[tuple[str, str]] = []

    def redo(_: Pipeline, name: str, *, reason: str, **__: Any) -> Report:
        calls.append((name, reason))
        return Report(pipeline="orders", run="r", status="succeeded")

    found = RedoPreview(
        file="monday.json",
        read=2,
        leaving={"orders": 3, "latest": None},
        conditions={"orders": "file_name = 'monday.json'"},
        letters=2,
        unsure=["p/1"],
    )
    monkeypatch.setattr(Pipeline, "redo", redo)
    monkeypatch.setattr(Pipeline, "preview_redo", lambda *_, **__: found)
    assert cli.execute(["redo", file, "--file", "monday.json", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("monday.json has 2 rows now.\n")
    assert "orders       3         replaces the rows where file_name = 'monday.json'\n" in err
    assert "latest                 merges the new rows" in err
    assert "2 refused rows of the old monday.json wait in the DLQ. The redo discards them.\n" in err
    assert "wherry dlq discard orders.yaml --reason 'monday.json was redone' --id p/1\n" in err
    assert calls == []
    assert cli.execute(["redo", file, "--file", "monday.json", "--reason", "sent again", "--quiet", "--yes"]) == 0
    found = RedoPreview(file="monday.json", read=None)
    assert cli.execute(["redo", file, "--file", "monday.json", "--quiet"]) == 0
    assert "monday.json has not changed since it was read: there is nothing to redo.\n" in capsys.readouterr().err
    assert calls == [("monday.json", "sent again"), ("monday.json", "")]


@pytest.mark.promise("SS-12")
def test_a_run_from_the_beginning_moves_the_offsets_first(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command shows which batches are repeated. It needs a reason and a confirmation."""
    calls = replace_runs(monkeypatch, status="succeeded")
    moves: list[str] = []
    move = OffsetMove(lanes={"0": LaneMove(before=5, after=None, batches=2, rows=9)}, destinations={"orders": "twice"})
    monkeypatch.setattr(
        "runners.operations.offsets.PipelineOffsets.plan", lambda _, beginning, **__: move if beginning else None
    )
    monkeypatch.setattr("runners.operations.offsets.PipelineOffsets.move", lambda _, move, reason: moves.append(reason))
    assert cli.execute(["run", file, "--from-beginning"]) == 2
    assert "the ledger keeps a reason" in capsys.readouterr().err
    assert cli.execute(["run", file, "--from-beginning", "--reason", "again"]) == 2
    assert "without a terminal Wherry cannot ask" in capsys.readouterr().err
    assert (moves, calls) == ([], [])
    assert cli.execute(["run", file, "--from-beginning", "--reason", "again", "--yes"]) == 0
    said = capsys.readouterr().err
    assert "5     the beginning" in said
    assert "Done." not in said
    assert (moves, len(calls)) == (["again"], 1)
    assert cli.execute(["offsets", file, "--to-beginning", "--reason", "once more", "--yes", "--json"]) == 0
    out, said = capsys.readouterr()
    assert json.loads(out)["lanes"]["0"]["rows"] == 9
    assert said.endswith("\nDone. The next run continues from there:  wherry run orders.yaml\n")
    assert moves == ["again", "once more"]


def test_a_pipeline_that_never_ran_has_no_offsets(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A rewind has nothing to move, and needs no reason."""
    assert cli.execute(["offsets", file]) == 0
    assert cli.execute(["offsets", file, "--json"]) == 0
    assert cli.execute(["offsets", file, "--to-beginning"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("No batch was processed yet.\n{")
    assert err == "There is nothing to move: no batch was processed yet.\n"


def test_a_stop_may_be_forced_or_have_a_time_limit(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output states whether the pipeline was running."""
    asked: list[tuple[str, bool, str]] = []

    def stop(_: Pipeline, reason: str, *, force: bool, within: str) -> bool:
        asked.append((reason, force, within))
        return len(asked) > 1

    monkeypatch.setattr(Pipeline, "stop", stop)
    assert cli.execute(["stop", file]) == 0
    assert cli.execute(["stop", file, "--force", "--reason", "fire"]) == 0
    assert cli.execute(["stop", file, "--within", "30s"]) == 0
    assert asked == [("asked to stop", False, ""), ("fire", True, ""), ("asked to stop", False, "30s")]
    assert capsys.readouterr().out.splitlines() == [
        "orders is not running.",
        "orders was asked to stop at once. See its state:  wherry status orders.yaml",
        "orders was asked to stop. See its state:  wherry status orders.yaml",
        "It finishes its open batches first. To cancel them:  wherry stop orders.yaml --force",
    ]


def test_twenty_refused_rows_are_printed_and_all_as_json(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option sets another limit."""
    asked: list[int | None] = []
    revealed: list[bool] = []

    def dead_letters(_: Pipeline, limit: int | None, *, choice: Choice, reveal: bool, waiting: bool) -> list[Any]:
        assert choice.chooses_all
        assert not waiting
        asked.append(limit)
        revealed.append(reveal)
        return []

    monkeypatch.setattr("runners.operations.refused_rows.PipelineRefusedRows.list", dead_letters)
    for words in ([], ["--json"], ["--limit", "5"], ["--limit", "5", "--json"]):
        assert cli.execute(["dlq", "show", file, *words]) == 0
    assert asked == [20, None, 5, 5]
    assert revealed == [False] * 4
    assert cli.execute(["dlq", "show", file, "--reveal"]) == 0
    assert revealed[4]
    assert capsys.readouterr().out.splitlines()[0] == "The DLQ has no rows."


def test_commands_that_only_read_need_no_secret(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` needs it."""
    Path(file).write_text(SMALLEST.replace("main.orders", "'main.${secret:WHERRY_NO_SUCH_SECRET}'"))
    monkeypatch.setattr(Pipeline, "status", lambda _: {"next": ""})
    assert cli.execute(["status", file, "--json"]) == 0
    assert cli.execute(["offsets", file]) == 0
    assert cli.execute(["run", file]) == 2


def test_log_lines_go_to_stderr_and_a_closed_stderr_is_ignored(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are written by the logger `wherry`."""
    logging.getLogger("wherry").setLevel(logging.NOTSET)
    assert cli.execute(["--version"]) == 0
    logging.getLogger("wherry").info("batch %d is late", 5)
    flush()
    assert capsys.readouterr().err == "batch 5 is late\n"

    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("click.echo", closed)
    logging.getLogger("wherry").info("nobody hears this")
    flush()


@pytest.mark.promise("CN-16")
def test_a_slow_reader_of_log_lines_delays_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that do not fit are dropped. Their count is logged when the reader continues."""
    log, hangs = logging.getLogger("wherry"), threading.Event()

    class Slow(StringIO):
        def write(self, text: str) -> int:
            hangs.wait(60)
            return super().write(text)

    slow = Slow()
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr("runners.listeners.standard_error.ROOM", 10)
    assert cli.execute(["--version"]) == 0
    monkeypatch.setattr(sys, "stderr", slow)
    for number in range(100):
        log.info("line %d", number)
    assert slow.getvalue() == ""
    hangs.set()
    flush()
    written = slow.getvalue().splitlines()
    assert written[-1].endswith("log lines were not written: the reader of standard error is too slow")
    assert 10 <= len(written) - 1 < 100


def read_children_time() -> float:
    """Return the processor time of all ended child processes. Other processes do not change it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def time_command(words: list[str], folder: Path) -> float:
    """Return the processor time of the command on a quiet machine, the best of three runs. Each run is a process that
    must not import pyspark.
    """
    check = "import atexit, sys; atexit.register(lambda: print('pyspark' in sys.modules, file=sys.stderr)); "
    program = [sys.executable, "-c", check + COMMAND[-1]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    times = []
    for _ in range(3):
        began = read_children_time()
        ended = subprocess.run(
            [*program, *words], env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        times.append((read_children_time() - began) / measure_pace())
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr.splitlines()[-1] == "False"
    return min(times)


def test_help_is_fast(tmp_path: Path) -> None:
    """It takes less than 0.3 s, without pyspark."""
    assert time_command(["--help"], tmp_path) < 0.3


def test_a_closed_pipe_ends_the_command_silently(tmp_path: Path) -> None:
    """`wherry kinds --json | head -1` closes the pipe like this."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*COMMAND, "kinds", "--json"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert err == b""
    assert process.returncode == 141


def replace_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `run` process 1,000 rows of lane 0, without Spark."""

    def run(_: Pipeline, *, listeners: Sequence[Listener], **__: object) -> Report:
        for listener in listeners:
            for event in (RunStarted(pipeline="orders", run="7f"), make_settled(read=1_000)):
                listener(event)
        return Report(pipeline="orders", run="7f", status="succeeded", batches=1, read=1_000)

    monkeypatch.setattr(Pipeline, "run", run)


@pytest.mark.parametrize(
    ("words", "lines"),
    [([], ["orders: opening the state, origins and tables", "orders: run 7f begins"]), (["--quiet"], [])],
)
def test_progress_is_printed_as_lines_without_a_terminal(
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    lines: list[str],
) -> None:
    """With `--quiet` nothing is printed."""
    replace_run(monkeypatch)
    assert cli.execute(["run", file, *words]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == lines
    assert "orders succeeded" in said.out


@pytest.mark.parametrize(
    ("words", "work", "begins"),
    [
        (["find", "--where", "id = 42"], "runners.command_line.trial_commands.find_rows", "reading the ledger"),
        (["preview"], "runners.command_line.trial_commands.preview_waiting", "trying the waiting rows"),
        (["redo", "--file", "a.json"], "runners.pipeline.Pipeline.preview_redo", "looking for the rows of a.json"),
    ],
)
def test_a_command_that_reads_rows_shows_its_progress(
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    work: str,
    begins: str,
) -> None:
    """It prints a line at the start, and then repeatedly until it is done."""
    again: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def take(_: float, show: Callable[[], None]) -> Iterator[None]:
        again.append(show)
        yield

    def do_it(*_: object, **how: Any) -> None:
        how.get("say", lambda _: None)("counting rows")
        again[0]()
        raise Refusal("That is enough.")

    monkeypatch.setattr(carrying, "call_every", take)
    monkeypatch.setattr(work, do_it)
    assert cli.execute([words[0], file, *words[1:]]) == 2
    doing = begins if words[0] == "preview" else "counting rows"
    assert capsys.readouterr().err.splitlines() == [
        f"orders: {begins}",
        f"orders: {doing} … 0 s",
        "That is enough.",
    ]


@pytest.mark.parametrize(("words", "drawn"), [([], True), (["--quiet"], False)])
def test_progress_is_drawn_on_a_terminal(
    file: str, monkeypatch: pytest.MonkeyPatch, words: list[str], drawn: bool
) -> None:
    """With `--quiet` nothing is drawn."""
    replace_run(monkeypatch)
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert cli.execute(["run", file, *words]) == 0
    written = read_everything(ours)
    assert ("1,000 rows" in written) is drawn
    assert bool(written) is drawn


def print_on_terminal(monkeypatch: pytest.MonkeyPatch, *words: str, columns: int = 80) -> str:
    """Return what a command prints on a standard output that is a terminal."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", f"{columns}")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert cli.execute(words) == 0
    return read_everything(ours).replace("\r\n", "\n")


@pytest.mark.parametrize(("wanted", "said"), [("", "\x1b[32msucceeded\x1b[0m"), ("1", "orders succeeded after")])
def test_a_terminal_has_colours_unless_no_color_is_set(
    file: str, monkeypatch: pytest.MonkeyPatch, wanted: str, said: str
) -> None:
    """JSON has no colours."""
    replace_run(monkeypatch)
    monkeypatch.setenv("NO_COLOR", wanted)
    printed = print_on_terminal(monkeypatch, "run", file, "--quiet")
    assert said in printed
    assert ("\x1b" in printed) is not bool(wanted)
    assert "\x1b" not in print_on_terminal(monkeypatch, "run", file, "--quiet", "--json")


@pytest.mark.parametrize(("columns", "words", "whole"), [(80, [], False), (200, [], True), (80, ["--wide"], True)])
def test_refused_rows_are_cut_to_the_terminal_unless_wide_is_given(
    file: str, monkeypatch: pytest.MonkeyPatch, columns: int, words: list[str], whole: bool
) -> None:
    """The output states how to show all columns and values."""
    row = {f"c{number}": f"{number}" * 12 for number in range(9)}
    where = {"id": "p/1", "nacked_at": "2026-01-01", "lane": "0", "number": 3, "stage": "cast", "destination": None}
    letter = {**where, "message": "no", "row": row, "replayed": False, "discarded": False}
    monkeypatch.setattr("runners.operations.refused_rows.PipelineRefusedRows.list", lambda *_, **__: [letter])
    monkeypatch.setenv("NO_COLOR", "1")
    lines = print_on_terminal(monkeypatch, "dlq", "show", file, *words, columns=columns).splitlines()
    assert (max(map(len, lines)) <= columns) is not (whole and columns == 80)
    assert ("888888888888" in lines[2]) is whole
    assert (lines[-1] == "Show all columns and whole values:  --wide") is not whole
    assert "columns" in lines[1] or whole


def test_a_character_that_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    """A Latin-1 terminal gets escapes, not an exception."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "latin-1"}
    words = [*COMMAND, "validate", "a→b.yaml"]
    ended = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"a\\u2192b.yaml: 1 problem")


@pytest.mark.parametrize(
    "words",
    [["validate"], ["status"], ["runs"], ["dlq"], ["dlq", "summary"], ["offsets"], ["quality"], ["stop"]],
    ids=" ".join,
)
def test_the_only_definition_of_the_folder_may_be_omitted(file: str, words: list[str]) -> None:
    """Other YAML files in the folder do not count as definitions."""
    Path("vars.yaml").write_text("WINDOW: 7\n")
    Path("databricks.yml").write_text("bundle:\n  name: x\n  destinations: no\n")
    assert cli.execute(words) == 0


@pytest.mark.parametrize("words", [["quality"], ["runs"], ["dlq", "replay"], ["report"]], ids=" ".join)
def test_several_definitions_are_listed_with_a_command(
    file: str, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A broken definition is listed too."""
    Path("a b.yaml").write_text("destinations: {{{\n")
    assert cli.execute(words) == 2
    assert capsys.readouterr().err == (
        "There are 2 definitions in this folder: a b.yaml, orders.yaml.\n"
        f"Name one:  wherry {' '.join(words)} 'a b.yaml'\n"
    )


def test_a_folder_without_a_definition_names_init(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the command that writes a definition."""
    Path(file).unlink()
    assert cli.execute(["status"]) == 2
    assert capsys.readouterr().err == (
        "There is no definition in this folder.\nName its file; or write one:  wherry init\n"
    )


@pytest.mark.parametrize(
    ("typed", "offset"),
    [
        ("latest", "latest"),
        ('"latest"', "latest"),
        ("2026-01-31T06:00:00Z", "2026-01-31T06:00:00Z"),
        ("500", 500),
        ("null", None),
        ('{"orders": {"next": {"0": 17}}}', {"orders": {"next": {"0": 17}}}),
    ],
)
def test_an_offset_that_is_a_word_or_a_time_needs_no_quotes(
    file: str, monkeypatch: pytest.MonkeyPatch, typed: str, offset: object
) -> None:
    """A shell removes the quotes that JSON needs."""
    asked: list[object] = []

    def plan(*_: object, offset: object, **__: object) -> Any:
        asked.append(offset)
        raise Refusal("planned")

    monkeypatch.setattr("runners.operations.offsets.PipelineOffsets.plan", plan)
    assert cli.execute(["offsets", file, "--lane", "0", "--offset", typed, "--reason", "x"]) == 2
    assert asked == [offset]


def test_a_word_that_is_no_file_is_the_next_argument(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may be omitted before the id of a run, and before a setting."""
    asked: list[str] = []
    changed: list[dict[str, str]] = []

    def runs(_: Pipeline, **how: Any) -> list[Any]:
        asked.append(how["run"])
        return []

    def change(_: Pipeline, changes: dict[str, str], **__: object) -> dict[str, Any]:
        changed.append(changes)
        return {"window": 0, "threshold": 1, "limits": {}}

    monkeypatch.setattr("runners.operations.history.PipelineHistory.list", runs)
    monkeypatch.setattr("runners.operations.refused_rows.PipelineRefusedRows.change_limits", change)
    for words in (["3f9a"], [file, "3f9a"], ["last"], [file, "last"]):
        assert cli.execute(["runs", *words]) == 2
        assert cli.execute(["report", *words]) == 2
    assert asked == ["3f9a"] * 4 + [""] * 4
    for words in (["window=0"], [file, "window=0"]):
        assert cli.execute(["dlq", "config", *words, "threshold=2", "--reason", "x"]) == 0
    assert changed == [{"window": "0", "threshold": "2"}] * 2


def test_a_definition_is_compared_with_the_only_one_of_the_folder(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not compared with itself. If the folder has several, the message has a command that names one."""
    compared: list[list[str]] = []

    def compare(old: Any, new: Any, **_: object) -> Any:
        compared.append([each.pipeline.name for each in (old, new)])
        raise Refusal("compared")

    monkeypatch.setattr("runners.command_line.trial_commands.compare_definitions", compare)
    Path("later").mkdir()
    Path("later/orders.yaml").write_text(SMALLEST.replace("orders", "later", 1))
    assert cli.execute(["compare", "later/orders.yaml", "--quiet"]) == 2
    capsys.readouterr()
    assert cli.execute(["compare", file]) == 2
    assert capsys.readouterr().err == ("There is one definition in this folder.\nName two:  wherry compare OLD NEW\n")
    Path("new.yaml").write_text(SMALLEST)
    assert cli.execute(["compare", "new.yaml"]) == 2
    assert "Name one:  wherry compare orders.yaml new.yaml\n" in capsys.readouterr().err
    assert cli.execute(["compare"]) == 2
    assert "Name two:  wherry compare new.yaml orders.yaml\n" in capsys.readouterr().err
    assert compared == [["orders", "later"]]
