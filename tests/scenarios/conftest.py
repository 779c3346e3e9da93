"""A folder with files, a definition, and what lies in the tables afterwards."""

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

from runners.definitions.definition import definition_of
from runners.model.run_report import Report
from runners.pipeline import Pipeline
from runners.running.run import PipelineRun
from runners.spark import late, session
from runners.spark.session import is_connect
from runners.spark.start import SparkMissing
from runners.ways.way import Thresholds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVER = "sc://localhost:15002"
"""Where the tests' own Connect server listens."""

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
    """What is in a folder, to see whether something was written."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@dataclass
class Place:
    """A folder of a test's own, with a definition in it."""

    folder: Path
    spark: SparkSession

    def define(self, text: str) -> Path:
        """Write the definition."""
        file = self.folder / "pipeline.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    def load(self, text: str | None = None, **overrides: str) -> Pipeline:
        """The pipeline as it is defined, with fields changed for this run."""
        if text is not None:
            self.define(text)
        changed = {name.replace("__", "."): value for name, value in overrides.items()}
        return Pipeline.load(self.folder / "pipeline.yaml", overrides=changed)

    def carry(self, text: str | None = None, **limits: int) -> Report:
        """What a run carries whose thresholds are these."""
        return carry(self.load(text), **limits)

    def land(self, name: str, rows: Sequence[Mapping[str, Any] | str], *, folder: str = "landing") -> None:
        """A file of JSON lines; its age is its place in the order of names."""
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
        """A run, or a replay of all refused rows or of an edited file, in a process of its own, which dies at this
        moment of this batch. With Connect the server lives on."""
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
        """What is in a table below the folder, read without Spark where the table allows it."""
        from deltalake import DeltaTable, QueryBuilder
        from deltalake.exceptions import DeltaProtocolError

        try:
            query = QueryBuilder().register("t", DeltaTable(self.folder / table)).execute("select * from t")
            found: list[dict[str, Any]] = pa.table(query.read_all()).to_pylist()
            return found
        except DeltaProtocolError:
            frame = self.spark.read.format("delta").load(str(self.folder / table))
            return [row.asDict(recursive=True) for row in frame.collect()]

    def ids(self, table: str) -> list[int]:
        """The ids in a table, sorted, twice where they are there twice."""
        return sorted(row["id"] for row in self.rows(table))

    def refused(self) -> list[dict[str, Any]]:
        """What lies in the DLQ, in the order in which it was read."""
        return sorted(self.rows(".wherry/orders/dlq"), key=lambda row: (row["lane"], row["number"], row["position"]))

    def commits(self, table: str) -> int:
        """How many commits a table's log has."""
        return len(list((self.folder / table / "_delta_log").glob("*.json")))


def carry(pipeline: Pipeline, **limits: int) -> Report:
    """What a run of the pipeline carries whose thresholds are these."""
    definition = definition_of(pipeline)
    thresholds = Thresholds(**limits)
    return PipelineRun(
        pipeline=definition.pipeline, text=definition.text, hash=definition.hash, thresholds=thresholds
    ).carry()


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no Java."""

    def fail(*_: object, **__: object) -> None:
        raise SparkMissing("Java is missing.")

    monkeypatch.setattr(session, "is_given", lambda: False)
    monkeypatch.setattr(late, "has_context", lambda: False)
    monkeypatch.setattr(session, "obtain_now", fail)


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    """An empty place."""
    return Place(tmp_path, spark)


def order(number: int, **other: Any) -> dict[str, Any]:
    """A good order."""
    return {"id": number, "email": f"A{number}@X.COM", "amount": f"{number}.50", **other}
