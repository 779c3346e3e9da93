"""No JVM outlives the Python process that started it for long, however that process ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STARTER = """
import os, sys
from contextlib import nullcontext
from origins.spark_private import launch_jvm

launch_jvm({}, nullcontext(), 2, ["sh", "-c", "echo $$; exec sleep 300"])
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can watch processes")
def test_a_jvm_that_is_busy_is_killed_soon_after_its_starter() -> None:
    """It does not notice by itself."""
    command = [sys.executable, "-c", STARTER]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    jvm = os.pidfd_open(int(process.stdout.readline()))
    process.kill()
    process.wait()
    process.stdout.close()
    gone = bool(select.select([jvm], [], [], 10)[0])
    if not gone:
        signal.pidfd_send_signal(jvm, signal.SIGKILL)
    os.close(jvm)
    assert gone
