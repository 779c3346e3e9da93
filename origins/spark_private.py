"""The one file that reads what pyspark keeps to itself, so that one file changes when pyspark does."""

from __future__ import annotations

import atexit
import copy
import sys
import uuid
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subprocess import Popen

    from pyspark.sql import SparkSession


def get_java_throwable(error: BaseException) -> Any:
    """The JVM's object for an error of classic Spark; None for any other error."""
    found = getattr(error, "java_exception", None)
    return found if found is not None else getattr(error, "_origin", None)


def format_java_frames(throwable: Any) -> str:
    """The frames of its stack in one text, which has nothing of its message."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    return str(jvm.scala.runtime.ScalaRunTime.stringOf(throwable.getStackTrace())) if jvm is not None else ""


def launch_jvm(settings: Mapping[str, str], waiting: AbstractContextManager[None], noise: int) -> bool:
    """Start the JVM of this process with these settings, unless it has one; whether it was started.

    `waiting` is entered for as long. The open file `noise` is the standard error of the JVM. No signal for this
    process's group reaches the JVM.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return False
    conf = SparkConf(loadDefaults=False, _jvm=None)
    conf.setAll(list(settings.items()))
    with waiting:
        gateway = launch_gateway(conf, {"start_new_session": True, "stderr": noise})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    return True


def has_context() -> bool:
    """Whether this process has a classic Spark, made by any thread. Imports nothing."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)  # another thread may be importing it
    return context is not None and context._active_spark_context is not None


def find_jvm() -> Popen[bytes] | None:
    """The JVM that this process started; None if it started none."""
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)


def get_jvm(spark: SparkSession) -> Any:
    return spark._jvm


def get_java_session(spark: SparkSession) -> Any:
    return spark._jsparkSession  # type: ignore[attr-defined,unused-ignore]


def get_hadoop_settings(spark: SparkSession) -> Any:
    """The settings of Hadoop in a classic session, which has no public access to them."""
    jvm_context: Any = spark.sparkContext._jsc
    return jvm_context.hadoopConfiguration()


def keeps_threads_apart(spark: SparkSession) -> bool:
    """Whether each thread of this process has a thread of its own in the JVM, which owns the locks that it takes."""
    from py4j.clientserver import ClientServer

    return isinstance(spark.sparkContext._gateway, ClientServer)


def name_jobs(spark: SparkSession, group: str, pool: str) -> None:
    """What this thread starts in a classic session from now on has this group and, if one is named, this pool."""
    spark.sparkContext.setJobGroup(group, group, interruptOnCancel=True)
    if pool:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def cancel_jobs(spark: SparkSession, group: str) -> None:
    """Cancel the jobs of this group in a classic session, and those that begin later."""
    jvm_context: Any = spark.sparkContext._jsc
    jvm_context.sc().cancelJobGroupAndFutureJobs(group)


def is_unasked(session: SparkSession) -> bool:
    """Whether a Connect session has asked its server for nothing yet."""
    return getattr(session.client, "_server_session_id", "") is None


def end_in_silence(session: SparkSession) -> None:
    """Let a program end without asking the server of this Connect session once more."""
    ending = getattr(session.client, "_on_exit", None)  # not every client has one
    if ending is not None:
        atexit.unregister(ending)


def make_client(session: SparkSession) -> Any:
    """A client of the same server and user, in a session of its own."""
    connection = copy.deepcopy(session.client._builder)
    connection.set(connection.PARAM_SESSION_ID, str(uuid.uuid4()))
    return type(session.client)(connection, user_id=session.client._user_id)


def put_client(session: SparkSession, client: Any) -> None:
    """Let a Connect session speak through this client from now on."""
    weakref.finalize(session, client.close)
    session._client, session._session_id = client, client._session_id  # type: ignore[attr-defined,unused-ignore]


def delete_folder(spark: SparkSession, folder: str) -> None:
    """Delete a folder with all that is in it, wherever a classic Spark's Hadoop finds it."""
    path = get_jvm(spark).org.apache.hadoop.fs.Path(folder)
    path.getFileSystem(get_hadoop_settings(spark)).delete(path, True)  # noqa: FBT003 -- with all that is in it


def count_executors(spark: SparkSession) -> int:
    """How many executors a classic Spark has now."""
    jvm_context: Any = spark.sparkContext._jsc
    return int(jvm_context.sc().getExecutorIds().size())
