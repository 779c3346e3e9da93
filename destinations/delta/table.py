"""A Delta table as this process knows it: which one it is, where it lies, and what its log said last."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.delta.direct_append import DirectTable, make_here, writes_plainly, writes_to_stores_plainly
from destinations.delta.direct_commit import FolderPlace, LogHead
from destinations.delta.lock import get_commits, hold_making_lock, hold_table, is_held_by_spark
from destinations.delta.log import LocalLog, SparkLog, StoreLog, TableLog
from destinations.delta.options import DeltaOptions
from destinations.delta.schema import DeclaredTable, format_columns, needs_mapping
from destinations.delta.store_commit import StorePlace
from destinations.destination import DestinationError, Written
from origins.delta_actions import MetadataBody
from origins.errors import has_condition, list_causes, list_errors, list_spark_errors
from origins.files.file_systems import escape_pattern
from origins.names import is_no_such_table, is_one_disk, quote_name, quote_text
from origins.object_store import PROBE, explain_store_words, open_delta_table, open_store
from origins.quick_dataclass import dataclass
from origins.store_access import StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PROPERTIES = {"delta.checkpointInterval": "100"}
"""Of every table that is made: a checkpoint after each tenth commit doubles what a small append costs."""
_MERGED = {"delta.isolationLevel": "Serializable"}
"""Of a table that is made for merges: otherwise Delta lets others append the keys that a merge is about to add."""
_CHECK = "delta.constraints."
"""How the names of the properties begin that hold constraints."""
_EXPLICIT = "delta.identity.allowExplicitInsert"
_MOST_TO_COMPARE = 1 << 20
"""Bytes of a version's file up to which it is quicker to compare it than to have Spark describe the table."""

_OBSTACLES = {
    "ALREADY_EXISTS": "something other than a Delta table is there",
    "SCHEMA_NOT_FOUND": "the schema does not exist; CREATE SCHEMA makes it",
    "CANNOT_CREATE_LOG_PATH": "the folder cannot be created",
}
"""What Spark says when a table cannot be made, and what it means."""


LOG_STORES = ("spark.delta.logStore.class", "spark.delta.logStore.s3a.impl")
"""The settings that name another log store, which keeps commits in S3 apart."""
_DETAILS = ("format", "id", "location", "properties", "tableFeatures")
_KEPT_BY_CATALOG = frozenset({"catalogManaged", "catalogOwned-preview"})
"""The features of a table whose commits its catalog takes. A commit is in the table's log some time after that."""


