"""Delta tables with common features, and tables with an invented one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id BIGINT, email STRING, amount STRING, at TIMESTAMP"


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature of a table of orders: how a table gets it, and whether Wherry commits a small append to it itself."""

    columns: str = COLUMNS
    clause: str = ""
    """What follows the columns when the table is made."""
    then: str = ""
    """A statement for the finished table, behind `ALTER TABLE` and its name."""
    commits_here: bool = False


FEATURES: Mapping[str, Feature] = {
    "no feature": Feature(commits_here=True),
    "append only": Feature(clause="TBLPROPERTIES (delta.appendOnly = true)", commits_here=True),
    "partitions": Feature(clause="PARTITIONED BY (at)"),
    "a NOT NULL column": Feature(columns=COLUMNS.replace("id BIGINT", "id BIGINT NOT NULL")),
    "a CHECK": Feature(then="ADD CONSTRAINT positive CHECK (id >= 0)"),
    "a generated column": Feature(columns=f"{COLUMNS}, twice BIGINT GENERATED ALWAYS AS (id * 2)"),
    "the change feed": Feature(clause="TBLPROPERTIES (delta.enableChangeDataFeed = true)"),
    "deletion vectors": Feature(clause="TBLPROPERTIES (delta.enableDeletionVectors = true)"),
    "column mapping": Feature(clause="TBLPROPERTIES (delta.columnMapping.mode = 'name')"),
    "row tracking": Feature(clause="TBLPROPERTIES (delta.enableRowTracking = true)"),
    "clustering": Feature(clause="CLUSTER BY (id)"),
}
"""The features by the names that the page `appending.md` has."""


def make_table(spark: SparkSession, place: Path, feature: Feature) -> None:
    """Make an empty table of orders with this feature."""
    spark.sql(f"CREATE TABLE delta.`{place}` ({feature.columns}) USING DELTA {feature.clause}").collect()
    if feature.then:
        spark.sql(f"ALTER TABLE delta.`{place}` {feature.then}").collect()


def demand_feature(table: Path, *, of_readers: bool = False) -> None:
    """Make a Delta table demand an invented feature, of writers alone or of readers too."""
    protocol = {"minReaderVersion": 3 if of_readers else 1, "minWriterVersion": 7, "writerFeatures": ["invented"]}
    more = {"readerFeatures": ["invented"]} if of_readers else {}
    log = table / "_delta_log"
    version = len([*log.glob("*.json")])
    (log / f"{version:020}.json").write_text(json.dumps({"protocol": {**protocol, **more}}) + "\n")
