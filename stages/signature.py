"""What a Python function takes and gives, as its type hints say it."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from stages.calling import Takes

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
"""Hints that cannot be looked up, because their module is imported for readers only."""


def takes_of(function: Callable[..., Any], name: str) -> Takes:
    """In what the function takes rows. Raises ValueError for one that takes them in nothing that there is."""
    given = _given(function)
    if is_async(function):
        if given in (None, Any, dict, Mapping) or get_origin(given) in (dict, Mapping) or is_typeddict(given):
            return "row"
        raise ValueError(f"{name} is async, so it takes one row, as a dict, and not {_named(given)}")
    if _named(given) == "pandas.DataFrame":
        return "pandas"
    if _named(given) == "pyarrow.Table":
        return "arrow"
    if given in (None, Any, list) or (isinstance(get_origin(given), type) and issubclass(list, get_origin(given))):
        return "dicts"
    raise ValueError(f"{name} takes {_named(given)}; expected list[dict], pandas.DataFrame or pyarrow.Table")


def columns_of(function: Callable[..., Any], name: str) -> Mapping[str, str]:
    """The columns that the function gives, with their types: the fields of the TypedDict or the dataclass that it says
    to return, or a list of; none where it says nothing of the kind."""
    gives = _hints(function).get("return")
    inner = get_args(gives)[0] if get_origin(gives) is not None and get_args(gives) else gives
    if not (is_typeddict(inner) or dataclasses.is_dataclass(inner)):
        return {}
    return {column: _sql(hint, f"{name}: {column}") for column, hint in get_type_hints(inner).items()}


def is_async(function: Callable[..., Any]) -> bool:
    """Whether it is an `async def`."""
    called = getattr(function, "__call__", None)  # noqa: B004 -- what an object does when it is called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _given(function: Callable[..., Any]) -> Any:
    """The hint of the first parameter; None if it has none."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None:
        return None
    written = first.annotation if isinstance(first.annotation, str) else ""
    return _hints(function).get(first.name, _WRITTEN.get(written.rpartition(".")[2]))


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    plain = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return get_type_hints(plain)
    except (NameError, TypeError):  # a hint that is for readers only
        return {}


def _named(hint: Any) -> str:
    if isinstance(hint, str):
        return hint
    module = getattr(hint, "__module__", "").partition(".")[0]
    name = getattr(hint, "__name__", str(hint))
    return name if module in ("builtins", "") else f"{module}.{name}"


def _sql(hint: Any, where: str) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        left = [one for one in get_args(hint) if one is not type(None)]
        hint = left[0] if len(left) == 1 else hint
    if hint in _TYPES:
        return _TYPES[hint]
    inner = get_args(hint)
    if get_origin(hint) is list and inner:
        return f"array<{_sql(inner[0], where)}>"
    if get_origin(hint) is dict and len(inner) == 2:
        return f"map<{_sql(inner[0], where)},{_sql(inner[1], where)}>"
    raise ValueError(f"{where} is {_named(hint)}, for which there is no type in SQL; say it in columns")
