"""Appends to a table in S3 whose files Spark writes. It prints the results as JSON.

python -m tests.destinations.delta.staged_appends ENDPOINT BUCKET
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from destinations.conformance import make_label
from destinations.delta.delta import Delta, OpenDelta
from destinations.delta.direct_append import DirectTable
from destinations.delta.store_commit import StorePlace
from destinations.delta.versions import format_key
from destinations.delta.writers import WRITERS, FileAppend, PendingAppend, SparkAppend
from destinations.destination import Written
from destinations.labels import Deadline
from origins.batch_rows import FrameRows
from origins.crash_points import watch_points
from origins.object_store import ObjectStore
from origins.store_access import StoreUrl
from tests.destinations.delta.writers_conformance import cut_moments, make_rows
from tests.stores import jars
from tests.stores.s3 import make_spark_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Appends:
    """The cases, each with a separate table."""

    def __init__(self, spark: SparkSession, endpoint: str, bucket: str) -> None:
        self.spark, self.bucket, self.settings = spark, bucket, make_spark_settings(endpoint)

    def place(self, name: str) -> StoreUrl:
        return StoreUrl(f"s3a://{self.bucket}/{name}", self.settings)

    def open(self, name: str, frame: DataFrame) -> OpenDelta:
        opened = Delta(path=self.place(name)).open()
        opened.ensure_place(self.spark, frame.schema)
        return opened

    def append(self, name: str, frame: DataFrame, deadline: Deadline | None = None) -> PendingAppend:
        table = self.open(name, frame).find_table(self.spark)
        assert table is not None
        labels = [replace(make_label(), deadline=deadline)]
        return PendingAppend(spark=self.spark, table=table, rows=FrameRows(frame), labels=labels)

    def list_keys(self, name: str) -> list[str]:
        """Return the keys of a table outside its log, without the folder markers that Spark leaves."""
        pages = ObjectStore(self.place(name)).list_pages()
        keys = (key for page in pages for key in page)
        return sorted(key for key in keys if not key.startswith("_") and not key.endswith("_staged_commits"))

    def write(self, append: PendingAppend) -> Written | None:
        """Write the append, and close its table."""
        try:
            return FileAppend().write(append)
        finally:
            append.table.close()

    def read_adds(self, name: str, version: int) -> list[Mapping[str, Any]]:
        content = ObjectStore(self.place(name)).read(format_key(version)).decode()
        return [json.loads(line)["add"] for line in content.splitlines() if line.startswith('{"add"')]

    def writes(self) -> Any:
        """The table has the given rows, and its log has the statistics of Spark's commit.

        Moments are compared by milliseconds.
        """
        frame = make_rows(self.spark, 4)
        append, sparks = self.append("ours", frame), self.append("sparks", frame)
        chosen = next(writer for writer in WRITERS if writer.can_take(append))
        written = self.write(append)
        SparkAppend().write(sparks)
        there = self.spark.table(Delta(path=self.place("ours")).sql_name)
        stats = [
            [
                {key: value for key, value in json.loads(cut_moments(each["stats"])).items() if key != "tightBounds"}
                for each in adds
            ]
            for adds in (self.read_adds("ours", 1), self.read_adds("sparks", 1))
        ]
        return {
            "chosen": type(chosen).__name__,
            "rows": written.rows if written else None,
            "version": written.version if written else None,
            "same": there.exceptAll(frame).isEmpty() and there.count() == 4,
            "stats": stats[0] == stats[1],
            "logs": [key for key in self.list_keys("ours") if "_delta_log" in key],
            "files": len(self.list_keys("ours")),
        }

    def spelling(self) -> Any:
        """The columns have another order and another spelling."""
        self.open("spelling", self.spark.range(1).selectExpr("id AS Id", "'x' AS Name"))
        self.write(self.append("spelling", self.spark.range(1).selectExpr("'x' AS name", "id AS ID")))
        return [row.asDict() for row in self.spark.table(Delta(path=self.place("spelling")).sql_name).collect()]

    def several(self) -> Any:
        """A run writes several batches, some of them at the same time."""
        first = self.append("several", make_rows(self.spark, 1))
        appends = [first, *(replace(first, rows=FrameRows(make_rows(self.spark, count))) for count in (2, 3, 4))]
        for append in appends:
            assert append.direct is not None
        with ThreadPoolExecutor(2) as pool:
            written = list(pool.map(FileAppend().write, appends))
        first.table.close()
        rows = [each.rows for each in written if each is not None]
        return [rows, self.spark.table(first.table.name).count(), len(self.list_keys("several"))]

    def nothing(self) -> Any:
        """There are no rows."""
        written = self.write(self.append("nothing", make_rows(self.spark, 4).where("id > 9")))
        return [written.rows if written else None, self.list_keys("nothing")]

    def raises(self) -> Any:
        """A stage refuses a row while it is written."""
        frame = self.spark.range(4).selectExpr("if(id = 2, raise_error('no'), id) AS id")
        return self.fails("raises", self.append("raises", frame))

    def late(self) -> Any:
        """The lease has ended."""
        late = Deadline(left=lambda: -1.0)
        return self.fails("late", self.append("late", make_rows(self.spark, 4), late))

    def fenced(self) -> Any:
        """Another run has fenced the table before the commit."""
        append = self.append("fenced", make_rows(self.spark, 4))
        place = StorePlace(self.place("fenced"))
        other = DirectTable(place, append.table.id)

        def fence(point: str, of: str, rows: object) -> object:
            other.mark({"wherry.fence": point})
            return rows

        with watch_points(fence):
            error, _ = self.fails("fenced", append)
        return [error, self.spark.table(append.table.name).count()]

    def partitioned(self) -> Any:
        """The table demands more than files."""
        name = Delta(path=self.place("partitioned")).sql_name
        self.spark.sql(f"CREATE TABLE {name} (id bigint, text string) USING delta PARTITIONED BY (text)").collect()
        frame = make_rows(self.spark, 4).select("id", "text")
        return FileAppend().can_take(self.append("partitioned", frame))

    def fails(self, name: str, append: PendingAppend) -> tuple[str, list[str]]:
        """Return the type of the error that a write raises, and the keys that it leaves."""
        try:
            self.write(append)
        except Exception as error:
            return type(error).__name__, self.list_keys(name)
        return "", self.list_keys(name)


CASES: tuple[Callable[[Appends], Any], ...] = (
    Appends.writes,
    Appends.spelling,
    Appends.several,
    Appends.nothing,
    Appends.raises,
    Appends.late,
    Appends.fenced,
    Appends.partitioned,
)


def main(endpoint: str, bucket: str) -> None:
    """Run each case."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")
    settings = {**jars.make_spark_settings(), **make_spark_settings(endpoint)}
    for key, value in {**settings, "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}.items():
        builder = builder.config(key, value)
    appends = Appends(builder.getOrCreate(), endpoint, bucket)
    sys.stdout.write(json.dumps({case.__name__: case(appends) for case in CASES}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
