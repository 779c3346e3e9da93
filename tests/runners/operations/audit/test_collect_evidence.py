"""Each test breaks a table or the DLQ by hand, and an audit finds the break. Without Spark."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from destinations.delta import Delta
from destinations.dlq import FALLBACK, Dlq
from destinations.files import Files
from destinations.labels import Label
from origins.store_access import StoreError
from runners.model.spec import PipelineSpec
from runners.operations.audit.finding import Audit
from runners.state import location
from tests.runners.operations.audit.evidence import Carried, append_rows, append_several, make_batch
from tests.runners.running.letterbox import append_letters, make_letters


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three batches. The second has a refused row."""
    made = Carried(tmp_path_factory.mktemp("whole"))
    made.record_opening()
    made.carry(1)
    made.carry(2, nacked=1)
    made.carry(3)
    return made.folder


@pytest.fixture
def carried(whole: Path, tmp_path: Path) -> Carried:
    """A copy of `whole` that a test can break."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return Carried(tmp_path)


def get_only(found: Audit) -> dict[str, object]:
    """Return the only problem as JSON."""
    (problem,) = found.json()["problems"]
    return dict(problem)


def locate_file(table: Path, version: int) -> Path:
    """Return the path of the file that a version added."""
    actions = (table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    (added,) = [action["add"]["path"] for action in map(json.loads, actions) if "add" in action]
    return table / str(added)


def test_whole_batches_balance(carried: Carried) -> None:
    """The equation holds with the table's counts, and is proved from the first batch."""
    found = carried.pipeline.audit().json()
    assert (found["balanced"], found["read"], found["filtered"], found["nacked"]) == (True, 9, 0, 1)
    assert found["destinations"]["orders"]["delivered"] == 8
    assert found["destinations"]["orders"]["proved_from"] == {"0": 1}
    assert found["lanes"]["0"]["batches"] == 3
    assert found["dlq"] == {"refused": 1, "decided": 0, "rows": 1, "fallback": 0}


def test_an_audit_balances_after_the_entries_were_compacted(carried: Carried) -> None:
    """Batches in the compacted history count like batches in the ledger."""
    carried.compact()
    carried.carry(4)
    found = carried.pipeline.audit()
    assert (found.balanced, found.read) == (True, 12)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreError("The store does not answer."), "The store does not answer."),
        (
            PySparkException(
                "[MALFORMED_RECORD] Malformed records are detected in record parsing: [anna@shop.example]"
            ),
            "in record parsing: ***",
        ),
    ],
)
def test_a_fallback_that_cannot_be_read_is_a_finding(
    carried: Carried, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    """The message of a Spark error is shown without the values of rows."""

    def fail(pipeline: PipelineSpec) -> NoReturn:
        raise error

    monkeypatch.setattr(location, "obtain_for", fail)
    carried.plan(4)
    carried.land(4, nacked=1)
    carried.settle(4, nacked=1, counts={"fallback": 1})
    dlq = Dlq(window=0, on_failure="fallback", fallback=Files(path=str(carried.folder / "refused")))
    found = replace(carried.pipeline, dlq=dlq, protect=("mail",)).audit()
    (problem,) = [each for each in found.problems if each.destination == FALLBACK]
    assert problem.code == "DLQ_GONE"
    assert reason in problem.message
    assert "anna" not in problem.message


def test_a_settled_batch_that_never_reached_the_table_is_found(carried: Carried) -> None:
    """The finding names the backfill that delivers the batch."""
    carried.plan(4)
    carried.settle(4)
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["lane"], problem["number"], problem["destination"]) == (
        "NOT_DELIVERED",
        "0",
        4,
        "orders",
    )
    assert "3 rows as delivered" in str(problem["message"])
    assert "wherry backfill FILE --from 4 --to 4 --only orders --again" in str(problem["repair"])
    assert carried.pipeline.audit().destinations["orders"].delivered == 8


