"""The Spark session, and the short text of its errors."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from origins.names import is_one_disk
from origins.spark_versions import is_connect
from runners.model.text import summarise_error
from runners.spark.own_session import make_own_session
from runners.spark.session import list_forgotten_tables, obtain_now

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 3602, in main
    process()
  File "enrich.py", line 3, in score
    return 1 / row["items"]
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""
UNREADABLE = """\
[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///landing/b.parquet.  SQLSTATE: KD001
	at org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:940)
Caused by: java.io.IOException: FAILED_TO_UNCOMPRESS(5)
"""
JAVA = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Run.run(Run.scala:1)
Caused by: org.apache.spark.SparkException: Task failed while writing rows.
\tat org.apache.spark.Run.run(Run.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.io.FileOutputStream.write(Native Method)
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(WORKER), "ZeroDivisionError: division by zero"),
        (RuntimeError(JAVA), "No space left on device"),
        (RuntimeError(JAVA.partition("Caused by")[0]), "Job aborted."),
        (RuntimeError("[CAST_INVALID_INPUT] The value 'x' is no INT. SQLSTATE: 22018\n== SQL =="), None),
        (KeyError("amount"), "KeyError: 'amount'"),
        (RuntimeError(), "RuntimeError"),
        (RuntimeError(UNREADABLE), "Spark cannot read file:///landing/b.parquet: FAILED_TO_UNCOMPRESS(5)"),
        (RuntimeError(UNREADABLE.partition("Caused by")[0]), UNREADABLE.partition("\n")[0].partition("  SQL")[0]),
    ],
)
def test_an_error_is_shown_in_one_line(error: Exception, said: str | None) -> None:
    """It is the message of the cause, without Java's stack and without the SQLSTATE."""
    assert summarise_error(error) == (said or "[CAST_INVALID_INPUT] The value 'x' is no INT.")


@pytest.mark.spark
@pytest.mark.connect
def test_only_a_spark_of_this_machine_surely_reads_its_files(spark: SparkSession) -> None:
    """A Connect server may have another disk with the same paths, so Wherry asks it."""
    assert is_one_disk(spark) is not is_connect(spark)


@pytest.mark.spark
def test_a_spark_with_another_default_file_system_does_not_read_local_files(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path without a scheme belongs to the default file system, such as HDFS."""
    monkeypatch.setattr("runners.spark.own_session.find_default_scheme", lambda _: "hdfs")
    assert not is_one_disk(make_own_session(spark))


@pytest.mark.spark
@pytest.mark.connect
def test_tables_of_an_in_memory_catalog_are_listed_as_forgotten(spark: SparkSession) -> None:
    """Spark's default catalog forgets its tables. Other catalogs keep their tables."""
    tables = ["default.orders", "spark_catalog.default.orders", "main.default.orders"]
    assert list_forgotten_tables(spark, tables) == tables[:2]


@pytest.mark.spark
@pytest.mark.connect
def test_python_functions_run_in_this_python(spark: SparkSession) -> None:
    """They find the packages of the virtual environment, even if another `python3` comes first on the PATH."""

    def who(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"who": [sys.prefix]})

    assert spark.range(1).mapInArrow(who, "who string").collect()[0]["who"] == sys.prefix


@pytest.mark.spark
@pytest.mark.connect
def test_a_thread_finds_the_session_of_the_process(spark_server: SparkSession) -> None:
    """A session of Spark Connect is active only in the thread that made it."""
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(obtain_now, {}).result()
    assert (found.version, found.range(3).count()) == (spark_server.version, 3)


ENDS = """
from runners.spark.own_session import make_own_session
from runners.spark.session import obtain

session = make_own_session(obtain())
print(session.range(3).count())
"""


@pytest.mark.spark
def test_options_for_the_jvm_are_added_to_those_of_wherry(spark: SparkSession) -> None:
    """They come last, so they win."""
    *ours, theirs = str(spark.conf.get("spark.driver.extraJavaOptions")).split()
    assert (ours[0], theirs.startswith("-Dderby.system.home=")) == ("-XX:-DontCompileHugeMethods", True)
    assert all(option.startswith("-XX:") for option in ours)


@pytest.mark.spark
@pytest.mark.connect
def test_a_program_with_a_separate_session_ends(spark: SparkSession) -> None:
    """A Connect client also ends, although its channels wait for a thread that Python ends first."""
    elsewhere = {"SPARK_REMOTE": "sc://localhost:15002"} if is_connect(spark) else {}
    given = {**os.environ, **elsewhere, "PYTHONPATH": os.getcwd()}
    ends = [sys.executable, "-c", ENDS]
    ran = subprocess.run(ends, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, "3\n"), ran.stderr


INTERRUPTED = """
import os, signal, subprocess
from pyspark import java_gateway
from runners.spark.start import start

class Popen(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGINT)

java_gateway.Popen = Popen
start({})
"""


@pytest.mark.spark
def test_an_interrupted_start_leaves_no_jvm_behind() -> None:
    """The JVM has time to report its address, and ends with the process that started it."""
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    begins = [sys.executable, "-c", INTERRUPTED]
    ran = subprocess.run(begins, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert "KeyboardInterrupt" in ran.stderr
    with contextlib.suppress(ProcessLookupError):
        ended, _, _ = select.select([os.pidfd_open(int(ran.stdout))], [], [], 60)
        assert ended
