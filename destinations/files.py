"""Rows as files, a folder a batch."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from destinations.account import Account
from destinations.destination import (
    Destination,
    DestinationError,
    Identity,
    Label,
    Misfit,
    Unsure,
    Written,
    other_than_known,
)
from destinations.files_account import account
from destinations.folders import NOTE, Folders, Taken
from origins.batch import JSON
from origins.crash_points import reached, within
from origins.names import SCHEME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")
_OWN = ("_lane", "_batch")
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "parquet": {},
    "json": _TIMES,
    "csv": {
        **_TIMES,
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}
_MISCOUNTED: Mapping[str, Sequence[str]] = {"json": ("pretty", "encoding", "charset", "linesep")}
_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}


@dataclass
class _Held:
    id: str = ""
    """Which folder it is that the run opened."""
    known: str = ""
    """Which folder it was when an earlier run opened it."""
    claims: dict[str, int] = field(default_factory=dict)
    """How often each batch was claimed by the time that we claimed it: the number of the name that is ours."""


@dataclass(frozen=True, kw_only=True)
class Files(Destination):
    """Writes each batch to a folder of its own, as parquet, JSON or CSV."""

    guarantee: ClassVar[str] = (
        "effectively once on a disk: a batch is one folder, published by a rename and claimed after a crash; "
        "at least once in a store such as s3, which has no such rename"
    )

    path: str = field(metadata={"path": True})
    """The folder of folders; relative to the definition, or a URL."""
    format: Literal["parquet", "json", "csv"] = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    """Spark's options for writing this format, such as `compression`."""
    partition_by: Sequence[str] = ()
    """Columns that become folders within a batch."""
    files_per_batch: int | None = None
    """At most so many files for a batch (in each of its partitions); default: as many as Spark has tasks."""

    _held: _Held = field(default_factory=_Held, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("path: expected a path, got nothing")
        if self.format not in _DEFAULTS:
            raise ValueError(f"format: expected {', '.join(_DEFAULTS)}, got {self.format!r}")
        if self.files_per_batch is not None and self.files_per_batch < 1:
            raise ValueError(f"files_per_batch: expected at least 1, got {self.files_per_batch}")
        for name in {name for name in self.options if name.lower() in _MISCOUNTED.get(self.format, ())}:
            raise ValueError(f"options.{name}: is not to be had, for rows are counted as lines of UTF-8")
        if isinstance(self.partition_by, str):
            raise ValueError(f"partition_by: expected a list, got {self.partition_by!r}")

    @property
    def remembers(self) -> bool:  # type: ignore[override]  # it depends on the place
        """On a disk it does; in a store it does not."""
        return self.folder is not None

    @property
    def place(self) -> str:
        return self.path if SCHEME.match(self.path) else os.path.abspath(self.path)

    @property
    def folder(self) -> Path | None:
        """Where it lies on this machine; None for a store."""
        local = self.place.removeprefix("file:")
        return None if SCHEME.match(local) else Path("/" + local.lstrip("/"))

    def expects(self, known: Identity) -> None:
        self._held.known = known.id

    def open(self, spark: SparkSession, schema: StructType | None) -> Identity:
        folders = self._folders
        if folders is not None and self._held.known and folders.id != self._held.known:
            raise other_than_known(self.place, gone=not folders.id)
        self._held.id = folders.make() if folders else ""
        if schema is not None:
            self._check(schema)
            self._try(spark, schema)
        return Identity(place=self.place, id=self._held.id)

    def write(self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label]) -> Written:
        folders, first = self._folders, labels[0]
        if folders is None:
            target = f"{self.place.rstrip('/')}/{_name(labels)}"
            self._save(rows, target)
            return Written(rows=self._rows_in(spark, target, rows.schema))
        if not folders.id or folders.id != (self._held.id or folders.id):
            raise DestinationError(f"The folder {folders.root} is gone, or is not the one that the run opened.")
        with folders.attempt() as attempt:
            written, ready = attempt / "rows", attempt / "ready"
            written.mkdir()
            (written / NOTE).touch()
            self._save(within("in-write", rows, first.destination), str(written))
            try:
                written.rename(ready)
                if not (ready / NOTE).exists():
                    raise FileNotFoundError(ready / NOTE)
                found = self._counted(spark, ready, rows.schema)
                if found.rows:
                    (ready / NOTE).write_text(json.dumps(_note(labels, found)), encoding="utf-8")
                    folders.publish(ready, _name(labels, self._held.claims.get(first.key, 0)))
            except (FileNotFoundError, Taken) as error:
                raise DestinationError(
                    f"Batch {first.batch.number} of lane {first.batch.lane} was not written to {folders.root}: another "
                    "run has fenced this one or claimed the batch, or it is there already.",
                    hint="Nothing of it was published. Look who else carries this pipeline.",
                ) from error
        return found

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        """Asking claims: no earlier owner can publish the batch any more if it is not there."""
        folders = self._folders
        if folders is None:
            return None
        if folders.id != identity.id:
            raise Unsure(
                f"{label.destination} cannot say whether it has batch {label.batch.number} of lane "
                f"{label.batch.lane}: {folders.root} is gone, or another folder has taken its place.",
                hint='Look whether its rows are there, and say so:  wherry run FILE --assume delivered --reason "…"  '
                'or  wherry run FILE --assume missing --reason "…"',
            )
        found = _found(folders, label)
        if found is not None:
            return found
        claims = 0
        while not folders.claim(_name([label], claims), _note([label], None)):
            claims += 1
        self._held.claims[label.key] = claims + 1
        reached("after-claim", label.destination)
        return _found(folders, label)

    def account(self, spark: Callable[[], SparkSession], pipeline: str) -> Account | None:
        return None if self._folders is None else account(self._folders)

    def fence(self, spark: SparkSession, token: str) -> None:
        if self._folders is not None:
            self._folders.fence(token)

    @property
    def _folders(self) -> Folders | None:
        return None if self.folder is None else Folders(self.folder)

    def _save(self, rows: DataFrame, target: str) -> None:
        if self.files_per_batch is not None:
            rows = rows.coalesce(self.files_per_batch)
        mode = "overwrite" if self.folder is None else "append"
        options = {**_DEFAULTS[self.format], **self.options, **_MARK}
        rows.write.format(self.format).options(**options).partitionBy(*self.partition_by).mode(mode).save(target)

    def _counted(self, spark: SparkSession, ready: Path, schema: StructType) -> Written:
        """What lies in the folder, by the files themselves: neither Spark's word nor ours."""
        if not (ready / "_SUCCESS").exists():
            raise DestinationError(
                f"Spark does not write to the disk of this machine, on which {self.place} lies.",
                hint="Use a path that both have, or the URL of a store.",
            )
        files = [file for file in ready.rglob("*") if file.is_file() and not file.name.startswith(("_", "."))]
        if self.format == "parquet":
            from pyarrow import parquet

            rows = sum(parquet.read_metadata(file).num_rows for file in files)
        else:
            rows = self._rows_in(spark, str(ready), schema) if files else 0
        return Written(rows=rows, bytes=sum(file.stat().st_size for file in files))

    def _rows_in(self, spark: SparkSession, target: str, schema: StructType) -> int:
        """The rows that a reader finds; a line of JSON is one, and a row of CSV may have several lines."""
        if self.format == "json":
            return spark.read.option("recursiveFileLookup", "true").text(target).count()
        options = {**_DEFAULTS[self.format], **self.options, "multiLine": "true"}
        return spark.read.schema(schema).options(**options).format(self.format).load(target).count()

    def _check(self, schema: StructType) -> None:
        """Raises `Misfit` when a column has a name that is taken, or one to partition by is none."""
        names = [name.lower() for name in schema.names]
        problems = [
            f"{name}: is the name of a folder here; with rename give the column another one"
            for name in schema.names
            if name.lower() in _OWN
        ]
        for name in self.partition_by:
            if name.lower() not in names:
                near = difflib.get_close_matches(name.lower(), names, n=1)
                meant = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(schema.names)}"
                problems.append(f"partition_by: there is no column '{name}'; {meant}")
        if self.format == "csv" and len(names) == 1 and not self.options.get("nullValue"):
            problems.append(
                f"{schema.names[0]}: a NULL would be an empty line, which readers of CSV pass over; "
                "options: {nullValue: …}"
            )
        if problems:
            raise Misfit("\n  ".join([f"The rows do not fit the folder {self.place}:", *problems]))

    def _try(self, spark: SparkSession, schema: StructType) -> None:
        """Write no rows, to hear what Spark says of the types, the names and the options."""
        folders = self._folders
        with nullcontext() if folders is None else folders.attempt() as attempt:
            try:
                self._save(spark.createDataFrame([], schema), str(attempt or f"{self.place.rstrip('/')}/_trial"))
            except Exception as error:
                said = str(error).splitlines()[0]
                raise Misfit(f"The rows cannot be written to {self.place} as {self.format}: {said}") from error


