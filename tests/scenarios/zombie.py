"""A run that stops in its second batch: `python -m tests.scenarios.zombie FOLDER MOMENT WAY FROZEN`.

The process prints `reached` where it stops, `ended …` when its write has ended, and the result of the whole run. The
process that started it freezes it meanwhile. Its dispatcher hears nothing until the write has ended, so that it does
not cancel the write. Only the checks of the write itself can keep it from landing. If only the JVM is frozen, the
dispatcher continues.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from destinations.delta import direct_commit
from destinations.delta.delta import OpenDelta
from destinations.delta.direct_append import DirectWrite
from destinations.delta.table import TargetTable
from destinations.delta.writers import FileAppend, PendingAppend
from origins.batch_rows import FrameRows
from runners.engine.dispatcher import Dispatcher
from runners.pipeline import Pipeline
from runners.spark.session import obtain_now

HELD = 5
"""The row at which Spark stops."""


def print_line(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


class Zombie:
    """The changes that make a write stop."""

    def __init__(self, folder: Path, moment: str, way: str, frozen: str) -> None:
        self.folder, self.moment, self.way, self.frozen = folder, moment, way, frozen
        self.armed = False
        """Whether the second batch is being written."""

    def hold(self) -> None:
        """Wait in Python until the starter lets this process continue."""
        print_line("reached")
        while not (self.folder / "go").exists():
            time.sleep(0.02)

    def held_in_spark(self, rows: Any) -> Any:
        """Return the rows with a condition at which Spark stops. It opens one pipe to report this, and another to
        wait."""
        pipes = [f"reflect('scala.io.Source', 'fromFile', '{self.folder / name}', 'UTF-8')" for name in ("at", "on")]
        return rows.where(f"id <> {HELD} or concat({', '.join(pipes)}) is not null")

    def around(self, owner: Any, name: str, act: Callable[..., Any]) -> None:
        """Replace a method with a function that gets the original method first."""
        does = getattr(owner, name)
        setattr(owner, name, lambda *words, **more: act(does, *words, **more))

    def arm(self) -> None:
        """Install all changes."""
        self.around(OpenDelta, "write", self.write)
        self.around(TargetTable, "append", self.append)
        self.around(FileAppend, "is_few", lambda does, *words: self.way == "short" and does(*words))
        self.around(FileAppend, "write", self.append_files)
        self.around(DirectWrite, "commit", self.commit)
        self.around(DirectWrite, "write_by_spark", self.write_by_spark)
        self.around(direct_commit, "_try_link", self.take_version)
        if self.frozen != "jvm":
            self.around(Dispatcher, "patience", lambda does, of: None if self.armed else does(of))

    def write(self, does: Any, table: Any, spark: Any, rows: Any, labels: Any) -> Any:
        self.armed = labels[0].batch.number == 2
        try:
            written = does(table, spark, rows, labels)
        except Exception as error:
            named = re.search(r"\[([A-Z][A-Z_.]+)\]", str(error))
            print_line("ended", type(error).__name__, named[1] if named else str(error).splitlines()[0][:80])
            raise
        finally:
            armed, self.armed = self.armed, False
        if armed:
            print_line("ended landed")
            if self.moment == "after":
                self.hold()
        return written

    def append(self, does: Any, table: Any, rows: Any, tag: str) -> None:
        if self.armed and self.moment == "before":
            self.hold()
        during = self.armed and self.moment in ("during", "commit")
        does(table, self.held_in_spark(rows) if during else rows, tag)

    def append_files(self, does: Any, writer: Any, append: PendingAppend) -> Any:
        if self.way == "spark":
            return None
        during = self.way == "short" and self.armed and self.moment == "during"
        held = FrameRows(self.held_in_spark(append.rows.frame()), 0) if during else append.rows
        return does(writer, replace(append, rows=held))

    def write_by_spark(self, does: Any, write: Any, rows: Any) -> Any:
        if self.armed and self.moment == "before":
            self.hold()
        return does(write, self.held_in_spark(rows) if self.armed and self.moment == "during" else rows)

    def commit(self, does: Any, *words: Any) -> Any:
        if self.armed and self.moment == "before":
            self.hold()
        return does(*words)

    def take_version(self, does: Any, file: Path, version: Path) -> Any:
        if self.armed and self.moment == "commit" and self.way != "spark" and version.suffix == ".json":
            self.hold()
        return does(file, version)


def main(folder: str, moment: str, way: str, frozen: str) -> None:
    """Run the pipeline, and print the result."""
    Zombie(Path(folder), moment, way, frozen).arm()
    pipeline = Pipeline.load(Path(folder) / "pipeline.yaml")
    obtain_now(pipeline.spark.conf, pipeline.spark.packages)
    report = pipeline.run(check=False)
    print_line("run", json.dumps({"status": report.status, "code": report.error and report.error.code}))


if __name__ == "__main__":
    main(*sys.argv[1:])