@dataclass
class TargetTable:
    """One table as it was found. Only `version` ever changes, and only upwards, so that threads may share it."""

    name: str
    id: str
    location: str
    properties: Mapping[str, str]
    described: str
    """Its schema, as Spark's JSON."""
    log: TableLog
    version: int
    """The newest version that was seen."""
    _short: DirectTable | None = None
    _head: LogHead | None = None
    """Its newest version, as it was found in a store."""

    @cached_property
    def schema(self) -> StructType:
        """Its schema."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.described))

    @staticmethod
    def find(spark: SparkSession, name: str, place: Path | str | None = None) -> TargetTable | None:
        """The table of this name; None when there is none. Raises `DestinationError` for one that is not Delta's.

        One at a `place` that this machine and Spark see alike is read from its log, ten times quicker than Spark
        describes it: in a folder, or at the URL of a store.
        """
        if isinstance(place, Path):
            seen = find_seen_alike(spark, name, place)
            if seen is not None or _is_nowhere(spark, place):
                return seen
        elif place is not None:
            seen = _find_in_store(name, place)
            if seen is not None or (is_one_disk(spark) and is_empty_store(place)):
                return seen
        from pyspark.errors import AnalysisException

        try:
            detail = spark.sql(f"DESCRIBE DETAIL {name}").select(*_DETAILS).collect()
        except list_spark_errors() as error:
            if isinstance(error, AnalysisException) and is_no_such_table(error):
                return None
            refused = _explain_refusal(error, place)
            if refused is not None:
                raise refused from error
            raise
        ((kind, table_id, location, properties, features),) = detail
        if kind != "delta":
            raise DestinationError(f"{name} is not a Delta table; it is {kind}.", hint="Choose another table.")
        is_in_folder = _KEPT_BY_CATALOG.isdisjoint(features or ())
        log: TableLog | None = _find_local_log(location, table_id) if is_in_folder else None
        log = log or SparkLog(name, location)
        return TargetTable(
            name=name,
            id=table_id,
            location=location,
            properties=properties,
            described=spark.table(name).schema.json(),
            log=log,
            version=log.find_latest(spark),
        )

    @property
    def is_there(self) -> bool:
        """Whether the log that is read without Spark is still that of this table."""
        return isinstance(self.log, LocalLog) and self.log.is_of(self.id)

    @property
    def stands(self) -> bool:
        """Whether the table is still as it was seen, as far as that is known at once."""
        return not isinstance(self.log, LocalLog) or self.log.has(self.version)

    def refresh(self) -> bool:
        """Look at the log again, if that is possible without Spark; whether it is, and is the log of this table."""
        if not isinstance(self.log, LocalLog) or not self.is_there:
            return False
        self.version = self.log.find_newest(self.version)
        return True

    def hold_commits(self, patience: float | None = None) -> AbstractContextManager[object]:
        """Let no other process of ours commit to it, where Spark itself does not see to that."""
        if self._short is not None:
            self._short.doubt_newest()
        place = self._locked_place
        return contextlib.nullcontext() if place is None else hold_table(place, patience)

    def hold_apart(self, patience: float | None = None, *, waits: bool = False) -> AbstractContextManager[bool]:
        """The same for a commit of this process, which no commit of Spark's may replace; gives whether it is held. It
        is not beside a commit of Spark's in this process, unless one `waits` for its end."""
        place = self._locked_place
        if place is None:
            return contextlib.nullcontext(enter_result=True)
        return hold_table(place, patience, apart=True, waits=waits)

    @property
    def is_under_spark(self) -> bool:
        """Whether Spark commits to it in another thread of this process, and may commit beside that."""
        return isinstance(self.log, LocalLog) and is_held_by_spark(self.log.folder)

    @property
    def _locked_place(self) -> Path | str | None:
        if isinstance(self.log, LocalLog):
            return self.log.folder
        return str(self.log.url) if isinstance(self.log, StoreLog) else None

    def may_lose_commits(self, spark: SparkSession) -> bool:
        """Whether a commit of Spark's may replace one of another process: in S3 it looks, and writes later."""
        is_on_s3 = re.match("s3[an]?:", self.location, re.IGNORECASE) is not None
        return is_on_s3 and not any(spark.conf.get(name, None) for name in LOG_STORES)

    def read_declared(self, spark: SparkSession) -> DeclaredTable:
        """Return the declared columns.

        It knows generated and identity columns only if it can read the table's folder.
        """
        fields = json.loads(self.log.read_metadata(spark).get("schemaString", '{"fields": []}'))["fields"]
        metadata = {field["name"].lower(): field["metadata"] for field in fields}
        return DeclaredTable(
            schema=self.schema,
            checks={key[len(_CHECK) :]: sql for key, sql in sorted(self.properties.items()) if key.startswith(_CHECK)},
            generated={name: sql for name, each in metadata.items() if (sql := each.get("delta.generationExpression"))},
            identities={name: each[_EXPLICIT] for name, each in metadata.items() if _EXPLICIT in each},
        )

    def append(self, rows: DataFrame, tag: str) -> None:
        rows.writeTo(self.name).option("userMetadata", tag).append()

    def mark(self, spark: SparkSession, properties: Mapping[str, str], patience: float) -> bool:
        """Set these properties in one commit, without Spark's Delta; false where that cannot be, or where others write
        for longer than `patience`, and nothing was done."""
        short = self.get_direct_table(spark)
        if short is None or not self.can_mark(spark):
            return False
        with self.hold_apart(patience, waits=True) as held:
            return held and short.mark(properties)

    def can_mark(self, spark: SparkSession) -> bool:
        """Whether this process can set properties of the table, unless others come in between."""
        short = self.get_direct_table(spark)
        return short is not None and short.begin() is not None

    def get_direct_table(self, spark: SparkSession) -> DirectTable | None:
        """How this process commits to the table without Spark's Delta; None where its log cannot be read here."""
        if self._short is None and isinstance(self.log, LocalLog):
            commits = get_commits(spark)
            plain = commits.can_be_held() and writes_plainly(spark)
            self._short = DirectTable(FolderPlace(self.log.folder), self.id, commits, _closed=not plain)
        elif self._short is None and isinstance(self.log, StoreLog):
            plain = writes_plainly(spark) and writes_to_stores_plainly(spark)
            self._short = DirectTable(StorePlace(self.log.url), self.id, _known=self._head, _closed=not plain)
        return self._short

    def close(self) -> None:
        """Leave nothing beside it that only this process needs."""
        if self._short is not None:
            self._short.close()

    def replace(self, rows: DataFrame, tag: str, where: str | None) -> None:
        """Put the rows in the place of all rows, or of those that match, in one commit that carries the tag."""
        from pyspark.sql import functions as F

        writer = rows.writeTo(self.name).option("userMetadata", tag).option("partitionOverwriteMode", "static")
        writer.overwrite(F.expr(where or "true"))

    def find_optimized(self, spark: SparkSession, back: int) -> int:
        """At which version its small files were last put together, if that was one of the last so many; else the one
        before these."""
        oldest = max(self.version - back, 0)
        optimized = (
            commit.version for commit in self.log.list_commits(spark, oldest) if commit.operation == "OPTIMIZE"
        )
        return next(optimized, oldest)

    def find_written(self, spark: SparkSession, key: str, after: int) -> Written:
        """What the write under this label left, which began when version `after` was there."""
        for commit in self.log.list_commits(spark, after):
            self.version = max(self.version, commit.version)
            if commit.carries(key):
                return commit.measure_written()
        return Written(rows=0)


