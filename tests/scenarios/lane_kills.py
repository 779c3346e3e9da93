"""Kill three processes at random while they share the six lanes of a pipeline. Each row is delivered exactly once.

    python -m tests.scenarios.lane_kills --into FOLDER                30 kills of a process that had lanes
    python -m tests.scenarios.lane_kills --into FOLDER --to files     the rows go to files instead of a Delta table
    python -m tests.scenarios.lane_kills --into FOLDER --seed 7       the same choices as before with this seed

The script continues an earlier call. It writes `lanes.md`: where each process died, which lanes it had, how soon others
had them, and the final result. A process that ends or is killed is started again. If all rows are delivered before the
last kill, more files arrive.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import parquet

from runners.model.events import Event
from runners.model.pipeline_state import PipelineState
from runners.pipeline import Pipeline
from runners.state.location import StateLocation
from runners.state.process_locks import list_jvms_of
from runners.state.progress import apply_entries
from tests.scenarios.kept import replace_file

DEFINITION = """
name: orders
origin:
  files: {{path: "landing/*.json", format: json, schema: "id long, amount string"}}
  lanes: 6
stages:
  - cast: {{amount: "decimal(10,2)"}}
destinations:
  - {to}: {{path: tables/orders}}
dlq: {{window: 0}}
run: {{assignment: {assignment}, lease: 20s, batch: {{files: 1}}}}
spark: {{conf: {{spark.driver.memory: 1g}}}}
"""
PROCESSES = 3
ROWS = 20
"""The rows of each file. In one file of five, the last row is refused."""
PATIENCE = 120.0
"""How many seconds a test waits for something that must happen."""
LOAD = 1_800.0
"""How many seconds the rest of the load may take."""
Facts = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A killed process, and the moment of its death."""

    last: str
    """The last event that it reported."""
    lanes: Sequence[str]
    """The lanes that it had."""
    open: int
    """In how many of its lanes a batch was open."""
    seconds: float
    """The seconds until other processes had all of its lanes."""
    takers: int
    """How many other processes took its lanes."""


@dataclass
class Member:
    """A process that runs the pipeline, and its output."""

    process: subprocess.Popen[str]
    told: list[str] = field(default_factory=list)
    heard: threading.Condition = field(default_factory=threading.Condition)

    def listen(self) -> None:
        """Read the output of the process in another thread."""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self.heard:
                    self.told.append(line.strip())
                    self.heard.notify_all()

    def await_events(self, count: int) -> bool:
        """Whether the process reports this many more events before it ends."""
        wanted = len(self.told) + count
        with self.heard:
            while len(self.told) < wanted and self.process.poll() is None:
                self.heard.wait(0.2)
        return len(self.told) >= wanted

    @property
    def ended(self) -> bool:
        """Whether the process has ended without a kill."""
        return self.process.poll() is not None


