"""What the DLQ keeps of a nacked row, and how the row is read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from destinations.capabilities import find_read_back
from destinations.conformance import make_label
from destinations.dead_letters import DeadLetters, ensure_dlq, make_dlq_schema, read_dead_letters
from destinations.delta import Delta
from destinations.delta.delta import OpenDelta
from destinations.destination import Destination, DestinationError
from destinations.discard import Discard
from destinations.files import Files
from destinations.labels import Label
from origins.batch import Batch
from origins.batch_rows import FrameRows, TableRows
from origins.nack import DLQ_COLUMNS, NACK
from tests.destinations.files.test_files import InAStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROW = {"id": 7, "amount": "sieben"}
NACK_OF_ROW = (
    "cast",
    None,
    "CAST",
    "'sieben' is not a decimal",
    json.dumps(ROW),
    "{row}",
    '{"raw": [1, null]}',
    "{raw}",
)


_REFUSED = f"nack {NACK}, part string, position bigint"


@pytest.fixture
def dlq(spark: SparkSession, tmp_path: Path) -> OpenDelta:
    """The table of the DLQ that a pipeline has by default."""
    table = Delta(path=str(tmp_path / "dlq"), name="dlq").open()
    table.ensure_place(spark, make_dlq_schema())
    return table


def make_refused(spark: SparkSession, positions: Sequence[int]) -> DataFrame:
    """Return refused rows of a batch at these positions."""
    rows = [(NACK_OF_ROW, "orders.json", position) for position in positions]
    return spark.createDataFrame(rows, _REFUSED)


def make_letters(refused: DataFrame, batch: Batch, **how: Any) -> DeadLetters:
    """Return the DLQ's rows for these refused rows."""
    return DeadLetters(refused=FrameRows(refused), batch=batch, **{"original": True, **how})


def put_refused(spark: SparkSession, dlq: OpenDelta, positions: Sequence[int], **batch: Any) -> Batch:
    """Put rows of a batch into the DLQ."""
    mine = make_label(**batch)
    dlq.write(spark, make_letters(make_refused(spark, positions), mine.batch), [mine])
    return mine.batch


def make_tricky_letters(spark: SparkSession, labels: Sequence[Label]) -> list[DataFrame]:
    """Return a frame for each batch with two refused rows: one with all values, and one with NULLs and empty values."""
    text, at = 'a "quote", a\nline\r\u2028 \\ \t€😀 ', datetime(2026, 1, 31, 6, 0, 0, 123_456, timezone.utc)
    frames = []
    for label in labels:
        batch = label.batch
        first = (batch.pipeline, "orders", batch.lane, batch.number, batch.plan, batch.run)
        whole = (*("cast", "latest", ["a", "b,c"], "CAST"), *[text] * 6, 1, at, "hash", "p/1")
        empty: tuple[Any, ...] = (*("", None, [], "CAST", None, "", "{}", None, None, None), 2, at, "", None)
        rows = [(f"{batch.plan}/{number}", *first, *rest) for number, rest in enumerate((whole, empty), 1)]
        frames.append(spark.createDataFrame(rows, make_dlq_schema()))
    return frames


def check_read_back(spark: SparkSession, fallback: Destination) -> None:
    """Check that the fallback returns the rows of the given batches unchanged.

    It may return rows of other batches if they name their batch.
    """
    labels = [make_label(number=number) for number in (1, 2, 3)]
    opened, frames = fallback.open(), make_tricky_letters(spark, labels)
    opened.ensure_place(spark, make_dlq_schema())
    for label, frame in zip(labels, frames, strict=True):
        opened.write(spark, FrameRows(frame), [label])
    read_back = find_read_back(fallback)
    assert read_back is not None
    found = read_back(spark, labels[1:], make_dlq_schema())
    assert found.schema.names == make_dlq_schema().names
    mine = found.where(found["plan"] != labels[0].batch.plan).sort("number", "position").collect()
    assert mine == [row for frame in frames[1:] for row in frame.collect()]


