"""The origin `dlq`: which entries it reads, in which form, and how it handles changes of the DLQ."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from origins.batch import JSON, Batch, Limits, Span
from origins.dlq import DlqEntries
from origins.errors import OriginError
from origins.nack import DLQ_COLUMNS, RAW, REFUSED
from origins.origin import Progress
from tests.runners.running.letterbox import NOON, READ, append_letters, make_letters

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

spark_only = pytest.mark.spark


def put_refused(folder: Path, plan: str, *places: int, **columns: Any) -> None:
    """Put the refused rows of a batch into the DLQ, in one write with one time."""
    moment = NOON + timedelta(hours=len(list(folder.glob("_delta_log/*.json"))))
    append_letters(folder, make_letters(*places, **{"plan": plan, "nacked_at": moment, **columns}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A DLQ with the refused rows of three batches: two, one and one."""
    folder = tmp_path / "dlq"
    put_refused(folder, "a", 1, 2)
    put_refused(folder, "b", 1)
    put_refused(folder, "c", 4)
    return folder


def compact_dlq(folder: Path) -> None:
    """Compact the files of the DLQ, and delete the original files."""
    table = DeltaTable(str(folder))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def plan_spans(
    spark: SparkSession, origin: DlqEntries, offset: JSON = None, limits: Limits | None = None
) -> list[tuple[Span, str]]:
    """Return what waits after an offset, as spans with their schema."""
    backlog = origin.survey(spark, Progress(offsets={"0": offset} if offset else {}))
    schema, spans = origin.columns(spark, backlog), []
    while span := backlog.take("0", offset, limits or Limits()):
        assert schema is not None
        spans.append((span, schema))
        offset = span.end
    return spans


def fetch_rows(spark: SparkSession, origin: DlqEntries, span: Span, schema: str, *, places: bool = False) -> list[Row]:
    """Return the rows of a span."""
    time = datetime(2026, 1, 1, tzinfo=timezone.utc)
    batch = Batch(pipeline="p", run="r", origin="o", lane="0", number=1, plan="x", span=span, schema=schema, time=time)
    return origin.fetch(spark, [batch], places=places).frame().collect()


def read_all(spark: SparkSession, origin: DlqEntries, offset: JSON = None) -> list[Row]:
    """Return all rows after an offset."""
    return [
        row for span, schema in plan_spans(spark, origin, offset) for row in fetch_rows(spark, origin, span, schema)
    ]


def list_ids(rows: Sequence[Row]) -> list[str]:
    """Return the sorted ids, with duplicates."""
    return sorted(row["id"] for row in rows)


