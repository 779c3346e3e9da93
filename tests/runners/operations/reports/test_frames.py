"""A report, a preview and refused rows as Spark DataFrames, for the `display` of a notebook."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.dlq import Dlq
from destinations.memory import Memory
from origins.memory import Memory as Rows
from runners.model.run_report import Report
from runners.operations.notebook_tables import RefusedRowList
from runners.operations.preview import Preview
from runners.pipeline import Pipeline
from stages.cast import Cast
from tests.runners.running.letterbox import append_letters, make_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [{"id": 1, "amount": "1.5"}, {"id": 2, "amount": "x"}]


class Session:
    """A session that returns the rows and the columns of a frame by name."""

    def createDataFrame(self, rows: list[tuple[object, ...]], columns: str) -> list[dict[str, object]]:  # noqa: N802
        names = [column.split(" ")[0] for column in columns.split(", ")]
        return [dict(zip(names, row, strict=True)) for row in rows]


def test_a_refused_row_is_a_row(tmp_path: Path) -> None:
    """Its time is a moment, and the row that was refused is JSON."""
    made = Pipeline(
        name="orders", origin=Rows(schema="id long"), destinations=[Memory()], state=str(tmp_path / "state")
    )
    append_letters(tmp_path / "state" / "dlq", make_letters(1, run="a", part="landing/a.json"))
    session: Any = Session()
    rows: Any = made.refused.list().to_frame(session)
    (row,) = rows
    assert row == {
        "state": "waiting",
        "nacked_at": datetime(2026, 1, 1, 12, 1, tzinfo=timezone.utc),
        "stage": "cast",
        "destination": None,
        "code": "CAST",
        "message": "no",
        "part": "landing/a.json",
        "lane": "0",
        "number": 1,
        "run": "a",
        "id": "p/1",
        "row": '{"id": 7}',
    }


def test_a_run_without_batches_is_one_row() -> None:
    """Its destination and counts are NULL."""
    report = Report(pipeline="orders", run="r", status="succeeded", seconds=1.5)
    (row,) = report.to_frame(Session())
    known = {"pipeline": "orders", "run": "r", "status": "succeeded", "batches": 0, "seconds": 1.5}
    assert {name: value for name, value in row.items() if value is not None} == known


@pytest.mark.spark
@pytest.mark.connect
def test_spark_takes_the_frames_of_a_run(spark: SparkSession, tmp_path: Path) -> None:
    """They can be sorted and filtered like any frame."""
    made = Pipeline(
        name="orders",
        origin=Rows(schema="id long, amount string", items=ROWS),
        stages=[Cast({"amount": "decimal(5,2)"})],
        destinations=[Memory(name="table")],
        dlq=Dlq(window=0),
        state=str(tmp_path / "state"),
    )
    seen = made.preview().to_frame(spark).filter("stage = 'cast'")
    assert [tuple(row) for row in seen.select("stage", "outcome", "code").orderBy("outcome").collect()] == [
        ("cast", "kept", None),
        ("cast", "refused", "CAST"),
    ]
    counts = made.run().to_frame(spark).select("destination", "read", "delivered", "nacked")
    assert [tuple(row) for row in counts.collect()] == [("table", 2, 1, 1)]
    refused = made.refused.list().to_frame(spark).filter("state = 'waiting'")
    assert [(row["code"], row["nacked_at"].year >= 2026) for row in refused.collect()] == [("CAST", True)]


@pytest.mark.spark
@pytest.mark.connect
def test_empty_results_have_the_same_columns(spark: SparkSession) -> None:
    """A notebook that shows them works also when nothing waits."""
    shown = [RefusedRowList().to_frame(spark), Preview(pipeline="orders", batches=()).to_frame(spark)]
    assert [frame.collect() for frame in shown] == [[], []]
    kinds = [dict(frame.dtypes) for frame in shown]
    assert [(each["number"], each["row"]) for each in kinds] == [("bigint", "string")] * 2
    assert kinds[0]["nacked_at"] == "timestamp"
