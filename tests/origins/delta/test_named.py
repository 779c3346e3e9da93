"""The origin `delta` reads a table by its name only, as on Databricks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from origins.batch import JSON, Limits, Span
from origins.conformance import OriginConformance
from origins.delta import Delta, DeltaBacklog
from origins.delta_table import read_offset
from origins.dlq import DlqEntries
from origins.errors import OriginError
from origins.origin import Origin, Progress
from tests.origins.delta.test_delta import make_batch, map_labels, plan_batches, read_ids
from tests.runners.running.letterbox import append_letters, make_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.databricks.proxy import DatabricksProxy

pytestmark = pytest.mark.spark

RUNTIME = "DATABRICKS_RUNTIME_VERSION"
FEED, TRACKING = "'delta.enableChangeDataFeed' = 'true'", "'delta.enableRowTracking' = 'true'"
WAYS = {"files": "", "feed": FEED, "commits": TRACKING}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table in a catalog."""

    spark: SparkSession
    name: str

    def run(self, *statements: str) -> None:
        """Run statements about the table `{t}`."""
        for statement in statements:
            self.spark.sql(statement.format(t=self.name)).collect()

    def append(self, *ids: int) -> None:
        """Add a version with these rows."""
        self.run("INSERT INTO {t} VALUES " + ", ".join(f"({each}, 'n{each}')" for each in ids))

    @property
    def folder(self) -> Path:
        """Where its files are on this machine."""
        found = self.spark.sql(f"DESCRIBE DETAIL {self.name}").select("location").collect()[0][0]
        return Path(str(found).removeprefix("file:"))


def create_table(spark: SparkSession, name: str, properties: str = "") -> Table:
    """Create an empty table, whose version is 0."""
    schema = name.partition(".")[0]
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}").collect()
    spark.sql(f"DROP TABLE IF EXISTS {name}").collect()
    beside = f" TBLPROPERTIES ({properties})" if properties else ""
    spark.sql(f"CREATE TABLE {name} (id long, note string) USING delta{beside}").collect()
    return Table(spark=spark, name=name)