def test_a_batch_without_a_ledger_entry_is_found(carried: Carried) -> None:
    """The table has a batch of this pipeline that the ledger does not know."""
    append_rows(carried.table(), [1, 2], [Label(batch=make_batch(9), destination="orders")])
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["version"]) == ("NOT_COMMITTED", 9, 4)
    assert "2 rows of it are here (version 4)" in str(problem["message"])


def test_a_written_but_unsettled_batch_is_found(carried: Carried) -> None:
    """The batch is open and the table has it. The next run settles it, and so does `repair`."""
    carried.plan(4)
    carried.land(4)
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["safe"]) == ("NOT_SETTLED", 4, True)


def compact_with_others(carried: Carried) -> DeltaTable:
    """Return the table with three rows of another writer and all rows of the pipeline, compacted into one file."""
    append_rows(carried.table(), [901, 902, 903])
    DeltaTable(carried.table()).optimize.compact()
    return DeltaTable(carried.table())


def test_another_writer_may_change_rows_in_the_same_file(carried: Carried) -> None:
    """Each change writes the file again. The audit finds the pipeline's rows in the new file."""
    table = compact_with_others(carried)
    table.update({"id": "id + 50"}, predicate="id > 900")
    table.delete("id = 952")
    assert carried.pipeline.audit().problems == []
    table.delete("id = 953 OR id = 11")
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("ROWS_GONE", 1)


def test_another_writers_change_is_a_doubt_if_the_old_file_is_gone(carried: Carried) -> None:
    """The finding names the version since which nothing can be checked. It is no loss, and a user can accept it."""
    table = compact_with_others(carried)
    (before,) = table.file_uris()
    table.update({"id": "id + 50"}, predicate="id > 900")
    Path(before).unlink()
    found = carried.pipeline.audit()
    assert {(each.code, each.version) for each in found.problems} == {("NOT_PROVED", table.version())}
    assert found.destinations["orders"].delivered == 8
    assert "Wherry cannot check since version" in found.problems[0].message


def test_a_renamed_destination_keeps_the_history_of_its_old_name(carried: Carried) -> None:
    """Rows delivered under the old name count, and lost rows are found."""
    sales = Delta(path=str(carried.table()), name="sales", was="orders")
    renamed = replace(carried.pipeline, destinations=[sales])
    found = renamed.audit()
    assert (found.problems, found.destinations["sales"].delivered) == ([], 8)
    DeltaTable(carried.table()).delete("id < 20")
    assert [(each.code, each.destination, each.number) for each in renamed.audit().problems] == [
        ("ROWS_GONE", "sales", 1)
    ]


def test_an_open_batch_that_was_not_written_is_no_problem(carried: Carried) -> None:
    """The audit lists the batch as open."""
    carried.plan(4)
    found = carried.pipeline.audit()
    assert (found.balanced, [each["number"] for each in found.open]) == (True, [4])


def test_deleted_rows_are_found(carried: Carried) -> None:
    """One statement deleted rows of two batches. Both are named, with the statement's version."""
    DeltaTable(carried.table()).delete("id in (11, 12, 13, 31)")
    found = carried.pipeline.audit()
    assert [(each.code, each.number, each.version, each.remedy) for each in found.problems] == [
        ("ROWS_GONE", 1, 4, ""),
        ("ROWS_GONE", 3, 4, ""),
    ]
    assert "version 4 (DELETE where id IN (11, 12, 13, 31)" in found.problems[0].message
    assert "(4 rows)" in found.problems[0].message
    assert "some of the 3 rows written in version 3 are missing" in found.problems[1].message


def test_a_restored_table_is_found(carried: Carried) -> None:
    """The table is restored to the version before the last two batches. A restore of the newest version removes the
    finding.
    """
    DeltaTable(carried.table()).restore(1)
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["last"], problem["version"]) == ("RESTORED", 2, 3, 4)
    DeltaTable(carried.table()).restore(3)
    assert carried.list_codes() == []


