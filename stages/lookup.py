"""`lookup`: adds columns from the matching row of a table or a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias, get_args

from origins.batch import JSON
from origins.errors import has_condition
from origins.files.file_systems import escape_pattern
from origins.files.options import check_options, complete_options
from origins.lazy import Column, DataFrame, F, SparkSession, pyspark, spark_errors
from origins.nack import REASON, make_reason
from origins.names import HIDDEN, make_absolute, quote_name
from origins.schema import check_schema, parse_schema
from origins.secret import CUT, EXCERPT
from stages.bisection import FAILS
from stages.expressions import check_names, check_row_expression, is_repeatable_sql, put_in
from stages.pinned_table import PinnedTable, TableError, find_column, match_keys
from stages.rows import Rows, order_by_content
from stages.stage import Stage

Format: TypeAlias = Literal["csv", "json", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)
_FIXED = {"mode": "FAILFAST", "columnpruning": "false", "enforceschema": "false"}
"""The fixed options of the reader. A line that cannot be read is an error for all columns, and a header must match
the schema."""
_ADVICE = "Set `schema`, or the right `format`."
FOUND = HIDDEN + "found"
"""The column that is true in a matching row, so that NULL means no match."""
TWICE = HIDDEN + "twice"
"""The column that shows whether the table has further rows with this key."""
_NUMBER = HIDDEN + "number"
_ORDER = re.compile(r"(?P<sql>.+?)(?:\s+(?P<way>asc|desc))?\s*", re.IGNORECASE | re.DOTALL)


def select_unique_rows(
    table: DataFrame, keys: Mapping[str, str], taken: Mapping[str, str], order_by: Sequence[str]
) -> DataFrame:
    """Select columns of the table under new names, with `FOUND` and `TWICE`. `taken` maps each name to its new name.

    Of rows with the same keys it takes the first by `order_by`. If these are equal, their content decides. Without
    `order_by` it takes any row.
    """
    orders = [found for text in order_by if (found := _ORDER.fullmatch(text))]
    ordered = {f"{HIDDEN}order{index}": order for index, order in enumerate(orders)}
    chosen = table.select(
        *[F.col(quote_name(theirs)).alias(name) for name, theirs in {**keys, **taken}.items()],
        *[F.expr(order["sql"]).alias(name) for name, order in ordered.items()],
    )
    for key in keys:
        chosen = chosen.where(F.col(key).isNotNull())
    order = [
        F.desc_nulls_last(name) if (order["way"] or "").lower() == "desc" else F.asc_nulls_last(name)
        for name, order in ordered.items()
    ]
    if order and taken:
        order += order_by_content(chosen.select(*taken).schema)
    window = pyspark.sql.Window.partitionBy(*keys).orderBy(*(order or keys))
    numbered = chosen.select(
        "*", F.row_number().over(window).alias(_NUMBER), F.lead(F.lit(True)).over(window).isNotNull().alias(TWICE)
    )
    return numbered.where(F.col(_NUMBER) == 1).select(*keys, *taken, TWICE, F.lit(True).alias(FOUND))


_IS_THERE = HIDDEN + "is_there"
_IS_TWICE = HIDDEN + "is_twice"


@dataclass(frozen=True, kw_only=True)
class Lookup(Stage):
    """Adds columns from the row of a table or file that has the same keys. It never adds rows.

    Example:
        lookup:
          path: tables/customers
          on: {customer_id: id}
          columns: [segment, country]
          unmatched: nack
    """

    gathers: ClassVar[bool] = True

    path: str | None = field(default=None, metadata={"path": True})
    """The Delta table's folder, relative to the definition; or a URL."""
    table: str | None = field(default=None, metadata={"like": "main.shop.customers"})
    """The Delta table's name in a catalog. Give one of this, `path` and `file`."""
    file: str | None = field(default=None, metadata={"path": True})
    """A file or a folder of files, relative to the definition."""
    format: Format | None = None
    """The file's format. The default is the ending of its name."""
    schema: str | Mapping[str, str] | None = None
    """The file's columns and their types. The default is as the file has them; columns of CSV are then text."""
    options: Mapping[str, str | float | bool] = field(default_factory=dict)
    """Options of Spark's reader for the format."""
    on: Sequence[str] | Mapping[str, str]
    """The columns that must be equal on both sides; or a mapping from the batch's columns to the table's."""
    columns: Sequence[str] | Mapping[str, str] = ()
    """The columns to add; or a mapping from their new names to the table's columns."""
    unmatched: Literal["keep", "filter", "nack"] = "keep"
    """What happens to a row without a match: it stays with NULL in the new columns, is filtered, or is refused."""
    duplicates: Literal["error", "first"] = "error"
    """What happens to a row with several matches: the batch fails, or the row takes the `first` one by `order_by`."""
    order_by: str | Sequence[str] | None = None
    """The order that decides which match is first: expressions over the table's columns, with `desc` for descending."""

    def __post_init__(self) -> None:
        self._check_place()
        for name in ("on", "columns"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence | Mapping) or not (given or name == "columns"):
                raise ValueError(
                    f"{name}: expected a list of columns, or a mapping from the rows' columns to the "
                    f"table's, got {given!r}"
                )
            check_names(name, given)
            for theirs in _to_mapping(given).values():
                check_names(name, [theirs])
        if not self.columns and self.unmatched == "keep":
            raise ValueError(
                "columns: expected columns to take, got none; without columns, set unmatched to filter or nack"
            )
        for name, known in (("unmatched", ("keep", "filter", "nack")), ("duplicates", ("error", "first"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: expected {' or '.join(known)}, got {getattr(self, name)!r}")
        if self.duplicates == "first" and not self.order_by:
            raise ValueError("order_by: expected an expression that orders the matches, got nothing")
        if self.order_by and self.duplicates == "error":
            raise ValueError("order_by: expected it with duplicates: first only, got it with duplicates: error")
        for order in self._orders:
            check_row_expression("order_by", order)

    def _check_place(self) -> None:
        given = [name for name in ("path", "table", "file") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"path: expected one of path, table and file, got {' and '.join(given) or 'none'}")
        for name in ("format", "schema", "options"):
            if not self.file and getattr(self, name):
                raise ValueError(f"{name}: expected it with `file` only; a Delta table knows its own schema")
        if self._pinned is None:
            if self._format not in FORMATS:
                raise ValueError(f"format: expected {' or '.join(FORMATS)}, got {self._format!r}")
            check_options(self._format, self.options)

    @property
    def _pinned(self) -> PinnedTable | None:
        return PinnedTable(path=self.path, table=self.table) if self.file is None else None

    @property
    def _format(self) -> str:
        ending = os.path.splitext((self.file or "").removesuffix(".gz").rstrip("/"))[1]
        return self.format or ending.removeprefix(".").lower()

    @property
    def _orders(self) -> Sequence[str]:
        return [self.order_by] if isinstance(self.order_by, str) else self.order_by or []

    @property
    def may_mix(self) -> bool:
        return False

    @property
    def repeatable(self) -> bool:
        """Whether the result is repeatable. A table's version is pinned, but a file may change between two attempts."""
        return self.file is None and all(map(is_repeatable_sql, self._orders))

    def pin(self, spark: SparkSession) -> JSON:
        return None if self._pinned is None else self._pinned.find_version(spark)

    def apply(self, rows: Rows) -> Rows:
        place, table = self.path or self.table or self.file or "", self._read_table(rows)
        met = match_keys(_to_mapping(self.on), rows, table.schema, place)
        taken = {new: find_column(theirs, table.schema, place) for new, theirs in _to_mapping(self.columns).items()}
        for new, theirs in taken.items():
            if rows.spell_name(new) in rows.names:
                other = f"give it another name, such as columns: {{other_{new}: {theirs}}}"
                raise ValueError(f"the rows have a column '{rows.spell_name(new)}' already; {other}")
        on = {own: f"{HIDDEN}on{index}" for index, own in enumerate(met)}
        beside = {new: f"{HIDDEN}beside{index}" for index, new in enumerate(taken)}
        unique = select_unique_rows(
            table,
            {on[own]: theirs for own, theirs in met.items()},
            {beside[new]: theirs for new, theirs in taken.items()},
            [put_in(order, rows.labels) for order in self._orders],
        )
        put = {new: f"{HIDDEN}{index}" for index, new in enumerate(taken)}
        tried = {put[new]: F.col(beside[new]) for new in taken}
        tried.update({_IS_THERE: F.col(FOUND), _IS_TWICE: F.col(TWICE)})
        why = self._make_reason(rows, met, place)
        if self.unmatched != "filter":
            return rows.beside(unique, on).attempt(tried, why, put)
        judged = rows.beside(unique, on).attempt(tried, why, {**put, _IS_THERE: _IS_THERE})
        kept = judged.filter(F.col(_IS_THERE).isNotNull())
        return kept.select({name: name for name in kept.names if name != _IS_THERE})

    def _read_table(self, rows: Rows) -> DataFrame:
        spark = rows.frame.sparkSession
        if self._pinned is None:
            return self._read_file(spark, self.file or "")
        table = self._pinned.read_rows(spark, rows.pin)
        if table is None:
            raise self._pinned.make_missing_error()
        return table

    def _read_file(self, spark: SparkSession, path: str) -> DataFrame:
        """Return the rows of the file. Raise `TableError` if it is missing or cannot be read."""
        options = {**complete_options(self._format, self.options), **_FIXED}
        if self._format == "csv":
            options.setdefault("header", "true")
        reader = spark.read.format(self._format).options(**options)
        if self.schema is not None:
            reader = reader.schema(parse_schema(spark, self.schema, path))
        try:
            rows = reader.load(escape_pattern(make_absolute(path)))
            check_schema(rows.schema, path)
        except spark_errors.PySparkException as error:
            if has_condition(error, "PATH_NOT_FOUND"):
                raise TableError(f"The file {path} was not found.", hint="Put it back, or correct the path.") from error
            why = re.sub(r"\s*SQLSTATE: \w+.*$", "", str(error).splitlines()[0])
            raise TableError(f"{path} cannot be read as {self._format}: {why}", hint=_ADVICE) from error
        return rows

    def _make_reason(self, rows: Rows, met: Mapping[str, str], place: str) -> Column:
        """Return why a row is refused, if it is.

        The query raises if the table has its key twice and `duplicates` is `error`.
        """
        keys = F.concat_ws(", ", *[F.concat(F.lit(f"{met[own]} = "), _show_value(rows.column(own))) for own in met])
        why = F.lit(None).cast(REASON)
        if self.unmatched == "nack":
            message = F.concat(F.lit(f"{place} has no row with "), keys)
            why = F.when(F.col(_IS_THERE).isNull(), make_reason("LOOKUP", message))
        if self.duplicates == "first":
            return why
        message = F.concat(F.lit(f"{FAILS}stage '{rows.stage}': {place} has several rows with "), keys, F.lit(_WAYS_ON))
        return F.when(F.col(_IS_TWICE), F.raise_error(message).cast(REASON)).otherwise(why)


_WAYS_ON = "; make the key unique there, or choose a row with duplicates: first and order_by"


def _show_value(value: Column) -> Column:
    whole = F.coalesce(value.try_cast("string"), F.lit("NULL"))
    return F.when(F.length(whole) > EXCERPT, F.concat(F.substring(whole, 1, EXCERPT), F.lit(CUT))).otherwise(whole)


def _to_mapping(given: Sequence[str] | Mapping[str, str]) -> Mapping[str, str]:
    """Return a mapping from the names of the rows' columns to the names of the table's."""
    return given if isinstance(given, Mapping) else {name: name for name in given}
