"""Two writers of one Delta table in S3: whether another commit can replace a confirmed commit.

    python -m tests.stores.two_drivers --into FOLDER              every round; continues after an earlier call
    python -m tests.stores.two_drivers --into FOLDER --most 3     three more rounds
    python -m tests.stores.two_drivers --into FOLDER --only 3     the round with this number, again

In a `held` round the first writer finds a version free. Its request to write that version is held until the second
writer has taken it. In a `lost` round the answer to such a request is lost. In a `race` both write as fast as they can.
A writer is a Spark, `deltalake`, or Wherry, which takes each version with a conditional PUT. The report
`two_drivers.md` has each round, and what was wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.child import clean_environment, tie
from tests.scenarios.kept import replace_file
from tests.stores.fault_proxy import Fault, FaultProxy, start_proxy
from tests.stores.s3 import make_bucket, make_client, make_spark_settings, make_storage_options, start_s3

BUCKET, TABLE = "shared", "table"
URL = f"s3a://{BUCKET}/{TABLE}"
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "Hadoop's own": {},
    "create.performance": {"spark.hadoop.fs.s3a.create.performance": "true"},
}
"""How S3A creates a file: with a check and a request, or only with the request. Delta sets no condition."""
COMMITS = 50
"""How many commits a Spark, and the writer beside it, each make in a race."""
RACES = 4
OURS = 200
"""How many commits each writer makes in a race with Wherry."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round with two writers."""

    number: int
    kind: str
    second: str
    settings: str
    first: str = "Spark"
    commits: int = COMMITS
    """How many commits each writer makes in a race."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a round."""

    round: Round
    confirmed: int
    replaced: list[str]
    """The confirmed commits whose rows are not in the table."""
    repeated: list[str]
    """The commits that are in the log twice."""
    twice: list[str]
    """The commits whose rows are in the table twice."""
    errors: list[str]
    seconds: float

    def format_row(self) -> str:
        """Return the row of the report."""
        each = self.round
        wrong = [
            f"{name}: {', '.join(commits)}"
            for name, commits in (
                ("REPLACED", self.replaced),
                ("in the log twice", self.repeated),
                ("TWICE", self.twice),
            )
            if commits
        ]
        errors = "; ".join(sorted(set(self.errors))).replace("|", "/")
        values = [each.number, each.kind, f"{each.first}, {each.second}", each.settings, self.confirmed]
        values += ["; ".join(wrong) or "nothing", f"{len(self.errors)} {errors}", f"{self.seconds:.0f} s"]
        return f"| {' | '.join(map(str, values))} |"


def list_rounds() -> list[Round]:
    """Return all rounds, always in the same order."""
    kinds = [("held", second) for second in ("Spark", "deltalake")]
    kinds += [("lost", "deltalake")]
    kinds += [("race", second) for second in ("Spark", "deltalake") for _ in range(RACES)]
    tried = [(kind, second, settings) for kind, second in kinds for settings in SETTINGS]
    rounds = [
        Round(number=number, kind=kind, second=second, settings=settings)
        for number, (kind, second, settings) in enumerate(tried)
    ]
    ours = [("lost", "Wherry", "deltalake"), ("held", "Spark", "Wherry")]
    ours += [(kind, "Wherry", second) for kind in ("held", "race") for second in ("Wherry", "Spark", "deltalake")]
    return rounds + [
        Round(number=number, kind=kind, first=first, second=second, settings="Hadoop's own", commits=OURS)
        for number, (kind, first, second) in enumerate(ours, len(rounds))
    ]


Answers: TypeAlias = Mapping[str, dict[str, list[Any]]]
"""The commits that each writer has confirmed, and its errors."""


