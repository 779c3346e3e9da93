"""The common part of trials with random kills: a process prints each point that it reaches, and is killed after one of
them.

A trial continues an earlier call. Its seed and the number of a process decide where that process dies.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from origins.crash_points import watch_points
from runners.pipeline import Pipeline
from tests.scenarios.kept import replace_file


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A killed process, and the moment of its death."""

    number: int
    """The number of the process. Processes that ended without a kill have numbers too."""
    what: str
    """The work that the process did."""
    who: str
    """What was killed: `Python`, or `Python and JVM`."""
    points: int
    """How many points the process had printed."""
    last: str
    """The last point that it printed."""
    after: float
    """The seconds between that point and the kill."""
    left: str
    """The work that was left then."""


@dataclass(frozen=True)
class RandomKills(ABC):
    """A folder with a pipeline whose processes are killed."""

    folder: Path
    module: ClassVar[str]
    """The module with the command of a process: `python -m MODULE`."""
    most_points: ClassVar[int] = 40
    """A process dies at the latest after this many points."""

    @property
    def file(self) -> Path:
        """The path of the definition."""
        return self.folder / "pipeline.yaml"

    def load(self) -> Pipeline:
        """Load the pipeline."""
        return Pipeline.load(self.file)

    @abstractmethod
    def prepare(self, number: int, dice: random.Random) -> str:
        """Prepare the work for this process and return its name. A repeated call changes nothing."""

    @abstractmethod
    def carry(self, what: str) -> None:
        """Do the work, in the process that is killed."""

    def interfere(self, what: str, point: int, dies_at: int) -> None:
        """Change something during the work, when the process has printed this many points."""

    @abstractmethod
    def describe_left(self) -> str:
        """Describe the work that is left."""

    @abstractmethod
    def finish(self) -> Mapping[str, Any]:
        """Do the remaining work, and count the result."""

    @abstractmethod
    def expect(self) -> Mapping[str, Any]:
        """Return the expected final result."""

    def kill(self, number: int, seed: int) -> Kill | None:
        """Start a process and kill it at a random point. Return None if it ended before."""
        dice = random.Random(f"{seed}/{number}")
        what = self.prepare(number, dice)
        points, after = dice.randint(1, self.most_points), dice.random() ** 3
        who = dice.choice(["Python", "Python and JVM"])
        command = [sys.executable, "-m", self.module, "--into", str(self.folder), "--here", what]
        last, told = "nothing", 0
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            os.set_blocking(process.stderr.fileno(), False)
            while told < points and (line := process.stdout.readline()):
                last, told = line.strip(), told + 1
                self.interfere(what, told, points)
            if told == points:
                time.sleep(after)
                self._end(process, who)
            process.wait()
            said = process.stderr.read() if process.returncode not in (0, -signal.SIGKILL) else ""
        if process.returncode == 0:
            return None
        assert process.returncode == -signal.SIGKILL, f"it ended by itself: {process.returncode}\n{said[-3_000:]}"
        return Kill(
            number=number,
            what=what,
            who=who,
            points=told,
            last=last,
            after=round(after, 2),
            left=self.describe_left(),
        )

    def _end(self, process: subprocess.Popen[str], who: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            if who == "Python":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)


def print_points(do: Callable[[], None]) -> None:
    """Run a function and print each point that it reaches."""

    def tell(point: str, of: str, rows: Any) -> Any:
        print(f"{point} {of}".strip(), flush=True)  # noqa: T201
        return rows

    with watch_points(tell):
        do()


def list_lines(kills: Sequence[Kill], seed: int, trial: RandomKills, found: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the results as lines of Markdown."""
    yield from (f"{len(kills)} kills, seed {seed}", "")
    yield "| process | what it did | killed | behind the point | seconds later | left then |"
    yield "|---|---|---|---|---|---|"
    for kill in kills:
        yield f"| {kill.number} | {kill.what} | {kill.who} | {kill.last} | {kill.after} | {kill.left} |"
    if found is not None:
        right = "right" if found == trial.expect() else f"WRONG, expected {dict(trial.expect())}"
        yield from ("", f"In the end: {dict(found)}: {right}.")
    yield ""


def main(describe: str, make: Callable[[argparse.Namespace], RandomKills], *options: tuple[str, Sequence[str]]) -> int:
    """Perform the requested number of kills, then check the result."""
    parser = argparse.ArgumentParser(description=describe, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the folder; what is there is gone on with")
    parser.add_argument("--kills", type=int, default=20, help="how many kills there are in the end")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--most", type=int, default=None, help="kill so often now, and do not look yet")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    for name, choices in options:
        parser.add_argument(name, choices=choices, default=choices[0])
    asked = parser.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    trial, notes = make(asked), asked.into / "kills.json"
    if asked.here:
        print_points(lambda: trial.carry(asked.here))
        return 0
    kept: dict[str, Any] = {"seed": asked.seed or random.SystemRandom().randrange(1 << 32), "next": 1}
    if notes.exists():
        kept = json.loads(notes.read_text(encoding="utf-8"))
    kills = [Kill(**kill) for kill in kept.get("kills", [])]
    until = asked.kills if asked.most is None else min(asked.kills, len(kills) + asked.most)
    while len(kills) < until:
        kill = trial.kill(kept["next"], kept["seed"])
        kills += [kill] if kill else []
        kept = {**kept, "next": kept["next"] + 1, "kills": [asdict(each) for each in kills]}
        replace_file(notes, kept)
        print(f"{len(kills)}: {kill or 'it was done before'}", flush=True)  # noqa: T201
    whole = len(kills) >= asked.kills
    found = trial.finish() if whole else None
    said = "\n".join(list_lines(kills, kept["seed"], trial, found))
    (asked.into / "kills.md").write_text(said, encoding="utf-8")
    print(said, flush=True)  # noqa: T201
    return 0 if not whole or found == trial.expect() else 1
