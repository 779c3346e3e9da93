"""Measure how long Spark plans a batch of 200 columns, each of which is required, replaced and cast.

With Spark's own settings, the same expressions by hand are planned for more than five minutes: Spark collects what it
knows of each column, and that doubles with each step. So they are planned without that, as an expert would set it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stages.rows import make_rows, place_rows, take_clean
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runners.ways.stage_chain import StageChain
    from stages.query import Schemas

COLUMNS, ROWS, REFUSED_OF = 200, 2_000, 100
NAMES = [f"c{number}" for number in range(COLUMNS)]
PLAIN = "plain Spark, expert's setting"
FIRST, WHERRY, CLEAN = "Wherry, first batch", "Wherry, refused rows", "Wherry, clean rows"
_CLEAR = "not coalesce({} rlike '^(n/a|-)$', false)"
_POINTS = "if({0} like '%,%', replace(replace({0}, '.', ''), ',', '.'), {0})"


def measure_wide(place: Path, turns: int) -> Taken:
    """Measure the plans of both kinds of batches, and the plans of the same expressions by hand."""
    spark = open_session()
    expert = spark.newSession()
    expert.conf.set("spark.sql.constraintPropagation.enabled", "false")
    _land(place / "landing" / "a.csv")
    by_hand, rows = (_read(session, place / "landing") for session in (expert, spark))
    decided: Schemas = {}
    clean: Schemas = {}
    ways: dict[str, Way] = {
        PLAIN: lambda _, turn: [_time_plans(lambda: _describe_by_hand(by_hand))],
        FIRST: lambda _, turn: [_time_plans(lambda: [_describe_decided(rows, {})])],
        WHERRY: lambda _, turn: [_time_plans(lambda: [_describe_decided(rows, decided)])],
        CLEAN: lambda _, turn: [_time_plans(lambda: [_describe_straight(rows, clean)])],
    }
    for _ in range(WARM):
        for way in ways.values():
            list(way(place, 0))
    return measure_in_turns(ways, place, turns)


def _read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.csv(str(folder), header=True, schema=", ".join(f"{name} string" for name in NAMES))


WARM = 2
"""How often each plan is made before it counts, so that Java has compiled the planner."""


def _time_plans(describe: Callable[[], Sequence[DataFrame]]) -> float:
    """Return the seconds from nothing to the physical plans of these frames."""
    began = time.perf_counter()
    for frame in describe():
        frame.sparkSession.sql("EXPLAIN SELECT * FROM {frame}", frame=frame).collect()
    return time.perf_counter() - began


def _describe_by_hand(rows: DataFrame) -> Sequence[DataFrame]:
    """Return the good rows, and the bad rows with their reasons, as a person would write them."""
    broken = [f"case when not {_CLEAR.format(name)} then '{name} is not clear' end" for name in NAMES]
    seen = rows.selectExpr("*", "struct(*) as original", f"concat_ws('; ', {', '.join(broken)}) as unclear")
    points = [f"{_POINTS.format(name)} as {name}" for name in NAMES]
    replaced = seen.selectExpr("original", "unclear", *points)
    cast = replaced.selectExpr("*", *[f"try_cast({name} as double) as {name}_" for name in NAMES])
    lost = [f"case when {_is_lost(name)} then {_describe_lost(name)} end" for name in NAMES]
    judged = cast.selectExpr(
        "original",
        "to_json(named_struct(" + ", ".join(f"'{name}', {name}" for name in NAMES) + ")) as row",
        f"concat_ws('; ', nullif(unclear, ''), {', '.join(lost)}) as why",
        *[f"{name}_ as {name}" for name in NAMES],
    )
    good = judged.where("why = ''").select(*NAMES)
    return [good, judged.where("why <> ''").selectExpr("why", "row", "to_json(original) as original")]


def _is_lost(name: str) -> str:
    """Return SQL that is true if a cast would lose a value, or change it."""
    last = f"substring(cast({name} as binary), -1)"
    cut = (
        f"({name} < '!' or {last} < X'21' or {last} > X'7e') and {name} rlike '[\\\\x00-\\\\x08\\\\x0e-\\\\x1f\\\\x7f]'"
    )
    infinite = f"abs({name}_) = double('Infinity') and not {name} rlike '(?i)inf'"
    return f"{name} is not null and {name}_ is null or coalesce({infinite} or {cut}, false)"


def _describe_lost(name: str) -> str:
    cut = f"concat(left({name}, 100), if(char_length({name}) > 100, '…', ''))"
    return f"concat('column {name}: \\'', {cut}, '\\' is not a double')"


def _describe_decided(rows: DataFrame, schemas: Schemas) -> DataFrame:
    from runners.ways.deciding import separate_rows
    from runners.ways.stage_chain import SAMPLE_LABELS, apply_chain

    begun = make_rows(place_rows(rows), tuple(NAMES), SAMPLE_LABELS, schemas=schemas)
    return separate_rows(apply_chain(begun, _make_chain().common, {}))


def _describe_straight(rows: DataFrame, schemas: Schemas) -> DataFrame:
    from runners.ways.stage_chain import SAMPLE_LABELS, apply_chain

    begun = make_rows(rows, tuple(NAMES), SAMPLE_LABELS, take_clean, explains=False, schemas=schemas)
    return take_clean(apply_chain(begun, _make_chain().common, {}))


def _make_chain() -> StageChain:
    from destinations.memory import Memory
    from runners.ways.stage_chain import StageChain
    from stages.cast import Cast
    from stages.columns import WithColumns
    from stages.conditions import Require

    stages = (
        Require({f"clear_{name}": _CLEAR.format(name) for name in NAMES}),
        WithColumns({name: _POINTS.format(name) for name in NAMES}),
        Cast(dict.fromkeys(NAMES, "double")),
    )
    return StageChain.of(stages, {"rows": Memory(name="rows")})


def _land(file: Path) -> None:
    """Write a file of whose rows one in a hundred is refused."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(NAMES)]
    for row in range(ROWS):
        values = [f'"1.{100 + column},{row % 10}"' for column in range(COLUMNS)]
        if row % REFUSED_OF == 7:
            values[row % COLUMNS] = "n/a"
        lines.append(",".join(values))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


CASES = (
    Case(
        name="wide",
        says="the plan of a batch with 200 columns, each required, replaced and cast",
        measure=measure_wide,
        turns=5,
        bars=(Bar(of=FIRST, most=3.0), Bar(of=WHERRY, to=PLAIN, most=1.5), Bar(of=CLEAN, to=PLAIN, most=1.5)),
    ),
)
