"""Freeze runs, let another run take their pipeline, and thaw them. They land nothing, and end as fenced.

    python -m tests.scenarios.zombies --into FOLDER                every cell: moment, way, and what is frozen
    python -m tests.scenarios.zombies --into FOLDER --only 3       only the cell with this number, again

The script continues an earlier call. It writes `zombies.md` with the end of each write and each run, and the final
rows.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from runners.model.errors import Owned
from runners.model.events import BatchCancelled, BatchSettled, Event
from runners.pipeline import Pipeline
from runners.state.journal import Journal
from runners.state.location import StateLocation
from tests.scenarios.kept import replace_file

DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long"}
destinations:
  - delta: {path: tables/orders}
run: {lease: 3s, batch: {files: 1}}
"""
ROWS = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
FROZEN = ("python", "jvm", "both")
WAYS = ("spark", "short", "staged")
CELLS = [
    (moment, way, frozen)
    for way in WAYS
    for moment, frozen in itertools.product(("before", "during", "commit", "after"), FROZEN)
]
"""The moment at which the run is frozen, the writer of its rows, and the frozen processes. Spark writes and commits the
rows, Wherry does both, or Spark writes files (`staged`) that Wherry commits. `commit` is right before the commit."""
ENOUGH = 300.0
"""The seconds after which waiting ends."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The result of a cell."""

    cell: int
    write: str
    """How the frozen write ended."""
    status: str
    code: str | None
    """How the frozen run ended, together with `status`."""
    ids: list[int]
    """The ids in the table in the end."""
    taker: str
    """How the run ended that took over the pipeline."""
    offset_moved: bool
    """Whether the frozen run recorded anything after it had lost the pipeline."""

    @property
    def good(self) -> bool:
        """Whether the result is correct."""
        every = [row for rows in ROWS for row in rows]
        return (self.code, self.ids, self.taker, self.offset_moved) == ("FENCED", every, "succeeded", False)


@dataclass(frozen=True)
class Trial:
    """A pipeline of three files in a separate folder."""

    folder: Path
    cell: int

    def run(self) -> Ended:
        """Freeze the run, let another run take over, and thaw it."""
        moment, way, frozen = CELLS[self.cell]
        self._prepare()
        command = [sys.executable, "-m", "tests.scenarios.zombie", str(self.folder), moment, way, frozen]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as zombie:
            try:
                return self._freeze(zombie, moment, way, frozen)
            finally:
                for process in self._list_processes(zombie):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGCONT)
                zombie.kill()

    def _prepare(self) -> None:
        (self.folder / "landing").mkdir(parents=True)
        for number, rows in enumerate(ROWS):
            file = self.folder / "landing" / f"{number}.json"
            file.write_text("".join(json.dumps({"id": row}) + "\n" for row in rows), encoding="utf-8")
            os.utime(file, (1_700_000_000 + number,) * 2)
        (self.folder / "pipeline.yaml").write_text(DEFINITION, encoding="utf-8")
        for pipe in ("at", "on"):
            os.mkfifo(self.folder / pipe)

    def _freeze(self, zombie: subprocess.Popen[str], moment: str, way: str, frozen: str) -> Ended:
        said = Said(zombie.stdout)
        with self._standing(said, moment, way) as let_go:
            python, jvm = self._list_processes(zombie)
            stopped = {"python": [python], "jvm": [jvm], "both": [python, jvm]}[frozen]
            for process in stopped:
                os.kill(process, signal.SIGSTOP)
            taken = threading.Event()

            def thaw() -> None:
                taken.wait(ENOUGH)
                for process in stopped:
                    os.kill(process, signal.SIGCONT)
                let_go()

            thawing = threading.Thread(target=thaw)
            thawing.start()
            taker = self._run_until_taken(taken)
            thawing.join()
            ended = json.loads(said.until("run "))
        epochs = [(entry.kind, entry.epoch) for entry in Journal(self._place.open_ledger(None)).ledger.read()]
        late = [kind for at, (kind, epoch) in enumerate(epochs) if epoch < max(each for _, each in epochs[: at + 1])]
        return Ended(
            cell=self.cell,
            write=said.heard.get("ended", ""),
            status=ended["status"],
            code=ended["code"],
            ids=self._read_ids(),
            taker=taker,
            offset_moved=bool(late),
        )

    @contextmanager
    def _standing(self, said: Said, moment: str, way: str) -> Iterator[Any]:
        """While the context is open, the run is stopped at the moment. Yield the function that lets it continue."""
        in_spark = moment == "during" or (moment == "commit" and way == "spark")
        if not in_spark:
            said.until("reached")
            yield (self.folder / "go").touch
            return
        os.close(os.open(self.folder / "at", os.O_WRONLY))  # returns when Spark has opened the pipe too
        if moment == "during":
            yield lambda: os.close(os.open(self.folder / "on", os.O_WRONLY))
            return
        # A commit of another writer comes before this write's commit, and the write must read it. It is a pipe, so the
        # write waits.
        log = self.folder / "tables" / "orders" / "_delta_log"
        following = log / f"{1 + max(int(file.stem) for file in log.glob('*.json')):020}.json"
        os.mkfifo(following)
        os.close(os.open(self.folder / "on", os.O_WRONLY))
        end = os.open(following, os.O_WRONLY)
        commit = json.dumps({"commitInfo": {"timestamp": 1, "operation": "STRANGER", "operationParameters": {}}}) + "\n"
        (log / "beside").write_text(commit, encoding="utf-8")
        (log / "beside").rename(following)

        def let_go() -> None:
            os.write(end, commit.encode())
            os.close(end)

        yield let_go

    def _list_processes(self, zombie: subprocess.Popen[str]) -> list[int]:
        """Return the process ids of the run's Python and its JVM."""
        entries = Journal(self._place.open_ledger(None)).ledger.read() if (self.folder / ".wherry").exists() else []
        jvms = [entry.body["jvm"] for entry in entries if entry.kind == "acquire"]
        return [zombie.pid, *(jvm["pid"] for jvm in jvms[:1])]

    def _run_until_taken(self, taken: threading.Event) -> str:
        """Run the pipeline again until the lease has ended and the run is not refused. Set `taken` when the open batch
        is settled or cancelled. Return how the run ended."""

        def hear(event: Event) -> None:
            if isinstance(event, BatchCancelled | BatchSettled):
                taken.set()

        end = time.monotonic() + ENOUGH
        while time.monotonic() < end:
            try:
                return Pipeline.load(self.folder / "pipeline.yaml").run(check=False, listeners=[hear]).status
            except Owned:
                time.sleep(0.5)
        return "refused"

    @property
    def _place(self) -> StateLocation:
        return StateLocation(directory=self.folder / ".wherry" / "orders", schema="", name="orders")

    def _read_ids(self) -> list[int]:
        from deltalake import DeltaTable, QueryBuilder

        table = QueryBuilder().register("t", DeltaTable(str(self.folder / "tables" / "orders")))
        return sorted(table.execute("select id from t").read_all()["id"].to_pylist())


