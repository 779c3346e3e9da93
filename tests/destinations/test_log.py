"""Rows as lines of a log."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from destinations.conformance import DestinationConformance, make_label
from destinations.log import Log
from origins.batch_rows import FrameRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class TestLog(DestinationConformance):
    @pytest.fixture
    def destination(self) -> Log:
        return Log()


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The rows' logger at level DEBUG, captured."""
    caplog.set_level(logging.DEBUG, "wherry.rows")
    return caplog


def test_a_row_is_a_line_of_json(spark: SparkSession, heard: pytest.LogCaptureFixture) -> None:
    """Line breaks and control characters in a value do not break the line, and NULL is written."""
    row = {"text": 'a\nb\r"\u2028\0', "n": 1, "nothing": None, "nested": {"x.y": [1, None]}}
    schema = "text string, n int, nothing string, nested struct<`x.y`: array<int>>"
    Log().write(spark, FrameRows(spark.createDataFrame([tuple(row.values())], schema)), [make_label()])
    (line,) = heard.messages
    assert len(line.split("\n")) == 1
    assert json.loads(line) == row


@pytest.mark.promise("DQ-12")
@pytest.mark.parametrize("level", ["debug", "error"])
def test_rows_are_logged_at_the_level_of_the_definition(
    spark: SparkSession, heard: pytest.LogCaptureFixture, level: Any
) -> None:
    """A definition can log nacked rows at any level."""
    Log(level=level).write(spark, FrameRows(spark.range(1)), [make_label()])
    assert [(name, logging.getLevelName(number).lower()) for name, number, _ in heard.record_tuples] == [
        ("wherry.rows", level)
    ]


def test_rows_beyond_the_limit_are_counted_and_not_logged(spark: SparkSession, heard: pytest.LogCaptureFixture) -> None:
    """After the limit, the log reports how many more rows there were, and the count is exact."""
    written = Log(limit=2).write(spark, FrameRows(spark.range(7)), [make_label(number=412, lane="3")])
    assert written.rows == 7
    assert len(heard.messages) == 3
    assert heard.messages[2] == "5 more rows of batch 412 of lane 3 are not logged"


def test_as_many_rows_as_the_limit_are_all_logged(spark: SparkSession, heard: pytest.LogCaptureFixture) -> None:
    """No line reports further rows."""
    assert Log(limit=2).write(spark, FrameRows(spark.range(2)), [make_label()]).rows == 2
    assert sorted(heard.messages) == ['{"id":0}', '{"id":1}']


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "loud"}, "level: expected debug, info, warning, error, got 'loud'"),
        ({"limit": -1}, "limit: expected 0 or more rows, got -1"),
    ],
)
def test_an_invalid_option_is_named(options: dict[str, Any], message: str) -> None:
    """The error names the option, the expected values and the given value."""
    with pytest.raises(ValueError, match=message):
        Log(**options)
