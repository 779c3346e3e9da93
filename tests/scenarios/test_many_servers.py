"""Three processes share a schedule while dice kill and freeze them. Each run that is due begins once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.child import tie
from tests.runners.pretend import BODY

SECONDS, KILLS = 20, 8
PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from runners.definitions.definition import DefinitionsFolder, load
from runners.model.schedule_events import Began
from runners.schedules.schedule_plan import open_marks
from runners.schedules.scheduler import RunOutcome, RunThreads, Scheduler
from tests.runners.engine.toys import TOYS

folder, due = Path(sys.argv[1]), {}

def note(*words):
    with (folder / "log").open("a") as log:
        log.write(" ".join(map(str, words)) + "\\n")
        log.flush()
        os.fsync(log.fileno())

def listen(event):
    if isinstance(event, Began):
        due[event.name] = event.due.isoformat()

def carry(definition, stoppable):
    name = definition.pipeline.name
    note("begin", name, due[name], os.getpid())
    time.sleep(0.2)
    note("end", name, due[name], os.getpid())
    return RunOutcome(name=name, status="succeeded", message="done")

read = lambda path: load(path, kinds=TOYS, environment={})
Scheduler(
    folder=DefinitionsFolder(path=folder, load=read), marks=open_marks(folder), run_workers=RunThreads(carry),
    at_once=4, listeners=[listen], look=0.3,
).run()
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start a server. Its runs only write lines."""
    return subprocess.Popen([*tie(), sys.executable, "-c", PROGRAM, str(folder)])


def let_work(folder: Path, dice: random.Random) -> None:
    """Let three servers work for some seconds. Kill and freeze them, and replace those that were killed."""
    servers = [start(folder) for _ in range(3)]
    while not (folder / "log").exists():
        time.sleep(0.1)
    try:
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.2, 2 * SECONDS / KILLS))
            victim, frozen = dice.sample(servers, 2)
            frozen.send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(0.1, 2.5))
            victim.kill()
            victim.wait()
            frozen.send_signal(signal.SIGCONT)
            servers[servers.index(victim)] = start(folder)
        time.sleep(15)
    finally:
        for server in servers:
            server.kill()
            server.wait()


def read_runs(folder: Path) -> dict[str, dict[datetime, list[str]]]:
    """Return what each run noted, by the name of its pipeline and by when it was due."""
    runs: defaultdict[str, dict[datetime, list[str]]] = defaultdict(dict)
    for line in (folder / "log").read_text().splitlines():
        what, name, due, process = line.split()
        runs[name].setdefault(datetime.fromisoformat(due), []).append(f"{what} {process}")
    return runs


def find_faults(runs: dict[datetime, list[str]], last: datetime) -> Sequence[str]:
    """Return the runs that began twice without need, or did not end."""
    faults = []
    for due, lines in runs.items():
        begun = [line for line in lines if line.startswith("begin")]
        ended = [line for line in lines if line.startswith("end")]
        if len(begun) > 2 or (len(begun) == 2 and begun[0].split()[1] == begun[1].split()[1]):
            faults.append(f"{due}: {lines}")
        if not ended and due < last:
            faults.append(f"{due} did not end: {lines}")
    return faults


@pytest.mark.long
def test_three_processes_begin_each_run_once_under_kills(tmp_path: Path, seed: int) -> None:
    """A run is due each second and all are made up. A run begins again only in another process, after a kill."""
    (tmp_path / "ticks.yaml").write_text(
        f"name: ticks\n{BODY}schedule: {{every: 1s, catch_up: all, on_overlap: queue}}\n"
    )
    (tmp_path / "behind.yaml").write_text(f"name: behind\n{BODY}schedule: {{after: ticks, on_overlap: queue}}\n")
    let_work(tmp_path, random.Random(seed))
    ticks = read_runs(tmp_path)["ticks"]
    first, last = min(ticks), max(ticks)
    steps = int((last - first).total_seconds())
    assert steps > SECONDS
    assert [each for each in ticks if not first <= each <= last] == []
    assert sorted(ticks) == [first + timedelta(seconds=number) for number in range(steps + 1)], f"seed {seed}"
    assert find_faults(ticks, last - timedelta(seconds=1)) == [], f"seed {seed}"
    ends = len([line for lines in ticks.values() for line in lines if line.startswith("end")])
    assert ends <= steps + 1 + KILLS
    assert find_faults(read_runs(tmp_path)["behind"], last - timedelta(seconds=5)) == []
