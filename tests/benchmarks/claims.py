"""Measure the cost of `claim` and `unclaim` when no value is large: for small batches that need no Spark, for small
ones after a stage, and for large ones of parquet rows."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.landing import AMOUNT, SCHEMA, land, land_parquet

BATCHES = 6
"""The small batches of a run. The first, which includes everything before it, and the last are not counted."""
ROWS = 2_000_000
STAGES = f'[cast: {{amount: "{AMOUNT}"}}, require: {{positive: "amount >= 0"}}, filter: "id % 5 > 0"]'
KINDS = {"small, without a stage": "[]", "small": STAGES, "large": STAGES}
"""The stages of each kind of batch."""
WITH = ", with claims"


def measure_claims(place: Path, turns: int) -> Taken:
    """Measure each kind of batch with both stages and without them. A large batch is timed from reading to its
    commit."""
    spark = open_session()
    land_parquet(spark, place / "rows", ROWS)

    def make_way(kind: str, claimed: bool) -> Way:
        def run(where: Path, turn: int) -> Iterator[float]:
            own = where / str(turn)
            is_large = kind == "large"
            path, form = (place / "rows/*.parquet", "parquet") if is_large else (own / "landing/*.json", "json")
            if not is_large:
                land(own / "landing", BATCHES)
            own.mkdir(exist_ok=True)
            stages = KINDS[kind].strip("[]")
            both = [
                *["claim: {path: claims}"] * claimed,
                *[stages] * bool(stages),
                *["unclaim: {path: claims}"] * claimed,
            ]
            file = define(
                own,
                f'origin: {{files: {{path: "{path}", format: {form}, schema: "{SCHEMA}"}}}}\n'
                f"stages: [{', '.join(both)}]\ndestinations: [delta: {{path: tables/orders}}]\n"
                f"run: {{batch: {{files: {1_000 if is_large else 1}}}}}\n",
            )
            spent: list[float] = []
            list(
                carry_batches(file, 1 if is_large else BATCHES, lambda event: spent.append(sum(event.seconds.values())))
            )
            yield spent[0] if is_large else statistics.median(spent[1:-1])
            if (own / "claims").exists():
                raise RuntimeError("a value was stored")
            shutil.rmtree(own)

        return run

    return measure_in_turns(
        {f"{kind}{WITH * on}": make_way(kind, on) for kind in KINDS for on in (False, True)}, place, turns
    )


CASES = (
    Case(
        name="claims",
        says="small and large batches without large values, with claim and unclaim and without them, in turns",
        measure=measure_claims,
        turns=30,
        bars=tuple(Bar(of=f"{kind}{WITH}", to=kind, most=1.03) for kind in KINDS),
    ),
)
