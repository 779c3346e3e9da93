"""What a notebook or a job of Databricks gives to a definition: the values of its widgets, and secrets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runners.model.text import summarise_error


def read_widgets(notebooks: Iterable[Any] | None = None) -> Mapping[str, str] | None:
    """Return the values of the widgets and of the job's parameters, without empty ones.

    Return None outside of a notebook. `notebooks` has the `dbutils` to ask; the default is the one of this notebook.
    """
    dbutils = next(iter(find_in_notebook() if notebooks is None else notebooks), None)
    if dbutils is None:
        return None
    try:
        return {name: str(value) for name, value in dbutils.widgets.getAll().items() if str(value)}
    except Exception:  # noqa: BLE001 -- errors of Databricks have no common type, and a job may have no widgets
        return {}


def read_secret(scope: str, key: str, places: Iterable[Any] | None = None) -> str:
    """Return the secret under a key of a scope. Raise `LookupError` with the reason if there is none.

    `places` has the `dbutils` to ask, of which the first is asked; the default is `find_dbutils`.
    """
    try:
        dbutils = next(iter(find_dbutils() if places is None else places), None)
        found = None if dbutils is None else str(dbutils.secrets.get(scope=scope, key=key))
    except Exception as error:  # errors of Databricks have no common type
        raise LookupError(f"Databricks says: {summarise_error(error)}") from error
    if found is None:
        raise LookupError("Databricks is not available here")
    return found


def find_dbutils() -> Iterator[Any]:
    """Yield every available `dbutils`: that of a notebook, of the cluster, and of the SDK if it is installed."""
    yield from find_in_notebook()
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
    except (ImportError, ValueError):  # the SDK raises ValueError if no user has signed in
        pass


def find_in_notebook() -> Iterator[Any]:
    """Yield the `dbutils` among the names of a notebook."""
    own = getattr(sys.modules.get("__main__"), "dbutils", None)
    if own is None and "IPython" in sys.modules:
        shell = sys.modules["IPython"].get_ipython()
        own = shell.user_ns.get("dbutils") if shell is not None else None
    if own is not None:
        yield own
