"""Stores for decided batches until they are delivered, a folder or table for each part, and how their rows are read."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from destinations.delta import data_files
from destinations.delta.direct_append import are_stores_plain, collect_arrow
from origins.batch import Json
from origins.batch_rows import make_frame
from origins.delta_actions import TypeBody
from origins.files.file_systems import escape_pattern
from origins.files.parquet_rows import ROWS, has_old_days, open_file
from origins.lazy import DataFrame, SparkSession, T, pa, pq, pyspark
from origins.names import quote_name
from origins.object_store import ObjectStore, open_store
from origins.spark_settings import COMPLETE
from origins.spark_versions import make_arrow_schema
from origins.store_access import StoreUrl
from runners.spark.session import is_here

_FEW = "few.parquet"
"""The only file of a frame whose rows passed through this process."""
_READ_HERE, _PIECE, _PACKED = 64 << 20, 8 << 20, 16 << 20
"""How many bytes this process reads at most, about how many at once, and how many at most of a store's objects."""
_SIMPLE = frozenset({
    "boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
})  # fmt: skip


class PreparedStore(ABC):
    """A store of frames, under names that are used only once. A stored frame is always complete."""

    takes_few: ClassVar[bool] = False
    """Whether few rows can pass through this process, no matter where Spark works."""

    @abstractmethod
    def write(self, name: str, frame: DataFrame, by: str = "") -> int | None:
        """Compute and write the frame. Return the number of rows, if it is known without Spark.

        With `by`, rows with different values of this column come into different files. It is a column of numbers.
        """

    def count_by(self, spark: SparkSession, name: str, by: str) -> Counter[int]:
        """Return how many rows have which value of the column by which the frame was written."""
        return Counter(dict(self.read(spark, name).groupBy(by).count().collect()))

    def list_folders(self, name: str) -> Sequence[str]:
        """Return the names of the folders for the values by which a frame was written, if this process reads them."""
        return ()

    def write_few(self, name: str, frame: DataFrame) -> Any:
        """Compute and write a frame of few rows, which pass through this process. Return the rows as an Arrow table.

        Return None, and write nothing, if the frame must be written with `write`.
        """
        return None

    def put(self, name: str, rows: Sequence[Mapping[str, Json]], schema: T.StructType) -> bool:
        """Write rows that are in this process. Return False, and write nothing, if only Spark can write them."""
        return False

    @abstractmethod
    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """Return the frame that was written."""

    def scan(self, name: str, wanted: Callable[[str], bool]) -> pa.RecordBatchReader | None:
        """Return some columns of the rows, in pieces, or None if Spark must read them."""
        return None

    def list_files(self, name: str) -> Sequence[Path]:
        """Return the files of the rows, if they are on this machine."""
        return ()

    def remove(self, spark: SparkSession, name: str) -> None:
        """Remove the rows of all names that begin with this name and a dash. A repeated call has no effect."""
        for place in self._list_places(spark):
            if place.startswith(self._name_place(f"{name}-")):
                self._delete(spark, place)

    def sweep(self, spark: SparkSession, keep: Callable[[], Collection[str]]) -> None:
        """Remove all rows except rows under the names that `keep` returns.

        `keep` is called after the rows are listed. Rows that a new owner prepares meanwhile are therefore not removed.
        """
        found = self._list_places(spark)
        kept = tuple(self._name_place(f"{name}-") for name in keep())
        for place in found:
            if not place.startswith(kept):
                self._delete(spark, place)

    def _name_place(self, name: str) -> str:
        """Return the folder or table for rows of this name."""
        return name

    @abstractmethod
    def _list_places(self, spark: SparkSession) -> Sequence[str]:
        """Return the folders or tables that hold rows."""

    @abstractmethod
    def _delete(self, spark: SparkSession, place: str) -> None:
        """Delete a folder or table."""


