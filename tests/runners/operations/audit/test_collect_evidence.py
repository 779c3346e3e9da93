"""Each kind of break is made by hand, the ledger untouched, and an audit finds it; without Spark."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException

from destinations.delta import Delta
from destinations.destination import Label
from destinations.dlq import FALLBACK, Dlq
from destinations.files import Files
from origins.store_access import StoreError
from runners.model.spec import PipelineSpec
from runners.operations.audit_finding import Audit
from runners.state import location
from tests.runners.operations.audit.evidence import Carried, append, batch, other, several
from tests.runners.running.letterbox import letters, post


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three batches, of which the second refused a row."""
    made = Carried(tmp_path_factory.mktemp("whole"))
    made.opened()
    made.carry(1)
    made.carry(2, nacked=1)
    made.carry(3)
    return made.folder


@pytest.fixture
def carried(whole: Path, tmp_path: Path) -> Carried:
    """The same, to be broken."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return Carried(tmp_path)


def the(found: Audit) -> dict[str, object]:
    """The only problem, as a program gets it."""
    (problem,) = found.json()["problems"]
    return dict(problem)


def file_of(table: Path, version: int) -> Path:
    """The file that a version added."""
    actions = (table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    (added,) = [action["add"]["path"] for action in map(json.loads, actions) if "add" in action]
    return table / str(added)


def test_what_is_whole_balances(carried: Carried) -> None:
    """The equation holds by the table's own figures, and is proved from the first batch on."""
    found = carried.pipeline.audit().json()
    assert (found["balanced"], found["read"], found["filtered"], found["nacked"]) == (True, 9, 0, 1)
    assert found["destinations"]["orders"]["delivered"] == 8
    assert found["destinations"]["orders"]["proved_from"] == {"0": 1}
    assert found["lanes"]["0"]["batches"] == 3
    assert found["dlq"] == {"refused": 1, "decided": 0, "rows": 1, "fallback": 0}


def test_it_balances_when_the_entries_were_put_together(carried: Carried) -> None:
    """What is in the history counts like what is in the ledger."""
    carried.compacted()
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
    """An error of Spark does not show the values of rows there."""

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


def test_committed_but_not_delivered(carried: Carried) -> None:
    """The ledger has a batch that never reached the table."""
    carried.plan(4)
    carried.settle(4)
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["lane"], problem["number"], problem["destination"]) == (
        "NOT_DELIVERED",
        "0",
        4,
        "orders",
    )
    assert "3 rows as delivered" in str(problem["message"])
    assert "wherry backfill FILE --from 4 --to 4 --only orders --again" in str(problem["repair"])
    assert carried.pipeline.audit().destinations["orders"].delivered == 8


def test_delivered_but_not_committed(carried: Carried) -> None:
    """The table has a batch of ours of which the ledger knows nothing."""
    append(carried.table(), [1, 2], [Label(batch=batch(9), destination="orders")])
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["version"]) == ("NOT_COMMITTED", 9, 4)
    assert "2 rows of it are here (version 4)" in str(problem["message"])


def test_a_batch_that_landed_before_its_run_died_is_finished_by_the_next(carried: Carried) -> None:
    """It is open, and the table has it; `repair` finishes it as well."""
    carried.plan(4)
    carried.land(4)
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["safe"]) == ("NOT_SETTLED", 4, True)


def beside_ours(carried: Carried) -> DeltaTable:
    """The table, in which a stranger's three rows stand in one file with all of ours."""
    append(carried.table(), [901, 902, 903])
    DeltaTable(carried.table()).optimize.compact()
    return DeltaTable(carried.table())


def test_a_stranger_who_changes_his_own_rows_beside_ours_takes_nothing_away(carried: Carried) -> None:
    """The file is written anew each time, and the rows of ours are found in it."""
    table = beside_ours(carried)
    table.update({"id": "id + 50"}, predicate="id > 900")
    table.delete("id = 952")
    assert carried.pipeline.audit().problems == []
    table.delete("id = 953 OR id = 11")
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("ROWS_GONE", 1)


def test_where_the_files_are_gone_a_strangers_change_leaves_a_doubt(carried: Carried) -> None:
    """It says since which version, and is no loss; who has looked accepts it."""
    table = beside_ours(carried)
    (before,) = table.file_uris()
    table.update({"id": "id + 50"}, predicate="id > 900")
    Path(before).unlink()
    found = carried.pipeline.audit()
    assert {(each.code, each.version) for each in found.problems} == {("NOT_PROVED", table.version())}
    assert found.destinations["orders"].delivered == 8
    assert "Wherry cannot check since version" in found.problems[0].message


