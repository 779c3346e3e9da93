"""A forced stop ends a run while Spark plans for ever, which nothing can cancel."""

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
from typing import Any

import pytest

from tests.child import WHERRY, clean_environment, list_descendants
from tests.scenarios.conftest import ORDERS, Place, make_order
from tests.scenarios.shared_jvm import Server

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).parents[2]
ENDLESS = "  - filter: >-\n      not (concat(repeat('a', 80), 'c') rlike '^(a|aa)+\\\\1$')\n"
"""A condition without columns, so Spark works it out while it plans. That takes longer than a person lives."""
STUCK = ORDERS.replace("destinations:", f"{ENDLESS}destinations:")
SOON = 10.0
"""The seconds in which a run ends after a forced stop, and a JVM after its Python. An idle machine needs about six."""
LONGEST = 300.0
"""The seconds after which what a test waits for does not come, on any machine."""
BUSY = 10.0
"""The seconds of processor time that no thread needs before it plans for ever."""
BESIDE = """
import json, sys, threading, time
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
ended = time.monotonic()
alive = threads["calm"].is_alive()
Path("go").write_text("")
threads["calm"].join()
rows = spark.range(3).count()
carry("mended")
said = [reports["stuck"].status, alive, reports["calm"].status, rows, reports["mended"].status]
print(json.dumps({"ended": ended, "said": said}))
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
    """A process with a run whose Spark plans for ever, in a JVM of that process or on a server."""

    def __init__(self, folder: Path, command: list[str], server: Server | None = None) -> None:
        self._server = None if server is None else server.get()
        remote = {} if self._server is None else {"SPARK_REMOTE": self._server.connect}
        self._given: dict[str, Any] = {"cwd": folder, "text": True, "stderr": subprocess.PIPE}
        self._given["env"] = clean_environment(PYTHONPATH=f"{ROOT}:{folder}", **remote)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, **self._given)
        self._process = os.pidfd_open(self.process.pid)
        self._jvm: int | None = None
        self._said = b""

    def await_planning(self) -> None:
        """Return when a thread of the JVM does nothing but plan."""
        end = time.monotonic() + LONGEST
        while self._jvm is None:
            assert time.monotonic() < end
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.2)
            seen = list_descendants(self.process.pid) if self._server is None else [self._server.pid]
            self._jvm = next((os.pidfd_open(each) for each in seen if _is_busy(each)), None)

    def freeze_jvm(self) -> None:
        assert self._jvm is not None
        signal.pidfd_send_signal(self._jvm, signal.SIGSTOP)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Return how another command ended."""
        return subprocess.run([*WHERRY, *words], stdout=subprocess.PIPE, check=False, timeout=LONGEST, **self._given)

    def await_line(self, part: str) -> float:
        """Return when the process has printed this on standard error."""
        assert self.process.stderr is not None
        while part not in self._said.decode(errors="ignore"):
            _await_ready(self.process.stderr.fileno())
            more = os.read(self.process.stderr.fileno(), 4096)
            assert more, self._said
            self._said += more
        return time.monotonic()

    def await_end(self) -> float:
        """Return when the process has ended."""
        return _await_ready(self._process)

    def await_jvm_end(self) -> float:
        """Return when the JVM has ended."""
        assert self._jvm is not None
        return _await_ready(self._jvm)

    def is_jvm_alive(self) -> bool:
        return self._jvm is not None and not select.select([self._jvm], [], [], 0)[0]

    def read_output(self) -> tuple[str, str]:
        """Return what the ended process has printed on standard output and on standard error."""
        out, rest = self.process.communicate(timeout=LONGEST)
        return out, self._said.decode() + rest

    def close(self) -> None:
        self.process.kill()
        if self._jvm is not None:
            if self.is_jvm_alive():
                signal.pidfd_send_signal(self._jvm, signal.SIGKILL)
            os.close(self._jvm)
        self.process.communicate()
        os.close(self._process)


def _await_ready(handle: int) -> float:
    """Return when the handle is ready: a pipe to be read, or a process that has ended."""
    assert select.select([handle], [], [], LONGEST)[0]
    return time.monotonic()


