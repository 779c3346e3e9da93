"""What a Connect client has and Databricks serverless has not is refused here, so that no test leans on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def lack_what_serverless_lacks() -> None:
    """From now on, in this process, no frame is kept, no path is relative and no JAR is brought.

    That there is no `sparkContext`, and that no setting can be changed with which Spark was started, is refused by any
    Connect session.
    """
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.connect.session import SparkSession

    for name in ("persist", "cache", "checkpoint", "localCheckpoint"):
        setattr(DataFrame, name, _refused(f"a frame is kept with {name}"))
    for name in ("addArtifact", "addArtifacts"):
        setattr(SparkSession, name, _refused(f"something is brought with {name}"))
    for kind, name in ((DataFrameReader, "load"), (DataFrameWriter, "save")):
        setattr(kind, name, _absolute(getattr(kind, name)))


def _refused(what: str) -> Callable[..., None]:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError(f"{what}, which serverless does not have")

    return refused


def _absolute(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def checked(self: object, path: Any = None, *others: Any, **options: Any) -> Any:
        for each in [path] if isinstance(path, str) else path or []:
            if not each.startswith("/") and ":/" not in each:
                raise AssertionError(f"the path {each} is relative, and serverless has no folder of its own")
        return method(self, path, *others, **options)

    return checked
