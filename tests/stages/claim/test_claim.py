"""The stages `claim` and `unclaim` for rows with large values and for all other rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pyarrow as pa
import pytest

from origins.errors import get_raised_words
from origins.lazy import F
from origins.nack import restore
from stages.bisection import LARGE
from stages.cast import Cast
from stages.claim import Claim, Format, Unclaim
from stages.claim_store import PREFIX
from stages.columns import Drop, Rename, Select, WithColumns
from stages.conditions import Filter, Require
from stages.conformance import StageConformance, begin, begin_straight, collect_decided
from stages.rows import STATE, VERDICT, Rows, complete_verdicts, enter_stage, take_clean
from stages.sql import Sql as Statement
from stages.stage import Stage, apply_stage
from tests.stages.checks import KEEPS, NOTHING_ELSE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R", bound=Rows)
LONG, HUGE = "x" * 2_000, "y" * 5_000


def make_claim(path: str, **options: Any) -> Claim:
    """Return the stage with limits that small values exceed."""
    return Claim(path=path, **{"over": "1KiB", "refuse_over": "4KiB", **options})


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The place of a store."""
    return str(tmp_path / "claims")


class LargeValues(StageConformance):
    """Large texts, bytes and nested values."""

    schema = (
        "id int, `a text` string, b binary, s struct<`x.y`: string, n: int>, l array<string>, m map<string, binary>"
    )
    rows: ClassVar[list[tuple[Any, ...]]] = [
        (1, LONG, LONG.encode(), (LONG, 1), ["a", LONG], {"k": LONG.encode()}),
        (2, None, None, None, None, None),
        (3, "", b"", (None, None), [None], {"k": None}),
        (4, f"{PREFIX}forged", b"x", ("a", 1), [], {}),
    ]
    claims: ClassVar[bool] = True

    def __init__(self, stage: Stage) -> None:
        self.given = stage

    def stage(self) -> Stage:
        return self.given

    def _apply_stage(self, rows: Rows) -> Rows:
        return super()._apply_stage(replace(rows, claims=self.claims))


class SmallValues(LargeValues):
    """Without large values nothing is stored, and no worker is asked."""

    rows: ClassVar[list[tuple[Any, ...]]] = LargeValues.rows[1:3]
    claims = False


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.parametrize(
    ("suite", "make", "check"),
    [
        *((LargeValues, "files", check) for check in (*KEEPS, *NOTHING_ELSE)),
        *((LargeValues, "delta", check) for check in KEEPS),
        *((SmallValues, "files", check) for check in KEEPS),
    ],
)
def test_claim_keeps_the_promises_of_a_stage(
    spark: SparkSession, path: str, suite: type[LargeValues], make: Format, check: str
) -> None:
    """This holds for each kind of store."""
    getattr(suite(make_claim(path, format=make)), check)(spark)


@pytest.mark.spark
@pytest.mark.parametrize("check", KEEPS)
def test_rows_without_references_pass_unclaim_unchanged(spark: SparkSession, path: str, check: str) -> None:
    """None of their values is looked up."""
    getattr(SmallValues(Unclaim(path=path)), check)(spark)


def begin_claim(frame: DataFrame, *, claims: bool | None = True, step: int = 1) -> Rows:
    """Return the rows with verdicts, at the start of the stage with this number."""
    return enter_stage(replace(begin(frame), claims=claims), "it", step)


def make_straight(frame: DataFrame, *, claims: bool = False) -> Rows:
    """Return the rows of a frame on the straight way."""
    return enter_stage(replace(begin_straight(frame), claims=claims), "it", 1)


@pytest.mark.spark
@pytest.mark.parametrize(("value", "marked"), [(LONG, True), (f"{PREFIX}x", False)])
def test_the_first_large_value_restarts_the_batch(spark: SparkSession, path: str, value: str, marked: bool) -> None:
    """So does the first value that looks like a reference, at both stages. Nothing is stored before."""
    for stage in (make_claim(path), Unclaim(path=path)):
        frame = spark.createDataFrame([(1, {"k": ["a", value]})], "id int, v map<string, array<string>>")
        rows = begin_claim(frame, claims=False) if marked else make_straight(frame)
        if isinstance(stage, Unclaim) and value == LONG:
            assert apply_stage(stage, rows).frame.count() == 1
            continue
        with pytest.raises(Exception, match=LARGE) as error:
            apply_stage(stage, rows).frame.collect()
        assert get_raised_words(error.value) == LARGE
    assert not Path(path).exists()


