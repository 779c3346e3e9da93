"""One cell of the crash matrix: a pipeline in a separate folder, a process that dies, and a process that continues."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from destinations.delta.writers import FileAppend
from destinations.labels import Label
from origins.crash_points import reach, watch_points
from runners.pipeline import Pipeline
from runners.spark import session as spark_session
from runners.spark.start import SparkMissing
from runners.state.journal import Journal
from runners.state.location import StateLocation
from tests.crash_injector import LATER, CrashInjector, die, take_by_another
from tests.stores.s3 import make_client, make_spark_settings, make_storage_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.scenarios.shared_jvm import Spark

OPTIONS = {
    "append": "delta: {path: tables/append}",
    "merge": "delta: {path: tables/merge, mode: merge, keys: [id], sequence_by: id}",
    "replace": "delta: {path: tables/replace, mode: replace}",
    "files": "files: {path: tables/files}",
    "python": "python: tests.scenarios.crash_cell:take",
}
BUCKET = "crashes"
"""The bucket of all cells whose state and tables are in S3."""
TAKEN = "WHERRY_TEST_TAKEN"
"""The environment variable with the file into which the function destination writes."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination of the crash matrix."""

    point: str
    how: str
    """How the run ends. `kill`: only Python dies. `kill all`: its JVM dies with it. `raise`: an exception is raised."""
    destinations: str
    """The names of the destinations, joined by a plus."""
    refused: str
    delivery: str
    lanes: int
    ledger: str
    spark: str
    rows: str
    """With `few`, `deltalake` may commit the rows. With `spark`, Spark commits them, however few they are."""
    order: str
    """When the JVM starts: `up` before the run, `late` with the first batch that needs it, or `never`."""
    plan: int
    """The batch in which the crash happens, counted in the order of planning."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the destinations."""
        return self.destinations.split("+")

    @property
    def weaker(self) -> str:
        """Describe what may be missing or doubled, beyond the promises that always hold."""
        said = []
        if "python" in self.names:
            said.append("python may have been given the open batches again, whole and under the same label")
        if self.delivery == "after_any" and len(self.names) > 1:
            said.append("until the restart, who owes a settled batch may lack it")
        return "; ".join(said)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A cell in its folder."""

    cell: Cell
    folder: Path
    s3: str = ""
    """The URL of the S3 that has the state and the tables. If it is empty, they are in the folder."""

    def locate(self, *parts: str) -> str:
        """Return the path or URL of a table or the state."""
        return "/".join([f"s3://{BUCKET}/{self.folder.name}" if self.s3 else str(self.folder), *parts])

    @property
    def schema(self) -> str:
        """The catalog schema with the state, for a cell whose ledger Spark writes."""
        return "crash_" + "".join(each if each.isalnum() else "_" for each in self.folder.name.lower())

    @property
    def files(self) -> int:
        """The number of files. Each batch has one file."""
        return 3 if self.cell.lanes == 1 else 5

    def ids(self, file: int) -> Sequence[int]:
        """Return the ids of the rows in a file."""
        return [3 * file + 1, 3 * file + 2, 3 * file + 3]

    def refused(self, row: int) -> bool:
        """Whether a row is refused. If the JVM is late, no row of the first file is refused."""
        if self.cell.order == "late" and row in self.ids(0):
            return False
        return {"none": False, "some": row % 3 == 2, "all": True}[self.cell.refused]

    def _amount(self, row: int) -> str | float:
        """Return the amount of a row in its file. The process itself reads only numbers, and leaves texts to Spark."""
        if self.refused(row):
            return "x"
        if self.cell.order == "up":
            return "1"
        return "NaN" if self.cell.order == "late" and row not in self.ids(0) else 1.0

    def prepare(self) -> None:
        """Write the files and the definition. If the JVM does not run from the start, no stage needs it."""
        (self.folder / "landing").mkdir(parents=True)
        for number in range(self.files):
            rows = [{"id": row, "amount": self._amount(row)} for row in self.ids(number)]
            file = self.folder / "landing" / f"{number}.json"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            os.utime(file, (1_700_000_000 + number,) * 2)
        after = "after: move, " if self.cell.point == "after-committed" else ""
        state = f"state: {{schema: {self.schema}}}\n" if self.cell.ledger == "spark" else ""
        if self.s3:
            state = f"state: {self.locate('state')}\nspark: {json.dumps({'conf': make_spark_settings(self.s3)})}\n"
        options = {name: each.replace("tables/", self.locate("tables/")) for name, each in OPTIONS.items()}
        destinations = "".join(f"  - {options[name]}\n    name: {name}\n" for name in self.cell.names)
        up = self.cell.order == "up"
        schema, stages = ("string", "stages:\n  - cast: {amount: int}\n") if up else ("double", "")
        (self.folder / "pipeline.yaml").write_text(
            f"""name: orders
