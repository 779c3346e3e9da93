"""Groups refused rows by cause in Spark, so that only a few groups reach this process for any number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runners.model.causes import MOST_FILES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_GROUPS = 10_000
"""How many groups are fetched. They are the most frequent ones."""


def group_refusals(refused: DataFrame, by: Sequence[str], shown: Sequence[str]) -> list[dict[str, Any]]:
    """Return groups of rows that are equal in the columns `by` and in the shape of their `message`, the largest first.

    Each has the columns `shown` of one of its rows, the number of its rows (`alike`), and their `files`, from the
    column `part`.
    """
    from pyspark.sql import functions as F

    message = F.coalesce(F.col("message"), F.lit(""))
    one = F.min_by(F.struct(*shown), message).alias("one")
    files = F.slice(F.array_sort(F.collect_set("part")), 1, MOST_FILES).alias("files")
    groups = refused.groupBy(*by, _make_shape(message).alias("shape")).agg(F.count(F.lit(1)).alias("alike"), one, files)
    found = groups.orderBy(F.col("alike").desc(), "shape").limit(MOST_GROUPS).drop("shape").collect()
    rows = [row.asDict(recursive=True) for row in found]
    return [{**row, **row["one"]} for row in rows]


def _make_shape(message: Column) -> Column:
    """Return the message with short forms of the quoted parts.

    Messages of one cause may have several shapes. Messages of one shape have the same cause.
    """
    from pyspark.sql import functions as F

    def shorten(piece: Column, at: Column) -> Column:
        letters = F.regexp_replace(piece, r"\p{L}+", "a")
        return F.when(at % 2 == 1, F.regexp_replace(letters, "[0-9]+", "9")).otherwise(piece)

    pieces = F.concat_ws("'", F.transform(F.split(message, "'"), shorten))
    digits = F.regexp_replace(message, "[0-9]+", "9")
    return F.when(message.contains("column "), pieces).otherwise(digits)
