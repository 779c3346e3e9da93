"""Wherry refuses the rows that a Delta table would refuse before it writes anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.conformance import make_label
from destinations.delta import Delta
from destinations.delta import table as delta_table
from destinations.delta.delta import OpenDelta
from destinations.destination import Demands, Misfit, Rule
from origins.batch_rows import FrameRows
from stages.conformance import StageConformance, begin
from stages.rows import enter_stage
from stages.stage import Stage
from tests.stages.checks import KEEPS, REFUSALS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stages.rows import Rows

pytestmark = pytest.mark.spark

DEFAULTS = "'delta.feature.allowColumnDefaults' = 'supported'"
TABLE = (
    "id bigint NOT NULL, inner struct<deep: struct<x: int NOT NULL>, y: int>, short varchar(3), fixed char(2), "
    "many array<varchar(2)>, pairs map<varchar(1), varchar(2)>, amount int, `odd``name.` int, "
    "twice bigint GENERATED ALWAYS AS (id * 2), level int DEFAULT 7"
)
GOOD: dict[str, Any] = {
    "id": 1,
    "inner": {"deep": {"x": 1}, "y": None},
    "short": "äöü",
    "fixed": "a",
    "many": ["ab", None],
    "pairs": {"a": "ab"},
    "amount": 1,
    "odd`name.": 2,
    "twice": 2,
}
SCHEMA = (
    "id bigint, inner struct<deep: struct<x: int>, y: int>, short string, fixed string, many array<string>, "
    "pairs map<string, string>, amount int, `odd``name.` int, twice bigint"
)
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"id": None, "twice": None}, "NOT_NULL", "column id is NULL, but the table needs a value in every row (NOT NULL)"),
    ({"inner": None}, "NOT_NULL", "column inner.deep.x is NULL, but the table needs a value in every row (NOT NULL)"),
    ({"inner": {"deep": {"x": None}, "y": 1}}, "NOT_NULL", "column inner.deep.x is NULL, but the table needs a value"),
    ({"short": "abcd"}, "LENGTH", "column short is too long for varchar(3); short = 'abcd'"),
    ({"short": "a   "}, "LENGTH", "column short is too long for varchar(3); short = 'a   '"),
    ({"fixed": "abc"}, "LENGTH", "column fixed is too long for char(2); fixed = 'abc'"),
    ({"many": ["a", "abc"]}, "LENGTH", "column many is too long for array<varchar(2)>; many = '[a, abc]'"),
    (
        {"pairs": {"a": "abc"}},
        "LENGTH",
        "column pairs is too long for map<varchar(1),varchar(2)>; pairs = '{a -> abc}'",
    ),
    ({"pairs": {"ab": "a"}}, "LENGTH", "column pairs is too long"),
    ({"amount": -1}, "CHECK", "constraint positive (amount > 0) does not hold; amount = '-1'"),
    ({"amount": None}, "CHECK", "constraint positive (amount > 0) does not hold; amount = NULL"),
    ({"odd`name.": 0}, "CHECK", "constraint odd (`odd``name.` > level - 6) does not hold; odd`name. = '0'"),
    ({"twice": 3}, "GENERATED", "column twice differs from what the table generates (id * 2); twice = '3', id = '1'"),
    ({"twice": None}, "GENERATED", "column twice differs from what the table generates (id * 2); twice = NULL"),
]


@pytest.fixture
def strict(spark: SparkSession, tmp_path: Path) -> OpenDelta:
    """A table with every kind of demand."""
    table = Delta(path=str(tmp_path / "strict")).open()
    make_table(spark, table, TABLE, DEFAULTS)
    spark.sql(f"ALTER TABLE {table.destination.sql_name} ADD CONSTRAINT positive CHECK (amount > 0)")
    spark.sql(f"ALTER TABLE {table.destination.sql_name} ADD CONSTRAINT odd CHECK (`odd``name.` > level - 6)")
    return table


class TestAgreement:
    @pytest.mark.connect
    def test_each_bad_row_is_refused_with_its_reason(self, spark: SparkSession, strict: OpenDelta) -> None:
        """The nack has a code, and a message that names the column or constraint and the value."""
        rows = spark.createDataFrame([GOOD, *[{**GOOD, **change} for change, _, _ in BAD]], SCHEMA)
        good, *bad = find_verdicts(spark, strict, rows)
        assert good is None
        told = [(nack["code"], nack["message"]) for nack in bad if nack is not None]
        assert len(told) == len(BAD)
        for (code, message), (_, expected, begins) in zip(told, BAD, strict=True):
            assert code == expected
            assert message.startswith(begins)

    @pytest.mark.promise("CD-12")
    def test_the_table_refuses_the_same_rows(self, spark: SparkSession, strict: OpenDelta) -> None:
        """It takes the good row and none of the bad ones, so Wherry refuses no row that could be written."""
        rows = spark.createDataFrame([GOOD], SCHEMA)
        strict.ensure_place(spark, rows.schema)
        assert strict.write(spark, FrameRows(rows), [make_label()]).rows == 1
        for change, _, _ in BAD:
            with pytest.raises(Exception, match=r"DELTA_\w*(?:CONSTRAINT|VIOLATE|LIMIT)"):
                strict.write(spark, FrameRows(spark.createDataFrame([{**GOOD, **change}], SCHEMA)), [make_label()])

    def test_a_row_that_breaks_several_rules_reports_all_of_them(self, spark: SparkSession, strict: OpenDelta) -> None:
        """It is refused once, under the code of the first rule."""
        rows = spark.createDataFrame([{**GOOD, "amount": 0, "short": "abcd"}], SCHEMA)
        (nack,) = find_verdicts(spark, strict, rows)
        assert nack is not None
        assert nack["code"] == "LENGTH"
        assert nack["message"].endswith("short = 'abcd'; constraint positive (amount > 0) does not hold; amount = '0'")


class TestWhatRowsLack:
    def test_a_constraint_sees_the_values_that_the_table_fills(self, spark: SparkSession, tmp_path: Path) -> None:
        """They are a default, a generated value, and NULL. Names of fields and functions are not columns."""
        table = Delta(path=str(tmp_path / "t")).open()
        make_table(
            spark,
            table,
            "id bigint, level int DEFAULT 7, twice bigint GENERATED ALWAYS AS (id * 2), s struct<level: int>, abs int",
            DEFAULTS,
        )
        for name, condition in {
            "a": "abs(id) + level < 10",
            "b": "`TWICE` > 0 /* twice */ or id is null",
            "c": "abs is null and coalesce(s.level, 1) = 1",
        }.items():
            spark.sql(f"ALTER TABLE {table.destination.sql_name} ADD CONSTRAINT {name} CHECK ({condition})")
        rows = spark.createDataFrame([(2, (1,)), (5, (1,)), (-1, (1,)), (2, (2,))], "id bigint, s struct<level: int>")
        told = find_verdicts(spark, table, rows)
        assert [nack and nack["message"].split(" (")[0] for nack in told] == [
            None,
            "constraint a",
            "constraint b",
            "constraint c",
        ]
        good, *bad = (spark.createDataFrame([row], rows.schema) for row in rows.collect())
        assert table.write(spark, FrameRows(good), [make_label()]).rows == 1
        for row in bad:
            with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT"):
                table.write(spark, FrameRows(row), [make_label()])

    def test_a_constraint_that_wherry_cannot_check_is_left_to_the_table(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """It is on an identity column, or on a struct of which the rows bring only a part."""
        table = Delta(path=str(tmp_path / "t")).open()
        make_table(spark, table, "id bigint, k bigint GENERATED ALWAYS AS IDENTITY, s struct<a: int, b: varchar(1)>")
        spark.sql(f"ALTER TABLE {table.destination.sql_name} ADD CONSTRAINT counted CHECK (k > 0)")
        spark.sql(f"ALTER TABLE {table.destination.sql_name} ADD CONSTRAINT whole CHECK (s.b is null)")
        rows = spark.createDataFrame([(1, (2,))], "id bigint, s struct<a: int>")
        table.ensure_place(spark, rows.schema)
        assert table.demands(spark, rows.schema) == []


class TestCost:
    def test_a_table_without_demands_needs_no_stage(self, spark: SparkSession, tmp_path: Path) -> None:
        """It has no rules, NOT NULL columns or lengths to check."""
        table = Delta(path=str(tmp_path / "t")).open()
        table.ensure_place(spark, spark.range(1).schema)
        assert table.demands(spark, spark.range(1).schema) == []

    def test_generated_columns_are_also_read_through_spark(
        self, spark: SparkSession, strict: OpenDelta, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Spark reads the metadata if the table's folder is not on this machine."""
        monkeypatch.setattr(delta_table, "_find_local_log", lambda location, table_id: None)
        rows = spark.createDataFrame([{**GOOD, "twice": 3}], SCHEMA)
        (nack,) = find_verdicts(spark, strict, rows)
        assert nack is not None
        assert nack["code"] == "GENERATED"

    def test_rows_with_an_identity_column_are_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        """GENERATED ALWAYS AS IDENTITY takes no values, and Wherry reports that before it reads a row."""
        table = Delta(path=str(tmp_path / "t")).open()
        make_table(spark, table, "id bigint, k bigint GENERATED ALWAYS AS IDENTITY")
        with pytest.raises(Misfit, match=r"k: the table generates it .* drop: \[k\]"):
            table.ensure_place(spark, spark.createDataFrame([], "id bigint, k bigint").schema)


