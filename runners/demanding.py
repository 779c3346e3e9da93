"""What a destination demands of rows as it is now, whatever it was when the run began."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from destinations.demands import Demands
from destinations.destination import Destination
from runners.blame import of_a_row
from stages.expressions import put_in
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def demanded_now(spark: SparkSession, destination: Destination, rows: StructType) -> Sequence[Stage]:
    """The stages that such rows pass before they are written."""
    afresh = replace(destination)  # without what it knew of its place when the run began
    return afresh.demands(spark, rows)


def refuses(
    spark: SparkSession, destination: Destination, rows: DataFrame, labels: Mapping[str, str | int | datetime]
) -> bool:
    """Whether the destination would refuse one of these rows, which were decided for it; nothing is written. Raises
    `Misfit` where it takes no such rows at all any more."""
    from pyspark.sql import functions as F

    replace(destination).open(spark, rows.schema)
    demands = [stage for stage in demanded_now(spark, destination, rows.schema) if isinstance(stage, Demands)]
    holds = [F.expr(put_in(rule.holds, labels)) for stage in demands for rule in stage.rules]
    if not holds:
        return False
    broken = functools.reduce(operator.or_, [~F.coalesce(each, F.lit(False)) for each in holds])
    try:
        return bool(rows.where(broken).limit(1).collect())
    except Exception as error:
        if of_a_row(error):
            return True
        raise
