"""No JVM outlives the Python process that started it for long, however that process ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pace import measure_pace

ROOT = Path(__file__).parents[3]
STARTER = """
import signal
from contextlib import nullcontext, suppress
from origins.spark_private import launch_jvm

JVM = 'echo $$; : > "$_PYSPARK_DRIVER_CONN_INFO_PATH"; exec sleep 3600'
with suppress(EOFError):  # the file is empty
    launch_jvm({}, nullcontext(), 2, ["sh", "-c", JVM])
print("launched", flush=True)
signal.pause()
"""
"""A process with a busy program in place of its JVM. The launch is over when it says so, and then a watcher stands."""
LONGEST = 300.0
"""The seconds after which a watcher has failed on any machine, and in which the program does not end by itself."""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can watch processes")
def test_a_jvm_that_is_busy_is_killed_after_its_starter() -> None:
    """It does not notice by itself. Ten seconds later it is gone."""
    command = [sys.executable, "-c", STARTER]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    jvm = os.pidfd_open(int(process.stdout.readline()))
    launched = process.stdout.readline()
    alive = not select.select([jvm], [], [], 0)[0]
    pace = measure_pace()
    process.kill()
    process.wait()
    killed = time.monotonic()
    process.stdout.close()
    gone = bool(select.select([jvm], [], [], LONGEST)[0])
    seconds = time.monotonic() - killed
    if not gone:
        signal.pidfd_send_signal(jvm, signal.SIGKILL)
    os.close(jvm)
    assert launched == "launched\n"
    assert alive
    assert gone
    assert seconds <= 10 * pace
