"""The stage `python` in the suite for stages, and its options."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
import pyarrow as pa
import pytest

from origins.functions import FunctionMissing, ship_by_value
from stages.conformance import StageConformance, begin, collect_decided
from stages.python import Handler, send
from stages.python_call import discard, keep, nack
from stages.rows import enter_stage
from stages.stage import Stage
from tests.stages.checks import CHECKS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.promise("HP-14")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Handler("score"), "function: expected module:function, got 'score'"),
        (lambda: Handler("a:b", rows=0), "rows: expected at least 1, got 0"),
        (lambda: Handler("a:b", concurrency=True), "concurrency: expected at least 1, got True"),
        (lambda: Handler("a:b", timeout="soon"), "timeout: expected a duration such as 500ms"),
        (lambda: Handler("a:b", timeout="0s"), "timeout: expected more than 0s, got '0s'"),
        (lambda: Handler("a:b", columns={"a": ""}), "columns.a: expected an expression, got ''"),
    ],
)
def test_an_invalid_option_is_refused(make: Callable[[], Stage], says: str) -> None:
    """The message begins with the option."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        make()
    assert str(error.value).startswith(says)


ELSEWHERE = """
import pickle, sys

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("origins", "stages", "destinations", "runners", "tests"):
            raise ImportError(name + " is not installed here")

sys.meta_path.insert(0, Absent())
import pyarrow as pa
call = pickle.load(sys.stdin.buffer)
rows = pa.array([{"x": 1}, {"x": 2}, {"x": 3}])
(told,) = call(iter([(pa.array([True] * 3), rows)]))
print([each["fate"] for each in told.to_pylist()])
"""


def score(rows: list[dict[str, Any]]) -> list[Any]:
    """Return one answer of each kind."""
    answers = {1: keep, 2: discard, 3: nack("three")}
    return [answers[row["x"]] if row["x"] in answers else {"score": row["x"] or -1, "y": "new"} for row in rows]


def test_the_worker_function_needs_no_package_of_wherry() -> None:
    """Everything is sent by value: the function of a module that is not installed, and its answers."""
    from pyspark import cloudpickle
    from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

    from stages.python_call import FunctionCall
    from stages.python_worker import RowAnswerer, make_answer_function

    send()
    ship_by_value(score)
    call = FunctionCall(function=score, name="score", takes="dicts", concurrency=1, seconds=9.0)
    types = {"x": IntegerType(), "y": StringType(), "score": DoubleType()}
    schema = StructType([StructField(name, kind) for name, kind in types.items()]).json()
    sent = cloudpickle.dumps(make_answer_function(RowAnswerer(call=call, schema=schema, rows=9)))  # type: ignore[no-untyped-call]
    ran = subprocess.run([sys.executable, "-c", ELSEWHERE], input=sent, capture_output=True, check=False, cwd="/")
    assert (ran.stdout.decode(), ran.stderr.decode()) == ("['go', 'discard', 'nack']\n", "")


@pytest.mark.parametrize("installed", [len, json.dumps, pa.array])
def test_an_installed_function_is_sent_by_name(installed: Callable[..., Any]) -> None:
    """Spark's workers have its module."""
    from pyspark import cloudpickle

    ship_by_value(installed)
    assert len(cloudpickle.dumps(installed)) < 100  # type: ignore[no-untyped-call]


class OfEachAnswer(StageConformance):
    """A function that keeps, changes, discards and refuses rows."""

    schema = "x int, y string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "a"), (2, "b"), (3, "c"), (4, None), (None, None)]
    raising: ClassVar[list[tuple[Any, ...]]] = [(0, "b")]

    def stage(self) -> Stage:
        return Handler(score, columns={"score": "double"})


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.parametrize("check", CHECKS)
def test_the_stage_keeps_its_promises(spark: SparkSession, check: str) -> None:
    """Spark's workers call the function."""
    getattr(OfEachAnswer(), check)(spark)


EVERY_TYPE = """
select 1 as i, 2L as l, 1.5D as d, cast(1.25 as decimal(20,2)) as m, true as b, 'x' as s, date'2026-01-02' as day,
  timestamp'2026-01-02 03:04:05.678901' as at, timestamp_ntz'2026-01-02 03:04:05' as local, binary('ab') as bytes,
  array(1, null) as list, map('k', 1) as dict, named_struct('a b', 1, 'c', array('x')) as inside,
  cast(null as int) as nothing, cast(1 as tinyint) as tiny, cast(1.5 as float) as f
"""


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.parametrize("takes", ["dicts", "pandas", "arrow"])
def test_values_of_every_type_come_back_unchanged(spark: SparkSession, takes: str) -> None:
    """This holds for each form of the rows."""

    def dicts(rows: list[dict[str, Any]]) -> list[Any]:
        return [dict(row) for row in rows]

    def frame(rows: pd.DataFrame) -> pd.DataFrame:
        return rows

    def table(rows: pa.Table) -> pa.Table:
        return rows

    came = spark.sql(EVERY_TYPE)
    function: Callable[..., Any] = {"dicts": dicts, "pandas": frame, "arrow": table}[takes]
    left = Handler(function).apply(enter_stage(begin(came), "it", 2))
    kept, _, _ = collect_decided(left)
    assert [row.asDict() for row in kept] == [row.asDict() for row in came.collect()]
    assert left.schema.simpleString() == came.schema.simpleString()


@pytest.mark.spark
def test_a_missing_function_is_reported_before_a_row_is_read(spark: SparkSession) -> None:
    """The error is raised when the definition is opened."""
    with pytest.raises(FunctionMissing, match="no module 'nowhere' is installed"):
        Handler("nowhere:score").apply(enter_stage(begin(spark.range(1)), "it", 2))