@dataclass(frozen=True)
class FolderStore(PreparedStore):
    """Parquet folders below one directory."""

    root: Path
    read_bytes: int = _READ_HERE
    """Up to how many unpacked bytes one thread of this process reads, because it is faster than Spark."""
    piece_bytes: int = _PIECE
    """About how many bytes are read at once."""
    _schemas: dict[str, T.StructType] = field(default_factory=dict, repr=False, compare=False)
    """The schemas of the frames that this process wrote. Reading one from the files costs a Spark job each time."""

    def write(self, name: str, frame: DataFrame, by: str = "") -> int | None:
        _make_writer(frame, by).parquet(str(self.root / name))
        self._schemas[name] = frame.schema
        return self._count_files(name)

    def count_by(self, spark: SparkSession, name: str, by: str) -> Counter[int]:
        counts = Counter[int]()
        for folder in self.list_folders(name):
            counts[int(folder.partition("=")[2])] = self._count_files(f"{name}/{folder}") or 0
        return counts if counts else super().count_by(spark, name, by)

    def list_folders(self, name: str) -> Sequence[str]:
        return [folder.name for folder in (self.root / name).glob("*=*")]

    def _count_files(self, name: str) -> int | None:
        """Return the number of rows by the files' footers; None if Spark wrote them on another machine."""
        files = self.list_files(name)
        return sum(pq.read_metadata(file).num_rows for file in files) if files else None

    def write_few(self, name: str, frame: DataFrame) -> Any:
        table = fetch_table(frame) if self.takes_few or is_here(frame.sparkSession) else None
        if table is not None:
            self._write_table(name, table, frame.schema)
        return table

    def put(self, name: str, rows: Sequence[Mapping[str, Json]], schema: T.StructType) -> bool:
        self._write_table(name, make_table(rows, schema), schema)
        return True

    def _write_table(self, name: str, table: Any, schema: T.StructType) -> None:
        write_table(table, schema, self.root / name / _FEW)
        self._schemas[name] = schema

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        schema = self._schemas.get(name)
        reader = spark.read.options(**COMPLETE)
        reader = reader if schema is None else reader.schema(schema)
        return reader.parquet(str(self.root / name))

    def scan(self, name: str, wanted: Callable[[str], bool]) -> pa.RecordBatchReader | None:
        return _scan_files(self.list_files(name), wanted, self.read_bytes, self.piece_bytes)

    def list_files(self, name: str) -> Sequence[Path]:
        return sorted((self.root / name).glob("*.parquet"))

    def _list_places(self, spark: SparkSession) -> Sequence[str]:
        return os.listdir(self.root) if self.root.exists() else []

    def _delete(self, spark: SparkSession, place: str) -> None:
        shutil.rmtree(self.root / place)
        self._schemas.pop(place, None)


@dataclass(frozen=True)
class UrlStore(PreparedStore):
    """Parquet folders below a URL of an object store.

    Spark writes and reads them, wherever it works. Few rows pass through this process, unless a setting tells Spark how
    to encrypt objects.
    """

    takes_few: ClassVar[bool] = True

    url: StoreUrl
    _schemas: dict[str, T.StructType] = field(default_factory=dict, repr=False, compare=False)
    """The schemas of the frames that this process wrote. Reading one from the files costs a Spark job each time."""
    _few: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    """The files that this process wrote, until their rows are removed. They are read again soon."""

    def write(self, name: str, frame: DataFrame, by: str = "") -> int | None:
        _make_writer(frame, by).parquet(str(self.url / name))
        self._schemas[name] = frame.schema
        return None

    def write_few(self, name: str, frame: DataFrame) -> Any:
        table = fetch_table(frame) if self._is_plain else None
        if table is not None:
            self._put_table(name, table, frame.schema)
        return table

    def put(self, name: str, rows: Sequence[Mapping[str, Json]], schema: T.StructType) -> bool:
        if self._is_plain:
            self._put_table(name, make_table(rows, schema), schema)
        return self._is_plain

    def _put_table(self, name: str, table: pa.Table, schema: T.StructType) -> None:
        with TemporaryDirectory(prefix="wherry-rows-") as folder:
            file = Path(folder) / name / _FEW
            write_table(table, schema, file)
            content = file.read_bytes()
        if self._objects.take(f"{name}/{_FEW}", content) is None:
            raise FileExistsError(f"{self.url / name} has other rows already.")
        self._schemas[name], self._few[name] = schema, content

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        schema = self._schemas.get(name)
        reader = spark.read.options(**COMPLETE)
        reader = reader if schema is None else reader.schema(schema)
        return reader.parquet(escape_pattern(str(self.url / name)))

    def scan(self, name: str, wanted: Callable[[str], bool]) -> pa.RecordBatchReader | None:
        if name in self._few:
            return _scan_files([self._few[name]], wanted)
        if not self._is_plain:
            return None
        objects = self._objects
        _, there = objects.list_folder(name)  # folders below it contain the output of unfinished Spark tasks
        found = [each for each in there if each.key.endswith(".parquet")]
        if sum(each.size for each in found) > _PACKED:
            return None
        return _scan_files([objects.read(each.key) for each in found], wanted)

    def list_folders(self, name: str) -> Sequence[str]:
        return [folder for folder in self._objects.list_folder(name)[0] if "=" in folder] if self._is_plain else ()

    def _list_places(self, spark: SparkSession) -> Sequence[str]:
        return self._objects.list_folder()[0]

    def _delete(self, spark: SparkSession, place: str) -> None:
        self._objects.delete_folder(place)
        self._schemas.pop(place, None)
        self._few.pop(place, None)

    @property
    def _objects(self) -> ObjectStore:
        return open_store(self.url)

    @property
    def _is_plain(self) -> bool:
        return are_stores_plain(self.url.settings)