def _is_busy(pid: int) -> bool:
    """Whether a thread of the process has worked for so long that it plans. Compilers of a JVM work long too."""
    for file in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has ended
            name, _, rest = file.read_text(encoding="utf-8", errors="replace").rpartition(")")
            if "Compiler" not in name and int(rest.split()[11]) >= BUSY * os.sysconf("SC_CLK_TCK"):
                return True
    return False


@pytest.fixture
def begin(place: Place) -> Iterator[Any]:
    """Provide a function that starts a command in the place, and ends what is left of it after the test."""
    runs: list[PlanningRun] = []

    def start(command: list[str], server: Server | None = None) -> PlanningRun:
        runs.append(PlanningRun(place.folder, command, server))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Provide a Spark Connect server of the test alone, because it goes on planning."""
    own = Server(tmp_path / "jvm")
    yield own
    own.close()


@pytest.mark.parametrize("how", ["signals", "frozen"])
def test_a_forced_stop_ends_a_command_whose_spark_is_planning(place: Place, begin: Any, how: str) -> None:
    """It ends soon as a stopped run, and its JVM soon after it. The status says what becomes of the batch."""
    place.land("1.json", [make_order(1)])
    file = place.define(STUCK).name
    run = begin([*WHERRY, "run", file])
    run.await_planning()
    if how == "frozen":
        run.freeze_jvm()
    if how == "signals":
        os.kill(run.process.pid, signal.SIGINT)
        run.await_line("a second signal cancels")
        os.kill(run.process.pid, signal.SIGINT)
    else:
        run.command("stop", file, "--force")
    asked = time.monotonic()
    left, ended, gone = run.await_line("does not wait for it"), run.await_end(), run.await_jvm_end()
    out, said = run.read_output()
    assert run.process.returncode == 3, said
    assert "Traceback" not in said
    assert "orders stopped after" in out
    assert max(ended - asked, ended - left, gone - ended) <= SOON
    status = json.loads(run.command("status", file, "--json").stdout)
    assert (status["state"], status["forced"], len(status["open"])) == ("stopped", False, 1)
    assert place.load(ORDERS).run().status == "succeeded"
    assert place.ids("tables/orders") == [1]


def test_a_forced_stop_ends_a_command_whose_server_is_planning(place: Place, begin: Any, server: Server) -> None:
    """It ends soon as a stopped run. The Spark Connect server goes on, and the next run there delivers the batch."""
    place.land("1.json", [make_order(1)])
    file = place.define(STUCK).name
    run = begin([*WHERRY, "run", file], server)
    run.await_planning()
    run.command("stop", file, "--force")
    asked = time.monotonic()
    left, ended = run.await_line("does not wait for it"), run.await_end()
    out, said = run.read_output()
    assert run.process.returncode == 3, said
    assert "Traceback" not in said
    assert "orders stopped after" in out
    assert max(ended - asked, ended - left) <= SOON
    place.define(ORDERS)
    again = run.command("run", file)
    assert again.returncode == 0, again.stderr
    assert run.is_jvm_alive()
    assert place.ids("tables/orders") == [1]


def test_a_forced_stop_spares_the_other_runs_of_a_process(place: Place, begin: Any) -> None:
    """The run ends soon. The other run goes on with the same Spark, and a later run there delivers the batch once."""
    place.land("1.json", [make_order(1)])
    place.land("1.json", [make_order(2)], folder="others")
    (place.folder / "waits.py").write_text(WAITS)
    calm = ORDERS.replace("orders", "calm").replace("landing", "others")
    calm = calm.replace("destinations:", '  - python: "waits:wait"\ndestinations:')
    for name, text in {"stuck": STUCK, "calm": calm, "mended": ORDERS}.items():
        (place.folder / f"{name}.yaml").write_text(text)
    run = begin([sys.executable, "-c", BESIDE])
    run.await_planning()
    run.command("stop", "stuck.yaml", "--force")
    asked = time.monotonic()
    left, ended, gone = run.await_line("does not wait for it"), run.await_end(), run.await_jvm_end()
    out, said = run.read_output()
    assert run.process.returncode == 0, said
    assert "Traceback" not in said
    found = json.loads(out.splitlines()[-1])
    assert found["said"] == ["stopped", True, "succeeded", 3, "succeeded"]
    assert max(found["ended"] - asked, found["ended"] - left, gone - ended) <= SOON
    assert place.ids("tables/orders") == [1]
    assert place.ids("tables/calm") == [2]
