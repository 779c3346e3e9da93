"""A Delta table as this process knows it: which one it is, where it lies, and what its log said last."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.deadline import Deadline, Late
from destinations.delta_adopted import Adoptable
from destinations.delta_append import Overwritten
from destinations.delta_log import LocalLog, Log, SparkLog
from destinations.delta_made import made_here
from destinations.delta_rules import Declared
from destinations.delta_schema import columns
from destinations.delta_short import NotInTime, ShortWay, writes_plainly
from destinations.destination import DestinationError, Written
from destinations.table_lock import commits_of, committing, making
from origins.listing import literally
from origins.names import no_such_table, quoted, text
from origins.one_disk import is_one_disk

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CHECK = "delta.constraints."
"""How the names of the properties begin that hold constraints."""
_OTHER_TYPES = "DELTA_FAILED_TO_MERGE_FIELDS"
"""What Delta says when the types of columns are not those of the table."""
_EXPLICIT = "delta.identity.allowExplicitInsert"
_MOST_TO_COMPARE = 1 << 20
"""Bytes of a version's file up to which it is quicker to compare it than to have Spark describe the table."""

_OBSTACLES = {
    "ALREADY_EXISTS": "what is there is not a Delta table",
    "SCHEMA_NOT_FOUND": "there is no such schema; CREATE SCHEMA makes it",
    "CANNOT_CREATE_LOG_PATH": "no folder can be made there",
}
"""What Spark says when a table cannot be made, and what it means."""


