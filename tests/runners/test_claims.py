"""Which large values a sweep removes, and when it removes none, without Spark."""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from destinations.delta.delta import Delta
from destinations.destination import Destination
from destinations.discard import Discard
from destinations.log import Log
from destinations.memory import Memory
from origins.nack import DLQ_COLUMNS
from origins.store_access import StoreError, StoreUrl
from runners import claims
from runners.claims import note_user, sweep
from runners.ways.stage_chain import StageChain, Upkeep
from stages.claim import Claim, Format, Unclaim, open_store
from stages.claim_store import ValueClaims
from stages.columns import WithColumns
from stages.conditions import Filter
from stages.stage import Stage
from tests.stages.claim.aged_values import store_at
from tests.stores.fault_proxy import Fault
from tests.stores.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPKEEP: Upkeep = claims
"""The types of the module are those of its contract, or mypy refuses this line."""
DAY = 86_400.0
NOW = 1_800_000_000.0


class Place:
    """A store with values, a DLQ beside it, and a pipeline that uses both."""

    def __init__(self, folder: Path, kind: Format = "files") -> None:
        self.store = str(folder / "claims")
        self.kind: Format = kind
        self.dlq = Delta(path=str(folder / "dlq"), name="dlq")
        self.stages: Sequence[Stage] = [
            Claim(path=self.store, format=kind, retain="30d"),
            Unclaim(path=self.store, format=kind),
        ]
        self._claims = ValueClaims(open_store(self.store, kind))

    @property
    def chain(self) -> StageChain:
        """The stages of the pipeline."""
        return StageChain.of(self.stages, {"memory": Memory()})

    def put(self, text: str, days: float) -> str:
        """Store a value that was last used this many days ago. Return its reference."""
        return store_at(self._claims, text.encode(), NOW - days * DAY)

    def refuse(self, row: dict[str, Any], original: dict[str, Any]) -> None:
        """Put an entry into the DLQ."""
        names = [column.split(" ")[0] for column in DLQ_COLUMNS.split(", ")]
        kinds = {"number": pa.int64(), "position": pa.int64(), "delivered_to": pa.list_(pa.string())}
        values = {"row": json.dumps(row), "original": json.dumps(original)}
        kinds["nacked_at"] = pa.timestamp("us", "UTC")
        columns = {name: pa.array([values.get(name)], kinds.get(name, pa.string())) for name in names}
        write_deltalake(str(self.dlq.path), pa.table(columns), mode="append")

    def sweep(self, now: float = NOW, kept: Sequence[Destination] = ()) -> list[str]:
        """Sweep the store. Return the values that are left."""

        def no_spark() -> SparkSession:
            raise AssertionError("Spark is asked")

        sweep([self.chain], "orders", kept or [self.dlq], no_spark, now)
        store = open_store(self.store, self.kind)
        return sorted((store.read_value(value.name) or b"").decode() for value in store.list_values())


