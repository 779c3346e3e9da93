"""Every reader finds all rows of a table, with and without a filter, for each of Wherry's ways of writing."""

from __future__ import annotations

import datetime as dt
import json
import math
import operator
import random
import shutil
import string
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.dataset import ParquetReadOptions

from destinations.conformance import make_label
from destinations.delta import Delta
from destinations.delta.data_files import describe_files, write
from destinations.delta.delta import OpenDelta
from destinations.delta.direct_commit import FolderPlace
from destinations.delta.writers import SparkAppend
from origins.batch_rows import FrameRows, TableRows
from origins.delta_actions import FieldBody, NestedBody
from origins.names import quote_name, quote_text
from tests.destinations.delta.direct.test_adopt import InFiles
from tests.destinations.delta.direct.test_append import name_engine
from tests.destinations.delta.writers_conformance import write as write_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAST = "\U0010ffff"
DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Kind:
    """A column type, and how to draw its values."""

    delta: Any
    arrow: pa.DataType
    ends: Sequence[Any]
    """The values that are most likely to be lost."""
    some: Callable[[random.Random], Any]
    boundless: Sequence[Any] = ()
    """Values that leave a file without bounds."""


def make_decimal(precision: int, scale: int) -> Kind:
    """Return decimals with this many digits."""
    most, one = 10**precision - 1, Decimal(1).scaleb(-scale)

    def scaled(number: int) -> Decimal:
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return Kind(
        f"decimal({precision},{scale})",
        pa.decimal128(precision, scale),
        [scaled(most), scaled(-most), one, -one, scaled(0)],
        lambda dice: scaled(dice.randint(-most, most) >> dice.randint(0, 120)),
    )


def make_whole(name: str, arrow: pa.DataType) -> Kind:
    """Return a type of whole numbers."""
    most = 2 ** (arrow.bit_width - 1)
    return Kind(name, arrow, [most - 1, -most, 0], lambda dice: dice.randint(-most, most - 1) >> dice.randint(0, 60))


def _draw_number(dice: random.Random) -> float:
    return dice.choice((-1, 1)) * dice.random() * 10.0 ** dice.randint(-30, 30)


def _draw_text(dice: random.Random) -> str:
    letters = dice.choice([string.printable, "é\ufffd😀𠮷z", "xy"])
    return "".join(dice.choice(letters) for _ in range(dice.choice([0, 1, 3, 31, 32, 33, 70])))


def _draw_moment(dice: random.Random) -> dt.datetime:
    first = dt.datetime(1678, 1, 1, tzinfo=dt.timezone.utc)
    return first + dt.timedelta(days=dice.randint(0, 200_000), microseconds=dice.randint(0, 10**11) // 7)


ZERO = [0.0, -0.0, math.inf, -math.inf]
KINDS = [
    make_whole("byte", pa.int8()),
    make_whole("short", pa.int16()),
    make_whole("integer", pa.int32()),
    make_whole("long", pa.int64()),
    Kind(
        "float",
        pa.float32(),
        [*ZERO, 3.4028234663852886e38, 1.401298464324817e-45, 0.10000000149011612],
        lambda dice: pa.scalar(_draw_number(dice), pa.float32()).as_py(),
        [math.nan],
    ),
    Kind("double", pa.float64(), [*ZERO, 1.7976931348623157e308, 5e-324, 0.1], _draw_number, [math.nan]),
    make_decimal(10, 5),
    make_decimal(38, 0),
    make_decimal(38, 18),
    make_decimal(38, 38),
    Kind(
        "date",
        pa.date32(),
        [dt.date.min, dt.date.max, dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(1969, 12, 31)],
        lambda dice: dt.date.fromordinal(dice.randint(1, dt.date.max.toordinal())),
    ),
    Kind(
        "timestamp",
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(2026, 1, 1, 0, 0, 0, micros, tzinfo=dt.timezone.utc)
            for micros in (0, 1, 999, 1_000, 999_000, 999_001, 999_999)
        ],
        _draw_moment,
    ),
    Kind(
        "string",
        pa.string(),
        ["", "x" * 33, "x" * 32, "\x00", "a'\"\n", "\ufffd", "😀", "𠮷"],
        _draw_text,
        ["x" * 32 + LAST * 2],
    ),
    Kind("binary", pa.binary(), [b"", b"\xff", b"\x00"], lambda dice: dice.randbytes(dice.randint(0, 40))),
    Kind("boolean", pa.bool_(), [True, False], lambda dice: dice.random() < 0.5),
]
FAR = [dt.datetime.min.replace(tzinfo=dt.timezone.utc), dt.datetime.max.replace(tzinfo=dt.timezone.utc)]
"""Moments that some readers cannot read in Spark's own encoding."""


