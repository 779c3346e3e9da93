"""Imports at first use, so that a command starts quickly and shows its help without Spark.

They are the names that a package exports, and parts of pyspark, py4j, pyarrow and deltalake. The classes of pyspark
are for annotations only.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

__all__ = [
    "Column",
    "DataFrame",
    "F",
    "Row",
    "SparkSession",
    "T",
    "delta_errors",
    "deltalake",
    "export_late",
    "load_export",
    "pa",
    "pc",
    "pq",
    "py4j_errors",
    "pyspark",
    "spark_errors",
]


class LazyModule:
    """A module that is imported at the first use of one of its names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyModule, (self._name,)

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import deltalake
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import pyspark
    from deltalake import exceptions as delta_errors
    from py4j import protocol as py4j_errors
    from pyspark import errors as spark_errors
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
else:
    Column = DataFrame = Row = SparkSession = None  # for annotations, which are not evaluated
    F, T = LazyModule("pyspark.sql.functions"), LazyModule("pyspark.sql.types")
    pyspark, spark_errors = LazyModule("pyspark"), LazyModule("pyspark.errors")
    py4j_errors = LazyModule("py4j.protocol")
    deltalake, delta_errors = LazyModule("deltalake"), LazyModule("deltalake.exceptions")
    pa, pc, pq = LazyModule("pyarrow"), LazyModule("pyarrow.compute"), LazyModule("pyarrow.parquet")


def export_late(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that imports a name of its `__all__` at the first use."""
    module = sys.modules[package]
    return functools.partial(load_export, package), lambda: sorted({*vars(module), *module.__all__})


def load_export(package: str, name: str) -> Any:
    """Return a name of the package's `__all__`, for its `__getattr__`.

    The name comes from the module from which the package imports it for type checkers. Raise `AttributeError` if the
    package does not export it.
    """
    module = sys.modules[package]
    if name not in module.__all__:
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
    value = getattr(importlib.import_module(_find_modules(package)[name]), name)
    setattr(module, name, value)
    return value


@functools.cache
def _find_modules(package: str) -> Mapping[str, str]:
    tree = ast.parse(inspect.getsource(sys.modules[package]))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
