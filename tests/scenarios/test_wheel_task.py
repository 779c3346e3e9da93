"""The command `wherry` as the wheel task of a job: a function that is called in the process of a notebook."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from runners.command_line import cli
from runners.definitions.definition import load
from runners.operations.pipeline_access import open_state
from runners.pipeline import Pipeline

DEFINITION = """
name: orders
origin: {files: {path: "${LANDING}/*.json", format: json, schema: "id long, amount double"}}
destinations: [delta: {path: table}]
"""
WheelTask = Callable[..., None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"id": 1, "amount": 2.5}\n')
    return tmp_path / "orders.yaml"


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> WheelTask:
    """Provide a call of the entry point with these parameters, in a process of Databricks."""

    def call(*parameters: object) -> None:
        monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.9")
        monkeypatch.setattr(sys, "argv", ["wherry", *map(str, parameters)])
        cli.main()

    return call


def test_a_task_that_succeeds_returns(call: WheelTask, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Databricks takes any `SystemExit` for a failure, also that of 0."""
    call("validate", file, "--var", f"LANDING={file.parent}/landing")
    assert "The definition of orders is valid." in capsys.readouterr().out


def test_a_task_that_fails_raises_once(call: WheelTask, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of the command. The reason is printed before, without a stack trace."""
    with pytest.raises(SystemExit) as ended:
        call("validate", file)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err.count("the parameter LANDING is missing"), printed.out) == (2, 1, "")
    assert "Traceback" not in printed.err


@pytest.mark.usefixtures("no_spark")
def test_the_ids_of_the_job_are_in_the_ledger_and_in_the_labels(file: Path) -> None:
    """They come by `--var`. A run without a job leaves both as they were."""
    landing = f"LANDING={file.parent}/landing"
    ids = ["--var=JOB_ID=41", "--var=JOB_RUN_ID=42"]
    assert cli.execute(["run", str(file), "--var", landing, *ids]) == 0
    (file.parent / "landing" / "b.json").write_text('{"id": 2, "amount": 2.5}\n')
    assert cli.execute(["run", str(file), "--var", landing]) == 0
    pipeline = load(file, variables={"LANDING": f"{file.parent}/landing"}).pipeline
    tail = open_state(pipeline)[1].tail
    found = {kind: [entry.body.get("job") for entry in tail if entry.kind == kind] for kind in ("acquire", "plan")}
    assert found == {kind: [{"id": "41", "run": "42"}, None] for kind in ("acquire", "plan")}
    second, first = Pipeline.of(pipeline).history.list(report=True)
    assert (first["report"]["job"], second["report"]["job"]) == ({"id": "41", "run": "42"}, {})
    tags = [each["userMetadata"] for each in DeltaTable(file.parent / "table").history() if "userMetadata" in each]
    assert [json.loads(tag)["wherry"][0].get("job") for tag in tags] == [None, {"id": "41", "run": "42"}]