@dataclass(frozen=True)
class Filter:
    """A condition on one column."""

    column: str
    kind: Kind
    word: str
    values: Sequence[Any] = ()

    def sql(self, named: str, literals: Sequence[str]) -> str:
        """Return the condition on the column with this name, with these values."""
        if self.word == "between":
            return f"{named} BETWEEN {literals[0]} AND {literals[1]}"
        return f"{named} {self.word} ({', '.join(literals)})" if literals else f"{named} {self.word}"


COMPARED = {"=": operator.eq, "<": operator.lt, ">=": operator.ge}


def make_condition(word: str, named: Any, values: Sequence[Any], among: Any) -> Any:
    """Build a filter for a reader's API. `among` is the reader's condition for a list of values."""
    if word in COMPARED:
        return COMPARED[word](named, values[0])
    if word == "between":
        return (named >= values[0]) & (named <= values[1])
    return {"IN": among, "IS NULL": named.is_null(), "IS NOT NULL": ~named.is_null()}[word]


def count_in_pyarrow(folder: Path, filters: Sequence[Filter]) -> Iterator[tuple[int, int]]:
    """Yield how many rows each filter finds while reading, and afterwards on all rows."""
    options = ParquetReadOptions(coerce_int96_timestamp_unit="us")
    found = DeltaTable(str(folder)).to_pyarrow_dataset(parquet_read_options=options)
    there = found.to_table()
    for each in filters:
        named, kind = pc.field((each.column,)), each.kind.arrow
        values = [pa.scalar(value, kind) for value in each.values]
        wanted = make_condition(each.word, named, values, named.isin(pa.array(each.values, kind)))
        yield found.to_table(filter=wanted).num_rows, there.filter(wanted).num_rows


DATAFUSION = {
    "byte": "Int8",
    "short": "Int16",
    "integer": "Int32",
    "long": "Int64",
    "float": "Float32",
    "double": "Float64",
    "date": "Date32",
    "timestamp": 'Timestamp(Microsecond, Some("UTC"))',
}


def count_in_datafusion(folder: Path, filters: Sequence[Filter]) -> Iterator[tuple[int, int]]:
    """Yield the same counts as `count_in_pyarrow`, by DataFusion."""
    query = QueryBuilder().register("t", DeltaTable(str(folder)))

    def literal(kind: Kind, value: Any) -> str:
        if isinstance(value, bytes):
            return f"x'{value.hex()}'"
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        if isinstance(value, Decimal):
            return f"arrow_cast('{value:f}', 'Decimal128({kind.arrow.precision}, {kind.arrow.scale})')"
        plain = pa.scalar(value, kind.arrow).value if isinstance(value, dt.datetime) else f"'{value}'"
        return str(value) if isinstance(value, bool) else f"arrow_cast({plain}, '{DATAFUSION[kind.delta]}')"

    def counts(statement: str) -> list[int]:
        (row,) = pa.table(query.execute(statement).read_all()).to_pylist()
        return list(row.values())

    conditions = [each.sql(f'"{each.column}"', [literal(each.kind, v) for v in each.values]) for each in filters]
    counted = (f"count(*) FILTER (WHERE {each}) AS c{at}" for at, each in enumerate(conditions))
    behind = counts(f"SELECT {', '.join(counted)} FROM t")
    for each, without in zip(conditions, behind, strict=True):
        yield counts(f"SELECT count(*) AS c FROM t WHERE {each}")[0], without


def count_in_polars(folder: Path, filters: Sequence[Filter]) -> Iterator[tuple[int, int]]:
    """Yield the same counts as `count_in_pyarrow`, by Polars."""
    found = pl.scan_delta(str(folder))
    there = found.collect()
    for each in filters:
        named, kind = pl.col(each.column), there.schema[each.column]
        values = [pl.lit(value, dtype=kind) for value in each.values]
        wanted = make_condition(each.word, named, values, named.is_in(pl.Series(each.values, dtype=kind).implode()))
        yield found.filter(wanted).collect().height, there.filter(wanted).height


READERS = {"pyarrow": count_in_pyarrow, "DataFusion": count_in_datafusion, "polars": count_in_polars}


def find_lost(folder: Path, filters: Sequence[Filter]) -> list[str]:
    """Return where the readers without Spark find other rows while reading than afterwards."""
    return [
        f"{reader}: {each.kind.delta} {each.word} {each.values}: {with_it} instead of {without}"
        for reader, count in READERS.items()
        for each, (with_it, without) in zip(filters, count(folder, filters), strict=True)
        if with_it != without and LOST_BY.get(reader) not in find_special(each)
    ]


