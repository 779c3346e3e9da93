"""A Delta table as this process knows it: its identity, its place, and the last look at its log."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from destinations.delta.direct_append import DirectTable, are_stores_plain, make_here, writes_plainly
from destinations.delta.direct_commit import FolderPlace
from destinations.delta.lock import get_commits, hold_making_lock, hold_table, is_held_by_spark
from destinations.delta.log import LocalLog, SparkLog, StoreLog, TableLog
from destinations.delta.options import DeltaOptions
from destinations.delta.schema import DeclaredTable, format_columns, needs_mapping
from destinations.delta.store_commit import StorePlace, StoreVersions, is_empty_store
from destinations.delta.versions import LogHead
from destinations.destination import DestinationError, Written
from origins.catalog.history import KEPT_BY_CATALOG, is_only_named
from origins.delta_actions import MetadataBody
from origins.errors import has_condition, list_causes, list_errors, list_spark_errors
from origins.files.file_systems import escape_pattern
from origins.lazy import DataFrame, F, SparkSession, T, delta_errors, spark_errors
from origins.names import is_no_such_table, is_one_disk, quote_name, quote_text
from origins.object_store import explain_store_words, open_delta_table
from origins.spark_settings import LOG_STORE, LOG_STORE_S3, read_all
from origins.store_access import StoreError

_PROPERTIES = {"delta.checkpointInterval": "100"}
"""The properties of every table that Wherry creates.

A checkpoint after each tenth commit doubles the cost of a small append.
"""
_MERGED = {"delta.isolationLevel": "Serializable"}
"""The properties of a table for merges.