@spark_only
class TestWhatBecomesOfTheDlq:
    """An entry is read once, even if its file is rewritten or deleted."""

    @pytest.mark.connect
    def test_entries_are_read_once_even_if_their_files_are_compacted_and_vacuumed(
        self, spark: SparkSession, folder: Path
    ) -> None:
        """The compacted file has entries that were read and entries that were not."""
        origin = DlqEntries(path=str(folder))
        (first, schema), *_ = plan_spans(spark, origin, limits=Limits(rows=2))
        assert list_ids(fetch_rows(spark, origin, first, schema)) == ["a/1", "a/2"]
        compact_dlq(folder)
        put_refused(folder, "d", 1)
        compact_dlq(folder)
        assert list_ids(read_all(spark, origin, first.end)) == ["b/1", "c/4", "d/1"]

    def test_the_first_batch_of_a_compacted_dlq_does_not_grow(self, spark: SparkSession, folder: Path) -> None:
        """It has all entries of that time. Later entries are in the next batch."""
        compact_dlq(folder)
        origin = DlqEntries(path=str(folder))
        ((span, schema),) = plan_spans(spark, origin)
        put_refused(folder, "d", 1)
        compact_dlq(folder)
        assert list_ids(fetch_rows(spark, origin, span, schema)) == ["a/1", "a/2", "b/1", "c/4"]
        assert list_ids(read_all(spark, origin, span.end)) == ["d/1"]

    def test_a_log_without_its_first_versions_still_identifies_writes(self, spark: SparkSession, folder: Path) -> None:
        """The first batch begins at a version, and the log has all later versions."""
        origin = DlqEntries(path=str(folder), starting_version=1)
        ((span, schema),) = plan_spans(spark, origin)
        compact_dlq(folder)
        DeltaTable(str(folder)).create_checkpoint()
        (folder / "_delta_log" / f"{0:020}.json").unlink()
        assert list_ids(fetch_rows(spark, origin, span, schema)) == ["b/1", "c/4"]

    def test_two_writes_of_one_batch_are_distinguished(self, spark: SparkSession, folder: Path) -> None:
        """A batch that is decided again writes the missing rows under the same plan."""
        origin = DlqEntries(path=str(folder))
        ((span, schema),) = plan_spans(spark, origin)
        put_refused(folder, "a", 3)
        compact_dlq(folder)
        assert list_ids(fetch_rows(spark, origin, span, schema)) == ["a/1", "a/2", "b/1", "c/4"]
        assert list_ids(read_all(spark, origin, span.end)) == ["a/3"]

    def test_deleted_and_changed_entries_do_not_make_others_new(self, spark: SparkSession, folder: Path) -> None:
        """A replay deletes delivered entries, which rewrites the rest of their file. A user may mask values."""
        origin = DlqEntries(path=str(folder))
        ((span, _),) = plan_spans(spark, origin)
        spark.createDataFrame([("a/1",)], "id string").createOrReplaceTempView("gone")
        merge = "MERGE INTO delta.`{}` AS kept USING gone ON kept.id = gone.id WHEN MATCHED THEN DELETE"
        spark.sql(merge.format(folder)).collect()
        DeltaTable(str(folder)).delete("id = 'b/1'")
        spark.sql(f"UPDATE delta.`{folder}` SET message = 'masked' WHERE plan = 'a'").collect()
        put_refused(folder, "d", 1)
        assert list_ids(read_all(spark, origin, span.end)) == ["d/1"]

    def test_an_overwritten_dlq_is_an_error(self, spark: SparkSession, folder: Path) -> None:
        """The new entries cannot be identified. The error names the ways to continue."""
        origin = DlqEntries(path=str(folder))
        ((span, _),) = plan_spans(spark, origin)
        write_deltalake(folder, DeltaTable(str(folder)).to_pyarrow_table(), mode="overwrite")
        with pytest.raises(OriginError, match=r"cannot tell which of them are new(.|\n)*skip it:(.|\n)*start over:"):
            plan_spans(spark, origin, span.end)

    def test_columns_added_during_a_run_are_no_error(self, spark: SparkSession, folder: Path) -> None:
        """A newer version of Wherry may add columns. Older entries have NULL in known columns that they lack."""
        older = [name for name in DeltaTable(str(folder)).schema().to_arrow().names if name != "replays"]
        table = folder.parent / "older"
        write_deltalake(table, DeltaTable(str(folder)).to_pyarrow_table(columns=older))
        origin = DlqEntries(path=str(table))
        backlog = origin.survey(spark, Progress())
        span = backlog.take("0", None, Limits())
        assert span is not None
        columns = [Field("replays", PrimitiveType("string")), Field("later", PrimitiveType("string"))]
        DeltaTable(str(table)).alter.add_columns(columns)
        refuse_later = DeltaTable(str(folder)).to_pyarrow_table(filters=[("id", "=", "c/4")])
        write_deltalake(table, refuse_later, mode="append", schema_mode="merge")
        later = backlog.again(spark, {"0": span.end}).take("0", span.end, Limits())
        assert later is not None
        schema = origin.columns(spark, backlog) or ""
        assert {row["replays"] for row in fetch_rows(spark, origin, span, schema)} == {None}
        assert list_ids(fetch_rows(spark, origin, later, schema)) == ["c/4"]


@spark_only
class TestChoice:
    """The choice of entries."""

    def test_entries_are_chosen_by_stage_destination_and_code(self, spark: SparkSession, folder: Path) -> None:
        """All conditions must hold. For an option with several names one name is enough."""
        put_refused(folder, "s", 1, stage="lookup", code="LOOKUP")
        put_refused(folder, "o", 1, stage=None, destination="orders", code="CHECK")
        put_refused(folder, "r", 1, replays="a/1")
        choices: list[tuple[dict[str, Any], list[str]]] = [
            ({"code": ["LOOKUP", "CHECK"]}, ["o/1", "s/1"]),
            ({"stage": ["cast"], "refused_again": False}, ["a/1", "a/2", "b/1", "c/4"]),
            ({"destination": "orders"}, ["o/1"]),
            ({"destination": "orders", "code": "LOOKUP"}, []),
        ]
        for options, expected in choices:
            assert list_ids(read_all(spark, DlqEntries(path=str(folder), **options))) == expected, options


