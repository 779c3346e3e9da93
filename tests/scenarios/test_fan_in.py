"""Several origins with separate stages deliver to the same destinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from destinations.delta import Delta
from destinations.dlq import Dlq
from origins.batch import Batch
from origins.batch_rows import FrameRows
from origins.memory import Memory
from runners.pipeline import Pipeline
from runners.state.journal import Journal
from runners.state.location import StateLocation as State
from stages.conditions import Require
from tests.scenarios.conftest import Place, make_order

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]

TWO = """
name: orders
origins:
  - files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
    name: shop
    stages:
      - cast: {amount: "decimal(10,2)"}
      - with_columns: {source: "'shop'"}
  - files: {path: "till/*.json", format: json, schema: "number long, price decimal(10,2)"}
    name: till
    lanes: 2
    stages:
      - rename: {number: id, price: amount}
      - cast: {amount: "decimal(10,2)"}
      - with_columns: {source: ":lane"}
stages:
  - require: {positive_amount: "amount > 0"}
destinations:
  - delta: {path: tables/orders}
  - delta: {path: tables/large}
    stages:
      - filter: "amount > 100"
dlq: {window: 0}
"""


@pytest.mark.promise("CD-02", "CD-03", "CD-04", "CD-05", "CD-06", "CD-16")
def test_rows_of_all_origins_pass_their_stages_and_then_the_common_ones(place: Place) -> None:
    """The counts balance for every destination in the report, the status and the ledger. Lanes have their origin's
    name, and a refused row names its origin."""
    place.land("a.json", [make_order(1), make_order(2, amount="sieben"), make_order(200)])
    place.land("t.json", [{"number": 7, "price": 5.5}, {"number": 8, "price": -1}], folder="till")
    report = place.load(TWO).run()
    assert (report.read, report.nacked, report.delivered) == (5, 2, {"orders": 3, "large": 1})
    assert report.destinations["large"].filtered == 2
    assert report.balanced is True
    rows = sorted((row["id"], row["source"]) for row in place.rows("tables/orders"))
    assert rows == [(1, "shop"), (7, next(lane for lane in report.lanes if lane.startswith("till/"))), (200, "shop")]
    refused = {(row["origin"], row["stage"]) for row in place.refused()}
    assert refused == {("shop", "cast"), ("till", "require")}
    assert place.load(TWO).status()["last_run"]["destinations"] == report.json()["destinations"]
    carried = Journal(State.of(place.load(TWO)).open_ledger(None)).list_settled()
    for each in (batch.counts for batch in carried):
        for name, branch in each.branches.items():
            assert each.read == (each.delivered[name] or 0) + branch.filtered + each.nacked
    assert sum(batch.counts.read for batch in carried) == 5
    place.land("b.json", [make_order(3)])
    assert (place.load(TWO).run().read, place.ids("tables/orders")) == (1, [1, 3, 7, 200])


def test_an_origin_without_files_does_not_delay_the_others(place: Place) -> None:
    """Wherry infers its schema later, when a file exists."""
    place.land("a.json", [make_order(1)])
    (place.folder / "till").mkdir()
    text = TWO.replace(', schema: "number long, price decimal(10,2)"', "")
    assert place.load(text).run().read == 1
    place.land("t.json", [{"number": 7, "price": 5.5}], folder="till")
    assert (place.load(text).run().read, place.ids("tables/orders")) == (1, [1, 7])


@dataclass(frozen=True, kw_only=True)
class Watched(Memory):
    """Rows in memory. Each computed row leaves a line in a file."""

    seen: str

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> FrameRows:
        seen = self.seen

        def looked_at(pieces: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            for each in pieces:
                with open(seen, "a", encoding="utf-8") as file:
                    file.writelines(f"{value}\n" for value in each.column("id").to_pylist())
                yield each

        frame = super().fetch(spark, batches, places=places).frame()
        return FrameRows(frame.mapInArrow(looked_at, frame.schema))


@pytest.mark.promise("X9", "CD-12")
def test_the_rows_of_every_branch_are_computed_once(place: Place, tmp_path: Path) -> None:
    """The origin is read once for three destinations and the dead letter queue. A row that one branch refuses is
    delivered to none."""
    seen = tmp_path / "seen"
    paths = [str(place.folder / f"tables/{name}") for name in ("a", "b", "c")]
    pipeline = Pipeline(
        name="orders",
        origin=Watched(items=[{"id": number} for number in range(1, 11)], schema="id int", seen=str(seen)),
        destinations=[
            Delta(path=paths[0]),
            Delta(path=paths[1], stages=[Require({"not_seven": "id <> 7"})]),
            Delta(path=paths[2], stages=[Require({"not_eight": "id <> 8", "not_seven": "id <> 7"})]),
        ],
        dlq=Dlq(window=0),
        state=str(place.folder / ".wherry/orders"),
    )
    report = pipeline.run()
    assert sorted(map(int, seen.read_text().split())) == list(range(1, 11))
    assert report.delivered == {"a": 8, "b": 8, "c": 8}
    assert [(row["stage"], row["code"]) for row in place.refused()] == [
        ("b/require", "not_seven"),
        ("c/require", "not_eight"),
    ]
