"""Run batches on a Spark Connect server that is killed during a batch and started again: `python -m
tests.scenarios.server_restarted FOLDER HOW`.

HOW is `ours` if the run makes a session from the address in `SPARK_REMOTE`, or `given` if it gets one. The script
prints the result of this run and of the next one as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from destinations.delta import Delta
from origins.files import Files
from runners.model.events import BatchRests, Event
from runners.model.spec import BatchOptions, RetryOptions, RunOptions
from runners.pipeline import Pipeline
from tests.scenarios.gate import Gate
from tests.scenarios.shared_jvm import Server

if TYPE_CHECKING:
    from runners.model.run_report import Report


@contextmanager
def serve(server: Server) -> Iterator[str]:
    """Run the server while the context is open, and yield its address."""
    try:
        os.environ["SPARK_REMOTE"] = server.get().connect
        yield os.environ["SPARK_REMOTE"]
    finally:
        server.close()


def define_pipeline(folder: Path, gate: Gate) -> Pipeline:
    """Return a pipeline with one file a batch. The second batch is held in the middle of its Spark job."""
    return Pipeline(
        name="orders",
        origin=Files(path=f"{folder}/landing", format="json", schema="id long"),
        stages=[gate],
        destinations=[Delta(path=f"{folder}/tables/orders")],
        state=f"{folder}/state",
        run=RunOptions(batch=BatchOptions(files=1), retry=RetryOptions(wait="10ms")),
    )


def main(folder: Path, whose: str) -> dict[str, Any]:
    """Return the results of the run in which the server is killed and of the second run, the audit, and the rows of the
    table."""
    (folder / "landing").mkdir()
    (folder / "gate").mkdir()
    gate = Gate(folder=str(folder / "gate"), row=2)
    pipeline = define_pipeline(folder, gate)
    server = Server(folder / "jvm")
    rests: list[str] = []

    def land(*numbers: int) -> None:
        for number in numbers:
            (folder / "landing" / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")

    def listen(event: Event) -> None:
        if isinstance(event, BatchRests):
            rests.append(f"{event.batch.number}: {event.error}")

    def restart() -> None:
        server.get().kill()
        server.close()
        server.get()

    with serve(server) as address:
        given = SparkSession.builder.remote(address).getOrCreate() if whose == "given" else None
        land(1)
        pipeline.run()
        land(2, 3)
        with gate.reached(restart) as killed:
            first = pipeline.run(listeners=[listen], check=False)
        if given is not None:
            given.stop()
        second = pipeline.run(check=False)
        audit = pipeline.audit()
        session = SparkSession.builder.remote(address).create()
        table = session.read.format("delta").load(f"{folder}/tables/orders")
        ids = sorted(row["id"] for row in table.collect())
        session.stop()
        return {
            "killed": len(killed),
            "rests": rests,
            "first": _summarise_report(first),
            "second": _summarise_report(second),
            "balanced": audit.balanced,
            "problems": [each.message for each in audit.problems],
            "ids": ids,
        }


def _summarise_report(report: Report) -> dict[str, Any]:
    error = report.error
    return {
        "status": report.status,
        "delivered": dict(report.delivered),
        "code": error and error.code,
        "said": str(error) if error else "",
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