@pytest.fixture
def on_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be one of Databricks."""
    monkeypatch.setenv(RUNTIME, "17.3")


@pytest.fixture(params=WAYS)
def table(request: pytest.FixtureRequest, spark: SparkSession, on_databricks: None) -> Table:
    """A table without rows, of each kind."""
    return create_table(spark, "named.orders", WAYS[request.param])


@pytest.fixture
def plain(spark: SparkSession, on_databricks: None) -> Table:
    """A table without rows, feed and row tracking."""
    return create_table(spark, "named.plain")


@pytest.fixture
def remote(serverless: DatabricksProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """Provide a session that refuses the paths of managed tables."""
    from pyspark.sql.connect.session import SparkSession as Remote

    monkeypatch.setenv(RUNTIME, "client.4.9")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # another test may have started a classic Spark
    session = Remote(serverless.address)
    yield cast("SparkSession", session)
    session.client.close()


def end_at(delta: Delta, spark: SparkSession, version: int) -> JSON:
    """Return the offset after a version."""
    return cast("JSON", delta.survey(spark, Progress()).table.make_offset(version))


def find_refusal(spark: SparkSession, delta: Delta, offset: JSON, says: str) -> OriginError:
    """Return the error of a look after an offset."""
    with pytest.raises(OriginError, match=says) as error:
        delta.survey(spark, Progress(offsets={"0": offset}))
    return error.value


@pytest.mark.connect
class TestAdded:
    """The rows that were added."""

    @pytest.mark.promise("X7")
    def test_each_added_row_is_read_once(self, spark: SparkSession, table: Table) -> None:
        """Two versions are one batch. Equal rows are different rows, and rows that OPTIMIZE moves are no new ones."""
        delta = Delta(table=table.name)
        table.append(0, 1)
        table.append(1, 2)
        assert map_labels(plan_batches(spark, delta)) == {"versions 1 to 2": [0, 1, 1, 2]}
        offset = plan_batches(spark, delta)[-1][0].end
        table.append(1, 3)
        table.run("OPTIMIZE {t}")
        table.append(1, 4)
        table.append(5)
        found = plan_batches(spark, delta, offset=offset)
        assert sorted(each for _, ids in found for each in ids) == [1, 1, 3, 4, 5]
        assert [len(span.parts) for span, _ in found] == [1] * len(found)
        last = found[-1][0].end
        assert read_offset(last)[0] == 6
        assert plan_batches(spark, delta, offset=last) == []
        assert delta.stands(spark, {"0": last})

    def test_a_batch_reads_the_same_after_later_versions(self, spark: SparkSession, table: Table) -> None:
        """Later appends, a rewrite and OPTIMIZE change nothing."""
        delta = Delta(table=table.name)
        table.append(0)
        table.append(1)
        backlog = delta.survey(spark, Progress(offsets={"0": end_at(delta, spark, 1)}))
        span = backlog.take("0", end_at(delta, spark, 1), Limits())
        assert span is not None
        table.append(1)
        table.run("UPDATE {t} SET note = 'x' WHERE id = 0", "OPTIMIZE {t}", "DELETE FROM {t} WHERE id = 1")
        assert read_ids(spark, delta, span, backlog.columns) == [1]

    def test_limits_count_what_the_history_counts(self, spark: SparkSession, plain: Table) -> None:
        """Rows and bytes of each version are in its metrics."""
        for ids in ((0, 1), (2,), (3, 4, 5)):
            plain.append(*ids)
        backlog = Delta(table=plain.name).survey(spark, Progress())
        apart = ["version 1", "version 2", "version 3"]
        for limits, batches in ((Limits(rows=3), ["versions 1 to 2", "version 3"]), (Limits(bytes=1), apart)):
            start, found = None, []
            while span := backlog.take("0", start, limits):
                found.append(span.label)
                start = span.end
            assert found == batches, limits

    def test_a_new_column_is_null_in_earlier_rows(self, spark: SparkSession, plain: Table) -> None:
        """Rows from before and after it are one batch, unless they are found in different ways."""
        delta = Delta(table=plain.name)
        plain.append(0)
        plain.run("ALTER TABLE {t} ADD COLUMN (later int)", "INSERT INTO {t} VALUES (1, 'n', 7)")
        backlog, rows, start = delta.survey(spark, Progress()), [], None
        while span := backlog.take("0", start, Limits()):
            rows += delta.fetch(spark, [make_batch(span, backlog.columns)]).frame().collect()
            start = span.end
        assert sorted((row.id, row.later) for row in rows) == [(0, None), (1, 7)]

    @pytest.mark.parametrize("end", [True, False])
    def test_a_feed_that_comes_or_goes_loses_no_row(self, spark: SparkSession, plain: Table, end: bool) -> None:
        """The rows of each version are found in a way that holds for it."""
        delta = Delta(table=plain.name)
        if end:
            plain.run(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FEED})")
        plain.append(0)
        plain.run(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{str(not end).lower()}')")
        plain.append(0)
        plain.append(1)
        assert sorted(each for _, ids in plan_batches(spark, delta) for each in ids) == [0, 0, 1]


@pytest.mark.connect
class TestRewritten:
    """Versions that changed or removed rows."""

    def test_deletes_are_ignored(self, spark: SparkSession, table: Table) -> None:
        """Rows of the span that were deleted later are read. An update stops the run."""
        delta = Delta(table=table.name, on_rewrite="ignore_deletes")
        table.append(0, 1)
        offset = end_at(delta, spark, 1)
        table.append(2, 3)
        table.run("DELETE FROM {t} WHERE id IN (0, 2)")
        table.append(4)
        found = plan_batches(spark, delta, offset=offset)
        assert [ids for _, ids in found] == [[2, 3], [4]]
        (notice,) = delta.survey(spark, Progress(offsets={"0": offset})).notices
        assert "1 version with rows: 3 (DELETE, 2 rows)" in notice
        table.run("UPDATE {t} SET note = 'x' WHERE id = 1")
        find_refusal(spark, delta, offset, r"Version 5 \(UPDATE, 1 row\)")

    def test_changes_are_those_of_the_feed(self, spark: SparkSession, plain: Table) -> None:
        """`changes: true` needs no other source."""
        plain.run(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FEED})")
        plain.append(0)
        plain.append(1)
        delta = Delta(table=plain.name, changes=True)
        backlog = delta.survey(spark, Progress())
        first = backlog.take("0", None, Limits())
        assert first is not None
        assert read_ids(spark, delta, first, backlog.columns) == [0, 1]
        plain.run("UPDATE {t} SET note = 'x' WHERE id = 0", "DELETE FROM {t} WHERE id = 1")
        plain.append(2)
        backlog = delta.survey(spark, Progress(offsets={"0": first.end}))
        span = backlog.take("0", first.end, Limits())
        assert span is not None
        rows = delta.fetch(spark, [make_batch(span, backlog.columns)], places=True).frame().collect()
        kinds = [(row._commit_version, row._change_type, row.id) for row in rows]
        assert sorted(kinds) == [(4, "update_postimage", 0), (5, "delete", 1), (6, "insert", 2)]


@pytest.mark.connect
class TestIdentity:
    """Which table it is, and which of its versions are there."""

    def test_a_table_that_was_made_again_is_an_error(self, spark: SparkSession, plain: Table) -> None:
        """The offset knows the id of its table, and so does each batch."""
        delta = Delta(table=plain.name)
        plain.append(0)
        backlog = delta.survey(spark, Progress())
        span = backlog.take("0", None, Limits())
        assert span is not None
        plain.run("CREATE OR REPLACE TABLE {t} (id long, note string) USING delta")
        plain.append(7)
        plain.append(8)
        find_refusal(spark, delta, span.end, "is not the table that was read before")
        with pytest.raises(OriginError, match="is not the table that was read before"):
            delta.fetch(spark, [make_batch(span, backlog.columns)]).frame()

    def test_versions_that_the_history_lacks_are_an_error(self, spark: SparkSession, on_databricks: None) -> None:
        """The missing versions may have added rows. An offset beyond the newest version was set by hand."""
        plain = create_table(spark, "named.short", "'delta.checkpointInterval' = '5'")
        delta = Delta(table=plain.name)
        plain.append(0)
        offset = end_at(delta, spark, 0)
        find_refusal(spark, delta, end_at(delta, spark, 9), "has no version 9; its newest is 1")
        for each in range(10):
            plain.append(each)
        for version in range(4):
            (plain.folder / "_delta_log" / f"{version:020}.json").unlink()
        error = find_refusal(spark, delta, offset, "no longer has version 1; it begins with version 4")
        assert "This skips 3 versions, 1 to 3, which are no longer in the log" in error.hint

    def test_a_version_that_cannot_be_read_any_more_is_an_error(self, spark: SparkSession, plain: Table) -> None:
        """The error says how to go on, and how it does not happen again."""
        delta = Delta(table=plain.name)
        for each in range(3):
            plain.append(each)
        offset = end_at(delta, spark, 2)
        backlog = delta.survey(spark, Progress(offsets={"0": offset}))
        span = backlog.take("0", offset, Limits())
        assert span is not None
        gone = replace(span, end=end_at(delta, spark, 9))
        with pytest.raises(OriginError, match=r"Spark cannot read the versions of named\.plain") as error:
            delta.fetch(spark, [make_batch(gone, backlog.columns)]).frame()
        assert "--from-beginning" in error.value.hint
        assert "delta.deletedFileRetentionDuration" in error.value.hint

    def test_changed_columns_end_a_run_that_follows(self, spark: SparkSession, plain: Table) -> None:
        """Also if a write added the column. No value is dropped without a message."""
        delta = Delta(table=plain.name)
        plain.append(0)
        backlog = delta.survey(spark, Progress())
        assert backlog.again(spark, {}) is backlog
        plain.append(1)
        backlog = cast("DeltaBacklog", backlog.again(spark, {}))
        rows = spark.sql("SELECT 2L AS id, 'n' AS note, 7 AS later")
        rows.write.format("delta").mode("append").option("mergeSchema", "true").saveAsTable(plain.name)
        with pytest.raises(OriginError, match=r"columns of .* changed in version 3"):
            backlog.again(spark, {})

    def test_the_state_of_an_older_version_goes_on(
        self, spark: SparkSession, plain: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its offset means the same, and its planned batch names files."""
        delta = Delta(table=plain.name)
        for each in range(3):
            plain.append(each)
        with monkeypatch.context() as before:
            before.delenv(RUNTIME)
            backlog = delta.survey(spark, Progress())
            first = backlog.take("0", None, Limits(rows=2))
            assert first is not None
            assert all(str(part[0]).endswith(".parquet") for part in cast("Any", first.parts))
        assert read_ids(spark, delta, first, backlog.columns) == [0, 1]
        assert map_labels(plan_batches(spark, delta, offset=first.end)) == {"version 3": [2]}