@dataclass(frozen=True)
class TableStore(PreparedStore):
    """Tables of a catalog's schema, for a state that is not on a disk."""

    schema: str
    prefix: str

    def write(self, name: str, frame: DataFrame, by: str = "") -> int | None:
        _make_writer(frame, by).format("delta").saveAsTable(self._qualify_name(name))
        return None

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        return spark.read.table(self._qualify_name(name))

    def _qualify_name(self, name: str) -> str:
        return f"{self.schema}.{quote_name(self._name_place(name))}"

    def _name_place(self, name: str) -> str:
        return (self.prefix + name.replace("-", "_")).lower()  # a catalog may store names in lower case

    def _delete(self, spark: SparkSession, place: str) -> None:
        spark.sql(f"drop table if exists {self.schema}.{quote_name(place)}")

    def _list_places(self, spark: SparkSession) -> Sequence[str]:
        tables = spark.sql(f"show tables in {self.schema}").select("tableName").collect()
        names = [row[0].lower() for row in tables]
        return [name for name in names if name.startswith(self.prefix.lower())]


@dataclass(frozen=True)
class VolumeStore(FolderStore):
    """Parquet folders in a volume of a catalog. Spark and this process reach them by the same path.

    Rows that were prepared in tables, before the definition named the volume, are read and swept there.
    """

    takes_few: ClassVar[bool] = True

    tables: TableStore | None = None

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        if self.tables is not None and not (self.root / name).exists():
            return self.tables.read(spark, name)
        return super().read(spark, name)

    def sweep(self, spark: SparkSession, keep: Callable[[], Collection[str]]) -> None:
        super().sweep(spark, keep)
        if self.tables is not None:
            self.tables.sweep(spark, keep)


@dataclass(frozen=True)
class MemoryStore(PreparedStore):
    """The memory of this process, for previews."""

    _frames: dict[str, tuple[Any, T.StructType]] = field(default_factory=dict)

    def write(self, name: str, frame: DataFrame, by: str = "") -> int | None:
        rows = frame.toArrow()
        self._frames[name] = rows, frame.schema
        return int(rows.num_rows)

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        rows, schema = self._frames[name]
        return make_frame(spark, rows, schema)

    def _list_places(self, spark: SparkSession) -> Sequence[str]:
        return list(self._frames)

    def _delete(self, spark: SparkSession, place: str) -> None:
        del self._frames[place]


def _make_writer(frame: DataFrame, by: str) -> pyspark.sql.DataFrameWriter:
    return frame.write.partitionBy(by) if by else frame.write


def fetch_table(frame: DataFrame) -> Any:
    """Return the rows as an Arrow table, or None if their types or their number require Spark."""
    return collect_arrow(frame) if _is_plain(json.loads(frame.schema.json())) else None


def make_table(rows: Sequence[Mapping[str, Json]], schema: T.StructType) -> pa.Table:
    """Return the rows as a table with the columns of this schema."""
    return pa.Table.from_pylist(list(rows), make_arrow_schema(schema))


def _scan_files(
    files: Sequence[Path | bytes], wanted: Callable[[str], bool], most: int = _READ_HERE, piece: int = _PIECE
) -> pa.RecordBatchReader | None:
    """Return some columns of the rows in these files or file contents, or None if Spark must read them."""
    footers = [open_file(file).metadata for file in files]
    size = sum(footer.row_group(at).total_byte_size for footer in footers for at in range(footer.num_row_groups))
    if not footers or size > most or any(map(has_old_days, footers)):
        return None
    rows = max(1, sum(footer.num_rows for footer in footers))
    at_once = max(1, piece * rows // max(1, size))
    first = open_file(files[0]).schema_arrow
    types = {
        field["name"]: field["type"] for field in json.loads(first.metadata[data_files.COLUMNS.encode()])["fields"]
    }
    columns = [column for column in first.names if wanted(column)]
    schema = pa.schema([(column, _to_arrow_type(first.field(column).type, types[column])) for column in columns])

    def read() -> Iterator[pa.RecordBatch]:
        for file in files:
            for each in open_file(file).iter_batches(min(at_once, ROWS), columns=columns):
                yield from pa.Table.from_batches([each]).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, read())


def write_table(table: Any, schema: T.StructType, file: Path) -> None:
    """Write the rows as one file in a new folder, as Spark would."""
    file.parent.mkdir(parents=True)
    data_files.write([table], table.schema, schema.json(), file)


def _to_arrow_type(kind: pa.DataType, described: TypeBody) -> pa.DataType:
    """Return Arrow's type, with the time zone UTC for each time that is a moment in Spark."""
    if described == "timestamp":
        return pa.timestamp("us", "UTC")
    if isinstance(described, dict) and described["type"] == "struct":
        inner = zip(kind, described["fields"], strict=True)
        return pa.struct([pa.field(field.name, _to_arrow_type(field.type, column["type"])) for field, column in inner])
    return kind


def _is_plain(kind: TypeBody) -> bool:
    if isinstance(kind, str):
        return kind in _SIMPLE or kind.startswith("decimal")
    if kind["type"] == "struct":
        return all(_is_plain(field["type"]) for field in kind["fields"])
    if kind["type"] == "map":
        return _is_plain(kind["keyType"]) and _is_plain(kind["valueType"])
    return kind["type"] == "array" and _is_plain(kind["elementType"])
