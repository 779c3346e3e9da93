"""A Delta table's log: its versions, their writers and their rows.

The log of a table on this machine's disk is read file by file. This takes a tenth of a millisecond for a table and a
log of any size. The log in an object store is read in this way too, if this process has access. Any other log is read
through Spark.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TextIO
from urllib.parse import quote_plus, unquote_plus

from destinations.delta.direct_append import UNUSABLE
from destinations.delta.direct_commit import Overwritten, describe_batches
from destinations.delta.store_commit import StoreVersions
from destinations.delta.versions import FolderVersions, Mark, TableVersions, format_key, read_clock
from destinations.destination import DestinationError, Written
from destinations.labels import BatchLabel, Label
from origins.batch import Json
from origins.codec import decode, encode
from origins.delta_actions import ActionBody, CommitBody, MetadataBody, check_columns, explain_broken_log
from origins.errors import list_spark_errors
from origins.lazy import SparkSession, delta_errors
from origins.store_access import StoreError

_METRICS = {"WRITE": ("numOutputRows", "numOutputBytes"), "MERGE": ("numSourceRows", "numTargetBytesAdded")}
_ROWS = "num_added_rows"
"""The metric with the number of rows in a commit of `deltalake`.

`_METRICS` has Spark's names, for the operations that deliver rows. A label on any other operation proves nothing.
"""
_EMPTIED = ("[]", '["true"]')
"""The conditions of a DELETE that removes all rows."""


@dataclass(frozen=True, kw_only=True)
class LogCommit:
    """One version of a table."""

    version: int
    operation: str
    parameters: Mapping[str, Json]
    metrics: Mapping[str, str]
    tag: str
    at: str = field(default="", compare=False)
    """The time of the commit by the writer's clock, for people."""

    def has_label(self, key: str) -> bool:
        """Whether the commit delivered rows with this label. Only an operation that delivers rows can."""
        try:
            return self.operation in _METRICS and any(each["key"] == key for each in json.loads(self.tag)["wherry"])
        except (ValueError, KeyError, TypeError):  # another program wrote the tag
            return False

    @cached_property
    def labels(self) -> Sequence[BatchLabel]:
        """The labels with which the commit delivered rows."""
        try:
            labels = json.loads(self.tag)["wherry"] if self.operation in _METRICS else []
            return [decode(BatchLabel, label) for label in labels]
        except (ValueError, KeyError, TypeError):  # another program wrote the tag
            return []

    @property
    def undoes(self) -> bool:
        """Whether the commit may have removed what earlier versions added."""
        whole = self.parameters.get("predicate")
        return (
            self.operation in ("RESTORE", "TRUNCATE", "CLONE")
            or "REPLACE" in self.operation
            or (self.overwrites and not whole)
            or (self.operation == "DELETE" and whole in _EMPTIED)
        )

    @property
    def overwrites(self) -> bool:
        return self.operation == "WRITE" and self.parameters.get("mode") == "Overwrite"

    @property
    def copied(self) -> int:
        """How many old rows it wrote again, because their files also had replaced rows.

        Its figures include these rows.
        """
        return int(self.metrics.get("numCopiedRows") or 0) if self.operation == "WRITE" else 0

    def measure_written(self) -> Written:
        """Return what the commit wrote, by its figures."""
        rows, size = (self.metrics.get(name) for name in _METRICS[self.operation])
        rows = self.metrics.get(_ROWS) if rows is None else rows
        if rows is None and self.metrics.get("numFiles") == "0":
            rows = "0"  # nothing replaced the old rows
        elif rows == "0" and self.metrics.get("numCopiedRows") == "0" and self.metrics.get(_METRICS["WRITE"][1]) != "0":
            rows = None  # the files have no statistics, so Delta does not know their rows
        return Written(
            rows=int(rows) - self.copied if rows is not None else None,
            bytes=int(size) if size is not None else None,
            version=self.version,
        )


class TableLog(ABC):
    """The log of one table."""

    @abstractmethod
    def find_latest(self, spark: SparkSession) -> int:
        """Return the newest version."""

    @abstractmethod
    def read_metadata(self, spark: SparkSession) -> MetadataBody:
        """Return the table's metadata as Delta stores it; empty if it cannot be read."""

    @abstractmethod
    def list_commits(self, spark: SparkSession, after: int) -> Iterator[LogCommit]:
        """Return the versions after this one, newest first, as far back as the log has them."""