@pytest.mark.parametrize("kind", ["delta", "unpublished", "with a pattern in its name"])
def test_a_fallback_returns_refused_rows_unchanged(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """This holds for all types, NULL, empty text, and the microseconds of times."""
    path = str(tmp_path / "refused")
    kinds: dict[str, Destination] = {
        "delta": Delta(path=path),
        "unpublished": InAStore(path=path, format="json"),
        "with a pattern in its name": Files(path=f"{path} [1]{{2}}*"),
    }
    check_read_back(spark, kinds[kind])


@pytest.mark.parametrize("kind", [Files, InAStore])
def test_a_fallback_that_lost_a_batch_returns_the_others(
    spark: SparkSession, tmp_path: Path, kind: type[Files]
) -> None:
    """A merge can then name the lost batch, and bring back the others."""
    fallback = kind(path=str(tmp_path / "refused"))
    labels = [make_label(number=number) for number in (1, 2)]
    opened, frames = fallback.open(), make_tricky_letters(spark, labels)
    opened.ensure_place(spark, make_dlq_schema())
    opened.write(spark, FrameRows(frames[1]), [labels[1]])
    read_back = find_read_back(fallback)
    assert read_back is not None
    assert read_back(spark, labels, make_dlq_schema()).count() == 2
    assert read_back(spark, labels[:1], make_dlq_schema()).count() == 0


def refuse_spark() -> NoReturn:
    """Raise, since the tested call must not ask for Spark."""
    raise AssertionError("asked for Spark")


def test_the_schema_equals_that_of_the_rows(spark: SparkSession) -> None:
    """The table is made with exactly the columns of the rows."""
    rows = make_letters(make_refused(spark, [1]), make_label().batch).frame()
    assert [(field.name, field.dataType) for field in rows.schema] == [(f.name, f.dataType) for f in make_dlq_schema()]
    assert ", ".join(f"{name} {kind}" for name, kind in rows.dtypes) == DLQ_COLUMNS


@pytest.mark.promise("DQ-02", "DQ-10", "DQ-11", "CD-14")
def test_a_row_records_what_was_refused_and_why(spark: SparkSession) -> None:
    """It has the row before the stage, the row as read, their schemas, the batch, the position and the reason."""
    batch = make_label(number=412, lane="3").batch
    (row,) = make_letters(make_refused(spark, [31]), batch).frame().drop("nacked_at").collect()
    assert row.asDict() == {
        "id": f"{batch.plan}/31",
        "pipeline": "conformance",
        "origin": "origin",
        "lane": "3",
        "number": 412,
        "plan": batch.plan,
        "run": "run",
        "stage": "cast",
        "destination": None,
        "delivered_to": [],
        "code": "CAST",
        "message": "'sieben' is not a decimal",
        "row": json.dumps(ROW),
        "row_schema": "{row}",
        "original": '{"raw": [1, null]}',
        "original_schema": "{raw}",
        "part": "orders.json",
        "position": 31,
        "definition": "",
        "replays": None,
    }


@pytest.mark.parametrize(("original", "replayed"), [(True, ()), (False, ("x/1", "x/2"))])
def test_few_rows_are_built_equally_without_spark(
    spark: SparkSession, original: bool, replayed: tuple[str, ...]
) -> None:
    """Every column has the same values and types, with omitted originals, replays and secrets."""
    batch = make_label(number=412, lane="3").batch
    how: dict[str, Any] = {"original": original, "replayed": replayed}
    secrets = {"sieben": "${secret:SEVEN}", "is not": "${secret:IS}", "'sieben' is": "${secret:LONG}"}
    frame = make_refused(spark, [3, 1])
    here = DeadLetters(refused=TableRows(spark, frame.toArrow()), batch=batch, secrets=secrets, **how)
    table, expected = here.table(), make_letters(frame, batch, secrets=secrets, **how).frame()
    assert table is not None
    few = table.drop_columns("nacked_at")
    assert few.to_pylist() == [row.asDict() for row in expected.drop("nacked_at").collect()]
    assert few.schema.types == expected.drop("nacked_at").toArrow().schema.types


def test_the_original_row_can_be_left_out(spark: SparkSession) -> None:
    """It may contain data that must not be kept."""
    (row,) = make_letters(make_refused(spark, [1]), make_label().batch, original=False).frame().collect()
    assert (row["original"], row["original_schema"]) == (None, None)
    assert row["row"] == json.dumps(ROW)


def test_a_message_contains_no_secret(spark: SparkSession) -> None:
    """This also holds for a secret that begins like another secret. The row is kept unchanged."""
    refused = spark.createDataFrame([(("s", None, "C", "no k1 nor k1x", "k1", "", "k1", ""), "", 1)], _REFUSED)
    secrets = {"k1": "${secret:A}", "k1x": "${secret:B}"}
    (row,) = make_letters(refused, make_label().batch, secrets=secrets).frame().collect()
    assert (row["message"], row["row"]) == ("no ${secret:A} nor ${secret:B}", "k1")


def test_the_read_row_has_the_fields_for_a_user(spark: SparkSession, dlq: OpenDelta) -> None:
    """The payloads are values again, and the result can be written as JSON."""
    batch = put_refused(spark, dlq, [31], number=412, lane="3")
    (shown,) = read_dead_letters(dlq.destination, refuse_spark)
    nacked_at = shown.pop("nacked_at")
    assert json.loads(json.dumps(shown)) == {
        "id": f"{batch.plan}/31",
        "lane": "3",
        "number": 412,
        "run": "run",
        "stage": "cast",
        "destination": None,
        "delivered_to": [],
        "code": "CAST",
        "message": "'sieben' is not a decimal",
        "row": ROW,
        "original": {"raw": [1, None]},
        "part": "orders.json",
        "replays": None,
        "replayed": False,
        "discarded": False,
    }
    assert nacked_at.endswith("+00:00")


@pytest.mark.promise("DQ-03")
def test_the_newest_rows_come_last(spark: SparkSession, dlq: OpenDelta) -> None:
    """Batches are ordered by the time of the nack, and rows of a batch by their position."""
    first = put_refused(spark, dlq, [10, 9], number=2, lane="b")
    second = put_refused(spark, dlq, [1], number=1, lane="a")
    ids = [f"{first.plan}/9", f"{first.plan}/10", f"{second.plan}/1"]
    assert [shown["id"] for shown in read_dead_letters(dlq.destination, refuse_spark)] == ids
    assert [shown["id"] for shown in read_dead_letters(dlq.destination, refuse_spark, limit=2)] == ids[1:]
    assert read_dead_letters(dlq.destination, refuse_spark, limit=0) == []


def test_spark_reads_the_same_rows_as_the_folder(
    spark: SparkSession, dlq: OpenDelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DLQ on another machine is read with the same result."""
    put_refused(spark, dlq, [3, 1, 2])
    here = read_dead_letters(dlq.destination, refuse_spark, limit=2)
    monkeypatch.setattr(Delta, "folder", None)
    assert read_dead_letters(dlq.destination, lambda: spark, limit=2) == here
    assert len(read_dead_letters(dlq.destination, lambda: spark)) == 3


def test_the_folder_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """If `deltalake` cannot open the folder, Spark reads it."""
    dlq = Delta(path=str(tmp_path / "50%41 b#ü")).open()
    dlq.ensure_place(spark, make_dlq_schema())
    put_refused(spark, dlq, [1])
    assert len(read_dead_letters(dlq.destination, lambda: spark)) == 1


def test_a_dlq_without_a_table_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    """There is no table before the first run."""
    assert read_dead_letters(Delta(path=str(tmp_path / "dlq")), lambda: spark) == []


def test_a_dlq_of_an_earlier_version_gets_the_missing_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Until then they are read as NULL."""
    dlq = Delta(path=str(tmp_path / "dlq"), name="dlq").open()
    older = [column for column in DLQ_COLUMNS.split(", ") if not column.startswith("replays ")]
    spark.sql(f"create table {dlq.destination.sql_name} ({', '.join(older)}) using delta")
    spark.sql(
        f"insert into {dlq.destination.sql_name} (id, `row`, nacked_at) values ('p/1', '{{}}', timestamp '2026-01-01')"
    )
    assert [row["replays"] for row in read_dead_letters(dlq.destination, refuse_spark)] == [None]
    ensure_dlq(dlq, spark)
    put_refused(spark, dlq, [1])
    assert [row["replays"] for row in read_dead_letters(dlq.destination, refuse_spark)] == [None, None]
    assert "replays" in spark.table(dlq.destination.sql_name).columns


def test_a_dlq_that_is_not_a_table_cannot_be_read() -> None:
    """The error names the destination of the DLQ."""
    with pytest.raises(DestinationError, match="The DLQ keeps refused rows in discard"):
        read_dead_letters(Discard(), refuse_spark)
