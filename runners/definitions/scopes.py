"""Secrets of a Databricks scope, asked for through the `dbutils` of the notebook, the job or the SDK that we run in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

AskScope: TypeAlias = Callable[[str, str], str]
"""The secret under a key of a scope. Raises `LookupError` that says why there is none."""


def ask_databricks(scope: str, key: str) -> str:
    """The secret under a key of a scope. Raises `LookupError` that says why there is none."""
    from runners.session import in_short

    dbutils = next(_found(), None)
    if dbutils is None:
        raise LookupError("there is no Databricks here to ask for it")
    try:
        return str(dbutils.secrets.get(scope=scope, key=key))
    except Exception as error:  # whatever Databricks raises, it has no common type
        raise LookupError(f"Databricks says: {in_short(error)}") from error


def _found() -> Iterator[Any]:
    """Every `dbutils` that there is: a notebook's own, the cluster's, and that of the SDK where it is installed."""
    own = getattr(sys.modules.get("__main__"), "dbutils", None)
    if own is not None:
        yield own
    try:
        from pyspark.dbutils import DBUtils  # type: ignore[import-not-found,unused-ignore]
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        if spark is not None:
            yield DBUtils(spark)
    except ImportError:
        pass
    try:
        from databricks.sdk.runtime import dbutils  # type: ignore[import-not-found,unused-ignore]

        yield dbutils
    except (ImportError, ValueError):  # the SDK says by ValueError that nobody has signed in
        pass
