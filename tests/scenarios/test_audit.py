"""Pipelines are audited, damaged by typical changes to their tables, and repaired."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from destinations.delta import table as delta_table
from runners.model.errors import Owned, Refusal
from runners.state.process_locks import StateLock
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark

SEVERAL = ORDERS.replace(
    "  - delta: {path: tables/orders}\n",
    "  - delta: {path: tables/orders, partition_by: [email]}\n"
    "  - delta: {path: tables/latest, mode: merge, keys: [id]}\n"
    "  - files: {path: out}\n",
)


def land_orders(place: Place, *numbers: int) -> None:
    """Write a file of two orders for each number. In a file whose number is a multiple of three, the second amount is
    refused."""
    for number in numbers:
        amount = "x" if number % 3 == 0 else "1"
        place.land(f"{number}.json", [make_order(number * 10), make_order(number * 10 + 1, amount=amount)])


def list_codes(place: Place) -> list[tuple[str, str | None, int | None]]:
    """Return what an audit finds: the code, the destination and the first batch."""
    return [(each.code, each.destination, each.number) for each in place.load().audit().problems]


def run_sql(place: Place, statement: str) -> None:
    """Run a statement on the table."""
    place.spark.sql(statement.replace("ORDERS", f"delta.`{place.folder}/tables/orders`")).collect()


def cut_ledger(ledger: Path, kind: str) -> None:
    """Remove the newest versions of the ledger as long as they add an entry of this kind, as if the process had died
    before."""
    from deltalake import DeltaTable

    version = DeltaTable(ledger).version()
    while kind in _list_kinds(ledger, version):
        (ledger / "_delta_log" / f"{version:020}.json").unlink()
        version -= 1


def _list_kinds(ledger: Path, version: int) -> Sequence[str]:
    """Return the kinds of the entries that a version added. A lone `release` counts as `settle` too."""
    from pyarrow import parquet

    lines = (ledger / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    added = [action["add"]["path"] for action in map(json.loads, lines) if "add" in action]
    kinds = [kind for path in added for kind in parquet.read_table(ledger / path)["kind"].to_pylist()]
    return ["release", "settle"] if kinds == ["release"] else kinds


def test_each_destination_proves_its_batches_in_its_own_way(place: Place) -> None:
    """Appended, merged and written rows and the DLQ are proved, also after `OPTIMIZE`. A deleted file or row is
    found."""
    land_orders(place, 1, 3)
    place.load(SEVERAL).run()
    run_sql(place, "OPTIMIZE ORDERS")
    found = place.load().audit()
    assert (found.problems, found.read, found.nacked) == ([], 4, 1)
    assert {name: each.delivered for name, each in found.destinations.items()} == {"orders": 3, "latest": 3, "out": 3}
    assert [each.proved_from for each in found.destinations.values()] == [{"0": 1}] * 3
    for file in (place.folder / "out").glob("_lane=0/_batch=00000001*/*.parquet"):
        file.unlink()
    run_sql(place, "DELETE FROM ORDERS WHERE id = 30")
    assert list_codes(place) == [("FILE_GONE", "out", 1), ("ROWS_GONE", "orders", 2)]


@pytest.mark.promise("X1")
def test_a_restored_table_gets_its_batches_back(place: Place) -> None:
    """A repair delivers each lost batch once, under the same tag. A second audit and a second repair find nothing to
    do."""
    land_orders(place, 1, 2, 4)
    place.load(ORDERS).run()
    before = sorted(map(str, place.rows("tables/orders")))
    run_sql(place, "RESTORE TABLE ORDERS TO VERSION AS OF 1")
    assert (list_codes(place), place.ids("tables/orders")) == ([("RESTORED", "orders", 2)], [10, 11])
    done = place.load().repair(reason="it was restored by mistake")
    assert (list(done.failed), done.audit.balanced, len(done.done)) == ([], True, 2)
    assert sorted(map(str, place.rows("tables/orders"))) == before
    assert list(place.load().repair(reason="once more").done) == []
    land_orders(place, 5)
    place.load().run()
    assert (list_codes(place), place.ids("tables/orders")) == ([], [10, 11, 20, 21, 40, 41, 50, 51])


def find_statement(place: Place) -> str:
    """Return the SQL statement that the only finding prints, as a user would copy it."""
    (problem,) = place.load().audit().problems
    (line,) = [line for line in problem.repair.splitlines() if "in Spark:  " in line]
    return line.partition("in Spark:  ")[2]


@pytest.mark.connect
def test_the_statement_of_a_finding_undoes_the_change(place: Place) -> None:
    """If there is no later commit, the statement restores the table. The audit then finds nothing."""
    land_orders(place, 1, 2)
    place.load(ORDERS).run()
    before = sorted(map(str, place.rows("tables/orders")))
    run_sql(place, "UPDATE ORDERS SET amount = 9 WHERE id = 10")
    assert list_codes(place) == [("ROWS_GONE", "orders", 1)]
    place.spark.sql(find_statement(place)).collect()
    assert (list_codes(place), sorted(map(str, place.rows("tables/orders")))) == ([], before)


def test_rows_are_inserted_if_a_restore_would_remove_rows_of_others(place: Place) -> None:
    """The inserted rows have no label of their batch, so the user must accept the finding."""
    land_orders(place, 1)
    place.load(ORDERS).run()
    run_sql(place, "DELETE FROM ORDERS WHERE id = 10")
    run_sql(place, "INSERT INTO ORDERS (id, email, amount) VALUES (901, 'x', 1)")
    statement = find_statement(place)
    assert statement.startswith("INSERT INTO delta.`")
    place.spark.sql(statement).collect()
    assert place.ids("tables/orders") == [10, 11, 901]
    (problem,) = place.load().audit().problems
    place.load().repair(reason="inserted again", accept=[problem.id])
    assert list_codes(place) == []


def test_the_error_names_a_statement_that_restores_a_dropped_column(place: Place) -> None:
    """The column comes back with its values, and the next run succeeds."""
    land_orders(place, 1)
    place.load(ORDERS).run()
    before = sorted(map(str, place.rows("tables/orders")))
    versions = "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    run_sql(place, f"ALTER TABLE ORDERS SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', {versions})")
    run_sql(place, "ALTER TABLE ORDERS DROP COLUMN amount")
    land_orders(place, 2)
    failed = place.load().run(check=False)
    assert failed.error is not None
    assert failed.error.code == "MISFIT"
    (line,) = [line for line in failed.error.message.splitlines() if "to get the values back, " in line]
    assert "DROP COLUMNS" in line
    place.spark.sql(line.partition("to get the values back, ")[2]).collect()
    assert sorted(map(str, place.rows("tables/orders"))) == before
    assert place.load().run().status == "succeeded"
    assert (list_codes(place), place.ids("tables/orders")) == ([], [10, 11, 20, 21])


def test_deleted_rows_of_the_dlq_come_back(place: Place) -> None:
    """A repair restores the missing rows, except those that were discarded or replayed before."""
    place.land("3.json", [make_order(1, amount="x"), make_order(2, amount="y"), make_order(3, amount="z")])
    place.load(ORDERS).run()
    before = place.refused()
    from runners.running.choice import Choice

    place.load().refused.discard(Choice(ids=(before[2]["id"],)), reason="known")
    place.spark.sql(f"DELETE FROM delta.`{place.folder}/.wherry/orders/dlq` WHERE position > 1").collect()
    assert list_codes(place) == [("DLQ_MISSING", "dlq", 1)]
    done = place.load().repair(reason="somebody tidied up")
    assert (list(done.failed), done.audit.balanced) == ([], True)
    assert place.refused() == before[:2]


def test_a_repair_finishes_an_open_batch_and_starts_no_other(place: Place) -> None:
    """The batch had landed, but the ledger ends before the entry that settles it."""
    land_orders(place, 1)
    place.load(ORDERS).run()
    cut_ledger(place.folder / ".wherry/orders/ledger", "settle")
    land_orders(place, 2)
    assert list_codes(place) == [("NOT_SETTLED", "orders", 1)]
    done = place.load().repair(reason="the machine died")
    assert (list(done.failed), done.audit.balanced, done.audit.read) == ([], True, 2)
    assert place.ids("tables/orders") == [10, 11]
    assert place.load().status()["open"] == []
    place.load().run()
    assert place.ids("tables/orders") == [10, 11, 20, 21]


def test_a_repair_needs_a_reason_and_an_idle_pipeline(place: Place) -> None:
    """A finding to accept must exist. An accepted finding stays accepted."""
    land_orders(place, 1, 2)
    pipeline = place.load(ORDERS)
    pipeline.run()
    run_sql(place, "DELETE FROM ORDERS WHERE id = 10")
    (problem,) = pipeline.audit().problems
    with pytest.raises(Refusal, match="needs a reason"):
        pipeline.repair(reason=" ")
    with pytest.raises(Refusal, match="has no finding NOTHING"):
        pipeline.repair(reason="x", accept=["NOTHING"])
    lock = StateLock(place.folder / ".wherry/orders/lock")
    assert lock.acquire()
    with pytest.raises(Owned):
        pipeline.repair(reason="x", accept=[problem.id])
    lock.release()
    assert pipeline.repair(reason="order 10 asked to be forgotten", accept=[problem.id]).audit.balanced
    assert [each.code for each in pipeline.audit().accepted] == ["ROWS_GONE"]
    run_sql(place, "DELETE FROM ORDERS WHERE id = 20")
    assert list_codes(place) == [("ROWS_GONE", "orders", 2)]


def test_a_table_that_only_spark_can_read_is_audited_and_repaired(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherry reads the history of the table through Spark, and puts rows back through Spark."""
    monkeypatch.setattr(delta_table, "_find_local_log", lambda *_: None)
    schema = f"audited_{place.folder.name.replace('-', '_')}"
    place.spark.sql(f"CREATE SCHEMA {schema} LOCATION '{place.folder}/warehouse'")
    land_orders(place, 1, 3)
    text = ORDERS.replace("path: tables/orders", f"table: {schema}.orders")
    place.load(text).run()
    found = place.load().audit()
    assert (found.problems, found.destinations["orders"].delivered, found.nacked) == ([], 3, 1)
    place.spark.sql(f"DELETE FROM {schema}.orders WHERE id = 30").collect()
    (problem,) = place.load().audit().problems
    assert (problem.code, problem.number, problem.remedy) == ("ROWS_GONE", 2, "put_back")
    assert place.load().repair(reason="a mistake").audit.balanced
    place.spark.sql(f"DROP TABLE {schema}.orders")
    assert list_codes(place) == [("TABLE_GONE", "orders", None)]
    shutil.rmtree(place.folder / "warehouse", ignore_errors=True)
    place.spark.sql(f"DROP SCHEMA {schema} CASCADE")