@pytest.mark.spark
def test_a_large_value_in_a_row_that_left_raises_nothing(spark: SparkSession, path: str) -> None:
    """The same holds for a row that `when` excludes from the stage."""
    frame = spark.createDataFrame([(1, LONG), (2, "a")], "id int, v string")
    stage = make_claim(path)
    gone = begin_claim(frame, claims=False).filter(F.col("id") == 2)
    assert apply_stage(stage, gone).frame.count() == 2
    assert take_clean(apply_stage(replace(stage, when="id = 2"), make_straight(frame))).count() == 2


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.parametrize("kind", ["files", "delta"])
def test_claim_and_unclaim_together_change_nothing(spark: SparkSession, path: str, kind: Format) -> None:
    """This holds for straight rows too. Between the stages all large values are references."""
    frame = spark.createDataFrame(LargeValues.rows, LargeValues.schema)
    claimed = apply_stage(make_claim(path, format=kind), make_straight(frame, claims=True))
    (between,) = take_clean(claimed).where("id = 1").collect()
    assert len(str(between)) < 1_000
    back = apply_stage(Unclaim(path=path, format=kind), claimed)
    assert back.schema == frame.schema
    assert sorted(map(str, take_clean(back).collect())) == sorted(map(str, frame.collect()))


BETWEEN: list[tuple[list[Stage], bool]] = [
    ([], False),
    ([Filter("id > 0"), Require("id > 0"), Rename({"v": "w"}), Cast({"id": "string"}), Drop(["id"])], False),
    ([WithColumns({"v": "concat(v, '')"})], True),
    ([Select(["id", "v as w", "upper(v) as x"])], True),
    ([Cast({"b": "string"})], True),
    ([Statement("select * from rows")], True),
]


@pytest.mark.spark
def test_values_known_to_be_small_are_not_checked_again(spark: SparkSession, path: str) -> None:
    """Values that a stage in between made are checked."""
    frame = spark.createDataFrame([(1, "a", b"b")], "id int, v string, b binary")
    for begun in (begin_claim(frame, claims=False), make_straight(frame)):
        for between, asks in BETWEEN:
            rows: Any = apply_stage(make_claim(path), begun)
            for stage in between:
                rows = apply_stage(stage, rows)
            assert (apply_stage(Unclaim(path=path), rows) is not rows) is asks, between


@pytest.mark.spark
@pytest.mark.parametrize(
    ("between", "marked"),
    [
        (WithColumns({"v": f"concat('{PREFIX}', v)"}), True),
        (Statement(f"select id, concat('{PREFIX}', v) as v from rows"), False),
    ],
    ids=["replaced", "a statement"],
)
def test_unclaim_asks_about_values_that_were_made_after_claim(
    spark: SparkSession, path: str, marked: bool, between: Stage
) -> None:
    """Rows whose values stay small raise nothing."""
    frame = spark.createDataFrame([(1, "a")], "id int, v string")
    rows: Any = begin_claim(frame, claims=False) if marked else make_straight(frame)
    claimed = apply_stage(make_claim(path), rows)
    assert apply_stage(Unclaim(path=path), claimed).frame.count() == 1
    with pytest.raises(Exception, match=LARGE):
        apply_stage(Unclaim(path=path), apply_stage(between, claimed)).frame.collect()


@pytest.mark.spark
def test_a_stage_that_rows_may_skip_makes_no_column_known(spark: SparkSession, path: str) -> None:
    """`unclaim` finds a reference in a row that skipped `claim`."""
    frame = spark.createDataFrame([(1, "a"), (2, f"{PREFIX}x")], "id int, v string")
    for rows in (begin_claim(frame, claims=False), make_straight(frame)):
        claimed = apply_stage(replace(make_claim(path), when="id = 1"), rows)
        with pytest.raises(Exception, match=LARGE):
            apply_stage(Unclaim(path=path), claimed).frame.collect()


