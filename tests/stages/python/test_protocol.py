"""The answers of a Python function, and what happens to rows for which it raises, hangs, dies or returns nonsense."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.bisection import AttemptRaised
from stages.python import find_takes
from stages.python_call import (
    Answer,
    ConnectionErrorInFunction,
    FunctionCall,
    FunctionCannotRun,
    discard,
    keep,
    nack,
    read_arrow,
)
from stages.python_worker import RowAnswerer, judge_answers, make_arrow_schema

COLUMNS = {"id": "long", "name": "string", "score": "double"}
LEAVING = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()],
    }
)


def answer_rows(function: Callable[..., Any], rows: int, *, at_once: int = 1000, timeout: float = 20.0) -> list[Any]:
    """Return the result for each of this many rows: the values that leave, or the fate and its reason.

    The rows are `{"id": 0, "name": "n0"}` and so on.
    """
    call = FunctionCall(
        function=function,
        name="f",
        takes=find_takes(function, "f"),
        concurrency=4,
        seconds=timeout,
    )
    answering = RowAnswerer(call=call, schema=LEAVING, rows=at_once)
    ids = pa.array(range(rows), pa.int64())
    names = pa.array([f"n{at}" for at in range(rows)], pa.string())
    came = pa.StructArray.from_arrays([ids, names], names=["id", "name"])
    (told,) = answering.answer_batches(iter([(pa.array([True] * rows, pa.bool_()), came)]))
    return [describe_answer(each) for each in told.to_pylist()]


def describe_answer(answer: dict[str, Any]) -> Any:
    if answer["fate"] == "go":
        return tuple(answer["values"].values())
    return (answer["fate"], answer["code"], answer["message"])


def list_refused(found: Sequence[Any]) -> dict[int, str]:
    """Return the positions of the refused rows with their codes."""
    return {at: each[1] for at, each in enumerate(found) if each[0] == "nack"}


@pytest.mark.promise("HP-14")
def test_a_row_is_kept_changed_discarded_or_refused() -> None:
    """The function returns one answer for each row, in order."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        return [keep, {"score": 0.5}, discard, nack("not this one"), nack("nor this", code="MINE")]

    assert answer_rows(function, 5) == [
        (0, "n0", None),
        (1, "n1", 0.5),
        ("discard", "", ""),
        ("nack", "PYTHON", "not this one"),
        ("nack", "MINE", "nor this"),
    ]


@pytest.mark.promise("HP-14")
def test_a_dataframe_may_be_returned_with_verdicts() -> None:
    """The verdicts decide about the rows that do not continue."""

    def function(rows: pd.DataFrame) -> Any:
        return rows.assign(score=rows["id"] / 2), [None, keep, discard, nack("no")]

    found = answer_rows(function, 4)
    assert found[:3] == [(0, "n0", 0.0), (1, "n1", None), ("discard", "", "")]
    assert found[3][0] == "nack"


def test_a_dataframe_keeps_whole_numbers_and_maps() -> None:
    """Whole numbers beside NULL remain whole, and a map keeps its keys."""
    kinds = {
        "big": "long",
        "pairs": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    }
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    schema = json.dumps({"type": "struct", "fields": fields})
    seen: list[Any] = []

    def function(rows: pd.DataFrame) -> pd.DataFrame:
        seen.extend(rows["pairs"])
        return rows.iloc[::-1]

    came = [{"big": 2**60 + 1, "pairs": [("a", 1)]}, {"big": None, "pairs": [("b", None)]}, {"big": 1, "pairs": None}]
    call = FunctionCall(function=function, name="f", takes="pandas", concurrency=1, seconds=9.0)
    left = judge_answers(call, pa.Table.from_pylist(came, make_arrow_schema(schema)), schema).to_pylist()
    assert seen == [{"a": 1}, {"b": None}, None]
    assert [row["values"] for row in left] == came


@pytest.mark.promise("HP-14")
def test_an_arrow_table_may_be_returned() -> None:
    """Its columns replace the columns of the given rows."""

    def function(rows: pa.Table) -> pa.Table:
        return rows.append_column("score", pa.array([1.0, 2.0]))

    assert answer_rows(function, 2) == [(0, "n0", 1.0), (1, "n1", 2.0)]


