"""A folder with files and a definition, and helpers that read its tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from origins.spark_versions import is_connect
from runners.definitions.definition import definition_of
from runners.model.run_report import Report
from runners.pipeline import Pipeline
from runners.running.run import PipelineRun
from runners.spark import late, session
from runners.spark.start import SparkMissing
from runners.ways.way import Thresholds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVER = "sc://localhost:15002"
"""The address of the Connect server of the tests."""

ORDERS = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
stages:
  - cast: {amount: "decimal(10,2)"}
  - require: {positive_amount: "amount > 0"}
  - filter: "email is not null"
  - with_columns: {email: "lower(email)"}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 1000, threshold: 500}
run: {batch: {files: 1}}
"""


def list_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of a folder, to see whether a test has written something."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@dataclass
class Place:
    """The folder of one test, with a definition in it."""

    folder: Path
    spark: SparkSession

    def define(self, text: str) -> Path:
        """Write the definition and return its path."""
        file = self.folder / "pipeline.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    def load(self, text: str | None = None, **overrides: str) -> Pipeline:
        """Load the pipeline, with some fields changed for this run."""
        if text is not None:
            self.define(text)
        changed = {name.replace("__", "."): value for name, value in overrides.items()}
        return Pipeline.load(self.folder / "pipeline.yaml", overrides=changed)

    def carry(self, text: str | None = None, **limits: Any) -> Report:
        """Run the pipeline with these thresholds."""
        return carry_pipeline(self.load(text), **limits)

    def land(self, name: str, rows: Sequence[Mapping[str, Any] | str], *, folder: str = "landing") -> None:
        """Write a file of JSON lines. Each new file is newer than the files before it."""
        landing = self.folder / folder
        landing.mkdir(exist_ok=True)
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        file = landing / name
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        number = len(list(landing.iterdir()))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    def kill(
        self, definition: str, moment: str, number: int, *, replay: bool = False, edited: Path | None = None
    ) -> None:
        """Run the pipeline in a separate process that dies at this moment of this batch. With `replay` or `edited`, it
        replays all refused rows or an edited file instead. With Connect, the server keeps running."""
        environment = {key: value for key, value in os.environ.items() if key != "SPARK_CONNECT_MODE_ENABLED"}
        if is_connect(self.spark):
            environment["SPARK_REMOTE"] = SERVER
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.scenarios.killed",
                str(self.define(definition)),
                moment,
                str(number),
                *["replay"] * replay,
                *([str(edited)] if edited else []),
            ],
            capture_output=True,
            check=False,
            env=environment,
        )
        assert run.returncode == -9, run.stderr.decode()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table below the folder. They are read without Spark if the table allows it."""
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import DeltaError

        try:
            query = QueryBuilder().register("t", DeltaTable(self.folder / table)).execute("select * from t")
            found: list[dict[str, Any]] = pa.table(query.read_all()).to_pylist()
            return found
        except DeltaError:
            frame = self.spark.read.format("delta").load(str(self.folder / table))
            return [row.asDict(recursive=True) for row in frame.collect()]

    def ids(self, table: str) -> list[int]:
        """Return the sorted ids of a table. An id that the table holds twice is returned twice."""
        return sorted(row["id"] for row in self.rows(table))

    def refused(self) -> list[dict[str, Any]]:
        """Return the rows of the DLQ in the order in which they were read."""
        return sorted(self.rows(".wherry/orders/dlq"), key=lambda row: (row["lane"], row["number"], row["position"]))

    def commits(self, table: str) -> int:
        """Return how many commits the log of a table has."""
        return len(list((self.folder / table / "_delta_log").glob("*.json")))


def carry_pipeline(pipeline: Pipeline, **limits: Any) -> Report:
    """Run a pipeline with these thresholds."""
    definition = definition_of(pipeline)
    thresholds = Thresholds(**limits)
    return PipelineRun(
        pipeline=definition.pipeline, text=definition.text, hash=definition.hash, thresholds=thresholds
    ).carry()


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Spark unavailable, as on a machine without Java."""

    def fail(*_: object, **__: object) -> None:
        raise SparkMissing("Java is missing.")

    monkeypatch.setattr(session, "is_given", lambda: False)
    monkeypatch.setattr(late, "has_context", lambda: False)
    monkeypatch.setattr(session, "obtain_now", fail)


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    """Provide an empty folder with a session."""
    return Place(tmp_path, spark)


def make_order(number: int, **other: Any) -> dict[str, Any]:
    """Return a good order."""
    return {"id": number, "email": f"A{number}@X.COM", "amount": f"{number}.50", **other}