LOST_BY = {"pyarrow": "a NaN", "DataFusion": "a -0.0"}
"""Values in a filter for which a reader skips rows, in files of every writer."""


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def find_special(each: Filter) -> list[str]:
    """Return what is special about the values of a filter."""
    special = {"a NaN": any(map(is_nan, each.values)), "a -0.0": "-0.0" in map(str, each.values)}
    return [name for name, found in special.items() if found]


def name_comparison(each: Filter) -> str:
    """Return what is special about a filter, or else the type of its column."""
    return next(iter(find_special(each)), str(each.kind.delta).partition("(")[0])


def draw_filters(column: str, kind: Kind, values: Sequence[Any], dice: random.Random) -> list[Filter]:
    """Draw a filter for each comparison, on values of the column and on another value."""
    pick = [*(value for value in values if value is not None), kind.some(dice)]
    one, two = dice.choice(pick), dice.choice(pick)
    ordered = sorted((one, two), key=lambda value: (is_nan(value), value))
    words = {
        "=": [one],
        "<": [two],
        ">=": [one],
        "between": ordered,
        "IN": [one, two],
        "IS NULL": [],
        "IS NOT NULL": [],
    }
    return [Filter(column, kind, word, words[word]) for word in words]


def describe_columns(kinds: Mapping[str, Kind]) -> NestedBody:
    fields: list[FieldBody] = [
        {"name": name, "type": kind.delta, "nullable": True, "metadata": {}} for name, kind in kinds.items()
    ]
    return {"type": "struct", "fields": fields}


def make_table(folder: Path, kinds: Mapping[str, Kind], files: Sequence[pa.Table]) -> None:
    """Make a table whose files Wherry wrote and appended."""
    columns = describe_columns(kinds)
    DeltaTable.create(str(folder), Schema.from_json(json.dumps(columns)))
    for number, rows in enumerate(files):
        name = f"part-{number}.parquet"
        write([rows], rows.schema, json.dumps(columns), folder / name)
        place = FolderPlace(folder)
        place.append(place.versions.open_head()[1], describe_files({name: folder / name}, columns), "tag", lambda: None)


@settings(max_examples=40)
@given(
    kind=st.sampled_from([*KINDS, Kind("timestamp", pa.timestamp("us", "UTC"), FAR, _draw_moment)]),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    dice=st.randoms(use_true_random=False),
)
def test_readers_find_the_same_rows_with_a_filter_as_without(kind: Kind, sizes: list[int], dice: random.Random) -> None:
    """This holds for all combinations of values in a file."""
    pool = [None, *kind.ends, *kind.boundless]
    files = [[dice.choice(pool) if dice.random() < 0.6 else kind.some(dice) for _ in range(size)] for size in sizes]
    tables = [pa.table({"id": pa.array(range(len(each))), "a.v": pa.array(each, kind.arrow)}) for each in files]
    with tempfile.TemporaryDirectory() as place:
        make_table(Path(place, "t"), {"id": KINDS[3], "a.v": kind}, tables)
        values = [value for each in files for value in each]
        assert find_lost(Path(place, "t"), draw_filters("a.v", kind, values, dice)) == []


def test_readers_find_values_inside_a_struct(tmp_path: Path) -> None:
    """The struct holds a value or a NULL, or is NULL itself."""
    inner = pa.struct([("a", pa.int64()), ("b", pa.float64())])
    fields = [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]
    fields.append({"name": "b", "type": "double", "nullable": True, "metadata": {}})
    kinds = {"id": KINDS[3], "s": Kind({"type": "struct", "fields": fields}, inner, [], lambda _: None)}
    values = [[{"a": 1, "b": 0.5}, {"a": None, "b": None}], [None, {"a": 2, "b": 2.5}]]
    files = [pa.table({"id": [0, 1], "s": pa.array(each, inner)}) for each in values]
    make_table(tmp_path / "t", kinds, files)
    table, scan = DeltaTable(str(tmp_path / "t")), pl.scan_delta(str(tmp_path / "t"))
    rows, query = table.to_pyarrow_dataset(), QueryBuilder().register("t", table)
    inside, named = pc.field("s", "a"), pl.col("s").struct.field("a")
    by_pyarrow = [inside == 1, inside > 1, inside.is_null(), pc.field("s").is_null()]
    by_polars = [named == 1, named > 1, named.is_null(), pl.col("s").is_null()]
    by_datafusion = ["s['a'] = 1", "s['a'] > 1", "s['a'] IS NULL", "s IS NULL"]
    asked = (query.execute(f"SELECT id FROM t WHERE {each}").read_all() for each in by_datafusion)
    assert [rows.to_table(filter=each).num_rows for each in by_pyarrow] == [1, 1, 2, 1]
    assert [pa.table(each).num_rows for each in asked] == [1, 1, 2, 1]
    assert [scan.filter(each).collect().height for each in by_polars] == [1, 1, 2, 1]


