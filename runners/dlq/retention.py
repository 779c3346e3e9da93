"""Rows of the DLQ on which somebody decided long ago leave it; one that waits stays, however old it is."""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from destinations.delta import Delta
from destinations.delta_table import Table
from destinations.destination import Destination
from origins.names import HIDDEN, text
from runners.dlq.letters import Decided
from runners.session import in_short

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("wherry")


def tidy(spark: SparkSession, dlq: Destination, known: Decided, *, retain: float, now: datetime) -> None:
    """Take the rows away that were carried again or discarded and were refused more than `retain` seconds ago.

    What goes wrong in here costs space only: it is logged, and tried again behind the next replay.
    """
    if not isinstance(dlq, Delta) or not known.ids:
        return
    try:
        _taken_away(spark, dlq, known, text((now - timedelta(seconds=retain)).isoformat()))
    except Exception as error:
        log.warning("rows of the dead letter queue that are older than dlq.retain stay: %s", in_short(error))


def _taken_away(spark: SparkSession, dlq: Delta, known: Decided, before: str) -> None:
    table = Table.find(spark, dlq.sql_name, dlq.folder)
    old = spark.sql(f"SELECT id FROM {dlq.sql_name} WHERE nacked_at < timestamp {before}").collect() if table else []
    ids = [(row["id"],) for row in old if row["id"] in known]
    if table is None or not ids:
        return
    view = f"{HIDDEN}{uuid.uuid4().hex}"
    spark.createDataFrame(ids, "id string").createOrReplaceTempView(view)
    try:
        with table.held():
            gone = f"MERGE INTO {dlq.sql_name} AS kept USING {view} AS gone ON kept.id = gone.id"
            spark.sql(f"{gone} WHEN MATCHED THEN DELETE").collect()
    finally:
        spark.catalog.dropTempView(view)
