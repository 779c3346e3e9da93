"""Hooks are called, retried and given up, and no run waits for them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runners.definitions.definition import load
from runners.definitions.document import DefinitionError
from runners.listeners.hook_runner import ROOM, HookRunner
from runners.model.run_report import Report, RunError
from runners.model.spec import Hook, make_end_facts, make_start_facts

START = make_start_facts("orders", "7f", "2026-01-01T00:00:00+00:00")
SECRETS = {"hunter2": "${secret:KEY}"}
ORDERS = "name: orders\norigin: {generate: {rows: 1}}\ndestinations: [{delta: {path: tables/orders}}]\n"


def notify_hook(hook: Hook, *events: Mapping[str, Any], patience: float = 30.0) -> list[float]:
    """Call a hook and wait for its end. Return the waits between its tries."""
    waits: list[float] = []
    hook_runner = HookRunner([hook], SECRETS, sleep=waits.append)
    for facts in events or [START]:
        hook_runner.notify(facts)
    hook_runner.await_hooks("orders", patience)
    return waits


class Web:
    """A local server. It records requests, and answers with one status after the other."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.answers: list[int] = []
        self.hangs = threading.Event()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.sent.append((self.path, json.loads(body)))
                status = web.answers.pop(0) if web.answers else 200
                if not status:
                    web.hangs.wait(60)
                    return
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.hangs.set()
    made.server.shutdown()
    made.server.server_close()


def test_a_webhook_gets_the_facts(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """They are JSON, and nothing is logged."""
    assert notify_hook(Hook(on="start", webhook=f"{web.address}/x?y=1")) == []
    assert web.sent == [("/x?y=1", dict(START))]
    assert caplog.messages == []


def test_a_command_gets_the_facts(tmp_path: Path) -> None:
    """They are on its standard input, and the main facts are in its environment. Its arguments pass no shell."""
    script = (
        "import json, os, sys; print(json.dumps([json.load(sys.stdin), os.environ['WHERRY_PIPELINE'], sys.argv[2:]])"
    )
    script += ", file=open(sys.argv[1], 'w'))"
    notify_hook(Hook(on=["start"], command=[sys.executable, "-c", script, str(tmp_path / "told"), "$HOME; exit 1"]))
    assert json.loads((tmp_path / "told").read_text()) == [dict(START), "orders", ["$HOME; exit 1"]]


def test_a_function_gets_a_copy_of_the_facts() -> None:
    """A change of the copy does not affect the next try."""
    found: list[Any] = []

    def page(facts: dict[str, Any]) -> None:
        found.append(dict(facts))
        facts.clear()
        if len(found) == 1:
            raise ValueError("not yet")

    assert notify_hook(Hook(on="start", python=page, attempts=2)) == [1.0]
    assert found == [dict(START)] * 2


def test_a_hook_is_called_only_for_its_events(web: Web) -> None:
    """A failed run is no start, and a stop is no success."""
    ends = [
        make_end_facts(Report(pipeline="orders", run="7f", status=status).json(), "")
        for status in ("succeeded", "failed", "stopped")
    ]
    notify_hook(Hook(on=["success", "stop"], webhook=web.address), START, *ends)
    assert [facts["event"] for _, facts in web.sent] == ["success", "stop"]


def test_a_run_that_refused_rows_is_reported_for_every_status(web: Web) -> None:
    """A hook with several matching events is called once. A run without refused rows does not match."""
    runs = [("succeeded", 3), ("failed", 2), ("succeeded", 0)]
    ends = [
        make_end_facts(Report(pipeline="orders", run="7f", status=status, nacked=rows).json(), "")
        for status, rows in runs
    ]
    notify_hook(Hook(on="refused", webhook=f"{web.address}/refused"), START, *ends)
    notify_hook(Hook(on=["success", "refused"], webhook=f"{web.address}/both"), START, *ends)
    assert [(path, facts["event"], facts["nacked"]) for path, facts in web.sent] == [
        ("/refused", "success", 3),
        ("/refused", "failure", 2),
        ("/both", "success", 3),
        ("/both", "failure", 2),
        ("/both", "success", 0),
    ]


def test_a_command_gets_the_counts_in_its_environment(tmp_path: Path) -> None:
    """A shell script needs no JSON."""
    line = (
        'echo "$WHERRY_PIPELINE $WHERRY_EVENT $WHERRY_READ $WHERRY_NACKED $WHERRY_BATCHES [$WHERRY_ERROR]" >> said.txt'
    )
    hook = Hook(on=["refused", "failure"], command=["sh", "-c", f"cd {tmp_path}; {line}"])
    fell = RunError(cls="WindowTripped", code="WINDOW", message="too many")
    notify_hook(
        hook,
        make_end_facts(Report(pipeline="orders", run="7f", status="succeeded", read=9, nacked=3, batches=2).json(), ""),
        make_end_facts(Report(pipeline="orders", run="7f", status="failed", error=fell).json(), ""),
    )
    assert (tmp_path / "said.txt").read_text().splitlines() == [
        "orders success 9 3 2 []",
        "orders failure 0 0 0 [WINDOW]",
    ]


def test_a_failed_hook_is_tried_again_with_longer_waits(web: Web) -> None:
    """This ends when it succeeds."""
    web.answers = [500, 503, 204]
    assert notify_hook(Hook(on="start", webhook=web.address, attempts=5, wait="2s")) == [2.0, 4.0]
    assert len(web.sent) == 3


def raise_error(facts: object) -> None:
    raise ValueError("no hunter2")


class Mute(Exception):
    """An exception without a message."""

    def __str__(self) -> str:
        raise ValueError("no words")


def raise_mute(facts: object) -> None:
    raise Mute


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (lambda web: {"webhook": f"{web.address}/hunter2"}, "it answered 302"),
        (lambda web: {"webhook": "http://127.0.0.1:1/hunter2"}, "it cannot be reached: Connection refused"),
        (lambda web: {"command": "/no/such/program"}, "it cannot be started: No such file or directory"),
        (
            lambda web: {"command": [sys.executable, "-c", "import sys; sys.exit('no\\nhunter2')"]},
            "it ended with exit code 1: ${secret:KEY}",
        ),
        (
            lambda web: {"command": [sys.executable, "-c", "raise SystemExit(3)"]},
            "it ended with exit code 3: it wrote nothing",
        ),
        (lambda web: {"python": raise_error}, "ValueError: no ${secret:KEY}"),
        (lambda web: {"python": sys.exit}, "SystemExit: "),
        (lambda web: {"python": raise_mute}, "Mute: a Mute that cannot be shown"),
        (lambda web: {"python": "wherry_no_such_module:page"}, "FunctionMissing: "),
    ],
)
def test_a_hook_that_fails_finally_is_counted_and_logged(
    web: Web, caplog: pytest.LogCaptureFixture, hook: Callable[[Web], dict[str, Any]], why: str
) -> None:
    """The log line has the reason, and no secret."""
    web.answers = [302, 302]
    made = hook(web)
    (kind,) = made
    assert notify_hook(Hook(on="start", attempts=2, **made)) == [1.0]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"orders: hooks[0] ({kind}) failed 1 time: {why}")
    assert "hunter2" not in caplog.text


