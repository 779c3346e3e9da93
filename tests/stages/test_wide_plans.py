"""Spark plans a batch with many columns and many stages in a time that grows with their number, and not faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from destinations.memory import Memory
from runners.ways.deciding import apply_branches, separate_rows
from runners.ways.stage_chain import StageChain, apply_chain
from stages.cast import Cast
from stages.columns import Drop, Rename, Select, WithColumns
from stages.conditions import Filter, Require
from stages.conformance import begin, begin_straight
from stages.deduplicate import Deduplicate
from stages.expect import Expect
from stages.mask import Mask
from stages.rows import take_clean
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MANY = 200
FEW, MORE = 10, 16
"""A plan that doubles with every column takes 64 times as long for `MORE` columns as for `FEW`."""


def replace_commas(names: Sequence[str]) -> WithColumns:
    return WithColumns(
        {name: f"if({name} like '%,%', replace(replace({name}, '.', ''), ',', '.'), {name})" for name in names}
    )


def require_values(names: Sequence[str]) -> Require:
    return Require({f"clear_{name}": f"not coalesce({name} rlike '^(n/a|-)$', false)" for name in names})


CHAINS: Mapping[str, Callable[[Sequence[str]], Sequence[Stage]]] = {
    "required, replaced and cast": lambda names: [
        require_values(names),
        replace_commas(names),
        Cast(dict.fromkeys(names, "double")),
    ],
    "replaced again and again": lambda names: [*[replace_commas(names)] * 9, Filter(f"{names[0]} like '1%'")],
    "one column of all, then each of its parts": lambda names: [
        WithColumns({"every": f"concat_ws('|', {', '.join(f'trim({name})' for name in names)})"}),
        WithColumns({name: f"trim({name})" for name in names}),
        Filter("every <> ''"),
    ],
    "renamed": lambda names: [
        WithColumns({"every": f"concat_ws('|', {', '.join(names)})"}),
        Rename({name: f"{name}_" for name in names}),
        Select([f"{name}_ as {name}" for name in names]),
        Require({"first": f"{names[0]} <> 'n/a'"}),
        Filter(f"{names[0]} <> ''"),
    ],
    "with conditions": lambda names: [
        replace(replace_commas(names), when=f"{names[0]} like '1%'"),
        replace(require_values(names), on_error="keep"),
        replace(require_values(names), on_error="discard"),
        Filter(f"{names[0]} <> ''"),
    ],
    "masked, expected, and the latest of each key": lambda names: [
        Mask(columns=dict.fromkeys(names[1:], "redact")),
        Expect([{"expect_column_values_to_not_be_null": {"column": name}} for name in names[:20]]),
        Deduplicate(keys=[names[0]], sequence_by=names[1]),
        replace_commas(names),
        require_values(names),
    ],
    "ten": lambda names: [
        replace_commas(names),
        require_values(names),
        Rename({name: f"{name}_" for name in names}),
        Rename({f"{name}_": name for name in names}),
        Filter(f"{names[0]} <> ''"),
        Select([*names[:-1], f"trim({names[-1]}) as {names[-1]}"]),
        Cast(dict.fromkeys(names, "double")),
        replace(Require({"positive": f"{names[0]} >= 0"}), on_error="discard"),
        Cast(dict.fromkeys(names, "decimal(20,4)")),
        Drop([names[-1]]),
    ],
}


def describe_straight(frame: DataFrame, stages: Sequence[Stage]) -> DataFrame:
    """Return the rows of a batch without refused rows."""
    chain = StageChain.of(stages, {"a": Memory(name="a")})
    return take_clean(apply_chain(begin_straight(frame), chain.common, {}))


def describe_decided(frame: DataFrame, stages: Sequence[Stage]) -> DataFrame:
    """Return the live rows of a batch in which every row has a verdict."""
    chain = StageChain.of(stages, {"a": Memory(name="a")})
    return apply_branches(apply_chain(begin(frame), chain.common, {}), chain, {}).where("state = 0")


def describe_apart(frame: DataFrame, stages: Sequence[Stage]) -> DataFrame:
    """Return the rows that are written apart by what becomes of them."""
    chain = StageChain.of(stages, {"a": Memory(name="a")})
    return separate_rows(apply_chain(begin(frame), chain.common, {}))


def describe_branches(frame: DataFrame, stages: Sequence[Stage]) -> DataFrame:
    """Return the live rows for two destinations, of which one has all these stages again."""
    chain = StageChain.of(stages[:1], {"a": Memory(name="a"), "b": Memory(name="b", stages=stages)})
    return apply_branches(apply_chain(begin(frame), chain.common, {}), chain, {}).where("state = 0")


WAYS = {
    "straight": describe_straight,
    "decided": describe_decided,
    "apart": describe_apart,
    "branches": describe_branches,
}


def time_plan(frame: DataFrame) -> float:
    """Return the seconds in which Spark makes the plan of this frame."""
    began = time.monotonic()
    frame.sparkSession.sql("EXPLAIN SELECT * FROM {frame}", frame=frame).collect()
    return time.monotonic() - began


def measure(spark: SparkSession, way: str, chain: str, columns: int) -> float:
    """Return the seconds in which Spark plans one row with so many columns of text behind these stages."""
    names = [f"c{number}" for number in range(columns)]
    frame = spark.range(1).selectExpr(*[f"string(id) as {name}" for name in names])
    return time_plan(WAYS[way](frame, CHAINS[chain](names)))


@pytest.mark.parametrize(
    ("chain", "way"),
    [
        ("required, replaced and cast", "straight"),
        ("replaced again and again", "branches"),
        ("one column of all, then each of its parts", "apart"),
        ("renamed", "decided"),
        ("with conditions", "apart"),
        ("masked, expected, and the latest of each key", "decided"),
        ("ten", "branches"),
    ],
)
def test_a_plan_does_not_double_with_every_column(spark: SparkSession, chain: str, way: str) -> None:
    """Six more columns take about as long, and not 64 times as long."""
    few, more = (measure(spark, way, chain, columns) for columns in (FEW, MORE))
    assert more < 5 + 8 * few


@pytest.mark.connect
@pytest.mark.parametrize("way", ["straight", *(pytest.param(way, marks=pytest.mark.long) for way in [*WAYS][1:])])
def test_two_hundred_columns_behind_ten_stages_are_planned(spark: SparkSession, way: str) -> None:
    """The time grows with the columns."""
    few = measure(spark, way, "ten", FEW)
    assert measure(spark, way, "ten", MANY) < 20 + 3 * MANY / FEW * few