def format_layout(delta: DeltaOptions, schema: StructType, properties: Mapping[str, str]) -> str:
    """A table with these columns, as `CREATE TABLE` takes it behind the name."""
    clauses = [f"({format_columns(schema)}) USING delta"]
    if delta.partition_by:
        clauses.append(f"PARTITIONED BY ({', '.join(map(quote_name, delta.partition_by))})")
    if delta.cluster_by:
        clauses.append(f"CLUSTER BY ({', '.join(map(quote_name, delta.cluster_by))})")
    if delta.comment is not None:
        clauses.append(f"COMMENT {quote_text(delta.comment)}")
    listed = ", ".join(f"{quote_text(key)} = {quote_text(value)}" for key, value in properties.items())
    return " ".join([*clauses, f"TBLPROPERTIES ({listed})"])


def make(spark: SparkSession, delta: DeltaOptions, schema: StructType) -> TargetTable:
    """Create the table, unless another writer just did. Raises `DestinationError` with what is in the way."""
    name, folder = delta.sql_name, delta.folder
    merged = _MERGED if delta.mode == "merge" else {}
    mapping = {"delta.columnMapping.mode": "name"} if needs_mapping(schema) else {}
    properties = {**_PROPERTIES, **merged, **mapping, **delta.properties}
    with hold_making_lock(folder) if folder else contextlib.nullcontext():
        table = TargetTable.find(spark, name, delta.found_here)
        if table is not None:
            return table
        try:
            here = None if delta.has_layout or not is_one_disk(spark) else delta.found_here
            if here is None or not make_here(spark, here, schema, properties):
                spark.sql(f"CREATE TABLE {name} {format_layout(delta, schema, properties)}")
        except Exception as error:
            table, why = TargetTable.find(spark, name, delta.found_here), _describe_obstacle(error, folder)
            refused = _explain_refusal(error, delta.found_here) if table is None else None
            if refused is not None:
                raise refused from error
            if table is None and why:
                raise DestinationError(
                    f"The table {name} cannot be created: {why}.", hint="Choose another place."
                ) from error
            if table is None:
                raise
            return table
        table = TargetTable.find(spark, name, delta.found_here)
    assert table is not None
    return table


