"""State that lasts: what people and disks do to it is told with a code, loses nothing, and is gone on from after."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from runners.model.events import BatchSettled, Event
from runners.model.run_report import Report
from runners.pipeline import Pipeline
from runners.running.compatibility import OperatorOverrides
from tests.scenarios.conftest import ORDERS, Place, order
from tests.scenarios.test_audit import cut
from tests.small_disk import SmallDisk

pytestmark = pytest.mark.spark


def carried(place: Place, *numbers: int, **overrides: str) -> Report:
    """A run that finds these files beside those that were there."""
    for number in numbers:
        place.land(f"{number}.json", [order(number), order(number * 10, amount="x" if number % 2 == 0 else "1")])
    return place.load(**overrides).run(check=False)


def code(report: Report) -> str | None:
    """With which code a run ended."""
    return report.error.code if report.error else None


def state(place: Place) -> Path:
    """Where the pipeline keeps its own."""
    return place.folder / ".wherry" / "orders"


def aside(folder: Path, place: Place) -> Path:
    """Put it where it is not looked for."""
    return Path(shutil.move(folder, place.folder / f"aside-{uuid.uuid4().hex}"))


def test_a_table_that_was_deleted_between_two_runs(place: Place) -> None:
    """None is made in its place, and no other is taken for it; put back, the next run goes on."""
    place.define(ORDERS)
    carried(place, 1, 2)
    table = place.folder / "tables/orders"
    kept = aside(table, place)
    failed = carried(place, 3)
    assert (code(failed), failed.batches, table.exists()) == ("DESTINATION", 0, False)
    assert "is missing, and this pipeline has delivered to it" in str(failed.error)
    write_deltalake(table, pyarrow.table({"id": pyarrow.array([], pyarrow.int64())}))
    failed = carried(place)
    assert (code(failed), DeltaTable(table).version()) == ("DESTINATION", 0)
    assert "was replaced, and this pipeline has delivered to it" in str(failed.error)
    shutil.rmtree(table)
    shutil.move(kept, table)
    assert carried(place).status == "succeeded"
    assert (place.ids("tables/orders"), place.load().audit().problems) == ([1, 2, 3, 10, 30], [])


def test_a_queue_that_was_deleted_between_two_runs(place: Place) -> None:
    """As a table; and on a person's word it begins anew."""
    place.define(ORDERS)
    carried(place, 2)
    kept = aside(state(place) / "dlq", place)
    failed = carried(place, 4)
    assert (code(failed), failed.batches, (state(place) / "dlq").exists()) == ("DESTINATION", 0, False)
    assert (
        place.load().run(ruling=OperatorOverrides(fresh=("dlq",), reason="nobody needs the old ones")).status
        == "succeeded"
    )
    assert [each.code for each in place.load().audit().problems] == ["DLQ_MISSING"]
    assert [row["original"]["id"] for row in place.load().dead_letters()] == [40]
    assert kept.exists()


def test_a_ledger_that_is_lost(place: Place) -> None:
    """Nothing is carried twice: the table has a batch that it never planned. With the newest one back it goes on."""
    place.define(ORDERS)
    carried(place, 1)
    kept = aside(state(place), place)
    failed = carried(place, 5)
    assert (code(failed), place.ids("tables/orders")) == ("LEDGER", [1, 10])
    assert "'orders' has batch 1 of lane 0 of this pipeline, but the ledger has planned none" in str(failed.error)
    shutil.rmtree(state(place))
    shutil.move(kept, state(place))
    assert carried(place).status == "succeeded"
    assert (place.ids("tables/orders"), place.load().audit().problems) == ([1, 5, 10, 50], [])


def test_an_open_batch_that_is_older_than_the_tables_history_is_not_guessed(place: Place) -> None:
    """The log was cleaned behind it, and somebody has to say whether it was delivered."""
    place.define(ORDERS)
    carried(place, 1)
    carried(place, 3)
    cut(state(place) / "ledger", "settle")
    table = place.folder / "tables/orders"
    place.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('a' = 'b')").collect()
    DeltaTable(table).create_checkpoint()
    for version in (0, 1, 2):
        (table / f"_delta_log/{version:020}.json").unlink()
        (table / f"_delta_log/{version:020}.crc").unlink(missing_ok=True)
    asked = carried(place)
    assert code(asked) == "UNSURE"
    assert "no longer reaches back to version" in str(asked.error)
    assert "wherry run FILE --assume missing" in str(asked.error)
    place.load().run(ruling=OperatorOverrides(assume="delivered", reason="I looked"))
    assert place.ids("tables/orders") == [1, 3, 10, 30]