origin:
  files: {{path: "landing/*.json", format: json, {after}schema: "id long, amount {schema}"}}
  lanes: {self.cell.lanes}
{stages}destinations:
{destinations}delivery: {self.cell.delivery}
dlq: {{window: 0}}
run: {{batch: {{files: 1}}, retry: {{wait: 10ms}}, history: 0s}}
{state}""",
            encoding="utf-8",
        )

    def load(self) -> Pipeline:
        """Load the pipeline."""
        return Pipeline.load(self.folder / "pipeline.yaml")

    def carry(self, spark: Spark | None, crash: CrashInjector) -> dict[str, Any]:
        """Run the pipeline with a crash. Return how the run ended, if this process survives."""
        with self._in(spark) as session:
            crash.steal = lambda: take_by_another(self.load(), session)
            with watch_points(crash):
                report = self.load().run(check=False, listeners=[crash.note_event])
        code = report.error and report.error.code
        return {"happened": crash.happened, "status": report.status, "code": code, "said": str(report.error)}

    def finish(self, spark: Spark | None) -> dict[str, Any]:
        """Examine what the crash left, run again, and examine the result."""
        with self._in(spark) as session:
            early, open_plans = self._list_lacking(session)
            report = self.load().run(check=False)
            audit = self.load().audit()
        return {
            "early": early,
            "open": open_plans,
            "status": report.status,
            "error": str(report.error) if report.error else "",
            "balanced": audit.balanced,
            "problems": [f"{each.code} {each.message}" for each in audit.problems],
            "jvm": getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None) is not None,
        }

    def wrong(self, facts: Mapping[str, Any]) -> list[str]:
        """Return everything that is wrong in the end."""
        every = [row for file in range(self.files) for row in self.ids(file)]
        good = [row for row in every if not self.refused(row)]
        bad = [row for row in every if self.refused(row)]
        found = [f"before the restart: {each}" for each in facts["early"]]
        if facts["status"] != "succeeded":
            found.append(f"the restart {facts['status']}: {facts['error']}")
        for name in self.cell.names:
            found += self._compare_rows(name, good, set(facts["open"]))
        letters = sorted(self.list_letters())
        if letters != bad:
            found.append(f"the dead letter queue has {letters}, expected {bad}")
        if facts["balanced"] is not True or facts["problems"]:
            found.append(f"the audit: balanced {facts['balanced']}, {facts['problems']}")
        started, order = self._starts.exists(), self.cell.order
        if started is not (order == "late") or (order == "never" and facts["jvm"]):
            found.append("a run started a JVM" if started or facts["jvm"] else "no run started the JVM")
        return found

    def _compare_rows(self, name: str, good: Sequence[int], open_plans: set[str]) -> list[str]:
        if name != "python":
            there = sorted(self.list_delivered(name))
            return [] if there == sorted(good) else [f"{name} has {there}, expected {list(good)}"]
        given = self._list_taken()
        found = []
        if {row for _, ids in given for row in ids} != set(good):
            found.append(f"python was given {given}, expected all of {list(good)}")
        again = {key for key, times in Counter(key for key, _ in given).items() if times > 1}
        if len({(key, tuple(sorted(ids))) for key, ids in given}) != len({key for key, _ in given}):
            found.append(f"python was given other rows under the same label: {given}")
        if len({row for _, ids in given for row in ids}) != len({(key, row) for key, ids in given for row in ids}):
            found.append(f"python was given rows under two labels: {given}")
        if not all(any(plan in key for plan in open_plans) for key in again):
            found.append(f"python was given {again} again, and only {open_plans} were open")
        return found

    def list_delivered(self, name: str) -> list[int]:
        """Return the ids of a destination. An id that the destination has twice is returned twice."""
        if name == "python":
            return [row for _, ids in self._list_taken() for row in ids]
        if name == "files":
            from pyarrow import parquet

            found = (parquet.ParquetFile(file).read(["id"]) for file in self._list_files())
            return [row for rows in found for row in rows["id"].to_pylist()]
        return self._column(self.locate("tables", name), "id")

    def _list_files(self) -> Iterator[Any]:
        """Yield the files of the destination that writes files."""
        if not self.s3:
            yield from (self.folder / "tables" / "files").glob("_lane=*/_batch=*/*.parquet")
            return
        client, root = make_client(self.s3), f"{self.folder.name}/tables/files"
        manifests = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{root}/_symlink_format_manifest/")

        def read(key: str) -> bytes:
            content: bytes = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            return content

        for each in manifests.get("Contents", ()):
            for url in read(each["Key"]).decode().splitlines():
                yield io.BytesIO(read(url.removeprefix(f"s3a://{BUCKET}/")))

    def list_letters(self) -> list[int]:
        """Return the ids of the rows in the dead letter queue."""
        place = self.locate("state", "dlq") if self.s3 else self.locate(".wherry", "orders", "dlq")
        if self.cell.ledger == "spark":
            place = self.locate("warehouse", "orders_dlq")
        rows = [json.loads(each) for each in self._column(place, "original")]
        return [(json.loads(row["raw"]) if "raw" in row else row)["id"] for row in rows]

    def _column(self, table: str, name: str) -> list[Any]:
        from deltalake import DeltaTable, QueryBuilder

        options = make_storage_options(self.s3) if self.s3 else None
        if not DeltaTable.is_deltatable(table, options):
            return []
        found = DeltaTable(table, storage_options=options)
        rows = QueryBuilder().register("t", found).execute(f"select {name} from t").read_all()
        return list(rows[name].to_pylist())

    def _list_taken(self) -> list[tuple[str, list[int]]]:
        file = self.folder / "taken"
        if not file.exists():
            return []
        return [(key, ids) for key, ids in map(json.loads, file.read_text(encoding="utf-8").splitlines())]

    @property
    def _starts(self) -> Path:
        """A file that exists once a run has asked for a Spark that was not up."""
        return self.folder / "starts"

    def _list_lacking(self, session: SparkSession | None) -> tuple[list[str], list[str]]:
        """Find rows of settled batches that a destination lacks although it owes nothing. Return them with the open
        plans."""
        place = StateLocation.of(self.load())
        if place.directory is not None and not (place.directory / "ledger").exists():
            return [], []
        journal = Journal(place.open_ledger(session if place.needs_spark else None))
        planned = {entry.plan: entry.body for entry in journal.tail if entry.kind == "plan"}
        there = {name: set(self.list_delivered(name)) for name in self.cell.names}
        letters, lacking = set(self.list_letters()), []
        for entry in (entry for entry in journal.tail if entry.kind == "settle"):
            rows = [row for part in planned[entry.plan]["span"]["parts"] for row in self.ids(_parse_file(part))]
            settled = [name for name in self.cell.names if name not in entry.body["owed"]]
            wanted = {row for row in rows if not self.refused(row)}
            lacking += [f"{name} lacks rows of {entry.plan}" for name in settled if not wanted <= there[name]]
            if not {row for row in rows if self.refused(row)} <= letters:
                lacking.append(f"the dead letter queue lacks rows of {entry.plan}")
        return lacking, [plan.batch.plan for plan in journal.state.open_plans]

    @contextlib.contextmanager
    def _in(self, spark: Spark | None) -> Iterator[SparkSession | None]:
        """Work in this folder. Yield a session if Spark is up. Otherwise yield None, and a run has to start Spark."""
        os.environ[TAKEN] = str(self.folder / "taken")
        before = Path.cwd()
        os.chdir(self.folder)  # noqa: TID251  (each cell of the suite has a separate process)
        session = None
        if spark is not None and self.cell.order == "up":
            session = spark.session(connect=self.cell.spark == "connect")
        if session is not None and self.cell.ledger == "spark":
            self._remember(session)
        if self.cell.rows == "spark":
            FileAppend.is_few = lambda *_: False  # type: ignore[method-assign]  # Spark must write the rows
        starts = patch.object(spark_session, "obtain_now", lambda *_: self._start(spark))
        try:
            with starts if session is None else contextlib.nullcontext():
                yield session
        finally:
            os.chdir(before)  # noqa: TID251

    def _start(self, spark: Spark | None) -> SparkSession:
        """Return the session that a run gets when it needs Spark."""
        self._starts.touch()
        if spark is None:
            raise SparkMissing("A run of this cell needs no Spark.")
        return spark.session(connect=False)

    def _remember(self, session: SparkSession) -> None:
        """Register the tables again. This catalog forgets them when its JVM dies, unlike a permanent catalog."""
        place = self.folder / "warehouse"
        session.sql(f"create schema if not exists {self.schema} location '{place}'").collect()
        for log in place.glob("*/_delta_log"):
            name = f"{self.schema}.`{log.parent.name}`"
            session.sql(f"create table if not exists {name} using delta location '{log.parent}'").collect()


def take(rows: DataFrame, label: Label) -> int:
    """Deliver rows to a destination without memory: append a line to a file."""
    ids = [row["id"] for row in rows.collect()]
    reach("in-write", label.destination)
    with open(os.environ[TAKEN], "a", encoding="utf-8") as file:
        file.write(json.dumps([label.key, ids]) + "\n")
    return len(ids)


def crash_trial(trial: Trial, spark: Spark | None, *, first: bool) -> None:
    """Run in a process that dies, or that continues after an exception. The `first` run only leaves a batch open, for a
    point that a later run reaches."""
    cell = trial.cell

    def all_of_it() -> None:
        assert spark is not None
        spark.kill()
        time.sleep(0.05)
        die()

    end: Callable[[], Any] | None = {"kill": die, "kill all": all_of_it, "raise": None}[cell.how]
    watcher = CrashInjector("before-write" if cell.plan == 1 else LATER.get(cell.point, ""), plan=cell.plan)
    if not first:
        watcher = CrashInjector(cell.point, end=end, plan=0 if cell.point in LATER else cell.plan)
    said = trial.carry(spark, watcher)
    _note(trial, "carried", said)
    if cell.how == "raise" and not first:
        _note(trial, "finished", trial.finish(spark))


def finish_trial(trial: Trial, spark: Spark | None) -> None:
    """Continue in a new process after the crash."""
    _note(trial, "finished", trial.finish(spark))


def _note(trial: Trial, name: str, facts: Mapping[str, Any]) -> None:
    (trial.folder / f"{name}.json").write_text(json.dumps({**facts, "cell": asdict(trial.cell)}), encoding="utf-8")


def _parse_file(part: Any) -> int:
    return int(Path(str(part[0])).stem)
