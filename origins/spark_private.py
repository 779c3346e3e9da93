"""The one file that reads what pyspark keeps to itself, so that one file changes when pyspark does."""

from __future__ import annotations

import atexit
import copy
import functools
import importlib
import json
import os
import re
import shutil
import sys
import threading
import uuid
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from subprocess import Popen, TimeoutExpired
from types import ModuleType
from typing import TYPE_CHECKING, Any

from origins.quick_dataclass import dataclass

if TYPE_CHECKING:
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


class JvmEnded(RuntimeError):
    """The JVM that was started has ended before it could say where it is to be found."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the JVM ended with {code}")
        self.code = code
        """As `Popen.returncode`."""


def launch_jvm(
    settings: Mapping[str, str],
    waiting: AbstractContextManager[None],
    noise: int,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> bool:
    """Start the JVM of this process with these settings; False if it has one. `waiting` is entered for as long. Raises
    `JvmEnded`.

    The open file `noise` is the standard error of the JVM. No signal for this process's group reaches the JVM. With a
    `command` that is run, with more in its `environment`, and not Spark's script.
    """
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.errors import PySparkRuntimeError

    launching: Any = java_gateway
    begun: list[Popen[bytes]] = []
    with _LAUNCHING:
        if SparkContext._gateway is not None:
            return False
        conf = SparkConf(loadDefaults=False, _jvm=None)
        conf.setAll(list(settings.items()))
        popen = launching.Popen

        def run_command(words: Sequence[str], **options: Any) -> Popen[bytes]:
            begun.append(popen(command or words, **{**options, "env": {**options["env"], **(environment or {})}}))
            return begun[0]

        launching.Popen = run_command
        try:
            with waiting:
                gateway = launching.launch_gateway(conf, {"start_new_session": True, "stderr": noise})
        except PySparkRuntimeError as error:
            with begun[0] as jvm:  # closes the pipe to it
                raise JvmEnded(jvm.wait()) from error
        finally:
            launching.Popen = popen
        spare_pandas()
        SparkContext._ensure_initialized(gateway=gateway)
        return True


_LAUNCHING = threading.Lock()


def end_jvm() -> int:
    """End the JVM of this process, once it has no Spark any more, and give the code with which it ended."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    return int(gateway.proc.wait())


def forget_ended_jvm(seconds: float) -> int | None:
    """Give the code with which the JVM of this process has ended, or ends within so many seconds; then this process can
    start another one. None where it lives, or where there is none."""
    from pyspark import SparkContext

    jvm = find_jvm()
    if jvm is None:
        return None
    try:
        code = jvm.wait(seconds)
    except TimeoutExpired:
        return None
    SparkContext._gateway = SparkContext._jvm = None
    return code


class _TestingTools(ModuleType):
    """Stands in for `pyspark.testing.utils`, until a program asks for more of it than whether there is NumPy.

    pyspark asks that of every literal and of every argument for the JVM. The real module loads pandas, which takes half
    a second. Where NumPy is not loaded, no value is NumPy's.
    """

    @property
    def have_numpy(self) -> bool:
        return "numpy" in sys.modules

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def spare_pandas() -> None:
    """Let pyspark make literals and pass arguments to the JVM without loading pandas."""
    sys.modules.setdefault("pyspark.testing.utils", _TestingTools("pyspark.testing.utils"))


def has_context() -> bool:
    """Whether this process has a classic Spark, made by any thread. Imports nothing."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)  # another thread may be importing it
    return context is not None and context._active_spark_context is not None


def find_jvm() -> Popen[bytes] | None:
    """The JVM that this process started; None if it started none."""
    jvm: Popen[bytes] | None = _find_noted("proc")
    return jvm


_LENT = "wherry_lent_jvm"


def find_jvm_number() -> int | None:
    """The number of the process of the JVM that this process started, or that a keeper lends it."""
    jvm = find_jvm()
    return jvm.pid if jvm is not None else _find_noted(_LENT)


def _find_noted(name: str) -> Any:
    """What this process has noted beside its gateway. py4j takes every other name for one of the JVM's."""
    from pyspark import SparkContext

    return vars(SparkContext._gateway).get(name) if SparkContext._gateway is not None else None


def has_jvm() -> bool:
    """Whether this process has a JVM, of a Spark that is up or that was stopped. Imports nothing."""
    return getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_gateway", None) is not None


@dataclass(frozen=True)
class JvmAddress:
    """How another process of this user finds a JVM."""

    port: int
    secret: str = field(repr=False)
    number: int
    """Of its process."""