Without them, Delta lets other writers append the keys that a merge is about to add.
"""
_CHECK = "delta.constraints."
"""The prefix of the properties that have constraints."""
_EXPLICIT = "delta.identity.allowExplicitInsert"
_MOST_TO_COMPARE = 1 << 20
"""The largest version file, in bytes, for which a comparison is faster than having Spark describe the table."""

_OBSTACLES = {
    "ALREADY_EXISTS": "something other than a Delta table is there",
    "SCHEMA_NOT_FOUND": "the schema does not exist; CREATE SCHEMA makes it",
    "CANNOT_CREATE_LOG_PATH": "the folder cannot be created",
}
"""The errors of Spark if a table cannot be created, with what each means."""


LOG_STORES = (LOG_STORE.key, LOG_STORE_S3.key)
"""The settings for another log store, which separates commits in S3."""
_DETAILS = ("format", "id", "name", "location", "properties", "tableFeatures")


@dataclass
class TargetTable:
    """A table that was found. Only `version` ever changes, and only upwards, so threads may share it."""

    name: str
    id: str
    location: str
    properties: Mapping[str, str]
    described: str
    """Its schema, as Spark's JSON."""
    log: TableLog
    version: int
    """The newest version that this process has seen."""
    _direct: DirectTable | None = None
    _head: LogHead | None = None
    """Its newest version at the time when it was found in a store."""

    @cached_property
    def schema(self) -> T.StructType:
        """Its schema."""
        return T.StructType.fromJson(json.loads(self.described))

    @staticmethod
    def find(spark: SparkSession, name: str, place: Path | str | None = None) -> TargetTable | None:
        """Return the table of this name; None if there is none. Raises `DestinationError` if it is not a Delta table.

        If this machine and Spark see the same `place`, a folder or the URL of a store, the table is read from its log.
        That is ten times faster than having Spark describe it.
        """
        if isinstance(place, Path):
            seen = find_seen_alike(spark, name, place)
            if seen is not None or _is_nowhere(spark, place):
                return seen
        elif place is not None:
            seen = _find_in_store(name, place)
            if seen is not None or (is_one_disk(spark) and is_empty_store(place)):
                return seen
        try:
            detail = spark.sql(f"DESCRIBE DETAIL {name}").select(*_DETAILS).collect()
        except list_spark_errors() as error:
            if isinstance(error, spark_errors.AnalysisException) and is_no_such_table(error):
                return None
            refused = _explain_refusal(error, place)
            if refused is not None:
                raise refused from error
            raise
        ((kind, table_id, full_name, location, properties, features),) = detail
        if kind != "delta":
            raise DestinationError(f"{name} is not a Delta table; it is {kind}.", hint="Choose another table.")
        is_in_folder = KEPT_BY_CATALOG.isdisjoint(features or ())
        log: TableLog | None = _find_local_log(location, table_id) if is_in_folder else None
        log = log or SparkLog(name, "" if is_only_named(full_name, features or ()) else location)
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
        """Whether the log that is read without Spark still belongs to this table."""
        return isinstance(self.log, LocalLog) and self.log.is_of(self.id)

    @property
    def stands(self) -> bool:
        """Whether the table's last seen version still exists, as far as that is known at once."""
        return not isinstance(self.log, LocalLog) or self.log.path_of(self.version).exists()

    def refresh(self) -> bool:
        """Look at the log again. Return false if that needs Spark, or if the log belongs to another table."""
        if not isinstance(self.log, LocalLog) or not self.is_there:
            return False
        self.version = self.log.find_latest(known=self.version)
        return True

    def hold_commits(self, patience: float | None = None) -> AbstractContextManager[object]:
        """Let no other process of Wherry commit to the table, if Spark itself does not prevent that."""
        if self._direct is not None:
            self._direct.doubt_newest()
        place = self._locked_place
        return contextlib.nullcontext() if place is None else hold_table(place, patience)

    def hold_apart(self, patience: float | None = None, *, waits: bool = False) -> AbstractContextManager[bool]:
        """Let no commit through Spark replace a commit of this process. Give whether the lock is held.

        It is not held during a commit through Spark in this process, unless `waits` is true.
        """
        place = self._locked_place
        if place is None:
            return contextlib.nullcontext(enter_result=True)
        return hold_table(place, patience, apart=True, waits=waits)

    @property
    def is_under_spark(self) -> bool:
        """Whether Spark is committing to it in another thread of this process.

        A further commit through Spark may then join.
        """
        return isinstance(self.log, LocalLog) and is_held_by_spark(self.log.folder)

    @property
    def _locked_place(self) -> Path | str | None:
        if isinstance(self.log, LocalLog):
            return self.log.folder
        return str(self.log.url) if isinstance(self.log, StoreLog) else None

    def may_lose_commits(self, spark: SparkSession) -> bool:
        """Whether a commit of Spark may replace a commit of another process.

        In S3, Spark first looks and then writes.
        """
        is_on_s3 = re.match("s3[an]?:", self.location, re.IGNORECASE) is not None
        # Databricks separates commits in S3, so the settings are not read there, and None counts as another log store.
        return is_on_s3 and not any(each.read(spark, "") != "" for each in (LOG_STORE, LOG_STORE_S3))

    def read_declared(self, spark: SparkSession) -> DeclaredTable:
        """Return the declared columns.

        Generated and identity columns are known only if the table's folder can be read.
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
        """Set these properties in one commit, without Spark's Delta.

        Return false, with nothing done, if that is not possible, or if others write for longer than `patience`.
        """
        direct = self.get_direct_table(spark)
        if direct is None or not self.can_mark(spark):
            return False
        with self.hold_apart(patience, waits=True) as held:
            return held and direct.mark(properties)

    def can_mark(self, spark: SparkSession) -> bool:
        """Whether this process can set properties of the table, if no other writer commits at the same time."""
        direct = self.get_direct_table(spark)
        return direct is not None and direct.begin() is not None

    def get_direct_table(self, spark: SparkSession) -> DirectTable | None:
        """Return the way in which this process commits without Spark's Delta; None if it cannot read the log."""
        if self._direct is None and isinstance(self.log, LocalLog):
            commits = get_commits(spark)
            plain = commits.can_be_held() and writes_plainly(spark)
            self._direct = DirectTable(FolderPlace(self.log.folder, commits), self.id, _closed=not plain)
        elif self._direct is None and isinstance(self.log, StoreLog):
            plain = writes_plainly(spark) and are_stores_plain(read_all(spark) or {})
            self._direct = DirectTable(StorePlace(self.log.url), self.id, _known=self._head, _closed=not plain)
        return self._direct

    def close(self) -> None:
        """Remove everything beside the table that only this process needs."""
        if self._direct is not None:
            self._direct.close()

    def replace(self, rows: DataFrame, tag: str, where: str | None) -> None:
        """Replace all rows, or those that match, with these rows, in one commit with the tag."""
        writer = rows.writeTo(self.name).option("userMetadata", tag).option("partitionOverwriteMode", "static")
        writer.overwrite(F.expr(where or "true"))

    def find_optimized(self, spark: SparkSession, back: int) -> int:
        """Return the version of the last compaction of small files, if it is one of the last `back` versions.

        Otherwise return the version before these.
        """
        oldest = max(self.version - back, 0)
        optimized = (
            commit.version for commit in self.log.list_commits(spark, oldest) if commit.operation == "OPTIMIZE"
        )
        return next(optimized, oldest)

    def find_written(self, spark: SparkSession, key: str, after: int) -> Written:
        """Return what the write with this label left. It began when `after` was the newest version."""
        for commit in self.log.list_commits(spark, after):
            self.version = max(self.version, commit.version)
            if commit.has_label(key):
                return commit.measure_written()
        return Written(rows=0)


