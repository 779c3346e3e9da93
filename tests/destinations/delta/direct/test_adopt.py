"""A table adopts files that Spark wrote, and then equals a table to which Spark appended their rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.conformance import make_label
from destinations.delta import Delta
from destinations.delta.data_files import bring
from destinations.delta.writers import SparkAppend
from destinations.destination import Written
from destinations.labels import Deadline, Late
from origins.batch_rows import BatchRows, FrameRows
from tests.destinations.delta.direct.test_append import (
    COMPARED,
    VALUES,
    make_table,
    name_engine,
    read_as_spark_tells,
    read_newest,
    read_statistics,
)
from tests.destinations.delta.writers_conformance import write as write_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]
KINDS = dict(zip("abcdefghijkl", VALUES, strict=True))
ROWS = [{name: f"CAST({VALUES[kind][row]} AS {kind})" for name, kind in KINDS.items()} for row in range(3)]


def write_files(spark: SparkSession, folder: Path, rows: DataFrame) -> Sequence[Path]:
    """Write the rows to files, as the store of a decided batch holds them."""
    rows.write.parquet(str(folder))
    return sorted(folder.glob("*.parquet"))


@dataclass(frozen=True)
class InFiles(BatchRows):
    """Rows that are stored in these files."""

    spark: SparkSession
    paths: Sequence[Path]

    def frame(self) -> DataFrame:
        return self.spark.read.parquet(*map(str, self.paths))

    def files(self) -> Mapping[str, Path]:
        return {path.name: path for path in self.paths}


def make_valued(spark: SparkSession, row: int) -> DataFrame:
    """Return a row with a value of every type."""
    return spark.range(1).selectExpr(*[f"{value} AS {name}" for name, value in ROWS[row].items()])


def make_some(spark: SparkSession) -> DataFrame:
    return spark.range(5).selectExpr("id", "'x' as name")


def list_files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.parquet"))


@pytest.mark.parametrize("links", [True, False])
def test_a_table_adopts_files_and_leaves_the_originals_unchanged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Files without rows are left out. Without links the files are copied. A second label brings the rows again."""

    def unknown(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", unknown)
    orders = make_table(spark, tmp_path / "orders")
    identity = orders.ensure_place(spark, make_some(spark).schema)
    files = write_files(spark, tmp_path / "rows", make_some(spark).repartition(4).where("id < 2"))
    before = {file: file.read_bytes() for file in files}
    seventh, eighth = make_label(number=7), make_label(number=8)
    written = orders.write(spark, InFiles(spark, files), [seventh])
    assert written == orders.find(spark, seventh, identity)
    assert written is not None
    assert (written.rows, read_newest(orders, "commitInfo")["engineInfo"]) == (2, "wherry")
    assert written.bytes == sum((tmp_path / "orders" / name).stat().st_size for name in list_files(tmp_path / "orders"))
    assert orders.write(spark, InFiles(spark, files), [eighth]) is not None
    assert sorted(row["id"] for row in spark.table(orders.destination.sql_name).collect()) == [0, 0, 1, 1]
    assert {file: file.read_bytes() for file in files} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder another group")
def test_adopted_files_have_the_permissions_of_the_tables_other_files(spark: SparkSession, tmp_path: Path) -> None:
    """They get the group of the table's folder and the mode of Spark's files. The originals keep theirs."""
    orders = make_table(spark, tmp_path / "orders")
    (tmp_path / "orders").chmod(0o2775)
    os.chown(tmp_path / "orders", -1, 4321)
    orders.ensure_place(spark, make_some(spark).schema)
    files = write_files(spark, tmp_path / "rows", make_some(spark).coalesce(1))
    files[0].chmod(0o600)
    assert orders.write(spark, InFiles(spark, files), [make_label()]) is not None
    assert orders.write(spark, FrameRows(make_some(spark)), [make_label(number=8)]).rows == 5
    there = [(tmp_path / "orders" / name).stat() for name in list_files(tmp_path / "orders")]
    assert {(each.st_uid, each.st_gid, oct(each.st_mode)) for each in there} == {(0, 4321, oct(0o100644))}
    private = files[0].stat()
    assert (private.st_gid, oct(private.st_mode), private.st_nlink) == (os.getegid(), oct(0o100600), 1)


def test_files_without_rows_make_no_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Any write without rows makes none."""
    orders = make_table(spark, tmp_path / "orders")
    identity = orders.ensure_place(spark, make_some(spark).schema)
    files = write_files(spark, tmp_path / "rows", make_some(spark).where("id > 9"))
    assert orders.write(spark, InFiles(spark, files), [make_label()]) == Written(rows=0)
    assert orders.find(spark, make_label(), identity) is None


def test_the_statistics_of_a_file_equal_sparks(spark: SparkSession, tmp_path: Path) -> None:
    """They are the rows, the NULLs, and the lowest and highest value of every type that Spark compares."""
    rows = spark.range(0, 4, 1, 1).selectExpr(*[f"{value} AS {name}" for name, value in COMPARED.items()])
    kinds = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema)
    ours, theirs = make_table(spark, tmp_path / "ours", kinds), make_table(spark, tmp_path / "theirs", kinds)
    for orders in (ours, theirs):
        orders.ensure_place(spark, rows.schema)
    assert ours.write(spark, InFiles(spark, write_files(spark, tmp_path / "rows", rows)), [make_label()]) is not None
    write_by(SparkAppend(), theirs, FrameRows(rows))
    (its,) = read_statistics(theirs)
    its.pop("tightBounds", None)
    assert read_as_spark_tells(ours) == [its]


def test_a_reader_that_skips_files_finds_every_value(spark: SparkSession, tmp_path: Path) -> None:
    """The values are at the ends of every type, where the log has bounds or leaves them out."""
    orders = make_table(spark, tmp_path / "orders", ", ".join(f"{name} {kind}" for name, kind in KINDS.items()))
    for row in range(3):
        rows = make_valued(spark, row)
        orders.ensure_place(spark, rows.schema)
        written = orders.write(
            spark, InFiles(spark, write_files(spark, tmp_path / str(row), rows)), [make_label(number=row)]
        )
        assert (written and written.rows, name_engine(orders)) == (1, "wherry")
    there = spark.table(orders.destination.sql_name)
    missed = [value for row in ROWS for name, value in row.items() if not there.where(f"{name} <=> {value}").count()]
    assert missed == []


def test_a_value_is_found_beside_any_other_value_in_its_file(spark: SparkSession, tmp_path: Path) -> None:
    """The values are NaN, infinity, text that a log shortens, and moments between two milliseconds."""
    values = {
        "ratio": ("0D", "double('NaN')", "double('-Infinity')", "1D"),
        "text": ("'a'", "repeat('z', 33)", "repeat('z', 40)", "''"),
        "at": (*[f"timestamp'2026-01-01 00:00:00.{micros}'" for micros in ("000001", "999999", "5")], "NULL"),
    }
    rows = spark.sql(
        f"SELECT * FROM VALUES {', '.join(map(_format_tuple, zip(*values.values(), strict=True)))} AS (ratio, text, at)"
    )
    orders = make_table(spark, tmp_path / "orders", "ratio double, text string, at timestamp")
    orders.ensure_place(spark, rows.schema)
    assert (
        orders.write(spark, InFiles(spark, write_files(spark, tmp_path / "rows", rows.coalesce(1))), [make_label()])
        is not None
    )
    there = spark.table(orders.destination.sql_name)
    missed = [each for name in values for each in values[name] if not there.where(f"{name} <=> {each}").count()]
    assert missed == []


def _format_tuple(values: tuple[str, ...]) -> str:
    return f"({', '.join(values)})"


@pytest.mark.parametrize(
    ("columns", "more", "options", "by"),
    [
        ("id bigint, name string", "PARTITIONED BY (name)", {}, "Apache-Spark"),
        ("id bigint, name string", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", {}, "Apache-Spark"),
        ("id bigint, name string", "", {"mode": "merge", "keys": ["id"]}, "Apache-Spark"),
        ("id bigint, name string", "", {"mode": "replace"}, "Apache-Spark"),
        ("id bigint, name string, batch string", "", {"stamp": "batch"}, "wherry, files by Spark"),
        ("ID bigint, name string", "", {}, "wherry, files by Spark"),
        ("id bigint, name string, more string", "", {}, "Apache-Spark"),
        ("id bigint, name string NOT NULL", "", {}, "Apache-Spark"),
    ],
)
def test_files_that_do_not_fit_the_table_are_read_by_spark(
    spark: SparkSession, tmp_path: Path, columns: str, more: str, options: dict[str, Any], by: str
) -> None:
    """The table demands more than the files have, or its columns differ from the files' columns."""
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'orders'}` ({columns}) USING delta {more}")
    orders = Delta(path=str(tmp_path / "orders"), **options).open()
    orders.ensure_place(spark, None)
    files = write_files(spark, tmp_path / "rows", make_some(spark))
    orders.write(spark, InFiles(spark, files), [make_label()])
    assert name_engine(orders).startswith(by)
    assert spark.table(orders.destination.sql_name).count() == 5


def test_files_that_spark_did_not_write_are_not_adopted(spark: SparkSession, tmp_path: Path) -> None:
    """Such files do not record the types of their columns."""
    import pyarrow as pa
    from pyarrow import parquet

    orders = make_table(spark, tmp_path / "orders")
    orders.ensure_place(spark, make_some(spark).schema)
    parquet.write_table(pa.table({"id": [1], "name": ["x"]}), tmp_path / "own.parquet")
    orders.write(spark, InFiles(spark, [tmp_path / "own.parquet"]), [make_label()])
    assert name_engine(orders) == "wherry, files by Spark"


def test_a_write_that_is_too_late_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    """The lease ends between the reading of the files and the commit."""

    class Over(Deadline):
        def check(self) -> None:
            raise Late

    orders = make_table(spark, tmp_path / "orders")
    orders.ensure_place(spark, make_some(spark).schema)
    files = write_files(spark, tmp_path / "rows", make_some(spark))
    late = dataclasses.replace(make_label(), deadline=Over(left=lambda: 60.0))
    with pytest.raises(Late):
        orders.write(spark, InFiles(spark, files), [late])
    assert list_files(tmp_path / "orders") == []
    assert spark.table(orders.destination.sql_name).count() == 0


def test_a_fence_stops_the_adoption_of_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence comes between the start of the write and its commit."""
    orders = make_table(spark, tmp_path / "orders")
    orders.ensure_place(spark, make_some(spark).schema)
    files = write_files(spark, tmp_path / "rows", make_some(spark))
    other = Delta(path=str(tmp_path / "orders")).open()
    other.ensure_place(spark, None)

    def fenced(*words: Any) -> None:
        bring(*words)
        other.fence(spark, "another owner")

    monkeypatch.setattr("destinations.delta.direct_append.bring", fenced)
    with pytest.raises(Exception, match=r"[Mm]etadata"):
        orders.write(spark, InFiles(spark, files), [make_label()])
    assert spark.table(orders.destination.sql_name).count() == 0
