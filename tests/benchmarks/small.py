"""Measure small batches: JSON files of 1,000 rows, one file a batch, into a Delta table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from tests.benchmarks import peers
from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.landing import AMOUNT, SCHEMA, land

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

A_TURN = 20
"""The batches of each way in one turn: 120 in six turns."""
WARM = 10
PLAIN, WHERRY, SINK, EACH = "plain Spark", "Wherry", "Structured Streaming", "foreachBatch"
STAGES = f"""stages:
  - cast: {{amount: "{AMOUNT}"}}
  - require: {{positive: "amount >= 0"}}
  - filter: "id % 5 > 0"
"""
REFUSING = f"""stages:
  - cast: {{amount: "{AMOUNT}"}}
dlq: {{window: 0}}
"""


def define_orders(place: Path, stages: str = "", options: str = "") -> Path:
    """Write the definition that delivers the files in this folder's `landing`."""
    origin = f'files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}'
    return define(
        place,
        f"origins:\n  - {origin}\n{options}"
        f"{stages}destinations: [delta: {{path: tables/orders}}]\nrun: {{batch: {{files: 1}}}}\n",
    )


def measure_clean(place: Path, turns: int) -> Taken:
    """Measure all peers and Wherry without a stage."""
    spark = open_session()
    ways: dict[str, Way] = {
        PLAIN: lambda where, turn: _append_plainly(spark, where, turn),
        "plain Spark, a table by default": lambda where, turn: _append_plainly(spark, where, turn, properties=""),
        WHERRY: _carry_by_wherry,
        SINK: lambda where, turn: _stream_by_sink(spark, where, turn),
        f"{EACH}, txnAppId": lambda where, turn: _stream_by_batches(spark, where, turn),
    }
    if _has_dlt():
        ways["dlt"] = lambda where, turn: peers.load_with_dlt(where, _land_files(where, turn))
    return measure_in_turns(ways, place, turns)


def measure_steady(place: Path, turns: int) -> Taken:
    """Measure one run of 1,025 batches: the batches around the 50th, and those around the 1,000th."""
    open_session()
    land(place / "landing", 1_025)
    times = list(carry_batches(define_orders(place), 1_025))
    return {"around batch 50": times[25:75], "around batch 1,000": times[975:1_025]}


def measure_staged(place: Path, turns: int) -> Taken:
    """Measure three stages that filter 20 % of the rows, and the same work by hand."""
    spark = open_session()
    ways: dict[str, Way] = {
        PLAIN: lambda where, turn: _append_plainly(spark, where, turn, transform=peers.apply_stages_by_hand),
        WHERRY: lambda where, turn: _carry_by_wherry(where, turn, stages=STAGES),
    }
    return measure_in_turns(ways, place, turns)


def measure_nacked(place: Path, turns: int) -> Taken:
    """Measure rows of which one in a hundred has an invalid amount. Wherry writes it to the DLQ. By hand, it goes to a
    table of bad rows."""
    spark = open_session()
    ways: dict[str, Way] = {
        PLAIN: lambda where, turn: _append_plainly(spark, where, turn),
        WHERRY: lambda where, turn: _carry_by_wherry(where, turn, stages=REFUSING, bad=10),
        EACH: lambda where, turn: _stream_by_batches(spark, where, turn, bad=10),
    }
    return measure_in_turns(ways, place, turns)


def _land_files(place: Path, turn: int, bad: int = 0) -> list[Path]:
    files = WARM if "warm" in place.parts else A_TURN
    return land(place / "landing", files, first=turn * files, bad=bad)


def _append_plainly(
    spark: SparkSession,
    place: Path,
    turn: int,
    *,
    properties: str = peers.OURS,
    transform: peers.Transform = peers.return_unchanged,
) -> Iterator[float]:
    schema = SCHEMA if transform is peers.return_unchanged else SCHEMA.replace("amount string", f"amount {AMOUNT}")
    peers.make_table(spark, place / "table", schema, properties)
    yield from peers.append_plainly(spark, place / "table", _land_files(place, turn), transform)