def _name(labels: Sequence[Label], claims: int = 0) -> str:
    """What a batch's folder is called; another name each time that somebody claimed it, for only the last one to
    claim it knows the last name."""
    batch = labels[0].batch
    lane = _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", batch.lane)
    digests = "+".join(map(_digest, labels))
    return f"_lane={lane}/_batch={batch.number:08}-{digests}" + (f".{claims}" if claims else "")


def _digest(label: Label) -> str:
    return hashlib.sha256(label.key.encode()).hexdigest()[:16]


def _found(folders: Folders, label: Label) -> Written | None:
    for note in folders.notes(f"_lane=*/_batch=*{_digest(label)}*"):
        if note["rows"] is not None:
            alone = len(note["keys"]) == 1
            return Written(rows=note["rows"] if alone else None, bytes=note["bytes"] if alone else None)
    return None


def _note(labels: Sequence[Label], found: Written | None) -> Mapping[str, JSON]:
    """What lies beside a batch's rows; without rows it says that somebody claimed it and the folder stays empty."""
    batch = labels[0].batch
    return {
        "keys": [label.key for label in labels],
        "pipeline": batch.pipeline,
        "lane": batch.lane,
        "number": batch.number,
        "rows": found and found.rows,
        "bytes": found and found.bytes,
    }