@dataclass
class Trial:
    """A folder with a pipeline that several processes share."""

    folder: Path
    assignment: str = "round_robin"
    to: str = "delta"
    """The kind of the destination."""
    members: list[Member] = field(default_factory=list)

    def prepare(self, files: int) -> None:
        """Write the definition, and at least this many files."""
        (self.folder / "landing").mkdir(parents=True, exist_ok=True)
        self.file.write_text(DEFINITION.format(assignment=self.assignment, to=self.to), encoding="utf-8")
        self.land(files - self.files)

    def land(self, files: int) -> None:
        """Write this many more files."""
        for number in range(self.files, self.files + max(0, files)):
            ids = range(number * ROWS, (number + 1) * ROWS)
            amounts = ["1.50"] * (ROWS - 1) + ["1.50" if number % 5 else "much"]
            rows = [json.dumps({"id": id_, "amount": amount}) + "\n" for id_, amount in zip(ids, amounts, strict=True)]
            new = self.folder / f"{number:05}.json"
            new.write_text("".join(rows), encoding="utf-8")
            os.replace(new, self.folder / "landing" / new.name)

    @property
    def file(self) -> Path:
        """The path of the definition."""
        return self.folder / "pipeline.yaml"

    @property
    def files(self) -> int:
        """The number of files."""
        return len(list((self.folder / "landing").glob("*.json")))

    def state(self) -> PipelineState:
        """Return the state in the ledger."""
        return apply_entries(StateLocation.of(Pipeline.load(self.file)).open_ledger(None).read())

    def start(self, *words: str) -> Member:
        """Start another process that runs the pipeline."""
        command = [sys.executable, "-m", "tests.scenarios.lane_kills", "--into", str(self.folder), "--here", *words]
        with (self.folder / "errors.log").open("a", encoding="utf-8") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        member = Member(process)
        member.listen()
        self.members.append(member)
        return member

    def fill(self) -> None:
        """Start processes until enough are running. A process may have ended, but it must not have failed."""
        for member in [member for member in self.members if member.ended]:
            assert member.process.returncode == 0, (
                f"it ended by itself: {member.process.returncode}, {member.told[-3:]}"
            )
            self.members.remove(member)
        while len(self.members) < PROCESSES:
            self.start()

    def lanes_of(self, member: Member) -> Sequence[str]:
        """Return the lanes that this process has."""
        state = self.state()
        owner = next((each for each in state.owners if each.pid == member.process.pid), None)
        return state.lanes_of(owner.owner) if owner else ()

    def await_shares(self, *members: Member) -> None:
        """Wait until each of these processes has lanes."""
        until = time.monotonic() + PATIENCE
        while not all(self.lanes_of(member) for member in members):
            assert time.monotonic() < until, "somebody gets no lanes"
            time.sleep(0.1)

    def kill(self, member: Member) -> tuple[Sequence[str], str]:
        """Kill a process at once. Return the lanes that it had, and its owner name."""
        member.process.kill()
        member.process.wait()
        self.members.remove(member)
        state = self.state()
        owner = next((each for each in state.owners if each.pid == member.process.pid), None)
        return (state.lanes_of(owner.owner), owner.owner) if owner else ((), "")

    def kill_somebody(self, dice: random.Random) -> Kill | None:
        """Kill a random process during its work, and wait until other processes have its lanes. Return None if it had
        no lanes."""
        self.fill()
        member = dice.choice(self.members)
        if not member.await_events(dice.randint(1, 9)):
            return None
        time.sleep(dice.random() * 0.3)
        if not self.lanes_of(member):
            return None
        last = member.told[-1]
        lanes, name = self.kill(member)
        if not lanes:
            return None
        began, state = time.monotonic(), self.state()
        opened = sum(state.get_lane(lane).open is not None for lane in lanes)
        state = self.await_passed_on(lanes, name)
        takers = {state.held[lane].owner for lane in lanes if lane in state.held}
        took = round(time.monotonic() - began, 2)
        return Kill(last=last, lanes=lanes, open=opened, seconds=took, takers=len(takers))

    def await_passed_on(self, lanes: Sequence[str], name: str) -> PipelineState:
        """Wait until other processes have all these lanes, or the lanes are done."""
        until, state = time.monotonic() + PATIENCE, self.state()
        while not all(_is_passed_on(state, lane, name) for lane in lanes):
            assert time.monotonic() < until, f"nobody takes {lanes}: {dict(state.held)}"
            time.sleep(0.05)
            state = self.state()
        return state

    @contextmanager
    def frozen(self, member: Member) -> Iterator[tuple[Sequence[str], str]]:
        """While the context is open, pause the process's Python and its JVM. Yield its lanes and its owner name."""
        owners = [each for each in self.state().owners if each.pid == member.process.pid]
        processes = [member.process.pid, *(jvm.pid for each in owners for jvm in list_jvms_of(each))]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            owner = next(each.owner for each in self.state().owners if each.pid == member.process.pid)
            yield self.lanes_of(member), owner
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def finish(self) -> Facts:
        """Let the running processes end, deliver the remaining rows, and count the result."""
        for member in self.members:
            assert member.process.wait(LOAD) == 0, member.told[-3:]
        self.members.clear()
        last = self.start()
        assert last.process.wait(LOAD) == 0, last.told
        self.members.clear()
        return self.count_all()

    def end(self) -> None:
        """End all remaining processes."""
        for member in self.members:
            member.process.kill()
            member.process.wait()

    def count_all(self) -> Facts:
        """Return the numbers of rows and of distinct ids, both delivered and refused."""
        return {
            "delivered": self._count_delivered(self.folder / "tables" / "orders"),
            "refused": self._count_rows(self.folder / ".wherry" / "orders" / "dlq"),
            "open": len(self.state().open_plans),
            "audit": [problem["code"] for problem in Pipeline.load(self.file).audit().json()["problems"]],
        }

    def _count_delivered(self, place: Path) -> list[int]:
        if self.to == "delta":
            return self._count_rows(place)
        files = [str(file) for file in place.glob("_lane=*/_batch=*/*.parquet")]
        ids = parquet.ParquetDataset(files).read(columns=["id"])["id"]
        return [len(ids), len(ids.unique())]

    def _count_rows(self, table: Path) -> list[int]:
        from deltalake import DeltaTable, QueryBuilder

        asked = "select count(*) n, count(distinct id) ids from t"
        found = QueryBuilder().register("t", DeltaTable(str(table))).execute(asked).read_all()
        return [int(found[column][0].as_py()) for column in ("n", "ids")]

    @property
    def expected(self) -> Facts:
        """The expected final result."""
        refused = len(range(0, self.files, 5))
        delivered = self.files * ROWS - refused
        return {"delivered": [delivered] * 2, "refused": [refused] * 2, "open": 0, "audit": []}

    def run_workers(self) -> Counter[str]:
        """Count the batches that each owner settled, as far as the ledger still has separate entries for them."""
        entries = StateLocation.of(Pipeline.load(self.file)).open_ledger(None).read()
        return Counter(entry.owner for entry in entries if entry.kind == "settle")


