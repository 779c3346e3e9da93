"""Rows that a batch brought to a Delta table and that were taken away come back as they were, from their own files.

A commit's files stay on the disk until a vacuum takes them. What is read is the version that the commit made, of it
only the commit's own files; it is appended under the same labels, so that the batch is known as before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from destinations.account import Brought
from destinations.delta_log import tag_of
from destinations.delta_table import Table
from destinations.destination import DestinationError
from origins.names import text
from origins.secret import cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def put_back(
    spark: SparkSession, table: Table, brought: Sequence[Brought], *, but: Collection[str] | None = None
) -> int:
    """Append what one commit had brought once more; how many rows. `brought` are all batches of that commit.

    With `but`, the ids of rows that are not wanted, only those rows come back whose `id` is not in the table now.
    Raises `DestinationError` when the files are gone.
    """
    first = brought[0]
    before = table.log.latest(spark)
    try:
        with table.held():
            table.append(_rows(spark, table, first, but), tag_of([each.label for each in brought]))
    except Exception as error:
        raise DestinationError(
            f"The rows of version {first.version} of {table.location} cannot be put back: "
            f"{cut(str(error).splitlines()[0], 300)}",
            hint="Nothing was written. If a vacuum took the files, carry the batch again:  "
            "wherry backfill FILE --from N --to N",
        ) from error
    written = table.written(spark, first.key, before)
    return written.rows or 0


def _rows(spark: SparkSession, table: Table, brought: Brought, but: Collection[str] | None) -> DataFrame:
    names = ", ".join(text(PurePosixPath(file).name) for file in brought.files)
    found = spark.sql(
        f"SELECT * FROM {table.name} VERSION AS OF {brought.version} WHERE _metadata.file_name IN ({names})"
    )
    if but is None:
        return found
    there = spark.sql(f"SELECT id FROM {table.name}")
    wanted = found.join(there, "id", "left_anti").select(*found.columns)
    if not but:
        return wanted
    return wanted.join(spark.createDataFrame([(each,) for each in but], "id string"), "id", "left_anti").select(
        *found.columns
    )