class Writer:
    """A process that commits on request."""

    def __init__(self, name: str, kind: str, endpoint: str, settings: Mapping[str, str], log: Path) -> None:
        self.name = name
        command = [
            sys.executable,
            "-m",
            "tests.stores.two_drivers",
            "--write",
            kind,
            name,
            endpoint,
            json.dumps(settings),
        ]
        with log.open("wb") as noise:
            self._process = subprocess.Popen(
                [*tie(), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                text=True,
                env=clean_environment(PYSPARK_PYTHON=sys.executable),
            )

    def ask(self, first: int, after: int) -> None:
        """Request the commits of these numbers."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{first} {after}\n")
        self._process.stdin.flush()

    def read_answers(self) -> dict[str, list[Any]]:
        """Return the confirmed commits and the errors. The first call returns when the writer is ready."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                heard: dict[str, list[Any]] = json.loads(line)
                return heard
        raise RuntimeError(f"the writer {self.name} ended with {self._process.wait()}")

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()


def try_round(each: Round) -> Found:
    """Start an S3 and both writers, and let them write."""
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="two-drivers-")))
        behind = stack.enter_context(start_s3(folder / "s3.log"))
        make_bucket(behind, BUCKET)
        make_table(behind)
        proxy = stack.enter_context(start_proxy(behind))
        writers = {}
        for name, kind in (("a", each.first), ("b", each.second)):
            log = folder / f"{name}.log"
            writers[name] = Writer(name, kind, proxy.endpoint, SETTINGS[each.settings], log)
            stack.callback(writers[name].end)
        for writer in writers.values():
            writer.read_answers()
        answers = WAYS[each.kind](writers, proxy, each.commits)
        return judge_round(each, answers, behind, time.monotonic() - began)


def hold_version(writers: Mapping[str, Writer], proxy: FaultProxy, commits: int) -> Answers:
    """Let the second writer take the version that the first writer found free."""
    held = proxy.add(Fault("hold", "PUT", rf"{TABLE}/_delta_log/0+1\.json"))
    writers["a"].ask(0, 1)
    if not held.reached.wait(300):
        raise RuntimeError("the first writer has not come to its commit")
    writers["b"].ask(0, 1)
    second = writers["b"].read_answers()
    held.let_go()
    return {"a": writers["a"].read_answers(), "b": second}


def lose_answer(writers: Mapping[str, Writer], proxy: FaultProxy, commits: int) -> Answers:
    """Lose the answer to the first writer's commit."""
    proxy.add(Fault("lose_answer", "PUT", rf"{TABLE}/_delta_log/0+1\.json"))
    writers["a"].ask(0, 1)
    return {"a": writers["a"].read_answers()}


def race_writers(writers: Mapping[str, Writer], proxy: FaultProxy, commits: int) -> Answers:
    """Let both write as fast as they can."""
    for writer in writers.values():
        writer.ask(0, commits)
    return {name: writer.read_answers() for name, writer in writers.items()}


WAYS: Mapping[str, Callable[[Mapping[str, Writer], FaultProxy, int], Answers]] = {
    "held": hold_version,
    "lost": lose_answer,
    "race": race_writers,
}


def make_table(endpoint: str) -> None:
    """Make an empty table."""
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

    schema = Schema.from_arrow(pa.schema([("writer", pa.string()), ("number", pa.int64())]))
    DeltaTable.create(URL, schema, storage_options=make_storage_options(endpoint))


def judge_round(each: Round, answers: Mapping[str, dict[str, list[Any]]], endpoint: str, seconds: float) -> Found:
    """Compare the confirmed commits with the table."""
    from deltalake import DeltaTable

    confirmed = {f"{name}/{number}" for name, answer in answers.items() for number in answer["said"]}
    rows = DeltaTable(URL, storage_options=make_storage_options(endpoint)).to_pyarrow_table().to_pylist()
    there = Counter(f"{row['writer']}/{row['number']}" for row in rows)
    tags = Counter(list_tags(endpoint))
    return Found(
        round=each,
        confirmed=len(confirmed),
        replaced=sorted(confirmed - set(there)),
        repeated=sorted(tag for tag, count in tags.items() if count > 1),
        twice=sorted(tag for tag, count in there.items() if count > 1),
        errors=[error for answer in answers.values() for error in answer["errors"]],
        seconds=seconds,
    )


def list_tags(endpoint: str) -> list[str]:
    """Return the tags of the commits in the log."""
    client = make_client(endpoint)
    tags = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{TABLE}/_delta_log/"):
        for key in (found["Key"] for found in page["Contents"] if found["Key"].endswith(".json")):
            text = client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
            actions = [json.loads(line) for line in text.splitlines()]
            infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
            tags += [info["userMetadata"] for info in infos if info.get("userMetadata")]
    return tags


