"""Make errors like those that Spark's clients raise, without a Spark."""

from __future__ import annotations

from typing import Any

from pyspark.errors.exceptions.connect import SparkConnectGrpcException

ROOT = "org.apache.spark.SparkException"
"""The JVM class of most errors."""


def make_spark_error(condition: str = "", said: str = "no", state: str = "", stack: str = "", **more: Any) -> Exception:
    """Return an error that the Spark Connect client would make from a server's answer. `stack` is the server's stack
    trace without its first line."""
    message = f"[{condition}] {said}" if condition else said
    return SparkConnectGrpcException(
        f"{message} SQLSTATE: {state}" if state else message,
        errorClass=condition or None,
        messageParameters={},
        sql_state=state or None,
        server_stacktrace=f"{ROOT}\n{stack}" if stack else None,
        **more,
    )


def make_raised_error(said: str, stack: str = "") -> Exception:
    """Return the error that `raise_error` raises."""
    return SparkConnectGrpcException(
        f"[USER_RAISED_EXCEPTION] {said} SQLSTATE: P0001",
        errorClass="USER_RAISED_EXCEPTION",
        messageParameters={"errorMessage": said},
        sql_state="P0001",
        server_stacktrace=f"org.apache.spark.SparkRuntimeException\n{stack}",
    )
