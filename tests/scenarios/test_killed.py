"""After a process was killed, the next run finishes its work, and no row is lost or doubled."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.child import clean_environment
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]

BAD_IN_SECOND = [[make_order(1), make_order(2)], [make_order(3), make_order(4, amount="x")], [make_order(5)]]


@pytest.mark.long
@pytest.mark.promise("CD-22", "CD-27", "SS-11")
@pytest.mark.connect
def test_a_killed_run_loses_no_row_and_doubles_none(place: Place) -> None:
    """The process dies right after it has written batch 2. After the next run, the table and the DLQ are complete."""
    for number, rows in enumerate(BAD_IN_SECOND):
        place.land(f"{number}.json", rows)
    place.kill(ORDERS, "Written", 2)
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


def test_a_killed_jvm_leaves_only_json_lines_and_its_log(place: Place) -> None:
    """Messages of pyspark do not appear. The error names the loss of Spark. The log of the JVM is kept, and at most 20
    logs in all."""
    (place.folder / "killer.py").write_text(KILLER)
    place.land("1.json", [make_order(1)])
    place.land("2.json", [make_order(2)])
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
        env={**given, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
    )
    said = [json.loads(line) for line in ended.stderr.splitlines()]
    assert ended.returncode == 1, ended.stderr
    assert all(isinstance(each, dict) and "message" in each for each in said)
    (failure,) = [each for each in said if "code" in each]
    assert failure["code"] == "CARRY"
    assert "batch 1 of lane 0 (1.json): Spark has ended, and this process cannot start it again" in failure["message"]
    assert "ConnectionRefusedError" not in failure["message"]
    left = {log.name for log in temporary.glob("wherry-spark-*.log")}
    assert len(left) == 20
    assert "wherry-spark-11.log" in left
    assert len(left - {f"wherry-spark-{number:02}.log" for number in range(30)}) == 1


HELD = """#!/bin/sh
case "$*" in
  *org.apache.spark.launcher.Main*|-version) ;;
  *) echo $$ > "{folder}/begun"; read -r word < "{folder}/go" ;;
esac
exec "{java}" "$@"
"""


class HeldJava:
    """A Java whose JVM for Spark starts, and then waits until the test lets it continue."""

    def __init__(self, folder: Path) -> None:
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else shutil.which("java")
        self.home = folder / "jdk"
        (self.home / "bin").mkdir(parents=True)
        program = self.home / "bin" / "java"
        program.write_text(HELD.format(folder=folder, java=java))
        program.chmod(0o755)
        for name in ("begun", "go"):
            os.mkfifo(folder / name)
        self._begun, self._go = (os.open(folder / name, os.O_RDWR) for name in ("begun", "go"))
        self.handles = [self._begun, self._go]

    def begin(self, file: Path) -> subprocess.Popen[str]:
        """Start a run of this definition, and wait until its JVM has begun to start."""
        program = "from runners.command_line.cli import main; main()"
        folder = self.home.parent
        environment = clean_environment(
            JAVA_HOME=str(self.home), XDG_CACHE_HOME=str(folder), TMPDIR=str(folder), PYTHONPATH=str(ROOT)
        )
        self.run = subprocess.Popen(
            [sys.executable, "-c", program, "run", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=folder,
        )
        ended = os.pidfd_open(self.run.pid)
        self.handles.append(ended)
        begun, _, _ = select.select([self._begun, ended], [], [], LONGEST)
        assert begun == [self._begun], self.run.communicate()
        self._jvm = os.pidfd_open(int(os.read(self._begun, 100)))
        self.handles.append(self._jvm)
        return self.run

    def let_go(self) -> None:
        """Let the JVM continue."""
        os.write(self._go, b"\n")

    def kill(self) -> None:
        """Kill the JVM."""
        signal.pidfd_send_signal(self._jvm, signal.SIGKILL)

    def is_gone(self) -> bool:
        """Whether the JVM ends in time."""
        return bool(select.select([self._jvm], [], [], LONGEST)[0])

    def close(self) -> None:
        """End the remaining processes, and close the handles."""
        if not select.select([self._jvm], [], [], 0)[0]:
            self.kill()
        self.run.kill()
        self.run.communicate()
        for handle in self.handles:
            os.close(handle)


LONGEST = 300.0
"""The longest time in seconds that a test waits for a process."""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldJava]:
    """Provide a Java in a separate folder."""
    java = HeldJava(tmp_path / "held")
    yield java
    java.close()


PIPELINE = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, amount double"}
stages:
  - filter: "amount > 0"
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
run: {batch: {files: 1}}
"""


def land_three(place: Place) -> Path:
    """Write three files. The second one has a line that is not JSON."""
    place.land("1.json", [{"id": 1, "amount": 1.0}])
    place.land("2.json", [{"id": 2, "amount": 1.0}, '{"id":'])
    place.land("3.json", [{"id": 3, "amount": 1.0}])
    return place.folder / "pipeline.yaml"


@pytest.mark.promise("CD-22", "CD-27", "CD-32")
def test_a_run_and_its_jvm_may_be_killed_while_the_jvm_starts(place: Place, held: HeldJava) -> None:
    """A run that gets a signal does not wait for its JVM, which ends without help. A killed JVM gives a plain error.
    The next run delivers each row once."""
    place.define(PIPELINE)
    stopped = held.begin(land_three(place))
    stopped.send_signal(signal.SIGTERM)
    stopped.communicate(timeout=LONGEST)
    assert stopped.returncode == 3
    held.let_go()
    assert held.is_gone()
    run = held.begin(place.folder / "pipeline.yaml")
    held.kill()
    _, said = run.communicate(timeout=LONGEST)
    assert run.returncode == 1
    assert "Spark did not start: its JVM was killed by SIGKILL before it was up." in said
    assert "if memory is short" in said
    assert "Traceback" not in said
    report = place.load().run()
    assert (report.status, report.balanced, place.ids("tables/orders")) == ("succeeded", True, [1, 2, 3])
    assert len(place.refused()) == 1
    assert place.load().audit().json()["problems"] == []