@pytest.mark.connect
def test_any_other_table_is_read_by_its_added_files(spark: SparkSession) -> None:
    """Files of other versions are not read."""
    table = create_table(spark, "named.other")
    table.append(0)
    older = {*table.folder.glob("*.parquet")}
    table.append(1)
    delta = Delta(table=table.name)
    ((span, _),) = plan_batches(spark, delta, offset=end_at(delta, spark, 1))
    for file in older:
        file.unlink()
    backlog = delta.survey(spark, Progress())
    assert read_ids(spark, delta, span, backlog.columns) == [1]


class TestManaged:
    """A managed table behind a server that refuses its paths."""

    @pytest.mark.parametrize("way", ["files", *(pytest.param(way, marks=pytest.mark.long) for way in [*WAYS][1:])])
    def test_no_path_is_read(self, remote: SparkSession, serverless: DatabricksProxy, way: str) -> None:
        """A look without news sends two statements. Nothing is refused."""
        table = create_table(remote, f"managed.{way}", WAYS[way])
        table.append(0, 1)
        table.append(2)
        serverless.forget()
        delta = Delta(table=table.name)
        found = plan_batches(remote, delta)
        assert map_labels(found) == {"versions 1 to 2": [0, 1, 2]}
        table.append(3)
        more = plan_batches(remote, delta, offset=found[-1][0].end)
        assert map_labels(more) == {"version 3": [3]}
        serverless.statements.clear()
        assert plan_batches(remote, delta, offset=more[-1][0].end) == []
        sent = [each for each in serverless.statements if each.startswith("sql ")]
        assert [each.rpartition(" LIMIT")[0] or each for each in sent] == [
            f"sql DESCRIBE DETAIL {table.name}",
            f"sql DESCRIBE HISTORY {table.name}",
        ]
        assert serverless.refusals == []


