"""Runs batches while tasks fail and shuffle files get lost: `python -m tests.runners.engine.retried FOLDER`."""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.delta import Delta
from origins.files import Files
from runners.pipeline import Pipeline
from runners.spark.start import start
from runners.ways.row_outcomes import StateTally
from stages.conditions import Filter
from stages.sql import Sql
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Spoil(Stage):
    """Changes no row. Its first task fails, or deletes the shuffle files that earlier tasks wrote."""

    lose: str = ""
    fail: bool = False
    marker: str = ""

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType

        lose, fail, marker = self.lose, self.fail, self.marker

        @F.udf(LongType())  # type: ignore[untyped-decorator,unused-ignore]
        def spoil(value: int) -> int:
            if (lose or fail) and not os.path.exists(marker):
                Path(marker).touch()
                for file in glob.glob(f"{lose}/**/shuffle_*", recursive=True) if lose else []:
                    os.remove(file)
                if fail:
                    raise ValueError("the first task fails")
            return value

        return rows.with_columns({"id": spoil("id")})


def main(folder: str) -> dict[str, Any]:
    """Run three pipelines: one without trouble, one with a failing task, one with lost files.

    Return what each reports.
    """
    spark = start(
        {
            "spark.master": "local[1,4]",
            "spark.local.dir": folder,
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
        }
    )
    landing = Path(folder, "landing")
    landing.mkdir()
    for part in range(4):
        (landing / f"{part}.json").write_text("".join(json.dumps({"id": n, "part": part}) + "\n" for n in range(30)))
    reports = {
        "nothing": carry_orders(folder, "nothing"),
        "failure": carry_orders(folder, "failure", before=Spoil(fail=True, marker=f"{folder}/failure")),
        "loss": carry_orders(folder, "loss", behind=Spoil(lose=folder, marker=f"{folder}/loss")),
    }
    spark.stop()
    return reports


def carry_orders(folder: str, name: str, before: Spoil | None = None, behind: Spoil | None = None) -> Mapping[str, Any]:
    """Return the report of one run, with whether a row was counted twice."""
    doubled = []
    count = StateTally.count

    def watched(self: StateTally, delivered: int | None) -> Any:
        seen = self._sections[0]().seen
        doubled.append(seen is not None and seen[0].total() > 120)
        return count(self, delivered)

    StateTally.count = watched  # type: ignore[method-assign]
    try:
        report = Pipeline(
            name=name,
            origin=Files(path=f"{folder}/landing", format="json", schema="id long, part int"),
            stages=[
                Filter("part < 2"),
                before or Spoil(),
                Sql("select id, count(*) as n from rows group by id"),
                behind or Spoil(),
            ],
            destinations=[Delta(path=f"{folder}/tables/{name}")],
            state=f"{folder}/state/{name}",
        ).run()
    finally:
        StateTally.count = count  # type: ignore[method-assign]
    provoked = all(Path(each.marker).exists() for each in (before, behind) if each)
    said = report.json()
    return {
        "provoked": provoked,
        "doubled": any(doubled),
        "read": said["read"],
        "filtered": said["filtered"],
        "delivered": said["delivered"][name],
        "stages": said["stages"],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