def test_a_replaced_table_is_found(carried: Carried) -> None:
    """Another table at the same place is found, even if it has the same rows."""
    shutil.rmtree(carried.table())
    append_rows(carried.table(), [11, 12, 13])
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("REPLACED", None)
    assert "was replaced after the last run" in str(problem["message"])


def test_a_missing_table_is_found(carried: Carried) -> None:
    """All its batches are one finding."""
    shutil.rmtree(carried.table())
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["destination"]) == ("TABLE_GONE", "orders")
    assert "3 batches" in str(problem["message"])


def test_a_vacuum_of_unused_files_is_no_loss(carried: Carried) -> None:
    """Small files were compacted and the old files deleted. Each batch is still whole."""
    DeltaTable(carried.table()).optimize.compact()
    DeltaTable(carried.table()).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert not locate_file(carried.table(), 1).exists()
    assert carried.list_codes() == []


def test_a_needed_file_that_a_vacuum_deleted_is_found(carried: Carried) -> None:
    """The table is restored to the version before a deletion, but a vacuum had deleted that version's file."""
    DeltaTable(carried.table()).delete("id < 20")
    file = locate_file(carried.table(), 1)
    kept = file.read_bytes()
    DeltaTable(carried.table()).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert not file.exists()
    DeltaTable(carried.table()).restore(3, ignore_missing_files=True)
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) in [("FILE_GONE", 1), ("ROWS_GONE", 1)]
    file.write_bytes(kept)


def test_a_deleted_file_is_found(carried: Carried) -> None:
    """The table's log still lists the file."""
    locate_file(carried.table(), 2).unlink()
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("FILE_GONE", 2)
    assert str(locate_file(carried.table(), 2)) in str(problem["message"])


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([21, 22, 23, 24, 25, 26, 27, 28, 29, 30], "bytes instead of"),
        ([77, 78], "the least value of column id is 77 instead of 22"),
    ],
)
def test_a_replaced_file_is_found(carried: Carried, ids: list[int], said: str) -> None:
    """The new file has another size or other values. The size and the values are both checked."""
    file = locate_file(carried.table(), 2)
    written = carried.folder / "made"
    append_rows(written, ids)
    shutil.copy(locate_file(written, 0), file)
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("FILE_CHANGED", 2)
    assert said in str(problem["message"])


def test_a_damaged_file_is_found(carried: Carried) -> None:
    """The file no longer ends with a parquet footer."""
    file = locate_file(carried.table(), 2)
    whole = file.read_bytes()
    file.write_bytes(whole[:-8] + bytes(8))
    assert "not a whole parquet file" in str(get_only(carried.pipeline.audit())["message"])


def test_a_batch_written_twice_is_found(carried: Carried) -> None:
    """Two commits have its tag. A restore that removes the second also removes the finding."""
    append_rows(carried.table(), [31, 32, 33], [Label(batch=make_batch(3), destination="orders")])
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["version"]) == ("TWICE", 3, 4)
    DeltaTable(carried.table()).restore(3)
    assert carried.list_codes() == []


def test_an_edited_commit_is_found(carried: Carried) -> None:
    """The commit's count of rows differs from the rows in its files."""
    log = carried.table() / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text().replace('"num_added_rows":3', '"num_added_rows":4'))
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("MISCOUNT", 1)
    assert "counts 4 rows, but its files have 3" in str(problem["message"])


def test_a_commit_of_several_lanes_proves_each_batch(carried: Carried) -> None:
    """Their sum proves each batch, and a wrong sum is found."""
    for lane in ("1", "2"):
        carried.plan(1, lane=lane)
    append_several(carried.table(), ("1", 1), ("2", 1))
    for lane in ("1", "2"):
        carried.settle(1, lane=lane)
    found = carried.pipeline.audit()
    assert (found.balanced, found.destinations["orders"].delivered) == (True, 14)
    log = carried.table() / "_delta_log" / f"{4:020}.json"
    log.write_text(log.read_text().replace('"num_added_rows":6', '"num_added_rows":5'))
    assert {code for code, _, _ in carried.list_codes()} == {"MISCOUNT"}