@pytest.mark.spark
def test_only_chosen_columns_are_claimed(spark: SparkSession, path: str) -> None:
    """The case of their names does not matter, and the order of the columns remains."""
    frame = spark.createDataFrame([(LONG, LONG, 1)], "a string, B string, c int")
    claimed = apply_stage(make_claim(path, columns=["b"]), make_straight(frame, claims=True))
    (row,) = take_clean(claimed).collect()
    assert claimed.names == ("a", "B", "c")
    assert row["a"] == LONG
    assert row["B"].startswith(PREFIX)


@pytest.mark.spark
def test_a_value_over_the_hard_limit_is_stored_and_its_row_refused(spark: SparkSession, path: str) -> None:
    """The DLQ gets only references, also in the original row, from which `unclaim` restores the rows."""
    rows = [(1, "a", [HUGE]), (2, HUGE, None), (3, LONG, None)]
    frame = spark.createDataFrame(rows, "id int, v string, l array<string>")
    refused = complete_verdicts(apply_stage(make_claim(path), begin_claim(frame))).frame.where(F.col(STATE) < 0)
    nacks = refused.select(f"{VERDICT}.*").orderBy("row").collect()
    assert [nack["code"] for nack in nacks] == ["LARGE"] * 2
    assert [nack["message"] for nack in nacks] == [
        "column l: 5,000 bytes, expected at most 4,096",
        "column v: 5,000 bytes, expected at most 4,096",
    ]
    assert all(len(nack["row"]) < 400 and nack["original"] == nack["row"] for nack in nacks)
    again = refused.select(F.expr(restore(f"{VERDICT}.original", frame.schema)).alias("r")).select("r.*")
    back = apply_stage(Unclaim(path=path), make_straight(again, claims=True))
    assert sorted(map(tuple, take_clean(back).collect())) == rows[:2]


@pytest.mark.spark
def test_a_reference_to_a_value_over_the_hard_limit_is_refused_again(spark: SparkSession, path: str) -> None:
    """Its size is that of the value. A higher limit lets the row pass."""
    frame = spark.createDataFrame([(HUGE,)], "v string")
    stored = take_clean(apply_stage(make_claim(path, refuse_over=None), make_straight(frame, claims=True)))
    again = spark.createDataFrame(stored.collect(), "v string")
    kept, refused, _ = collect_decided(apply_stage(make_claim(path), begin_claim(again)))
    assert (kept, refused) == ([], [0])
    kept, refused, _ = collect_decided(apply_stage(make_claim(path, refuse_over="5kB"), begin_claim(again)))
    assert (len(kept), refused) == (1, [])


@pytest.mark.spark
def test_after_another_stage_the_original_row_keeps_its_values(spark: SparkSession, path: str) -> None:
    """A replay sends the row through that stage again, which must see the value."""
    frame = spark.createDataFrame([(HUGE,)], "v string")
    rows = apply_stage(make_claim(path), begin_claim(frame, step=2))
    (nack,) = complete_verdicts(rows).frame.select(f"{VERDICT}.*").collect()
    assert HUGE not in nack["row"]
    assert HUGE in nack["original"]


@pytest.mark.spark
@pytest.mark.parametrize("on_error", ["discard", "keep"])
def test_on_error_decides_about_a_row_over_the_hard_limit(spark: SparkSession, path: str, on_error: str) -> None:
    """The row is filtered or continues unchanged, in both ways."""
    frame = spark.createDataFrame([(1, HUGE), (2, LONG)], "id int, v string")
    stage = make_claim(path, on_error=on_error)
    wanted = [1, 2] if on_error == "keep" else [2]
    kept, refused, _ = collect_decided(apply_stage(stage, begin_claim(frame)))
    assert (sorted(row.id for row in kept), refused) == (wanted, [])
    assert (
        sorted(row.id for row in take_clean(apply_stage(stage, make_straight(frame, claims=True))).collect()) == wanted
    )


@pytest.mark.spark
def test_a_trial_stores_nothing_and_shows_the_values(spark: SparkSession, path: str) -> None:
    """It refuses the rows that a run would refuse."""
    frame = spark.createDataFrame([("a",), (LONG,), (HUGE,)], "v string")
    kept, refused, _ = collect_decided(apply_stage(make_claim(path), begin_claim(frame, claims=None)))
    assert (sorted(row.v for row in kept), refused) == (["a", LONG], [2])
    assert not Path(path).exists()


