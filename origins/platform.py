"""Whose Spark this process uses: one of Databricks' kinds of compute, or any other."""

from __future__ import annotations

import os
from enum import Enum

from origins.lazy import SparkSession


class Platform(Enum):
    """What decides how Wherry may use a session that it did not start."""

    ANY = "no platform"
    DEDICATED = "a dedicated cluster of Databricks"
    STANDARD = "a standard cluster of Databricks"
    SERVERLESS = "serverless compute of Databricks"


def is_on_databricks() -> bool:
    """Whether this process runs on Databricks, where a session is there and no JVM may be started."""
    return bool(os.environ.get(_RUNTIME))


def find_platform(spark: SparkSession) -> Platform:
    """Return the platform of this process. Its session distinguishes the two kinds of clusters."""
    if not is_on_databricks():
        return Platform.ANY
    if os.environ[_RUNTIME].startswith("client."):
        return Platform.SERVERLESS
    return Platform.STANDARD if is_connect(spark) else Platform.DEDICATED


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a Spark Connect client."""
    return any("pyspark.sql.connect" in each.__module__ for each in type(spark).__mro__)


_RUNTIME = "DATABRICKS_RUNTIME_VERSION"
"""The variable that Databricks sets for each process of a notebook or a job.

It is the runtime's version, such as `17.3`, or the version of a serverless environment, such as `client.4.9`.
"""
