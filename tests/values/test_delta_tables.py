"""Delta tables of every kind: each row comes once and exactly, by each way, or the table is refused with a sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from origins.batch import JSON, Limits
from origins.delta import Delta
from origins.errors import OriginError
from origins.origin import PLACE, Progress
from runners.pipeline import Pipeline
from tests.origins.delta.test_delta import make_batch, run_sql
from tests.origins.delta.test_named import RUNTIME
from tests.values.test_parquet_values import find_form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Build = Callable[[SparkSession, Path], int]

pytestmark = pytest.mark.spark
MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999999)
TYPED = pa.table(
    {
        "id": pa.array([1, 2, 3]),
        "tiny": pa.array([-128, 127, None], pa.int8()),
        "small": pa.array([-(2**15), 2**15 - 1, None], pa.int16()),
        "whole": pa.array([-(2**31), 2**31 - 1, None], pa.int32()),
        "single": pa.array([0.1, float("-inf"), None], pa.float32()),
        "double": pa.array([-0.0, float("nan"), None], pa.float64()),
        "flag": pa.array([True, False, None]),
        "text": pa.array(["", "ä\U0001f600\0", None]),
        "bytes": pa.array([b"", b"\0\xff", None]),
        "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
        "at": pa.array([MOMENT, datetime(9999, 12, 31), None], pa.timestamp("us", "UTC")),
        "local": pa.array([MOMENT, datetime(1, 1, 1), None], pa.timestamp("us")),
        "price": pa.array([Decimal("99999999.99"), Decimal("0.01"), None], pa.decimal128(10, 2)),
        "rate": pa.array([Decimal("9" * 20 + "." + "9" * 18), Decimal("-1e-18"), None], pa.decimal128(38, 18)),
        "list": pa.array([[], [1, None], None], pa.list_(pa.int64())),
        "map": pa.array([[], [("a", None)], None], pa.map_(pa.string(), pa.float64())),
        "record": pa.array(
            [{"x": 1, "y": []}, {"x": None, "y": None}, None],
            pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]),
        ),
    }
)  # fmt: skip
TEXTS = [
    "plain", "a b", "a/b", "a=b", "a%b", "a%20b", "ä", "a:b", "a+b", "#", "?", "'", '"', "\\", "{}", "[a]", ".", "*",
    "~", "\U0001f600", "a\tb", "&", "@", None, "__HIVE", "-", "1", "true",
]  # fmt: skip
"""Values that are names of folders too."""


def build_types(spark: SparkSession, folder: Path) -> int:
    for start in range(3):
        write_deltalake(str(folder), TYPED.slice(start, 1), mode="append")
    return 3


def build_partitions(spark: SparkSession, folder: Path) -> int:
    columns = {"id": range(len(TEXTS)), "key": TEXTS, "note": ["n"] * len(TEXTS)}
    write_deltalake(str(folder), pa.table(columns), partition_by=["key"])
    return len(TEXTS)


def build_typed_partitions(spark: SparkSession, folder: Path) -> int:
    keys = ["small", "flag", "day", "at", "price", "whole"]
    write_deltalake(str(folder), TYPED.select(["id", "text", *keys]), partition_by=keys)
    return 3


def build_spark_partitions(spark: SparkSession, folder: Path) -> int:
    run_sql(
        spark,
        "CREATE TABLE {t} (id int, key string, at timestamp_ntz, f double) USING delta PARTITIONED BY (key, at, f)",
        folder,
    )
    rows = [
        f"({at}, {'null' if text is None else repr(text)}, timestamp_ntz'2026-01-01 00:00:0{at % 10}.5', {at}.25)"
        for at, text in enumerate(TEXTS)
        if text not in ("\\", "'", '"')
    ]
    run_sql(
        spark,
        "INSERT INTO {t} VALUES " + ", ".join(each.replace("{", "{{").replace("}", "}}") for each in rows),
        folder,
    )
    return len(rows)


def append(folder: Path, *ids: int) -> None:
    write_deltalake(str(folder), pa.table({"id": list(ids), "note": [f"n{each}" for each in ids]}), mode="append")


def build_checkpoints(spark: SparkSession, folder: Path) -> int:
    for number in range(12):
        append(folder, number)
        if number in (4, 9):
            DeltaTable(str(folder)).create_checkpoint()
    return 12


def build_cleaned_log(spark: SparkSession, folder: Path) -> int:
    build_checkpoints(spark, folder)
    for number in range(9):
        (folder / "_delta_log" / f"{number:020}.json").unlink()
    return 12


def build_parts_of_a_checkpoint(spark: SparkSession, folder: Path) -> int:
    for number in range(4):
        append(folder, number)
    spark.conf.set("spark.databricks.delta.checkpoint.partSize", "2")
    run_sql(spark, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1', 'a' = 'b')", folder)
    spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
    assert len([*(folder / "_delta_log").glob("*.checkpoint.*.parquet")]) > 1
    for number in range(4):
        (folder / "_delta_log" / f"{number:020}.json").unlink()
    return 4


def build_new_checkpoint(spark: SparkSession, folder: Path) -> int:
    run_sql(
        spark,
        "CREATE TABLE {t} (id long, note string) USING delta "
        "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')",
        folder,
    )
    for number in range(2):
        run_sql(spark, f"INSERT INTO {{t}} VALUES ({number}, 'n')", folder)
    for number in range(2):
        (folder / "_delta_log" / f"{number:020}.json").unlink()
    return 2


def build_deleted_rows(spark: SparkSession, folder: Path) -> int:
    run_sql(
        spark,
        "CREATE TABLE {t} (id long, note string) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        folder,
    )
    run_sql(spark, "INSERT INTO {t} SELECT id, 'n' FROM range(0, 100, 1, 2)", folder)
    run_sql(spark, "DELETE FROM {t} WHERE id % 7 = 0", folder)
    run_sql(spark, "INSERT INTO {t} VALUES (100, 'n')", folder)
    return 86


def build_mapped_columns(spark: SparkSession, folder: Path) -> int:
    run_sql(
        spark,
        "CREATE TABLE {t} (id long, `a b,;` string, gone int, s struct<`x y`: int>) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        folder,
    )
    run_sql(spark, "INSERT INTO {t} VALUES (1, 'a', 2, named_struct('x y', 3))", folder)
    run_sql(spark, "ALTER TABLE {t} RENAME COLUMN `a b,;` TO `neu ü`", folder)
    run_sql(spark, "ALTER TABLE {t} DROP COLUMN gone", folder)
    run_sql(spark, "ALTER TABLE {t} ADD COLUMN gone string", folder)
    run_sql(spark, "INSERT INTO {t} (id, `neu ü`, s, gone) VALUES (2, 'b', named_struct('x y', null), 'g')", folder)
    return 2


def build_wider_types(spark: SparkSession, folder: Path) -> int:
    run_sql(
        spark,
        "CREATE TABLE {t} (id int, price decimal(5,2)) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        folder,
    )
    run_sql(spark, "INSERT INTO {t} VALUES (1, 123.45)", folder)
    run_sql(spark, "ALTER TABLE {t} ALTER COLUMN id TYPE bigint", folder)
    run_sql(spark, "ALTER TABLE {t} ALTER COLUMN price TYPE decimal(10,3)", folder)
    run_sql(spark, "INSERT INTO {t} VALUES (5000000000, 1234567.891)", folder)
    return 2


def build_added_columns(spark: SparkSession, folder: Path) -> int:
    append(folder, 1)
    later = pa.table({"id": [2], "note": ["b"], "more": [{"x": 1}]})
    write_deltalake(str(folder), later, mode="append", schema_mode="merge")
    return 2


def build_commits_without_rows(spark: SparkSession, folder: Path) -> int:
    append(folder, 1)
    log = folder / "_delta_log"
    (log / f"{1:020}.json").write_text('{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}\n')
    (log / f"{2:020}.json").write_text('{"txn": {"appId": "a", "version": 1, "lastUpdated": 1}}\n')
    write_deltalake(
        str(folder), pa.table({"id": pa.array([], pa.int64()), "note": pa.array([], pa.string())}), mode="append"
    )
    append(folder, 2)
    return 2


def build_overwritten(spark: SparkSession, folder: Path) -> int:
    append(folder, 1, 2, 3)
    write_deltalake(str(folder), pa.table({"id": [4], "note": ["n4"]}), mode="overwrite")
    append(folder, 5)
    return 2


def build_sparse_log(spark: SparkSession, folder: Path) -> int:
    """A writer may leave out statistics and commitInfo, and add fields and actions that readers do not know."""
    append(folder, 1)
    append(folder, 2)
    (folder / "with space %").mkdir()
    for number in range(2):
        file = folder / "_delta_log" / f"{number:020}.json"
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                name = f"with space %/{number} ü.parquet"
                (folder / action["add"]["path"]).rename(folder / name)
                action["add"] = {"path": f"with%20space%20%25/{number}%20%C3%BC.parquet", "unknown": {"a": [1]}} | {
                    key: action["add"][key] for key in ("partitionValues", "size", "modificationTime", "dataChange")
                }
        kept = [each for each in actions if "commitInfo" not in each]
        file.write_text("\n".join(map(json.dumps, reversed(kept))))
    return 2


BUILDS: dict[str, Build] = {
    name.removeprefix("build_").replace("_", " "): build
    for name, build in dict(globals()).items()
    if name.startswith("build_")
}


def read_all(spark: SparkSession, delta: Delta, *, places: bool, limits: Limits | None = None) -> list[dict[str, Any]]:
    """Return the rows of all batches."""
    backlog = delta.survey(spark, Progress())
    offset: JSON = None
    rows: list[dict[str, Any]] = []
    while span := backlog.take("0", offset, limits or Limits()):
        frame = delta.fetch(spark, [make_batch(span, backlog.columns)], places=places).frame()
        rows += [row.asDict(recursive=True) for row in frame.drop(PLACE).collect()]
        offset = span.end
    return rows


def sort_forms(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(find_form(row)) for row in rows)


ALWAYS = {"deleted rows", "mapped columns", "types"}
"""The tables that each run of the tests reads."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ALWAYS else pytest.mark.long) for name in BUILDS]
)
def test_a_table_is_read_exactly(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """By its path, by its name, and by its name on Databricks, the rows are those of Spark's own reader."""
    folder = tmp_path / "table"
    count = BUILDS[name](spark, folder)
    measure = [row.asDict(recursive=True) for row in spark.read.format("delta").load(str(folder)).collect()]
    assert len(measure) == count
    expected = sort_forms(measure)
    assert sort_forms(read_all(spark, Delta(path=str(folder)), places=True)) == expected
    spark.sql("CREATE SCHEMA IF NOT EXISTS golden")
    spark.sql("DROP TABLE IF EXISTS golden.one")
    spark.sql(f"CREATE TABLE golden.one USING delta LOCATION '{folder}'")
    assert sort_forms(read_all(spark, Delta(table="golden.one"), places=False)) == expected
    monkeypatch.setenv(RUNTIME, "17.3")
    assert sort_forms(read_all(spark, Delta(table="golden.one"), places=False)) == expected


def test_the_types_of_a_table_are_those_that_were_written(spark: SparkSession, tmp_path: Path) -> None:
    """Each value is as another library wrote it, in files and in the names of folders."""
    for build in (build_types, build_typed_partitions):
        folder = tmp_path / build.__name__
        build(spark, folder)
        names = DeltaTable(str(folder)).schema().to_arrow().names if build is build_types else None
        rows = sorted(read_all(spark, Delta(path=str(folder)), places=False), key=lambda row: int(row["id"]))
        columns = [name for name in TYPED.column_names if names is None or name in names]
        written = [{**row, "map": dict(row["map"]) if row["map"] is not None else None} for row in TYPED.to_pylist()]
        for name in columns:
            if name in rows[0]:
                assert [find_form(row[name]) for row in rows] == [find_form(row[name]) for row in written], name


def change_log(folder: Path, number: int, change: Callable[[list[dict[str, Any]]], object]) -> None:
    file = folder / "_delta_log" / f"{number:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    change(actions)
    file.write_text("\n".join(map(json.dumps, actions)))


def find_action(actions: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(action[kind] for action in actions if kind in action)


def break_gap(folder: Path) -> None:
    (folder / "_delta_log" / f"{1:020}.json").unlink()


def break_beginning(folder: Path) -> None:
    (folder / "_delta_log" / f"{0:020}.json").unlink()


def break_line(folder: Path) -> None:
    (folder / "_delta_log" / f"{2:020}.json").write_text('{"add": {"path": "a')


def break_no_log(folder: Path) -> None:
    shutil.rmtree(folder / "_delta_log")


def break_schema(folder: Path) -> None:
    change_log(folder, 0, lambda actions: find_action(actions, "metaData").pop("schemaString"))


def break_future_protocol(folder: Path) -> None:
    change_log(folder, 0, lambda actions: find_action(actions, "protocol").update(minReaderVersion=99))


def break_missing_file(folder: Path) -> None:
    next(folder.glob("*.parquet")).unlink()


def break_noise(folder: Path) -> None:
    file = next(folder.glob("*.parquet"))
    file.write_bytes(b"\x7f" * file.stat().st_size)


BREAKS: Mapping[str, Callable[[Path], None]] = {
    name.removeprefix("break_").replace("_", " "): change
    for name, change in dict(globals()).items()
    if name.startswith("break_")
}
CODES = {"noise": "CARRY"}
"""The codes of errors that Spark finds in rows."""
DEFINITION = """
name: broken
origin:
  delta: {path: table}
destinations:
  - delta: {path: copy}
"""


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_table_ends_the_run_with_a_sentence(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """The error has a code and names the table. No row is delivered."""
    folder = tmp_path / "table"
    for number in range(3):
        append(folder, number)
    BREAKS[name](folder)
    (tmp_path / "pipeline.yaml").write_text(DEFINITION, encoding="utf-8")
    report = Pipeline.load(tmp_path / "pipeline.yaml").run(check=False)
    assert report.error is not None, report
    said = f"{report.error.message} {report.error.hint}"
    assert str(folder) in said
    assert "\tat " not in said
    assert "Traceback" not in said
    assert (report.status, report.read, report.error.code) == ("failed", 0, CODES.get(name, "ORIGIN"))


def test_versions_behind_a_gap_are_not_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    """The missing version may have added rows. Spark reads such a table by its checkpoint."""
    folder = tmp_path / "table"
    for number in range(6):
        append(folder, number)
        DeltaTable(str(folder)).create_checkpoint()
    (folder / "_delta_log" / f"{3:020}.json").unlink()
    delta = Delta(path=str(folder))
    table = delta.survey(spark, Progress()).table.id
    backlog = delta.survey(spark, Progress(offsets={"0": {"version": 1, "table": table}}))
    span = backlog.take("0", {"version": 1, "table": table}, Limits())
    assert span is not None
    assert span.end == {"version": 2, "table": table}
    with pytest.raises(OriginError, match="no longer has version 3; it begins with version 4"):
        delta.survey(spark, Progress(offsets={"0": span.end}))
