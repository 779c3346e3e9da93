"""What is refused in a suite before Spark or Great Expectations is loaded."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from runners.definitions.definition import load
from runners.definitions.document import DefinitionError
from stages.expect import Expect, gx

NOT_NULL = {"expect_column_values_to_not_be_null": {"column": "id"}}
BETWEEN = "expect_column_values_to_be_between"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"expect_column_values_to_be_betwen": {}}, f"unknown expectation .*; did you mean '{BETWEEN}'"),
        ({BETWEEN: {"column": "a", "min_val": 1}}, "unknown option 'min_val'; did you mean 'min_value'"),
        ({BETWEEN: {"min_value": 1}}, "'column' is missing"),
        ({BETWEEN: {"column": "", "min_value": 1}}, "expected the name of a column, got ''"),
        ({BETWEEN: {"column": "a", "min_value": 2, "max_value": 1}}, "min_value 2 is above max_value 1"),
        ({BETWEEN: {"column": "a", "min_value": 1, "mostly": 1.5}}, "mostly: expected a share from 0 to 1, got 1.5"),
        ({BETWEEN: {"column": "a", "min_value": 1, "mostly": True}}, "mostly: expected a share from 0 to 1, got True"),
        ({BETWEEN: {"column": "a", "min_value": 1, "severity": "bad"}}, "severity is critical, warning or info"),
        ({BETWEEN: {"column": "a", "min_value": {"$PARAMETER": "x"}}}, "suite parameters"),
        ({BETWEEN: {"column": "a", "row_condition": "a > max(b) over ()"}}, "row_condition: a window needs more"),
        (
            {BETWEEN: {"column": "a", "row_condition": "a", "condition_parser": "pandas"}},
            "Spark cannot evaluate conditions of pandas",
        ),
        ({"expect_column_values_to_match_regex": {"column": "a", "regex": "(x"}}, r"'\(x' does not compile"),
        ({"expect_column_values_to_match_regex": {"column": "a", "regex": "(?P<user>.+)@"}}, r"is \(\?<user>…\), not"),
        ({"expect_column_values_to_match_regex_list": {"column": "a", "regex_list": "x"}}, "expected a list, got 'x'"),
        (
            {"expect_column_values_to_match_like_pattern": {"column": "a", "like_pattern": "x"}},
            "is not supported: Great",
        ),
        ({"expect_table_row_count_to_equal": 3}, "expected a mapping of its options, got 3"),
        ({**NOT_NULL, "x": {}}, "expected `expect_…: {options}`"),
        ("expect_column_values_to_be_unique", "expected `expect_…: {options}`"),
    ],
)
def test_an_invalid_expectation_is_refused_by_number_and_name(given: Any, said: str) -> None:
    """Here it is the second of two."""
    with pytest.raises(ValueError, match=f"^expectations: number 2: .*{said}"):
        Expect([NOT_NULL, given])


@pytest.mark.parametrize("regex", [r"^\p{L}+$", "a++", r"\Qa(b\E", "[a-z&&[^b]]", "(?<user>.+)@", r"\(?P<", "[(?P<]"])
def test_a_java_regular_expression_is_accepted(regex: str) -> None:
    """Python could not compile it, or only with another meaning."""
    (rule,) = Expect([{"expect_column_values_to_match_regex": {"column": "a", "regex": regex}}]).rules
    assert rule.options["regex"] == regex


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ('{"name": "x"}', "is not a suite; expected a mapping with a list of `expectations`"),
        ('{"expectation_suite_name": "x", "expectations": []}', "before 1.0"),
        ('{"name": "x", "expectations": [{"expectation_type": "expect_x", "kwargs": {}}]}', "before 1.0"),
        ('{"name": "x", "expectations": [{"type": "expect_x", "kwargs": {}}]}', "number 1: unknown expectation"),
        ('{"name": "x", "expectations": [{"type": "expect_x"}]}', "number 1: expected `type` and `kwargs`"),
    ],
)
def test_an_invalid_suite_is_refused(tmp_path: Path, content: str, said: str) -> None:
    """A suite of Great Expectations before 1.0 is refused with a hint."""
    file = tmp_path / "suite.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=f"^suite: .*{said}"):
        Expect(suite=str(file))


def test_a_missing_suite_is_refused(tmp_path: Path) -> None:
    """The error names its path."""
    with pytest.raises(ValueError, match=r"^suite: .*gone.json cannot be read: No such file"):
        Expect(suite=str(tmp_path / "gone.json"))


def test_a_suite_written_by_great_expectations_is_read(tmp_path: Path) -> None:
    """Its expectations follow the expectations in the definition, and keep their severities."""
    gx.load()
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    suite = ExpectationSuite(
        name="orders",
        expectations=[
            gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=0, mostly=0.9, severity="warning"),
            gxe.ExpectTableRowCountToBeBetween(min_value=1),
        ],
    )
    file = tmp_path / "suite.json"
    file.write_text(json.dumps(suite.to_json_dict()))
    rules = Expect([NOT_NULL], suite=str(file)).rules
    assert [(rule.type, rule.severity, rule.mostly) for rule in rules] == [
        ("expect_column_values_to_not_be_null", "critical", 1.0),
        (BETWEEN, "warning", 0.9),
        ("expect_table_row_count_to_be_between", "critical", 1.0),
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Expect([NOT_NULL]), ""),
        (Expect([{BETWEEN: {"column": "a", "min_value": 1, "mostly": 0.9}}]), "decides about a batch as a whole"),
        (Expect([{"expect_column_values_to_be_unique": {"column": "a"}}]), "decides about a batch as a whole"),
        (Expect([NOT_NULL, {"expect_table_row_count_to_equal": {"value": 3}}]), "decides about a batch as a whole"),
        (Expect([NOT_NULL], when="id > 0"), "counts the rows that are not as expected"),
        (Expect([NOT_NULL], on_error="discard"), "counts the rows that are not as expected"),
        (Expect([NOT_NULL], on_error="keep"), "counts the rows that are not as expected"),
        (
            Expect([{BETWEEN: {"column": "a", "min_value": 1, "severity": "info"}}]),
            "counts the rows that are not as expected",
        ),
    ],
)
def test_only_expectations_about_single_rows_go_straight(given: Expect, why: str) -> None:
    """All others are decided before the delivery, for a reason that is reported."""
    assert given.prepares == why


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_batch_failure": "drop"}, "^on_batch_failure: expected stop, quarantine or report, got 'drop'"),
        ({"tag": ""}, "^tag: expected the name of a column"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], said: str) -> None:
    """The errors name the options."""
    with pytest.raises(ValueError, match=said):
        Expect([NOT_NULL], **options)
    with pytest.raises(ValueError, match=r"^expectations: expected at least one, or a suite$"):
        Expect()


def test_a_suite_is_checked_without_importing_great_expectations() -> None:
    """Great Expectations and PySpark take seconds to import."""
    code = (
        "import sys; from stages.expect import Expect; "
        "Expect([{'expect_column_values_to_be_unique': {'column': 'a'}}]); "
        "print([name for name in ('pyspark', 'great_expectations', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_definition_names_the_place_of_an_invalid_suite(tmp_path: Path) -> None:
    """As `wherry validate` shows it, the error has the stage, the line and the expectation."""
    (tmp_path / "rules.json").write_text('{"name": "x", "expectations": [{"type": "expect_nothing", "kwargs": {}}]}')
    (tmp_path / "orders.yaml").write_text(
        "name: orders\norigin: {generate: {rows: 1}}\nstages:\n"
        "  - expect:\n      suite: rules.json\n"
        f"  - expect:\n      - {BETWEEN}: {{column: a, mostly: 1.5}}\n"
        "destinations: [delta: {path: t}]\n"
    )
    with pytest.raises(DefinitionError) as refused:
        load(tmp_path / "orders.yaml")
    suite, mostly = refused.value.problems
    assert (suite.path, suite.line) == ("stages[0].expect.suite", 5)
    assert "number 1: unknown expectation 'expect_nothing'" in suite.message
    assert (mostly.path, mostly.line) == ("stages[1].expect", 7)
    assert f"number 1: {BETWEEN}: mostly: expected a share from 0 to 1, got 1.5" in mostly.message


def test_cached_answers_stay_in_their_process() -> None:
    """A copy for another process is equal, and has an empty cache."""
    stage = Expect([NOT_NULL])
    stage.answer_cache["a question"] = threading.Lock()
    copied = copy.copy(stage)
    assert copied == stage
    assert copied.answer_cache == {}
