"""A driver of plain Spark: `python -m tests.cluster.plain_driver SETTINGS TABLE FOLDER`, with the settings as JSON.

It writes a Delta table and reads it, and asks the executors whether they see the folder. It prints the result as
JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any


def list_folder(folder: str) -> str:
    """Return the names in a folder, or `missing` if it does not exist."""
    import os

    return " ".join(sorted(os.listdir(folder))) if os.path.isdir(folder) else "missing"


def main(settings: str, table: str, folder: str) -> None:
    """Write, read, and print the result."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("plain")
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        spark.range(0, 1_000, 1, 4).write.format("delta").save(table)
        spark.range(1_000, 1_500, 1, 2).write.format("delta").mode("append").save(table)
        rows = spark.read.format("delta").load(table)

        def look(_: Iterator[Any]) -> Iterator[Any]:
            import pandas as pd

            yield pd.DataFrame({"seen": [list_folder(folder)]})

        seen = spark.range(0, 8, 1, 4).mapInPandas(look, "seen string").collect()
        found = {
            "rows": rows.count(),
            "sum": rows.groupBy().sum("id").collect()[0][0],
            "here": list_folder(folder),
            "there": sorted({row.seen for row in seen}),
            "master": spark.conf.get("spark.master"),
        }
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
