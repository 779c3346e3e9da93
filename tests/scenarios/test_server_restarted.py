"""A Spark Connect server is killed during a batch and started again on the same port."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]


def run_restarted(folder: Path, how: str) -> Any:
    """Return the results of a run with such a server, and of the next run."""
    command = [sys.executable, "-m", "tests.scenarios.server_restarted", str(folder), how]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.promise("SS-23", "CD-22")
def test_a_run_survives_its_server(tmp_path: Path) -> None:
    """Wherry made the session. The batch is tried again in another session, and each row is delivered once."""
    said = run_restarted(tmp_path, "ours")
    assert said["killed"] == 1, said
    assert said["first"]["status"] == "succeeded", said
    assert said["rests"], said
    assert {rest.partition(":")[0] for rest in said["rests"]} == {"2"}
    assert (said["ids"], said["second"]["delivered"]) == ([1, 2, 3], {"orders": 0})
    assert (said["balanced"], said["problems"]) == (True, [])


@pytest.mark.promise("SS-23", "CD-22")
def test_a_run_with_a_given_session_ends_with_the_session(tmp_path: Path) -> None:
    """The error has the code `SESSION` and names the remedy. The next run delivers the rest, and each row is there
    once."""
    said = run_restarted(tmp_path, "given")
    assert (said["killed"], said["first"]["status"], said["first"]["code"]) == (1, "failed", "SESSION"), said
    assert "run again" in said["first"]["said"]
    assert (said["second"]["status"], said["ids"]) == ("succeeded", [1, 2, 3]), said
    assert (said["balanced"], said["problems"]) == (True, [])
