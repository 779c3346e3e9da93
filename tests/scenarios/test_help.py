"""The examples in `--help` work when they are typed one after another."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from runners.command_line.commands import wherry
from runners.definitions import first_pipeline
from runners.definitions.definition import load
from runners.model.entry import Entry
from runners.state.journal import Journal
from runners.state.location import StateLocation
from runners.state.process_locks import identify_host
from tests.runners.command_line.test_help_sections import ALL, find_command

DEFINITION = """
name: orders
origin: {generate: {rows: 600}}
destinations:
  - delta: {path: tables/orders}
  - {name: latest, delta: {path: tables/latest}}
dlq: {window: 1000, threshold: 100}
"""


CASES = "cases: [{name: one order, rows: [{id: 1}], delivered: {orders: 1, latest: 1}}]"

FILES = """
name: orders
origin: {files: {path: "*.json", format: json, schema: "id long", metadata: [file_name]}}
destinations: [delta: {path: tables/orders}]
"""

REFUSES = """
name: orders
origin: {files: {path: "*.json", format: json, schema: "id string"}}
stages: [{cast: {id: long}}]
destinations: [delta: {path: tables/orders}]
dlq: {window: 0}
"""

RUN, ROW = "3f9a", "5f0c9a/17"
"""The run and the refused row in the examples."""
WANTS_A_ROW = ("dlq", "explain")
"""The command that needs a refused row."""
REDOES_A_FILE = ("redo",)
"""The command that needs a file that was edited after a run."""
CHANGES_A_RUN = ("dlq", "config")
"""The command that needs a run in progress."""
STAYS = ("warm",), ("serve",), ("mcp",)
"""The commands that end when their input ends or they are interrupted. `test_warm.py`, `test_serve_command.py` and
`test_mcp_server.py` run them."""


LEAVES = [words for words in ALL[1:] if not isinstance(find_command(words), click.Group)]


def find_examples(words: tuple[str, ...]) -> list[str]:
    """Return the examples in the help of a command."""
    return re.findall(r"For example:  wherry (.*)", find_command(words).help or "")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_the_help_of_every_command_has_an_example(words: tuple[str, ...]) -> None:
    """It has exactly one example, and the example uses the command."""
    (example,) = find_examples(words)
    assert tuple(shlex.split(example)[: len(words)]) == words


def invoke(typed: list[str]) -> Result:
    """Invoke a typed command, check that it exits with 0, and return its result."""
    result = CliRunner().invoke(wherry, typed, standalone_mode=False)
    assert (result.exception, result.return_value or 0) == (None, 0), (typed, result.output)
    return result


def type_example(words: tuple[str, ...]) -> list[str]:
    """Return the example as a user types it, with ids of a real run and row and with `--yes`. `schedule` gets `--plan`,
    because it would not end otherwise."""
    (example,) = find_examples(words)
    run = json.loads(invoke(["runs", "orders.yaml", "--json"]).stdout)["runs"][0]["run"][:8] if RUN in example else ""
    row = json.loads(invoke(["dlq", "show", "orders.yaml", "--json"]).stdout)["rows"][0]["id"] if ROW in example else ""
    sure = ["--yes"] if any("--yes" in parameter.opts for parameter in find_command(words).params) else []
    planned = ["--plan"] if words == ("schedule",) else []
    return [*shlex.split(example.replace(RUN, run).replace(ROW, row)), *sure, *planned]


@pytest.mark.spark
def test_all_examples_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object) -> None:
    """They run one after another in the order of the command list."""
    for words in list_in_order(tmp_path, monkeypatch):
        invoke(type_example(words))


@pytest.mark.long
@pytest.mark.spark
def test_each_command_prints_one_json_object_with_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Each example is run again with `--json`."""
    for words in list_in_order(tmp_path, monkeypatch):
        document = json.loads(invoke([*type_example(words), "--json"]).stdout)
        assert document["version"] == 1, words
        assert "error" not in document or document["error"] is None, words


def list_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Yield the commands, each at a moment when its example works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "runners.command_line.trial_commands.make", functools.partial(first_pipeline.make, files=1, rows=50)
    )
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    (tmp_path / "orders.test.yaml").write_text(CASES)
    (tmp_path / "new.yaml").write_text(DEFINITION)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(f"{DEFINITION}schedule: {{every: 5m}}\n")
    for words in LEAVES:
        if words == REDOES_A_FILE:
            with monkeypatch.context() as patch:
                edit_a_file(tmp_path / "files", patch)
                yield words
        elif words == WANTS_A_ROW:
            with monkeypatch.context() as patch:
                refuse_a_row(tmp_path / "refused", patch)
                yield words
        elif words not in STAYS:
            with record_running() if words == CHANGES_A_RUN else nullcontext():
                yield words


def edit_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with a pipeline that has delivered a file, and edit the file."""
    folder.mkdir()
    (folder / "orders.yaml").write_text(FILES)
    (folder / "monday.json").write_text('{"id": 1}\n')
    monkeypatch.chdir(folder)
    invoke(["run", "orders.yaml"])
    (folder / "monday.json").write_text('{"id": 2}\n{"id": 3}\n')


def refuse_a_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with a pipeline that has refused a row."""
    folder.mkdir()
    (folder / "orders.yaml").write_text(REFUSES)
    (folder / "monday.json").write_text('{"id": "one"}\n')
    monkeypatch.chdir(folder)
    invoke(["run", "orders.yaml"])


@contextmanager
def record_running() -> Iterator[None]:
    """While the context is open, let the ledger record a run in progress."""
    journal = Journal(StateLocation.of(load("orders.yaml").pipeline).open_ledger(None))
    before = journal.state.ended
    journal.acquire({**vars(identify_host()), "pipeline": "orders", "run": "r"})
    yield
    journal.record(Entry(kind="release", body=before or {}))
