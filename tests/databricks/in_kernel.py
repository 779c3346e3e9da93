"""Make a new IPython kernel what a notebook of Databricks is. This file is run in the kernel, where it stands alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class PythonRestarted(Exception):
    """The cell has asked for a new Python."""


class NotebookExited(Exception):
    """The notebook has ended with a value."""


class Widgets:
    """The parameters of the job. A widget that the notebook has not made does not exist."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given, self._made = given, dict[str, str]()

    def text(self, name: str, defaultValue: str, label: str | None = None) -> None:  # noqa: N803  (as it is there)
        self._made[name] = self._given.get(name, defaultValue)

    def get(self, name: str) -> str:
        if name not in self._made and name not in self._given:
            raise RuntimeError(f"InputWidgetNotDefined: No input widget named {name} is defined")
        return self._made.get(name, self._given.get(name, ""))

    def getAll(self) -> dict[str, str]:  # noqa: N802  (as it is there)
        return {**self._given, **self._made}


class Secrets:
    """The secrets of a workspace, by scope and key."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def get(self, scope: str, key: str) -> str:
        if f"{scope}/{key}" not in self._given:
            raise RuntimeError(f"Secret does not exist with scope: {scope} and key: {key}")
        return self._given[f"{scope}/{key}"]


class Notebook:
    def exit(self, value: str) -> None:
        raise NotebookExited(value)


class Library:
    def restartPython(self) -> None:  # noqa: N802  (as it is there)
        raise PythonRestarted


class Files:
    def ls(self, path: str) -> list[str]:
        return sorted(str(each) for each in Path(path).iterdir())


class Dbutils:
    """What a program may use of `dbutils`. Everything else is an error."""

    def __init__(self, widgets: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        self.widgets, self.secrets = Widgets(widgets), Secrets(secrets)
        self.notebook, self.library, self.fs = Notebook(), Library(), Files()


def break_clones(how: str, address: str) -> None:
    """Let this process's Spark Connect client make another session as a client of Databricks does.

    `missing` and `broken` are the clones of many versions. `new` has a broken clone, but new sessions. `works` changes
    nothing.
    """
    from pyspark.sql.connect.session import SparkSession

    def clone_session(self: Any, new_session_id: str | None = None) -> None:
        raise AttributeError("'SparkConnectClient' object has no attribute 'thread_local'")

    if how == "missing" and hasattr(SparkSession, "cloneSession"):
        del SparkSession.cloneSession
    elif how in ("broken", "new"):
        setattr(SparkSession, "cloneSession", clone_session)  # noqa: B010  (not every client has it)
    if how == "new":
        setattr(SparkSession, "newSession", lambda _: SparkSession(address))  # noqa: B010


def make_classic_session(address: str) -> Any:
    """Return a classic session in the JVM at this address, `jvm://:secret@host:port`.

    Its workers run the Python of this process, which a cluster of Databricks names by the same variable.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    place = urlsplit(address)
    os.environ.update(PYSPARK_GATEWAY_PORT=str(place.port), PYSPARK_GATEWAY_SECRET=str(place.password))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    there = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(there)
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf))


def make_session(address: str, clones: str) -> Any:
    """Return the session that a program finds on Databricks: a classic one, or one of Spark Connect."""
    from pyspark.sql import SparkSession

    if address.startswith("jvm:"):
        return make_classic_session(address)
    break_clones(clones, address)
    session = SparkSession.builder.remote(address).getOrCreate()
    os.environ.pop("SPARK_REMOTE", None)
    return session


def set_up(names: MutableMapping[str, Any], given: Mapping[str, Any]) -> None:
    """Put `spark`, `dbutils` and `display` among the names of a notebook."""
    import IPython.display
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame

    def show(value: Any) -> None:
        IPython.display.display(value.limit(1000).toPandas() if isinstance(value, DataFrame | RemoteFrame) else value)  # type: ignore[no-untyped-call,unused-ignore]

    names["spark"] = make_session(given["address"], given["clones"])
    names["dbutils"] = Dbutils(given["widgets"], given["secrets"])
    names["display"] = show