def format_layout(delta: DeltaOptions, schema: T.StructType, properties: Mapping[str, str]) -> str:
    """Return the part of `CREATE TABLE` after the name, for a table with these columns."""
    clauses = [f"({format_columns(schema)}) USING delta"]
    if delta.partition_by:
        clauses.append(f"PARTITIONED BY ({', '.join(map(quote_name, delta.partition_by))})")
    if delta.cluster_by:
        clauses.append(f"CLUSTER BY ({', '.join(map(quote_name, delta.cluster_by))})")
    if delta.comment is not None:
        clauses.append(f"COMMENT {quote_text(delta.comment)}")
    listed = ", ".join(f"{quote_text(key)} = {quote_text(value)}" for key, value in properties.items())
    return " ".join([*clauses, f"TBLPROPERTIES ({listed})"])


def make(spark: SparkSession, delta: DeltaOptions, schema: T.StructType) -> TargetTable:
    """Create the table, unless another writer has just created it. Raises `DestinationError` with the obstacle."""
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
    """Return the error of a store that refuses access; None if it is not known.

    It is known if this process gets it too, or if Spark's error shows it.
    """
    if not isinstance(place, str):
        return None
    try:
        open_delta_table(place)
    except StoreError as refused:
        return DestinationError(refused.message, hint=refused.hint, is_away=refused.is_away)
    except delta_errors.DeltaError:
        return None
    messages = "\n".join(cause.message for each in list_errors(error) for cause in list_causes(each))
    known = explain_store_words(f"{error}\n{messages}", place)
    return DestinationError(f"{place} cannot be written: {known[0]}.", hint=known[1]) if known else None


def _describe_obstacle(error: Exception, folder: Path | None) -> str:
    """Return the obstacle to creating a table; empty if it is unknown."""
    above = next(parent for parent in folder.parents if parent.exists()) if folder else None
    if above is not None and not above.is_dir():
        return f"{above} is a file"
    if above is not None and not os.access(above, os.W_OK):
        return f"{above} cannot be written"
    return next((why for sign, why in _OBSTACLES.items() if has_condition(error, sign)), "")


def find_seen_alike(spark: SparkSession, name: str, folder: Path) -> TargetTable | None:
    """Return the table in this folder; None unless Spark reads the same file beside its newest version."""
    log = LocalLog(folder)
    version = log.find_latest()
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
    """Return the table at this URL; None if this process finds none, because Spark may have access that it lacks.

    Raises `StoreError` if the store does not answer.
    """
    try:
        _, head = StoreVersions(url).open_head()
    except (delta_errors.DeltaError, FileNotFoundError):
        return None
    except StoreError as error:
        if error.is_away:
            raise  # Spark would wait for the same store for minutes
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


def _is_nowhere(spark: SparkSession, folder: Path) -> bool:
    """Whether Spark surely sees no such folder."""
    try:
        folder.lstat()
    except FileNotFoundError:
        return is_one_disk(spark)
    except OSError:
        return False
    return False


def _reads_alike(spark: SparkSession, log: LocalLog, version: int) -> bool:
    """Whether Spark reads the same file beside this version as this process does."""
    beside = log.path_of(version, "crc" if log.read_checksum(version) else "json")
    if beside.stat().st_size > _MOST_TO_COMPARE:
        return False
    here = beside.read_text(encoding="utf-8")
    try:
        read = spark.read.text(escape_pattern(str(beside)), wholetext=True).collect()
    except list_spark_errors():  # Spark on another machine has no such file, or may not read it
        return False
    return [row[0] for row in read] == [here]


def _find_local_log(location: str, table_id: str) -> LocalLog | None:
    log = LocalLog(Path("/" + location.removeprefix("file:").lstrip("/")))
    return log if location.startswith("file:") and log.is_of(table_id) else None