def _carry_by_wherry(place: Path, turn: int, *, stages: str = "", bad: int = 0) -> Iterator[float]:
    files = _land_files(place, turn, bad)
    yield from carry_batches(define_orders(place, stages), len(files))


def _stream_by_sink(spark: SparkSession, place: Path, turn: int) -> Iterator[float]:
    _land_files(place, turn)
    yield from peers.stream_by_sink(spark, place)


def _stream_by_batches(spark: SparkSession, place: Path, turn: int, *, bad: int = 0) -> Iterable[float]:
    _land_files(place, turn, bad)
    peers.make_table(spark, place / "table", SCHEMA.replace("amount string", f"amount {AMOUNT}") if bad else SCHEMA)
    peers.make_table(spark, place / "refused")

    def write(rows: DataFrame, number: int) -> None:
        if not bad:
            peers.append_once(rows, place / "table", number)
            return
        kept = rows.cache()
        number_of = f"try_cast(amount as {AMOUNT})"
        good = kept.where(f"{number_of} is not null or amount is null")
        peers.append_once(good.selectExpr("id", "email", f"{number_of} as amount", "at"), place / "table", number)
        peers.append_once(kept.where(f"{number_of} is null and amount is not null"), place / "refused", number)
        kept.unpersist()

    return peers.stream_by_batches(spark, place, write)


def measure_lanes(place: Path, turns: int) -> Taken:
    """Measure the same eight batches repeatedly: in one lane, and each in a separate lane, all ready at once."""
    open_session()
    ways: dict[str, Way] = {
        "one lane": lambda where, turn: _time_ready_files(where, turn, lanes=1),
        "eight lanes": lambda where, turn: _time_ready_files(where, turn, lanes=8),
    }
    return measure_in_turns(ways, place, turns)


def _time_ready_files(place: Path, turn: int, *, lanes: int) -> Iterator[float]:
    rounds, landed = 2 if "warm" in place.parts else 6, 0
    for number in range(rounds):
        for lane in range(lanes):  # find a name that belongs to each lane
            first = (turn * rounds + number) * 8 + lane
            names = next(f"-{n}" for n in range(1_000) if crc32(f"{first:05}-{n}.json".encode()) % lanes == lane)
            landed += len(land(place / "landing", 8 // lanes, first=first, names=names))
    began = time.perf_counter()
    list(carry_batches(define_orders(place, options=f"    lanes: {lanes}\n"), landed))
    yield (time.perf_counter() - began) / landed


def _has_dlt() -> bool:
    try:
        import dlt  # noqa: F401
    except ImportError:
        return False
    return True


CASES = (
    Case(
        name="small",
        says="1,000-row JSON files, one a batch, into Delta, one lane, 120 batches",
        measure=measure_clean,
        turns=6,
        bars=(Bar(to=PLAIN, most=0.20), Bar(to=SINK, most=0.30)),
    ),
    Case(
        name="steady",
        says="the same in one run, batch 1,000 against batch 50",
        measure=measure_steady,
        turns=1,
        bars=(Bar(of="around batch 1,000", to="around batch 50", most=1.15),),
    ),
    Case(
        name="stages",
        says="the same, 3 stages, 20 % of rows filtered",
        measure=measure_staged,
        bars=(Bar(to=PLAIN, most=0.95),),
    ),
    Case(
        name="nacked",
        says="the same, 1 % of rows nacked, the DLQ written each batch",
        measure=measure_nacked,
        bars=(Bar(to=PLAIN, most=1.3), Bar(to=EACH, most=0.7)),
    ),
    Case(
        name="lanes",
        says="8 lanes with a small batch each, all ready at once: the whole run, a batch",
        measure=measure_lanes,
        turns=4,
        bars=(Bar(of="eight lanes", to="one lane", most=0.45),),
    ),
)
