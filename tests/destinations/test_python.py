"""Rows given to a Python function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.conformance import DestinationConformance, Row, make_label
from destinations.destination import DestinationError
from destinations.labels import Label
from destinations.python import Python
from origins.batch_rows import FrameRows
from origins.functions import FunctionMissing
from runners.definitions.definition import load
from tests.scenarios.conftest import ORDERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Kept:
    """A user's function that keeps rows in a list."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, rows: DataFrame, label: Label) -> int | None:
        collected = [row.asDict(recursive=True) for row in rows.collect()]
        self.rows += collected
        return len(collected) if len(collected) % 2 else None


@pytest.mark.spark
@pytest.mark.connect
class TestPython(DestinationConformance):
    @pytest.fixture
    def destination(self) -> Python:
        return Python(Kept())

    def content(self, spark: SparkSession, destination: Python) -> Sequence[Row]:
        assert isinstance(destination.function, Kept)
        return destination.function.rows


@pytest.mark.parametrize("said", [-1, "7", 1.5, True, [3]])
def test_a_result_that_is_not_a_number_of_rows_is_an_error(said: Any) -> None:
    """Wherry counts rows only by a whole number of 0 or more."""
    with pytest.raises(DestinationError, match="expected the number of rows that it has written, or nothing"):
        Python(lambda rows, label: said).write(None, FrameRows(None), [make_label()])  # type: ignore[arg-type]


class Mute(Exception):
    """An exception that cannot be shown as text."""

    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Mute(), "raised Mute: a Mute that cannot be shown"),
        (ValueError("\ud800"), r"raised ValueError: \\ud800"),
        (KeyboardInterrupt("enough"), "raised KeyboardInterrupt: enough"),
        (StopIteration("enough"), "raised StopIteration: enough"),
    ],
)
def test_any_exception_of_the_function_becomes_a_destination_error(error: BaseException, says: str) -> None:
    """The error names the batch, even if the exception cannot be shown as text."""

    def write(rows: object, label: Label) -> None:
        raise error

    with pytest.raises(DestinationError, match=f"given batch .*{says}"):
        Python(write).write(None, FrameRows(None), [make_label()])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("load:write", "there is no file"),
        ("json:nothing", "the module 'json' has no 'nothing'"),
        ("json:__doc__", "is not a function; it is a str"),
        ("broken:write", r"its module raises ZeroDivisionError: division by zero"),
        ("leaving:write", r"its module raises SystemExit: 3"),
        ("lacking:write", "its module needs 'no_such_module', which is not installed"),
        ("typing_error:write", "its module raises SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_reported_before_a_row_is_read(
    tmp_path: Path, text: str, told: str
) -> None:
    """The module may be missing, may raise, or may lack the function."""
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)")
    (tmp_path / "lacking.py").write_text("import no_such_module")
    (tmp_path / "typing_error.py").write_text("def write(:")
    with pytest.raises(FunctionMissing, match=told):
        Python(f"{tmp_path}/{text}").open().ensure_place(None, None)  # type: ignore[arg-type]


def test_an_installed_function_is_found(tmp_path: Path) -> None:
    """It is found if no file beside the definition has the module's name."""
    assert Python(f"{tmp_path}/os.path:join").open().ensure_place(None, None).place == "os.path:join"  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["load", "load:", ":write", "load:write()", "a b:c", "load.py:write:x", ""])
def test_text_that_names_no_function_is_refused(text: str) -> None:
    """The error names the expected form."""
    with pytest.raises(ValueError, match="function: expected module:function, got"):
        Python(f"/somewhere/{text}")


def test_a_definition_names_a_function_in_a_file_beside_it(tmp_path: Path) -> None:
    """The destination's name is the function as the definition spells it."""
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS.replace("delta: {path: tables/orders}", "python: {function: 'load:write'}"))
    (destination,) = load(file).pipeline.destinations
    assert (destination.place, destination.name) == ("load:write", "load:write")
    assert isinstance(destination, Python)
    assert destination.function == f"{tmp_path}/load:write"
