"""Errors as Spark's clients raise them, made without a Spark."""

from __future__ import annotations

from typing import Any

from pyspark.errors.exceptions.connect import SparkConnectGrpcException

ROOT = "org.apache.spark.SparkException"
"""The class of the JVM that most errors have."""


def spark_error(condition: str = "", said: str = "no", state: str = "", stack: str = "", **more: Any) -> Exception:
    """An error as the client of Spark Connect makes it of a server's answer. `stack` begins behind its first line."""
    message = f"[{condition}] {said}" if condition else said
    return SparkConnectGrpcException(
        f"{message} SQLSTATE: {state}" if state else message,
        errorClass=condition or None,
        messageParameters={},
        sql_state=state or None,
        server_stacktrace=f"{ROOT}\n{stack}" if stack else None,
        **more,
    )


def user_raised(said: str, stack: str = "") -> Exception:
    """What `raise_error` raises."""
    return SparkConnectGrpcException(
        f"[USER_RAISED_EXCEPTION] {said} SQLSTATE: P0001",
        errorClass="USER_RAISED_EXCEPTION",
        messageParameters={"errorMessage": said},
        sql_state="P0001",
        server_stacktrace=f"org.apache.spark.SparkRuntimeException\n{stack}",
    )
