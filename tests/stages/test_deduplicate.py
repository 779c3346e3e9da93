"""The stage `deduplicate` keeps one row for each key, and always the same one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from origins.origin import PLACE
from stages.conditions import Filter, Require
from stages.conformance import LABELS, StageConformance, begin, begin_straight, collect_decided
from stages.deduplicate import Deduplicate
from stages.pinned_table import PinnedTable, TableError
from stages.rows import STATE, Rows, enter_stage, make_rows, take_clean
from stages.stage import Stage
from tests.stages.checks import KEEPS, NOTHING_ELSE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]


class BySequence(StageConformance):
    """Two keys with unusual names, a sequence that raises for zero, and NULL in a key and in the sequence."""

    schema = "`k.1` int, `größe` string, at int, note map<string, int>"
    rows: ClassVar[list[tuple[Any, ...]]] = [
        (1, "a", 5, None),
        (1, "a", 1, {"x": 1}),
        (1, "b", None, None),
        (1, "b", -1, None),
        (2, None, 1, None),
        (2, None, 1, None),
        (None, None, None, None),
    ]
    raising: ClassVar[list[tuple[Any, ...]]] = [(1, "a", 0, None)]

    def stage(self) -> Stage:
        return Deduplicate(keys=["K.1", "größe"], sequence_by="10 / at")


class ByArrival(StageConformance):
    """The row that was read last is kept."""

    schema = "id int, x string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "a"), (1, "b"), (2, "c"), (None, "d"), (None, "d")]

    def stage(self) -> Stage:
        return Deduplicate(keys=["id"])


def list_kept(stage: Stage, frame: DataFrame) -> list[list[str]]:
    """Return the rows that the stage keeps, in both ways."""
    marked, _, _ = collect_decided(stage.apply(enter_stage(begin(frame), "it", 1)))
    rows = take_clean(stage.apply(enter_stage(begin_straight(frame), "it", 1))).collect()
    return [sorted(map(str, marked)), sorted(map(str, rows))]


def test_the_highest_row_is_kept_and_null_is_the_lowest(spark: SparkSession) -> None:
    """The order of the rows does not matter."""
    frame = spark.sql("select * from values (1, 2, 'x'), (1, null, 'y'), (1, 3, 'z'), (2, null, 'n') as t(id, at, v)")
    expected = ["Row(id=1, at=3, v='z')", "Row(id=2, at=None, v='n')"]
    assert list_kept(Deduplicate(keys=["ID"], sequence_by="at"), frame) == [expected, expected]


def test_the_content_decides_between_equal_sequences(spark: SparkSession) -> None:
    """The order of the rows does not matter, even with types that have no order."""
    rows = [
        "(1, 7, named_struct('m', map('a', 1)), array('x'), parse_json('1'))",
        "(1, 7, named_struct('m', map('a', 2)), array('x'), parse_json('1'))",
        "(1, 7, named_struct('m', map('a', 2)), array('x'), parse_json('2'))",
        "(1, 7, named_struct('m', map('a', 2)), null, parse_json('2'))",
    ]
    frames = [
        spark.sql(f"select * from values {', '.join(order)} as t(id, at, s, a, v)") for order in (rows, rows[::-1])
    ]
    found = [list_kept(Deduplicate(keys=["id"], sequence_by="at"), frame) for frame in frames]
    assert found[0] == found[1]
    assert found[0][0] == found[0][1]
    assert len(found[0][0]) == 1


def test_minus_zero_and_nan_are_compared_as_in_sql(spark: SparkSession) -> None:
    """0.0 equals -0.0, and NaN equals NaN."""
    values = ", ".join(f"(double('{key}'), {at})" for at, key in enumerate(("0.0", "-0.0", "NaN", "NaN"), 1))
    frame = spark.sql(f"select * from values {values} as t(id, at)")
    expected = ["Row(id=-0.0, at=2)", "Row(id=nan, at=4)"]
    assert list_kept(Deduplicate(keys=["id"], sequence_by="at"), frame) == [expected, expected]


def keep_last(rows: Rows, *parts: str) -> Rows:
    """Return the last row of each id if the parts were read in this order."""
    last: Any = Deduplicate(keys=["id"]).apply(replace(rows, parts=parts))
    live: Rows = last.with_frame(last.frame.where(f"{STATE} = 0"))
    return live


def test_the_row_read_last_is_kept_for_any_name_of_its_file(spark: SparkSession) -> None:
    """Parts have the order in which they were read, and rows have their order inside a part."""
    places = [("z", 0, 1, 1), ("z", 0, 0, 2), ("a", 64, 0, 3), ("a", 0, 9, 4), ("z", 0, 2, 5)]
    frame = spark.createDataFrame(places, "part string, block bigint, row bigint, x int")
    frame = frame.selectExpr("x % 2 as id", "x", f"struct(part, block, row) as {PLACE}")
    rows = enter_stage(make_rows(frame, ("id", "x"), LABELS), "it", 1)
    assert sorted(row.x for row in keep_last(rows, "z", "a").frame.collect()) == [3, 4]
    assert sorted(row.x for row in keep_last(rows, "a", "z").frame.collect()) == [2, 5]


def test_a_row_that_is_gone_does_not_compete(spark: SparkSession) -> None:
    """Only rows that reach the stage compete. Rows that were filtered or refused before do not."""
    frame = spark.sql(
        "select * from values (1, 9, 'filtered'), (1, 8, 'refused'), (1, 7, 'x'), (1, 6, 'y') as t(id, at, v)"
    )
    for sequence_by in ("at", None):
        rows: Any = begin(frame)
        stages = [
            Filter("v <> 'filtered'"),
            Require("v <> 'refused'"),
            Deduplicate(keys=["id"], sequence_by=sequence_by),
        ]
        for step, stage in enumerate(stages, 1):
            rows = stage.apply(enter_stage(rows, f"stage {step}", step))
        states = {row["v"]: row[STATE] for row in rows.frame.collect()}
        assert (states.pop("filtered"), states.pop("refused")) == (1, -2)
        assert states == ({"x": 0, "y": 3} if sequence_by else {"x": 3, "y": 0})


@pytest.mark.promise("CD-16")
def test_a_bad_row_is_found_even_if_the_stage_would_drop_it(spark: SparkSession) -> None:
    """It raises before any row competes."""
    from stages.conformance import does_raise_mark

    frame = spark.sql("select * from values (1, 'sieben', 1), (1, '7', 2) as t(id, amount, at)")
    rows: Any = Require("amount <> 'sieben'").apply(enter_stage(begin_straight(frame), "rule", 1))
    assert does_raise_mark(take_clean(Deduplicate(keys=["id"], sequence_by="at").apply(enter_stage(rows, "it", 2))))


def test_rows_without_places_are_an_error(spark: SparkSession) -> None:
    """A stage that needs places is never computed without them."""
    stage = Deduplicate(keys=["id"])
    assert (stage.needs_places, stage.repeatable) == (True, True)
    with pytest.raises(Exception, match="have no time at which they were read"):
        take_clean(stage.apply(begin_straight(spark.range(2)))).collect()


def test_the_stage_takes_one_exchange_of_rows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """This holds in both ways and for each order."""
    schema = f"id int, at int, {PLACE} struct<part string, block bigint, row bigint>"
    frame = spark.createDataFrame([(1, 2, ("a", 0, 0))], schema)
    marked = enter_stage(make_rows(frame, ("id", "at"), LABELS), "it", 1)
    by_sequence = Deduplicate(keys=["id"], sequence_by="at")
    for rows in (
        by_sequence.apply(begin_straight(frame.drop(PLACE))),
        by_sequence.apply(marked),
        keep_last(marked, "a", "b"),
    ):
        rows.frame.explain()
        assert capsys.readouterr().out.count("Exchange hashpartitioning") == 1


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (Deduplicate(keys=["idd"], sequence_by="at"), "there is no column 'idd'; did you mean 'id'?"),
        (
            Deduplicate(keys=["tags"]),
            "column tags is map<string,int>, and values of that type are never equal; choose another key",
        ),
    ],
)
def test_an_invalid_key_is_an_error(spark: SparkSession, stage: Stage, says: str) -> None:
    """The error is raised before a row is read."""
    frame = spark.sql("select 1 as id, 2 as at, map('a', 1) as tags")
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        stage.apply(begin_straight(frame))
    assert str(error.value) == says


@pytest.mark.parametrize("sql", ["sum(at)", "explode(array(1, 2))"])
def test_the_sequence_must_use_one_row(spark: SparkSession, sql: str) -> None:
    """Spark cannot analyze an expression over several rows."""
    from pyspark.errors import AnalysisException

    frame = spark.sql("select 1 as id, 2 as at")
    both: list[Any] = [begin_straight(frame), begin(frame)]
    for rows in both:
        with pytest.raises(AnalysisException):
            Deduplicate(keys=["id"], sequence_by=sql).apply(rows).schema  # noqa: B018


@pytest.fixture
def carried(spark: SparkSession, tmp_path: Path) -> PinnedTable:
    """A table of delivered rows, with a duplicate and rows with NULL in a key."""
    table = PinnedTable(path=f"{tmp_path}/a table")
    rows = spark.sql("select * from values (1L, 'x'), (1L, 'x'), (3L, 'z'), (null, 'n'), (4L, null) as t(id, `k.2`)")
    rows.write.format("delta").save(str(table.path))
    return table


class AgainstATable(StageConformance):
    """A key of another width, a key with a dot, and NULL on both sides, which equals nothing."""

    schema = "Id int, `K.2` string, at int"
    rows: ClassVar[list[tuple[Any, ...]]] = [
        (1, "x", 1),
        (1, "y", 1),
        (1, "y", 2),
        (None, "n", 1),
        (4, None, 1),
        (3, "z", None),
    ]

    def __init__(self, table: PinnedTable) -> None:
        self.table = table

    def stage(self) -> Stage:
        return Deduplicate(keys=["id", "k.2"], sequence_by="at", against=self.table)


@pytest.mark.parametrize(
    ("suite", "check"),
    [
        *(
            (BySequence, check)
            for check in (*KEEPS, *NOTHING_ELSE, "test_a_repeatable_stage_gives_the_same_result_again")
        ),
        *((ByArrival, check) for check in (*KEEPS, "test_a_repeatable_stage_gives_the_same_result_again")),
    ],
)
def test_the_stage_keeps_its_promises(spark: SparkSession, suite: type[StageConformance], check: str) -> None:
    """This holds for both orders."""
    getattr(suite(), check)(spark)


@pytest.mark.parametrize("check", KEEPS)
def test_the_stage_keeps_its_promises_beside_a_table(spark: SparkSession, carried: PinnedTable, check: str) -> None:
    """The table is read in both ways."""
    getattr(AgainstATable(carried), check)(spark)


def test_keys_in_the_table_are_left_out(spark: SparkSession, carried: PinnedTable) -> None:
    """Only whole keys count."""
    kept, _, filtered = collect_decided(AgainstATable(carried)._run_marked(spark, AgainstATable.rows))
    assert sorted(map(str, kept)) == [
        "Row(Id=1, K.2='y', at=2)",
        "Row(Id=4, K.2=None, at=1)",
        "Row(Id=None, K.2='n', at=1)",
    ]
    assert filtered == 3


def test_the_stage_uses_the_pinned_version(spark: SparkSession, carried: PinnedTable) -> None:
    """A later commit does not affect a planned batch."""
    stage = Deduplicate(keys=["id"], sequence_by="id", against=carried)
    pin = stage.pin(spark)
    spark.sql("select 2L as id, 'y' as `k.2`").write.format("delta").mode("append").save(str(carried.path))
    frame = spark.range(1, 4)
    for pinned, left in ((pin, [2]), (stage.pin(spark), []), (None, [])):
        rows = stage.apply(enter_stage(begin_straight(frame), "it", 1, pin=pinned))
        assert [row.id for row in take_clean(rows).collect()] == left


def test_a_missing_table_stops_a_batch_but_not_the_analysis(spark: SparkSession, tmp_path: Path) -> None:
    """A destination may make the table later."""
    stage = Deduplicate(keys=["id"], sequence_by="id", against=PinnedTable(path=f"{tmp_path}/nowhere"))
    assert stage.apply(begin_straight(spark.range(3))).names == ("id",)
    with pytest.raises(TableError, match=r"The Delta table .*/nowhere was not found"):
        stage.pin(spark)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("struct<ID: bigint, k2: int>", "has no column 'k.2'; did you mean 'k2'?"),
        ("struct<id: string, `k.2`: string>", "column id is bigint, and id of {} is string; cast it before"),
    ],
)
def test_keys_of_different_types_are_an_error(spark: SparkSession, tmp_path: Path, kind: str, says: str) -> None:
    """Wherry casts nothing implicitly. A missing key column is an error too."""
    table = PinnedTable(path=f"{tmp_path}/t")
    spark.sql(f"select from_json('', '{kind}') as s").select("s.*").write.format("delta").save(str(table.path))
    stage = Deduplicate(keys=["id", "k.2"], sequence_by="id", against=table)
    with pytest.raises(ValueError, match=re.escape(says.format(table.path))):
        stage.apply(begin_straight(spark.sql("select 1L as id, 'x' as `k.2`")))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "path: expected either path or table, got neither"),
        ({"path": "a", "table": "b"}, "path: expected either path or table, got both"),
        ({"table": "a; drop table b"}, "table: expected a name such as catalog.schema.table, got 'a; drop table b'"),
    ],
)
def test_a_table_has_exactly_one_place(given: dict[str, str], says: str) -> None:
    """The place is a path or a name."""
    with pytest.raises(ValueError, match=re.escape(says)):
        PinnedTable(**given)