def test_a_renamed_destination_is_asked_for_what_it_had_under_its_old_name(carried: Carried) -> None:
    """Its history carries over: what was delivered counts, and what is gone is found."""
    sales = Delta(path=str(carried.table()), name="sales", was="orders")
    renamed = replace(carried.pipeline, destinations=[sales])
    found = renamed.audit()
    assert (found.problems, found.destinations["sales"].delivered) == ([], 8)
    DeltaTable(carried.table()).delete("id < 20")
    assert [(each.code, each.destination, each.number) for each in renamed.audit().problems] == [
        ("ROWS_GONE", "sales", 1)
    ]


def test_a_batch_that_is_open_and_has_not_landed_is_no_problem(carried: Carried) -> None:
    """It is said to be open."""
    carried.plan(4)
    found = carried.pipeline.audit()
    assert (found.balanced, [each["number"] for each in found.open]) == (True, [4])


def test_an_owed_batch_is_a_problem_until_its_destination_has_it(tmp_path: Path) -> None:
    """Though its offset is committed."""
    two = Carried(tmp_path, names=("orders", "copy"))
    two.carry(1, to=["orders"], owed=["copy"])
    found = two.pipeline.audit()
    assert (the(found)["code"], the(found)["destination"], the(found)["safe"]) == ("OWED", "copy", True)
    assert (found.destinations["copy"].owed, found.destinations["copy"].delivered) == (1, 0)
    two.land(1, to=["copy"])
    two.settle(1)
    assert two.pipeline.audit().balanced
    two.compacted()
    assert two.pipeline.audit().balanced


def test_rows_that_were_deleted(carried: Carried) -> None:
    """Of two batches by one statement: both are named, with the version that did it."""
    DeltaTable(carried.table()).delete("id in (11, 12, 13, 31)")
    found = carried.pipeline.audit()
    assert [(each.code, each.number, each.version, each.remedy) for each in found.problems] == [
        ("ROWS_GONE", 1, 4, ""),
        ("ROWS_GONE", 3, 4, ""),
    ]
    assert "version 4 (DELETE where id IN (11, 12, 13, 31)" in found.problems[0].message
    assert "(4 rows)" in found.problems[0].message
    assert "some of the 3 rows written in version 3 are missing" in found.problems[1].message


def test_rows_that_were_changed_in_place(carried: Carried) -> None:
    """An UPDATE is nobody's delivery."""
    DeltaTable(carried.table()).update({"id": "99"}, predicate="id = 22")
    assert [(each.code, each.number, each.version) for each in carried.pipeline.audit().problems] == [
        ("ROWS_GONE", 2, 4)
    ]


def test_a_table_that_was_overwritten(carried: Carried) -> None:
    """By somebody else: all batches before it are gone, and are one finding."""
    write_deltalake(carried.table(), pyarrow.table({"id": pyarrow.array([1], pyarrow.int64())}), mode="overwrite")
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["last"], problem["version"]) == ("ROWS_GONE", 1, 3, 4)


def test_a_table_that_was_restored(carried: Carried) -> None:
    """To the version before the last two batches; restored once more, all is well again."""
    DeltaTable(carried.table()).restore(1)
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["last"], problem["version"]) == ("RESTORED", 2, 3, 4)
    DeltaTable(carried.table()).restore(3)
    assert carried.codes() == []


def test_a_table_that_was_replaced(carried: Carried) -> None:
    """By another one at the same place, even with the same rows."""
    shutil.rmtree(carried.table())
    append(carried.table(), [11, 12, 13])
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("REPLACED", None)
    assert "was replaced after the last run" in str(problem["message"])


def test_a_table_that_is_gone(carried: Carried) -> None:
    """One finding for all its batches."""
    shutil.rmtree(carried.table())
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["destination"]) == ("TABLE_GONE", "orders")
    assert "3 batches" in str(problem["message"])


def test_a_vacuum_of_what_is_not_needed_is_no_loss(carried: Carried) -> None:
    """Small files were put together, the old ones are gone, and each batch is still whole."""
    DeltaTable(carried.table()).optimize.compact()
    DeltaTable(carried.table()).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert not file_of(carried.table(), 1).exists()
    assert carried.codes() == []


def test_a_file_that_a_vacuum_took_and_the_table_needs(carried: Carried) -> None:
    """Restored to before a deletion whose file was swept already: the table names what is gone."""
    DeltaTable(carried.table()).delete("id < 20")
    file = file_of(carried.table(), 1)
    kept = file.read_bytes()
    DeltaTable(carried.table()).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert not file.exists()
    DeltaTable(carried.table()).restore(3, ignore_missing_files=True)
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) in [("FILE_GONE", 1), ("ROWS_GONE", 1)]
    file.write_bytes(kept)


