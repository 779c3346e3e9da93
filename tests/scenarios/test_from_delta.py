"""From one Delta table to another: each added row is delivered once."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from runners.command_line.cli import execute
from runners.model.run_report import PipelineFailed, Report
from runners.pipeline import Pipeline
from tests.scenarios.conftest import Place

pytestmark = [pytest.mark.spark, pytest.mark.connect]
COPY = """
name: orders
origin:
  delta: {path: in, starting_version: latest}
stages:
  - require: {small: "id < 100"}
destinations:
  - delta: {path: tables/copy}
dlq: {window: 1000, threshold: 500}
"""


def append_version(place: Place, *ids: int) -> None:
    """Append a version to the table."""
    write_deltalake(str(place.folder / "in"), pa.table({"id": list(ids)}), mode="append")


@pytest.mark.promise("SS-11", "SS-23")
def test_rows_added_after_the_first_run_are_delivered_once(place: Place) -> None:
    """The first run has nothing to deliver. A refused row has its position, and a change of existing rows stops the
    run."""
    append_version(place, 1)
    assert place.load(COPY).run().read == 0
    append_version(place, 2)
    append_version(place, 3, 300)
    report = place.load().run()
    assert (report.read, report.nacked, report.balanced) == (3, 1, True)
    assert [row["position"] for row in place.refused()] == [3]
    assert place.load().run().batches == 0
    append_version(place, 4)
    DeltaTable(str(place.folder / "in")).delete("id = 1")
    with pytest.raises(PipelineFailed, match="changed or deleted existing rows"):
        place.load().run()
    assert place.ids("tables/copy") == [2, 3]


def test_a_refused_row_names_the_version_of_the_table(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preview, the report, the DLQ and its commands name it. The name of a data file says nothing to a person."""
    write_deltalake(
        str(place.folder / "in"),
        pa.table({"id": [1, 300]}),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    version = "the table as of version 0"
    pipeline = place.load(COPY.replace("{path: in, starting_version: latest}", "{path: in, changes: true}"))
    (stage,) = [each for each in pipeline.preview().batches[0].stages if each.counts.nacked]
    assert stage.causes.describe() == [f"small, require: small: id < 100 is false: 1 row in {version}"]
    report = pipeline.run()
    assert report.causes.describe() == [f"small, require: small: id < 100 is false: 1 row in {version}"]
    (row,) = pipeline.refused.list()
    assert row["part"] == version
    monkeypatch.chdir(place.folder)
    assert execute(["dlq", "show", "pipeline.yaml"]) == 0
    assert f"waiting  id {row['id']}  {version}\n" in capsys.readouterr().out
    assert execute(["dlq", "explain", "pipeline.yaml", row["id"]]) == 0
    assert f"lane 0, batch 1, row 2, {version}\n" in capsys.readouterr().out


def test_ignored_deletes_alone_make_a_batch_without_rows(place: Place) -> None:
    """The batch moves the offset past them. With two destinations, it is decided before it is delivered."""
    append_version(place, 1, 2)
    text = COPY.replace("starting_version: latest", "on_rewrite: ignore_deletes")
    text = text.replace("dlq:", "  - delta: {path: tables/other}\ndlq:")
    assert place.load(text).run().read == 2
    DeltaTable(str(place.folder / "in")).delete("id = 1")
    report = place.load().run()
    assert (report.status, report.batches, report.read, report.balanced) == ("succeeded", 1, 0, True)
    append_version(place, 3)
    assert place.load().run().delivered == {"copy": 1, "other": 1}
    assert place.ids("tables/copy") == place.ids("tables/other") == [1, 2, 3]


SHOWN = (Path(__file__).parents[2] / "origins/docs/delta.md").read_text(encoding="utf-8")
SILVER, GOLD = re.findall(r"^```yaml\n(name: (?:silver|gold)\n.*?)^```$", SHOWN, re.DOTALL | re.MULTILINE)
SMALL = GOLD.replace("\"_change_type = 'delete'\"", "\"_change_type = 'delete' OR amount % 5 = 0\"")


@pytest.mark.long
def test_gold_follows_every_update_and_delete_of_silver(place: Place) -> None:
    """Ten runs of the two documented pipelines include a run that is killed after its write. After each run, gold is
    correct and the counts balance."""
    assert SMALL != GOLD
    place.define(SMALL)
    (place.folder / "silver.yaml").write_text(SILVER)
    chance, orders, clock = random.Random(7), dict[int, int](), 0

    def land() -> None:
        """Append four to six changes to bronze. The last one is always a new order or a new amount."""
        nonlocal clock
        rows: list[dict[str, Any]] = []
        for left in reversed(range(chance.randint(4, 6))):
            clock += 1
            order = chance.randint(1, 6)
            rows.append(
                {"id": order, "at": clock, "op": "D" if left and chance.random() < 0.4 else "U", "amount": clock}
            )
            orders.pop(order, None)
            if rows[-1]["op"] == "U":
                orders[order] = clock
        write_deltalake(str(place.folder / "tables" / "bronze"), pa.Table.from_pylist(rows), mode="append")

    def carry(file: str) -> Report:
        report = Pipeline.load(place.folder / file).run()
        assert (report.status, report.balanced) == ("succeeded", True)
        return report

    for run in range(10):
        for _ in range(2 if run % 4 == 3 else 1):
            land()
            carry("silver.yaml")
        if run == 1:
            place.spark.sql(f"UPDATE delta.`{place.folder}/tables/silver` SET amount = 1000 + amount WHERE id <= 3")
            orders.update({order: 1000 + amount for order, amount in orders.items() if order <= 3})
        if run == 2:
            place.kill(SMALL, "Written", run + 1)
        carry("pipeline.yaml")
        expected = {order: amount for order, amount in orders.items() if amount % 5}
        assert {row["id"]: row["amount"] for row in place.rows("tables/gold")} == expected
        assert len(place.rows("tables/gold")) == len(expected)
    assert carry("pipeline.yaml").batches == 0


WHOLE = """
name: orders
origin:
  delta: {path: in}
  read: whole
stages:
  - sql: "SELECT id % 2 AS odd, count(*) AS orders FROM rows GROUP BY ALL"
destinations:
  - delta: {path: tables/counts, mode: replace}
run: {batch: {rows: 1}}
"""


def read_counts(place: Place) -> list[tuple[int, int]]:
    """Return the numbers of even and of odd orders in the table."""
    return sorted((row["odd"], row["orders"]) for row in place.rows("tables/counts"))


def test_a_whole_table_without_changes_is_not_read_again(place: Place) -> None:
    """It is one batch of one version, however small batches are. It is read again if the definition changes, or if the
    destination's table is missing. Rewritten files are not a change."""
    append_version(place, 1)
    append_version(place, 2)
    report = place.load(WHOLE).run()
    assert (report.batches, report.read, report.balanced) == (1, 2, True)
    DeltaTable(str(place.folder / "in")).optimize.compact()
    assert place.load().run().batches == 0
    shutil.rmtree(place.folder / "tables" / "counts")
    assert place.load().run().batches == 1
    assert read_counts(place) == [(0, 1), (1, 1)]
    assert place.load(WHOLE.replace("count(*)", "2 * count(*)")).run().batches == 1
    assert read_counts(place) == [(0, 2), (1, 2)]
    DeltaTable(str(place.folder / "in")).delete("id = 1")
    assert place.load().run().batches == 1
    assert read_counts(place) == [(0, 2)]
    assert place.load().run().batches == 0
