"""The stage `flatten` turns fields of structs into columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from stages.columns import Flatten
from stages.conformance import StageConformance, begin_straight
from stages.rows import take_clean
from stages.stage import Stage
from tests.stages.checks import KEEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]

NESTED = "id int, s struct<`a.b`: int, `c d`: struct<x: string, `ä`: array<struct<y: int>>>>, m map<string, int>, z int"


class Nested(StageConformance):
    """Nested structs with unusual names, other columns, and NULL on every level."""

    schema = NESTED
    rows: ClassVar[list[tuple[Any, ...]]] = [
        (1, (2, ("x", [(3,)])), {"k": 4}, 5),
        (2, (None, None), None, None),
        (3, None, {}, 6),
    ]

    def stage(self) -> Stage:
        return Flatten()


@pytest.mark.parametrize("check", KEEPS)
def test_the_stage_keeps_its_promises(spark: SparkSession, check: str) -> None:
    """No row is refused."""
    getattr(Nested(), check)(spark)


@pytest.mark.parametrize(
    ("stage", "row"),
    [
        (
            Flatten(),
            {"id": 1, "s_a.b": 2, "s_c d_x": "x", "s_c d_ä": [{"y": 3}], "m": {"k": 4}, "z": 5},
        ),
        (
            Flatten(columns=["S"], separator=".", depth=1),
            {"id": 1, "s.a.b": 2, "s.c d": {"x": "x", "ä": [{"y": 3}]}, "m": {"k": 4}, "z": 5},
        ),
        (
            Flatten(depth=2, separator=""),
            {"id": 1, "sa.b": 2, "sc dx": "x", "sc dä": [{"y": 3}], "m": {"k": 4}, "z": 5},
        ),
    ],
)
def test_fields_take_the_place_of_their_struct(spark: SparkSession, stage: Stage, row: dict[str, Any]) -> None:
    """They keep their order. Arrays and maps remain, and so do structs inside them."""
    frame = spark.createDataFrame([(1, (2, ("x", [(3,)])), {"k": 4}, 5)], NESTED)
    rows = stage.apply(begin_straight(frame))
    [found] = take_clean(rows).collect()
    assert found.asDict(recursive=True) == row
    assert list(rows.names) == list(row)


def test_a_struct_without_fields_remains(spark: SparkSession) -> None:
    """No column is lost."""
    frame = spark.sql("select from_json('{}', 'e struct<>').e as e, 1 as x")
    rows = Flatten().apply(begin_straight(frame))
    assert rows.names == ("e", "x")


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (Flatten(), "there would be two columns called S_A; rename one of them before, or choose another separator"),
        (Flatten(columns=["t"]), "there is no column 't'; there are: S_A, s, x"),
        (Flatten(columns=["x"]), "column x is int, not a struct"),
    ],
)
def test_columns_that_cannot_be_flattened_are_an_error(spark: SparkSession, stage: Stage, says: str) -> None:
    """The error is raised before a row is read."""
    frame = spark.sql("select 1 as `S_A`, named_struct('a', 2) as s, 3 as x")
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        stage.apply(begin_straight(frame))
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"columns": "s"}, "columns: expected a list of names, got 's'"),
        ({"columns": ["s", "S"]}, "columns: 'S' is there twice"),
        ({"separator": None}, "separator: expected text, got None"),
        ({"depth": 0}, "depth: expected at least 1, got 0"),
        ({"depth": "2"}, "depth: expected a whole number, got '2'"),
    ],
)
def test_an_invalid_option_of_flatten_is_refused(given: dict[str, Any], says: str) -> None:
    """The message begins with the option."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        Flatten(**given)
    assert str(error.value).startswith(says)