class Said:
    """The output of the other process, line by line."""

    def __init__(self, lines: IO[str] | None) -> None:
        assert lines is not None
        self.lines = lines
        self.heard: dict[str, str] = {}

    def until(self, word: str) -> str:
        """Wait for a line that begins with this word. Return the rest of the line."""
        for line in self.lines:
            first, _, rest = line.strip().partition(" ")
            self.heard[first] = rest
            if line.startswith(word):
                return rest
        raise AssertionError(f"it ended before it said {word!r}: {self.heard}")


def format_table(found: list[Ended]) -> str:
    """Return the results as Markdown."""
    lines = ["| cell | stands still | way | frozen | its write | its run | the other run | |", "|" + "---|" * 8]
    for each in found:
        good = "each row once, nothing recorded" if each.good else f"WRONG: {each}"
        run = f"{each.status}, {each.code}"
        lines.append(f"| {each.cell} | {' | '.join(CELLS[each.cell])} | {each.write} | {run} | {each.taker} | {good} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Run every cell that has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the folder; what is there is gone on with")
    parser.add_argument("--only", type=int, nargs="*", default=None, help="the numbers of cells, from 0")
    asked = parser.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    notes = asked.into / "zombies.json"
    kept = [Ended(**each) for each in json.loads(notes.read_text())] if notes.exists() else []
    kept = [each for each in kept if asked.only is None or each.cell not in asked.only]
    done = {each.cell for each in kept}
    for cell in [cell for cell in range(len(CELLS)) if cell not in done and cell in (asked.only or range(len(CELLS)))]:
        ended = Trial(asked.into / f"{cell}-{time.time_ns()}", cell).run()
        kept = sorted([*kept, ended], key=lambda each: each.cell)
        replace_file(notes, [asdict(each) for each in kept])
        (asked.into / "zombies.md").write_text(format_table(kept), encoding="utf-8")
        print(format_table([ended]).splitlines()[2], flush=True)  # noqa: T201
    return 0 if all(each.good for each in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