class AsAStage(StageConformance):
    """Demands that refuse most of the rows."""

    schema = "a int, b string"
    rows = ((1, "x"), (None, "x"), (2, None), (-1, "long"), (3, "y"))

    def stage(self) -> Stage:
        return Demands(
            rules=[
                Rule(code="A", holds="a > 0", reason="a is wrong", shows=["a"]),
                Rule(code="B", holds="b is null or length(b) < 2", reason="b is wrong", shows=["A", "b"]),
            ]
        )


@pytest.mark.connect
@pytest.mark.parametrize("check", [*KEEPS, *REFUSALS])
def test_demands_keep_the_promises_of_a_stage(spark: SparkSession, check: str) -> None:
    """They refuse rows as the stage `require` does."""
    getattr(AsAStage(), check)(spark)


def test_a_rule_that_depends_on_the_time_is_not_repeatable() -> None:
    """Wherry records its result once."""
    assert not Demands(rules=[Rule(code="A", holds="at < current_timestamp()", reason="")]).repeatable
    assert Demands(rules=[Rule(code="A", holds="at > id", reason="")]).repeatable


def find_verdicts(spark: SparkSession, table: OpenDelta, frame: DataFrame) -> list[Any]:
    """Return why the table's demands refuse each row, or None."""
    from origins.origin import PLACE
    from stages.rows import VERDICT

    table.ensure_place(spark, frame.schema)
    rows: Rows = begin(frame)
    for step, stage in enumerate(table.demands(spark, frame.schema), 1):
        rows = stage.apply(enter_stage(rows, "table", step))
    return [row[VERDICT] for row in rows.frame.orderBy(f"{PLACE}.row").select(VERDICT).collect()]


def make_table(spark: SparkSession, table: OpenDelta, columns: str, properties: str = "'a' = 'b'") -> None:
    """Make the table outside Wherry."""
    spark.sql(f"CREATE TABLE {table.destination.sql_name} ({columns}) USING delta TBLPROPERTIES ({properties})")
