"""Kill processes at random while they deliver one load of many batches. No row is lost, and none is delivered twice.

    python -m tests.scenarios.soak --into FOLDER               200,000 rows in 400 batches, 100 kills
    python -m tests.scenarios.soak --into FOLDER --most 20     twenty more of these kills and no others

A third of the kills end only Python. Its JVM keeps running, and the next process may find what it left there. The
script continues an earlier call. It writes `soak.md` with the moment of each kill and the final result.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runners.model.events import Event
from runners.pipeline import Pipeline
from tests.scenarios.kept import replace_file
from tests.scenarios.shared_jvm import PROCESSES, Server, Spark

DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, amount string"}
  lanes: 2
stages:
  - cast: {amount: int}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
run: {batch: {files: 1}}
"""
MOST_EVENTS = 12
"""A process dies at the latest after this many events of its run."""
REFUSED = 25
"""In one of this many files, the first row is refused. Its lane then prepares batches for a while instead of writing
directly."""


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A killed process, and the moment of its death."""

    who: str
    """What was killed: `Python`, or `Python and JVM`."""
    events: int
    """How many events of its run the process had reported."""
    last: str
    after: float
    """The seconds between the last event and the kill."""


@dataclass(frozen=True)
class Load:
    """The folder of the load."""

    folder: Path
    rows: int
    batches: int

    def prepare(self) -> None:
        """Write all files. A repeated call changes nothing."""
        if (self.folder / "ready").exists():
            return
        (self.folder / "landing").mkdir(parents=True, exist_ok=True)
        each = self.rows // self.batches
        for file in range(self.batches):
            rows = [
                {"id": file * each + row, "amount": "x" if self._refuses(file, row) else "1"} for row in range(each)
            ]
            path = self.folder / "landing" / f"{file:04}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            os.utime(path, (1_700_000_000 + file,) * 2)
        (self.folder / "pipeline.yaml").write_text(DEFINITION, encoding="utf-8")
        (self.folder / "ready").touch()

    def _refuses(self, file: int, row: int) -> bool:
        return row == 0 and file % REFUSED == 0

    def load(self) -> Pipeline:
        """Load the pipeline."""
        return Pipeline.load(self.folder / "pipeline.yaml")

    def kill(self, dice: random.Random, server: Server) -> Kill | None:
        """Run in a process and kill it at a random moment. Return None if all rows were delivered before."""
        alone, events, after = dice.random() < 1 / 3, dice.randint(0, MOST_EVENTS), dice.random()
        spark, (here, there) = server.get(), PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=carry_load, args=[self, spark, there])
        process.start()
        there.close()
        heard = ["nothing"]
        try:
            while len(heard) <= events:
                heard.append(here.recv())
        except EOFError:
            process.join()
            assert process.exitcode == 0, f"it ended by itself: {process.exitcode}"
            return None
        time.sleep(after)
        if not alone:
            spark.kill()
        process.kill()
        process.join()
        if not alone:
            spark.wait_for_end()
        if process.exitcode == 0:
            return None
        who = "Python" if alone else "Python and JVM"
        return Kill(who=who, events=len(heard) - 1, last=heard[-1], after=round(after, 2))

    def finish(self, server: Server) -> Mapping[str, Any]:
        """Deliver the remaining rows, and return the whole result."""
        here, there = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=finish_load, args=[self, server.get(), there])
        process.start()
        there.close()
        found: Mapping[str, Any] = here.recv()
        process.join()
        return {**found, **self.count_delivered(), "dlq": self._count_rows(".wherry/orders/dlq")["ids"]}

    def count_delivered(self) -> Mapping[str, Any]:
        """Count the rows at the destination."""
        return self._count_rows("tables/orders")

    def _count_rows(self, table: str) -> Mapping[str, int]:
        from deltalake import DeltaTable, QueryBuilder

        rows = QueryBuilder().register("t", DeltaTable(str(self.folder / table)))
        found = rows.execute("select count(*) as n, count(distinct id) as ids from t").read_all()
        return {"rows": int(found["n"][0].as_py()), "ids": int(found["ids"][0].as_py())}

    @property
    def expected(self) -> Mapping[str, Any]:
        """The expected final result."""
        refused = len(range(0, self.batches, REFUSED))
        good = self.rows - refused
        return {"status": "succeeded", "balanced": True, "problems": 0, "rows": good, "ids": good, "dlq": refused}


def carry_load(load: Load, spark: Spark, told: Connection) -> None:
    """Run in the process that is killed, and report each event."""

    def tell(event: Event) -> None:
        batch = getattr(event, "batch", None)
        told.send(type(event).__name__ + (f" {batch.number} of lane {batch.lane}" if batch else ""))

    spark.session(connect=False)
    load.load().run(listeners=[tell])


def finish_load(load: Load, spark: Spark, told: Connection) -> None:
    """Run in the last process, which is not killed."""
    spark.session(connect=False)
    report = load.load().run(check=False)
    audit = load.load().audit()
    told.send({"status": report.status, "balanced": audit.balanced, "problems": len(audit.problems)})


def format_table(kills: Sequence[Kill], seed: int, load: Load, found: Mapping[str, Any] | None) -> str:
    """Return the results as Markdown."""
    alone = sum(kill.who == "Python" for kill in kills)
    lines = [
        f"{load.rows:,} rows in {load.batches} batches, seed {seed}: {len(kills)} kills, {alone} of Python alone",
        "",
        "| kill | who died | last event told | events | seconds later |",
        "|---|---|---|---|---|",
        *(f"| {at} | {kill.who} | {kill.last} | {kill.events} | {kill.after} |" for at, kill in enumerate(kills, 1)),
    ]
    if found is not None:
        right = "each row exactly once" if found == load.expected else f"WRONG, expected {dict(load.expected)}"
        lines += ["", f"In the end: {dict(found)}: {right}."]
    return "\n".join([*lines, ""])


def main() -> int:
    """Perform the requested number of kills, then check the result."""
    parser = make_parser(__doc__, kills=100)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=400)
    asked = parser.parse_args()
    return run_trial(Load(asked.into.absolute(), asked.rows, asked.batches), asked, "soak")


def make_parser(says: str | None, kills: int) -> argparse.ArgumentParser:
    """Return the parser for the options of a trial."""
    parser = argparse.ArgumentParser(description=says, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the folder; what is there is gone on with")
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--most", type=int, default=None, help="how many kills this call does at most")
    parser.add_argument("--seed", type=int, default=None)
    return parser


def run_trial(load: Load, asked: argparse.Namespace, name: str) -> int:
    """Perform the requested number of kills, then check the result. The results are written under this name as they
    arrive."""
    asked.into.mkdir(parents=True, exist_ok=True)
    notes, shown = asked.into / f"{name}.json", asked.into / f"{name}.md"
    kept: dict[str, Any] = {"seed": asked.seed or random.randrange(1 << 32)}
    if notes.exists():
        kept = json.loads(notes.read_text())
    kills = [Kill(**kill) for kill in kept.get("kills", [])]
    load.prepare()
    server, until = Server(asked.into / "jvm"), asked.kills
    if asked.most is not None:
        until = min(until, len(kills) + asked.most)
    try:
        while len(kills) < until:
            kill = load.kill(random.Random(kept["seed"] + len(kills)), server)
            if kill is None:
                break
            kills.append(kill)
            replace_file(notes, {**kept, "kills": [asdict(each) for each in kills]})
            shown.write_text(format_table(kills, kept["seed"], load, None), encoding="utf-8")
            print(f"{len(kills)}: {kill}", flush=True)  # noqa: T201
        if len(kills) == until < asked.kills:
            return 1
        found = load.finish(server)
    finally:
        server.close()
    shown.write_text(format_table(kills, kept["seed"], load, found), encoding="utf-8")
    print(f"{found}, expected {load.expected}", flush=True)  # noqa: T201
    return 0 if found == load.expected and len(kills) >= asked.kills else 1


if __name__ == "__main__":
    sys.exit(main())
