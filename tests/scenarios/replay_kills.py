"""Kill processes at random while they replay refused rows. Each row is delivered exactly once.

    python -m tests.scenarios.replay_kills --into FOLDER                10,000 rows, 20 kills
    python -m tests.scenarios.replay_kills --into FOLDER --seed 7       the same kills as before with this seed
    python -m tests.scenarios.replay_kills --into FOLDER --fix          the replay has a fix; one row of 100 fails again

The script continues an earlier call. It writes `kills.md` with the point of each kill and the final result.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runners.model.errors import Refusal
from runners.model.events import Event
from runners.operations.pipeline_access import open_state
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.running.fix import Fix
from runners.running.replay import Replay
from runners.state.journal import list_decided
from runners.state.location import find_dlq
from tests.scenarios.kept import replace_file

DEFINITION = """
name: orders
origin:
  files: {{path: "landing/*.json", format: json, schema: "id long, amount string"}}
stages:
  - with_columns: {{amount: "replace(amount, ',', '{mended}')"}}
  - cast: {{amount: "decimal(10,2)"}}
destinations:
  - delta: {{path: tables/a}}
  - delta: {{path: tables/b}}
dlq: {{window: 0}}
run: {{batch: {{rows: {batch}}}}}
"""
FIX = Fix(columns={"amount": "replace(amount, ',', '.')"})
ANOTHER = Replay(fix=Fix(columns={"amount": "'0'"}), reason="another fix")
BROKEN = 100
"""With a fix, each row whose number is a multiple of this one is refused again."""
MOST_EVENTS = 9
"""A process dies at the latest after this many events of its run."""


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A killed process, and the moment of its death."""

    events: int
    """How many events of its run the process had reported."""
    last: str
    """The last event that it reported."""
    after: float
    """The seconds between that event and the kill."""
    left: int
    """How many rows waited then."""


