"""The rows of a decided batch, grouped by where they stood and by what became of them: asked of what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from origins.batch import JSON
from runners.verdicts import is_filter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runners.store import Store

_PLACE = ("part", "block", "row", "state")


def groups_of(spark: SparkSession, store: Store, name: str) -> Sequence[Mapping[str, JSON]]:
    """For each part, block, state and filter: how many `rows` there are, the `first` of them, and those `refused`.

    Small batches on this machine are looked at without Spark, a tenth of a second quicker.
    """
    looked = store.look(name, lambda column: column in _PLACE or is_filter(column))
    return by_spark(store.read(spark, name)) if looked is None else by_arrow(looked)


def by_spark(frame: DataFrame) -> Sequence[Mapping[str, JSON]]:
    """The groups of rows of any number."""
    from pyspark.sql import functions as F

    keys = ["part", "block", "state", *filter(is_filter, frame.columns)]
    refused = F.collect_list(F.when(F.col("state") < 0, F.col("row"))).alias("refused")
    grouped = frame.groupBy(*keys).agg(F.count(F.lit(1)).alias("rows"), F.min("row").alias("first"), refused)
    return [row.asDict() for row in grouped.collect()]


def by_arrow(table: Any) -> Sequence[Mapping[str, JSON]]:
    """The same of rows that are in memory."""
    import pyarrow.compute as pc

    keys = ["part", "block", "state", *filter(is_filter, table.column_names)]
    refused: dict[tuple[JSON, ...], list[int]] = {}
    for row in table.filter(pc.less(table["state"], 0)).to_pylist():
        refused.setdefault(tuple(row[key] for key in keys), []).append(row["row"])
    found = []
    for group in table.group_by(keys).aggregate([("row", "count"), ("row", "min")]).to_pylist():
        key = {name: group[name] for name in keys}
        own = refused.get(tuple(key.values()), [])
        found.append({**key, "rows": group["row_count"], "first": group["row_min"], "refused": own})
    return found
