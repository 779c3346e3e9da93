"""Run the example notebook with only the features of serverless: `python -m tests.scenarios.on_serverless GIVEN`.

The script runs in the folder of the notebook, on the server in `SPARK_REMOTE`. It prints as JSON what the session
refuses and what the notebook did.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from runners.model.run_report import PipelineFailed
from tests.scenarios.cells import run_cells
from tests.serverless import lack_what_serverless_lacks


def main(given: dict[str, str]) -> None:
    """Try the missing features, run the notebook, and run it again with rows that fail."""
    lack_what_serverless_lacks()
    spark = SparkSession.builder.getOrCreate()
    tries: dict[str, Callable[[], object]] = {
        "sparkContext": lambda: spark.sparkContext,
        "persist": lambda: spark.range(1).persist(),
        "a JAR": lambda: spark.addArtifacts("some.jar"),
        "a static setting": lambda: spark.conf.set("spark.sql.extensions", "none"),
        "a relative path": lambda: spark.read.format("csv").load("landing"),
    }
    refused = [name for name, what in tries.items() if _is_refused(what)]
    spark.sql(f"create schema {given['SCHEMA']}")
    notebook = Path("notebook.py")
    preview, report, lanes, dead = run_cells(notebook, given)
    Path("landing", "late.csv").write_text("id,email,amount,at\n" + "1,a@b,x,\n" * 100)
    failed = ""
    try:
        run_cells(notebook, given)
    except PipelineFailed as error:
        failed = error.report.error.code if error.report.error else ""
    facts = {
        "refused": refused,
        "shown": [hasattr(each, "_repr_html_") for each in (preview, report, lanes)],
        "report": report.json(),  # type: ignore[attr-defined]
        "dead": len(dead),  # type: ignore[arg-type]
        "failed": failed,
        "rows": sorted([row["id"], row["shown"]] for row in spark.table(f"{given['SCHEMA']}.shop").collect()),
        "tables": sorted(row["tableName"] for row in spark.sql(f"show tables in {given['SCHEMA']}").collect()),
    }
    print(json.dumps(facts))  # noqa: T201


def _is_refused(what: Callable[[], object]) -> bool:
    try:
        what()
    except Exception:
        return True
    return False


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
