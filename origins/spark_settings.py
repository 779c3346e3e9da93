"""Every setting of Spark that Wherry reads or changes in a session, with its need and where it may be touched.

Only this file touches the settings of a session. A serverless session refuses to read or to set most keys, and each
refusal prints its trace on the screen. So Wherry never tries a key in order to see whether it is refused.

`start.py` has the settings with which Wherry starts a Spark.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from origins.errors import clean_up_by
from origins.lazy import SparkSession
from origins.spark_versions import Platform, find_platform

EVERYWHERE = frozenset(Platform)
CLUSTERS = EVERYWHERE - {Platform.SERVERLESS}
ELSEWHERE = frozenset({Platform.ANY})
"""The platforms other than Databricks."""


@dataclass(frozen=True)
class Setting:
    """One setting of Spark."""

    key: str
    need: str
    """Why Wherry touches it. It also says what holds where it may not be touched."""
    platforms: frozenset[Platform]
    """Where it may be read and set."""
    value: str = ""
    """The value in all sessions of Wherry; empty if it depends, or if Wherry only reads it."""

    def can_be_touched(self, spark: SparkSession) -> bool:
        """Whether the platform lets this session read and set it."""
        return find_platform(spark) in self.platforms

    def read(self, spark: SparkSession, *default: str) -> str | None:
        """Return its value in the session, or the default if it is not set there. None where it may not be read.

        Without a default, return Spark's default.
        """
        return spark.conf.get(self.key, *default) if self.can_be_touched(spark) else None

    def write(self, spark: SparkSession, value: str) -> None:
        """Set it in the session, where it may be touched."""
        if self.can_be_touched(spark):
            if spark in _SHARED and self.key not in _SHARED[spark]:
                _SHARED[spark][self.key] = spark.conf.get(self.key, None)
            spark.conf.set(self.key, value)

    @contextlib.contextmanager
    def change(self, spark: SparkSession, value: str, *, shared: bool = False) -> Iterator[None]:
        """Set it in this block, where it may be touched.

        In a session that other threads use at the same time, it is set only if `shared` is true.
        """
        if (spark in _SHARED and not shared) or not self.can_be_touched(spark):
            yield
            return
        before = spark.conf.get(self.key, None)
        spark.conf.set(self.key, value)
        with clean_up_by(lambda: _put_back(spark, self.key, before)):
            yield


ANSI = Setting("spark.sql.ansi.enabled", "A value that cannot be converted is refused, not NULL.", EVERYWHERE, "true")
TIME_ZONE = Setting("spark.sql.session.timeZone", "Texts become moments in the pipeline's time zone.", EVERYWHERE)
CASE = Setting(
    "spark.sql.caseSensitive",
    "Upper and lower case do not distinguish columns. Where it may not be touched, a query asks for it.",
    CLUSTERS,
    "false",
)
CORRUPT_FILES = Setting(
    "spark.sql.files.ignoreCorruptFiles",
    "Spark leaves out no rows that it cannot read. Readers of files also get it as an option.",
    CLUSTERS,
    "false",
)
MISSING_FILES = Setting(
    "spark.sql.files.ignoreMissingFiles",
    "Spark leaves out no rows of files that are gone. Readers of files also get it as an option.",
    CLUSTERS,
    "false",
)
ITERATIONS = Setting(
    "spark.sql.analyzer.maxIterations",
    "Spark Connect analyses a long chain of stages at once. With fewer iterations it fails with a message.",
    CLUSTERS,
    "1000",
)
SUBSTITUTE = Setting(
    "spark.sql.variable.substitute",
    "A column `${a}` keeps its name in SQL. With substitution, it keeps it unless a variable has that name.",
    CLUSTERS,
    "false",
)
TIMESTAMP_TYPE = Setting(
    "spark.sql.timestampType",
    "It is the meaning of `timestamp` in a schema. Where it may not be touched, a query asks for it.",
    CLUSTERS,
)
NANOS_AS_LONG = Setting(
    "spark.sql.legacy.parquet.nanosAsLong",
    "Spark reads nanoseconds of a parquet file as numbers. Without it such a file is refused.",
    CLUSTERS,
)
WHOLE_STAGE = Setting("spark.sql.codegen.wholeStage", "Spark compiles no code for a few rows.", CLUSTERS)
FACTORY = Setting("spark.sql.codegen.factoryMode", "Spark compiles no code for a few rows.", CLUSTERS)
BLOCK_SIZE = Setting("parquet.block.size", "Spark holds few large rows at a time when it writes.", CLUSTERS)
PAGE_CHECK = Setting("parquet.page.size.row.check.min", "Spark looks at the size of each row.", CLUSTERS)
READ_BATCH = Setting(
    "spark.sql.parquet.columnarReaderBatchSize", "Spark holds few large rows at a time when it reads.", CLUSTERS
)
LOG_STORE = Setting("spark.delta.logStore.class", "It may separate the commits of several Sparks.", ELSEWHERE)
LOG_STORE_FILES = Setting("spark.delta.logStore.file.impl", "Only a known one locks a table's log.", ELSEWHERE)
COMMIT_LOCK = Setting("spark.databricks.delta.commitLock.enabled", "Delta locks a table's log in its JVM.", ELSEWHERE)
LOG_STORE_S3 = Setting("spark.delta.logStore.s3a.impl", "It may separate the commits of several Sparks.", ELSEWHERE)
DEFAULT_CATALOG = Setting("spark.sql.defaultCatalog", "Tables in some catalogs end with their Spark.", ELSEWHERE)
CATALOG = Setting("spark.sql.catalog.spark_catalog", "Tables in some catalogs end with their Spark.", ELSEWHERE)
CATALOG_KIND = Setting("spark.sql.catalogImplementation", "Tables in memory end with their Spark.", ELSEWHERE)
LOCAL_FOLDERS = Setting("spark.local.dir", "An error names the folders that are full.", ELSEWHERE)
DRIVER_HOST = Setting("spark.driver.host", "`doctor` names the address that executors must reach.", ELSEWHERE)
JARS = Setting("spark.jars", "An archive of classes makes the next start quicker.", ELSEWHERE)

SETTINGS = tuple(each for each in globals().values() if isinstance(each, Setting))
"""All of them."""

COMPLETE = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
"""The options with which a reader of files leaves out nothing."""

_SHARED: weakref.WeakKeyDictionary[SparkSession, dict[str, str | None]] = weakref.WeakKeyDictionary()
"""The given sessions in which Wherry works itself, with the former values of what it has changed there."""


def begin_sharing(spark: SparkSession) -> None:
    """From now on, remember what Wherry changes in this given session. No thread changes a setting for a block."""
    _SHARED.setdefault(spark, {})


def put_back_all(spark: SparkSession) -> None:
    """Put back all that Wherry has changed in a given session."""
    before = _SHARED.get(spark, {})
    while before:
        _put_back(spark, *before.popitem())


def _put_back(spark: SparkSession, key: str, value: str | None) -> None:
    spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def read_all(spark: SparkSession) -> Mapping[str, str] | None:
    """Return all settings of the session that are not Spark's defaults. None where they may not be read."""
    if find_platform(spark) is not Platform.ANY:
        return None
    found: Mapping[str, str] = spark.conf.getAll
    return found
