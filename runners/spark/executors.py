"""Finds out what the executors of a Spark see and have, with small Spark jobs.

This is only for a classic Spark. Spark Connect does not report its executors.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from origins.errors import list_spark_errors
from origins.files.file_systems import escape_pattern, without_scheme
from origins.lazy import F, SparkSession
from origins.spark_private import delete_folder
from runners.model.text import summarise_error
from runners.spark.session import count_slots

_MOST_TASKS = 64
"""How many tasks at most ask executors."""


def list_unseen(spark: SparkSession, folders: Iterable[Path], files: Iterable[Path]) -> set[Path]:
    """Return the folders and files of this machine that an executor does not find.

    In each folder, executors look for files that are written now, and removed again. A folder that this process cannot
    write is left out.
    """
    with contextlib.ExitStack() as probes:
        asked = {str(file): file for file in files}
        for folder in folders:
            with contextlib.suppress(OSError):
                for _ in range(_count_tasks(spark)):
                    probe = tempfile.NamedTemporaryFile(dir=folder, prefix="wherry-probe-")  # noqa: SIM115 -- the stack closes it
                    probe.write(b"?")  # Spark skips empty files
                    probe.flush()
                    asked[probes.enter_context(probe).name] = folder
        found = _list_found(spark, list(asked)) if asked else set()
        return {place for name, place in asked.items() if name not in found}


def _list_found(spark: SparkSession, paths: Sequence[str]) -> set[str]:
    """Return the files of these paths that the task finds that looks for them. Their content is not read."""
    reader = spark.read.format("binaryFile").option("ignoreMissingFiles", "true")
    rows = reader.load([f"file:{escape_pattern(path)}" for path in paths]).select("path").collect()
    return {without_scheme(row.path) for row in rows}


def _count_tasks(spark: SparkSession) -> int:
    """Return how many tasks the executors may work on at a time, so that each executor gets one."""
    return min(max(2, count_slots(spark)), _MOST_TASKS)


@dataclass(frozen=True, kw_only=True)
class ExecutorFacts:
    """What a task found out about its machine."""

    host: str
    delta: str
    """The version of Delta; empty if Delta is missing."""
    java: str
    clock: float
    """How many seconds its clock is at least ahead of this machine's; negative if it is behind."""


_DELTA = "io.delta.package"
"""The class that has the version of Delta."""


def ask_executors(spark: SparkSession) -> list[ExecutorFacts]:
    """Return what the executors have, one entry for each machine.

    No task may fail, since Spark would retry it elsewhere.
    """
    began = time.time()
    tasks = _count_tasks(spark)
    facts = spark.range(0, tasks, 1, tasks).select(
        _find_host(),
        F.when(
            _call_java("org.apache.spark.util.Utils", "classIsLoadable", _DELTA) == "true",
            _call_java(_DELTA, "VERSION"),
        )
        .otherwise("")
        .alias("delta"),
        _call_java("java.lang.System", "getProperty", "java.version").alias("java"),
        _call_java("java.lang.System", "currentTimeMillis").cast("long").alias("millis"),
    )
    rows = facts.collect()
    ended = time.time()
    return [
        ExecutorFacts(
            host=row.host,
            delta=row.delta,
            java=row.java,
            clock=max(0.0, row.millis / 1_000 - ended) + min(0.0, row.millis / 1_000 - began),
        )
        for row in {row.host: row for row in rows}.values()
    ]


def _find_host() -> Any:
    return _call_java("org.apache.spark.util.Utils", "localHostName").alias("host")


def _call_java(kind: str, method: str, *arguments: str) -> Any:
    """Return a column that calls a static method in each task."""
    return F.java_method(*map(F.lit, (kind, method, *arguments)))


def ask_python(spark: SparkSession, packages: Collection[str]) -> list[Mapping[str, Any]]:
    """Return what the Python of the executors is, one entry for each machine.

    An entry has `host`, `version`, `program`, and in `missing` the `packages` that the machine lacks. It has only the
    `host` if the machine's tasks fail but succeed on another one. Raises Spark's error if all tries of a task fail, for
    example because the Python version differs.
    """
    tasks = _count_tasks(spark)
    look = F.udf(_make_look(sorted(packages)), "string", useArrow=False)
    asked = spark.range(0, tasks, 1, tasks).select(_find_host(), look("id").alias("facts"))
    hosts, found = {each.host for each in ask_executors(spark)}, dict[str, Mapping[str, Any]]()
    for _ in range(_ROUNDS):
        found |= {row.host: {"host": row.host, **json.loads(row.facts)} for row in asked.collect()}
        if hosts <= found.keys():
            break
    return [*found.values(), *({"host": host} for host in sorted(hosts - found.keys()))]


_ROUNDS = 3
"""How often executors that gave no answer are asked, since an executor may by chance get no task."""


def _make_look(packages: Sequence[str]) -> Any:
    """Return the function that a worker runs. It is sent by value, so it needs only Python there."""

    def look(_: int) -> str:
        import importlib.util
        import json
        import platform
        import sys

        missing = [each for each in packages if importlib.util.find_spec(each) is None]
        facts = {"version": platform.python_version(), "program": sys.executable}
        return json.dumps({**facts, "missing": missing})

    return look


def try_store(spark: SparkSession, folder: str) -> str:
    """Return why executors cannot write and read below this folder of a store; empty if they can.

    What they write is removed again.
    """
    probe = f"{folder.rstrip('/')}/_wherry_probe_{uuid.uuid4().hex}"
    try:
        spark.range(0, 2, 1, 2).write.parquet(probe)
        rows = spark.read.schema("id long").parquet(probe).count()
        delete_folder(spark, probe)
    except list_spark_errors() as error:
        return summarise_error(error)
    return "" if rows == 2 else f"{rows} of 2 rows that were written came back"