def check_balanced(found: Sequence[Any], left_out: set[int], fate: Any) -> None:
    """Check that each row outside `left_out` leaves with the right value, and that each other row has this fate."""
    assert {at: each for at, each in enumerate(found) if at not in left_out} == {
        at: (at, f"n{at}", float(at)) for at in range(len(found)) if at not in left_out
    }
    assert {each[:2] for at, each in enumerate(found) if at in left_out} <= {fate}


some_rows = st.integers(1, 40).flatmap(lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, rows - 1))))
few_calls = settings(max_examples=15, deadline=None)


@pytest.mark.promise("HP-15")
@few_calls
@given(given=some_rows)
def test_a_row_missing_in_a_list_is_refused_alone(given: tuple[int, set[int]]) -> None:
    """No other row gets the wrong answer, for any missing rows. A generator may leave out rows too."""
    rows, left_out = given

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        return [{"score": float(row["id"])} for row in rows if row["id"] not in left_out]

    def generator(rows: list[dict[str, Any]]) -> Iterator[Any]:
        yield from function(rows)

    check_balanced(answer_rows(function, rows), left_out, ("nack", "ANSWER"))
    check_balanced(answer_rows(generator, rows), left_out, ("nack", "ANSWER"))


@pytest.mark.promise("HP-15")
@few_calls
@given(given=some_rows)
def test_a_row_missing_in_a_frame_with_a_fresh_index_is_refused_alone(given: tuple[int, set[int]]) -> None:
    """An Arrow table has no index at all."""
    rows, left_out = given

    def frame(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(score=rows["id"] / 1)[~rows["id"].isin(left_out)].reset_index(drop=True)

    def table(rows: pa.Table) -> pa.Table:
        scored = rows.append_column("score", rows["id"].cast(pa.float64()))
        return scored.filter(pa.array([each not in left_out for each in rows["id"].to_pylist()]))

    check_balanced(answer_rows(frame, rows), left_out, ("nack", "ANSWER"))
    check_balanced(answer_rows(table, rows), left_out, ("nack", "ANSWER"))


@pytest.mark.promise("HP-15")
@few_calls
@given(given=some_rows, seed=st.integers(0, 99))
def test_the_original_index_of_a_frame_names_the_rows_that_stay(given: tuple[int, set[int]], seed: int) -> None:
    """The rows may have any order, and the others are filtered. A Series of answers has such an index too."""
    rows, left_out = given

    def frame(rows: pd.DataFrame) -> pd.DataFrame:
        left = rows.assign(score=rows["id"] / 1)[~rows["id"].isin(left_out)]
        return left.loc[Random(seed).sample(left.index.tolist(), len(left))]

    def series(rows: pd.DataFrame) -> pd.Series:
        return frame(rows).apply(lambda row: {"score": row["score"]}, axis=1)

    check_balanced(answer_rows(frame, rows), left_out, ("discard", ""))
    check_balanced(answer_rows(series, rows), left_out, ("discard", ""))


@pytest.mark.promise("HP-15")
@pytest.mark.parametrize(
    "shorter",
    [
        lambda rows: rows.head(2),
        lambda rows: rows.iloc[[1, 0]],
        lambda rows: rows.drop(index=[2, 3]),
        lambda rows: rows.query("id < 2").copy(),
        lambda rows: rows[rows["id"] < 2].sort_values("id", ascending=False),
        lambda rows: pd.concat([rows[rows["id"] == 1], rows[rows["id"] == 0]]),
        lambda rows: rows.where(rows["id"] < 2).dropna().astype({"id": "int64"}),
        lambda rows: rows.reset_index().set_index("index").loc[[0, 1]],
    ],
)
def test_a_frame_keeps_its_index_through_operations_of_pandas(shorter: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """The first two rows continue, and the others are filtered."""

    def function(rows: pd.DataFrame) -> pd.DataFrame:
        return shorter(rows)

    assert answer_rows(function, 4) == [(0, "n0", None), (1, "n1", None), ("discard", "", ""), ("discard", "", "")]


@pytest.mark.promise("HP-15")
@pytest.mark.parametrize(
    ("strange", "says"),
    [
        (lambda rows: rows.loc[[0, 0]], "its index names a row twice"),
        (lambda rows: rows.set_axis(rows.index + 7), "its index names rows that do not exist"),
        (lambda rows: rows.rename(index=str), "its index names rows that do not exist"),
        (lambda rows: rows.set_index("id"), "neither that of the given rows nor a fresh one"),
        (lambda rows: rows.reset_index(drop=True)[::-1], "neither that of the given rows nor a fresh one"),
        (lambda rows: rows.reset_index(drop=True)[rows["id"].to_numpy() == 1], "expected one for each, or the index"),
        (lambda rows: rows.merge(pd.DataFrame({"id": [1]})), "expected one for each, or the index"),
        (lambda rows: (rows, [nack("one")]), "f returned 1 verdicts for 2 rows; expected one for each"),
        (lambda rows: (rows, "no"), "f returned 'no'; expected a list with one verdict for each row"),
        (lambda rows: rows["id"].reset_index(drop=True)[:1], "expected one for each, or the index"),
        (lambda rows: {keep, discard}, "expected a list with one answer for each row"),
        (lambda rows: rows.assign(ID=1), "f returned the column 'id' twice"),
    ],
)
def test_an_answer_that_fits_no_rows_is_refused(strange: Callable[[pd.DataFrame], Any], says: str) -> None:
    """The message names the reason."""
    rows = pa.table({"id": [0, 1], "name": ["n0", "n1"]})
    call = FunctionCall(function=strange, name="f", takes="pandas", concurrency=1, seconds=9.0)
    with pytest.raises(AttemptRaised) as raised:
        call.call_function(rows)
    assert raised.value.code == "ANSWER"
    assert says in raised.value.message


def test_verdicts_beside_a_frame_are_matched_to_its_rows() -> None:
    """A list follows the order of the frame's rows, and a Series follows its index."""

    def listed(rows: pd.DataFrame) -> Any:
        return rows.loc[[3, 1]], [nack("three"), None]

    def series(rows: pd.DataFrame) -> Any:
        bad = rows[rows["id"].isin([0, 3])]
        return rows[rows["id"] > 0], bad.apply(lambda row: nack(f"no {row['id']}"), axis=1)

    gone = ("discard", "", "")
    assert answer_rows(listed, 4) == [gone, (1, "n1", None), gone, ("nack", "PYTHON", "three")]
    assert answer_rows(series, 4) == [
        ("nack", "PYTHON", "no 0"),
        (1, "n1", None),
        (2, "n2", None),
        ("nack", "PYTHON", "no 3"),
    ]


def test_a_frame_may_have_a_column_named_index() -> None:
    """The frame's index then has another name."""
    rows = pa.table({"index": [5, 6], "_index": [7, 8]})
    call = FunctionCall(function=lambda rows: rows[1:], name="f", takes="pandas", concurrency=1, seconds=9.0)
    assert call.call_function(rows).verdicts == [discard, None]


class Mute(Exception):
    """An exception that cannot be shown as text or pickled."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__

    def __reduce__(self) -> str:
        raise TypeError("not to be pickled")

    @property
    def reason(self) -> None:
        raise ValueError("no reason")


class Number(Exception):
    """An exception whose text is a number."""

    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


def raise_error(error: BaseException) -> Any:
    raise error


LONG = "x" * 3_000_000


@pytest.mark.promise("HP-15")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (lambda: nack("\ud800"), ("PYTHON", "\\ud800")),
        (lambda: nack("no", code="\udfff"), ("\\udfff", "no")),
        (lambda: nack("a\0b"), ("PYTHON", "a\0b")),
        (lambda: nack(LONG), ("PYTHON", LONG)),
        (lambda: nack(None), ("PYTHON", "None")),  # type: ignore[arg-type]
        (lambda: nack(7, code=404), ("404", "7")),  # type: ignore[arg-type]
        (lambda: nack(Mute()), ("PYTHON", "a Mute that cannot be shown")),  # type: ignore[arg-type]
        (lambda: Answer(fate="nack", message=Number()), ("", "a Number that cannot be shown")),  # type: ignore[arg-type]
        (lambda: Mute(), ("ANSWER", "the answer is a Mute; expected a dict, keep, discard or nack(why)")),
        (lambda: {"name": "\ud800"}, ("ANSWER", "name: '\\ud800' is not a string")),
        (lambda: {"\ud800": 1}, ("ANSWER", "the answer has '\\ud800', which is not a column; name new columns in the")),
        (lambda: {Mute(): 1}, ("ANSWER", "f returned an answer that cannot be read: ValueError: no words")),
        (lambda: raise_error(ValueError("\ud800")), ("RAISED", "f raised ValueError: \\ud800")),
        (lambda: raise_error(Mute()), ("RAISED", "f raised Mute: a Mute that cannot be shown")),
        (lambda: raise_error(Number()), ("RAISED", "f raised Number: a Number that cannot be shown")),
        (lambda: raise_error(StopIteration()), ("RAISED", "f raised ")),
        (lambda: raise_error(SystemExit(Mute())), ("RAISED", "f raised SystemExit: a SystemExit that cannot be shown")),
        (lambda: raise_error(KeyboardInterrupt("\ud800")), ("RAISED", "f raised KeyboardInterrupt: \\ud800")),
    ],
)
def test_any_text_or_exception_about_a_row_refuses_only_that_row(
    answer: Callable[[], Any], expected: tuple[str, str]
) -> None:
    """The text is a lone surrogate, no text, too long, or missing. The other rows of the call continue."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        return [answer() if row["id"] == 2 else keep for row in rows]

    async def one(row: dict[str, Any]) -> Any:
        return function([row])[0]

    for found in (answer_rows(function, 5), answer_rows(one, 5)):
        fate, code, message = found.pop(2)
        assert (fate, code, message[: len(expected[1])]) == ("nack", *expected)
        assert found == [(at, f"n{at}", None) for at in (0, 1, 3, 4)]


def test_an_iterator_that_ends_early_leaves_a_row_out() -> None:
    """`map` ends silently if its function raises StopIteration."""

    def function(rows: list[dict[str, Any]]) -> Any:
        def score(row: dict[str, Any]) -> Any:
            return raise_error(StopIteration()) if row["id"] == 1 else {"score": float(row["id"])}

        return map(score, rows)

    check_balanced(answer_rows(function, 4), {1}, ("nack", "ANSWER"))


@pytest.mark.promise("HP-15")
@pytest.mark.parametrize("bad", [set(), {0}, {999}, {3, 4, 700}])
def test_rows_for_which_a_function_raises_are_refused_alone(tmp_path: Path, bad: set[int]) -> None:
    """They have the message of the error, and the number of calls is limited. Each other row succeeds once."""
    calls, went_well = tmp_path / "calls", tmp_path / "well"

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        with calls.open("a") as file:
            file.write("x")
        for row in rows:
            if row["id"] in bad:
                raise ValueError(f"{row['id']} is unlucky")
        with went_well.open("a") as file:
            file.writelines(f"{row['id']}\n" for row in rows)
        return [{"score": 1.0} for _ in rows]

    found = answer_rows(function, 1000)
    assert {at: each for at, each in enumerate(found) if each[0] == "nack"} == {
        at: ("nack", "RAISED", f"f raised ValueError: {at} is unlucky") for at in bad
    }
    assert sorted(map(int, went_well.read_text().split())) == [at for at in range(1000) if at not in bad]
    assert len(calls.read_text()) <= 1 + 2 * len(bad) * math.ceil(math.log2(1000))


@pytest.mark.promise("HP-15")
@pytest.mark.parametrize(
    ("end", "timeout", "says"),
    [
        (lambda: os._exit(3), 60.0, "ended the process of the call (exit code 3)"),
        (lambda: os.kill(os.getpid(), 9), 60.0, "ended the process of the call (signal 9)"),
        (lambda: time.sleep(3600), 0.2, "did not return within 0.2 s"),
    ],
)
def test_a_row_that_ends_or_blocks_the_process_is_refused_alone(
    end: Callable[[], None], timeout: float, says: str
) -> None:
    """The effect is the same as that of an exception."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        for row in rows:
            if row["id"] == 2:
                end()
        return [keep for _ in rows]

    found = answer_rows(function, 4, timeout=timeout)
    assert found[2] == ("nack", "LOST", f"f {says}")
    assert list_refused(found) == {2: "LOST"}


def test_a_function_that_ends_every_process_fails_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cause is the function then, so not every row is tried."""
    monkeypatch.setattr("stages.python_worker.MOST_LOST", 2)

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        os._exit(1)

    with pytest.raises(
        FunctionCannotRun, match="more than 2 of 30 rows fail like this: f ended the process of the call"
    ):
        answer_rows(function, 30)


@pytest.mark.parametrize("code", ["sys.exit(1)", "raise KeyboardInterrupt", "raise MemoryError", "1 / 0"])
def test_any_exception_refuses_the_row(code: str) -> None:
    """A function can end only its call."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        exec(f"import sys\n{code}")  # noqa: S102 -- it is one of the lines above
        return []

    assert list_refused(answer_rows(function, 2)) == {0: "RAISED", 1: "RAISED"}


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "f returned None; expected a list with one answer for each row"),
        ("yes", "f returned 'yes'; expected a list with one answer for each row"),
        ({"score": 1}, "f returned {'score': 1}; expected a list with one answer for each row"),
        (7, "f returned 7; expected a list with one answer for each row"),
        ([keep, keep], "f returned 2 answers for 1 rows; expected one for each"),
        ([None], "the answer is None; expected a dict, keep, discard or nack(why)"),
        ([{"scroe": 1.0}], "the answer has 'scroe', which is not a column; did you mean 'score'?"),
        ([{"score": "high"}], "score: 'high' is not a double"),
        ([{"id": 1.5}], "id: 1.5 is not a int64"),
        ([{"name": 7}], "name: 7 is not a string"),
        ([{"id": 2**70}], f"id: {2**70} is not a int64"),
        ([object], "the answer is <class 'object'>; expected a dict, keep, discard or nack(why)"),
        (pa.table({"scroe": [1.0]}), "the answer has 'scroe', which is not a column; did you mean 'score'?"),
        (pa.table({"id": ["x"]}), "id: 'x' is not a int64"),
        (pa.table({"id": [1, 2]}), "f returned 2 rows for 1; expected one for each"),
    ],
)
def test_an_invalid_answer_refuses_the_row(returned: Any, says: str) -> None:
    """The message names what was expected and what was returned."""

    def function(rows: list[dict[str, Any]]) -> Any:
        return returned

    assert answer_rows(function, 1) == [("nack", "ANSWER", says)]


def test_a_value_that_does_not_fit_refuses_only_its_row() -> None:
    """The other rows of the call continue."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        return [{"score": 1.0}, {"score": "x"}, {"score": 2}]

    assert list_refused(answer_rows(function, 3)) == {1: "ANSWER"}


def answer_numbers(function: Callable[..., Any], kind: Any, rows: int = 1) -> list[Any]:
    """Return the result for each of this many rows, which get a column `number` of this type (Spark's JSON)."""
    field = {"name": "number", "type": kind, "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    takes = find_takes(function, "f")
    call = FunctionCall(function=function, name="f", takes=takes, concurrency=1, seconds=20.0)
    came = pa.StructArray.from_arrays([pa.array(range(rows))], names=["id"])
    answering = RowAnswerer(call=call, schema=schema, rows=rows)
    (found,) = answering.answer_batches(iter([(pa.array([True] * rows), came)]))
    return [describe_answer(each) for each in found.to_pylist()]


def answer_as_list(value: Any) -> Callable[..., Any]:
    """Return a function that answers a row with this value."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        return [{"number": value}]

    return function


def answer_as_frame(value: Any) -> Callable[..., Any]:
    """Return a function that answers a row with a frame that has this value."""

    def function(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"number": pd.Series([value], dtype=object)})

    return function


def nest(kind: str) -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Return types that hold a number of this type, and how a value of each is made from a number."""
    field = {"name": "inner", "type": kind, "nullable": True, "metadata": {}}
    struct = {"type": "struct", "fields": [field]}
    map_ = {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}
    keys = {"type": "map", "keyType": kind, "valueType": "string", "valueContainsNull": True}
    return {
        "plain": (kind, lambda number: number),
        "array": ({"type": "array", "elementType": kind, "containsNull": True}, lambda number: [number]),
        "struct": (struct, lambda number: {"inner": number}),
        "bytes": (struct, lambda number: {b"inner": number}),
        "tuple": (struct, lambda number: (number,)),
        "map": (map_, lambda number: {"a": number}),
        "pairs": (map_, lambda number: [("a", number)]),
        "key": (keys, lambda number: {number: "a"}),
    }


@pytest.mark.parametrize("answer", [answer_as_list, answer_as_frame])
@pytest.mark.parametrize("shape", nest(""))
def test_a_decimal_is_delivered_exactly_or_refuses_the_row(
    shape: str, answer: Callable[[Any], Callable[..., Any]]
) -> None:
    """pyarrow takes some with a large exponent for other numbers, and crashes at others.

    A zero with such an exponent is the product of numbers with many decimals, for example.
    """
    kind, make = nest("decimal(10,2)")[shape]
    for number in ("98040789e-70", "1e-39", "1e39", "1e999999999"):
        ((fate, code, message),) = answer_numbers(answer(make(Decimal(number))), kind)
        assert (fate, code) == ("nack", "ANSWER"), number
        assert re.search(r"^number: .*Decimal.* is not a ", message)
    for number, read in (
        ("1.5000", "1.50"),
        *((zero, "0.00") for zero in ("0E-54", "-0e-39", "0e-999999999", "0e9999")),
    ):
        (found,) = answer_numbers(answer(make(Decimal(number))), kind)
        assert f"Decimal('{read}')" in str(found), number


class Indexed:
    """A whole number that only `__index__` shows."""

    def __index__(self) -> int:
        return 7


class Counted:
    """A whole number that only `__int__` shows."""

    def __int__(self) -> int:
        return 7


WHOLE: list[tuple[Any, Any]] = [
    (pa.scalar(7), 7), (pa.scalar(None, pa.int64()), None), (Indexed(), 7), (Counted(), 7), (np.float32(7), 7),
    (np.array(7), 7), (Decimal("1E+3"), 1000), (Decimal("0E-54"), 0), (Decimal("2.00"), 2),
]  # fmt: skip
BROKEN = [
    Decimal("1.5"),
    Decimal("1e999999999"),
    "%9000000000000d",
    7.5,
    np.float32(7.5),
    np.array(7.5),
    Fraction(15, 2),
]


@pytest.mark.parametrize("answer", [answer_as_list, answer_as_frame])
def test_a_whole_number_of_any_type_is_delivered_and_no_other_value(
    answer: Callable[[Any], Callable[..., Any]],
) -> None:
    """Only a number that may have a fraction is checked. Text is not used as a format."""
    for number, whole in WHOLE:
        assert answer_numbers(answer(number), "long") == [(whole,)], number
    for number in BROKEN:
        refused = ("nack", "ANSWER", f"number: {number!r} is not a int64")
        assert answer_numbers(answer(number), "long") == [refused]


@pytest.mark.parametrize("kind", ["long", "timestamp", "date", nest("long")["array"][0]])
def test_a_decimal_with_a_large_exponent_refuses_the_row_in_a_column_of_another_type(kind: Any) -> None:
    """It would become 0, or block the call."""
    for number in map(Decimal, ("98040789e-70", "1e999999999")):
        value = number if isinstance(kind, str) else [number]
        ((fate, code, message),) = answer_numbers(answer_as_list(value), kind)
        assert (fate, code, message.startswith(f"number: {value!r} is not a ")) == ("nack", "ANSWER", True)


def answer_as_arrow(array: pa.Array) -> Callable[..., Any]:
    """Return a function that answers the rows with this array."""

    def function(rows: pa.Table) -> pa.Table:
        return pa.table({"number": array})

    return function


def answer_as_series(values: Sequence[Any], dtype: Any) -> Callable[..., Any]:
    """Return a function that answers the rows with a series of this dtype."""

    def function(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"number": pd.Series(values, dtype=dtype)})

    return function


@pytest.mark.parametrize("number", ["98040789e-70", f"{Decimal('98040789e-70'):f}"])
def test_arrow_text_with_a_large_exponent_refuses_the_row(number: str) -> None:
    """Other text of a number is converted to a decimal."""
    refused = ("nack", "ANSWER", f"number: '{number}' is not a decimal128(10, 2)")
    assert answer_numbers(answer_as_arrow(pa.array([number])), "decimal(10,2)") == [refused]
    for text, found in {"1.5": "1.50", "0e-999999999": "0.00"}.items():
        assert answer_numbers(answer_as_arrow(pa.array([text])), "decimal(10,2)") == [(Decimal(found),)]


@pytest.mark.parametrize(
    ("shape", "make"),
    [
        ("plain", lambda text: pa.array([text]).dictionary_encode()),
        ("plain", lambda text: pa.array([text], pa.string_view())),
        ("plain", lambda text: pa.array([text], pa.binary())),
        ("array", lambda text: pa.array([[text]])),
        ("struct", lambda text: pa.array([{"inner": text}])),
        ("map", lambda text: pa.array([[("a", text)]], pa.map_(pa.string(), pa.string()))),
        ("key", lambda text: pa.array([[(text, "a")]], pa.map_(pa.string(), pa.string()))),
    ],
)
def test_other_arrow_text_for_a_decimal_refuses_the_row(shape: str, make: Callable[[str], pa.Array]) -> None:
    """Only a plain column of text is converted."""
    for number in ("98040789e-70", "0e-999999999"):
        ((fate, code, message),) = answer_numbers(answer_as_arrow(make(number)), nest("decimal(10,2)")[shape][0])
        assert (fate, code, number in message) == ("nack", "ANSWER", True)


def test_an_arrow_struct_may_hold_text_beside_a_decimal() -> None:
    """Its decimals may be made from other numbers."""
    kinds = {"name": "string", "price": "decimal(10,2)"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    array = pa.array([{"price": 1.5, "name": "a"}])
    found = answer_numbers(answer_as_arrow(array), {"type": "struct", "fields": fields})
    assert found == [({"name": "a", "price": Decimal("1.50")},)]


@pytest.mark.parametrize(
    ("dtype", "make"),
    [("string[pyarrow]", str), (pd.ArrowDtype(pa.string()), str), ("category", Decimal)],
)
def test_a_series_of_any_dtype_is_checked(dtype: Any, make: Callable[[str], Any]) -> None:
    """Its good values are delivered, beside a bad one too."""
    bad = make("98040789e-70")
    series = [bad, make("1.5"), None, make("0e-999999999")]
    refused = ("nack", "ANSWER", f"number: {bad!r} is not a decimal128(10, 2)")
    expected = [refused, (Decimal("1.50"),), (None,), (Decimal("0.00"),)]
    assert answer_numbers(answer_as_series(series, dtype), "decimal(10,2)", rows=4) == expected


@pytest.mark.parametrize("kind", ["long", "decimal(10,2)", "double"])
@pytest.mark.parametrize(
    "function", [answer_as_arrow(pa.array(["x", "2", None])), answer_as_series(["x", "2", None], "string[pyarrow]")]
)
def test_a_text_that_is_no_number_refuses_only_its_row(function: Callable[..., Any], kind: str) -> None:
    """The texts beside it are converted."""
    refused, *others = answer_numbers(function, kind, rows=3)
    assert refused[:2] == ("nack", "ANSWER")
    assert others == [(2,), (None,)]


def test_whole_numbers_of_arrow_become_small_decimals() -> None:
    """Arrow alone would refuse them for their type."""
    found = answer_numbers(answer_as_arrow(pa.array([1, 10**9])), "decimal(10,2)", rows=2)
    assert found == [(Decimal(1),), ("nack", "ANSWER", "number: 1000000000 is not a decimal128(10, 2)")]


def test_a_generator_may_answer() -> None:
    """An exception in the generator counts as one of the function."""

    def function(rows: list[dict[str, Any]]) -> Iterator[Any]:
        for row in rows:
            yield {"score": 1 / (row["id"] - 1)}

    assert answer_rows(function, 3) == [
        (0, "n0", -1.0),
        ("nack", "RAISED", "f raised ZeroDivisionError: division by zero"),
        (2, "n2", 1.0),
    ]


def test_a_function_that_changes_its_input_changes_nothing_else() -> None:
    """A kept row continues unchanged, and a row for which the function raises is tried again unchanged."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        for row in rows:
            row["name"] = row["name"] + "!"
        if len(rows) > 1:
            raise ValueError("together")
        return [keep if rows[0]["id"] else rows[0]]

    assert answer_rows(function, 2) == [(0, "n0!", None), (1, "n1", None)]


def test_output_that_a_function_prints_does_no_harm(capfd: pytest.CaptureFixture[str]) -> None:
    """It goes to the output of Spark's workers."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        os.write(1, b"hello " * 10)
        return [keep for _ in rows]

    assert answer_rows(function, 1) == [(0, "n0", None)]
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModuleNotFoundError("No module named 'shop'"), FunctionCannotRun),
        (ConnectionRefusedError("nobody listens"), ConnectionErrorInFunction),
        (OSError("wrapped"), None),
    ],
)
def test_an_error_that_no_row_causes_fails_the_batch(error: Exception, kind: type[Exception] | None) -> None:
    """A missing package needs a user, and a server that is down is tried again. Neither fills the DLQ."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        raise error

    if kind is None:
        assert list_refused(answer_rows(function, 1)) == {0: "RAISED"}
    else:
        with pytest.raises(kind, match=str(error)):
            answer_rows(function, 1)


def test_a_function_gets_a_limited_number_of_rows_at_a_time() -> None:
    """The last call gets the rest of the rows."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        return [{"score": float(len(rows))} for _ in rows]

    assert [row[2] for row in answer_rows(function, 5, at_once=2)] == [2.0, 2.0, 2.0, 2.0, 1.0]