@spark_only
class TestRefusedRows:
    """The refused rows themselves."""

    def test_refused_rows_are_restored_with_their_types(self, spark: SparkSession, tmp_path: Path) -> None:
        """Their types are those of the origin, or those that the refusing stage got."""
        before = READ.replace('"id"', '"key"').replace("long", "decimal(9,2)")
        put_refused(tmp_path, "a", 1, original='{"id": 7}', row='{"key": 7.50}', row_schema=before)
        (row,) = read_all(spark, DlqEntries(path=str(tmp_path), rows="original"))
        assert (row["id"], row[REFUSED]) == (7, None)
        (row,) = read_all(spark, DlqEntries(path=str(tmp_path), rows="refused"))
        assert (str(row["key"]), row[REFUSED]) == ("7.50", None)

    @pytest.mark.connect
    def test_a_row_with_another_schema_is_converted_or_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        """No value is lost. A row that does not fit is refused with a message and its content."""
        text, more = (
            READ.replace("long", "string"),
            READ.replace('"fields":[', '"fields":[' + _make_column("note") + ","),
        )
        cases = [
            ("same", '{"id": 1}', READ),
            ("converted", '{"id": "2"}', text),
            ("no long", '{"id": "two"}', text),
            ("more", '{"note": "x", "id": 4}', more),
            ("more, but NULL", '{"note": null, "id": 5}', more),
            ("raw", '{"raw": "{rubbish"}', RAW),
            ("not kept", None, None),
        ]
        for name, row, schema in cases:
            put_refused(tmp_path, name, 1, original=row, original_schema=schema)
        found = read_all(spark, DlqEntries(path=str(tmp_path), rows="original", schema="id long"))
        good = sorted(row["id"] for row in found if row[REFUSED] is None)
        bad = {row[REFUSED]["message"]: row[REFUSED]["raw"] for row in found if row[REFUSED] is not None}
        assert good == [1, 2, 5]
        assert bad == {
            "column id: 'two' is not a bigint": '{"id": "two"}',
            "column note: is not in the schema of this origin": '{"note": "x", "id": 4}',
            "the other pipeline could not read this row": "{rubbish",
            "the DLQ does not keep this row as it was read": None,
        }

    def test_rows_with_several_schemas_need_a_choice(self, spark: SparkSession, folder: Path) -> None:
        """The error lists the schemas by stage. A choice of entries or a schema resolves it."""
        put_refused(
            folder, "d", 1, stage="lookup", original_schema=READ.replace("long", "string"), original='{"id": "x"}'
        )
        with pytest.raises(OriginError, match=r"have 2 schemas(.|\n)*cast:  id bigint(.|\n)*lookup:  id string"):
            plan_spans(spark, DlqEntries(path=str(folder), rows="original"))
        assert [
            row["id"] for row in read_all(spark, DlqEntries(path=str(folder), rows="original", stage="lookup"))
        ] == ["x"]
        every = read_all(spark, DlqEntries(path=str(folder), rows="original", schema={"id": "string"}))
        assert sorted(row["id"] for row in every) == ["7", "7", "7", "7", "x"]

    def test_a_dlq_without_original_rows_is_an_error(self, spark: SparkSession, tmp_path: Path) -> None:
        """The error names the other form."""
        put_refused(tmp_path, "a", 1, original=None, original_schema=None)
        with pytest.raises(OriginError, match=r"keeps no rows as they were read(.|\n)*rows: refused"):
            plan_spans(spark, DlqEntries(path=str(tmp_path), rows="original"))

    def test_an_empty_backlog_has_no_schema(self, spark: SparkSession, folder: Path) -> None:
        """The run then waits for the first refused row."""
        origin = DlqEntries(path=str(folder), rows="original", starting_version="latest")
        assert origin.columns(spark, origin.survey(spark, Progress())) is None


def _make_column(name: str) -> str:
    return json.dumps({"name": name, "type": "string", "nullable": True, "metadata": {}})


@spark_only
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, r"No DLQ was found at .*dlq(.|\n)*once that pipeline has run"),
        (lambda folder: write_deltalake(folder, pa.table({"id": ["x"]})), "not a DLQ: it has no column plan"),
    ],
)
def test_a_place_without_a_dlq_is_an_error(
    spark: SparkSession, tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    """The place is empty, or has another table."""
    make(tmp_path / "dlq")
    with pytest.raises(OriginError, match=words):
        DlqEntries(path=str(tmp_path / "dlq")).survey(spark, Progress())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "path: expected one of path, table"),
        ({"path": "dlq", "rows": "all"}, "rows: expected entries, refused or original, got 'all'"),
        ({"path": "dlq", "schema": "id long"}, "schema: expected with rows: refused or rows: original only"),
        ({"path": "dlq", "code": [""]}, r"code: expected one name or a list of names, got \[''\]"),
        ({"path": "dlq", "starting_version": -1}, "starting_version: expected beginning, latest or a version, got -1"),
        ({"path": "dlq", "lanes": 2}, "lanes: expected 1"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], words: str) -> None:
    """The error names the expected and the given value."""
    with pytest.raises(ValueError, match=words):
        DlqEntries(**options)


def test_entries_have_the_columns_of_a_dlq() -> None:
    """The table is not read for them."""
    fields = json.loads(DlqEntries(path="dlq").columns(None, None) or "")["fields"]  # type: ignore[arg-type]
    assert [field["name"] for field in fields] == [column.split(" ")[0] for column in DLQ_COLUMNS.split(", ")]
