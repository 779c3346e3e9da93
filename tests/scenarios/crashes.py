"""Crash runs at every point and in every way. No row is lost, and no destination with memory gets a row twice.

    python -m tests.scenarios.crashes --into FOLDER               every cell; continues an earlier call
    python -m tests.scenarios.crashes --into FOLDER --most 20     twenty more of them
    python -m tests.scenarios.crashes --into FOLDER --only 3      only the cell with this number, again
    python -m tests.scenarios.crashes --into FOLDER --on s3       with state and tables in a separate S3

In each cell, a process is killed at the point, alone or with its JVM, or an exception is raised there. Then another run
continues. The first cells combine every two values of all columns. The other cells combine every point with every way
and every destination. The script writes `crashes.md` with each cell and its errors.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from origins.crash_points import POINTS
from tests.crash_injector import LATER, CrashRaised
from tests.scenarios.crash_cell import BUCKET, Cell, Trial, crash_trial, finish_trial
from tests.scenarios.kept import replace_file
from tests.scenarios.shared_jvm import PROCESSES, Server, Spark
from tests.stores.jars import join_store_jars
from tests.stores.s3 import make_bucket, make_spark_settings, start_s3

SEED = 8
"""The seed for values that are not combined: which destinations `three` stands for, and in which batch the crash
happens."""
FACTORS: Mapping[str, Sequence[Any]] = {
    "point": tuple(POINTS),
    "how": ("kill", "raise"),
    "destinations": ("append", "merge", "replace", "files", "python", "three"),
    "refused": ("none", "some", "all"),
    "delivery": ("after_all", "after_any"),
    "lanes": (1, 4),
    "ledger": ("deltalake", "spark"),
    "spark": ("classic", "connect"),
    "rows": ("few", "spark"),
    "order": ("up", "late", "never"),
}
WEIGHTS = {"lanes": (2, 1), "ledger": (4, 1)}
"""Weights that make expensive values rarer where a cell does not need them."""
THREE = ("append+merge+files", "append+replace+files", "merge+files+python", "append+merge+replace")
WRITES = ("before-write", "in-write", "after-write", "between-writes", "after-writes", "resting", "lost-lease")
DECIDED = ("after-prepare", "before-prepared", "after-prepared")
ALL_DIE = 6
"""One in this many kills ends the JVM too."""
ENOUGH = 600.0
"""The seconds after which a process counts as hung."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The result of a cell."""

    number: int
    cell: Cell
    wrong: list[str]
    seconds: float

    def format_line(self) -> str:
        """Return the result as a row of the table."""
        cell = self.cell
        values = [cell.point, cell.how, cell.destinations, cell.refused, cell.delivery, cell.lanes, cell.ledger]
        values += [cell.spark, cell.rows, cell.order, cell.plan, cell.weaker or "nothing"]
        said = "; ".join(self.wrong).replace("\n", " ").replace("|", "/")
        values += [f"{self.seconds:.0f} s", f"WRONG: {said}" if self.wrong else "right"]
        return f"| {self.number} | {' | '.join(map(str, values))} |"


def is_possible(cell: Mapping[str, Any]) -> bool:
    """Whether a batch can reach the point. Columns without a value exclude nothing."""
    point, destinations, refused = (cell.get(name) for name in ("point", "destinations", "refused"))
    prepared = destinations in (None, "three", "python") or refused != "none"
    order = cell.get("order")
    return not (
        (point in WRITES and refused == "all")
        or (point == "between-writes" and destinations not in (None, "three"))
        or (point in DECIDED and not prepared)
        or (point in ("before-dlq", "after-dlq") and refused == "none")
        or (point == "after-claim" and destinations not in (None, "files", "three"))
        or (point in LATER and refused == "all")
        or (point == "after-fence" and destinations == "python")
        or (order in ("late", "never") and (cell.get("ledger") == "spark" or cell.get("spark") == "connect"))
        or (order == "never" and not _is_short(cell))
    )


def _is_short(cell: Mapping[str, Any]) -> bool:
    """Whether Python can process such a batch without Spark. Columns without a value exclude nothing."""
    short = {"destinations": "append", "refused": "none", "rows": "few"}
    return all(cell.get(name, value) == value for name, value in short.items())


