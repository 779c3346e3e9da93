"""The stage `mask` makes values unreadable, and does not show its secret."""

from __future__ import annotations

import hashlib
import hmac
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from stages.conformance import StageConformance, begin, begin_straight
from stages.mask import Mask
from stages.rows import enter_stage, take_clean
from stages.stage import Stage
from tests.stages.checks import KEEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]

SALT = "pfeffer🌶"


class OfEveryKind(StageConformance):
    """Unusual names, numbers and NULLs."""

    schema = "`e mail` string, id int, s struct<x: int>, d decimal(5,2), card string, t timestamp"
    rows: ClassVar[list[tuple[Any, ...]]] = [
        ("a@x.com", 1, (1,), None, "4711-0815", None),
        (None, None, None, None, "0815", None),
        ("", 2, None, None, None, None),
    ]

    def stage(self) -> Stage:
        how: dict[str, Any] = {"E Mail": "hash", "id": "hash", "s": "redact", "d": "erase"}
        return Mask(columns={**how, "card": {"keep_last": 4}, "t": {"truncate": 10}}, salt=SALT)


@pytest.mark.parametrize("check", KEEPS)
def test_every_kind_of_mask_keeps_the_promises_of_a_stage(spark: SparkSession, check: str) -> None:
    """No row is refused."""
    getattr(OfEveryKind(), check)(spark)


MASKED: list[tuple[Any, list[Any], list[Any]]] = [
    ("redact", ["4711", "", None], ["***", "***", None]),
    ("erase", ["4711", None], [None, None]),
    ({"keep_last": 4}, ["4711-0815", "äöü🌶x", "0815", "1", "", None], ["*****0815", "*öü🌶x", "****", "*", "", None]),
    ({"truncate": 3}, ["4711", "ä🌶xy", "471", "", None], ["471", "ä🌶x", "471", "", None]),
]


def test_values_are_masked(spark: SparkSession) -> None:
    """NULL remains NULL, and a value that is too short is hidden."""
    rows = [*zip_longest(range(6), *(values for _, values, _ in MASKED))]
    frame = spark.createDataFrame(rows, "id int, a string, b string, c string, d string")
    stage = Mask(columns=dict(zip("ABCD", (how for how, _, _ in MASKED), strict=True)))
    found = sorted(take_clean(stage.apply(begin_straight(frame))).collect())
    for name, (how, values, masked) in zip("abcd", MASKED, strict=True):
        assert [row[name] for row in found][: len(values)] == masked, how


@pytest.mark.parametrize("salt", [SALT, "y" * 65])
def test_a_hash_equals_the_one_of_other_programs(spark: SparkSession, salt: str) -> None:
    """It is the HMAC-SHA-256 of the text in UTF-8. A number and its digits have the same hash."""

    def expected(value: str) -> str:
        return hmac.new(salt.encode(), value.encode(), hashlib.sha256).hexdigest()

    frame = spark.sql(
        "select 17 as a, '17' as b, 'Zoë' as c, cast(null as string) as d, '' as e, date'2026-01-02' as f"
    )
    rows = Mask(columns=dict.fromkeys("abcdef", "hash"), salt=salt).apply(begin_straight(frame))
    [row] = take_clean(rows).collect()
    assert tuple(row) == (*map(expected, ("17", "17", "Zoë")), None, expected(""), expected("2026-01-02"))


def test_the_salt_is_never_shown(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The stage, Spark's plans and error messages show neither the salt nor values derived from it."""
    from pyspark.errors import PySparkException

    stage = Mask(columns={"v": "hash"}, salt="pfeffer")
    said = repr(stage)
    frame = spark.sql("select 'x' as v, 0 as zero")
    both: list[Any] = [begin_straight(frame), begin(frame)]
    for rows in both:
        masked = stage.apply(enter_stage(rows, "it", 1))
        masked.frame.explain(extended=True)
        for wrong in ("nowhere + 1", "sha2(v, 256) / zero"):
            with pytest.raises(PySparkException) as error:
                masked.select({"w": masked.sql(wrong)}).frame.collect()
            said += str(error.value)
    said += capsys.readouterr().out
    assert "_wherry_inner" in said
    inner = bytes(byte ^ 0x36 for byte in b"pfeffer")
    assert not re.search(f"pfeffer|{inner.hex()}|{inner.hex(' ')}|{re.escape(inner.decode())}", said, re.IGNORECASE)


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (Mask(columns={"emial": "redact"}), "there is no column 'emial'; did you mean 'email'?"),
        (
            Mask(columns={"s": "hash"}, salt="x"),
            "column s is struct<x:int>, not text; redact or erase it, or cast it before",
        ),
        (
            Mask(columns={"b": {"truncate": 1}}),
            "column b is binary, not text; redact or erase it, or cast it before",
        ),
    ],
)
def test_columns_that_cannot_be_masked_are_an_error(spark: SparkSession, stage: Stage, says: str) -> None:
    """The error is raised before a row is read."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        stage.apply(begin_straight(spark.sql("select 'x' as email, named_struct('x', 1) as s, x'00' as b")))
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"columns": {}}, "columns: expected a mapping from columns to ways of masking, got {}"),
        ({"columns": {"a": "redact", "A": "redact"}}, "columns: 'A' is there twice"),
        (
            {"columns": {"a": "hsah"}},
            "columns.a: expected hash, redact, erase, {keep_last: 4} or {truncate: 3}, got 'hsah'; did you mean 'hash'",
        ),
        (
            {"columns": {"a": {"keep": 4}}},
            "columns.a: expected hash, redact, erase, {keep_last: 4} or {truncate: 3}, got 'keep'; did you mean",
        ),
        ({"columns": {"a": {"keep_last": 0}}}, "columns.a.keep_last: expected a whole number of at least 1, got 0"),
        ({"columns": {"a": "hash"}}, "salt: expected a secret to hash a with, such as ${secret:NAME}"),
        ({"columns": {"a": "hash"}, "salt": ""}, "salt: expected a secret to hash a with, such as ${secret:NAME}"),
    ],
)
def test_an_invalid_option_of_mask_is_refused(given: dict[str, Any], says: str) -> None:
    """The message begins with the option."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        Mask(**given)
    assert str(error.value).startswith(says)
