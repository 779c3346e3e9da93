"""How type hints describe the rows that a function takes and returns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Optional, TypedDict

import pandas as pd
import pyarrow as pa
import pytest

from stages.python import find_columns, find_takes


class Scored(TypedDict):
    score: float
    tags: list[str]
    at: Optional[dt.datetime]  # noqa: UP045 -- people write it so
    amounts: dict[str, Decimal]
    day: dt.date | None


@dataclass
class Row:
    id: int
    fine: bool


class Odd(TypedDict):
    what: object


def plain(rows): ...  # type: ignore[no-untyped-def]
def dicts(rows: list[dict[str, Any]]) -> list[Scored]: ...  # type: ignore[empty-body]
def sequence(rows: Sequence[Mapping[str, Any]]) -> list[Row]: ...  # type: ignore[empty-body]
def frame(rows: pd.DataFrame) -> pd.DataFrame: ...
def for_readers(rows: polars_like.DataFrame) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def table(rows: pa.Table) -> pa.Table: ...
async def one(row: dict[str, Any]) -> Row: ...  # type: ignore[empty-body]
def text(rows: str) -> str: ...  # type: ignore[empty-body]
async def many(rows: pd.DataFrame) -> pd.DataFrame: ...
def odd(rows: list[dict[str, Any]]) -> list[Odd]: ...  # type: ignore[empty-body]


class Model:
    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows


@pytest.mark.promise("HP-14")
@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (plain, "dicts"), (dicts, "dicts"), (sequence, "dicts"), (frame, "pandas"), (table, "arrow"), (one, "row"),
        (Model(), "pandas"), (len, "dicts"), (for_readers, "pandas"),
    ],
)  # fmt: skip
def test_the_first_hint_sets_the_form_of_the_rows(function: Callable[..., Any], takes: str) -> None:
    """Without a hint it is a list of dicts. An async function gets one row."""
    assert find_takes(function, "f") == takes


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (text, "f takes str; expected list[dict], pandas.DataFrame or pyarrow.Table"),
        (many, "f is async, so it must take one row, as a dict, got pandas.DataFrame"),
    ],
)
def test_a_hint_of_another_type_is_an_error(function: Callable[..., Any], says: str) -> None:
    """The error is raised before a row is read."""
    with pytest.raises(ValueError, match=says.replace("[", r"\[")):
        find_takes(function, "f")


def test_the_return_hint_names_the_columns() -> None:
    """They are the fields of a TypedDict or a dataclass, with SQL types."""
    assert find_columns(dicts, "f") == {
        "score": "double",
        "tags": "array<string>",
        "at": "timestamp",
        "amounts": "map<string,decimal(38,18)>",
        "day": "date",
    }
    assert find_columns(sequence, "f") == find_columns(one, "f") == {"id": "bigint", "fine": "boolean"}
    assert find_columns(frame, "f") == find_columns(plain, "f") == {}


def test_a_field_without_an_sql_type_is_an_error() -> None:
    """The type must be declared in `columns`."""
    with pytest.raises(ValueError, match="f: what is object, which has no type in SQL; set the type in `columns`"):
        find_columns(odd, "f")
