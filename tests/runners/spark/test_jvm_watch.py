"""No JVM outlives the Python process that started it for long, however that process ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.model.entry import OwnerBody
from runners.state.process_locks import end_orphan
from tests.child import list_descendants
from tests.pace import measure_pace

ROOT = Path(__file__).parents[3]
STARTER = """
import json, sys
from contextlib import nullcontext, suppress
from origins.spark_private import launch_jvm
from runners.state.process_locks import identify_host

JVM = 'echo $$; : > "$_PYSPARK_DRIVER_CONN_INFO_PATH"; while sleep 1; do :; done'
with suppress(EOFError):  # the file is empty
    launch_jvm({}, nullcontext(), 2, ["sh", "-c", JVM, "sh", "org.apache.spark.deploy.SparkSubmit"])
print(json.dumps(vars(identify_host())), flush=True)
sys.stdin.read()
"""
"""A process with a busy program in place of its JVM. The launch is over when it says so, and then a watcher stands."""
LONGEST = 300.0
"""The seconds after which a watcher has failed on any machine, and in which the program does not end by itself."""
pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can watch processes")


class Started:
    """A process that started a JVM."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", STARTER]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._number = int(self.process.stdout.readline())
        self._jvm = os.pidfd_open(self._number)
        self.owner = OwnerBody(**json.loads(self.process.stdout.readline()), run="r")

    def list_watchers(self) -> list[int]:
        """Return the processes that this process started beside the JVM."""
        jvm = {self._number, *list_descendants(self._number)}
        return [each for each in list_descendants(self.process.pid) if each not in jvm]

    def is_jvm_gone(self, seconds: float) -> bool:
        """Whether the JVM ends within these seconds."""
        return bool(select.select([self._jvm], [], [], seconds)[0])

    def end_cleanly(self) -> None:
        """Let the process reach its end, and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait() == 0

    def close(self) -> None:
        """End the remaining processes."""
        with self.process, contextlib.suppress(ProcessLookupError):
            self.process.kill()
            signal.pidfd_send_signal(self._jvm, signal.SIGKILL)
        os.close(self._jvm)


@pytest.fixture
def started() -> Iterator[Started]:
    """Return a process that started a JVM. Both end with the test."""
    made = Started()
    yield made
    made.close()


def test_the_jvm_of_a_process_that_was_killed_is_killed_at_once(started: Started) -> None:
    """It has no time to end by itself, because the next run may begin."""
    assert not started.is_jvm_gone(0)
    pace = measure_pace()
    started.process.kill()
    started.process.wait()
    killed = time.monotonic()
    assert started.is_jvm_gone(LONGEST)
    assert time.monotonic() - killed <= 3 * pace


def test_a_jvm_that_is_busy_is_killed_soon_after_a_clean_end(started: Started) -> None:
    """It gets time to end by itself. Ten seconds later it is gone."""
    pace = measure_pace()
    started.end_cleanly()
    ended = time.monotonic()
    assert not started.is_jvm_gone(3)
    assert started.is_jvm_gone(LONGEST)
    assert time.monotonic() - ended <= 10 * pace


def test_the_next_run_ends_a_jvm_whose_watcher_was_killed_too(started: Started) -> None:
    """Python may be killed by its name, which the watcher has too. The JVM goes on until another run takes over."""
    for each in (*started.list_watchers(), started.process.pid):
        os.kill(each, signal.SIGKILL)
    started.process.wait()
    assert not started.is_jvm_gone(1)
    end_orphan(started.owner)
    assert started.is_jvm_gone(0)