def test_a_disk_that_is_full_in_the_middle_of_a_run_and_then_read_only(place: Place, small_disk: SmallDisk) -> None:
    """The runs fail with a code, what only looks works, and when it is mended what was open is finished."""
    (place.folder / "tables").symlink_to(small_disk.folder)
    place.define(ORDERS)
    carried(place, 1)

    def fill(event: Event) -> None:
        if isinstance(event, BatchSettled) and event.batch.number == 2:
            small_disk.fill()

    for number in (2, 3):
        place.land(f"{number}.json", [order(number), order(number * 10, amount="x")])
    failed = place.load().run(check=False, listeners=[fill])
    assert (failed.status, failed.batches, code(failed)) == ("failed", 1, "CARRY")
    assert "No space left on device" in str(failed.error)
    assert f"The disk at {small_disk.folder} is full:" in str(failed.error)
    assert "It holds 'orders'" in str(failed.error)
    assert "Free disk space, then run again." in str(failed.error)
    small_disk.empty()
    small_disk.read_only()
    failed = carried(place)
    assert (failed.status, failed.batches) == ("failed", 0)
    assert "Read-only file system" in str(failed.error)
    assert place.load().status()["lanes"]["0"]["number"] == 2
    small_disk.writable()
    assert carried(place).status == "succeeded"
    assert (place.load().audit().problems, place.ids("tables/orders")) == ([], [1, 2, 3, 10])


def test_a_salt_is_the_one_of_before_until_another_one_is_meant(place: Place) -> None:
    """A run with another one carries nothing, and says how it would; the state is its owner's alone."""
    text = ORDERS.replace("  - filter:", '  - mask: {columns: {email: hash}, salt: "${secret:SALT}"}\n  - filter:')
    file = place.define(text)

    def salted(name: str, salt: str, **ruling: Any) -> Report:
        place.land(name, [order(1)])
        told = OperatorOverrides(**ruling, reason="a test") if ruling else None
        return Pipeline.load(file, secrets={"SALT": salt}).run(check=False, ruling=told)

    assert salted("1.json", "hunter2hunter2").status == "succeeded"
    refused = salted("2.json", "hunter3hunter3")
    assert refused.error is not None
    assert refused.error.message.startswith("The salt of the stage 'mask' has changed since the last run")
    assert len(place.rows("tables/orders")) == 1
    assert salted("3.json", "hunter2hunter2").delivered == {"orders": 2}
    assert salted("4.json", "hunter3hunter3", fresh=("mask.salt",)).delivered == {"orders": 1}
    assert salted("5.json", "hunter3hunter3").delivered == {"orders": 1}
    assert len({row["email"] for row in place.rows("tables/orders")}) == 2
    assert (place.folder / ".wherry/orders").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("copy", [shutil.copy2, shutil.copy], ids=["cp -a", "cp -r"])
def test_a_project_that_is_copied_goes_on_in_both_places(place: Place, copy: Callable[[str, str], object]) -> None:
    """Only what is new is carried, in the copy and in the original; of files without their times an audit cannot say
    that they are the same, and tells why."""
    file = place.define(ORDERS)
    carried(place, 1, 2)
    shutil.copytree(place.folder, there := place.folder.with_name(f"{place.folder.name} copied"), copy_function=copy)
    (there / "landing" / "3.json").write_text(json.dumps(order(3)))
    report = Pipeline.load(there / file.name).run()
    copied = [notice for notice in report.notices if "`cp -a` keeps times" in notice]
    assert (report.delivered, len(copied)) == ({"orders": 1}, 1 if copy is shutil.copy else 0)
    assert Place(there, place.spark).ids("tables/orders") == [1, 2, 3, 10]
    assert Pipeline.load(there / file.name).run().read == 0
    found = Pipeline.load(there / file.name).audit()
    assert [each.code for each in found.problems] == ["ORIGIN_CHANGED"] * len(copied)
    assert all("written again or copied at" in each.message for each in found.problems)
    assert carried(place, 4).delivered == {"orders": 1}
    assert place.ids("tables/orders") == [1, 2, 4, 10]
    assert place.load().audit().problems == []