def test_a_row_that_is_gone_is_not_given_to_the_function() -> None:
    """Its answer is NULL."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        return [{"score": float(row["id"])} for row in rows]

    call = FunctionCall(function=function, name="f", takes="dicts", concurrency=1, seconds=9.0)
    came = pa.array([{"id": at, "name": "n"} for at in range(4)])
    live = pa.array([False, True, False, True])
    (told,) = RowAnswerer(call=call, schema=LEAVING, rows=10).answer_batches(iter([(live, came)]))
    assert [each and each["values"]["score"] for each in told.to_pylist()] == [None, 1.0, None, 3.0]


def test_no_rows_make_no_call() -> None:
    """The function is not called, and no process is started."""

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        raise ConnectionError("asked")

    assert answer_rows(function, 0) == []


def test_the_function_in_the_documentation_works() -> None:
    """It gives the answers that the page describes."""
    text = (Path(__file__).parents[3] / "stages/docs/python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (block,) = [each for each in blocks if "def score" in each]
    shown: dict[str, Any] = {}
    exec(block, shown)  # noqa: S102  (it is our own page)
    takes = find_takes(shown["score"], "score")
    call = FunctionCall(function=shown["score"], name="score", takes=takes, concurrency=1, seconds=9.0)
    kinds = {"email": "string", "test": "boolean", "score": "double"}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in kinds.items()]
    rows = [{"email": None, "test": False}, {"email": "a@b.c", "test": True}, {"email": "a@b.c", "test": False}]
    left = judge_answers(call, pa.Table.from_pylist(rows), json.dumps({"type": "struct", "fields": fields})).to_pylist()
    assert [(each["fate"], each["message"]) for each in left] == [
        ("nack", "nobody to write to"),
        ("discard", ""),
        ("go", None),
    ]
    assert left[2]["values"]["score"] == 0.5


@pytest.mark.parametrize("version", ["19.0.1", pa.__version__])
def test_maps_are_dicts_in_every_pyarrow(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """pyarrow before 20 gives them as pairs, at any depth."""
    monkeypatch.setattr(pa, "__version__", version)
    inside = pa.struct([("m", pa.map_(pa.string(), pa.int64()))])
    kinds = pa.schema([("m", pa.map_(pa.string(), inside)), ("l", pa.list_(inside)), ("n", pa.int64())])
    rows = [{"m": {"a": {"m": {"x": 1}}}, "l": [{"m": {}}, None], "n": 1}, {"m": None, "l": None, "n": None}]
    pairs = [{"m": [("a", {"m": [("x", 1)]})], "l": [{"m": []}, None], "n": 1}, rows[1]]
    assert read_arrow(pa.Table.from_pylist(pairs, kinds)) == rows
