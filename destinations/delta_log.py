"""A Delta table's log: which versions there are, who wrote them and what they left.

The log of a table on this machine's disk is read file by file, in a tenth of a millisecond whatever the size of the
table and of its log; any other through Spark.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.delta_append import Overwritten, batches_in, identity
from destinations.delta_short import metadata_of
from destinations.destination import Label, Written
from origins.batch import JSON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_METRICS = {"WRITE": ("numOutputRows", "numOutputBytes"), "MERGE": ("numSourceRows", "numTargetBytesAdded")}
_ROWS = "num_added_rows"
"""Where the operations that deliver rows say how many, in Spark's words and in `deltalake`'s; a label on any other
operation proves nothing."""
_EMPTIED = ("[]", '["true"]')
"""How a DELETE says that it had no condition."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One version of a table."""

    version: int
    operation: str
    parameters: Mapping[str, JSON]
    metrics: Mapping[str, str]
    tag: str
    at: str = field(default="", compare=False)
    """When it landed, by the clock of who wrote it; for people."""

    def carries(self, key: str) -> bool:
        """Whether these rows were delivered under this label. Only a commit that delivers rows can carry one."""
        return self.operation in _METRICS and key in self.tag and key in _keys(self.tag)

    @property
    def undoes(self) -> bool:
        """Whether it may have taken away what earlier versions brought."""
        whole = self.parameters.get("predicate")
        return (
            self.operation in ("RESTORE", "TRUNCATE", "CLONE")
            or "REPLACE" in self.operation
            or (self.overwrites and not whole)
            or (self.operation == "DELETE" and whole in _EMPTIED)
        )

    @property
    def overwrites(self) -> bool:
        """Whether it put its rows in the place of others."""
        return self.operation == "WRITE" and self.parameters.get("mode") == "Overwrite"

    def written(self) -> Written:
        """What it left, by its own figures."""
        rows, size = (self.metrics.get(name) for name in _METRICS[self.operation])
        rows = self.metrics.get(_ROWS) if rows is None else rows
        if rows is None and self.metrics.get("numFiles") == "0":
            rows = "0"  # nothing took the place of what was there
        return Written(
            rows=int(rows) if rows is not None else None,
            bytes=int(size) if size is not None else None,
            version=self.version,
        )

    @property
    def shared(self) -> bool:
        """Whether it carries several labels."""
        return len(_keys(self.tag)) > 1


class Log(ABC):
    """The log of one table."""

    @abstractmethod
    def latest(self, spark: SparkSession) -> int:
        """The newest version."""

    @abstractmethod
    def metadata(self, spark: SparkSession) -> Mapping[str, JSON]:
        """The table's metadata as Delta keeps it; nothing where it cannot be read."""

    @abstractmethod
    def commits(self, spark: SparkSession, after: int) -> Iterator[Commit]:
        """The versions after this one, newest first, as far back as the log still has them."""


@dataclass(frozen=True)
class LocalLog(Log):
    """The log of a table in a folder on this machine."""

    folder: Path

    def latest(self, spark: SparkSession) -> int:
        return self.newest()

    def newest(self, known: int = -1) -> int:
        """The newest version, found at once from one that was there not long ago."""
        version = known if self.has(known) else max(self._listed(), default=-1)
        while self.has(version + 1):
            version += 1
        return version

    def commits(self, spark: SparkSession, after: int) -> Iterator[Commit]:
        for version in range(self.newest(after), after, -1):
            if not self.has(version):
                return
            yield self._read(version)

    def has(self, version: int) -> bool:
        """Whether the log has this version still."""
        return self.file(version).exists()

    def is_of(self, table_id: str) -> bool:
        """Whether it is the log of the table with this id."""
        return bool(self._metadata().get("id") == table_id)

    def metadata(self, spark: SparkSession) -> Mapping[str, JSON]:
        return self._metadata()

    def _metadata(self) -> Mapping[str, JSON]:
        """The metadata in the checksum that Spark leaves beside a version, or else as `deltalake` finds it."""
        return metadata_in(self.checksum(max(self._listed(), default=-1))) or metadata_of(self.folder)

    def checksum(self, version: int) -> str:
        """What Spark left beside a version, as JSON, unless it is torn; empty where it left nothing."""
        file = self.file(version, "crc")
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def file(self, version: int, kind: str = "json") -> Path:
        """Where a version lies, or its checksum."""
        return self.folder / "_delta_log" / f"{version:020}.{kind}"

    def carries(self, version: int, key: str) -> bool:
        """Whether the version has the label with this key, and is there at all."""
        try:
            return self._read(version).carries(key)
        except FileNotFoundError:
            return False

    def _listed(self) -> list[int]:
        names = (path.name for path in (self.folder / "_delta_log").glob("*.json"))
        return [int(found.group(1)) for name in names if (found := re.fullmatch(r"(\d{20})\.json", name))]

    def _read(self, version: int) -> Commit:
        with self.file(version).open(encoding="utf-8") as lines:
            actions: Iterator[Mapping[str, JSON]] = (json.loads(line) for line in lines if '"commitInfo"' in line)
            info: Mapping[str, JSON] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        metrics = info.get("operationMetrics") or {}
        if _ROWS in metrics or (not metrics and info.get("operation") == "WRITE"):
            metrics = {**self._added(version), **metrics}
        return Commit(
            version=version,
            operation=info.get("operation", ""),
            parameters=info.get("operationParameters") or {},
            metrics=metrics,
            tag=info.get("userMetadata") or "",
            at=_moment(info.get("timestamp")),
        )

    def _added(self, version: int) -> Mapping[str, str]:
        """How many rows and bytes a version added, file by file; nothing where one does not say so, or none is."""
        with self.file(version).open(encoding="utf-8") as lines:
            actions = [json.loads(line) for line in lines if '"add"' in line]
        files = [action["add"] for action in actions if "add" in action]
        rows = [json.loads(file.get("stats") or "{}").get("numRecords") for file in files]
        if not files or None in rows:
            return {}
        return {_ROWS: str(sum(rows)), "numOutputBytes": str(sum(file["size"] for file in files))}