class OwnLog(TableLog):
    """A log in which this process can distinguish the versions' files."""

    @property
    @abstractmethod
    def versions(self) -> TableVersions:
        """The versions of the table."""

    def find_latest(self, spark: SparkSession | None = None, known: int = -1) -> int:
        """Return the newest version. It is found quickly if `known` is a recent one."""
        return self.versions.find_newest(known)

    def list_commits(self, spark: SparkSession | None, after: int) -> Iterator[LogCommit]:
        for version in range(self.versions.find_newest(after), after, -1):
            commit = self._read_commit(version)
            if commit is None:
                return
            yield commit

    def has_label(self, version: int, key: str) -> bool:
        """Whether the version exists and has the label with this key."""
        commit = self._read_commit(version)
        return commit is not None and commit.has_label(key)

    def _read_commit(self, version: int) -> LogCommit | None:
        content = self.versions.read(format_key(version))
        if content is None:
            return None
        with explain_broken_log(DestinationError, self.versions.name, version):
            return _make_commit(version, io.TextIOWrapper(io.BytesIO(content), "utf-8"))


@dataclass(frozen=True)
class LocalLog(OwnLog):
    """The log of a table in a folder on this machine."""

    folder: Path

    @property
    def versions(self) -> TableVersions:
        return FolderVersions(self.folder)

    def is_of(self, table_id: str) -> bool:
        """Whether it is the log of the table with this id."""
        return bool(self.read_metadata().get("id") == table_id)

    def read_metadata(self, spark: SparkSession | None = None) -> MetadataBody:
        """Return the metadata in the checksum that Spark writes beside a version, or else as `deltalake` finds it."""
        metadata = parse_metadata(self.read_checksum(self.versions.find_newest()))
        if metadata or UNUSABLE.search(str(self.folder)):
            return metadata
        try:
            head = self.versions.open_head()[1]
        except (delta_errors.DeltaError, OSError):
            return {}
        return {"id": head.id, "configuration": head.configuration, "schemaString": head.schema}

    def read_checksum(self, version: int) -> str:
        """Return the JSON that Spark wrote beside a version, which may be incomplete; empty if there is none."""
        file = self.path_of(version, "crc")
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def path_of(self, version: int, kind: str = "json") -> Path:
        return self.folder / "_delta_log" / f"{version:020}.{kind}"


def _make_commit(version: int, lines: TextIO) -> LogCommit:
    actions: Iterator[ActionBody] = (json.loads(line) for line in lines if '"commitInfo"' in line)
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), CommitBody())
    parameters, metrics = info.get("operationParameters") or {}, info.get("operationMetrics") or {}
    at = info.get("timestamp")
    if _ROWS in metrics or (not metrics and info.get("operation") == "WRITE"):
        lines.seek(0)
        metrics = {**_count_added(lines), **metrics}
    return LogCommit(
        version=version,
        operation=info.get("operation", ""),
        parameters=parameters,
        metrics=metrics,
        tag=_find_in_clause(parameters) or info.get("userMetadata") or "",
        at=datetime.fromtimestamp(at / 1000, timezone.utc).isoformat(timespec="seconds") if at else "",
    )


def _count_added(lines: TextIO) -> Mapping[str, str]:
    """Return how many rows and bytes a version added; empty if it added no file, or a file has no row count."""
    actions = [json.loads(line) for line in lines if '"add"' in line]
    files = [action["add"] for action in actions if "add" in action]
    rows = [json.loads(file.get("stats") or "{}").get("numRecords") for file in files]
    if not files or None in rows:
        return {}
    return {_ROWS: str(sum(rows)), "numOutputBytes": str(sum(file["size"] for file in files))}


_REMEMBERED = 10_000
"""How many versions of a table a run remembers at most."""