@dataclass
class Table:
    """One table as it was found. Only `version` ever changes, and only upwards, so that threads may share it."""

    name: str
    """As it is named in SQL."""
    id: str
    location: str
    properties: Mapping[str, str]
    schema: StructType
    log: Log
    version: int
    """The newest version that was seen."""
    _short: ShortWay | None = None

    @staticmethod
    def find(spark: SparkSession, name: str, folder: Path | None = None) -> Table | None:
        """The table of this name; None when there is none. Raises `DestinationError` for one that is not Delta's.

        One in a `folder` that this machine and Spark see alike is read from its log, ten times quicker than Spark
        describes it.
        """
        from pyspark.errors import AnalysisException

        seen = seen_alike(spark, name, folder) if folder else None
        if seen is not None or (folder is not None and _is_nowhere(spark, folder)):
            return seen
        try:
            detail = spark.sql(f"DESCRIBE DETAIL {name}").select("format", "id", "location", "properties").collect()
        except AnalysisException as error:
            if no_such_table(error):
                return None
            raise
        ((kind, table_id, location, properties),) = detail
        if kind != "delta":
            raise DestinationError(f"{name} is not a Delta table but {kind}.", hint="Name another table.")
        log: Log = _local(location, table_id) or SparkLog(name, location)
        return Table(
            name=name,
            id=table_id,
            location=location,
            properties=properties,
            schema=spark.table(name).schema,
            log=log,
            version=log.latest(spark),
        )

    @property
    def is_there(self) -> bool:
        """Whether the log that is read without Spark is still that of this table."""
        return isinstance(self.log, LocalLog) and self.log.is_of(self.id)

    @property
    def stands(self) -> bool:
        """Whether what was seen of the table is there still, as far as that can be told at once."""
        return not isinstance(self.log, LocalLog) or self.log.has(self.version)

    def refresh(self) -> bool:
        """Look at the log again, if that is possible without Spark; whether it is, and is the log of this table."""
        if not isinstance(self.log, LocalLog) or not self.is_there:
            return False
        self.version = self.log.newest(self.version)
        return True

    @contextlib.contextmanager
    def held(self, patience: float | None = None) -> Iterator[None]:
        """Let no other process of ours commit to it, where Spark itself does not see to that."""
        if isinstance(self.log, LocalLog):
            with committing(self.log.folder, patience):
                yield
        else:
            yield

    def declared(self, spark: SparkSession) -> Declared:
        """What it says of its columns. Generated and identity columns are told where its folder can be read."""
        fields = json.loads(self.log.metadata(spark).get("schemaString", '{"fields": []}'))["fields"]
        said = {field["name"].lower(): field["metadata"] for field in fields}
        return Declared(
            schema=self.schema,
            checks={key[len(_CHECK) :]: sql for key, sql in sorted(self.properties.items()) if key.startswith(_CHECK)},
            generated={name: sql for name, each in said.items() if (sql := each.get("delta.generationExpression"))},
            identities={name: each[_EXPLICIT] for name, each in said.items() if _EXPLICIT in each},
        )

    def append(self, rows: DataFrame, tag: str) -> None:
        """Append the rows in one commit that carries the tag."""
        from pyspark.errors import AnalysisException

        if isinstance(self.log, LocalLog) and len(rows.columns) == len(self.schema):
            # A tenth quicker. But it makes a table where there is none, which only a local log rules out; and of rows
            # that lack columns it wants the partitions all the same, and stumbles over a struct with a varchar in it.
            try:
                rows.write.format("delta").mode("append").option("userMetadata", tag).save(self.location)
                return
            except AnalysisException as error:  # a column has become wider since the run began: the other way casts
                if _OTHER_TYPES not in str(error):
                    raise
        rows.writeTo(self.name).option("userMetadata", tag).append()

    def append_here(
        self,
        spark: SparkSession,
        rows: DataFrame | pyarrow.RecordBatchReader,
        tag: str,
        key: str,
        deadline: Deadline | None = None,
    ) -> Written | None:
        """Append few rows, or ones that are read in this process, in one commit that carries the tag, without Spark's
        Delta; None if they cannot go this way, and nothing was written. `key` is that of one of the labels in the tag.
        Raises `Late` if the deadline is over."""
        if not isinstance(self.log, LocalLog):
            return None
        write = self._short_way(spark, self.log).begin(rows)
        found = write.fetched(rows) if write is not None else None
        if write is None or found is None:
            return None
        if found.empty:
            return Written(rows=0)
        return self._committed(spark, self.log, lambda *check: write.commit(found, tag, *check), key, deadline)

    def adopt(
        self, spark: SparkSession, files: Sequence[Path], tag: str, key: str, deadline: Deadline | None = None
    ) -> Written | None:
        """The same with rows that lie in parquet files which Spark wrote: they become the table's own as they are."""
        found = Adoptable.of(files) if isinstance(self.log, LocalLog) else None
        if found is None or not isinstance(self.log, LocalLog):
            return None
        write = self._short_way(spark, self.log).taking(found)
        if write is None or not found.rows:
            return None if write is None else Written(rows=0)
        return self._committed(spark, self.log, lambda *check: write.take(found, tag, *check), key, deadline)

    def _committed(
        self, spark: SparkSession, log: LocalLog, commit: Callable[..., None], key: str, deadline: Deadline | None
    ) -> Written | None:
        before = self.version
        with committing(log.folder, apart=True) as held:
            if not held:
                return None
            try:
                commit(*([deadline.check] if deadline else []))
            except (Late, Overwritten):
                raise
            except NotInTime:
                return None
            except Exception:
                landed = self.written(spark, key, before)
                if landed.version is None:
                    raise
                return landed
        return self.written(spark, key, before)

    def mark(self, spark: SparkSession, properties: Mapping[str, str], patience: float) -> bool:
        """Set these properties in one commit, without Spark's Delta; false where that cannot be, or where others write
        for longer than `patience`, and nothing was done."""
        if not isinstance(self.log, LocalLog):
            return False
        short = self._short_way(spark, self.log)
        if not short.is_open():
            return False
        with committing(self.log.folder, patience, apart=True) as held:
            return held and short.mark(properties)

    def _short_way(self, spark: SparkSession, log: LocalLog) -> ShortWay:
        if self._short is None:
            commits = commits_of(spark)
            plain = commits.can_be_held() and writes_plainly(spark)
            self._short = ShortWay(log.folder, self.id, commits, _closed=not plain)
        return self._short

    def replace(self, rows: DataFrame, tag: str, where: str | None) -> None:
        """Put the rows in the place of all rows, or of those that match, in one commit that carries the tag."""
        from pyspark.sql import functions as F

        writer = rows.writeTo(self.name).option("userMetadata", tag).option("partitionOverwriteMode", "static")
        writer.overwrite(F.expr(where or "true"))

    def optimized(self, spark: SparkSession, back: int) -> int:
        """At which version its small files were last put together, if that was one of the last so many; else the one
        before these."""
        oldest = max(self.version - back, 0)
        found = (commit.version for commit in self.log.commits(spark, oldest) if commit.operation == "OPTIMIZE")
        return next(found, oldest)

    def written(self, spark: SparkSession, key: str, after: int) -> Written:
        """What the write under this label left, which began when version `after` was there."""
        for commit in self.log.commits(spark, after):
            self.version = max(self.version, commit.version)
            if commit.carries(key):
                return commit.written()
        return Written(rows=0)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a table is made that is not there yet."""

    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing of a table but its properties."""
        return not self.partition_by and not self.cluster_by and self.comment is None

    def sql(self, schema: StructType) -> str:
        """The table with these columns, as `CREATE TABLE` takes it behind the name."""
        clauses = [f"({columns(schema)}) USING delta"]
        if self.partition_by:
            clauses.append(f"PARTITIONED BY ({', '.join(map(quoted, self.partition_by))})")
        if self.cluster_by:
            clauses.append(f"CLUSTER BY ({', '.join(map(quoted, self.cluster_by))})")
        if self.comment is not None:
            clauses.append(f"COMMENT {text(self.comment)}")
        listed = ", ".join(f"{text(key)} = {text(value)}" for key, value in self.properties.items())
        return " ".join([*clauses, f"TBLPROPERTIES ({listed})"])


