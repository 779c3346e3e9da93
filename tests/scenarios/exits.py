"""Start commands some hundreds of times. Each ends with its exit code, and never by a crash behind its report.

    python -m tests.scenarios.exits --into FOLDER                  440 starts, 40 with a JVM; continues an earlier one
    python -m tests.scenarios.exits --into FOLDER --most 20        twenty more of them
    python -m tests.scenarios.exits --into FOLDER --only fenced    only the starts of this kind

The script writes `exits.md`: how often each kind of start ended with which code, and which threads it had at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.child import clean_environment
from tests.scenarios.kept import replace_file
from tests.stores.s3 import make_bucket, make_client, make_spark_settings, start_s3

ROOT = Path(__file__).parents[2]
STARTS: Mapping[str, tuple[int, int]] = {
    "nothing new": (120, 0),
    "few rows": (100, 0),
    "wrong definition": (40, 2),
    "fenced": (80, 1),
    "rows of a store": (60, 0),
    "with a JVM": (40, 0),
}
"""How often each kind is started, and its exit code."""
DEFINITION = """
name: orders
origin:
  files: {path: "PATH", format: json, schema: "id long, email string"}
destinations:
  - delta: {path: tables/orders}
run: {batch: {files: 1}, runners: 1}
"""
CHANGES: Mapping[str, str] = {
    "wrong definition": "stages: [nothing: {}]\n",
    "fenced": 'hooks: [{on: start, python: "takes:take"}]\n',
    "with a JVM": 'stages: [with_columns: {email: "lower(email)"}]\n',
}
TAKES = """
from runners.pipeline import Pipeline
from runners.definitions.definition import definition_of
from runners.state.process_locks import identify_host
from runners.state.location import StateLocation


def take(facts):
    place = StateLocation.of(definition_of(Pipeline.load("pipeline.yaml")).pipeline)
    place.open_journal(definition_of(Pipeline.load("pipeline.yaml")).pipeline).acquire(
        {**vars(identify_host()), "pipeline": "orders", "run": "other", "jvm": None, "lock": None}
    )
"""
"""A hook that takes the pipeline from its run."""
PROGRAM = """
import os
from contextlib import suppress
from pathlib import Path

leave = os._exit


def note_and_leave(code):
    threads = []
    for each in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            threads.append(Path(each, "comm").read_text().strip())
    Path("threads").write_text(chr(10).join(threads))
    leave(code)


os._exit = note_and_leave
from runners.command_line.cli import main
main()
"""
"""The command, which notes the threads of its process as its last act."""
IMPORTS = "import pyspark.sql\n"
"""What the hook and the run would import at the same time."""


def start_one(kind: str, folder: Path, store: str) -> dict[str, Any]:
    """Start the command in a new folder. Return its kind, its exit code, its threads, and what it printed."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "landing").mkdir(parents=True)
    path = "landing/*.json"
    rows = [json.dumps({"id": number, "email": f"A{number}@x.com"}) + "\n" for number in range(40)]
    text = DEFINITION + CHANGES.get(kind, "")
    if kind == "rows of a store":
        path = "s3://exits/landing/*.json"
        text += f"spark: {json.dumps({'conf': make_spark_settings(store)})}\n"
    elif kind != "nothing new":
        for number, row in enumerate(rows):
            (folder / "landing" / f"{number}.json").write_text(row, encoding="utf-8")
    (folder / "pipeline.yaml").write_text(text.replace("PATH", path), encoding="utf-8")
    (folder / "takes.py").write_text(TAKES, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS * (kind == "fenced") + PROGRAM, "run", "pipeline.yaml"],
        cwd=folder,
        env=clean_environment(PYTHONPATH=f"{ROOT}:{folder}"),
        capture_output=True,
        text=True,
        check=False,
    )
    noted = folder / "threads"
    threads = Counter(noted.read_text(encoding="utf-8").splitlines()) if noted.exists() else {}
    return {"kind": kind, "code": done.returncode, "threads": dict(threads), "said": done.stderr[-2000:]}


def list_waiting(kept: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the kinds of the starts that are left, mixed."""
    done = Counter(each["kind"] for each in kept)
    places = [
        ((number + 0.5) / count, kind) for kind, (count, _) in STARTS.items() for number in range(done[kind], count)
    ]
    return [kind for _, kind in sorted(places)]


def format_table(kept: Sequence[Mapping[str, Any]]) -> str:
    """Return the exit codes and the threads of each kind as Markdown."""
    lines = ["| start | expected | starts by exit code | threads at the end, at most |", "|---|---|---|---|"]
    for kind, (count, code) in STARTS.items():
        mine = [each for each in kept if each["kind"] == kind]
        ended = ", ".join(
            f"{found}: {times}" for found, times in sorted(Counter(each["code"] for each in mine).items())
        )
        most: Counter[str] = Counter()
        for each in mine:
            most |= Counter(_strip_number(each["threads"]))
        threads = ", ".join(f"{times} {name}" for name, times in sorted(most.items()))
        lines.append(f"| {kind} ({len(mine)} of {count}) | {code} | {ended} | {threads} |")
    wrong = [each for each in kept if each["code"] != STARTS[each["kind"]][1]]
    return "\n".join([*lines, "", f"{len(wrong)} of {len(kept)} starts ended with another code.", ""])


def _strip_number(threads: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, times in threads.items():
        found[name.rstrip("0123456789-_")] += times
    return found


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--most", type=int)
    parser.add_argument("--only", action="append", choices=STARTS)
    asked = parser.parse_args(words)
    asked.into.mkdir(parents=True, exist_ok=True)
    notes = asked.into / "exits.json"
    kept: list[dict[str, Any]] = json.loads(notes.read_text(encoding="utf-8")) if notes.exists() else []
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(start_s3(asked.into / "s3.log"))
        make_bucket(store, "exits")
        for number in range(5):
            make_client(store).put_object(Bucket="exits", Key=f"landing/{number}.json", Body=b'{"id": 1}\n')
        waiting = [kind for kind in list_waiting(kept) if kind in (asked.only or STARTS)]
        for kind in waiting[: asked.most]:
            kept.append(start_one(kind, asked.into / "run", store))
            replace_file(notes, kept)
            (asked.into / "exits.md").write_text(format_table(kept), encoding="utf-8")
    return int(any(each["code"] != STARTS[each["kind"]][1] for each in kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
