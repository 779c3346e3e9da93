"""Refuse what a Connect client has and Databricks serverless does not have, so that no test relies on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def lack_what_serverless_lacks() -> None:
    """Refuse persisted frames, relative paths and added JARs in this process.

    Every Connect session already refuses `sparkContext` and changes to the settings with which Spark was started.
    """
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.connect.session import SparkSession

    for name in ("persist", "cache", "checkpoint", "localCheckpoint"):
        setattr(DataFrame, name, _make_refusal(f"a frame is kept with {name}"))
    for name in ("addArtifact", "addArtifacts"):
        setattr(SparkSession, name, _make_refusal(f"something is brought with {name}"))
    for kind, name in ((DataFrameReader, "load"), (DataFrameWriter, "save")):
        setattr(kind, name, _check_absolute(getattr(kind, name)))


def _make_refusal(what: str) -> Callable[..., None]:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError(f"{what}, which serverless does not have")

    return refused


def _check_absolute(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def checked(self: object, path: Any = None, *others: Any, **options: Any) -> Any:
        for each in [path] if isinstance(path, str) else path or []:
            if not each.startswith("/") and ":/" not in each:
                raise AssertionError(f"the path {each} is relative, and serverless has no folder of its own")
        return method(self, path, *others, **options)

    return checked