def draw_files(kinds: Mapping[str, Kind], dice: random.Random) -> list[pa.Table]:
    """Draw three files of four rows: with bounds, with values that prevent bounds, and with NULLs."""

    def column(kind: Kind, number: int) -> pa.Array:
        values = {
            0: lambda: [*dice.sample([*kind.ends, *kind.ends], 3), kind.some(dice)],
            1: lambda: [*kind.boundless, *(kind.some(dice) for _ in range(4))][:4],
            2: lambda: [None, dice.choice([None, *kind.ends]), kind.some(dice), None],
        }[number]()
        return pa.array(values, kind.arrow)

    return [pa.table({name: column(kind, number) for name, kind in kinds.items()}) for number in range(3)]


def find_lost_by_spark(
    spark: SparkSession, named: str, kinds: Mapping[str, Kind], files: Sequence[pa.Table]
) -> list[str]:
    """Return the rows that Spark does not find by a condition on all their values."""

    def literal(kind: Kind, value: Any) -> str:
        if kind.delta == "binary":
            return f"x'{value.hex()}'"
        if kind.delta == "timestamp":
            value = value.replace(tzinfo=None)
        return f"CAST({quote_text(f'{value:f}' if isinstance(value, Decimal) else str(value))} AS {_format_type(kind)})"

    def find(name: str, value: Any, word: int) -> str:
        column, same = quote_name(name), "NULL" if value is None else literal(kinds[name], value)
        words = [f"{column} = {same}", f"{column} BETWEEN {same} AND {same}", f"{column} IN ({same}, {same})"]
        return f"{column} IS NULL" if value is None else words[word % len(words)]

    rows = [row for file in files for row in file.to_pylist()]
    conditions = [
        " AND ".join(find(name, value, at + place) for place, (name, value) in enumerate(row.items()))
        for at, row in enumerate(rows)
    ]
    asked = (f"SELECT {at} AS at FROM {named} WHERE {each}" for at, each in enumerate(conditions))
    found = {row["at"] for row in spark.sql(" UNION ALL ".join(asked)).collect()}
    return [each for at, each in enumerate(conditions) if at not in found]


def bring_in_process(spark: SparkSession, orders: OpenDelta, rows: pa.Table, number: int, place: Path) -> None:
    orders.write(spark, TableRows(spark, rows), [make_label(number=number)])
    assert name_engine(orders) == "wherry"


def bring_files(spark: SparkSession, orders: OpenDelta, rows: pa.Table, number: int, place: Path) -> None:
    spark.createDataFrame(rows).coalesce(1).write.parquet(str(place / str(number)))
    orders.write(spark, InFiles(spark, [*(place / str(number)).glob("*.parquet")]), [make_label(number=number)])
    assert name_engine(orders) == "wherry"


def bring_staged(spark: SparkSession, orders: OpenDelta, rows: pa.Table, number: int, place: Path) -> None:
    orders.write(spark, FrameRows(spark.createDataFrame(rows).coalesce(1)), [make_label(number=number)])
    assert name_engine(orders) == "wherry, files by Spark"


def bring_by_spark(spark: SparkSession, orders: OpenDelta, rows: pa.Table, number: int, place: Path) -> None:
    write_by(SparkAppend(), orders, FrameRows(spark.createDataFrame(rows).coalesce(1)))


WAYS = [bring_in_process, bring_files, bring_staged, bring_by_spark]
OFTEN = "TBLPROPERTIES ('delta.checkpointInterval' = '2')"
LOST_IN_FILES_OF_SPARK = {
    ("pyarrow", "boolean"),  # Spark writes no bounds of booleans
    ("pyarrow", "float"),  # in files with a NaN, which Spark writes as the highest value
    ("pyarrow", "double"),
    ("pyarrow", "decimal"),  # Spark writes small ones with an exponent
}