def test_a_file_that_was_taken_away(carried: Carried) -> None:
    """The table names it, and it is gone."""
    file_of(carried.table(), 2).unlink()
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("FILE_GONE", 2)
    assert str(file_of(carried.table(), 2)) in str(problem["message"])


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([21, 22, 23, 24, 25, 26, 27, 28, 29, 30], "bytes instead of"),
        ([77, 78], "the least value of column id is 77 instead of 22"),
    ],
)
def test_a_file_that_was_replaced(carried: Carried, ids: list[int], said: str) -> None:
    """By another one, though it has as many bytes and as many rows."""
    file = file_of(carried.table(), 2)
    written = carried.folder / "made"
    append(written, ids)
    shutil.copy(file_of(written, 0), file)
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("FILE_CHANGED", 2)
    assert said in str(problem["message"])


def test_a_file_that_was_cut_off(carried: Carried) -> None:
    """It is no whole file any more."""
    file = file_of(carried.table(), 2)
    whole = file.read_bytes()
    file.write_bytes(whole[:-8] + bytes(8))
    assert "not a whole parquet file" in str(the(carried.pipeline.audit())["message"])


def test_a_batch_that_is_there_twice(carried: Carried) -> None:
    """Two commits carry its tag, and neither was taken back."""
    append(carried.table(), [31, 32, 33], [Label(batch=batch(3), destination="orders")])
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["version"]) == ("TWICE", 3, 4)
    DeltaTable(carried.table()).restore(3)
    assert carried.codes() == []


def test_a_commit_that_was_edited(carried: Carried) -> None:
    """Its own figure is not what its files have."""
    log = carried.table() / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text().replace('"num_added_rows":3', '"num_added_rows":4'))
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"]) == ("MISCOUNT", 1)
    assert "counts 4 rows, but its files have 3" in str(problem["message"])


def test_a_commit_with_other_rows_than_were_settled(carried: Carried) -> None:
    """The ledger says three, the commit has two."""
    carried.plan(4)
    append(carried.table(), [41, 42], [Label(batch=batch(4), destination="orders")])
    carried.settle(4)
    assert "counts 3 rows as delivered, but its commit has 2" in str(the(carried.pipeline.audit())["message"])


def test_a_commit_that_brought_several_lanes(carried: Carried) -> None:
    """Each batch is proved by their sum, and a sum that is another one is found."""
    for lane in ("1", "2"):
        carried.plan(1, lane=lane)
    several(carried.table(), ("1", 1), ("2", 1))
    for lane in ("1", "2"):
        carried.settle(1, lane=lane)
    found = carried.pipeline.audit()
    assert (found.balanced, found.destinations["orders"].delivered) == (True, 14)
    log = carried.table() / "_delta_log" / f"{4:020}.json"
    log.write_text(log.read_text().replace('"num_added_rows":6', '"num_added_rows":5'))
    assert {code for code, _, _ in carried.codes()} == {"MISCOUNT"}


def test_a_log_with_a_hole(carried: Carried) -> None:
    """A version in the middle is missing."""
    (carried.table() / "_delta_log" / f"{2:020}.json").unlink()
    assert ("LOG_BROKEN", "orders", None) in carried.codes()


def test_a_log_that_cannot_be_read(carried: Carried) -> None:
    """A version was cut off."""
    log = carried.table() / "_delta_log" / f"{2:020}.json"
    log.write_text(log.read_text()[:30])
    assert ("LOG_BROKEN", "orders", None) in carried.codes()


def test_a_history_that_was_cleaned_proves_from_the_oldest_batch_on_of_which_it_tells(carried: Carried) -> None:
    """What came before is neither proved nor doubted; what comes after is."""
    DeltaTable(carried.table()).create_checkpoint()
    for version in (0, 1):
        (carried.table() / "_delta_log" / f"{version:020}.json").unlink()
    found = carried.pipeline.audit()
    assert (found.balanced, found.destinations["orders"].proved_from) == (True, {"0": 2})
    assert found.destinations["orders"].delivered == 8
    carried.plan(4)
    carried.settle(4)
    assert carried.codes() == [("NOT_DELIVERED", "orders", 4)]


def test_a_file_from_before_the_history_that_is_gone(carried: Carried) -> None:
    """Whose it was cannot be told any more; that it is gone can."""
    first = file_of(carried.table(), 1)
    DeltaTable(carried.table()).create_checkpoint()
    for version in (0, 1):
        (carried.table() / "_delta_log" / f"{version:020}.json").unlink()
    first.unlink()
    assert carried.codes() == [("FILE_GONE", "orders", None)]


def test_rows_deleted_from_before_the_history(carried: Carried) -> None:
    """Whose they were cannot be told any more; that they are gone can."""
    DeltaTable(carried.table()).create_checkpoint()
    for version in (0, 1):
        (carried.table() / "_delta_log" / f"{version:020}.json").unlink()
    DeltaTable(carried.table()).delete("id < 20")
    assert carried.codes() == [("ROWS_GONE", "orders", None)]


