"""`lookup`: columns out of a table or a file, from the one row there that belongs to each row here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from origins.batch import JSON
from origins.nack import REASON, reason
from origins.names import HIDDEN
from origins.secret import CUT, EXCERPT
from stages.expressions import check_names, check_row_expression, put_in, repeatable
from stages.halving import FAILS
from stages.keys import column_of, meeting
from stages.lookup_file import Format, LookupFile, format_of
from stages.pinned_table import PinnedTable
from stages.stage import Stage
from stages.unique_rows import FOUND, TWICE, unique_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from stages.rows import Rows

_IS_THERE = HIDDEN + "is_there"
_IS_TWICE = HIDDEN + "is_twice"


@dataclass(frozen=True, kw_only=True)
class Lookup(Stage):
    """Adds columns out of a table or a file, from the row there that has the same keys. It never makes rows more."""

    gathers: ClassVar[bool] = True

    path: str | None = field(default=None, metadata={"path": True})
    """Where the Delta table lies; relative to the definition."""
    table: str | None = field(default=None, metadata={"like": "main.shop.customers"})
    """The Delta table's name in a catalog; this, `path` or `file`."""
    file: str | None = field(default=None, metadata={"path": True})
    """A file, or a folder of files; relative to the definition."""
    format: Format | None = None
    """What the file is; by default what its name ends with."""
    schema: str | Mapping[str, str] | None = None
    """The file's columns and their types; by default as the file has them, those of a CSV file as text."""
    options: Mapping[str, str | float | bool] = field(default_factory=dict)
    """What else Spark's reader of that format is told."""
    on: Sequence[str] | Mapping[str, str]
    """The columns that are the same on both sides, or a mapping from columns here to columns there."""
    columns: Sequence[str] | Mapping[str, str] = ()
    """The columns to take, or a mapping from their names here to columns there."""
    unmatched: Literal["keep", "filter", "nack"] = "keep"
    """What becomes of a row that has no counterpart: its new columns are NULL, or it is filtered, or refused."""
    duplicates: Literal["error", "first"] = "error"
    """What a row does that has several: it fails the batch, or takes the `first` by `order_by`."""
    order_by: str | Sequence[str] | None = None
    """By what the first is told: expressions over the columns there, each with `desc` behind it if the highest is."""

    def __post_init__(self) -> None:
        self._check_place()
        for name in ("on", "columns"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence | Mapping) or not (given or name == "columns"):
                raise ValueError(f"{name}: expected a list of columns, or a mapping from here to there, got {given!r}")
            check_names(name, given)
            for theirs in _mapping(given).values():
                check_names(name, [theirs])
        if not self.columns and self.unmatched == "keep":
            raise ValueError("columns: expected columns to take, got none; without any, rows can be filtered or nacked")
        for name, known in (("unmatched", ("keep", "filter", "nack")), ("duplicates", ("error", "first"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: expected {' or '.join(known)}, got {getattr(self, name)!r}")
        if self.duplicates == "first" and not self.order_by:
            raise ValueError("order_by: expected an expression, by which the first is told, got nothing")
        if self.order_by and self.duplicates == "error":
            raise ValueError("order_by: belongs to duplicates: first, and a key that is there twice is an error here")
        for order in self._orders:
            check_row_expression("order_by", order)

    def _check_place(self) -> None:
        given = [name for name in ("path", "table", "file") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"path: expected one of path, table and file, got {' and '.join(given) or 'none'}")
        for name in ("format", "schema", "options"):
            if not self.file and getattr(self, name):
                raise ValueError(f"{name}: a Delta table says itself what it is; this belongs to a file")
        self._place  # noqa: B018 -- it checks what it is made of

    @property
    def _place(self) -> PinnedTable | LookupFile:
        if self.file is None:
            return PinnedTable(path=self.path, table=self.table)
        kind = self.format or format_of(self.file)
        return LookupFile(path=self.file, format=kind, schema=self.schema, options=self.options)

    @property
    def _orders(self) -> Sequence[str]:
        return [self.order_by] if isinstance(self.order_by, str) else self.order_by or []

    @property
    def may_mix(self) -> bool:
        return False

    @property
    def repeatable(self) -> bool:
        """A file may change between two tries; a table's version is pinned."""
        return self.file is None and all(map(repeatable, self._orders))

    def pin(self, spark: SparkSession) -> JSON:
        return self._place.version(spark) if isinstance(self._place, PinnedTable) else None

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F

        place, table = self._place, self._table(rows)
        met = meeting(_mapping(self.on), rows, table.schema, place.place)
        taken = {new: column_of(theirs, table.schema, place.place) for new, theirs in _mapping(self.columns).items()}
        for new, theirs in taken.items():
            if rows.spelled(new) in rows.names:
                other = f"take it under another name, such as columns: {{other_{new}: {theirs}}}"
                raise ValueError(f"there is a column '{rows.spelled(new)}' already; {other}")
        on = {own: f"{HIDDEN}on{index}" for index, own in enumerate(met)}
        beside = {new: f"{HIDDEN}beside{index}" for index, new in enumerate(taken)}
        unique = unique_rows(
            table,
            {on[own]: theirs for own, theirs in met.items()},
            {beside[new]: theirs for new, theirs in taken.items()},
            [put_in(order, rows.labels) for order in self._orders],
        )
        put = {new: f"{HIDDEN}{index}" for index, new in enumerate(taken)}
        tried = {put[new]: F.col(beside[new]) for new in taken}
        tried.update({_IS_THERE: F.col(FOUND), _IS_TWICE: F.col(TWICE)})
        why = self._why(rows, met, place.place)
        if self.unmatched != "filter":
            return rows.beside(unique, on).attempt(tried, why, put)
        judged = rows.beside(unique, on).attempt(tried, why, {**put, _IS_THERE: _IS_THERE})
        kept = judged.filter(F.col(_IS_THERE).isNotNull())
        return kept.select({name: name for name in kept.names if name != _IS_THERE})

    def _table(self, rows: Rows) -> DataFrame:
        place, spark = self._place, rows.frame.sparkSession
        if isinstance(place, LookupFile):
            return place.rows(spark)
        table = place.rows(spark, rows.pin)
        if table is None:
            raise place.missing()
        return table

    def _why(self, rows: Rows, met: Mapping[str, str], place: str) -> Column:
        """Why a row is refused, if it is; raises where its key is there twice and must not be."""
        from pyspark.sql import functions as F

        keys = F.concat_ws(", ", *[F.concat(F.lit(f"{met[own]} = "), _shown(rows.column(own))) for own in met])
        why = F.lit(None).cast(REASON)
        if self.unmatched == "nack":
            said = F.concat(F.lit(f"{place} has no row with "), keys)
            why = F.when(F.col(_IS_THERE).isNull(), reason("LOOKUP", said))
        if self.duplicates == "first":
            return why
        said = F.concat(F.lit(f"{FAILS}stage '{rows.stage}': {place} has several rows with "), keys, F.lit(_WAYS_ON))
        return F.when(F.col(_IS_TWICE), F.raise_error(said).cast(REASON)).otherwise(why)


_WAYS_ON = "; make the key unique there, or say which one it is by duplicates: first and order_by"


def _shown(value: Column) -> Column:
    from pyspark.sql import functions as F

    whole = F.coalesce(value.try_cast("string"), F.lit("NULL"))
    return F.when(F.length(whole) > EXCERPT, F.concat(F.substring(whole, 1, EXCERPT), F.lit(CUT))).otherwise(whole)


def _mapping(given: Sequence[str] | Mapping[str, str]) -> Mapping[str, str]:
    """From the names here to those there."""
    return given if isinstance(given, Mapping) else {name: name for name in given}
