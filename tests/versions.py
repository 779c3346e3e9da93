"""Run chosen tests on pairs of Spark and Delta, each in a fresh environment: `python -m tests.versions`.

It needs Python alone. It continues where it was, and writes a table of the pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CHOSEN = (
    "tests/origins/files/csv/test_quotes.py",
    "tests/origins/test_spark_private.py::test_a_connect_client_works_after_one_of_its_threads_closed_a_session",
    "tests/scenarios/test_few_rows.py",
    "tests/scenarios/test_from_delta.py::test_rows_added_after_the_first_run_are_delivered_once",
    "tests/scenarios/test_from_delta.py::test_a_refused_row_names_the_version_of_the_table",
    "tests/scenarios/test_unknown_features.py",
    *(
        f"tests/scenarios/test_merge_and_replace.py::test_{name}"
        for name in (
            "the_highest_in_sequence_wins_and_every_row_is_accounted_for",
            "without_a_sequence_the_last_row_wins",
            "a_killed_merge_is_found_by_the_label_in_its_statement",
        )
    ),
    "tests/stages/python/test_protocol.py",
    "tests/stages/python/test_python.py",
    "tests/stages/claim/test_claim.py::test_claim_keeps_the_promises_of_a_stage",
    "tests/stages/claim/test_claim.py::test_claim_and_unclaim_together_change_nothing",
)
"""The tests: files, or single tests."""
_RUN_THERE = ("limits", "proxy", "wheel_task", "example", "scenario", "ledger_writers")
ON_DATABRICKS = tuple(f"tests/databricks/test_{name}.py" for name in _RUN_THERE)
"""The tests of a runtime of Databricks. They take the kinds of compute that have the installed Spark.

The server that refuses what Databricks refuses is tried there too.
"""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A Spark, with the Python and the packages that are its neighbours."""

    name: str
    python: str
    packages: Sequence[str]
    tests: Sequence[str] = CHOSEN


PAIRS = (
    Pair(
        name="oldest",
        python="3.10",
        packages=("pyspark[connect]==4.0.1", "pyarrow==19.*", "pandas==2.2.*", "protobuf==5.29.*"),
    ),
    Pair(name="middle", python="3.12", packages=("pyspark==4.1.1", "pyarrow==21.*", "pandas==2.2.*")),
    Pair(name="newest", python="3.13", packages=("pyspark==4.2.0", "pandas<3")),
)
_NOTEBOOK = ("ipykernel>=6.29,<8", "setuptools>=77", "wheel")
RUNTIMES = (
    Pair(
        name="databricks-17.3",
        python="3.12",
        packages=("pyspark[connect]==4.0.1", "pyarrow==19.*", "pandas==2.2.*", "protobuf==5.29.*", *_NOTEBOOK),
        tests=ON_DATABRICKS,
    ),
    Pair(
        name="databricks-18.0",
        python="3.12",
        packages=("pyspark[connect]==4.1.1", "pyarrow==21.*", "pandas==2.2.*", *_NOTEBOOK),
        tests=ON_DATABRICKS,
    ),
)
"""The open parts that come nearest to runtimes of Databricks. The environment of all tests has the newest Spark.

The client of open Spark 4.1 needs protobuf 6.33, so `databricks-18.0` cannot have the 5.29 of that runtime. Python 3.11
belongs to runtimes below the floor: 15.4, and serverless environment 2.
"""
EVERY = *PAIRS, *RUNTIMES
_LEFT_OPEN = "ignore:unclosed <socket:ResourceWarning"
"""pyspark before 4.2 leaves sockets to the garbage collector."""
_TOOLS = ("pytest>=9,<10", "pytest-timeout>=2.4,<3", "pytest-xdist>=3.8,<4", "hypothesis>=6.100")
_SHOWN = ("pyspark", "delta-spark", "pyarrow", "pandas", "deltalake")
_PROBE = """
import json, platform, subprocess, sys
from importlib.metadata import version
said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
found = {name: version(name) for name in sys.argv[1:]}
print(json.dumps({"Python": platform.python_version(), "Java": said.split('"')[1], **found}))
"""


