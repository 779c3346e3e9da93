"""A forced stop ends a run while Spark plans for ever, which nothing can cancel."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.child import WHERRY, clean_environment, list_descendants
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).parents[2]
ENDLESS = "  - filter: >-\n      not (concat(repeat('a', 80), 'c') rlike '^(a|aa)+\\\\1$')\n"
"""A condition without columns, so Spark works it out while it plans. That takes longer than a person lives."""
STUCK = ORDERS.replace("destinations:", f"{ENDLESS}destinations:")
LONGEST = 300.0
"""The seconds after which a run or a JVM does not end by itself, on any machine. Ten are enough on an idle one."""
BESIDE = """
import json, sys, threading
from pathlib import Path

import wherry
from runners.spark.session import obtain_now

spark = obtain_now({})
reports = {}


def carry(name):
    reports[name] = wherry.Pipeline.load(f"{name}.yaml").run(check=False)


threads = {name: threading.Thread(target=carry, args=[name], daemon=True) for name in ("stuck", "calm")}
for thread in threads.values():
    thread.start()
threads["stuck"].join()
alive = threads["calm"].is_alive()
Path("go").write_text("")
threads["calm"].join()
rows = spark.range(3).count()
carry("mended")
print(json.dumps([reports["stuck"].status, alive, reports["calm"].status, rows, reports["mended"].status]))
"""
"""Two runs in one process on its Spark. The second goes on when the first has ended, and a third run follows."""
WAITS = """
import time
from pathlib import Path


def wait(rows: list[dict]) -> list:
    while not Path("go").exists():
        time.sleep(0.1)
    return [{} for _ in rows]
"""


class PlanningRun:
    """A process with a run whose Spark plans for ever."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self._given: dict[str, Any] = {"cwd": folder, "text": True, "stderr": subprocess.PIPE}
        self._given["env"] = clean_environment(PYTHONPATH=f"{ROOT}:{folder}")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, **self._given)
        self._jvm: int | None = None

    def await_planning(self, file: str) -> None:
        """Return when the batch has been with Spark for some seconds without a job."""
        end = time.monotonic() + LONGEST
        while True:
            assert time.monotonic() < end
            assert self.process.poll() is None, self.process.communicate()
            work = [each["spark"] for each in self.status(file).get("activity", ())]
            if work and work[0] and not work[0]["jobs"]:
                break
        java = [each for each in list_descendants(self.process.pid) if _is_java(each)]
        self._jvm = os.pidfd_open(java[0])

    def await_stop(self) -> None:
        """Return when the run has seen the first signal."""
        assert self.process.stderr is not None
        assert any("a second signal cancels" in line for line in self.process.stderr)

    def freeze_jvm(self) -> None:
        assert self._jvm is not None
        signal.pidfd_send_signal(self._jvm, signal.SIGSTOP)

    def status(self, file: str) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.command("status", file, "--json"))
        return status

    def command(self, *words: str) -> str:
        """Return what another command prints."""
        done = subprocess.run([*WHERRY, *words], stdout=subprocess.PIPE, check=False, **self._given)
        return str(done.stdout)

    def has_jvm_ended(self) -> bool:
        """Whether the JVM ends."""
        return bool(self._jvm and select.select([self._jvm], [], [], LONGEST)[0])

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        if self._jvm is not None:
            if not select.select([self._jvm], [], [], 0)[0]:
                signal.pidfd_send_signal(self._jvm, signal.SIGKILL)
            os.close(self._jvm)


def _is_java(pid: int) -> bool:
    with Path(f"/proc/{pid}/cmdline").open("rb") as line:
        return b"java" in line.read().split(b"\0")[0]


@pytest.fixture
def begin(place: Place) -> Iterator[Any]:
    """Provide a function that starts a command in the place, and ends what is left of it after the test."""
    runs: list[PlanningRun] = []

    def start(command: list[str]) -> PlanningRun:
        runs.append(PlanningRun(place.folder, command))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.mark.parametrize("how", ["ledger", "signals", "frozen"])
def test_a_forced_stop_ends_a_command_whose_spark_is_planning(place: Place, begin: Any, how: str) -> None:
    """It ends as a stopped run, and its JVM ends too. The status says what becomes of the batch."""
    place.land("1.json", [make_order(1)])
    file = place.define(STUCK).name
    run = begin([*WHERRY, "run", file])
    run.await_planning(file)
    if how == "frozen":
        run.freeze_jvm()
    if how == "signals":
        os.kill(run.process.pid, signal.SIGINT)
        run.await_stop()
        os.kill(run.process.pid, signal.SIGINT)
    else:
        run.command("stop", file, "--force")
    out, said = run.process.communicate(timeout=LONGEST)
    assert run.process.returncode == 3, said
    assert "does not wait for it" in said
    assert "Traceback" not in said
    assert "orders stopped after" in out
    assert run.has_jvm_ended()
    status = run.status(file)
    assert (status["state"], status["forced"], len(status["open"])) == ("stopped", False, 1)
    assert place.load(ORDERS).run().status == "succeeded"
    assert place.ids("tables/orders") == [1]


def test_a_forced_stop_spares_the_other_runs_of_a_process(place: Place, begin: Any) -> None:
    """The other run goes on with the same Spark. A later run of the pipeline there delivers the batch once."""
    place.land("1.json", [make_order(1)])
    place.land("1.json", [make_order(2)], folder="others")
    (place.folder / "waits.py").write_text(WAITS)
    calm = ORDERS.replace("orders", "calm").replace("landing", "others")
    calm = calm.replace("destinations:", '  - python: "waits:wait"\ndestinations:')
    for name, text in {"stuck": STUCK, "calm": calm, "mended": ORDERS}.items():
        (place.folder / f"{name}.yaml").write_text(text)
    run = begin([sys.executable, "-c", BESIDE])
    run.await_planning("stuck.yaml")
    run.command("stop", "stuck.yaml", "--force")
    out, said = run.process.communicate(timeout=LONGEST)
    assert run.process.returncode == 0, said
    assert "Traceback" not in said
    assert json.loads(out.splitlines()[-1]) == ["stopped", True, "succeeded", 3, "succeeded"]
    assert run.has_jvm_ended()
    assert place.ids("tables/orders") == [1]
    assert place.ids("tables/calm") == [2]
