"""Small kinds of every shape, for tests that read definitions. They move no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from destinations.capabilities import ReadBack, ReadsBack
from destinations.destination import StatelessDestination, Written
from destinations.labels import Label
from origins.batch import JSON, Backlog, Batch
from origins.batch_rows import BatchRows
from origins.origin import Origin, Progress
from runners.definitions.kinds import Kinds
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Folder(Origin):
    """The files of a folder, each once. What is behind the first sentence is not its summary."""

    binds: ClassVar[frozenset[str]] = frozenset({"rows", "files"})

    path: str = field(metadata={"path": "pattern"})
    """Where they are stored."""
    format: Literal["json", "csv"] = "json"
    schema: str | Mapping[str, str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    max_files: int | None = None
    share: float = 0.5
    header: bool = False
    rows: JSON = None

    @property
    def place(self) -> str:
        return self.path

    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        raise NotImplementedError

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        raise NotImplementedError

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        raise NotImplementedError


@dataclass(frozen=True)
class Keep(Stage):
    """Keeps rows."""

    condition: str

    def __post_init__(self) -> None:
        if not self.condition.strip():
            raise ValueError("condition: expected an expression, got nothing")

    def apply(self, rows: Rows) -> Rows:
        return rows


@dataclass(frozen=True)
class Convert(Stage):
    """Converts columns."""

    columns: Mapping[str, str]

    def apply(self, rows: Rows) -> Rows:
        return rows


@dataclass(frozen=True)
class Choose(Stage):
    """Chooses columns."""

    columns: Sequence[str]

    def apply(self, rows: Rows) -> Rows:
        return rows


@dataclass(frozen=True)
class Call(Stage):
    """Calls a function."""

    function: str
    calls: int = field(default=1, kw_only=True)

    @property
    def repeatable(self) -> bool:
        return False

    def apply(self, rows: Rows) -> Rows:
        return rows


@dataclass(frozen=True, kw_only=True)
class Table(StatelessDestination, ReadsBack):
    """A table."""

    remembers: ClassVar[bool] = True
    guarantee: ClassVar[str] = "effectively once: the table remembers"

    path: str | None = field(default=None, metadata={"path": True})
    table: str | None = None
    keys: Sequence[str] = ()

    def __post_init__(self) -> None:
        if (self.path is None) == (self.table is None):
            raise ValueError("expected either path or table")

    @property
    def place(self) -> str:
        return self.path or self.table or ""

    @property
    def read_back(self) -> ReadBack:
        return self._read_rows

    def _read_rows(self, spark: SparkSession, labels: Sequence[Label], schema: T.StructType) -> DataFrame:
        raise NotImplementedError

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Say(StatelessDestination):
    """Says rows."""

    level: str = "info"

    @property
    def place(self) -> str:
        return ""

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        raise NotImplementedError


TOYS = Kinds(
    {"folder": Folder},
    {"keep": Keep, "convert": Convert, "choose": Choose, "call": Call},
    {
        "table": Table,
        "say": Say,
        "discard": "destinations.discard:Discard",
        "lost": "tests.runners.no_such_module:Lost",
    },
)