def get_jvm_address() -> JvmAddress:
    """The address of the JVM that this process started."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    return JvmAddress(gateway.java_parameters.port, gateway.java_parameters.auth_token, gateway.proc.pid)


def attach_jvm(there: JvmAddress, environment: Mapping[str, str]) -> SparkSession:
    """The session of the JVM that another process started. Python functions see these variables beside the JVM's."""
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    gateway = ClientServer(
        java_parameters=JavaParameters(port=there.port, auth_token=there.secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    spare_pandas()
    setattr(gateway, _LENT, there.number)
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    try:
        shared = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
        java_context = gateway.jvm.JavaSparkContext(shared)
        context = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jconf=shared.conf()))
        context.environment.update(environment)
        return SparkSession(context)
    except BaseException:
        SparkContext._gateway = SparkContext._jvm = None
        raise


def leave_jvm() -> None:
    """Remove the files that this process has put beside its context."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        shutil.rmtree(context._temp_dir, ignore_errors=True)


class LentJvm:
    """The JVM of this process, between two processes that it is lent to."""

    def __init__(self) -> None:
        from py4j.java_gateway import JavaObject
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway
        self._classes = gateway.jvm
        self._objects = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getGateway().getBindings()
        self._connections = self.count_connections()
        self.note()

    def note(self) -> None:
        """Note what is in the JVM before it is lent."""
        self._known = self._classes.java.util.ArrayList(self._objects.keySet())

    def check(self) -> None:
        """Return once the JVM says anything."""
        self._classes.java.lang.System.nanoTime()

    def count_connections(self) -> int:
        """How many threads of the JVM serve a thread of Python, or finish what one has asked for."""
        from py4j.java_gateway import JavaObject

        found = self._classes.java.lang.Thread.getAllStackTraces()
        # py4j gives a map the methods of Python's once its collections are imported.
        stacks = JavaObject.__getattr__(found, "values")().toArray()
        text = str(self._classes.scala.runtime.ScalaRunTime.stringOf(stacks))
        return text.count("py4j.ClientServerConnection.run(")

    def is_left(self) -> bool:
        """Whether no thread works for another process any more."""
        return self.count_connections() <= self._connections

    def clear(self, spark: SparkSession) -> None:
        """Stop this Spark, and let the JVM forget what other processes have left in it."""
        self._objects.keySet().retainAll(self._known)
        spark.stop()
        self._classes.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self._classes.org.apache.hadoop.fs.FileSystem.closeAll()
        self._classes.java.lang.System.gc()


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


def list_context_settings() -> dict[str, str]:
    """The settings of the classic Spark of this process, or else those that spark-submit was given.

    There are none where there is neither, or another thread still starts Spark. It imports nothing but under
    spark-submit.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    active = context._active_spark_context if context is not None else None
    if active is None:
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ and not os.environ.get("SPARK_REMOTE")
        return dict(_list_submitted_settings()) if submitted else {}
    known = _OF_CONTEXTS.get(active)
    if known is None:
        if getattr(active, "_jsc", None) is None:
            return {}
        of_files, of_program = _list_hadoop_settings(active)
        known = _OF_CONTEXTS[active] = {**of_files, **dict(active.getConf().getAll()), **of_program}
    return dict(known)


@functools.cache
def _list_submitted_settings() -> Mapping[str, str]:
    """The settings in the JVM that started this process."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def forget_context_settings() -> None:
    """Ask Spark for its settings when they are needed next: a program may have set some of Hadoop's meanwhile."""
    _OF_CONTEXTS.clear()


def _list_hadoop_settings(context: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The settings of file systems that this machine's files of Hadoop have, such as `core-site.xml`; and those that a
    program has set in `hadoopConfiguration`. None where the JVM lets Python call some classes only."""
    from py4j.protocol import Py4JError

    try:
        hadoop, written = context._jsc.hadoopConfiguration(), context._jvm.java.io.StringWriter()
        context._jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(hadoop, written)
        known = [each for each in json.loads(written.toString())["properties"] if each["key"].startswith(_OF_FILES)]

        def find(pattern: str) -> dict[str, str]:
            names = (each["key"] for each in known if re.search(pattern, each["resource"]))
            return {name: hadoop.get(name) for name in names}  # a dump hides what is secret

        return find(r"-site\.xml$"), find("^programmatically$")
    except (Py4JError, TypeError):
        return {}, {}


_OF_FILES = ("fs.", "dfs.", "hadoop.security.", "hadoop.rpc.")
"""What the names of settings of file systems begin with."""
_OF_CONTEXTS: weakref.WeakKeyDictionary[object, Mapping[str, str]] = weakref.WeakKeyDictionary()
"""The settings of each context. Each of them costs three calls of the JVM, and those of Hadoop a tenth of a second."""


def delete_folder(spark: SparkSession, folder: str) -> None:
    """Delete a folder with all that is in it, wherever a classic Spark's Hadoop finds it."""
    path = get_jvm(spark).org.apache.hadoop.fs.Path(folder)
    path.getFileSystem(get_hadoop_settings(spark)).delete(path, True)  # noqa: FBT003 -- with all that is in it


def count_executors(spark: SparkSession) -> int:
    """How many executors a classic Spark has now."""
    jvm_context: Any = spark.sparkContext._jsc
    return int(jvm_context.sc().getExecutorIds().size())