def _is_passed_on(state: PipelineState, lane: str, name: str) -> bool:
    """Whether another owner has the lane, or the lane is done."""
    return lane in state.done or (lane in state.held and state.held[lane].owner != name)


def share_lanes(folder: Path, take_over: str) -> None:
    """Run the pipeline as one of the processes, and print each event."""

    def tell(event: Event) -> None:
        batch = getattr(event, "batch", None)
        print(type(event).__name__ + (f" {batch.lane}/{batch.number}" if batch else ""), flush=True)  # noqa: T201

    Pipeline.load(folder / "pipeline.yaml").run(listeners=[tell], take_over=take_over)


def format_table(kills: Sequence[Kill], seed: int, trial: Trial, found: Facts | None) -> str:
    """Return the results as Markdown."""
    lines = [
        f"{trial.files:,} files of {ROWS} rows in 6 lanes, {PROCESSES} processes, seed {seed}",
        "",
        "| kill | last event told | lanes it had | batches open | others had them after | how many others |",
        "|---|---|---|---|---|---|",
        *(
            f"| {at} | {kill.last} | {', '.join(kill.lanes)} | {kill.open} | {kill.seconds} s | {kill.takers} |"
            for at, kill in enumerate(kills, 1)
        ),
    ]
    if found is not None:
        right = "each row exactly once" if found == trial.expected else f"WRONG, expected {dict(trial.expected)}"
        lines += ["", f"In the end: {dict(found)}: {right}."]
    return "\n".join([*lines, ""])


def main() -> int:
    """Perform the requested number of kills, then check the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the folder; what is there is gone on with")
    parser.add_argument("--files", type=int, default=600, help="how many there are at first")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--to", choices=["delta", "files"], default="delta", help="the destination of the rows")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--take-over", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        share_lanes(asked.into, asked.take_over)
        return 0
    asked.into.mkdir(parents=True, exist_ok=True)
    trial, notes = Trial(asked.into, to=asked.to), asked.into / "kills.json"
    kept: dict[str, Any] = {"seed": asked.seed or random.randrange(1 << 32)}
    if notes.exists():
        kept = json.loads(notes.read_text())
    kills = [Kill(**kill) for kill in kept.get("kills", [])]
    print(f"seed {kept['seed']}, {len(kills)} kills so far", flush=True)  # noqa: T201
    trial.prepare(asked.files)
    dice = random.Random(kept["seed"] + len(kills))
    try:
        while len(kills) < asked.kills:
            kill = trial.kill_somebody(dice)
            if kill is None:
                trial.land(0 if any(not member.ended for member in trial.members) else 300)
                continue
            kills.append(kill)
            replace_file(notes, {**kept, "kills": [asdict(each) for each in kills]})
            (asked.into / "lanes.md").write_text(format_table(kills, kept["seed"], trial, None), encoding="utf-8")
            print(f"{len(kills)}: {kill}", flush=True)  # noqa: T201
        found = trial.finish()
    finally:
        trial.end()
    said = format_table(kills, kept["seed"], trial, found)
    (asked.into / "lanes.md").write_text(said, encoding="utf-8")
    print(said, flush=True)  # noqa: T201
    return 0 if found == trial.expected else 1


if __name__ == "__main__":
    sys.exit(main())
