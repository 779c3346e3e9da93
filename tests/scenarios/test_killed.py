"""A process that is killed: the next run finishes what it left, and nothing is lost or twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.conftest import ORDERS, Place, order

pytestmark = pytest.mark.spark

BAD_IN_SECOND = [[order(1), order(2)], [order(3), order(4, amount="x")], [order(5)]]


@pytest.mark.long
@pytest.mark.promise("CD-22", "CD-27", "SS-11")
@pytest.mark.parametrize(
    "moment", ["BatchPlanned", "BatchDecided", pytest.param("Written", marks=pytest.mark.connect), "BatchSettled"]
)
def test_after_a_kill_the_next_run_leaves_nothing_lost_and_nothing_twice(place: Place, moment: str) -> None:
    """Killed while batch 2 is carried, at four moments; the table and the DLQ end as if nothing had happened."""
    for number, rows in enumerate(BAD_IN_SECOND):
        place.land(f"{number}.json", rows)
    place.kill(ORDERS, moment, 2)
    report = place.load().run()
    assert report.status == "succeeded"
    assert report.balanced is True
    assert place.ids("tables/orders") == [1, 2, 3, 5]
    assert [row["position"] for row in place.refused()] == [2]


KILLER = """
import os, signal
from pyspark import SparkContext


def take(rows, label):
    process = SparkContext._gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
"""


def test_a_jvm_that_is_killed_leaves_only_json_and_its_log(place: Place) -> None:
    """Whatever pyspark prints of it; the JVM's last words are kept, and of older ones no more than twenty."""
    (place.folder / "killer.py").write_text(KILLER)
    place.land("1.json", [order(1)])
    place.land("2.json", [order(2)])
    file = place.define(ORDERS.replace("delta: {path: tables/orders}", "python: 'killer:take'"))
    temporary = place.folder / "temporary"
    temporary.mkdir()
    for number in range(30):
        (temporary / f"wherry-spark-{number:02}.log").touch()
        os.utime(temporary / f"wherry-spark-{number:02}.log", (number, number))
    given = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from runners.command_line.cli import main; main()",
            "run",
            file,
            "--log-format",
            "json",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**given, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    said = [json.loads(line) for line in ended.stderr.splitlines()]
    assert ended.returncode == 1, ended.stderr
    assert all(isinstance(each, dict) and "message" in each for each in said)
    assert [each["code"] for each in said if "code" in each] != []
    left = {log.name for log in temporary.glob("wherry-spark-*.log")}
    assert len(left) == 20
    assert "wherry-spark-11.log" in left
    assert len(left - {f"wherry-spark-{number:02}.log" for number in range(30)}) == 1