@pytest.mark.spark
def test_a_reference_whose_value_is_missing_is_refused(spark: SparkSession, path: str) -> None:
    """The row keeps the reference."""
    Unclaim(path=path)
    frame = spark.createDataFrame([(LONG,)], "v string")
    claimed = take_clean(apply_stage(make_claim(path), make_straight(frame, claims=True))).collect()
    for file in Path(path, "values").rglob("*"):
        if file.is_file():
            file.unlink()
    rows = apply_stage(Unclaim(path=path), begin_claim(spark.createDataFrame(claimed, "v string")))
    (nack,) = complete_verdicts(rows).frame.select(f"{VERDICT}.*").collect()
    assert nack["code"] == "CLAIM"
    assert nack["message"].startswith("a reference names a value of 2,000 bytes that the store does not have: ")
    assert PREFIX in nack["row"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("stage", "problem"),
    [
        (Claim(path="p", columns=["nope"]), "there is no column 'nope'"),
        (Claim(path="p", columns=["n"]), "column n is int, which has neither text nor bytes"),
        (Unclaim(path="p", columns=["j"]), "column j is variant, which has a VARIANT; turn it into text before"),
    ],
)
def test_a_column_without_text_or_bytes_cannot_be_chosen(spark: SparkSession, stage: Stage, problem: str) -> None:
    """The error is raised before a row is read."""
    frame = spark.sql("select 1 as n, parse_json('1') as j, 'a' as v")
    with pytest.raises(ValueError, match=problem):
        apply_stage(stage, make_straight(frame))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"path": ""}, "path: expected a folder or a URL, got ''"),
        (
            {"path": "hdfs://node/claims"},
            "path: expected a folder, s3://, abfss:// or gs://, since workers do not reach HDFS",
        ),
        ({"format": "parquet"}, "format: expected files or delta, got 'parquet'"),
        ({"columns": "v"}, "columns: expected a list of columns, got 'v'"),
        ({"over": "1"}, "over: expected a size such as 500kB, 64MiB or 1GiB, got '1'"),
        ({"over": "1000B"}, "over: expected at least 1KiB, got '1000B'"),
        ({"refuse_over": "1000kB"}, "refuse_over: expected at least 1MiB, as `over` has it, got '1000kB'"),
        ({"retain": "23h"}, "retain: expected at least 1d, got '23h'"),
        ({"retain": "long"}, "retain: expected a duration such as"),
    ],
)
def test_an_invalid_option_is_named(options: dict[str, Any], problem: str) -> None:
    """The error names what was expected."""
    with pytest.raises(ValueError, match=problem):
        Claim(**{"path": "p", **options})


def test_rows_in_memory_without_large_values_pass() -> None:
    """So a small batch needs no Spark for these stages."""
    small, large = pa.table({"v": ["a", None], "n": [1, 2]}), pa.table({"v": [LONG]})
    forged = pa.table({"v": [{"x": [f"a {PREFIX}"]}]})
    claim, unclaim = make_claim("p"), Unclaim(path="p")
    assert [claim.leaves(each) for each in (small, large, forged)] == [True, False, False]
    assert [unclaim.leaves(each) for each in (small, large, forged)] == [True, True, False]


@pytest.mark.spark
def test_other_readers_can_read_a_table_of_values(spark: SparkSession, path: str) -> None:
    """Spark finds a value by its hash, and reads one file for it."""
    frame = spark.createDataFrame([(LONG,), (HUGE,)], "v string")
    stage = make_claim(path, format="delta", refuse_over=None)
    claimed = take_clean(apply_stage(stage, make_straight(frame, claims=True))).collect()
    name = next(row.v for row in claimed if ":5000:" in row.v).split(":")[1]
    found = spark.read.format("delta").load(f"{path}/table").where(F.col("hash") == name)
    assert [bytes(row.value).decode() for row in found.collect()] == [HUGE]
    assert len(found.inputFiles()) == 1


def test_the_packages_on_workers_depend_on_the_store() -> None:
    """A folder needs only the package that each worker with Arrow has."""
    assert Claim(path="p").list_worker_packages() == {"pyarrow"}
    assert Unclaim(path="s3://b/p", format="delta").list_worker_packages() == {"pyarrow", "obstore", "deltalake"}
