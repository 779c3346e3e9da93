"""Measure what Wherry costs, side by side with its peers.

    python -m tests.benchmarks --into FOLDER              every case, each in a separate process
    python -m tests.benchmarks --into FOLDER --case small  one of the cases

The results are written to FOLDER as they arrive: one file for each case, and `results.md` and `ratios.svg` for all
cases so far. A case that already has a file is measured again only if it is named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import (
    by_name,
    claims,
    expectations,
    fan_out,
    features,
    folder,
    idle,
    kafka,
    large,
    ledger,
    listeners,
    merge,
    refused,
    restart,
    scale,
    served,
    shown,
    small,
    start,
    stores,
    wide,
)
from tests.benchmarks.case import Case, Result

CASES: dict[str, Case] = {
    case.name: case
    for module in (
        small,
        large,
        restart,
        start,
        ledger,
        fan_out,
        features,
        merge,
        idle,
        folder,
        expectations,
        listeners,
        scale,
        kafka,
        refused,
        claims,
        stores,
        wide,
        by_name,
        served,
    )
    for case in module.CASES
}


def main() -> None:
    """Measure the cases that the command names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--into", type=Path, required=True, help="the folder of the figures; what is there is gone on with"
    )
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; more than once is fine")
    parser.add_argument("--turns", type=int, help="how often each way has its turn")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    if asked.here:
        _measure(CASES[asked.case[0]], asked.into, asked.turns)
        return
    for name in asked.case or [name for name in CASES if not _name_file(asked.into, name).exists()]:
        print(f"{name}: {CASES[name].says}", flush=True)  # noqa: T201
        turns = ["--turns", str(asked.turns)] if asked.turns else []
        command = [sys.executable, "-m", "tests.benchmarks", "--here", "--into", str(asked.into), "--case", name]
        subprocess.run([*command, *turns], check=True)
        print(_write_tables(asked.into, name), flush=True)  # noqa: T201


def _measure(case: Case, into: Path, turns: int | None) -> None:
    place = Path(tempfile.mkdtemp(prefix="wherry-benchmark-"))
    try:
        taken = case.measure(place, turns or case.turns)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    told = Result(case=case.name, taken=taken)
    _name_file(into, case.name).write_text(json.dumps(told.json(), indent=1), encoding="utf-8")


def _write_tables(into: Path, name: str) -> str:
    """Write the table and the plot of all measured cases. Return the table of this case."""
    found = {
        key: Result(**json.loads(_name_file(into, key).read_text())) for key in CASES if _name_file(into, key).exists()
    }
    tables = {key: shown.format_table(CASES[key], result) for key, result in found.items()}
    (into / "results.md").write_text("\n".join(tables.values()), encoding="utf-8")
    plot = shown.draw_plot([(CASES[key], result) for key, result in found.items()])
    (into / "ratios.svg").write_text(plot, encoding="utf-8")
    return tables[name]


def _name_file(into: Path, name: str) -> Path:
    return into / f"{name}.json"


if __name__ == "__main__":
    main()
