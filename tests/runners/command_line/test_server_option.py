"""`--server`: a command prints the same over a server as beside the definition, and ends with the same code."""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from origins.lazy import SparkSession
from runners.command_line import cli
from runners.command_line.help_sections import SERVER_VARIABLE
from runners.command_line.options import TOKEN_VARIABLE
from runners.service.serving import open_tokens
from tests.runners.service.far import serve, write_folder


@dataclass(frozen=True)
class Printed:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def type_words(*words: str) -> Printed:
    """Type a command."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.execute(words)
    return Printed(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `write_folder`. Tests copy it."""
    folder = tmp_path_factory.mktemp("written")
    write_folder(folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two pipelines, in which commands are typed."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server of the folder, whose token is in the environment."""
    with serve(folder) as (address, token):
        monkeypatch.setenv(TOKEN_VARIABLE, token)
        yield address


@pytest.fixture(scope="module")
def looked(written: Path) -> Iterator[str]:
    """The address of a server of a folder that no test changes, in which commands are typed."""
    with serve(written) as (address, token), pytest.MonkeyPatch.context() as patch:
        patch.chdir(written)
        patch.setenv(TOKEN_VARIABLE, token)
        yield address


LOOKS = [
    "status orders.yaml",
    "status items.yaml",
    "status --all",
    "status --select orders+",
    "runs orders.yaml",
    "runs orders.yaml --status failed",
    "runs orders.yaml last",
    "quality orders.yaml",
    "offsets orders.yaml",
    "offsets items.yaml",
    "dlq show orders.yaml",
    "dlq orders.yaml",
    "dlq show orders.yaml --limit 1 --code PARSE",
    "dlq show orders.yaml --text nowhere",
    "dlq show items.yaml",
    "dlq summary orders.yaml",
    "dlq summary orders.yaml --since 2026-01-01T00:00:02",
    "dlq config orders.yaml",
    "dlq replay orders.yaml --reason again",
    "stop orders.yaml",
]
"""Commands that change nothing."""
WRONG = [
    "runs orders.yaml nowhere",
    "offsets orders.yaml --lane 0 --offset 5 --reason r --yes",
    "offsets orders.yaml --back 1 --yes",
    "dlq config orders.yaml window=1 --reason r",
    "dlq config orders.yaml other=1 --reason r",
    "dlq config orders.yaml window=x --reason r",
    "dlq discard orders.yaml --reason r",
    "backfill orders.yaml --reason r",
    "backfill orders.yaml --from 900 --reason r",
    "resume orders.yaml",
]
"""Commands that are refused."""
CHANGES = [
    "offsets orders.yaml --back 1 --reason r --yes --json",
    "offsets orders.yaml --to 2026-01-01 --reason r --yes",
    "offsets orders.yaml --to-beginning --reason r --yes",
    "dlq discard orders.yaml --code CAST --reason r --yes --json",
    "dlq discard orders.yaml --text nowhere --reason r --yes",
    "resume orders.yaml --reason r",
    "resume orders.yaml --reason r --json",
]


def drop_endings(text: str) -> str:
    """Return the text with the name of each pipeline in place of its file."""
    return re.sub(r"\b(orders|items)\.yaml\b(?!:)", r"\1", text)


@pytest.mark.parametrize("line", LOOKS)
def test_a_look_prints_the_same_over_a_server(looked: str, line: str) -> None:
    """Hints name the pipeline in place of the file."""
    here, there = type_words(*line.split()), type_words(*line.split(), "--server", looked)
    assert (there.code, drop_endings(there.out)) == (here.code, drop_endings(here.out))
    assert (here.code, there.err) == (0, drop_endings(here.err))


@pytest.mark.parametrize("line", [each for each in LOOKS if "dlq replay" not in each])
def test_a_look_prints_the_same_json_over_a_server(looked: str, line: str) -> None:
    """Of the last run in a status, a server has the facts that a person is shown."""
    here, there = (
        drop_last_run(json.loads(drop_endings(type_words(*line.split(), "--json", *more).out)))
        for more in ((), ("--server", looked))
    )
    assert there == here


def drop_last_run(document: Any) -> Any:
    """Return the document without the facts of a last run that a server leaves out."""
    for each in (document, *document.get("pipelines", ())):
        if each.get("last_run"):
            names = ("run", "status", "reason", "at", "batches", "read", "filtered", "nacked", "error", "snapshot")
            each["last_run"] = {name: each["last_run"][name] for name in names}
    return document


@pytest.mark.parametrize("line", WRONG)
def test_a_refused_command_ends_with_the_same_code_over_a_server(looked: str, line: str) -> None:
    """Nothing is changed by it."""
    before = type_words("offsets", "orders.yaml", "--json").out
    here, there = type_words(*line.split()), type_words(*line.split(), "--server", looked)
    assert (here.code, there.code) == (2, 2)
    assert there.err.strip()
    assert type_words("offsets", "orders.yaml", "--json").out == before


@pytest.mark.parametrize("line", CHANGES)
def test_a_change_over_a_server_leaves_what_a_change_here_leaves(
    written: Path, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal folders are changed: one by a command, and one by the same command over a server."""
    left: list[tuple[object, ...]] = []
    for name in ("here", "there"):
        folder = shutil.copytree(written, tmp_path / name)
        monkeypatch.chdir(folder)
        with serve(folder) as (address, token):
            monkeypatch.setenv(TOKEN_VARIABLE, token)
            server = ("--server", address) if name == "there" else ()
            done = type_words(*line.split(), *server)
        after = [type_words(*words.split(), "--json").out for words in ("offsets orders.yaml", "dlq show orders.yaml")]
        left.append((done.code, drop_endings(done.out), drop_endings(done.err), *after))
    assert left[0] == left[1]
    assert left[0][0] == 0


def test_the_schedule_of_a_server_is_shown_held_and_resumed(address: str, folder: Path) -> None:
    """The server has one folder, so no directory is given."""
    plan, server = type_words("schedule", ".", "--plan", "--json"), ("--server", address)
    assert json.loads(type_words("schedule", "--plan", "--json", *server).out) == json.loads(plan.out)
    held = type_words("schedule", "--pause", "items", "--reason", "a holiday", *server)
    assert (held.code, held.out) == (0, "items is paused: a holiday.\n")
    assert json.loads(type_words("schedule", ".", "--plan", "--json").out)["scheduled"][0]["paused"] == "a holiday"
    assert type_words("schedule", "--resume", "items", *server).out == "items is scheduled again.\n"
    assert type_words("schedule", "--plan", *server) == type_words("schedule", ".", "--plan")


def test_a_folder_with_a_broken_definition_ends_with_the_same_code(address: str, folder: Path) -> None:
    """The message is the same."""
    (folder / "broken.yaml").write_text("name: broken\norigin: {nowhere: {}}\ndestinations: []\n")
    for line in ("status --all", "schedule --plan"):
        here = type_words(*line.replace("--plan", ". --plan").split())
        assert type_words(*line.split(), "--server", address) == here
        assert here.code == 2


REFUSED = [
    "dlq show orders --where id=1",
    "dlq show orders --reveal",
    "dlq explain orders plan/1 --reveal",
    "dlq replay orders --reason r --with fix.sql",
    "dlq replay orders --reason r --set amount=1",
    "dlq replay orders --resume",
    "dlq replay orders --give-up --reason r",
    "dlq export orders --to rows.csv",
    "dlq merge orders",
    "run orders --follow",
    "run orders --moved orders --reason r",
    "run orders --set dlq.window=0",
    "run --all",
    "run orders --var A=b",
    "runs orders --archived",
    "backfill orders --reason r --where id=1",
    "report orders",
    "find orders --where id=1",
    "preview orders",
    "compare orders items",
    "schedule",
    "schedule . --plan",
    "schedule --plan --at-once 3",
    "status pipelines --all",
    "kinds",
    "explain WINDOW",
    "doctor",
    "init shop",
    "demo shop",
    "serve .",
    "warm",
    "validate orders.yaml",
    "test orders.yaml",
]
"""Commands that no server does."""


def test_what_a_server_cannot_do_is_refused_before_anything_is_done(folder: Path) -> None:
    """No server is asked: there is none at this address. The message says what to do."""
    advice = re.compile(r"where (the definition|that) is|Leave out|one pipeline at a time|Give --plan")
    for line in REFUSED:
        refused = type_words(*line.split(), "--server", "http://127.0.0.1:9")
        assert (refused.code, bool(advice.search(refused.err))) == (2, True), line


def test_the_environment_names_the_server_for_commands_that_it_can_do(
    address: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands about a state that a server cannot do are refused. Commands without a state are done here."""
    shown = type_words("runs", "orders", "--server", address)
    monkeypatch.setenv(SERVER_VARIABLE, address)
    assert type_words("runs", "orders") == shown
    refused = type_words("dlq", "merge", "orders.yaml")
    assert refused.code == 2
    assert "without WHERRY_SERVER" in refused.err
    assert type_words("validate", "orders.yaml").code == 0
    assert type_words("explain", "WINDOW").code == 0


def test_without_a_name_the_error_names_a_pipeline_of_the_server(address: str) -> None:
    """There are two."""
    several = type_words("status", "--server", address)
    assert several.code == 2
    assert "items, orders" in several.err
    assert "wherry status items" in several.err


def test_without_a_name_the_only_pipeline_of_a_server_is_meant(address: str, folder: Path) -> None:
    """It is as in a folder with one definition."""
    (folder / "items.yaml").unlink()
    assert type_words("status", "--server", address).out == type_words("status", "orders", "--server", address).out


def test_a_name_that_no_pipeline_has_is_a_wrong_command(address: str) -> None:
    """With JSON, the error is a document."""
    wrong = type_words("status", "nobody", "--json", "--server", address)
    assert wrong.code == 2
    assert json.loads(wrong.out)["error"]["code"] == "NOT_FOUND"


def test_a_server_that_cannot_be_reached_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the address."""
    monkeypatch.setenv(TOKEN_VARIABLE, "secret-token")
    with socket.socket() as taken:  # bound and not listening, so that nobody answers there
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        failed = type_words("status", "orders", "--server", address)
    assert failed.code == 1
    assert address in failed.err
    assert "secret-token" not in failed.err


@pytest.mark.parametrize("token", ["", "wrong-token", "line\nbreak"])
def test_a_wrong_token_ends_with_2_and_is_never_shown(
    address: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that cannot be sent is refused here."""
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    wrong = type_words("status", "orders", "--json", "--server", address)
    assert wrong.code == 2
    assert "token" in wrong.err.lower()
    assert not token or token not in wrong.err + wrong.out


@pytest.mark.parametrize("line", ["stop orders", "run orders"])
def test_a_missing_right_ends_with_2(address: str, folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token for reading changes nothing."""
    monkeypatch.setenv(TOKEN_VARIABLE, open_tokens(folder).add("reader", "read"))
    assert type_words("status", "orders", "--server", address).code == 0
    refused = type_words(*line.split(), "--server", address)
    assert refused.code == 2
    assert "needs the right to" in refused.err


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:8400/#token=secret",
        "http://alice:secret@127.0.0.1:8400",
        "ftp://secret",
        "http://[secret",
        "http://127.0.0.1:secret",
    ],
)
def test_an_address_is_a_host_and_a_port_and_nothing_of_another_is_shown(
    folder: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `wherry serve` prints for a browser has a token."""
    monkeypatch.setenv(TOKEN_VARIABLE, "some-token")
    wrong = type_words("status", "orders", "--json", "--server", address)
    assert wrong.code == 2
    assert "http://127.0.0.1:8400" in wrong.err
    assert "secret" not in wrong.err + wrong.out


REQUIRE = """
name: sums
origin:
  files: {path: "landing/orders/*.json", format: json, schema: "id long, amount long"}
stages:
  - require: {where: "amount < 50"}
destinations:
  - delta: {path: tables/sums}
dlq: {window: 0}
"""
DECIDED = [
    ("audit sums.yaml", 0),
    ("repair sums.yaml --reason r --yes", 0),
    ("dlq replay sums.yaml --reason r --dry-run", 0),
    ("redo sums.yaml --file 1.json --reason r --yes", 0),
    ("redo sums.yaml --file nowhere.json --reason r --yes", 2),
]


@pytest.mark.spark
def test_what_needs_spark_is_shown_the_same_over_a_server(folder: Path, address: str, spark: SparkSession) -> None:
    """The server processes rows, and then both look at the same state."""
    (folder / "sums.yaml").write_text(REQUIRE)
    run = type_words("run", "sums", "--json", "--quiet", "--server", address)
    report = json.loads(run.out)
    assert (run.code, report["delivered"], report["nacked"]) == (0, {"sums": 2}, 1)
    (row,) = json.loads(type_words("dlq", "show", "sums.yaml", "--json").out)["rows"]
    explained = f"dlq explain sums.yaml {row['id']}"
    for line, code in [(explained, 0), (f"{explained} --json", 0), *DECIDED]:
        here, there = type_words(*line.split()), type_words(*line.split(), "--server", address)
        assert (here.code, there.code) == (code, code), line
        assert drop_seconds(there.out) == drop_seconds(here.out)
    again = type_words("dlq", "replay", "sums", "--reason", "r", "--yes", "--json", "--quiet", "--server", address)
    assert (again.code, json.loads(again.out)["nacked"]) == (0, 1)
    past = ("backfill", "sums", "--again", "--reason", "r", "--yes", "--json", "--quiet")
    assert json.loads(type_words(*past, "--server", address).out)["delivered"] == {"sums": 2}


def drop_seconds(text: str) -> str:
    """Return the text with names of pipelines in place of files, without how long a run took."""
    return re.sub(r"after [\d.]+ s", "after", re.sub(r"\bsums\.yaml\b", "sums", text))