def _explain_refusal(error: Exception, place: Path | str | None) -> DestinationError | None:
    """What a store says that refuses this, where this process hears it as well or Spark's error tells; else None."""
    from deltalake.exceptions import DeltaError

    if not isinstance(place, str):
        return None
    try:
        open_delta_table(place)
    except StoreError as refused:
        return DestinationError(refused.message, hint=refused.hint, is_away=refused.is_away)
    except DeltaError:
        return None
    messages = "\n".join(cause.message for each in list_errors(error) for cause in list_causes(each))
    known = explain_store_words(f"{error}\n{messages}", place)
    return DestinationError(f"{place} cannot be written: {known[0]}.", hint=known[1]) if known else None


def _describe_obstacle(error: Exception, folder: Path | None) -> str:
    """What is in the way of a table; empty when it is not known."""
    above = next(parent for parent in folder.parents if parent.exists()) if folder else None
    if above is not None and not above.is_dir():
        return f"{above} is a file"
    if above is not None and not os.access(above, os.W_OK):
        return f"{above} cannot be written"
    return next((why for sign, why in _OBSTACLES.items() if has_condition(error, sign)), "")


def find_seen_alike(spark: SparkSession, name: str, folder: Path) -> TargetTable | None:
    """The table in this folder; None unless Spark reads the same there beside its newest version."""
    log = LocalLog(folder)
    version = log.find_newest()
    if version < 0 or not (is_one_disk(spark) or _reads_alike(spark, log, version)):
        return None
    metadata = log.read_metadata(spark)
    if not metadata:
        return None
    return TargetTable(
        name=name,
        id=metadata["id"],
        location=f"file:{folder}",
        properties=metadata.get("configuration") or {},
        described=metadata["schemaString"],
        log=log,
        version=version,
    )


def _find_in_store(name: str, url: str) -> TargetTable | None:
    """The table at this URL; None where this process finds none, since Spark may have a right that it has not. Raises
    `StoreError` where the store does not answer."""
    from deltalake.exceptions import DeltaError

    try:
        _, head = StorePlace(url).open_head()
    except (DeltaError, FileNotFoundError):
        return None
    except StoreError as error:
        if error.is_away:
            raise  # Spark would wait for the same store, for minutes
        return None
    body: MetadataBody = {"id": head.id, "configuration": head.configuration, "schemaString": head.schema}
    return TargetTable(
        name=name,
        id=head.id,
        location=url,
        properties=head.configuration,
        described=head.schema,
        log=StoreLog(name, url, body),
        version=head.version,
        _head=head,
    )


def is_empty_store(url: str) -> bool:
    """Whether there surely is nothing below this URL."""
    try:
        return all(key == PROBE for page in open_store(url).list_pages() for key in page)
    except StoreError:
        return False


def _is_nowhere(spark: SparkSession, folder: Path) -> bool:
    """Whether there surely is no such folder for Spark."""
    try:
        folder.lstat()
    except FileNotFoundError:
        return is_one_disk(spark)
    except OSError:
        return False
    return False


def _reads_alike(spark: SparkSession, log: LocalLog, version: int) -> bool:
    """Whether Spark finds there what lies here beside this version."""
    beside = log.path_of(version, "crc" if log.read_checksum(version) else "json")
    if beside.stat().st_size > _MOST_TO_COMPARE:
        return False
    here = beside.read_text(encoding="utf-8")
    try:
        read = spark.read.text(escape_pattern(str(beside)), wholetext=True).collect()
    except list_spark_errors():  # a Spark elsewhere has no such file, or may not read it
        return False
    return [row[0] for row in read] == [here]


def _find_local_log(location: str, table_id: str) -> LocalLog | None:
    log = LocalLog(Path("/" + location.removeprefix("file:").lstrip("/")))
    return log if location.startswith("file:") and log.is_of(table_id) else None