def make(spark: SparkSession, name: str, schema: StructType, layout: Layout, folder: Path | None) -> Table:
    """Make the table, unless somebody else has made it a moment ago. Raises `DestinationError` with what is in the way.

    `folder` is where it will lie, if that is on this machine.
    """
    with making(folder) if folder else contextlib.nullcontext():
        found = Table.find(spark, name, folder)
        if found is not None:
            return found
        try:
            here = folder if layout.is_plain and is_one_disk(spark) else None
            if here is None or not made_here(spark, here, schema, layout.properties):
                spark.sql(f"CREATE TABLE {name} {layout.sql(schema)}")
        except Exception as error:
            found, why = Table.find(spark, name, folder), _obstacle(error, folder)
            if found is None and why:
                raise DestinationError(f"No table can be made at {name}: {why}.", hint="Name another place.") from error
            if found is None:
                raise
            return found
        made = Table.find(spark, name, folder)
    assert made is not None
    return made


def _obstacle(error: Exception, folder: Path | None) -> str:
    """What is in the way of a table; empty when it is not known."""
    above = next(each for each in folder.parents if each.exists()) if folder else None
    if above is not None and not above.is_dir():
        return f"{above} is a file"
    if above is not None and not os.access(above, os.W_OK):
        return f"{above} cannot be written"
    return next((why for sign, why in _OBSTACLES.items() if sign in str(error)), "")


def seen_alike(spark: SparkSession, name: str, folder: Path) -> Table | None:
    """The table in this folder; None unless Spark reads the same there beside its newest version."""
    from pyspark.sql.types import StructType

    log = LocalLog(folder)
    version = log.newest()
    if version < 0 or not (is_one_disk(spark) or _reads_alike(spark, log, version)):
        return None
    metadata = log.metadata(spark)
    if not metadata:
        return None
    return Table(
        name=name,
        id=metadata["id"],
        location=f"file:{folder}",
        properties=metadata.get("configuration") or {},
        schema=StructType.fromJson(json.loads(metadata["schemaString"])),
        log=log,
        version=version,
    )


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
    beside = log.file(version, "crc" if log.checksum(version) else "json")
    if beside.stat().st_size > _MOST_TO_COMPARE:
        return False
    here = beside.read_text(encoding="utf-8")
    try:
        read = spark.read.text(literally(str(beside)), wholetext=True).collect()
    except Exception:  # a Spark elsewhere has no such file, or may not read it, and says so in many ways
        return False
    return [row[0] for row in read] == [here]


def _local(location: str, table_id: str) -> LocalLog | None:
    """The log of the table with this id, if its place is a folder on this machine."""
    if not location.startswith("file:"):
        return None
    log = LocalLog(Path("/" + location[len("file:") :].lstrip("/")))
    return log if log.is_of(table_id) else None
