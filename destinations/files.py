"""The destination that writes rows as files, with one folder for each batch.

Each attempt to write has separate files and is published once: on this disk by a rename, in an object store by a
manifest.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from destinations.batch_folders import NOTE, BatchFolders, NameTaken, list_data_files, make_note, name_folder
from destinations.batch_manifests import BatchManifests
from destinations.capabilities import DeliveryAccount, ProvesDeliveries, ReadBack, ReadsBack, StopsWriters
from destinations.destination import (
    Destination,
    DestinationError,
    Identity,
    Misfit,
    OpenDestination,
    Written,
    make_other_place_error,
    make_unsure_error,
)
from destinations.labels import BatchLabel, Label
from origins.batch_rows import BatchRows
from origins.codec import encode
from origins.crash_points import reach, reach_within
from origins.errors import has_condition, list_spark_errors
from origins.files.file_systems import escape_pattern
from origins.lazy import DataFrame, SparkSession, T, pq, pyspark
from origins.names import SCHEME, make_absolute
from origins.schema import make_empty_frame
from origins.spark_settings import COMPLETE
from origins.store_access import StoreUrl, is_store_url

_OWN = ("_lane", "_batch")
TIMES: Mapping[str, str] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How dates with times are written as text."""
CSV: Mapping[str, str] = {
    **TIMES,
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
"""How CSV is written, so that a reader gets every text back unchanged."""
_DEFAULTS: Mapping[str, Mapping[str, str]] = {"parquet": {}, "json": TIMES, "csv": {**CSV, "header": "true"}}
_MISCOUNTED: Mapping[str, Sequence[str]] = {"json": ("pretty", "encoding", "charset", "linesep")}
_MARK = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}