@pytest.mark.spark
def test_every_reader_finds_the_rows_that_each_way_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of all types are found. A reader may lose some rows in Spark's own files, and none in Wherry's."""
    dice = random.Random(23)
    kinds = {f"v.{at}": kind for at, kind in enumerate(KINDS)}
    tiny = Decimal(1).scaleb(-38)
    kinds["zero"] = Kind("double", pa.float64(), [0.0, 2.5], lambda _: 1.5)
    kinds["tiny"] = Kind("decimal(38,38)", pa.decimal128(38, 38), [tiny, -tiny], lambda _: tiny)
    files = draw_files(kinds, dice)
    filters = [Filter("zero", kinds["zero"], word, [value]) for word, value in (("=", -0.0), ("<", math.nan))]
    for name, kind in kinds.items():
        values = [each for rows in files for each in rows[name].to_pylist()]
        same, *others = draw_filters(name, kind, values, dice)
        every = Filter(name, kind, "IN", [each for each in values if each is not None and not is_nan(each)])
        filters += [same, every, dice.choice(others)]
    columns = ", ".join(f"{quote_name(name)} {_format_type(kind)}" for name, kind in kinds.items())
    missed: dict[str, set[tuple[str, str]]] = {}
    for way in WAYS:
        place = tmp_path / way.__name__
        place.mkdir()
        orders = Delta(path=str(place / "orders")).open()
        spark.sql(f"CREATE TABLE {orders.destination.sql_name} ({columns}) USING delta {OFTEN}")
        orders.ensure_place(spark, spark.table(orders.destination.sql_name).schema)
        for number, rows in enumerate(files):
            way(spark, orders, rows, number, place)
        assert (
            find_lost_by_spark(spark, orders.destination.sql_name, kinds, [files[0][:1], files[1][:1], files[2][1:2]])
            == []
        )
        missed[way.__name__] = {
            (reader, name_comparison(each))
            for reader, count in READERS.items()
            for each, (found, there) in zip(filters, count(place / "orders", filters), strict=True)
            if found != there
        }
    assert missed.pop("bring_by_spark") == LOST_IN_FILES_OF_SPARK | LOST_BY.items()
    assert {way: more for way, lost in missed.items() if (more := lost - LOST_BY.items())} == {}


@pytest.mark.spark
@pytest.mark.parametrize("way", [bring_in_process, bring_staged])
def test_spark_answers_from_the_statistics_alone(spark: SparkSession, tmp_path: Path, way: Callable[..., None]) -> None:
    """Spark counts rows and finds the lowest and highest values. A checkpoint may store the statistics as columns."""
    columns = {
        "whole bigint": ([7, -(2**63), None], pa.int64()),
        "above double": ([0.0, 1.5, 0.1], pa.float64()),
        "below double": ([-1.5, 0.0, None], pa.float64()),
        "share float": ([0.5, 0.0, 2.0**-149], pa.float32()),
        "endless double": ([math.inf, -math.inf, 1.0], pa.float64()),
        "day date": ([dt.date.min, dt.date.max, None], pa.date32()),
    }
    orders = Delta(path=str(tmp_path / "orders")).open()
    spark.sql(f"CREATE TABLE {orders.destination.sql_name} ({', '.join(columns)}) USING delta")
    orders.ensure_place(spark, spark.table(orders.destination.sql_name).schema)
    names = [column.split()[0] for column in columns]
    rows = pa.table({name: pa.array(*column) for name, column in zip(names, columns.values(), strict=True)})
    for number, file in enumerate((rows, rows.slice(2))):
        way(spark, orders, file, number, tmp_path)
    shutil.copytree(tmp_path / "orders" / "_delta_log", tmp_path / "early" / "_delta_log")
    as_columns = {"Interval": 1, ".writeStatsAsStruct": "true", ".writeStatsAsJson": "false"}
    listed = ", ".join(f"'delta.checkpoint{name}' = '{value}'" for name, value in as_columns.items())
    spark.sql(f"ALTER TABLE {orders.destination.sql_name} SET TBLPROPERTIES ({listed})")
    shutil.copytree(tmp_path / "orders" / "_delta_log", tmp_path / "late" / "_delta_log")
    ends = ", ".join(f"min({name}), max({name})" for name in names)
    for place in ("early", "late"):
        (found,) = spark.sql(f"SELECT count(*), {ends} FROM delta.`{tmp_path / place}`").collect()
        expected = [-(2**63), 7, 0.0, 1.5, -1.5, 0.0, 0.0, 0.5, -math.inf, math.inf, dt.date.min, dt.date.max]
        assert [str(each) for each in found] == ["4", *map(str, expected)]


def _format_type(kind: Kind) -> str:
    words = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
    return words.get(kind.delta, str(kind.delta))
