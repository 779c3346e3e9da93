"""The notes that stages keep beside rows, counted: asked of what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runners.store import Store


def notes_of(spark: SparkSession, store: Store, name: str, columns: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """For each of these columns of what lies there, how many rows have which note; rows without one count nowhere.

    Small batches on this machine are looked at without Spark.
    """
    if not columns:
        return {}
    looked = store.look(name, lambda column: column in columns)
    if looked is None:
        return by_spark(store.read(spark, name), columns)
    counted = {column: looked[column].drop_null().value_counts().to_pylist() for column in columns}
    return {column: {each["values"]: each["counts"] for each in found} for column, found in counted.items()}


def by_spark(frame: DataFrame, columns: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """The same of rows of any number, in one query."""
    found: dict[str, dict[str, int]] = {column: {} for column in columns}
    for row in frame.groupBy(*columns).count().collect():
        for column in columns:
            if row[column] is not None:
                found[column][row[column]] = found[column].get(row[column], 0) + row["count"]
    return found
