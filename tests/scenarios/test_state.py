"""Damage to the state or to a disk is reported with a code and loses no row. After a repair, the next run continues."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from runners.model.events import BatchSettled, Event
from runners.model.run_report import Report
from runners.pipeline import Pipeline
from runners.running.compatibility import OperatorOverrides
from tests.scenarios.conftest import ORDERS, Place, make_order
from tests.scenarios.test_audit import cut_ledger
from tests.small_disk import SmallDisk

pytestmark = pytest.mark.spark


def carry_files(place: Place, *numbers: int, **overrides: str) -> Report:
    """Write these files, and run the pipeline."""
    for number in numbers:
        place.land(
            f"{number}.json", [make_order(number), make_order(number * 10, amount="x" if number % 2 == 0 else "1")]
        )
    return place.load(**overrides).run(check=False)


def get_code(report: Report) -> str | None:
    """Return the code of a run's error, or None."""
    return report.error.code if report.error else None


def locate_state(place: Place) -> Path:
    """Return the folder of the pipeline's state."""
    return place.folder / ".wherry" / "orders"


def move_aside(folder: Path, place: Place) -> Path:
    """Move a folder to a place where Wherry does not look."""
    return Path(shutil.move(folder, place.folder / f"aside-{uuid.uuid4().hex}"))


def test_a_table_that_was_deleted_between_two_runs_stops_the_run(place: Place) -> None:
    """Wherry does not create a new table, and does not accept another one. Once the table is back, the next run
    continues."""
    place.define(ORDERS)
    carry_files(place, 1, 2)
    table = place.folder / "tables/orders"
    kept = move_aside(table, place)
    failed = carry_files(place, 3)
    assert (get_code(failed), failed.batches, table.exists()) == ("DESTINATION", 0, False)
    assert "is missing, and this pipeline has delivered to it" in str(failed.error)
    write_deltalake(table, pyarrow.table({"id": pyarrow.array([], pyarrow.int64())}))
    failed = carry_files(place)
    assert (get_code(failed), DeltaTable(table).version()) == ("DESTINATION", 0)
    assert "was replaced, and this pipeline has delivered to it" in str(failed.error)
    shutil.rmtree(table)
    shutil.move(kept, table)
    assert carry_files(place).status == "succeeded"
    assert (place.ids("tables/orders"), place.load().audit().problems) == ([1, 2, 3, 10, 30], [])


def test_a_dlq_that_was_deleted_between_two_runs_stops_the_run(place: Place) -> None:
    """It is treated like a table. If the user confirms it, the DLQ begins again."""
    place.define(ORDERS)
    carry_files(place, 2)
    kept = move_aside(locate_state(place) / "dlq", place)
    failed = carry_files(place, 4)
    assert (get_code(failed), failed.batches, (locate_state(place) / "dlq").exists()) == ("DESTINATION", 0, False)
    assert (
        place.load().run(ruling=OperatorOverrides(fresh=("dlq",), reason="nobody needs the old ones")).status
        == "succeeded"
    )
    assert [each.code for each in place.load().audit().problems] == ["DLQ_MISSING"]
    assert [row["original"]["id"] for row in place.load().refused.list()] == [40]
    assert kept.exists()


def test_an_open_batch_that_is_older_than_the_tables_history_needs_a_decision(place: Place) -> None:
    """The log after the batch was cleaned, so the user must decide whether it was delivered."""
    place.define(ORDERS)
    carry_files(place, 1)
    carry_files(place, 3)
    cut_ledger(locate_state(place) / "ledger", "settle")
    table = place.folder / "tables/orders"
    place.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('a' = 'b')").collect()
    DeltaTable(table).create_checkpoint()
    for version in (0, 1, 2):
        (table / f"_delta_log/{version:020}.json").unlink()
        (table / f"_delta_log/{version:020}.crc").unlink(missing_ok=True)
    asked = carry_files(place)
    assert get_code(asked) == "UNSURE"
    assert "no longer reaches back to version" in str(asked.error)
    assert "wherry run FILE --assume missing" in str(asked.error)
    place.load().run(ruling=OperatorOverrides(assume="delivered", reason="I looked"))
    assert place.ids("tables/orders") == [1, 3, 10, 30]


def test_a_full_or_read_only_disk_fails_the_run_with_a_code(place: Place, small_disk: SmallDisk) -> None:
    """Commands that only read still work. Once the disk works again, the next run finishes the open batch."""
    (place.folder / "tables").symlink_to(small_disk.folder)
    place.define(ORDERS)
    carry_files(place, 1)

    def fill(event: Event) -> None:
        if isinstance(event, BatchSettled) and event.batch.number == 2:
            small_disk.fill()

    for number in (2, 3):
        place.land(f"{number}.json", [make_order(number), make_order(number * 10, amount="x")])
    failed = place.load().run(check=False, listeners=[fill])
    assert (failed.status, failed.batches, get_code(failed)) == ("failed", 1, "CARRY")
    assert "No space left on device" in str(failed.error)
    assert f"The disk at {small_disk.folder} is full:" in str(failed.error)
    assert "It holds 'orders'" in str(failed.error)
    assert "Free disk space, then run again." in str(failed.error)
    small_disk.empty()
    small_disk.read_only()
    failed = carry_files(place)
    assert (failed.status, failed.batches) == ("failed", 0)
    assert "Read-only file system" in str(failed.error)
    assert place.load().status()["lanes"]["0"]["number"] == 2
    small_disk.writable()
    assert carry_files(place).status == "succeeded"
    assert (place.load().audit().problems, place.ids("tables/orders")) == ([], [1, 2, 3, 10])


def test_a_changed_salt_is_refused_until_the_user_confirms_it(place: Place) -> None:
    """A run with another salt delivers nothing. Only the owner of the state's folder can read it."""
    text = ORDERS.replace("  - filter:", '  - mask: {columns: {email: hash}, salt: "${secret:SALT}"}\n  - filter:')
    file = place.define(text)

    def salted(name: str, salt: str, **ruling: Any) -> Report:
        place.land(name, [make_order(1)])
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


def test_a_copied_project_continues_in_both_places(place: Place) -> None:
    """Only new rows are delivered, in the copy and in the original. An audit cannot identify files that lost their
    times, and explains why."""
    file = place.define(ORDERS)
    carry_files(place, 1, 2)
    shutil.copytree(
        place.folder, there := place.folder.with_name(f"{place.folder.name} copied"), copy_function=shutil.copy
    )
    (there / "landing" / "3.json").write_text(json.dumps(make_order(3)))
    report = Pipeline.load(there / file.name).run()
    copied = [notice for notice in report.notices if "`cp -a` keeps times" in notice]
    assert (report.delivered, len(copied)) == ({"orders": 1}, 1)
    assert Place(there, place.spark).ids("tables/orders") == [1, 2, 3, 10]
    assert Pipeline.load(there / file.name).run().read == 0
    found = Pipeline.load(there / file.name).audit()
    assert [each.code for each in found.problems] == ["ORIGIN_CHANGED"]
    assert all("written again or copied at" in each.message for each in found.problems)
    assert carry_files(place, 4).delivered == {"orders": 1}
    assert place.ids("tables/orders") == [1, 2, 4, 10]
    assert place.load().audit().problems == []