def test_a_gap_between_two_spans(carried: Carried) -> None:
    """A batch begins behind where the one before it ended."""
    carried.carry(5, start=40, end=50)
    assert carried.codes() == [("GAP", None, 5)]


def test_spans_that_overlap(carried: Carried) -> None:
    """A batch begins where an earlier one had begun."""
    carried.carry(4, start=10, end=40)
    assert carried.codes() == [("OVERLAP", None, 4)]


def test_an_offset_that_was_set_is_no_gap(carried: Carried) -> None:
    """Somebody set it, and said why; also when the entries were put together."""
    from runners.model.entry import Entry

    carried.journal.record(Entry(kind="set", body={"lanes": {"0": {"offset": 40}}, "reason": "skipped"}))
    carried.carry(4, start=40, end=50)
    assert carried.codes() == []
    carried.compacted()
    assert carried.codes() == []


def test_what_was_rewound_and_carried_again_is_whole(carried: Carried) -> None:
    """The batches that do not count any more are neither counted nor missed, though the ledger still knows them."""
    from runners.model.entry import Entry

    body = {"lanes": {"0": {"offset": 10}}, "forgotten": [["0", 2, 3]], "reason": "again"}
    carried.journal.record(Entry(kind="set", body=body))
    carried.carry(4, start=10, end=30)
    found = carried.pipeline.audit()
    assert (found.balanced, found.read, found.destinations["orders"].delivered) == (True, 6, 6)
    DeltaTable(carried.table()).delete("id < 40 and id > 20")
    assert carried.codes() == []


def test_refused_rows_that_are_missing(carried: Carried) -> None:
    """The queue lost them, and nobody had decided anything."""
    DeltaTable(carried.dlq).delete("number = 2")
    problem = the(carried.pipeline.audit())
    assert (problem["code"], problem["number"], problem["destination"]) == ("DLQ_MISSING", 2, "dlq")
    assert "1 of 1 refused rows are missing" in str(problem["message"])


def test_a_queue_that_is_gone(carried: Carried) -> None:
    """One finding for all batches."""
    shutil.rmtree(carried.dlq)
    assert carried.codes() == [("DLQ_GONE", "dlq", None)]


def test_refused_rows_without_their_batch(carried: Carried) -> None:
    """A batch of ours of which the ledger knows nothing; another pipeline's are its own."""
    post(carried.dlq, letters(1, plan="nobody", number=7))
    post(carried.dlq, letters(1, plan="theirs", number=7, pipeline="invoices"))
    assert carried.codes() == [("DLQ_STRAY", "dlq", 7)]


def test_refused_rows_that_are_there_twice(carried: Carried) -> None:
    """The same id twice."""
    post(carried.dlq, letters(1, plan="0-p2", number=2))
    assert carried.codes() == [("DLQ_TWICE", "dlq", 2)]


def test_more_refused_rows_than_were_refused(carried: Carried) -> None:
    """Somebody put one there."""
    post(carried.dlq, letters(3, plan="0-p3", number=3))
    assert carried.codes() == [("DLQ_STRAY", "dlq", 3)]


def test_refused_rows_of_an_open_batch_are_no_strays(carried: Carried) -> None:
    """They come before the batch is settled."""
    carried.plan(4)
    post(carried.dlq, letters(1, plan="0-p4", number=4))
    assert carried.codes() == []


def test_refused_rows_on_which_somebody_decided_may_be_gone(carried: Carried) -> None:
    """They were discarded, and `dlq.retain` was over."""
    carried.pipeline.discard_dead_letters(reason="known")
    DeltaTable(carried.dlq).delete("number = 2")
    assert carried.codes() == []


def test_two_plans_under_one_number(carried: Carried) -> None:
    """As from two ledgers that were put together."""
    carried.carry(3, plan=other(batch(3)).plan, start=30, end=30)
    assert ("TWICE", None, 3) in carried.codes()


def test_a_lost_ledger(carried: Carried) -> None:
    """What the table has of this pipeline is known to nobody any more."""
    shutil.rmtree(carried.folder / "state")
    assert carried.codes() == [("NOT_COMMITTED", "orders", 1)]
    assert the(carried.pipeline.audit())["last"] == 3


def test_a_batch_that_was_carried_again_by_a_backfill_is_whole(carried: Carried) -> None:
    """The same span reached the same table later."""
    DeltaTable(carried.table()).delete("id < 20")
    assert carried.codes() == [("ROWS_GONE", "orders", 1)]
    carried.carry(1, lane="backfill-1/0")
    assert carried.codes() == []


def test_what_others_write_is_none_of_our_business(carried: Carried) -> None:
    """Rows without a tag, and those of another pipeline."""
    append(carried.table(), [7, 8])
    append(carried.table(), [9], [Label(batch=replace(batch(5), pipeline="invoices"), destination="orders")])
    assert carried.codes() == []
