"""A Spark stays warm between commands that each run in a separate process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).parents[2]

DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, amount string"}
stages:
  - cast: {amount: "decimal(10,2)"}
  - python: {function: "tag:tag", columns: {tag: string, secret: string, place: string}}
destinations:
  - delta: {path: tables/orders}
spark: {keep_warm: 10m}
"""

TAG = """
import os


def tag(rows):
    gate = os.environ.get("GATE")
    if gate:
        open(f"{gate}.reached", "w").close()
        open(gate).read()
    return [{"tag": "TAG", "secret": os.environ.get("SHOP_SECRET"), "place": os.getcwd()} for _ in rows]
"""


@dataclass
class Shop:
    """A folder with a pipeline, and a private folder for warm Sparks."""

    folder: Path
    begun: list[subprocess.Popen[str]] = field(default_factory=list)

    def begin(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start a command in a separate process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        process = subprocess.Popen(
            [sys.executable, "-c", "from runners.command_line.cli import main; main()", *words],
            cwd=self.folder,
            env={**kept, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(self.folder / "private"), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.begun.append(process)
        return process

    def call_wherry(self, *words: str, **variables: str) -> str:
        """Run a command that must succeed, and return its output."""
        process = self.begin(*words, **variables)
        said, told = process.communicate(timeout=600)
        assert process.returncode == 0, told + said
        return said

    def list_warm(self) -> list[dict[str, Any]]:
        """Return the warm Sparks."""
        return list(json.loads(self.call_wherry("warm", "--json"))["sparks"])

    def find_jvm(self) -> int:
        """Return the process id of the JVM of the only warm Spark."""
        (found,) = self.list_warm()
        return int(found["jvm"])

    def land(self, *numbers: int) -> None:
        """Write a file with these orders."""
        landing = self.folder / "landing"
        landing.mkdir(exist_ok=True)
        rows = [json.dumps({"id": number, "amount": f"{number}.50"}) for number in numbers]
        (landing / f"{numbers[0]:04}.json").write_text("\n".join(rows))

    def read(self, column: str = "id") -> list[Any]:
        """Return a column of the table, ordered by id."""
        from deltalake import DeltaTable

        rows = DeltaTable(str(self.folder / "tables" / "orders")).to_pyarrow_table().to_pylist()
        return [row[column] for row in sorted(rows, key=lambda row: row["id"])]

    def hold(self) -> tuple[subprocess.Popen[str], Path]:
        """Start a run that waits in the middle of its write. Return its process, and the pipe at which it waits."""
        gate = self.folder / "gate"
        os.mkfifo(gate)
        process = self.begin("run", GATE=str(gate))
        await_true(lambda: gate.with_suffix(".reached").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        return process, gate


def open_gate(gate: Path) -> None:
    """Let the run that waits there continue, and let later ones pass."""
    with gate.open("r+b", buffering=0):
        Path(f"{gate}.open").touch()
        Path(f"{gate}.open").replace(gate)


def await_true(holds: Any, seconds: float = 300) -> None:
    """Wait until this holds."""
    last = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < last
        select.select([], [], [], 0.05)


def await_end(process: int) -> None:
    """Wait until this process, which is not a child of this one, has ended."""
    await_true(lambda: not Path(f"/proc/{process}").exists() or "Z" in read_state(process))


def read_state(process: int) -> str:
    """Return the letter of the process's state, or Z if it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Provide a shop whose Sparks end with the test."""
    shop = Shop(tmp_path)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    (tmp_path / "tag.py").write_text(TAG)
    yield shop
    for process in shop.begun:
        process.kill()
        for stream in (process.stdout, process.stderr):
            close(stream)
        process.wait()
    keepers = [each["keeper"] for each in shop.list_warm()]
    shop.call_wherry("warm", "stop")
    for keeper in keepers:
        await_end(keeper)


def close(stream: IO[str] | None) -> None:
    """Close a stream of a process."""
    if stream is not None:
        stream.close()


def test_two_runs_use_one_spark_and_the_second_gets_nothing_from_the_first(shop: Shop) -> None:
    """The second run has new code and no secret, in the same folder."""
    shop.land(1, 2)
    shop.call_wherry("run", SHOP_SECRET="hunter2")  # noqa: S106
    jvm = shop.find_jvm()
    environment = Path(f"/proc/{jvm}/environ").read_bytes()
    (shop.folder / "tag.py").write_text(TAG.replace("TAG", "new"))
    shop.land(3)
    shop.call_wherry("run")
    assert shop.find_jvm() == jvm
    assert b"hunter2" not in environment
    assert shop.read("tag") == ["TAG", "TAG", "new"]
    assert shop.read("secret") == ["hunter2", "hunter2", None]
    assert shop.read("place") == [str(shop.folder)] * 3


def test_no_process_of_a_run_remains(shop: Shop) -> None:
    """Python workers end with the run. The JVM stays, and a preview uses it to show rows."""
    shop.land(1)
    shop.call_wherry("run")
    jvm = shop.find_jvm()
    children = Path(f"/proc/{jvm}/task/{jvm}/children")
    await_true(lambda: children.read_text() == "")
    shop.land(2)
    assert "2.50" in shop.call_wherry("preview")
    assert shop.find_jvm() == jvm


def test_a_killed_run_ends_its_warm_spark(shop: Shop) -> None:
    """The kill comes in the middle of the write. The next run delivers each row once."""
    shop.land(1, 2)
    run, _ = shop.hold()
    jvm = shop.find_jvm()
    run.kill()
    await_end(jvm)
    shop.call_wherry("run")
    assert shop.find_jvm() != jvm
    assert shop.read() == [1, 2]


def test_a_killed_keeper_ends_its_spark(shop: Shop) -> None:
    """The run fails, and the next run delivers each row once."""
    shop.land(1, 2)
    run, _ = shop.hold()
    (found,) = shop.list_warm()
    os.kill(found["keeper"], signal.SIGKILL)
    await_end(found["jvm"])
    run.communicate(timeout=300)
    assert run.returncode == 1
    shop.call_wherry("run")
    assert shop.read() == [1, 2]


def test_a_run_and_its_keeper_killed_together_leave_no_spark(shop: Shop) -> None:
    """The Spark ends although neither of them could end it."""
    shop.land(1, 2)
    run, _ = shop.hold()
    (found,) = shop.list_warm()
    os.kill(found["keeper"], signal.SIGKILL)
    run.kill()
    await_end(found["jvm"])
    shop.call_wherry("run")
    assert shop.read() == [1, 2]


def test_a_run_survives_the_kill_of_an_idle_spark(shop: Shop) -> None:
    """The run starts another Spark."""
    shop.land(1)
    shop.call_wherry("run")
    jvm = shop.find_jvm()
    os.kill(jvm, signal.SIGKILL)
    await_true(lambda: shop.list_warm() == [])
    shop.land(2)
    shop.call_wherry("run")
    assert shop.read() == [1, 2]


def test_a_run_whose_warm_jvm_is_killed_fails_and_the_next_one_finishes(shop: Shop) -> None:
    """A run with a separate Spark behaves in the same way."""
    shop.land(1, 2)
    run, _ = shop.hold()
    os.kill(shop.find_jvm(), signal.SIGKILL)
    run.communicate(timeout=300)
    assert run.returncode == 1
    shop.call_wherry("run")
    assert shop.read() == [1, 2]


def test_a_second_command_at_the_same_time_uses_a_separate_spark(shop: Shop) -> None:
    """The first command keeps the warm Spark."""
    shop.land(1, 2)
    run, gate = shop.hold()
    (found,) = shop.list_warm()
    assert (found["state"], found["used_by"]) == ("busy", run.pid)
    assert "1.50" in shop.call_wherry("preview")
    open_gate(gate)
    _, told = run.communicate(timeout=300)
    assert run.returncode == 0, told
    assert shop.read() == [1, 2]


def test_a_frozen_keeper_delays_no_command(shop: Shop) -> None:
    """The command starts a separate Spark. `wherry warm stop` ends the keeper with its JVM."""
    shop.land(1)
    shop.call_wherry("run")
    (found,) = shop.list_warm()
    await_true(lambda: shop.list_warm()[0]["state"] == "idle")
    os.kill(found["keeper"], signal.SIGSTOP)
    shop.land(2)
    shop.call_wherry("run")
    assert shop.read() == [1, 2]
    assert [each["state"] for each in shop.list_warm()] == ["frozen"]
    shop.call_wherry("warm", "stop")
    await_end(found["jvm"])
    assert shop.list_warm() == []