@pytest.fixture(params=["files", "delta"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    """Return a store that only this pipeline uses."""
    made = Place(tmp_path, request.param)
    note_user(made.chain, "orders")
    return made


def test_an_unused_value_is_removed_after_the_retention(place: Place) -> None:
    """A younger value stays."""
    place.put("old", 31)
    place.put("young", 29)
    assert place.sweep() == ["young"]


def test_unfinished_files_of_killed_writers_are_removed_after_the_retention(place: Place) -> None:
    """A younger file stays, because its writer may be alive. These files count neither as values nor as pipelines."""
    place.put("young", 29)
    unfinished = [f"values/ab/.{1:032x}", f"users/.{2:032x}", f"table/ab/.{3:032x}", f"table/_delta_log/{9:020}.json#1"]
    for name in unfinished:
        for ending, days in (("", 31), ("0", 29)):
            file = Path(place.store, name[: len(name) - len(ending)] + ending)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            os.utime(file, (NOW - days * DAY,) * 2)
    assert place.sweep() == ["young"]
    left = {str(file.relative_to(place.store)) for file in Path(place.store).rglob("*")}
    assert [name for name in unfinished if name in left] == []
    assert len([name for name in unfinished if f"{name[:-1]}0" in left]) == len(unfinished)


def test_a_value_that_the_dlq_references_stays(place: Place) -> None:
    """The reference may be in the row or in the original row, as text or bytes, or inside another text."""
    wanted = {name: place.put(name, 365) for name in ("row", "original", "bytes", "inside", "gone")}
    place.refuse({"v": wanted["row"]}, {"v": "small"})
    place.refuse({"v": 1}, {"v": [{"x": wanted["original"]}]})
    place.refuse({"v": base64.b64encode(wanted["bytes"].encode()).decode()}, {})
    place.refuse({"v": json.dumps({"v": wanted["inside"]})}, {})
    assert place.sweep() == ["bytes", "inside", "original", "row"]


def test_a_sweep_runs_at_most_once_a_day(place: Place) -> None:
    """It does not slow down a run that follows."""
    place.put("a", 31)
    assert place.sweep() == []
    place.put("b", 31)
    assert place.sweep(NOW + DAY - 1) == ["b"]
    assert place.sweep(NOW + DAY + 1) == []


def test_without_a_retention_nothing_is_removed(place: Place) -> None:
    """This is also true if one of two stages with the store has no retention."""
    place.stages = [*place.stages, Claim(path=place.store, format=place.kind)]
    place.put("old", 10_000)
    assert place.sweep() == ["old"]


BLOCKS: dict[str, Callable[[Place], object]] = {
    "the pipeline second uses the store too": lambda place: note_user(place.chain, "second"),
    "destinations of orders have references": lambda place: note_user(
        StageChain.of(place.stages[:1], {"memory": Memory()}), "orders"
    ),
}


@pytest.mark.parametrize(("why", "block"), BLOCKS.items(), ids=BLOCKS)
def test_possible_references_keep_all_values(
    place: Place, caplog: pytest.LogCaptureFixture, why: str, block: Callable[[Place], object]
) -> None:
    """The warning has the reason."""
    block(place)
    place.put("old", 365)
    with caplog.at_level(logging.WARNING, "wherry"):
        assert place.sweep() == ["old"]
    assert why in caplog.text


def test_a_dlq_that_cannot_be_read_keeps_all_values(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A destination that discards rows has no references."""
    place.put("old", 365)
    assert place.sweep(kept=[Log()]) == ["old"]
    assert "may name them, and cannot be read" in caplog.text
    assert place.sweep(NOW + 2 * DAY, kept=[Discard()]) == []


@pytest.mark.parametrize(
    ("between", "behind", "keeps"),
    [
        ([], [Unclaim(path="p")], False),
        ([Filter("id > 0")], [Unclaim(path="p")], False),
        ([], [], True),
        ([], [Unclaim(path="q")], True),
        ([], [Unclaim(path="p", format="delta")], True),
        ([], [Unclaim(path="p", columns=["a"])], True),
        ([], [Unclaim(path="p", when="id > 0")], True),
        ([WithColumns({"b": "concat(a, 'x')"})], [Unclaim(path="p")], True),
    ],
)
def test_a_store_records_the_pipelines_whose_destinations_keep_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: list[Stage], behind: list[Stage], keeps: bool
) -> None:
    """One of two destinations is enough. A value that a stage computes from a reference is not put back."""
    monkeypatch.chdir(tmp_path)
    stages = [Claim(path="p"), *between]
    note_user(StageChain.of(stages, {"a": Memory(stages=behind), "b": Memory(stages=[Unclaim(path="p")])}), "orders")
    note_user(StageChain.of(stages, {"a": Memory(stages=behind)}), "orders")
    assert sorted(file.parent.name for file in (tmp_path / "p").rglob("*/*")) == ["keepers"] * keeps + ["users"]


def test_a_pipeline_that_only_puts_values_back_makes_no_store(place: Place, tmp_path: Path) -> None:
    """An existing store records the pipeline."""
    for path in (str(tmp_path / "nowhere"), place.store):
        place.put("a", 0)
        note_user(StageChain.of([Unclaim(path=path, format=place.kind)], {"memory": Memory()}), "second")
    assert not (tmp_path / "nowhere").exists()
    assert Path(place.store, "users", "second").exists()


def test_an_unreadable_store_fails_no_run(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Values that are not removed today are removed later."""
    place.put("old", 365)
    Path(place.store, "swept").write_text("rubbish")
    assert place.sweep() == ["old"]
    assert "were not removed" in caplog.text


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_a_table_in_a_store_without_conditional_writes_is_refused(s3: S3, kind: Format) -> None:
    """A commit there may replace another commit and lose values. The format `files` needs no condition."""
    url = StoreUrl(s3.make_url("claims"), s3.spark_settings)
    chain = StageChain.of([Claim(path=url, format=kind), Unclaim(path=url, format=kind)], {"memory": Memory()})
    s3.proxy.add(Fault("disregard", "PUT", times=None))
    with pytest.raises(StoreError, match="replace another one") if kind == "delta" else nullcontext() as raised:
        note_user(chain, "orders")
    assert raised is None or "format: files" in str(raised.value.hint)
