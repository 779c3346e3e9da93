"""A Spark Connect server that is killed in the middle of a batch, and started anew at the same port."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]


def restarted(folder: Path, how: str) -> Any:
    """What came of a run with such a server, and of the next one."""
    command = [sys.executable, "-m", "tests.scenarios.server_restarted", str(folder), how]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.promise("SS-23", "CD-22")
def test_a_run_outlives_its_server(tmp_path: Path) -> None:
    """Where Wherry made the session: the batch rests, goes again in another one, and each row is there once."""
    said = restarted(tmp_path, "ours")
    assert said["killed"] == 1, said
    assert said["first"]["status"] == "succeeded", said
    assert said["rests"], said
    assert {rest.partition(":")[0] for rest in said["rests"]} == {"2"}
    assert (said["ids"], said["second"]["delivered"]) == ([1, 2, 3], {"orders": 0})
    assert (said["balanced"], said["problems"]) == (True, [])


@pytest.mark.promise("SS-23", "CD-22")
def test_a_run_that_was_given_a_session_ends_with_it_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """The error has a code of its own and says what to do; each row is there once in the end."""
    said = restarted(tmp_path, "given")
    assert (said["killed"], said["first"]["status"], said["first"]["code"]) == (1, "failed", "SESSION"), said
    assert "run again" in said["first"]["said"]
    assert (said["second"]["status"], said["ids"]) == ("succeeded", [1, 2, 3]), said
    assert (said["balanced"], said["problems"]) == (True, [])
