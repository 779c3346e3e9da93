"""The rows of a span of a Delta table's versions.

Where the table's files hold its rows as they are, exactly the added ones are read. Where they do not (partitions,
mapped names, deletion vectors), Delta reads the table as of the span's end, and the rows of the added files are kept.
A batch of changes is read from the table's change data feed, by Delta.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from origins.batch import Batch
from origins.delta_table import CHANGE, COMMIT, MOMENT, Table, feed, lost_feed, whole
from origins.delta_versions import Versions
from origins.errors import OriginError
from origins.listing import literally
from origins.names import HIDDEN, below, quoted
from origins.origin import PLACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FILE = HIDDEN + "file"
_PARTITIONS = 20
"""So many bits tell the partitions of Spark apart, in the place of a row."""
_NOWHERE = "named_struct('part', '', 'block', 0L, 'row', 0L)"


def rows_of(spark: SparkSession, place: str, batch: Batch, *, named: bool, places: bool) -> DataFrame:
    """Exactly the rows of the batch, lazily, with the columns of its schema."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(batch.schema))
    parts = batch.span.parts
    if not parts:
        empty = spark.createDataFrame([], schema)
        return empty.selectExpr("*", f"{_NOWHERE} as {PLACE}") if places else empty
    asked = parts[0][3] if len(parts[0]) > 3 else {}
    if "since" in asked:
        return _of_feed(spark, place, batch, schema, int(asked["since"]), named=named, places=places)
    if len(parts[0]) == 2:
        location = Table.find(spark, place, named=True).log.location if named else place
        frame = _of_files(spark, location, dict(parts), schema)
    else:
        table = Table.find(spark, place, named=named)
        location, version = table.log.location, table.version_of(batch.span.end)
        frame = whole(spark, place, named=named, version=version)
        if "inserted" in asked:
            frame = _as_inserts(frame, version, int(asked["inserted"]))
        frame = _fitting(frame, schema, table.name)
    paths = [part[0] for part in parts]
    is_all = paths == [""]
    frame = frame.select("*", frame.metadataColumn("_metadata").alias(_FILE))
    path = below(location, f"{_FILE}.file_path")
    if len(parts[0]) > 2 and not is_all:
        frame = frame.where(F.expr(path).isin(paths))
    block = f"xxhash64({_FILE}.file_path, {_FILE}.file_block_start)" if is_all else f"{_FILE}.file_block_start"
    part = "''" if is_all else path
    place_of = f"named_struct('part', {part}, 'block', {block}, 'row', monotonically_increasing_id())"
    columns = [F.col(quoted(name)).alias(name) for name in schema.names]
    return frame.select(*columns, *([F.expr(place_of).alias(PLACE)] if places else []))


def _as_inserts(frame: DataFrame, version: int, moment: int) -> DataFrame:
    """A table as of a version, as a change data feed would tell of rows that came with it."""
    from pyspark.sql import functions as F

    told = {CHANGE: F.lit("insert"), COMMIT: F.lit(version).cast("long"), MOMENT: F.timestamp_millis(F.lit(moment))}
    return frame.withColumns(told)


def _of_feed(
    spark: SparkSession, place: str, batch: Batch, schema: StructType, first: int, *, named: bool, places: bool
) -> DataFrame:
    """What the versions from `first` on changed. Of one version rows that go stand before those that come."""
    from pyspark.sql import functions as F

    table = Table.find(spark, place, named=named)
    last = table.version_of(batch.span.end)
    if gone := table.log.missing(first, last):
        raise OriginError(
            f"{gone} is gone though the change data feed of versions {first} to {last} of {table.name} needs it; "
            "VACUUM takes files of the feed, and a log keeps its versions for a time. Nothing of the batch was read.",
            hint=lost_feed(),
        )
    frame = feed(spark, table, first, last)
    if not batch.span.parts[0][3]["preimages"]:
        frame = frame.where(f"{CHANGE} <> 'update_preimage'")
    extra = {name.lower() for name in frame.columns} - {name.lower() for name in schema.names}
    if extra:
        came_later = {name.lower() for name in whole(spark, place, named=named).columns}
        frame = frame.drop(*[name for name in frame.columns if name.lower() in extra & came_later])
    frame = _fitting(frame, schema, table.name)
    columns = [F.col(quoted(name)).alias(name) for name in schema.names]
    if not places:
        return frame.select(*columns)
    comes = f"int({CHANGE} in ('insert', 'update_postimage'))"
    block = f"shiftleft({COMMIT} * 2 + {comes}, {_PARTITIONS}) + spark_partition_id()"
    place_of = f"named_struct('part', '', 'block', {block}, 'row', monotonically_increasing_id())"
    return frame.sortWithinPartitions(COMMIT, F.expr(comes)).select(*columns, F.expr(place_of).alias(PLACE))


def _of_files(spark: SparkSession, location: str, sizes: Mapping[str, int], schema: StructType) -> DataFrame:
    """All rows of these files. Raises `OriginError` for the first on this machine that is not as it was."""
    folder = Versions(location).folder
    for path, size in sizes.items() if folder else ():
        assert folder is not None
        found = (folder / path).stat().st_size if (folder / path).exists() else None
        if found != size:
            what = "is gone" if found is None else f"has changed (it had {size:,} bytes and now has {found:,})"
            raise OriginError(
                f"{folder / path} {what} though its rows were not read yet; a VACUUM takes files whose rows were "
                "written anew into others. Nothing of the batch was read.",
                hint="start over:  wherry run FILE --from-beginning\n  All rows that the table has come again.",
            )
    return spark.read.schema(schema).parquet(*[literally(f"{location.rstrip('/')}/{path}") for path in sizes])


def _fitting(frame: DataFrame, schema: StructType, table: str) -> DataFrame:
    """A table as of an earlier version, with the columns of today; those that it had not yet are NULL."""
    from pyspark.sql import functions as F

    then = {name.lower() for name in frame.columns}
    now = {name.lower() for name in schema.names}
    if lost := [name for name in frame.columns if name.lower() not in now]:
        raise OriginError(
            f"Column {lost[0]} of {table} was dropped or renamed after these rows were added.",
            hint="start over:  wherry run FILE --from-beginning\n  All rows that the table has come again.",
        )
    missing = {column.name: F.lit(None).cast(column.dataType) for column in schema if column.name.lower() not in then}
    return frame.withColumns(missing) if missing else frame
