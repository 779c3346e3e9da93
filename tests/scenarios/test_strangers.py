"""Other programs change a destination while a run is in progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from destinations.delta import Delta
from destinations.delta.table import TargetTable as DeltaTable
from runners.model.events import BatchSettled, Event
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark]

MAPPED = "'delta.columnMapping.mode' = 'name'"
YAML_MAPPED = "delta.columnMapping.mode: name"


def act_behind_the_first(step: Callable[[], object]) -> Callable[[Event], None]:
    """Return a listener that performs a step once the first batch is settled."""

    def listen(event: Event) -> None:
        if isinstance(event, BatchSettled) and event.batch.number == 1:
            step()

    return listen


@pytest.fixture
def two_files(place: Place) -> Place:
    """Provide a place where two batches wait."""
    place.land("1.json", [make_order(1)])
    place.land("2.json", [make_order(2)])
    place.define(ORDERS)
    return place


def format_table_name(place: Place) -> str:
    """Return the destination's name in SQL."""
    return f"delta.`{place.folder / 'tables/orders'}`"


def test_a_table_that_is_replaced_fails_the_run_and_loses_nothing(two_files: Place) -> None:
    """The batch stays open, and settled batches are not written again."""
    place = two_files

    def act() -> None:
        for file in sorted((place.folder / "tables/orders").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        other = Delta(path=str(place.folder / "tables/orders")).open()
        other.ensure_place(place.spark, place.spark.sql("select 1L as id").schema)

    failed = place.load().run(check=False, listeners=[act_behind_the_first(act)])
    assert failed.error is not None
    assert "was replaced by another table" in failed.error.message
    assert failed.batches == 1
    assert len(place.load().status()["open"]) == 1


def test_a_run_continues_to_write_into_a_widened_table(two_files: Place) -> None:
    """Rows without a new column have NULL there, and values fit into a wider type."""
    place = two_files
    changes = ("add column remark string", "set tblproperties ('delta.enableTypeWidening' = 'true')")

    def widen() -> None:
        for change in (*changes, "alter column amount type decimal(20,2)"):
            place.spark.sql(f"alter table {format_table_name(place)} {change}").collect()

    report = place.load().run(listeners=[act_behind_the_first(widen)])
    assert (report.status, place.ids("tables/orders")) == ("succeeded", [1, 2])


def make_stale_error(place: Place) -> Exception:
    """Return Delta's error for rows whose table has changed its columns since they were described."""
    side = f"delta.`{place.folder / 'side'}`"
    place.spark.sql(f"create table {side} (a int, b int) using delta tblproperties ({MAPPED})")
    rows = place.spark.table(side)
    place.spark.sql(f"alter table {side} drop column b")
    with pytest.raises(AnalysisException) as told:
        rows.collect()
    return told.value


@pytest.mark.parametrize(
    ("change", "status", "code", "ids"),
    [("add column remark string", "succeeded", None, [1, 2]), ("drop column email", "failed", "MISFIT", [])],
    ids=["it fits still", "it fits no more"],
)
def test_a_batch_is_described_again_if_its_table_is_altered(
    two_files: Place, monkeypatch: pytest.MonkeyPatch, change: str, status: str, code: str | None, ids: list[int]
) -> None:
    """It is then written, unless its rows no longer fit."""
    place, commit, told = two_files, DeltaTable.append, list[Exception]()

    def altered(self: DeltaTable, *words: Any) -> None:
        if not told:
            told.append(make_stale_error(place))
            place.spark.sql(f"alter table {format_table_name(place)} {change}")
            raise told[0]
        commit(self, *words)

    monkeypatch.setattr(DeltaTable, "append", altered)
    mapped = ORDERS.replace("{path: tables/orders}", f"{{path: tables/orders, properties: {{{YAML_MAPPED}}}}}")
    report = place.load(mapped.replace("files: 1}", "files: 1}, retry: {wait: 10ms}")).run(check=False)
    assert (report.status, report.error and report.error.code, len(told)) == (status, code, 1)
    assert place.ids("tables/orders") == ids


def test_two_pipelines_write_one_table(two_files: Place) -> None:
    """One runs during the other. Each recognises its batches, also if it has to look for an open one."""
    place = two_files
    other = place.folder / "other.yaml"
    other.write_text(ORDERS.replace("name: orders", "name: others").replace("landing/", "landing2/"))
    place.land("3.json", [make_order(3)], folder="landing2")
    pipeline = place.load()
    others = replace(type(pipeline).load(other))

    def crash(event: Event) -> None:
        assert not isinstance(event, BatchSettled)

    def interrupted() -> None:
        assert others.run(check=False, listeners=[crash]).status == "failed"
        others.run()

    report = pipeline.run(listeners=[act_behind_the_first(interrupted)])
    assert (report.status, place.ids("tables/orders")) == ("succeeded", [1, 2, 3])


@pytest.mark.parametrize("number", [1, 2])
def test_a_batch_that_another_process_replaced_fails_the_run_and_is_found_by_an_audit(
    two_files: Place, number: int
) -> None:
    """The next commit or the end of the run detects it."""
    place = two_files
    log = place.folder / "tables/orders/_delta_log"

    def replace_newest(event: Event) -> None:
        if isinstance(event, BatchSettled) and event.batch.number == number:
            other = log / "other"
            other.write_text(json.dumps({"commitInfo": {"operation": "WRITE", "operationParameters": {}}}))
            other.rename(log / f"{number:020}.json")

    failed = place.load().run(check=False, listeners=[replace_newest])
    assert failed.error is not None
    assert (failed.status, failed.error.code, failed.error.lane) == ("failed", "OVERWRITTEN", "0")
    assert f"version {number} of the table {log.parent}, which held batch {number} of lane 0" in failed.error.message
    problems = [(each.code, each.destination, each.number) for each in place.load().audit().problems]
    assert problems == [("NOT_DELIVERED", "orders", number)]