@dataclass(frozen=True)
class Trial:
    """A folder with a pipeline whose refused rows are replayed."""

    folder: Path
    rows: int
    batch: int
    fixed: bool = False
    """Whether the replay has a fix. Otherwise the definition is mended."""

    def prepare(self) -> None:
        """Let all rows be refused. Then mend the definition, unless the replay has a fix. A repeated call changes
        nothing."""
        if self.ready.exists():
            return
        (self.folder / "landing").mkdir(parents=True, exist_ok=True)
        point = {number: ";" if self.fixed and number % BROKEN == 0 else "," for number in range(1, self.rows + 1)}
        lines = [json.dumps({"id": number, "amount": f"{number}{each}50"}) + "\n" for number, each in point.items()]
        (self.folder / "landing" / "1.json").write_text("".join(lines), encoding="utf-8")
        self._define(mended="x")
        report = self.load().run()
        assert report.nacked == self.rows, report
        if not self.fixed:
            self._define(mended=".")
        self.ready.write_text(datetime.now(timezone.utc).isoformat(), encoding="utf-8")

    def _define(self, mended: str) -> None:
        self.file.write_text(DEFINITION.format(mended=mended, batch=self.batch), encoding="utf-8")

    @property
    def ready(self) -> Path:
        """The file with the time at which all rows had been refused once."""
        return self.folder / "ready"

    def choose_replay(self) -> Replay:
        """Return a replay that does not depend on how far the last one came. With a fix, it never includes a row that
        was refused again after the fix."""
        if not self.fixed:
            return Replay(reason="again and again")
        try:
            return self.load().refused.find_cut_replay()
        except Refusal:
            first = Choice(until=datetime.fromisoformat(self.ready.read_text(encoding="utf-8")))
            return Replay(choice=first, fix=FIX, reason="decimal commas")

    @property
    def file(self) -> Path:
        """The path of the definition."""
        return self.folder / "pipeline.yaml"

    def load(self) -> Pipeline:
        """Load the pipeline from the present definition."""
        return Pipeline.load(self.file)

    def kill(self, dice: random.Random) -> Kill | None:
        """Replay in a separate process and kill it at a random point. Return None if it ended before."""
        events, after = dice.randint(0, MOST_EVENTS), dice.random() * 1.5
        command = [sys.executable, "-m", "tests.scenarios.replay_kills", "--into", str(self.folder), "--here"]
        command += ["--fix"] * self.fixed
        heard = ["nothing"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            while len(heard) <= events and (line := process.stdout.readline()):
                heard.append(line.strip())
            time.sleep(after if len(heard) > 1 else 10 * after)
            process.kill()
            process.stdout.read()
        if process.returncode == 0:
            return None
        assert process.returncode == -9, f"it ended by itself: {process.returncode}"
        self.check_another_fix()
        return Kill(events=len(heard) - 1, last=heard[-1], after=round(after, 2), left=self.waiting())

    def check_another_fix(self) -> None:
        """Check that another fix is refused while rows wait for the fix of a replay that was cut short."""
        journal, (dlq, spark) = open_state(self.load())[1], find_dlq(self.load())
        pinned = journal.state.replay
        if pinned is None or not pinned.decided:
            return
        waiting = Replay.resume(journal.state).choice.select_letters(dlq, spark, list_decided(journal))
        try:
            ANOTHER.check(journal, dlq, spark)
        except Refusal:
            assert waiting, "another fix is refused though no row waits"
        else:
            assert not waiting, "another fix is let in"

    def waiting(self) -> int:
        """Return how many rows of the DLQ have not been replayed."""
        return int(self.load().status()["dlq"]["unreplayed"])

    def finish(self) -> Mapping[str, Any]:
        """Replay the remaining rows, and count the result. Count also the first refusals of the rows that were refused
        again."""
        pipeline = self.load()
        pipeline.replay(self.choose_replay())
        again = [row["replays"] for row in pipeline.refused.list() if not row["replayed"]]
        first = {row["id"] for row in pipeline.refused.list() if not row["replays"]}
        counted = {name: self._count_rows(name) for name in ("a", "b")}
        return {"waiting": len(again), "of": len(first.intersection(again)), **counted}

    def _count_rows(self, name: str) -> tuple[int, int, int]:
        """Return the number of rows, the number of distinct ids, and the sum of the amounts in cents."""
        from deltalake import DeltaTable, QueryBuilder

        table = QueryBuilder().register("t", DeltaTable(str(self.folder / "tables" / name)))
        asked = "select count(*) n, count(distinct id) ids, cast(sum(amount) * 100 as bigint) cents from t"
        found = table.execute(asked).read_all()
        return tuple(int(found[column][0].as_py()) for column in ("n", "ids", "cents"))  # type: ignore[return-value]

    @property
    def expected(self) -> Mapping[str, Any]:
        """The expected final result."""
        broken = self.rows // BROKEN if self.fixed else 0
        good = self.rows - broken
        cents = self.rows * (self.rows + 1) * 50 - broken * (broken + 1) * 50 * BROKEN + 50 * good
        return {"waiting": broken, "of": broken, "a": (good, good, cents), "b": (good, good, cents)}


def carry_again(trial: Trial) -> None:
    """Replay in the process that is killed, and print each event."""

    def tell(event: Event) -> None:
        batch = getattr(event, "batch", None)
        print(type(event).__name__ + (f" {batch.number}" if batch else ""), flush=True)  # noqa: T201

    trial.load().replay(trial.choose_replay(), listeners=[tell])


def format_table(kills: list[Kill], seed: int, trial: Trial, found: Mapping[str, Any] | None) -> str:
    """Return the results as Markdown."""
    lines = [
        f"{trial.rows:,} rows in batches of {trial.batch}, seed {seed}",
        "",
        "| kill | last event told | seconds later | rows waiting |",
        "|---|---|---|---|",
        *(f"| {at} | {kill.last} | {kill.after} | {kill.left:,} |" for at, kill in enumerate(kills, 1)),
    ]
    if found is not None:
        right = "each row exactly once" if found == trial.expected else f"WRONG, expected {dict(trial.expected)}"
        lines += ["", f"In the end: {dict(found)}: {right}."]
    return "\n".join([*lines, ""])


def main() -> int:
    """Perform the requested number of kills, then check the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the folder; what is there is gone on with")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--fix", action="store_true", help="the replay has a fix")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    trial, notes = Trial(asked.into, asked.rows, asked.batch, asked.fix), asked.into / "kills.json"
    if asked.here:
        carry_again(trial)
        return 0
    asked.into.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = {"seed": asked.seed or random.randrange(1 << 32)}
    if notes.exists():
        kept = json.loads(notes.read_text())
    kills = [Kill(**kill) for kill in kept.get("kills", [])]
    print(f"seed {kept['seed']}, {len(kills)} kills so far", flush=True)  # noqa: T201
    trial.prepare()
    while len(kills) < asked.kills:
        kill = trial.kill(random.Random(kept["seed"] + len(kills)))
        if kill is None:
            break
        kills.append(kill)
        replace_file(notes, {**kept, "kills": [asdict(each) for each in kills]})
        (asked.into / "kills.md").write_text(format_table(kills, kept["seed"], trial, None), encoding="utf-8")
        print(f"{len(kills)}: {kill}", flush=True)  # noqa: T201
    found = trial.finish()
    said = format_table(kills, kept["seed"], trial, found)
    (asked.into / "kills.md").write_text(said, encoding="utf-8")
    print(said, flush=True)  # noqa: T201
    return 0 if found == trial.expected and len(kills) >= asked.kills else 1


if __name__ == "__main__":
    sys.exit(main())