@dataclass
class OwnCommits:
    """The versions with which this process brought batches into a table of this machine, as long as it remembers
    them. Threads may share it."""

    _known: dict[int, tuple[Sequence[Label], tuple[int, int] | None]] = field(default_factory=dict)
    """By their numbers: the labels that each carries, and what tells its file from any other of that name."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._known)

    def note(self, log: Log, version: int | None, labels: Sequence[Label]) -> None:
        """A write under these labels has taken this version. Raises `Overwritten` if somebody replaced it since."""
        if not isinstance(log, LocalLog) or version is None:
            return
        file = identity(log.file(version))
        if file is not None and not log.carries(version, labels[0].key):
            raise _overwritten(log, version, labels)
        with self._lock:
            self._known[version] = labels, file
            for oldest in list(itertools.islice(self._known, max(0, len(self._known) - _REMEMBERED))):
                del self._known[oldest]

    def check(self, log: Log, newest: int | None = None) -> None:
        """Raises `Overwritten`, once for each, if one of these versions is another file now, and does not carry its
        label; asks only for so many of the `newest` ones. A version that is gone was cleaned away."""
        if not isinstance(log, LocalLog):
            return
        with self._lock:
            known = list(itertools.islice(reversed(self._known.items()), newest))
            for version, (labels, before) in known:
                now = identity(log.file(version))
                if now in (before, None):
                    continue
                if not log.carries(version, labels[0].key):
                    del self._known[version]
                    raise _overwritten(log, version, labels)
                self._known[version] = labels, now


_REMEMBERED = 10_000
"""So many of its own versions a run remembers of a table."""


def _overwritten(log: LocalLog, version: int, labels: Sequence[Label]) -> Overwritten:
    error = Overwritten(log.folder, version, batches_in(tag(labels)))
    error.batch = labels[0].batch
    return error


@dataclass(frozen=True)
class SparkLog(Log):
    """The log of a table that only Spark can read."""

    table: str
    """As it is named in SQL."""
    location: str

    def metadata(self, spark: SparkSession) -> Mapping[str, JSON]:
        checksum = f"{self.location}/_delta_log/{self.latest(spark):020}.crc"
        try:
            return metadata_in(spark.read.text(checksum, wholetext=True).collect()[0][0])
        except Exception:  # a catalog may keep a table's folder to itself, and says so in many ways
            return {}

    def latest(self, spark: SparkSession) -> int:
        return max((commit.version for commit in self._newest(spark, 1)), default=-1)

    def commits(self, spark: SparkSession, after: int) -> Iterator[Commit]:
        limit, upto = 8, None
        while True:
            found = self._newest(spark, limit)
            for commit in found:
                if commit.version <= after:
                    return
                if upto is None or commit.version < upto:
                    upto = commit.version
                    yield commit
            if len(found) < limit:
                return
            limit *= 16

    def _newest(self, spark: SparkSession, limit: int) -> list[Commit]:
        history = spark.sql(f"DESCRIBE HISTORY {self.table} LIMIT {limit}")
        columns = ("version", "operation", "operationParameters", "operationMetrics", "userMetadata", "timestamp")
        return [
            Commit(
                version=version,
                operation=operation,
                parameters=parameters or {},
                metrics=metrics or {},
                tag=tag or "",
                at=at.astimezone(timezone.utc).isoformat(timespec="seconds") if at else "",
            )
            for version, operation, parameters, metrics, tag, at in history.select(*columns).collect()
        ]


def metadata_in(checksum: str) -> Mapping[str, JSON]:
    """A table's metadata in a version's checksum; nothing in one that has none, or is torn. Delta does not need it:
    the log has the same."""
    try:
        found = json.loads(checksum)
    except ValueError:
        return {}
    return found.get("metadata") or {} if isinstance(found, dict) else {}


def tag(labels: Sequence[Label]) -> str:
    """What a commit carries of the batches whose rows it brings. Only `key` is ever compared."""
    return tag_of(
        [
            {
                "pipeline": label.batch.pipeline,
                "lane": label.batch.lane,
                "number": label.batch.number,
                "plan": label.batch.plan,
                "destination": label.destination,
                "key": label.key,
            }
            for label in labels
        ]
    )


def tag_of(labels: Sequence[Mapping[str, JSON]]) -> str:
    """The same of labels as they stand in a tag."""
    return json.dumps({"wherry": list(labels)}, ensure_ascii=False)


def labels_in(tag: str) -> Sequence[Mapping[str, JSON]]:
    """The labels in a tag, as `tag` wrote them; none in one that others wrote."""
    try:
        found = [dict(label) for label in json.loads(tag)["wherry"]]
        return found if all(label.keys() >= _SAID for label in found) else []
    except (ValueError, KeyError, TypeError):
        return []


_SAID = {"pipeline", "lane", "number", "plan", "destination", "key"}


def _keys(tag: str) -> list[str]:
    """The keys of the labels in a tag; none in one that others wrote."""
    try:
        labels = json.loads(tag)["wherry"]
        return [label["key"] for label in labels]
    except (ValueError, KeyError, TypeError):
        return []


def _moment(millis: JSON) -> str:
    return datetime.fromtimestamp(millis / 1000, timezone.utc).isoformat(timespec="seconds") if millis else ""
