"""Measure small batches: JSON files of 1,000 rows, one file a batch, into a Delta table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from tests.benchmarks import peers
from tests.benchmarks.carried import carried, define
from tests.benchmarks.case import Bar, Case, Taken, Way, in_turns, session
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


def orders(place: Path, stages: str = "", options: str = "") -> Path:
    """Write the definition that delivers the files in this folder's `landing`."""
    origin = f'files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}'
    return define(
        place,
        f"origins:\n  - {origin}\n{options}"
        f"{stages}destinations: [delta: {{path: tables/orders}}]\nrun: {{batch: {{files: 1}}}}\n",
    )


def clean(place: Path, turns: int) -> Taken:
    """Measure all peers and Wherry without a stage."""
    spark = session()
    ways: dict[str, Way] = {
        PLAIN: lambda where, turn: _plain(spark, where, turn),
        "plain Spark, a table by default": lambda where, turn: _plain(spark, where, turn, properties=""),
        WHERRY: _wherry,
        SINK: lambda where, turn: _sink(spark, where, turn),
        f"{EACH}, txnAppId": lambda where, turn: _each(spark, where, turn),
    }
    if _has_dlt():
        ways["dlt"] = lambda where, turn: peers.with_dlt(where, _landed(where, turn))
    return in_turns(ways, place, turns)


def steady(place: Path, turns: int) -> Taken:
    """Measure one run of 1,025 batches: the batches around the 50th, and those around the 1,000th."""
    session()
    land(place / "landing", 1_025)
    times = list(carried(orders(place), 1_025))
    return {"around batch 50": times[25:75], "around batch 1,000": times[975:1_025]}


def staged(place: Path, turns: int) -> Taken:
    """Measure three stages that filter 20 % of the rows, and the same work by hand."""
    spark = session()
    ways: dict[str, Way] = {
        PLAIN: lambda where, turn: _plain(spark, where, turn, transform=peers.staged),
        WHERRY: lambda where, turn: _wherry(where, turn, stages=STAGES),
    }
    return in_turns(ways, place, turns)


def nacked(place: Path, turns: int) -> Taken:
    """Measure rows of which one in a hundred has an invalid amount. Wherry writes it to the DLQ. By hand, it goes to a
    table of bad rows."""
    spark = session()
    ways: dict[str, Way] = {
        PLAIN: lambda where, turn: _plain(spark, where, turn),
        WHERRY: lambda where, turn: _wherry(where, turn, stages=REFUSING, bad=10),
        EACH: lambda where, turn: _each(spark, where, turn, bad=10),
    }
    return in_turns(ways, place, turns)


def _landed(place: Path, turn: int, bad: int = 0) -> list[Path]:
    files = WARM if "warm" in place.parts else A_TURN
    return land(place / "landing", files, first=turn * files, bad=bad)


def _plain(
    spark: SparkSession,
    place: Path,
    turn: int,
    *,
    properties: str = peers.OURS,
    transform: peers.Transform = peers.as_is,
) -> Iterator[float]:
    schema = SCHEMA if transform is peers.as_is else SCHEMA.replace("amount string", f"amount {AMOUNT}")
    peers.make(spark, place / "table", schema, properties)
    yield from peers.plain(spark, place / "table", _landed(place, turn), transform)


def _wherry(place: Path, turn: int, *, stages: str = "", bad: int = 0) -> Iterator[float]:
    files = _landed(place, turn, bad)
    yield from carried(orders(place, stages), len(files))


def _sink(spark: SparkSession, place: Path, turn: int) -> Iterator[float]:
    _landed(place, turn)
    yield from peers.streaming(spark, place)


def _each(spark: SparkSession, place: Path, turn: int, *, bad: int = 0) -> Iterable[float]:
    _landed(place, turn, bad)
    peers.make(spark, place / "table", SCHEMA.replace("amount string", f"amount {AMOUNT}") if bad else SCHEMA)
    peers.make(spark, place / "refused")

    def write(rows: DataFrame, number: int) -> None:
        if not bad:
            peers.once(rows, place / "table", number)
            return
        kept = rows.cache()
        number_of = f"try_cast(amount as {AMOUNT})"
        good = kept.where(f"{number_of} is not null or amount is null")
        peers.once(good.selectExpr("id", "email", f"{number_of} as amount", "at"), place / "table", number)
        peers.once(kept.where(f"{number_of} is null and amount is not null"), place / "refused", number)
        kept.unpersist()

    return peers.each_batch(spark, place, write)


def lanes(place: Path, turns: int) -> Taken:
    """Measure the same eight batches repeatedly: in one lane, and each in a separate lane, all ready at once."""
    session()
    ways: dict[str, Way] = {
        "one lane": lambda where, turn: _ready(where, turn, lanes=1),
        "eight lanes": lambda where, turn: _ready(where, turn, lanes=8),
    }
    return in_turns(ways, place, turns)


def _ready(place: Path, turn: int, *, lanes: int) -> Iterator[float]:
    rounds, landed = 2 if "warm" in place.parts else 6, 0
    for number in range(rounds):
        for lane in range(lanes):  # find a name that belongs to each lane
            first = (turn * rounds + number) * 8 + lane
            names = next(f"-{n}" for n in range(1_000) if crc32(f"{first:05}-{n}.json".encode()) % lanes == lane)
            landed += len(land(place / "landing", 8 // lanes, first=first, names=names))
    began = time.perf_counter()
    list(carried(orders(place, options=f"    lanes: {lanes}\n"), landed))
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
        measure=clean,
        turns=6,
        bars=(Bar(to=PLAIN, most=0.20), Bar(to=SINK, most=0.30)),
    ),
    Case(
        name="steady",
        says="the same in one run, batch 1,000 against batch 50",
        measure=steady,
        turns=1,
        bars=(Bar(of="around batch 1,000", to="around batch 50", most=1.15),),
    ),
    Case(
        name="stages",
        says="the same, 3 stages, 20 % of rows filtered",
        measure=staged,
        bars=(Bar(to=PLAIN, most=0.95),),
    ),
    Case(
        name="nacked",
        says="the same, 1 % of rows nacked, the DLQ written each batch",
        measure=nacked,
        bars=(Bar(to=PLAIN, most=1.3), Bar(to=EACH, most=0.7)),
    ),
    Case(
        name="lanes",
        says="8 lanes with a small batch each, all ready at once: the whole run, a batch",
        measure=lanes,
        turns=4,
        bars=(Bar(of="eight lanes", to="one lane", most=0.45),),
    ),
)