def make_cells(seed: int = SEED) -> list[Cell]:
    """Return all cells, always in the same order. The most expensive cells come last."""
    dice = random.Random(seed)
    chosen = list(_pair_values(dice))
    met = {(each["point"], each["how"], each["destinations"]) for each in chosen}
    for point, how, destinations in itertools.product(*(FACTORS[name] for name in ("point", "how", "destinations"))):
        fixed = {"point": point, "how": how, "destinations": destinations}
        if (point, how, destinations) not in met and is_possible(fixed):
            chosen.append(_fill_cell(fixed, dice))
    every = [_make_cell(number, each, dice) for number, each in enumerate(chosen)]
    return sorted(every, key=lambda cell: (cell.ledger == "spark", cell.how == "kill all", cell.lanes))


def _make_cell(number: int, chosen: Mapping[str, Any], dice: random.Random) -> Cell:
    values = dict(chosen)
    if values["destinations"] == "three":
        values["destinations"] = dice.choice(
            [each for each in THREE if "files" in each or values["point"] != "after-claim"]
        )
    if values["how"] == "kill" and number % ALL_DIE == 0 and values["order"] != "never":
        values["how"] = "kill all"
    return Cell(**values, plan=dice.choice([1, 2]))


def _pair_values(dice: random.Random) -> Iterator[dict[str, Any]]:
    """Yield cells in which every two possible values of different columns occur together."""
    pairs = {
        frozenset([(one, a), (other, b)])
        for one, other in itertools.combinations(FACTORS, 2)
        for a, b in itertools.product(FACTORS[one], FACTORS[other])
        if is_possible({one: a, other: b}) and _can_be_filled({one: a, other: b})
    }
    left = sorted(pairs, key=lambda pair: sorted(map(str, pair)))
    dice.shuffle(left)
    while left:
        best = max((_fill_cell(dict(left[0]), dice) for _ in range(20)), key=lambda cell: _count_covered(cell, left))
        yield best
        left = [pair for pair in left if not pair <= best.items()]


def _count_covered(cell: Mapping[str, Any], pairs: Sequence[frozenset[tuple[str, Any]]]) -> int:
    items = set(cell.items())
    return sum(pair <= items for pair in pairs)


def _can_be_filled(fixed: Mapping[str, Any]) -> bool:
    free = [name for name in ("point", "destinations", "refused") if name not in fixed]
    choices = itertools.product(*(FACTORS[name] for name in free))
    return any(is_possible({**fixed, **dict(zip(free, choice, strict=True))}) for choice in choices)


def _fill_cell(fixed: Mapping[str, Any], dice: random.Random) -> dict[str, Any]:
    """Return the cell with random values in its other columns."""
    while True:
        free = {name: dice.choices(values, WEIGHTS.get(name))[0] for name, values in FACTORS.items()}
        cell = {**free, **fixed}
        if is_possible(cell):
            return cell


def run_cell(number: int, cell: Cell, folder: Path, server: Server, *, s3: str = "") -> Ended:
    """Crash the cell, continue, and check the result."""
    began, trial = time.monotonic(), Trial(cell=cell, folder=folder, s3=s3)
    trial.prepare()
    wrong = _crash_and_check(trial, server)
    if not wrong and cell.how != "raise":
        ended = _run_apart(finish_trial, trial, server)
        wrong += [] if ended == 0 else [f"the restart ended with {ended}: {_read_errors(trial)}"]
    if not wrong:
        wrong += trial.wrong(json.loads((folder / "finished.json").read_text()))
    return Ended(number=number, cell=cell, wrong=wrong, seconds=time.monotonic() - began)


def list_numbers(every: Sequence[Cell], place: str) -> list[int]:
    """Return the numbers of the cells that are possible there. A catalog keeps its tables only on this disk."""
    return [number for number, cell in enumerate(every) if place == "disk" or cell.ledger == "deltalake"]


