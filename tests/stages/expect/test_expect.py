"""The results of `expect` for rows and batches equal the results of Great Expectations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from origins.batch import JSON
from stages.conditions import Require
from stages.conformance import StageConformance, begin, collect_decided
from stages.expect import Expect, gx
from stages.expect.expectation import EXPECTATIONS, BatchRefused, Expectation, parse_expectation
from stages.rows import enter_stage
from stages.stage import Stage, apply_stage
from tests.stages.checks import KEEPS, NOTHING_ELSE, REFUSALS
from tests.stages.python.nasty import OF_BATCH, OF_ROWS, ROWS, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stages.rows import Rows

pytestmark = [pytest.mark.spark, pytest.mark.connect]

BETWEEN, NOT_NULL = "expect_column_values_to_be_between", "expect_column_values_to_not_be_null"


def judge_frame(
    frame: DataFrame, stage: Expect, *, protected: tuple[str, ...] = ()
) -> tuple[Rows, list[Mapping[str, JSON]]]:
    """Return the rows after a stage that sees the whole batch, and its findings."""
    from runners.ways.row_outcomes import count_by_spark

    found: list[Mapping[str, JSON]] = []

    def hold(rows: Rows, note: str) -> tuple[Rows, Mapping[str, int]]:
        return rows, count_by_spark(rows.frame, [note])[note] if note else {}

    begun = replace(begin(frame), hold=hold, note_finding=lambda name, said: found.extend(said), protected=protected)
    return apply_stage(stage, enter_stage(begun, "it", 2)), found


@pytest.fixture
def nasty(spark: SparkSession) -> DataFrame:
    """Difficult rows in one partition. Spark compiles no code for so few rows."""
    for key, value in {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}.items():
        spark.conf.set(key, value)
    return spark.createDataFrame(ROWS, SCHEMA).coalesce(1)


class Expected(StageConformance):
    """Expectations of single rows, with NULL, and a column whose name has a dot and a space."""

    schema = "`a. b` int, s string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "x"), (None, "x"), (11, None), (5, None), (12, "yy")]

    def stage(self) -> Stage:
        return Expect(
            [{BETWEEN: {"column": "A. B", "min_value": 0, "max_value": 10}}, {NOT_NULL: {"column": "s"}}],
        )


class AmongOthers(StageConformance):
    """A window sees neither rows that are gone nor rows that a condition excludes."""

    schema = "a int, b string"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1, "x"), (1, "y"), (2, "x"), (None, "x"), (None, "x"), (3, "x")]

    def stage(self) -> Stage:
        unique = {"column": "a", "row_condition": "b = 'x'"}
        return Expect([{"expect_column_values_to_be_unique": unique}])


class Tagged(StageConformance):
    """With a warning, which refuses no row."""

    schema = "a int"
    rows: ClassVar[list[tuple[Any, ...]]] = [(1,), (None,), (-1,), (99,)]

    def stage(self) -> Stage:
        low = {"column": "a", "min_value": 0}
        high = {"column": "a", "max_value": 10, "severity": "warning"}
        return Expect([{BETWEEN: low}, {BETWEEN: high}])


@pytest.mark.parametrize(
    ("suite", "check"),
    [
        *((Expected, check) for check in (*KEEPS, *REFUSALS, *NOTHING_ELSE)),
        *((AmongOthers, check) for check in KEEPS),
        *((Tagged, check) for check in KEEPS),
    ],
)
def test_the_stage_keeps_its_promises(spark: SparkSession, suite: type[StageConformance], check: str) -> None:
    """This holds for expectations of rows, of rows among others, and with warnings."""
    getattr(suite(), check)(spark)


def test_a_refused_row_names_all_expectations_that_it_fails(spark: SparkSession) -> None:
    """The message has the name, the column, the expected and the actual value. The first name is the code."""
    from stages.rows import VERDICT

    marked = Expected()._run_marked(spark, Expected.rows)
    said = marked.frame.where(f"{VERDICT} is not null").select(f"{VERDICT}.*").collect()
    missing = f"{NOT_NULL}: column s: NULL"
    assert [(nack.code, nack.message) for nack in said] == [
        (BETWEEN, f"{BETWEEN}: column A. B: '11', expected min_value 0, max_value 10; {missing}"),
        (NOT_NULL, missing),
        (BETWEEN, f"{BETWEEN}: column A. B: '12', expected min_value 0, max_value 10"),
    ]


def test_a_value_that_occurs_twice_among_the_selected_rows_is_refused(spark: SparkSession) -> None:
    """Rows that an earlier stage refused do not count."""
    from stages.rows import NOTE

    frame = spark.createDataFrame([*AmongOthers.rows, (3, "x"), (4, "x"), (4, "gone")], AmongOthers.schema)
    rows = apply_stage(Require({"there": "b <> 'gone'"}), enter_stage(begin(frame), "first", 1))
    judged = apply_stage(AmongOthers().stage(), enter_stage(rows, "it", 2))
    assert sorted(collect_decided(judged)[1]) == [5, 6, 8]
    assert f"{NOTE}2" in judged.kept


def test_a_warning_is_added_to_the_row(spark: SparkSession) -> None:
    """A row that is kept despite a failure has the names of the failed expectations."""
    kept, refused, _ = collect_decided(Tagged()._run_marked(spark, Tagged.rows))
    assert [tuple(row) for row in kept] == [(1, None), (None, None), (99, [f"{BETWEEN}(a)"])]
    assert refused == [2]
    stage = replace(Tagged().stage(), on_error="keep")
    lenient = apply_stage(stage, enter_stage(begin(spark.createDataFrame(Tagged.rows, Tagged.schema)), "it", 2))
    assert [tuple(row)[1] for row in collect_decided(lenient)[0]] == [
        None,
        None,
        [f"{BETWEEN}(a)"],
        [f"{BETWEEN}(a)"],
    ]


def test_every_row_has_the_verdict_of_great_expectations(nasty: DataFrame) -> None:
    """All expectations of rows are checked with NULL, NaN, infinities, limits and unusual text.

    The counts agree too.
    """
    assert {name for name, _ in OF_ROWS} == {
        name for name, known in EXPECTATIONS.items() if known.way not in ("batch", "")
    }
    rules = [parse_expectation(name, options) for name, options in OF_ROWS]
    stage = Expect([{name: {**options, "severity": "warning"}} for name, options in OF_ROWS])
    rows, found = judge_frame(nasty, stage)
    note = {row["pos"]: row[rows.note] for row in rows.frame.select("pos", rows.note).collect()}
    expected = find_gx_results(rules, nasty)
    for at, (rule, (success, failed, result)) in enumerate(zip(rules, expected, strict=True)):
        ours = sorted(pos for pos, each in note.items() if each[at] == "4")
        assert (rule.type, rule.options, ours) == (rule.type, rule.options, failed)
        told = dict(found[at])
        assert told.pop("success") is success, (rule.type, rule.options)
        assert told == {name: result.get(name) for name in told}, (rule.type, rule.options)


def find_gx_results(rules: list[Expectation], frame: DataFrame) -> list[tuple[bool, list[int], Mapping[str, JSON]]]:
    """Return the result of Great Expectations for each rule, and the positions of the unexpected rows."""
    made = [gx.make_expectation(rule, {}) for rule in rules]
    for number, each in enumerate(made):
        each.meta = {"number": number}
    how = {"result_format": "COMPLETE", "unexpected_index_column_names": ["pos"]}
    with gx.silence_logs():
        results = gx.make_validator(frame).graph_validate(
            configurations=[each.configuration for each in made],
            runtime_configuration={"result_format": how, "catch_exceptions": False},
        )
    found = {}
    for each in results:
        places = sorted(row["pos"] for row in each.result.get("unexpected_index_list") or [])
        found[each.expectation_config.meta["number"]] = (bool(each.success), places, each.result)
    return [found[number] for number in range(len(rules))]


def test_every_expectation_of_a_batch_is_evaluated(nasty: DataFrame) -> None:
    """Each has options that hold for the rows, and options that do not."""
    assert {name for name, _, _ in OF_BATCH} == {name for name, known in EXPECTATIONS.items() if known.way == "batch"}
    asked = [{name: options} for name, good, bad in OF_BATCH for options in (good, bad)]
    _, found = judge_frame(nasty, Expect(asked, on_batch_failure="report"))
    wrong = [(*of, each) for of, each in zip(list_both(), found, strict=True) if each["success"] != (of[1] == "good")]
    assert wrong == []


def list_both() -> list[tuple[str, str]]:
    return [(name, how) for name, _, _ in OF_BATCH for how in ("good", "bad")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({NOT_NULL: {"column": "gone"}}, "there is no column 'gone'"),
        ({NOT_NULL: {"column": "odd name"}}, "there is no column 'odd name'; did you mean 'odd. name'?"),
        ({BETWEEN: {"column": "i", "min_value": "x"}}, f"{BETWEEN}: min_value: value is not a valid"),
        ({BETWEEN: {"column": "s", "min_value": 0}}, "StringType"),
        ({"expect_column_values_to_be_json_parseable": {"column": "i"}}, "column i is not text"),
        ({"expect_column_values_to_match_regex": {"column": "s", "regex": "a", "row_condition": "gone = 1"}}, "gone"),
    ],
)
def test_an_expectation_that_does_not_fit_the_columns_is_refused_before_a_row_is_read(
    nasty: DataFrame, given: dict[str, Any], said: str
) -> None:
    """The error names the expectation and the column."""
    with pytest.raises(Exception, match=said):
        apply_stage(Expect([given]), enter_stage(begin(nasty), "it", 2))


def test_a_column_for_tags_that_exists_already_is_refused(nasty: DataFrame) -> None:
    """Two suites that tag need two columns."""
    stage = Expect([{NOT_NULL: {"column": "i", "severity": "info"}}], tag="S")
    with pytest.raises(ValueError, match="tag: the rows have a column S already"):
        apply_stage(stage, enter_stage(begin(nasty), "it", 2))


FAILS = {BETWEEN: {"column": "i", "min_value": 0, "mostly": 0.9}}


def test_a_batch_below_mostly_is_stopped(nasty: DataFrame) -> None:
    """The error names what was expected and what was found."""
    with pytest.raises(
        BatchRefused, match=rf"(?s)stage 'it'.*{BETWEEN} of i, expected min_value 0, in 0.9 .*0.875 of 8"
    ):
        judge_frame(nasty, Expect([FAILS]))


def test_a_quarantined_batch_is_refused_as_a_whole(nasty: DataFrame) -> None:
    """All rows have the same message."""
    from stages.rows import VERDICT

    rows, _ = judge_frame(nasty, Expect([FAILS], on_batch_failure="quarantine"))
    said = {(row[0], row[1]) for row in rows.frame.select(f"{VERDICT}.code", f"{VERDICT}.message").collect()}
    assert said == {
        ("QUARANTINE", f"the batch failed: {BETWEEN} of i, expected min_value 0, in 0.9 of the rows or more, "
         "found 0.875 of 8")
    }  # fmt: skip
    assert collect_decided(rows)[0] == []


def test_a_batch_that_is_only_reported_continues_without_its_failing_rows(nasty: DataFrame) -> None:
    """So does a batch above its share `mostly`."""
    for mostly, success in ((0.9, False), (0.8, True)):
        options = {**FAILS[BETWEEN], "mostly": mostly}
        rows, found = judge_frame(nasty, Expect([{BETWEEN: options}], on_batch_failure="report"))
        assert [each["success"] for each in found] == [success]
        assert collect_decided(rows)[1] == [4]


def test_a_batch_without_rows_fails_no_expectation_of_rows(nasty: DataFrame) -> None:
    """An expectation of the number of rows may fail."""
    count = {"expect_table_row_count_to_be_between": {"min_value": 1}}
    _, found = judge_frame(nasty.limit(0), Expect([FAILS, count], on_batch_failure="report"))
    assert [each["success"] for each in found] == [True, False]


def test_values_of_protected_columns_are_hidden_in_findings(nasty: DataFrame) -> None:
    """This holds for observed values. Findings of other columns do not change."""
    high = {"expect_column_max_to_be_between": {"column": "J", "max_value": 3}}
    asked = [high, {"expect_column_min_to_be_between": {"column": "i", "min_value": 3}}]
    shown = judge_frame(nasty, Expect(asked, on_batch_failure="report"))[1]
    hidden = judge_frame(nasty, Expect(asked, on_batch_failure="report"), protected=("j",))[1]
    assert (shown[0]["result"]["observed_value"], hidden[0]["result"]["observed_value"]) == (11, "***")
    assert shown[1] == hidden[1]
