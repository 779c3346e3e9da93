"""Makes the archive of classes for quick starts, with a Spark that reads and writes a few rows as a run does.

python -m runners.spark.make_archive FOLDER KEY MEMORY
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from origins.lazy import SparkSession
from origins.spark_private import end_jvm, launch_jvm
from runners.spark.quick_start import QuickStart, list_environment
from runners.spark.start import build_session, list_settings

_LINES = (
    '{"id": 1, "name": "a", "amount": "1.50", "at": "2026-01-01T00:00:00Z", "tags": ["x"]}\n'
    '{"id": 2, "name": null, "amount": "x", "at": "2026-01-01T00:00:00Z", "more": 1}\n'
)


def make_archive(quick: QuickStart, memory: str) -> None:
    """Make the archive, unless it exists or another process is making it."""
    os.nice(19)
    with quick.make_archive() as options:
        if options:
            _train(quick, memory, options)


def _train(quick: QuickStart, memory: str, options: list[str]) -> None:
    place = Path(tempfile.mkdtemp(prefix="wherry-archive-"))
    try:
        command = quick.build_command({"spark.driver.memory": memory}, options)
        with Path(os.devnull).open("wb") as noise:
            launch_jvm({}, contextlib.nullcontext(), noise.fileno(), command, list_environment())
        settings = list_settings({"spark.sql.warehouse.dir": str(place / "warehouse")})
        session = build_session(settings)
        _exercise_spark(session, place)
        session.stop()
        code = end_jvm()
        if code:
            raise RuntimeError(f"the JVM ended with {code}")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _exercise_spark(spark: SparkSession, place: Path) -> None:
    """Do what most pipelines ask of Spark."""
    (place / "rows.json").write_text(_LINES, encoding="utf-8")
    schema = "id long, name string, amount string, at timestamp, tags array<string>, _corrupt_record string"
    for _ in range(3):
        read = spark.read.schema(schema).json(str(place / "rows.json"))
        rows = read.selectExpr(
            "*",
            "_metadata.file_path as file",
            "try_cast(amount as decimal(10,2)) as value",
            "if(name is null, raise_error('none'), lower(trim(name))) as tidy",
            "monotonically_increasing_id() as place",
        )
        kept = rows.where("name is not null and id > 0").drop("_corrupt_record")
        kept.write.format("delta").mode("append").option("userMetadata", "a batch").save(str(place / "table"))
        kept.writeTo(f"delta.`{place / 'table'}`").append()
        kept.groupBy("tidy").count().orderBy("tidy").collect()
        kept.write.mode("append").parquet(str(place / "parquet"))
    table = spark.read.format("delta").load(str(place / "table"))
    table.selectExpr("count(*)", "max(value)").collect()
    table.distinct().createTempView("some")
    spark.sql(f"merge into delta.`{place / 'table'}` t using some s on t.id = s.id when matched then update set *")


if __name__ == "__main__":
    make_archive(QuickStart(Path(sys.argv[1]), sys.argv[2]), sys.argv[3])