def test_a_webhook_that_answers_too_late_is_given_up(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """This happens after its timeout. It may still have received the facts."""
    web.answers = [0]
    notify_hook(Hook(on="start", webhook=web.address, attempts=1, timeout="50ms"))
    assert "it gave no answer within 0.05 s" in caplog.text


def test_a_command_that_does_not_end_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    """It ends after its timeout."""
    notify_hook(Hook(on="start", command=[sys.executable, "-c", "input(); input()"], attempts=1, timeout="50ms"))
    notify_hook(Hook(on="start", command=["sleep", "60"], attempts=1, timeout="50ms"))
    assert "it did not end within 0.05 s" in caplog.messages[-1]


@pytest.mark.promise("CN-16")
def test_a_hook_that_hangs_delays_nothing(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """Every `notify` returns. Calls that do not fit in the queue are counted, and the other hooks get theirs."""
    hangs, began = threading.Event(), threading.Event()
    found: list[Any] = []

    def hang(facts: object) -> None:
        began.set()
        hangs.wait(60)

    hook_runner = HookRunner([Hook(on="start", python=hang), Hook(on="start", python=found.append)], {})
    hook_runner.notify(START)
    assert began.wait(30)
    for _ in range(ROOM + 5):
        hook_runner.notify(START)
    hook_runner.await_hooks("orders", 0.0)
    assert "orders: hooks[0] (python) has not finished, and the run does not wait for it any longer." in caplog.messages
    assert any("hooks[0] (python) failed 5 times: the queue was full" in each for each in caplog.messages)
    hangs.set()
    hook_runner.await_hooks("orders", 30.0)
    assert len(found) >= ROOM


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[{on: failure}]", "hooks[0]: expected one of command, webhook and python, got none of them"),
        ("[{webhook: 'http://x', command: y}]", "expected one of command, webhook and python, got command and webhook"),
        ("[{webhook: 'ftp://x'}]", "hooks[0].webhook: expected an address that begins with https:// or http://"),
        ("[{on: crash, command: y}]", "hooks[0].on: expected"),
        (
            "[{on: [], command: y}]",
            "failure, stop, refused or limit, got nothing",
        ),
        ("[{python: 'alerts'}]", "hooks[0].python: expected module:function"),
        ("[{command: y, wait: soon}]", "hooks[0].wait: expected"),
        ("[{command: y, attempts: 0}]", "hooks[0].attempts: expected at least 1, got 0"),
        ("[{command: '\"y'}]", "hooks[0].command: No closing quotation"),
        ("[{command: [notify, '--key=${secret:KEY}']}]", "hooks[0].command: expected a command without a secret"),
    ],
)
def test_an_invalid_hook_is_refused(tmp_path: Path, written: str, said: str) -> None:
    """The error names its place in the definition."""
    file = tmp_path / "orders.yaml"
    file.write_text(f"{ORDERS}hooks: {written}\n")
    with pytest.raises(DefinitionError) as caught:
        load(file, secrets={"KEY": "hunter2"})
    assert said in caught.value.message
    assert "hunter2" not in caught.value.message


def test_the_ledger_keeps_only_references_of_the_hooks_of_a_definition(tmp_path: Path) -> None:
    """Every address is secret. A function is in a file beside the definition."""
    file = tmp_path / "orders.yaml"
    hooks: Sequence[str] = ['{webhook: "${secret:URL}"}', "{on: [start, stop], python: 'alerts:page'}"]
    file.write_text(f"{ORDERS}hooks: [{', '.join(hooks)}]\n")
    definition = load(file, secrets={"URL": "https://hooks.example/T0/hunter2"})
    first, second = definition.pipeline.hooks
    assert (first.webhook, first.moments) == ("https://hooks.example/T0/hunter2", ("failure",))
    assert (second.python, second.moments) == (str(tmp_path / "alerts:page"), ("start", "stop"))
    assert "hunter2" not in definition.text + repr(definition.pipeline.hooks)
    assert load(file, needs_secrets=False).pipeline.hooks[0].webhook == "${secret:URL}"
