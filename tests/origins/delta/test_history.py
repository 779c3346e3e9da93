"""What a version of a Delta table changed, by its line in the table's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from origins.batch import JSON, Span
from origins.catalog.history import HistoryLog, is_only_named
from origins.delta_actions import Version
from origins.delta_table import fetch_rows
from origins.errors import OriginError
from origins.lazy import T
from tests.spark_errors import make_spark_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Line = Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """A session whose only table has these lines in its history, the newest first."""

    lines: Sequence[Line]

    def sql(self, statement: str) -> History:
        """Answer `DESCRIBE HISTORY`."""
        limit = statement.partition(" LIMIT ")[2]
        return History(self.lines[: int(limit)] if limit else self.lines)

    def select(self, *columns: str) -> History:
        """Return the same, because each line has the columns."""
        assert all(set(columns) <= line.keys() for line in self.lines)
        return self

    def collect(self) -> Sequence[Line]:
        """Return the lines."""
        return self.lines


def make_line(number: int, operation: str, **given: Any) -> Line:
    """Return a line of a history."""
    known: Line = {"operationParameters": None, "operationMetrics": {}, "isBlindAppend": False}
    return {"version": number, "operation": operation, **known, **given}


def list_after(number: int, *lines: Line, properties: Mapping[str, str] | None = None) -> list[Version]:
    """Return the later versions of a table with these lines."""
    spark = cast("SparkSession", History(sorted(lines, key=lambda line: -int(line["version"]))))
    return HistoryLog.of("t", "", properties or {}).list_after(spark, number)


APPEND = {"mode": "Append"}
MERGED = {"numTargetRowsInserted": "2", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            make_line(7, "WRITE", operationParameters=APPEND, operationMetrics={"numOutputRows": "2"}),
            "7 (WRITE, 2 rows)",
        ),
        (
            make_line(7, "WRITE", operationParameters=APPEND, operationMetrics={"num_added_rows": "1"}),
            "7 (WRITE, 1 row)",
        ),
        (make_line(7, "WRITE", operationParameters=APPEND), "7 (WRITE, rows not counted)"),
        (
            make_line(7, "WRITE", operationMetrics={"numOutputRows": "2", "numRemovedFiles": "0"}),
            "7 (WRITE, 2 rows)",
        ),
        (make_line(7, "STREAMING UPDATE", isBlindAppend=True), "7 (STREAMING UPDATE, rows not counted)"),
        (
            make_line(7, "STREAMING UPDATE", operationMetrics={"numOutputRows": "3", "numRemovedFiles": "0"}),
            "7 (STREAMING UPDATE, 3 rows)",
        ),
        (make_line(7, "COPY INTO", operationMetrics={"numOutputRows": "3"}), "7 (COPY INTO, 3 rows)"),
        (make_line(7, "MERGE", operationMetrics={**MERGED, "numTargetFilesRemoved": "0"}), "7 (MERGE, 2 rows)"),
        (make_line(7, "something new", isBlindAppend=True), "7 (something new, rows not counted)"),
    ],
)
def test_a_version_that_only_added_rows_is_no_rewrite(line: Line, says: str) -> None:
    """The history says so by its operation, its figures or its flag."""
    (version,) = list_after(6, line)
    assert (str(version), version.rewrites, version.has_news, bool(version.added)) == (says, False, True, True)


@pytest.mark.parametrize(
    ("line", "only_deletes"),
    [
        (make_line(7, "WRITE", operationParameters={"mode": "Overwrite"}), False),
        (make_line(7, "WRITE", operationMetrics={"numOutputRows": "2", "numRemovedFiles": "1"}), False),
        (make_line(7, "MERGE", operationMetrics=MERGED), False),
        (make_line(7, "MERGE", operationMetrics={**MERGED, "numTargetFilesRemoved": "1"}), False),
        (make_line(7, "MERGE", operationMetrics={**MERGED, "numTargetRowsUpdated": "1"}), False),
        (make_line(7, "UPDATE", operationMetrics={"numUpdatedRows": "1"}), False),
        (make_line(7, "DELETE", operationMetrics={"numDeletedRows": "1", "numRemovedFiles": "0"}), True),
        (make_line(7, "TRUNCATE", operationMetrics={"numRemovedFiles": "1"}), True),
        (make_line(7, "RESTORE", operationMetrics={"numRemovedFiles": "0"}), False),
        (make_line(7, "CREATE OR REPLACE TABLE AS SELECT", isBlindAppend=True), False),
        (make_line(7, "something new"), False),
    ],
)
def test_what_may_have_changed_rows_is_a_rewrite(line: Line, only_deletes: bool) -> None:
    """An operation that is not known, and says nothing of itself, is one too."""
    (version,) = list_after(6, line)
    assert (version.rewrites, version.has_news, version.only_deletes) == (True, True, only_deletes)


@pytest.mark.parametrize("operation", ["OPTIMIZE", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMNS", "COMPUTE STATS"])
def test_a_version_that_changes_no_row_is_no_news(operation: str) -> None:
    """Its figures of files do not matter."""
    (version,) = list_after(6, make_line(7, operation, operationMetrics={"numRemovedFiles": "4", "numAddedFiles": "1"}))
    assert (version.rewrites, version.has_news, version.added) == (False, False, ())


def test_the_first_version_removes_nothing() -> None:
    """A table that is created without rows brings none."""
    (created,) = list_after(-1, make_line(0, "CREATE TABLE"))
    (filled,) = list_after(
        -1, make_line(0, "CREATE OR REPLACE TABLE AS SELECT", operationMetrics={"numOutputRows": "1"})
    )
    assert (created.has_news, filled.rewrites, filled.rows) == (False, False, 1)


def test_only_as_much_of_a_history_is_asked_for_as_is_needed() -> None:
    """Versions before a gap are left out, because their rows may not be all that came."""
    lines = [make_line(number, "WRITE", operationParameters=APPEND) for number in range(200)]
    assert [version.number for version in list_after(3, *lines)] == list(range(4, 200))
    assert [version.number for version in list_after(3, *lines[:50], *lines[60:])] == list(range(60, 200))
    assert list_after(199, *lines) == []


def test_a_version_is_read_by_the_properties_that_held_for_it() -> None:
    """What was set later does not hold for it."""
    append = {"operationParameters": APPEND}
    lines = [make_line(1, "WRITE", **append), make_line(2, "SET TBLPROPERTIES"), make_line(3, "WRITE", **append)]
    for properties, way in (
        ({"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "true"}, "feed"),
        ({"delta.enableRowTracking": "true"}, "commits"),
        ({"delta.enableChangeDataFeed": "false"}, "files"),
    ):
        assert [version.way for version in list_after(0, *lines, properties=properties)] == ["files", "files", way]
        assert [version.way for version in list_after(2, *lines, properties=properties)] == [way]


@pytest.mark.parametrize(
    ("name", "features", "runtime", "expected"),
    [
        ("spark_catalog.default.orders", [], "", False),
        ("spark_catalog.default.orders", ["catalogManaged"], "", True),
        ("main.shop.orders", [], "", True),
        ("spark_catalog.default.orders", [], "client.4.9", True),
        (None, [], "17.3", False),
    ],
)
def test_some_tables_are_reached_by_their_names_only(
    name: str | None, features: list[str], runtime: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog of the table decides, and the platform."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", runtime)
    assert is_only_named(name, features) == expected


DETAIL: Sequence[object] = (
    "delta",
    "a7",
    "main.shop.orders",
    "/t",
    [],
    {"delta.enableRowTracking": "true"},
    ["rowTracking"],
)


@dataclass(frozen=True)
class FilteredTable:
    """A session whose only table is described, and whose versions are refused with this condition."""

    condition: str

    def sql(self, statement: str) -> FilteredTable:
        """Answer `DESCRIBE DETAIL` only."""
        if not statement.startswith("DESCRIBE DETAIL"):
            raise make_spark_error(self.condition, "filters")
        return self

    def select(self, *columns: str) -> FilteredTable:
        """Return the same, because the answer has the columns."""
        assert len(columns) == len(DETAIL)
        return self

    def collect(self) -> Sequence[Sequence[object]]:
        """Return the table's line."""
        return [DETAIL]