def find_python(wanted: str) -> str:
    """Return a program of this version of Python. It is on the PATH, or pyenv has installed it."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    on_path = [found] if (found := shutil.which(f"python{wanted}")) else []
    for program in (sys.executable, *on_path, *map(str, sorted(installed.glob(f"{wanted}.*/bin/python")))):
        said = subprocess.run([program, "-V"], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.startswith(f"Python {wanted}."):
            return program
    raise SystemExit(f"Python {wanted} is not here. Install it, so that `python{wanted}` is on the PATH.")


def try_pair(pair: Pair, folder: Path) -> Mapping[str, str]:
    """Run the tests in a new environment. Return the versions and the outcome."""
    place = folder / pair.name
    subprocess.run([find_python(pair.python), "-m", "venv", "--clear", place], check=True)
    python = place / "bin" / "python"
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--upgrade", "pip"], check=True)
    subprocess.run([*install, "-e", f"{ROOT}[spark]", *_TOOLS, *pair.packages], check=True)
    probe = subprocess.run([python, "-c", _PROBE, *_SHOWN], capture_output=True, text=True, check=True)
    began = time.monotonic()
    tests = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", _LEFT_OPEN, *pair.tests],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    (folder / f"{pair.name}.log").write_text(tests.stdout, encoding="utf-8")
    sys.stdout.write(tests.stdout[-4000:])
    sys.stdout.flush()
    counts = {word: number for number, word in re.findall(r"(\d+) (passed|failed|skipped)", tests.stdout[-500:])}
    outcome = {"passed": "0", "failed": "0", **counts, "seconds": f"{time.monotonic() - began:.0f}"}
    return {"pair": pair.name, **json.loads(probe.stdout), **outcome, "exit": str(tests.returncode)}


def find_commit() -> str:
    """Return the commit of this checkout; empty outside a repository."""
    found = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def format_table(results: Sequence[Mapping[str, str]]) -> str:
    """Return the results as a table in Markdown."""
    heads = ["pair", "Python", "Java", *_SHOWN, "passed", "failed", "seconds"]
    rows = [[result.get(head, "") for head in heads] for result in results]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, ["---"] * len(heads), *rows))


def list_done(file: Path, commit: str) -> Iterator[Mapping[str, str]]:
    """Yield the earlier results of this commit."""
    if file.exists():
        yield from (each for each in json.loads(file.read_text(encoding="utf-8")) if each["commit"] == commit)


def main(words: Sequence[str] | None = None) -> int:
    """Try the pairs that are named, or all. Return 1 if a test failed."""
    parser = argparse.ArgumentParser(prog=".ci/versions", description=__doc__)
    parser.add_argument(
        "pairs", nargs="*", metavar="PAIR", help=f"{', '.join(pair.name for pair in EVERY)}; all without one"
    )
    parser.add_argument(
        "--into", type=Path, default=ROOT / "build" / "versions", help="the folder of environments and results"
    )
    given = parser.parse_args(words)
    known = {pair.name: pair for pair in EVERY}
    strange = [name for name in given.pairs if name not in known]
    if strange:
        parser.error(f"expected {', '.join(known)}, got {strange[0]}")
    folder, commit = given.into.resolve(), find_commit()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.json"
    results = {result["pair"]: result for result in list_done(file, commit)}
    for name in given.pairs or known:
        if results.get(name, {}).get("exit") != "0":
            results[name] = {**try_pair(known[name], folder), "commit": commit}
            file.write_text(json.dumps([*results.values()], indent=1), encoding="utf-8")
    table = format_table([results[name] for name in known if name in results])
    (folder / "versions.md").write_text(table, encoding="utf-8")
    sys.stdout.write(table)
    return int(any(results[name]["exit"] != "0" for name in given.pairs or known))


if __name__ == "__main__":
    sys.exit(main())
