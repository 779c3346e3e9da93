"""`python`: a Python function decides about each row."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from origins.functions import (
    check_function,
    list_imported_packages,
    load_function,
    ship_by_value,
    ship_modules,
    shorten_name,
)
from origins.lazy import Column, F, T
from origins.names import HIDDEN
from origins.quantities import check_seconds, parse_seconds
from origins.spark_versions import call_in_workers
from stages.capabilities import WorksInPython
from stages.expressions import check_row_expressions
from stages.python_call import FunctionCall, Takes
from stages.rows import Rows
from stages.stage import Stage

_TYPES: Mapping[Any, str] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    decimal.Decimal: "decimal(38,18)",
    datetime.date: "date",
    datetime.datetime: "timestamp",
}


_WRITTEN = {"DataFrame": "pandas.DataFrame", "Table": "pyarrow.Table"}
"""Hints that cannot be resolved, because their module is imported only for type checkers."""


def find_takes(function: Callable[..., Any], name: str) -> Takes:
    """Return the form in which the function takes rows. Raise ValueError if the form is not supported."""
    given = _get_first_hint(function)
    if is_async(function):
        if given in (None, Any, dict, Mapping) or get_origin(given) in (dict, Mapping) or is_typeddict(given):
            return "row"
        raise ValueError(f"{name} is async, so it must take one row, as a dict, got {_name_hint(given)}")
    if _name_hint(given) == "pandas.DataFrame":
        return "pandas"
    if _name_hint(given) == "pyarrow.Table":
        return "arrow"
    if given in (None, Any, list) or (isinstance(get_origin(given), type) and issubclass(list, get_origin(given))):
        return "dicts"
    raise ValueError(f"{name} takes {_name_hint(given)}; expected list[dict], pandas.DataFrame or pyarrow.Table")


def find_columns(function: Callable[..., Any], name: str) -> Mapping[str, str]:
    """Return the columns that the function returns, with their types; none if its hints do not declare them.

    They are the fields of the TypedDict or dataclass in the return hint, alone or in a list.
    """
    gives = _get_hints(function).get("return")
    inner = get_args(gives)[0] if get_origin(gives) is not None and get_args(gives) else gives
    if not (is_typeddict(inner) or dataclasses.is_dataclass(inner)):
        return {}
    return {column: _hint_to_sql(hint, f"{name}: {column}") for column, hint in get_type_hints(inner).items()}


def is_async(function: Callable[..., Any]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 -- the method that runs when an object is called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _get_first_hint(function: Callable[..., Any]) -> Any:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None:
        return None
    written = first.annotation if isinstance(first.annotation, str) else ""
    return _get_hints(function).get(first.name, _WRITTEN.get(written.rpartition(".")[2]))


def _get_hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    plain = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(plain)
    except (NameError, TypeError):  # a hint only for type checkers
        return {}


def _name_hint(hint: Any) -> str:
    if isinstance(hint, str):
        return hint
    module = getattr(hint, "__module__", "").partition(".")[0]
    name = getattr(hint, "__name__", str(hint))
    return name if module in ("builtins", "") else f"{module}.{name}"


def _hint_to_sql(hint: Any, where: str) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        left = [one for one in get_args(hint) if one is not type(None)]
        hint = left[0] if len(left) == 1 else hint
    if hint in _TYPES:
        return _TYPES[hint]
    inner = get_args(hint)
    if get_origin(hint) is list and inner:
        return f"array<{_hint_to_sql(inner[0], where)}>"
    if get_origin(hint) is dict and len(inner) == 2:
        return f"map<{_hint_to_sql(inner[0], where)},{_hint_to_sql(inner[1], where)}>"
    raise ValueError(f"{where} is {_name_hint(hint)}, which has no type in SQL; set the type in `columns`")


_ANSWER, _ASKED = HIDDEN + "answer", HIDDEN + "asked"
_SENT = ("origins.spark_versions", "stages.bisection", "stages.python_call", "stages.python_worker")
"""The modules that are sent to Spark's workers with the function. The workers need not have Wherry."""