def write_commits(kind: str, name: str, endpoint: str, settings: Mapping[str, str]) -> None:
    """Make the commits that standard input requests, and print the outcome of each request to standard output."""
    commit = WRITERS[kind](name, endpoint, settings)
    sys.stdout.write('{"ready": []}\n')
    sys.stdout.flush()
    for line in sys.stdin:
        first, after = map(int, line.split())
        said, errors = [], []
        for number in range(first, after):
            try:
                commit(number)
                said.append(number)
            except Exception as error:
                errors.append(name_error(error))
        sys.stdout.write(json.dumps({"said": said, "errors": errors}) + "\n")
        sys.stdout.flush()


def name_error(error: Exception) -> str:
    """Return the name of an error, and the names of the errors in its text."""
    text = str(error)
    named = [word.strip(":,()") for word in text.split() if word.strip(":,()").endswith(("Exception", "Error"))]
    return " < ".join(dict.fromkeys([type(error).__name__, *(word.rpartition(".")[2] for word in named)]))[:200]


def commit_by_spark(name: str, endpoint: str, settings: Mapping[str, str]) -> Callable[[int], None]:
    """Return a function that commits with a Spark of this process."""
    from pyspark.sql import SparkSession

    from tests.stores import jars

    builder = SparkSession.builder.master("local[1]").appName(name)
    given = {**jars.make_spark_settings(), **make_spark_settings(endpoint), **settings}
    for key, value in {**given, "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.read.format("delta").load(URL).count()

    def commit(number: int) -> None:
        row = spark.range(number, number + 1, 1, 1).selectExpr(f"'{name}' AS writer", "id AS number")
        row.write.format("delta").mode("append").option("userMetadata", f"{name}/{number}").save(URL)

    return commit


def commit_by_deltalake(name: str, endpoint: str, settings: Mapping[str, str]) -> Callable[[int], None]:
    """Return a function that commits with `deltalake`."""
    import pyarrow as pa
    from deltalake import CommitProperties, write_deltalake

    def commit(number: int) -> None:
        write_deltalake(
            URL,
            pa.table({"writer": pa.array([name]), "number": pa.array([number], pa.int64())}),
            mode="append",
            storage_options=make_storage_options(endpoint),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": f"{name}/{number}"}),
        )

    return commit


def commit_by_wherry(name: str, endpoint: str, settings: Mapping[str, str]) -> Callable[[int], None]:
    """Return a function that commits like a run with few rows."""
    import pyarrow as pa

    from destinations.delta.direct_append import DirectTable
    from destinations.delta.store_commit import StorePlace
    from origins.store_access import StoreUrl

    place = StorePlace(StoreUrl(URL, make_spark_settings(endpoint)))
    direct = DirectTable(place, str(place.versions.open().metadata().id))

    def commit(number: int) -> None:
        write = direct.begin()
        if write is None:
            raise RuntimeError("the table is not plain")
        rows = pa.table({"writer": pa.array([name]), "number": pa.array([number], pa.int64())})
        write.commit(rows, f"{name}/{number}")

    return commit


WRITERS: Mapping[str, Callable[[str, str, Mapping[str, str]], Callable[[int], None]]] = {
    "Spark": commit_by_spark,
    "deltalake": commit_by_deltalake,
    "Wherry": commit_by_wherry,
}

HEAD = """# Two writers of one table in S3

| round | what | writers | settings | confirmed | wrong | errors | time |
|---|---|---|---|---|---|---|---|
"""


def write_report(folder: Path, found: Mapping[str, Any]) -> None:
    """Write the report."""
    rows = [Found(**{**each, "round": Round(**each["round"])}).format_row() for _, each in sorted(found.items())]
    (folder / "two_drivers.md").write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path)
    parser.add_argument("--most", type=int)
    parser.add_argument("--only", type=int)
    parser.add_argument("--write", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        kind, name, endpoint, settings = given.write
        write_commits(kind, name, endpoint, json.loads(settings))
        return
    given.into.mkdir(parents=True, exist_ok=True)
    file = given.into / "found.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    left = [each for each in list_rounds() if f"{each.number:03}" not in found]
    if given.only is not None:
        left = [each for each in list_rounds() if each.number == given.only]
    for each in left[: given.most]:
        found[f"{each.number:03}"] = asdict(try_round(each))
        replace_file(file, found)
        write_report(given.into, found)
        sys.stdout.write(Found(**{**found[f"{each.number:03}"], "round": each}).format_row() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
