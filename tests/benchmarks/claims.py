"""What `claim` and `unclaim` cost where no value is large: small batches that need no Spark, small ones behind a stage,
and large ones of parquet rows."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.carried import carried, define
from tests.benchmarks.case import Bar, Case, Taken, Way, in_turns, session
from tests.benchmarks.landing import AMOUNT, SCHEMA, land, land_parquet

BATCHES = 6
"""Small batches of a run; the first, with all that comes before it, and the last are not counted."""
ROWS = 2_000_000
STAGES = f'[cast: {{amount: "{AMOUNT}"}}, require: {{positive: "amount >= 0"}}, filter: "id % 5 > 0"]'
KINDS = {"small, without a stage": "[]", "small": STAGES, "large": STAGES}
"""For each kind of batch its stages."""
WITH = ", with claims"


def claims(place: Path, turns: int) -> Taken:
    """Each kind of batch with both stages and without them; a large one is timed from reading to its commit."""
    spark = session()
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
            list(carried(file, 1 if is_large else BATCHES, lambda event: spent.append(sum(event.seconds.values()))))
            yield spent[0] if is_large else statistics.median(spent[1:-1])
            if (own / "claims").exists():
                raise RuntimeError("a value was stored")
            shutil.rmtree(own)

        return run

    return in_turns({f"{kind}{WITH * on}": make_way(kind, on) for kind in KINDS for on in (False, True)}, place, turns)


CASES = (
    Case(
        name="claims",
        says="small and large batches without large values, with claim and unclaim and without them, in turns",
        measure=claims,
        turns=30,
        bars=tuple(Bar(of=f"{kind}{WITH}", to=kind, most=1.03) for kind in KINDS),
    ),
)
