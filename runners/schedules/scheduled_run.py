"""A run of a scheduler on real Spark: in the session that all of them share, in a fair pool of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from origins.errors import WherryError
from runners.definitions.definition import Definition
from runners.definitions.secrets import without
from runners.errors import Owned, Refusal
from runners.events import Listener
from runners.place import check_lasting
from runners.report import Report
from runners.run import Run
from runners.schedules.carriers import Carried, Carry, Stop
from runners.session import in_short, is_alive, is_given, named_work, obtain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HOOKS_WAIT = 1.0
"""So many seconds a run waits for its hooks at its end: they go on being told when it is over, and other runs begin."""


def session_for(definitions: Sequence[Definition]) -> SparkSession:
    """The Spark for all of these, with what each wants of one that we start. Raises `Refusal` where two disagree."""
    conf: dict[str, str] = {}
    said: dict[str, str] = {}
    for definition in definitions:
        name, wanted = definition.pipeline.name, definition.pipeline.spark
        for key, value in wanted.conf.items():
            if conf.setdefault(key, value) != value:
                raise Refusal(
                    f"{said[key]} and {name} share one Spark, and want {key} to be {conf[key]} and {value}.",
                    hint="Give them one value, or schedule them in two directories.",
                )
            said.setdefault(key, name)
    packages = dict.fromkeys(each for definition in definitions for each in definition.pipeline.spark.packages)
    starts = not is_given()
    spark = obtain(conf, tuple(packages))
    if starts:
        for definition in definitions:
            check_lasting(definition.pipeline, spark)
    return spark


def carrying(spark: SparkSession, hears: Callable[[Definition], Sequence[Listener]] = lambda _: ()) -> Carry:
    """Carries definitions on this Spark; `hears` says who listens to the runs of each."""

    def carry(definition: Definition, stoppable: Callable[[Stop], None]) -> Carried:
        pipeline = definition.pipeline
        run = Run(
            pipeline=pipeline,
            text=definition.text,
            hash=definition.hash,
            spark=spark,
            pool=pipeline.name,
            listeners=hears(definition),
            hooks_wait=HOOKS_WAIT,
        )
        stoppable(lambda reason, force: run.stop(reason, force=force))
        try:
            with named_work(spark, f"wherry-{run.id}", pipeline.name):
                carried = _told(run.carry())
        except Owned as error:
            carried = Carried(name=pipeline.name, status="owned", message=error.message)
        except Exception as error:  # the edge of the run: the others go on
            said = str(error) if isinstance(error, WherryError) else f"{type(error).__name__}: {in_short(error)}"
            carried = Carried(name=pipeline.name, status="failed", message=said)
        message = without(pipeline.secrets, carried.message)
        gone = carried.status == "failed" and not is_alive(spark)
        return Carried(
            name=carried.name, status=carried.status, message=message, report=carried.report, spark_is_gone=gone
        )

    return carry


def _told(report: Report) -> Carried:
    if report.error is not None:
        message = str(report.error)
    else:
        batches = "1 batch" if report.batches == 1 else f"{report.batches:,} batches"
        refused = f", {report.nacked:,} refused" if report.nacked else ""
        rows = f"{batches}, {report.read:,} {'row' if report.read == 1 else 'rows'} read{refused}"
        message = rows if report.batches else "nothing new waited"
        if report.status == "stopped":
            message = f"{message}; {report.reason}"
    return Carried(name=report.pipeline, status=report.status, message=message, report=report)