def _crash_and_check(trial: Trial, server: Server) -> list[str]:
    """Crash the cell. Return what is wrong with the crash."""
    cell = trial.cell
    for first in (True, False) if cell.point in LATER else (False,):
        ended, expected = (
            _run_apart(crash_trial, trial, server, first=first),
            0 if cell.how == "raise" and not first else -9,
        )
        if ended != expected:
            return [f"the crash ended with {ended}, expected {expected}: {_read_errors(trial)}"]
    if cell.how == "kill all" and server.spark is not None:
        server.spark.wait_for_end()
    if cell.how != "raise":
        return []
    return _check_raised(cell, json.loads((trial.folder / "carried.json").read_text()))


def _check_raised(cell: Cell, carried: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the report of an exception. If lanes share a write, the run may look up what landed and
    continue."""
    told = carried["code"] == "FENCED" if cell.point == "lost-lease" else CrashRaised.__name__ in carried["said"]
    asked = cell.lanes > 1 and cell.point in ("after-write", "after-writes") and carried["status"] == "succeeded"
    failed = carried["status"] == "failed" and told
    return [] if carried["happened"] and (failed or asked) else [f"the run said {carried}"]


def _read_errors(trial: Trial) -> str:
    file = trial.folder / "said"
    return file.read_text(errors="replace")[-500:] if file.exists() else ""


def _run_apart(does: Any, trial: Trial, server: Server, **how: Any) -> int | None:
    """Run a function in a separate process. Return the exit code, or None if the process hung."""
    spark = None if trial.cell.order == "never" else server.get()
    process = PROCESSES.Process(target=_run_quietly, args=[does, trial, spark], kwargs=how)
    process.start()
    process.join(ENOUGH)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


def _run_quietly(does: Any, trial: Trial, spark: Spark | None, **how: Any) -> None:
    said = os.open(trial.folder / "said", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    does(trial, spark, **how)


def format_table(found: Sequence[Ended], of: int) -> str:
    """Return the results as Markdown."""
    right = sum(not each.wrong for each in found)
    head = [
        "cell",
        "point",
        "how",
        "destinations",
        "refused",
        "delivery",
        "lanes",
        "ledger",
        "Spark",
        "rows",
        "JVM",
        "batch",
    ]
    head += ["JVM", "batch", "weaker by", "took", ""]
    lines = [f"{len(found)} of {of} cells were run, {right} are right.", "", f"| {' | '.join(head)} |"]
    return "\n".join([*lines, "|" + "---|" * len(head), *(each.format_line() for each in found), ""])


def main() -> int:
    """Run every cell that has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the folder; what is there is gone on with")
    parser.add_argument("--only", type=int, nargs="*", default=None, help="the numbers of cells, from 0")
    parser.add_argument("--most", type=int, default=None, help="how many cells this call runs at most")
    parser.add_argument("--on", choices=["disk", "s3"], default="disk", help="where state and tables are")
    parser.add_argument("--seed", type=int, default=SEED, help="chooses what is not crossed")
    asked = parser.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    every, notes = make_cells(asked.seed), asked.into / "crashes.json"
    kept: list[Ended] = []
    if notes.exists():
        kept = [Ended(**{**each, "cell": Cell(**each["cell"])}) for each in json.loads(notes.read_text())]
    kept = [each for each in kept if asked.only is None or each.number not in asked.only]
    done, numbers = {each.number for each in kept}, list_numbers(every, asked.on)
    waiting = [number for number in asked.only or numbers if number not in done][: asked.most]
    with contextlib.ExitStack() as stack:
        s3, settings = "", dict[str, str]()
        if asked.on == "s3":
            s3 = stack.enter_context(start_s3(asked.into / "s3.log"))
            make_bucket(s3, BUCKET)
            settings = {**make_spark_settings(s3), "spark.jars": join_store_jars()}
        server = stack.enter_context(contextlib.closing(Server(asked.into / "jvm", settings)))
        for number in waiting:
            ended = run_cell(number, every[number], asked.into / f"{number}-{time.time_ns()}", server, s3=s3)
            kept = sorted([*kept, ended], key=lambda each: each.number)
            replace_file(notes, [asdict(each) for each in kept])
            (asked.into / "crashes.md").write_text(format_table(kept, len(numbers)), encoding="utf-8")
            print(ended.format_line(), flush=True)  # noqa: T201
    return 0 if len(done) + len(waiting) == len(numbers) and not any(each.wrong for each in kept) else 1


if __name__ == "__main__":
    sys.exit(main())