@dataclass
class OwnCommits:
    """The versions with which this process added batches to a table whose log it reads.

    It forgets the oldest ones. Threads may share it.
    """

    _known: dict[int, tuple[Sequence[Label], Mark | None]] = field(default_factory=dict)
    """By version: the labels of the commit, and the mark that distinguishes its file from another file."""
    _looked: float = -math.inf
    """When the versions were checked last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def any(self) -> bool:
        return bool(self._known)

    def note(self, log: TableLog, version: int | None, labels: Sequence[Label], mark: Mark | None = None) -> None:
        """Remember that a write with these labels took this version. `mark` is the mark of its file, if it is known.

        Raises `Overwritten` if another writer has replaced the version since. In a store, only the next check detects
        that.
        """
        if not isinstance(log, OwnLog) or version is None:
            return
        file = log.versions.identify(version) if isinstance(log, LocalLog) else mark
        if isinstance(log, LocalLog) and file is not None and not log.has_label(version, labels[0].key):
            raise _make_overwritten_error(log, version, labels)
        with self._lock:
            self._known[version] = labels, file
            for oldest in list(itertools.islice(self._known, max(0, len(self._known) - _REMEMBERED))):
                del self._known[oldest]

    def check(self, log: TableLog, newest: int | None = None) -> None:
        """Raise `Overwritten`, once for each version, if a file without its label has replaced one of these versions.

        A missing version was cleaned up. With `newest`, it checks only so many of the newest versions, and only if the
        last check is too old.
        """
        if not isinstance(log, OwnLog):
            return
        with self._lock:
            now = read_clock()
            if newest is not None and now - self._looked < log.versions.sure:
                return
            self._looked = now
            if not self._known:
                return
            known = list(itertools.islice(reversed(self._known.items()), newest))
            mark_of = log.versions.look(min(version for version, _ in known))
            for version, (labels, before) in known:
                found = mark_of(version)
                if found in (before, None):
                    continue
                if not log.has_label(version, labels[0].key):
                    del self._known[version]
                    raise _make_overwritten_error(log, version, labels)
                self._known[version] = labels, found


def _make_overwritten_error(log: OwnLog, version: int, labels: Sequence[Label]) -> Overwritten:
    error = Overwritten(log.versions.name, version, describe_batches(make_tag(labels)))
    error.batch = labels[0].batch
    return error


@dataclass(frozen=True)
class SparkLog(TableLog):
    """The log of a table that only Spark can read."""

    table: str
    location: str
    """Its folder or URL; empty if its catalog refuses paths."""

    def read_metadata(self, spark: SparkSession) -> MetadataBody:
        if not self.location:
            return {}
        checksum = f"{self.location}/_delta_log/{self.find_latest(spark):020}.crc"
        try:
            return parse_metadata(spark.read.text(checksum, wholetext=True).collect()[0][0])
        except list_spark_errors(IndexError, ValueError):  # a catalog may deny access to the table's folder
            return {}

    def find_latest(self, spark: SparkSession) -> int:
        return max((commit.version for commit in self._read_newest(spark, 1)), default=-1)

    def list_commits(self, spark: SparkSession, after: int) -> Iterator[LogCommit]:
        limit, upto = 8, None
        while True:
            newest = self._read_newest(spark, limit)
            for commit in newest:
                if commit.version <= after:
                    return
                if upto is None or commit.version < upto:
                    upto = commit.version
                    yield commit
            if len(newest) < limit:
                return
            limit *= 16

    def _read_newest(self, spark: SparkSession, limit: int) -> list[LogCommit]:
        history = spark.sql(f"DESCRIBE HISTORY {self.table} LIMIT {limit}")
        columns = ("version", "operation", "operationParameters", "operationMetrics", "userMetadata", "timestamp")
        return [
            LogCommit(
                version=version,
                operation=operation,
                parameters=parameters or {},
                metrics=metrics or {},
                tag=_find_in_clause(parameters or {}) or tag or "",
                at=at.astimezone(timezone.utc).isoformat(timespec="seconds") if at else "",
            )
            for version, operation, parameters, metrics, tag, at in history.select(*columns).collect()
        ]


@dataclass(frozen=True)
class StoreLog(OwnLog):
    """The log of a table in an object store that this process reads. Spark reads what this process cannot."""

    table: str
    url: str
    metadata: MetadataBody
    """The metadata at the time when the table was found."""

    def read_metadata(self, spark: SparkSession) -> MetadataBody:
        return self.metadata

    @property
    def versions(self) -> TableVersions:
        return StoreVersions(self.url)

    def find_latest(self, spark: SparkSession | None = None, known: int = -1) -> int:
        return next((commit.version for commit in self.list_commits(spark, -1)), -1)

    def list_commits(self, spark: SparkSession | None, after: int) -> Iterator[LogCommit]:
        """Return the versions as `TableLog` does.

        Without `spark`, raises `StoreError` if this process cannot read them.
        """
        upto: float = math.inf
        try:
            for commit in super().list_commits(spark, after):
                yield commit
                upto = commit.version
        except StoreError as error:
            if spark is None or error.is_away:
                raise
            known = SparkLog(self.table, self.url).list_commits(spark, after)
            yield from (commit for commit in known if commit.version < upto)


def parse_metadata(checksum: str) -> MetadataBody:
    """Return the table's metadata in a version's checksum; empty if it is missing or incomplete.

    Delta does not need it, because the log has the same.
    """
    try:
        metadata: MetadataBody = json.loads(checksum)["metadata"]
        check_columns(metadata["schemaString"])
        return metadata if metadata["id"] else {}
    except (ValueError, LookupError, TypeError):
        return {}


def make_tag(labels: Sequence[Label]) -> str:
    """Return the tag of a commit with rows of these labels. Only `key` is ever compared."""
    return format_tag([label.stored for label in labels])


def format_tag(labels: Sequence[BatchLabel]) -> str:
    """Return the tag with these labels."""
    return json.dumps({"wherry": encode(labels)}, ensure_ascii=False)


def format_for_clause(tag: str) -> str:
    """Return the tag as a text that a condition in a MERGE can carry. It needs no escapes in SQL, JSON or a plan."""
    return f"wherry={quote_plus(tag)}"


_IN_CLAUSE = re.compile(r"\bwherry=([\w.%+-]+)", re.ASCII)


def _find_in_clause(parameters: Mapping[str, Json]) -> str:
    """Return the tag that a clause of a MERGE carries; empty without one."""
    found = _IN_CLAUSE.search(str(parameters.get("notMatchedPredicates", "")))
    return unquote_plus(found[1]) if found else ""
