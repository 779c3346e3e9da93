"""The ledger in a catalog keeps its contract, on classic Spark and on Spark Connect."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from runners.model.entry import FORMAT, Entry, Settled
from runners.model.planned_batch import SettledCounts
from runners.spark.own_session import make_own_session
from runners.state import spark_ledger
from runners.state.ledger import ENTRIES, Ledger, LedgerError
from runners.state.spark_ledger import CatalogTable, SparkLedger, quote_table
from tests.runners.state.ledger.conformance import NOWHERE, LedgerConformance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """Return the name of a table that does not exist yet."""
    name = f"default.l{uuid.uuid4().hex}_ledger"
    yield name
    for each in (name, f"{name}_history", f"{name}_bodies"):
        spark.sql(f"DROP TABLE IF EXISTS {each}")


@pytest.mark.promise("CN-04", "CN-06")
@pytest.mark.long
class TestSparkLedger(LedgerConformance):
    """Each handle has a separate session."""

    @pytest.fixture(autouse=True)
    def _place(self, spark_server: SparkSession, table: str) -> None:
        self.server, self.table = spark_server, table

    def ledger(self) -> Ledger:
        return SparkLedger(make_own_session(self.server), self.table)


def make_entries(*ids: str) -> list[Entry]:
    return [Entry(kind="plan", id=name) for name in ids]


def list_ids(ledger: Ledger) -> list[str]:
    return [entry.id for entry in ledger.read()]


def make_settled(plan: str, number: int) -> Settled:
    return Settled(lane="0", number=number, plan=plan, run="r", at="", span=NOWHERE, counts=SettledCounts())


def test_a_commit_that_landed_and_then_raised_counts_as_landed(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is lost after the commit is not mistaken for a failed commit."""
    commit, raised = CatalogTable.commit, []

    def lands_and_raises(self: CatalogTable, *args: object, **options: object) -> None:
        commit(self, *args, **options)  # type: ignore[arg-type]
        raised.append(args)
        raise LedgerError("the connection was lost")

    monkeypatch.setattr(CatalogTable, "commit", lands_and_raises)
    ledger = SparkLedger(spark, table)
    ledger.append(make_entries("a"), after=0)
    assert list_ids(ledger) == ["a"]
    assert len(raised) == 1


def test_a_crash_between_history_and_snapshot_is_repaired(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries are still stored. The next compaction does not add the batches to the history again."""
    commit = CatalogTable.commit

    def dies_before_the_snapshot(self: CatalogTable, *args: object, replaces: bool = False) -> None:
        if replaces:
            raise SystemExit
        commit(self, *args)  # type: ignore[arg-type]

    ledger = SparkLedger(spark, table)
    ledger.append(make_entries("a"), after=0)
    with monkeypatch.context() as dying:
        dying.setattr(CatalogTable, "commit", dies_before_the_snapshot)
        with pytest.raises(SystemExit):
            ledger.compact(Entry(kind="snapshot"), [make_settled("p", 1)], after=1)

    later = SparkLedger(spark, table)
    assert list_ids(later) == ["a"]
    later.compact(Entry(kind="snapshot"), [make_settled("p", 1), make_settled("q", 2)], after=1)
    assert sorted(each.plan for each in later.history()) == ["p", "q"]


def test_another_table_in_place_of_the_ledger_is_refused(spark: SparkSession, table: str) -> None:
    """The error names the found columns."""
    spark.sql(f"CREATE TABLE {table} (seq BIGINT, amount STRING) USING delta")
    with pytest.raises(LedgerError, match=r"not a ledger .* found seq long, amount string"):
        SparkLedger(spark, table).read()


def test_a_newer_ledger_with_other_columns_is_recognized(spark: SparkSession, table: str) -> None:
    """It is not mistaken for another table. The error names the format that is needed."""
    spark.sql(f"CREATE TABLE {table} (seq BIGINT, format INT, shiny STRING) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1, {FORMAT + 1}, 'new')")
    with pytest.raises(LedgerError, match=f"has entries of format {FORMAT + 1}"):
        SparkLedger(spark, table).read()


def test_a_missing_schema_is_reported_plainly(spark: SparkSession) -> None:
    """The message has one line and no stack trace."""
    with pytest.raises(LedgerError, match=r"`nowhere`\.`x_ledger` cannot be written") as caught:
        SparkLedger(spark, "nowhere.x_ledger").append(make_entries("a"), after=0)
    assert "\n" not in caught.value.message


def test_files_are_kept_for_a_day(spark: SparkSession, table: str) -> None:
    """This holds for every vacuum of the table. Commits are serializable."""
    SparkLedger(spark, table).append(make_entries("a"), after=0)
    found = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    assert {key: found[key] for key in spark_ledger.PROPERTIES} == spark_ledger.PROPERTIES
    assert found["delta.deletedFileRetentionDuration"] == "interval 1 days"
    assert found["delta.isolationLevel"] == "Serializable"


def test_a_vacuum_removes_what_is_older_than_a_day(spark: SparkSession, table: str) -> None:
    """A younger file may belong to a commit that is about to land."""
    entries = CatalogTable(spark, quote_table(table), ENTRIES)
    SparkLedger(spark, table).append(make_entries("a"), after=0)
    place = Path(urlsplit(spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"]).path)
    for name, hours in (("young", 23), ("old", 25)):
        (place / f"{name}.parquet").touch()
        os.utime(place / f"{name}.parquet", (time.time() - hours * 3600,) * 2)
    entries.vacuum()
    assert [each.stem for each in place.glob("*.parquet") if each.stem in ("young", "old")] == ["young"]
    assert list_ids(SparkLedger(spark, table)) == ["a"]


def test_no_entry_is_larger_than_16_kib(spark: SparkSession, table: str) -> None:
    """A large body is stored in a separate table until its entry is compacted away."""
    ledger = SparkLedger(spark, table)
    ledger.append([Entry(kind="plan", id="a", body={"parts": list(range(10_000))})], after=0)
    sizes = spark.read.table(table).selectExpr("max(length(to_json(struct(*))))")
    assert sizes.collect()[0][0] < 16 * 1024
    ledger.compact(Entry(kind="snapshot"), [], after=1)
    assert spark.read.table(f"{table}_bodies").count() == 0


@pytest.mark.parametrize(
    ("name", "ending", "expected"),
    [
        ("main.shop.orders_ledger", "", "`main`.`shop`.`orders_ledger`"),
        ("`my cat`.shop.orders", "_history", "`my cat`.`shop`.`orders_history`"),
        ("`a``b.c`.t; DROP TABLE x", "", "`a``b.c`.`t; DROP TABLE x`"),
    ],
)
def test_every_part_of_a_name_is_quoted(name: str, ending: str, expected: str) -> None:
    """No part of a name is read as SQL."""
    assert quote_table(name, ending) == expected
