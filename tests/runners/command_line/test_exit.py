"""The process of a command prints its stacks on a signal, and its exit code does not depend on libraries."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.child import WHERRY, clean_environment

ROOT = Path(__file__).parents[3]
PROGRAM = """
import atexit, os, sys, threading


class Crash:
    def __del__(self, abort=os.abort):
        abort()


def finish():
    threading.main_thread().join()
    print("thread", file=sys.stderr)


crash = Crash()
atexit.register(lambda: sys.stderr.write("handler" + chr(10)))
threading.Thread(target=finish).start()
from runners.command_line.cli import main
main()
"""


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["validate", "missing.yaml"], 2)])
def test_a_crash_at_the_end_of_python_does_not_change_the_exit_code(words: list[str], code: int) -> None:
    """Threads, exit handlers and output are finished before."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert (done.stdout + done.stderr.removesuffix("thread\nhandler\n")).strip() != ""
    assert done.stderr.splitlines()[-2:] == ["thread", "handler"]


ENDING = """
import sys
from runners.model.errors import Owned
from runners.model.run_report import Report
from runners.pipeline import Pipeline


def run(pipeline, **how):
    if ends == "owned":
        raise Owned("orders is being run already.")
    return Report(pipeline="orders", run="r", status=ends)


ends = sys.argv.pop()
Pipeline.run = run
"""


@pytest.mark.parametrize(("ends", "code"), [("stopped", 3), ("owned", 4)])
def test_a_crash_at_the_end_of_python_does_not_change_the_exit_code_of_a_run(
    ends: str, code: int, tmp_path: Path
) -> None:
    """A scheduler can distinguish a stopped run, and a run that another run kept out."""
    file = tmp_path / "orders.yaml"
    file.write_text(
        "name: orders\norigin: {files: {path: landing, format: text}}\ndestinations: [{delta: {path: out}}]\n"
    )
    program = PROGRAM.replace("main()\n", ENDING + "main()\n")
    done = subprocess.run(
        [sys.executable, "-c", program, "run", file, "--quiet", ends],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-2:] == ["thread", "handler"]


STUCK = """
import signal
from runners.command_line.process_end import end_in_time, own_process

own_process()
with end_in_time() as hurry:
    hurry()
    print("asked", flush=True)
    signal.pause()
"""


def test_a_process_that_is_stuck_ends_soon_after_a_forced_stop() -> None:
    """It has the exit code of a stopped run, and says what becomes of the batches."""
    done = subprocess.run(
        [sys.executable, "-c", STUCK], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (3, "asked\n")
    assert "The next run finishes its open batches first." in done.stderr


FOLLOWS = """
name: orders
origin: {files: {path: "landing/*.json", format: json, schema: id long}}
destinations: [{delta: {path: out}}]
hooks: [{on: start, command: [sh, -c, "echo started > started"]}]
"""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")
def test_a_signal_prints_the_stacks_of_a_run_and_changes_nothing(tmp_path: Path) -> None:
    """Each thread has its place in Wherry's code. Afterwards the run follows its origin until it is stopped."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "orders.yaml").write_text(FOLLOWS)
    os.mkfifo(tmp_path / "started")
    started = os.open(tmp_path / "started", os.O_RDONLY | os.O_NONBLOCK)
    command = [*WHERRY, "run", "orders.yaml", "--follow"]
    environment = clean_environment(PYTHONPATH=str(ROOT))
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as run:
        assert select.select([started], [], [], 300)[0]
        run.send_signal(signal.SIGUSR1)
        assert run.stderr is not None
        late = threading.Timer(300, run.kill)
        late.start()
        said = "".join(itertools.takewhile(lambda line: "in main" not in line, run.stderr))
        late.cancel()
        run.send_signal(signal.SIGTERM)
        said += run.communicate(timeout=300)[1]
    os.close(started)
    assert run.returncode == 3, said
    assert said.count("(most recent call first):") > 1
    assert f'File "{ROOT}/runners/running/run.py", line ' in said