@pytest.mark.parametrize(
    "condition",
    [
        "ROW_LEVEL_SECURITY_FEATURE_NOT_SUPPORTED.TIME_TRAVEL",
        "COLUMN_MASKS_FEATURE_NOT_SUPPORTED.TIME_TRAVEL",
        "FGAC_TIME_TRAVEL_NOT_SUPPORTED",
    ],
)
class TestFilteredTable:
    def test_a_look_names_the_users_that_read_versions(self, condition: str) -> None:
        """Row filters and column masks hide versions from most users of Databricks."""
        spark = cast("SparkSession", FilteredTable(condition))
        with pytest.raises(OriginError, match=rf"versions of main\.shop\.orders .*{condition}") as refused:
            HistoryLog.of("main.shop.orders", "/t", {}).look(spark, 6)
        assert "Run as a user without filters" in refused.value.hint

    def test_a_read_of_rows_names_them_too(self, condition: str) -> None:
        """The table may have got its filter after the look."""
        spark = cast("SparkSession", FilteredTable(condition))
        asked: JSON = ["", 0, 7, {"since": 7, "added": "commits"}]
        span = Span(start=None, end={"version": 7, "table": "a7"}, parts=(asked,), label="version 7")
        with pytest.raises(OriginError, match=rf"versions of main\.shop\.orders .*{condition}") as refused:
            fetch_rows(spark, "main.shop.orders", span, T.StructType(), named=True, places=False)
        assert "Run as a user without filters" in refused.value.hint


def test_another_error_of_a_look_is_passed_on() -> None:
    """No advice is given that does not fit."""
    spark = cast("SparkSession", FilteredTable("DIVIDE_BY_ZERO"))
    with pytest.raises(type(make_spark_error()), match="DIVIDE_BY_ZERO"):
        HistoryLog.of("main.shop.orders", "/t", {}).look(spark, 6)