@dataclass(frozen=True, kw_only=True)
class Files(Destination, ProvesDeliveries, ReadsBack):
    """Writes each batch to a folder of its own, as parquet, JSON or CSV.

    Example:
        files:
          path: export/orders
          format: csv
          options: {header: "true"}
          partition_by: [day]
    """

    guarantee: ClassVar[str] = (
        "effectively once on a disk, and in an object store for readers of its manifests; at least once in other places"
    )

    path: str = field(metadata={"path": True})
    """The folder that holds the folders of all batches, relative to the definition; or a URL."""
    format: Literal["parquet", "json", "csv"] = "parquet"
    """The format of the files."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's writer for the format, for example `compression`."""
    partition_by: Sequence[str] = ()
    """Columns that become folders below the batch's folder."""
    files_per_batch: int | None = None
    """How many files a batch has at most, in each partition. The default is one for each task of Spark."""
    manifest: bool = True
    """In an object store: whether a manifest publishes each batch, so that readers of manifests see it once. With
    `false` Spark alone writes there, and a batch is there at least once."""

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("path: expected a path, got nothing")
        if self.format not in _DEFAULTS:
            raise ValueError(f"format: expected {', '.join(_DEFAULTS)}, got {self.format!r}")
        if self.files_per_batch is not None and self.files_per_batch < 1:
            raise ValueError(f"files_per_batch: expected at least 1, got {self.files_per_batch}")
        for name in {name for name in self.options if name.lower() in _MISCOUNTED.get(self.format, ())}:
            raise ValueError(f"options.{name}: cannot be set, since Wherry counts rows as lines of UTF-8")
        if isinstance(self.partition_by, str):
            raise ValueError(f"partition_by: expected a list, got {self.partition_by!r}")
        object.__setattr__(self, "guarantee", self._describe_guarantee())

    def _describe_guarantee(self) -> str:
        if self.folder is not None:
            return "effectively once on a disk, where a rename publishes each batch"
        if self.manifests is not None:
            return "effectively once for readers of its manifests; at least once for readers of the whole folder"
        return "at least once: after a crash Wherry writes the open batch again"

    @property
    def remembers(self) -> bool:  # type: ignore[override]  # it depends on the place
        """Whether it remembers batches: on a disk, and in an object store with manifests."""
        return self.batch_store is not None

    @property
    def place(self) -> str:
        return make_absolute(self.path)

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None for a store."""
        local = self.place.removeprefix("file:")
        return None if SCHEME.match(local) else Path("/" + local.lstrip("/"))

    @property
    def manifests(self) -> BatchManifests | None:
        """The manifests in an object store; None if the destination has none."""
        if not self.manifest or not is_store_url(self.place):
            return None
        return BatchManifests(StoreUrl(self.place, getattr(self.path, "settings", {})))

    @property
    def batch_store(self) -> BatchFolders | BatchManifests | None:
        """The place in which each batch is published once; None if the destination cannot do that."""
        return self.manifests if self.folder is None else BatchFolders(self.folder)

    @property
    def read_back(self) -> ReadBack | None:
        """None for CSV and with `partition_by`, because they may not distinguish empty text from NULL."""
        return None if self.format == "csv" or self.partition_by else self._read_rows

    def _read_rows(self, spark: SparkSession, labels: Sequence[Label], schema: T.StructType) -> DataFrame:
        store, root = self.batch_store, self.place.rstrip("/")
        options = {
            **_DEFAULTS[self.format],
            **self.options,
            "mode": "FAILFAST",
            "recursiveFileLookup": "true",
            **COMPLETE,
        }
        reader = spark.read.format(self.format).schema(schema).options(**options)
        if store is None:
            folders = [escape_pattern(f"{root}/{name_folder([label])}") for label in labels]
            found = [folder for folder in folders if _is_there(reader, folder)]
        else:
            found = [escape_pattern(folder) for label in labels if (folder := store.locate(label)) is not None]
        return reader.load(found) if found else make_empty_frame(spark, schema)

    def list_labels(self, spark: SparkSession) -> Iterator[BatchLabel]:
        return self.batch_store.list_labels() if self.batch_store else iter(())

    def open(self) -> OpenFiles:
        return OpenFiles(destination=self)

    def account(self, spark: Callable[[], SparkSession], pipeline: str) -> DeliveryAccount | None:
        store = self.batch_store
        if store is None:
            return None
        what, known = ("manifest" if self.folder is None else "folder"), store.id
        brought, losses = store.list_brought()
        return DeliveryAccount(
            place=str(store.root),
            proof=f"{what}, row count and size in bytes" if known else "nothing: the folder was not found",
            there=known != "",
            id=known,
            since=0 if store.is_whole else 1,
            brought=brought,
            losses=losses,
        )


def _is_there(reader: pyspark.sql.DataFrameReader, folder: str) -> bool:
    try:
        _ = reader.load(folder).schema  # Spark Connect looks for the folder only here
    except list_spark_errors() as error:
        if not has_condition(error, "PATH_NOT_FOUND"):
            raise
        return False
    return True


@dataclass(eq=False)
class OpenFiles(OpenDestination, StopsWriters):
    """The folder of a files destination that a run has open."""

    destination: Files
    _id: str = ""
    """The id of the folder that the run opened."""
    _known: str = ""
    """The id of the folder that an earlier run opened."""
    _claims: dict[str, int] = field(default_factory=dict)
    """By batch, the number in the name that this run claimed. It also counts the claims of other processes."""

    def expects(self, known: Identity) -> None:
        self._known = known.id

    def ensure_place(self, spark: SparkSession, schema: T.StructType | None) -> Identity:
        store = self._batch_store
        if store is not None and self._known and store.id != self._known:
            raise make_other_place_error(self.destination.place, gone=not store.id)
        self._id = store.make() if store else ""
        if schema is not None:
            self._check(schema)
            self._try_write(spark, schema)
        return Identity(place=self.destination.place, id=self._id)

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        store, first, frame = self._batch_store, labels[0], rows.frame()
        if store is None:
            target = f"{self.destination.place.rstrip('/')}/{name_folder(labels)}"
            self._save(frame, target)
            return Written(rows=self._count_rows(spark, target, frame.schema))
        if not store.id or store.id != (self._id or store.id):
            raise DestinationError(f"The folder {store.root} is missing, or was replaced after the run opened it.")
        frame = reach_within("in-write", frame, first.destination)
        try:
            if isinstance(store, BatchFolders):
                return self._put_folder(spark, frame, labels, store)
            return self._put_manifest(spark, frame, labels, store)
        except (FileNotFoundError, NameTaken) as error:
            raise DestinationError(
                f"Batch {first.batch.number} of lane {first.batch.lane} was not written to {store.root}: "
                "another run has fenced this one or claimed the batch, or the batch is there already.",
                hint="No row of it was published. Find the other run of this pipeline:  wherry status FILE",
            ) from (error if isinstance(error, NameTaken) else NameTaken(str(error)))

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        """Find the batch, or claim it. After the claim no earlier owner can publish it."""
        store = self._batch_store
        if store is None:
            return None
        if identity.id and store.id != identity.id:
            raise make_unsure_error(label, f"{store.root} is missing or was replaced")
        written = store.find(label)
        if written is not None:
            return written
        claims = 0
        while not store.claim(name_folder([label], claims), make_note([label], None)):
            claims += 1
        self._claims[label.key] = claims + 1
        reach("after-claim", label.destination)
        return store.find(label)

    def fence(self, spark: SparkSession, token: str) -> None:
        if self._batch_store is not None:
            self._batch_store.fence(token)

    @property
    def _batch_store(self) -> BatchFolders | BatchManifests | None:
        return self.destination.batch_store

    def _put_folder(
        self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label], folders: BatchFolders
    ) -> Written:
        """Publish the rows by a rename.

        Raises `FileNotFoundError` or `NameTaken` if a fence, a claim or a batch prevents it.
        """
        with folders.open_attempt() as attempt:
            written, ready = attempt / "rows", attempt / "ready"
            written.mkdir()
            (written / NOTE).touch()
            try:
                self._save(rows, str(written))
                written.rename(ready)
                written_rows = self._count_written(spark, ready, rows.schema)
            except list_spark_errors(DestinationError) as error:
                if (written / NOTE).exists() or (ready / NOTE).exists():
                    raise
                raise FileNotFoundError(ready / NOTE) from error  # a fence removed the files under Spark
            if not (ready / NOTE).exists():
                raise FileNotFoundError(ready / NOTE)
            if written_rows.rows:
                (ready / NOTE).write_text(json.dumps(encode(make_note(labels, written_rows))), encoding="utf-8")
                folders.publish(ready, name_folder(labels, self._claims.get(labels[0].key, 0)))
        return written_rows

    def _put_manifest(
        self, spark: SparkSession, rows: DataFrame, labels: Sequence[Label], manifests: BatchManifests
    ) -> Written:
        """Publish the rows by a manifest. Raises `NameTaken` if a fence, a claim or a batch prevents it."""
        with manifests.open_attempt(labels, self._claims.get(labels[0].key, 0)) as attempt:
            try:
                self._save(rows, attempt.url)
                files = manifests.list_files(attempt)
                count = self._count_rows(spark, attempt.url, rows.schema) if files else 0
            except list_spark_errors() as error:
                if manifests.is_taken(attempt):
                    raise NameTaken(attempt.manifest) from error
                raise
            written = Written(rows=count, bytes=sum(files.values()))
            if count:
                manifests.publish(attempt, labels, written, files)
            elif manifests.is_taken(attempt):
                raise NameTaken(attempt.manifest)
        return written

    def _save(self, rows: DataFrame, target: str) -> None:
        files = self.destination
        if files.files_per_batch is not None:
            rows = rows.coalesce(files.files_per_batch)
        mode = "overwrite" if files.folder is None else "append"
        options = {**_DEFAULTS[files.format], **files.options, **_MARK}
        rows.write.format(files.format).options(**options).partitionBy(*files.partition_by).mode(mode).save(target)

    def _count_written(self, spark: SparkSession, ready: Path, schema: T.StructType) -> Written:
        """Count the rows and bytes in the folder from its files and not from Spark's figures."""
        if not (ready / "_SUCCESS").exists():
            raise DestinationError(
                f"Spark does not write to this machine's disk, and {self.destination.place} is on it.",
                hint="Use a path that both share, or the URL of a store.",
            )
        files = list_data_files(ready)
        if self.destination.format == "parquet":
            rows = sum(pq.read_metadata(file).num_rows for file in files)
        else:
            rows = self._count_rows(spark, str(ready), schema) if files else 0
        return Written(rows=rows, bytes=sum(file.stat().st_size for file in files))

    def _count_rows(self, spark: SparkSession, target: str, schema: T.StructType) -> int:
        """Count the rows that a reader finds. In JSON, a line is a row. In CSV, a row may have several lines."""
        if self.destination.format == "json":
            return spark.read.option("recursiveFileLookup", "true").text(target).count()
        options = {**_DEFAULTS[self.destination.format], **self.destination.options, "multiLine": "true"}
        return spark.read.schema(schema).options(**options).format(self.destination.format).load(target).count()

    def _check(self, schema: T.StructType) -> None:
        """Raise `Misfit` if a column has a name that Wherry uses, or `partition_by` names a column that is missing."""
        names = [name.lower() for name in schema.names]
        problems = [
            f"{name}: Wherry uses this name for folders here; rename the column with the stage rename"
            for name in schema.names
            if name.lower() in _OWN
        ]
        for name in self.destination.partition_by:
            if name.lower() not in names:
                near = difflib.get_close_matches(name.lower(), names, n=1)
                meant = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(schema.names)}"
                problems.append(f"partition_by: there is no column '{name}'; {meant}")
        if self.destination.format == "csv" and len(names) == 1 and not self.destination.options.get("nullValue"):
            problems.append(
                f"{schema.names[0]}: a NULL would be an empty line, and CSV readers skip empty lines; set options: "
                "{nullValue: …}"
            )
        if problems:
            raise Misfit("\n  ".join([f"The rows do not fit the folder {self.destination.place}:", *problems]))

    def _try_write(self, spark: SparkSession, schema: T.StructType) -> None:
        """Write no rows, to learn whether Spark accepts the types, the names and the options."""
        store, place = self._batch_store, self.destination.place
        with store.open_attempt() if isinstance(store, BatchFolders) else nullcontext() as attempt:
            try:
                self._save(make_empty_frame(spark, schema), str(attempt or f"{place.rstrip('/')}/_trial"))
            except list_spark_errors() as error:
                reason = str(error).splitlines()[0]
                raise Misfit(f"The rows cannot be written to {place} as {self.destination.format}: {reason}") from error
