"""A test's server ends with the process that started it, and reports why it did not start."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.child import Child, clean_environment, find_free_ports, list_descendants

NEVER = "import time; print('ready', flush=True); time.sleep(3600)"


def test_a_child_reports_when_it_is_ready(tmp_path: Path) -> None:
    """`wait_for` searches the program's log for a pattern."""
    child = Child([sys.executable, "-c", NEVER], tmp_path / "log")
    assert child.wait_for("rea(..)").group(1) == "dy"
    assert child.is_alive()
    child.end()
    assert not child.is_alive()


def test_a_child_that_ends_before_it_is_ready_shows_its_log(tmp_path: Path) -> None:
    """The error reports the exit code and the log."""
    child = Child([sys.executable, "-c", "print('no port'); raise SystemExit(3)"], tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"(?s)ended with 3.*no port"):
        child.wait_for("ready")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties one process to another")
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """The parent has no chance to end the child, because it is killed with SIGKILL."""
    code = f"""
import sys, time
from pathlib import Path
from tests.child import Child
child = Child([sys.executable, "-c", {NEVER!r}], Path({str(tmp_path / "log")!r}))
child.wait_for("ready")
print(child.pid, flush=True)
time.sleep(3600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as said:
        child = int(said.readline())
        assert list_descendants(parent.pid) == [child]
        handle = os.pidfd_open(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    ended, _, _ = select.select([handle], [], [], 60)
    os.close(handle)
    assert ended == [handle]


def test_a_child_does_not_inherit_the_tests_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not inherit a developer's AWS profile either."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    found = clean_environment(SPARK_HOME="/spark")
    assert {name for name in found if name.startswith(("SPARK_", "AWS_"))} == {"SPARK_HOME"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which ports connections get")
def test_a_free_port_is_none_that_a_connection_gets() -> None:
    """Otherwise a connection could take the port before a server listens there."""
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
        given = client.getsockname()[1]
    found = find_free_ports(50)
    assert len(set(found)) == 50
    assert max(found) < given
