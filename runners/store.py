"""Where decided batches lie until they are delivered: a folder, or a table of the state's schema, for each part."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from origins.batch import JSON
from origins.names import quoted
from runners.session import is_here

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


MOST_ROWS = 1_000_000
"""Up to so many rows it is quicker to look at them here than to ask Spark."""
_FEW = "few.parquet"
"""The only file of a frame that passed through this process."""


class Store(ABC):
    """Keeps frames under a name that is used once. What is there was written whole."""

    tells: ClassVar[bool] = False
    """Whether it tells how many rows lie there."""

    @abstractmethod
    def write(self, name: str, frame: DataFrame) -> int | None:
        """Write the frame; computes it. How many rows lie there then, where that can be told without Spark."""

    def write_few(self, name: str, frame: DataFrame) -> Any:
        """Write a frame of few rows, which pass through this process; computes it. The table of Arrow's that it is, as
        `few` gives it back; None, and nothing is written, where it has to go the way of any number of rows."""
        return None

    def put(self, name: str, rows: Sequence[Mapping[str, JSON]], schema: StructType) -> bool:
        """Write rows that are in this process; false, and nothing is written, where only Spark can."""
        return False

    def copy(self, name: str, files: Mapping[Path, Sequence[int]], schema: StructType) -> int | None:
        """Write the rows of these files (`origins.parquet_here`), without those at these places in each, which rise;
        how many. None, and it is to be removed, where only Spark can."""
        return None

    @abstractmethod
    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """The frame as it was written."""

    def look(self, name: str, wanted: Callable[[str], bool]) -> Any:
        """Some columns of what lies there, as a table of Arrow's; None where Spark has to read it."""
        return None

    def scan(self, name: str, wanted: Callable[[str], bool]) -> pyarrow.RecordBatchReader | None:
        """Some columns of what lies there, piece by piece; None where Spark has to read it."""
        return None

    def files(self, name: str) -> Sequence[Path]:
        """The files of what lies there, if it lies in files of this machine."""
        return ()

    @abstractmethod
    def remove(self, spark: SparkSession, name: str) -> None:
        """Remove what lies under this name and under names that begin with it and a dash. Twice is once."""

    @abstractmethod
    def sweep(self, spark: SparkSession, keep: Callable[[], Collection[str]]) -> None:
        """Remove all that lies there now but what lies under the names that `keep` gives. It is asked behind the look:
        what somebody else prepares meanwhile, who has taken over, is not touched."""


@dataclass(frozen=True)
class Folders(Store):
    """Parquet folders below one directory."""

    tells: ClassVar[bool] = True

    root: Path
    _schemas: dict[str, StructType] = field(default_factory=dict, repr=False, compare=False)
    """Of what this process wrote: asking the files for it costs a Spark job each time."""

    def write(self, name: str, frame: DataFrame) -> int | None:
        frame.write.parquet(str(self.root / name))
        self._schemas[name] = frame.schema
        return _rows_in(self.files(name))

    def write_few(self, name: str, frame: DataFrame) -> Any:
        from runners.few_rows import fetched, write

        if not is_here(frame.sparkSession):
            return None
        table = fetched(frame)
        if table is not None:
            write(table, frame.schema, self.root / name / _FEW)
            self._schemas[name] = frame.schema
        return table

    def put(self, name: str, rows: Sequence[Mapping[str, JSON]], schema: StructType) -> bool:
        from runners.few_rows import table_of, write

        write(table_of(rows, schema), schema, self.root / name / _FEW)
        self._schemas[name] = schema
        return True

    def copy(self, name: str, files: Mapping[Path, Sequence[int]], schema: StructType) -> int | None:
        from runners.copying import copy

        (self.root / name).mkdir(parents=True)
        copied = copy(files, schema, self.root / name)
        self._schemas[name] = schema
        return copied

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        schema = self._schemas.get(name)
        reader = spark.read if schema is None else spark.read.schema(schema)
        return reader.parquet(str(self.root / name))

    def look(self, name: str, wanted: Callable[[str], bool]) -> Any:
        from pyarrow import concat_tables, parquet

        files = self.files(name)
        told = [parquet.read_metadata(file) for file in files]
        if not files or sum(each.num_rows for each in told) > MOST_ROWS:
            return None
        columns = [column for column in told[0].schema.to_arrow_schema().names if wanted(column)]
        return concat_tables([parquet.ParquetFile(file).read(columns=columns) for file in files])

    def scan(self, name: str, wanted: Callable[[str], bool]) -> pyarrow.RecordBatchReader | None:
        from runners.few_rows import scanned

        return scanned(self.files(name), wanted)

    def files(self, name: str) -> Sequence[Path]:
        return sorted((self.root / name).glob("*.parquet"))

    def remove(self, spark: SparkSession, name: str) -> None:
        for folder in self.root.glob(f"{name}-*"):
            shutil.rmtree(folder)
            self._schemas.pop(folder.name, None)

    def sweep(self, spark: SparkSession, keep: Callable[[], Collection[str]]) -> None:
        found = list(self.root.iterdir()) if self.root.exists() else []
        kept = tuple(f"{name}-" for name in keep())
        for folder in found:
            if not folder.name.startswith(kept):
                shutil.rmtree(folder)


@dataclass(frozen=True)
class Tables(Store):
    """Tables of a catalog's schema, for a state that is not on a disk."""

    schema: str
    prefix: str

    def write(self, name: str, frame: DataFrame) -> int | None:
        frame.write.format("delta").saveAsTable(self._table(name))
        return None

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        return spark.read.table(self._table(name))

    def remove(self, spark: SparkSession, name: str) -> None:
        for table in self._tables(spark):
            if table.startswith(self._named(name) + "_"):
                spark.sql(f"drop table if exists {self.schema}.{quoted(table)}")

    def sweep(self, spark: SparkSession, keep: Callable[[], Collection[str]]) -> None:
        found = self._tables(spark)
        kept = tuple(self._named(name) + "_" for name in keep())
        for table in found:
            if not table.startswith(kept):
                spark.sql(f"drop table if exists {self.schema}.{quoted(table)}")

    def _table(self, name: str) -> str:
        return f"{self.schema}.{quoted(self._named(name))}"

    def _named(self, name: str) -> str:
        return self.prefix + name.replace("-", "_")

    def _tables(self, spark: SparkSession) -> list[str]:
        found = spark.sql(f"show tables in {self.schema}").select("tableName").collect()
        return [row[0] for row in found if row[0].startswith(self.prefix)]


@dataclass(frozen=True)
class Kept(Store):
    """The memory of this process, for who only looks: nothing is left of it, so nothing is ever removed."""

    _frames: dict[str, tuple[Any, StructType]] = field(default_factory=dict)

    def write(self, name: str, frame: DataFrame) -> int | None:
        rows = frame.toArrow()
        self._frames[name] = rows, frame.schema
        return int(rows.num_rows)

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        rows, schema = self._frames[name]
        return spark.createDataFrame(rows, schema)

    def remove(self, spark: SparkSession, name: str) -> None:
        pass

    def sweep(self, spark: SparkSession, keep: Callable[[], Collection[str]]) -> None:
        pass


def _rows_in(files: Sequence[Path]) -> int | None:
    """How many rows the parquet files of a folder say that they have; None if Spark wrote them elsewhere."""
    from pyarrow import parquet

    return sum(parquet.read_metadata(file).num_rows for file in files) if files else None
