"""`wherry serve` as a process: its tokens, its signals, its exit codes, and its end in the middle of work."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.command_line import cli
from tests.runners.service.served import SCHEDULED, write_pipeline

COUNT = 300
"""How many batches the run has that a kill interrupts."""
MAIN = "from runners.command_line.cli import main; main()"


@contextlib.contextmanager
def start(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start a server of a folder. Yield its process, its address and its token."""
    command = [sys.executable, "-c", MAIN, "serve", str(folder), "--port", "0", "--grpc-port", "0", "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            facts = json.loads("".join(itertools.takewhile(lambda line: line != "}\n", process.stdout)) + "}")
            yield process, facts["address"], facts["token"]
        finally:
            process.kill()


def ask(address: str, path: str, token: str, body: Any = None, key: str = "k") -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Idempotency-Key": key}
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, sent, headers)  # noqa: S310 -- the server's own address
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_server_is_asked_and_ends_with_a_signal(tmp_path: Path) -> None:
    """Its token ends with it: the next server does not know it. The exit code is 0."""
    write_pipeline(tmp_path, "items", SCHEDULED)
    with start(tmp_path) as (process, address, token):
        status, found = ask(address, "/v1/pipelines", token)
        assert (status, [each["pipeline"] for each in found["pipelines"]]) == (200, ["items"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    with start(tmp_path) as (process, address, _):
        assert ask(address, "/v1/pipelines", token)[0] == 401
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, 3)


def test_a_key_counts_after_the_server_was_killed(tmp_path: Path) -> None:
    """The retry gets the first answer from the next server."""
    write_pipeline(tmp_path, "orders", rows={1: 1})
    token = make_token(tmp_path, "anna", "--right", "admin")
    body = {"reason": "look", "beginning": True, "preview": True}
    with start(tmp_path) as (process, address, _):
        first = ask(address, "/v1/pipelines/orders/offsets", token, body)
        process.kill()
        process.wait(30)
    with start(tmp_path) as (_, address, _):
        assert ask(address, "/v1/pipelines/orders/offsets", token, body) == first
        assert ask(address, "/v1/pipelines/orders/offsets", token, {**body, "reason": "x"})[0] == 409
        assert ask(address, "/v1/tasks", token) == (200, {"tasks": []})
    log = (tmp_path / ".wherry/server/audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["who"] for line in log] == ["anna", "anna"]


def make_token(folder: Path, name: str, *words: str) -> str:
    """Return a new token."""
    command = [sys.executable, "-c", MAIN, "serve", str(folder), "--new-token", name, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_token_is_made_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only its hash is kept. A running server would notice both."""
    words = ["--new-token", "anna", "--only", "orders, items", "--right", "operate", "--lasts", "30d", "--json"]
    assert cli.execute(["serve", str(tmp_path), *words]) == 0
    token = json.loads(capsys.readouterr().out)["token"]
    text = (tmp_path / ".wherry/server/tokens.json").read_text()
    (kept,) = json.loads(text)
    assert token not in text
    assert (kept["name"], kept["right"], kept["pipelines"]) == ("anna", "operate", ["orders", "items"])
    assert kept["expires"]
    for removed in (True, False):
        assert cli.execute(["serve", str(tmp_path), "--remove-token", "anna", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["removed"] is removed


@pytest.mark.parametrize(
    "words",
    [
        ["--new-token", "anna", "--only", ""],
        ["--new-token", "anna", "--only", " , "],
        ["--new-token", "owner"],
        ["--new-token", "a\nb"],
        ["--new-token", "anna", "--right", "root"],
        ["--new-token", "anna", "--lasts", "soon"],
        ["--certificate", "cert.pem"],
        ["--key", "key.pem"],
        ["--port", "65536"],
        ["--at-once", "0"],
        ["--group", "warehouse=0"],
    ],
)
def test_wrong_words_are_refused(tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An empty list of pipelines does not mean all of them. No token is made."""
    assert cli.execute(["serve", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err
    assert not (tmp_path / ".wherry/server/tokens.json").exists()


def test_a_port_in_use_and_a_missing_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert cli.execute(["serve", str(tmp_path), "--port", port, "--grpc-port", "0"]) == 2
        assert f"127.0.0.1:{port}" in capsys.readouterr().err
    assert cli.execute(["serve", str(tmp_path / "missing")]) == 2


@pytest.mark.spark
@pytest.mark.long
def test_a_run_whose_server_was_killed_goes_on_at_the_next_server(tmp_path: Path) -> None:
    """The first server is killed while the run works. Each row is there once."""
    write_pipeline(tmp_path, "orders")
    for number in range(COUNT):
        write_pipeline(tmp_path, "orders", rows={number: number})
    token = make_token(tmp_path, "anna", "--right", "operate")
    path = "/v1/pipelines/orders/runs"
    with start(tmp_path) as (process, address, _):
        status, task = ask(address, path, token, {"reason": "first"})
        assert status == 202
        for _ in range(600):
            found = ask(address, f"/v1/tasks/{task['task']}?wait=0.1", token)[1]
            lanes = ask(address, "/v1/pipelines/orders/offsets", token)[1]["lanes"]
            if lanes and lanes["0"]["number"] > 1:
                break
        assert found["ended_at"] is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
    with start(tmp_path) as (process, address, _):
        assert ask(address, path, token, {"reason": "first"}) == (202, task)
        status, second = ask(address, path, token, {"reason": "second"}, key="k2")
        for _ in range(20):
            ended = ask(address, f"/v1/tasks/{second['task']}?wait=20", token)[1]
            if ended["ended_at"]:
                break
        assert ended["state"] == "succeeded", ended
        lane = ask(address, "/v1/pipelines/orders", token)[1]["lanes"]["0"]
        assert lane["offset"]["file"] == f"{COUNT - 1}.json"
        assert lane["number"] in (COUNT, COUNT + 1)  # the number of a plan that was cancelled is not given again
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    from deltalake import DeltaTable

    ids = DeltaTable(tmp_path / "tables/orders").to_pyarrow_table().column("id").to_pylist()
    assert sorted(ids) == list(range(COUNT))
