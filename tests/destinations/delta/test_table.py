"""A Delta table as a process knows it. `deltalake` makes and writes the tables, so no test needs Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from pyspark.sql.types import LongType, StringType, StructField, StructType

from destinations.conformance import make_label
from destinations.delta.delta import Delta
from destinations.delta.lock import hold_table
from destinations.delta.log import LocalLog, SparkLog, make_tag
from destinations.delta.table import TargetTable, format_layout
from destinations.destination import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)
FIELDS = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "twice", "type": "long", "nullable": True, "metadata": {"delta.generationExpression": "id * 2"}},
    {"name": "own", "type": "long", "nullable": True, "metadata": {"delta.identity.allowExplicitInsert": True}},
]


def append_rows(folder: Path, rows: int, text: str = "") -> None:
    """Append this many rows in a commit with this tag."""
    given = CommitProperties(custom_metadata={"userMetadata": text}) if text else None
    table = pa.table({"id": pa.array(range(rows), pa.int64())})
    write_deltalake(str(folder), table, mode="append", commit_properties=given)


@pytest.fixture
def table(tmp_path: Path) -> TargetTable:
    """A table with one version of three rows, which this process knows."""
    folder = tmp_path / "orders"
    append_rows(folder, 3)
    metadata = LocalLog(folder).read_metadata(NO_SPARK)
    return TargetTable(
        name="orders",
        id=metadata["id"],
        location=f"file:{folder}",
        properties={},
        described=StructType([StructField("id", LongType())]).json(),
        log=LocalLog(folder),
        version=0,
    )


def locate_folder(table: TargetTable) -> Path:
    assert isinstance(table.log, LocalLog)
    return table.log.folder


def test_a_refresh_finds_the_commits_of_others(table: TargetTable) -> None:
    """Afterwards the newest version is known."""
    append_rows(locate_folder(table), 1)
    append_rows(locate_folder(table), 1)
    assert (table.refresh(), table.version) == (True, 2)


def test_a_refresh_ignores_another_table_in_the_same_place(table: TargetTable) -> None:
    """That table has another id, and the known version does not change."""
    shutil.rmtree(locate_folder(table))
    append_rows(locate_folder(table), 1)
    append_rows(locate_folder(table), 1)
    assert (table.is_there, table.refresh(), table.version) == (False, False, 0)


def test_a_table_whose_known_version_is_missing_does_not_stand(table: TargetTable) -> None:
    """An older copy may have replaced the table."""
    append_rows(locate_folder(table), 1)
    table.refresh()
    assert table.stands
    (locate_folder(table) / "_delta_log" / f"{1:020}.json").unlink()
    assert not table.stands


def test_a_table_that_only_spark_sees_is_not_refreshed(table: TargetTable) -> None:
    """Without asking Spark, Wherry assumes that it stands."""
    table.log = SparkLog("orders", "s3://bucket/orders")
    assert (table.refresh(), table.is_there, table.stands) == (False, False, True)


@pytest.mark.parametrize(("feature", "newest"), [("deletionVectors", 0), ("catalogManaged", 1)])
def test_a_commit_that_only_the_catalog_knows_is_found(table: TargetTable, feature: str, newest: int) -> None:
    """If a catalog manages the commits, Spark reports the newest version. Otherwise the folder shows it."""
    spark = DescribingSpark(table, feature)
    found = TargetTable.find(cast("SparkSession", spark), "main.shop.orders")
    assert found is not None
    assert found.version == newest


class DescribingSpark:
    """A Spark that knows a table with this feature, and one more commit than the table's folder has."""

    def __init__(self, table: TargetTable, feature: str) -> None:
        self._detail: tuple[Any, ...] = ("delta", table.id, "main.shop.orders", table.location, {}, [feature])
        self._history: tuple[Any, ...] = (table.version + 1, "WRITE", {}, {}, "", None)
        self.schema = table.schema

    def table(self, name: str) -> DescribingSpark:
        return self

    def sql(self, query: str) -> FoundRow:
        return FoundRow(self._history if query.startswith("DESCRIBE HISTORY") else self._detail)


class FoundRow:
    """A result with one row."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        self._row = row

    def select(self, *columns: str) -> FoundRow:
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        return [self._row]


def test_a_write_without_a_commit_has_no_rows(table: TargetTable) -> None:
    """Commits with other labels do not count, and versions older than the write are not read."""
    ours, other = make_label(), make_label()
    append_rows(locate_folder(table), 5, make_tag([ours]))
    append_rows(locate_folder(table), 4, make_tag([other]))
    assert table.find_written(NO_SPARK, ours.key, 1) == Written(rows=0)


def test_a_known_version_never_goes_back(table: TargetTable) -> None:
    """A search from an older version can only raise it."""
    append_rows(locate_folder(table), 1)
    table.version = 7
    table.find_written(NO_SPARK, "nobody", 0)
    assert table.version == 7


def test_constraints_are_read_by_name(table: TargetTable) -> None:
    """They are ordered by name. Other properties are not constraints."""
    table.properties = {
        "delta.constraints.sane": "id < 100",
        "delta.constraints.positive": "id > 0",
        "delta.appendOnly": "true",
    }
    assert dict(table.read_declared(NO_SPARK).checks) == {"positive": "id > 0", "sane": "id < 100"}


def test_columns_that_the_table_fills_are_read(table: TargetTable) -> None:
    """They are generated columns and identity columns."""
    log = locate_folder(table) / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": FIELDS})
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    declared = table.read_declared(NO_SPARK)
    assert (dict(declared.generated), dict(declared.identities)) == ({"twice": "id * 2"}, {"own": True})


def test_no_commit_without_spark_is_made_while_a_table_is_held(table: TargetTable) -> None:
    """A writer that does not wait gets no lock. It gets the lock once the table is free."""
    with table.hold_commits(), hold_table(locate_folder(table), 0.0, apart=True) as held:
        assert not held
    with hold_table(locate_folder(table), 0.0, apart=True) as held:
        assert held


@pytest.mark.parametrize(
    ("options", "clause"),
    [({"partition_by": ["day"]}, "PARTITIONED BY (`day`)"), ({"cluster_by": ["a b"]}, "CLUSTER BY (`a b`)")],
)
def test_a_layout_has_all_options_of_the_table(options: dict[str, Any], clause: str) -> None:
    """They have the order of `CREATE TABLE`, and names and texts are quoted."""
    schema = StructType([StructField("a b", LongType()), StructField("day", StringType())])
    text = format_layout(Delta(path="orders", comment="Anna's", **options), schema, {"delta.appendOnly": "true"})
    places = [text.index(each) for each in ("USING delta", clause, "COMMENT ", "TBLPROPERTIES (")]
    assert places == sorted(places)
    assert "Anna's" not in text.replace("Anna\\'s", "")


@pytest.mark.parametrize("options", [{"partition_by": ["day"]}, {"cluster_by": ["day"]}, {"comment": "orders"}])
def test_a_layout_with_more_than_properties_is_not_plain(options: dict[str, Any]) -> None:
    """Spark makes such a table."""
    assert Delta(path="orders", **options).has_layout
    assert not Delta(path="orders", properties={"a": "b"}).has_layout