def test_a_missing_version_in_the_log_is_found(carried: Carried) -> None:
    """A version between two others is missing."""
    (carried.table() / "_delta_log" / f"{2:020}.json").unlink()
    assert ("LOG_BROKEN", "orders", None) in carried.list_codes()


def test_a_log_that_cannot_be_read_is_found(carried: Carried) -> None:
    """A version's file was truncated. The finding names it in one line."""
    log = carried.table() / "_delta_log" / f"{2:020}.json"
    log.write_text(log.read_text()[:30])
    (found,) = [each for each in carried.pipeline.audit().problems if each.code == "LOG_BROKEN"]
    assert found.destination == "orders"
    assert "cannot be read (Version 2 in the log of the Delta table" in found.message
    assert "\n" not in found.message


def test_a_cleaned_history_proves_from_its_oldest_batch(carried: Carried) -> None:
    """Earlier batches are neither proved nor doubted. Later batches are checked."""
    DeltaTable(carried.table()).create_checkpoint()
    for version in (0, 1):
        (carried.table() / "_delta_log" / f"{version:020}.json").unlink()
    found = carried.pipeline.audit()
    assert (found.balanced, found.destinations["orders"].proved_from) == (True, {"0": 2})
    assert found.destinations["orders"].delivered == 8
    carried.plan(4)
    carried.settle(4)
    assert carried.list_codes() == [("NOT_DELIVERED", "orders", 4)]


def test_a_missing_file_from_before_the_history_is_found(carried: Carried) -> None:
    """The finding names no batch, since the history no longer shows which batch wrote the file."""
    first = locate_file(carried.table(), 1)
    DeltaTable(carried.table()).create_checkpoint()
    for version in (0, 1):
        (carried.table() / "_delta_log" / f"{version:020}.json").unlink()
    first.unlink()
    assert carried.list_codes() == [("FILE_GONE", "orders", None)]


def test_missing_refused_rows_are_found(carried: Carried) -> None:
    """The DLQ lost rows that were neither replayed nor discarded."""
    DeltaTable(carried.dlq).delete("number = 2")
    problem = get_only(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["destination"]) == ("DLQ_MISSING", 2, "dlq")
    assert "1 of 1 refused rows are missing" in str(problem["message"])


def test_a_missing_dlq_is_found(carried: Carried) -> None:
    """All batches are one finding."""
    shutil.rmtree(carried.dlq)
    assert carried.list_codes() == [("DLQ_GONE", "dlq", None)]


def test_refused_rows_without_a_batch_are_found(carried: Carried) -> None:
    """The rows' batch belongs to this pipeline, but the ledger does not know it. Rows of another pipeline are no
    finding.
    """
    append_letters(carried.dlq, make_letters(1, plan="nobody", number=7))
    append_letters(carried.dlq, make_letters(1, plan="theirs", number=7, pipeline="invoices"))
    assert carried.list_codes() == [("DLQ_STRAY", "dlq", 7)]


def test_decided_refused_rows_may_be_gone(carried: Carried) -> None:
    """The rows were discarded, and `dlq.retain` has passed."""
    carried.pipeline.refused.discard(reason="known")
    DeltaTable(carried.dlq).delete("number = 2")
    assert carried.list_codes() == []


def test_a_lost_ledger_is_found(carried: Carried) -> None:
    """The table has batches of this pipeline that no ledger knows."""
    shutil.rmtree(carried.folder / "state")
    assert carried.list_codes() == [("NOT_COMMITTED", "orders", 1)]
    assert get_only(carried.pipeline.audit())["last"] == 3


def test_rows_of_other_writers_are_ignored(carried: Carried) -> None:
    """The table has rows without a tag, and rows of another pipeline."""
    append_rows(carried.table(), [7, 8])
    append_rows(carried.table(), [9], [Label(batch=replace(make_batch(5), pipeline="invoices"), destination="orders")])
    assert carried.list_codes() == []
