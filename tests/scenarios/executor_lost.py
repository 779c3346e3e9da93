"""Run batches on a separate executor that is killed: `python -m tests.scenarios.executor_lost FOLDER`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.delta import Delta
from origins.files import Files
from runners.model.events import BatchRests, Event
from runners.model.spec import BatchOptions, RetryOptions, RunOptions
from runners.pipeline import Pipeline
from runners.spark.start import start
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Kill(Stage):
    """A stage that changes no row. The first task that reads the row with this id kills its executor."""

    marker: str
    row: int

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType

        marker, fatal = self.marker, self.row

        @F.udf(LongType())  # type: ignore[untyped-decorator,unused-ignore]
        def kill(value: int) -> int:
            import os
            import signal
            from pathlib import Path

            if value == fatal and not Path(marker).exists():
                Path(marker).touch()
                process = Path(f"/proc/{os.getppid()}")
                while b"CoarseGrainedExecutorBackend" not in (process / "cmdline").read_bytes():
                    parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                    process = Path(f"/proc/{parent}")
                os.kill(int(process.name), signal.SIGKILL)
            return value

        return rows.with_columns({"id": kill("id")})


def main(folder: str) -> dict[str, Any]:
    """Return the run's report, and the causes for which batches were postponed."""
    spark = start({"spark.master": "local-cluster[1,1,1024]", "spark.task.maxFailures": "1"})
    landing = Path(folder, "landing")
    landing.mkdir()
    for number in range(1, 4):
        (landing / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")
    rests: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchRests):
            rests.append(f"{event.batch.number}: {event.error.__cause__}")

    report = Pipeline(
        name="orders",
        origin=Files(path=f"{folder}/landing", format="json", schema="id long"),
        stages=[Kill(marker=f"{folder}/killed", row=2)],
        destinations=[Delta(path=f"{folder}/tables/orders")],
        state=f"{folder}/state",
        run=RunOptions(batch=BatchOptions(files=1), retry=RetryOptions(wait="10ms")),
    ).run(listeners=[listen], check=False)
    ids = sorted(row["id"] for row in spark.read.format("delta").load(f"{folder}/tables/orders").collect())
    spark.stop()
    return {"status": report.status, "error": str(report.error), "ids": ids, "rests": rests}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
