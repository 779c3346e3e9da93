"""A plain table that Wherry makes without Spark equals a table made by Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.delta import Delta
from destinations.delta.direct_append import make_here
from destinations.delta.log import LocalLog
from destinations.delta.schema import format_columns
from destinations.delta.table import TargetTable, format_layout, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PROPERTIES = {"delta.checkpointInterval": "100"}
PLAIN = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, j date, k timestamp, "
    "l decimal(38,10), m array<struct<n: int, o: array<string>>>, p struct<q: struct<r: date>>, `Größe` int"
)
OTHERS = [
    "id timestamp_ntz",
    "id variant",
    "id map<string, int>",
    "id string collate UTF8_LCASE",
    "`a.b` int",
    "v void",
]
NOT_PLAIN: list[dict[str, Any]] = [{"comment": "of orders"}, {"properties": {"mine": "x"}}]


def make_row_type(spark: SparkSession, kinds: str) -> StructType:
    """Return the type of rows with these columns."""
    return spark.createDataFrame([], kinds).schema


def read_actions(folder: Path) -> dict[str, Any]:
    """Return the actions of the table's first version, without its id and its time."""
    lines = (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    found = {name: action for line in lines for name, action in json.loads(line).items()}
    metadata = {name: each for name, each in found["metaData"].items() if each is not None}
    return {"protocol": found["protocol"], "metadata": {**metadata, "id": "", "createdTime": 0}}


@pytest.mark.spark
def test_the_table_equals_one_made_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The protocol, schema and properties are the same in the log and in Spark's description."""
    schema, properties = make_row_type(spark, PLAIN), {**PROPERTIES, "delta.isolationLevel": "Serializable"}
    here, there = tmp_path / "here", tmp_path / "there"
    assert make_here(spark, here, schema, properties)
    spark.sql(f"create table delta.`{there}` {format_layout(Delta(path=str(there)), schema, properties)}")
    assert read_actions(here) == read_actions(there)
    named = "format, name, description, numFiles, sizeInBytes, partitionColumns, clusteringColumns, properties"
    said = [
        spark.sql(f"describe detail delta.`{each}`").selectExpr(*named.split(", "), "minReaderVersion",
            "minWriterVersion", "tableFeatures").collect()
        for each in (here, there)
    ]  # fmt: skip
    assert said[0] == said[1]
    assert spark.table(f"delta.`{here}`").schema == spark.table(f"delta.`{there}`").schema


@pytest.mark.spark
def test_the_checksum_equals_the_one_made_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Each of its fields is equal, and Delta allows the missing ones to be left out."""
    schema = make_row_type(spark, "id long, at timestamp")
    assert make_here(spark, tmp_path / "here", schema, PROPERTIES)
    spark.sql(f"create table delta.`{tmp_path / 'there'}` ({format_columns(schema)}) using delta")
    mine, its = (json.loads(LocalLog(tmp_path / name).read_checksum(0)) for name in ("here", "there"))
    metadata, its_own = mine.pop("metadata"), its.pop("metadata")
    assert metadata["id"] == LocalLog(tmp_path / "here").read_metadata(spark)["id"]
    assert metadata["schemaString"].replace(" ", "") == its_own["schemaString"]
    assert {name: its[name] for name in mine} == mine
    assert its.keys() - mine.keys() == {"txnId", "fileSizeHistogram"}


@pytest.mark.spark
def test_spark_sees_a_new_table_in_the_place_of_a_removed_one(spark: SparkSession, tmp_path: Path) -> None:
    """Spark caches what it read of a log. It does not use that for a new table, even if the log has the same length."""
    name, folder = f"delta.`{tmp_path / 'orders'}`", tmp_path / "orders"
    for kinds in ("id long", "name string, id long", "day date"):
        make(spark, Delta(path=str(folder)), make_row_type(spark, kinds))
        assert spark.table(name).schema == make_row_type(spark, kinds)
        assert spark.table(name).count() == 0
        shutil.rmtree(folder)


@pytest.mark.spark
def test_spark_is_not_asked_to_make_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is not asked whether the table exists either."""
    schema = make_row_type(spark, "id long, name string")
    monkeypatch.setattr(type(spark), "sql", refuse_spark)
    monkeypatch.setattr(type(spark), "read", property(refuse_spark))
    assert Delta(path=str(tmp_path / "deep" / "orders")).open().ensure_place(spark, schema).version == 0


@pytest.mark.spark
def test_a_column_that_needs_a_table_feature_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """It needs a feature of Delta, or a name that Parquet does not allow in every table."""
    place = tmp_path / "orders"
    assert [kinds for kinds in OTHERS if make_here(spark, place, make_row_type(spark, kinds), PROPERTIES)] == []
    assert not (tmp_path / "orders").exists()


@pytest.mark.spark
@pytest.mark.parametrize("options", NOT_PLAIN)
def test_a_table_that_is_not_plain_is_made_by_spark(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    """The table's log names Spark as the engine."""
    table = make(spark, Delta(path=str(tmp_path / "orders"), **options), make_row_type(spark, "id long, day date"))
    assert name_maker(table) == "Spark"


@pytest.mark.spark
def test_a_session_with_default_properties_makes_tables_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Spark applies such properties to every new table."""
    spark.conf.set("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")
    table = make(spark, Delta(path=str(tmp_path / "orders")), make_row_type(spark, "id long"))
    assert table.properties == {**PROPERTIES, "delta.enableChangeDataFeed": "true"}


@pytest.mark.spark
def test_a_folder_with_other_files_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark then reports the problem. An empty folder gets the table."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "notes.txt").touch()
    assert not make_here(spark, tmp_path / "orders", make_row_type(spark, "id long"), PROPERTIES)
    (tmp_path / "orders" / "notes.txt").unlink()
    assert make_here(spark, tmp_path / "orders", make_row_type(spark, "id long"), PROPERTIES)


@pytest.mark.spark
def test_only_one_of_two_writers_makes_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer saw an empty folder before. It then finds the table, and makes none."""
    monkeypatch.setattr("destinations.delta.direct_append._is_empty", lambda _: True)
    schema, folder = make_row_type(spark, "id long"), tmp_path / "orders"
    assert make_here(spark, folder, schema, PROPERTIES)
    before = read_actions(folder)
    assert not make_here(spark, folder, schema, PROPERTIES)
    monkeypatch.setattr(TargetTable, "find", hide_at_first(TargetTable.find))
    assert make(spark, Delta(path=str(folder)), schema).version == 0
    assert read_actions(folder) == before


def hide_at_first(find: Callable[..., TargetTable | None]) -> Callable[..., TargetTable | None]:
    """Return a version of `find` that finds no table the first time."""
    looks = iter([lambda *_: None])
    return staticmethod(lambda *asked: next(looks, find)(*asked))


def name_maker(table: TargetTable) -> str:
    """Return what made the table."""
    assert isinstance(table.log, LocalLog)
    first = json.loads(table.log.path_of(0).read_text().splitlines()[0])["commitInfo"]
    return "Spark" if "Spark" in first["engineInfo"] else "this process"


def refuse_spark(*_: object, **__: object) -> None:
    raise AssertionError("Spark was asked")