class NamedConformance(OriginConformance):
    """Four versions of one row each in a table of a catalog."""

    def __init__(self, spark: SparkSession, properties: str) -> None:
        self.table = create_table(spark, "named.conformance", properties)
        self.append: Callable[[int], None] = self._write if properties != TRACKING else self.table.append
        self.folder = self.table.folder
        for number in range(4):
            self.append(number)

    def _write(self, number: int) -> None:
        write_deltalake(str(self.folder), pa.table({"id": [number], "note": ["x"]}), mode="append")

    def origin(self) -> Origin:
        return Delta(table=self.table.name)

    def more(self) -> None:
        self.append(4)


@pytest.mark.connect
@pytest.mark.parametrize("way", ["feed", *(pytest.param(way, marks=pytest.mark.long) for way in ("files", "commits"))])
@pytest.mark.parametrize(
    "check",
    [
        NamedConformance.test_batches_have_every_row_once_with_any_limits,
        NamedConformance.test_a_batch_survives_the_ledger,
        NamedConformance.test_the_next_run_continues_after_the_committed_rows,
        NamedConformance.test_every_row_has_a_unique_place,
    ],
)
def test_a_table_that_is_read_by_its_name_keeps_the_promises(
    spark: SparkSession, on_databricks: None, way: str, check: Callable[[OriginConformance, SparkSession], None]
) -> None:
    """This holds for each way in which its rows are found."""
    check(NamedConformance(spark, WAYS[way]), spark)


@pytest.mark.connect
def test_a_dlq_is_read_by_its_name(spark: SparkSession, tmp_path: Path, on_databricks: None) -> None:
    """Each entry is read once, in batches of one version."""
    for number in range(3):
        append_letters(tmp_path / "dlq", make_letters(1, plan=f"plan-{number}"))
    spark.sql("CREATE SCHEMA IF NOT EXISTS named").collect()
    spark.sql("DROP TABLE IF EXISTS named.dlq").collect()
    spark.sql(f"CREATE TABLE named.dlq USING delta LOCATION '{tmp_path / 'dlq'}'").collect()
    dlq = DlqEntries(table="named.dlq")
    backlog, start, found = dlq.survey(spark, Progress()), None, []
    columns = dlq.columns(spark, backlog) or ""
    while span := backlog.take("0", start, Limits(rows=1)):
        found.append([row.id for row in dlq.fetch(spark, [make_batch(span, columns)]).frame().collect()])
        start = span.end
    assert found == [["plan-0/1"], ["plan-1/1"], ["plan-2/1"]]


def test_a_span_is_named_by_its_versions() -> None:
    """A person does not know the table's files by their names."""
    span = Span(
        start=None, end={"version": 5, "table": "t"}, parts=(["", 9, 5, {"since": 3}],), label="versions 3 to 5"
    )
    assert Delta(table="a.b").name_source(span) == "versions 3 to 5"