@dataclass(frozen=True, kw_only=True)
class Handler(Stage, WorksInPython):
    """Passes rows to a Python function. For each row it answers: keep, change, discard or refuse.

    Example:
        python:
          function: "enrich:score"
          columns: {score: double}
    """

    asks_outside: ClassVar[bool] = True

    function: str | Callable[..., Any] = field(kw_only=False, metadata={"path": True, "like": "enrich:score"})
    """The function as `module:function`, in a file beside the definition or in an installed module."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The types of columns that the function adds or converts, by name. The default are its type hints."""
    rows: int = 1_000
    """How many rows one call gets at most."""
    timeout: str = field(default="5m", metadata={"like": "30s"})
    """How long one call may take. For an async function it limits one row."""
    concurrency: int = 8
    """How many rows an async function may work on at the same time, in each task of Spark."""

    def __post_init__(self) -> None:
        check_function("function", self.function)
        if self.columns:
            check_row_expressions("columns", self.columns)
        for name in ("rows", "concurrency"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value!r}")
        if not check_seconds("timeout", self.timeout):
            raise ValueError(f"timeout: expected more than 0s, got {self.timeout!r}")

    @property
    def repeatable(self) -> bool:
        """Return False, since a function may answer differently each time."""
        return False

    def list_worker_packages(self) -> set[str]:
        function = load_function(self.function)
        return list_imported_packages(function) | ({"pandas"} if find_takes(function, "") == "pandas" else set())

    def apply(self, rows: Rows) -> Rows:
        leaving = self._list_leaving_columns(rows)
        answer = F.col(_ANSWER)
        rows, asked = self._ask_function(rows, leaving)
        tried = {_ANSWER: asked}
        refused = answer["fate"] == "nack"
        why = F.when(refused, F.struct(answer["code"].alias("code"), answer["message"].alias("message")))
        judged = rows.attempt(tried, why, {_ANSWER: _ANSWER}).filter(answer["fate"] == "go")
        return judged.select({name: answer["values"][name] for name in leaving.names})

    def _ask_function(self, rows: Rows, leaving: T.StructType) -> tuple[Rows, Column]:
        """Return the rows and a column with the answer, which only `attempt` can use."""
        from stages.python_worker import RowAnswerer, make_answer_function

        function, name = load_function(self.function), shorten_name(self.function)
        send()
        ship_by_value(function)
        takes = find_takes(function, name)
        call = FunctionCall(
            function=function, name=name, takes=takes, concurrency=self.concurrency, seconds=parse_seconds(self.timeout)
        )
        answering = RowAnswerer(call=call, schema=leaving.json(), rows=self.rows)
        fields = [T.StructField(each, T.StringType()) for each in ("fate", "code", "message")]
        kind = T.StructType([*fields, T.StructField("values", leaving)])
        whole = F.struct(*[rows.column(each).alias(each) for each in rows.names])
        given = {f"{_ASKED}_live": rows.live, f"{_ASKED}_row": whole}
        frame, asked = call_in_workers(rows.frame, _ASKED, make_answer_function(answering), given, kind)
        return rows.with_frame(frame), asked

    def _list_leaving_columns(self, rows: Rows) -> T.StructType:
        """Return the columns that leave: the incoming columns, and columns that are declared new or of another type."""
        name = shorten_name(self.function)
        types = self.columns or find_columns(load_function(self.function), name)
        given = {rows.spell_name(column): T.DataType.fromDDL(kind) for column, kind in types.items()}
        came = {each.name: each.dataType for each in rows.schema}
        return T.StructType([T.StructField(each, kind) for each, kind in {**came, **given}.items()])


def send() -> None:
    """Send the modules of `_SENT` to Spark's workers by value."""
    ship_modules(sys.modules[name] for name in _SENT)
