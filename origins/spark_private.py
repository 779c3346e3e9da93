"""All access to private parts of pyspark, so that a new pyspark changes only this file."""

from __future__ import annotations

import atexit
import copy
import functools
import gc
import importlib
import json
import logging
import os
import re
import socket
import sys
import threading
import uuid
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from types import FrameType, ModuleType
from typing import Any

from origins.lazy import SparkSession, py4j_errors, pyspark, spark_errors


def get_java_throwable(error: BaseException) -> Any:
    """Return the JVM's object for an error of classic Spark; None for any other error."""
    found = getattr(error, "java_exception", None)
    return found if found is not None else getattr(error, "_origin", None)


def format_java_frames(throwable: Any) -> str:
    """Return the frames of the throwable's stack as one text, without its message."""
    jvm: Any = pyspark.SparkContext._jvm
    return str(jvm.scala.runtime.ScalaRunTime.stringOf(throwable.getStackTrace())) if jvm is not None else ""


class JvmEnded(RuntimeError):
    """The JVM that was started has ended before it reported its address."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the JVM ended with {code}")
        self.code = code
        """The exit code, as in `Popen.returncode`."""


def launch_jvm(
    settings: Mapping[str, str],
    waiting: AbstractContextManager[None],
    noise: int,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> bool:
    """Start the JVM of this process with these settings. Return False if the process already has one.

    The context `waiting` is entered during the start. Raise `JvmEnded` if the JVM ends before it is ready. The open
    file `noise` is the standard error of the JVM. Signals to this process's group do not reach the JVM. A `command`
    replaces Spark's script, and `environment` adds variables to the JVM's environment. `STARTER` is always among them.
    """
    from pyspark import java_gateway

    launching: Any = java_gateway
    begun: list[Popen[bytes]] = []
    with _LAUNCHING:
        if pyspark.SparkContext._gateway is not None:
            return False
        conf = pyspark.SparkConf(loadDefaults=False, _jvm=None)
        conf.setAll(list(settings.items()))
        popen, me = launching.Popen, os.getpid()
        added = {**(environment or {}), STARTER: f"{me} {find_start(me)}"}

        def run_command(words: Sequence[str], **options: Any) -> Popen[bytes]:
            begun.append(popen(command or words, **{**options, "env": {**options["env"], **added}}))
            _watch_jvm(begun[0].pid)
            return begun[0]

        launching.Popen = run_command
        try:
            with waiting:
                gateway = launching.launch_gateway(conf, {"start_new_session": True, "stderr": noise})
        except spark_errors.PySparkRuntimeError as error:
            with begun[0] as jvm:  # closes the pipe to the JVM
                raise JvmEnded(jvm.wait()) from error
        finally:
            launching.Popen = popen
        spare_pandas()
        pyspark.SparkContext._ensure_initialized(gateway=gateway)
        return True


STARTER = "WHERRY_STARTER"
"""The variable of a JVM with the number and the start of the process that started it, as `find_start` gives it."""
_LAUNCHING = threading.Lock()
_WATCH = """
import os, select, signal, sys
jvm, grace = int(sys.argv[1]), 0
ends = select.poll()
for each in (jvm, 0):
    ends.register(each, select.POLLIN)
while jvm not in dict(ends.poll()):
    if os.read(0, 1):
        grace = 6000
        continue
    ends.unregister(0)
    if not ends.poll(grace):
        signal.pidfd_send_signal(jvm, signal.SIGKILL)
    break
"""
"""The program that kills a JVM after the end of the process that started it. It ends with the JVM.

A process that ends cleanly has written a byte. Its JVM then has six seconds, in which it ends by itself unless it is
busy. The JVM of a process that was killed is killed at once, because the next run may begin.
"""
_WATCHERS: list[Popen[bytes]] = []


def _watch_jvm(number: int) -> None:
    """Let this JVM not outlive this process by more than ten seconds, on a system that can watch processes."""
    try:
        jvm = os.pidfd_open(number)
    except (AttributeError, OSError):  # some sandboxes forbid it
        return
    words = [sys.executable, "-I", "-S", "-c", _WATCH, str(jvm)]
    given: Any = {"stdin": PIPE, "stdout": DEVNULL, "stderr": DEVNULL, "start_new_session": True, "cwd": "/"}
    try:
        _WATCHERS.append(Popen(words, pass_fds=[jvm], **given))
    finally:
        os.close(jvm)


@atexit.register
def _say_clean_end() -> None:
    """Let the watchers know that this process was not killed."""
    for each in _WATCHERS:
        if each.stdin is not None:
            with suppress(OSError, ValueError):  # the watcher has ended, or this is a child made by `fork`
                os.write(each.stdin.fileno(), b".")


def _close_in_child() -> None:
    """Close the pipes to watchers in a child made by `fork`, which would hide the end of this process."""
    for each in _WATCHERS:
        if each.stdin is not None:
            each.stdin.close()


os.register_at_fork(after_in_child=_close_in_child)


def find_start(pid: int) -> str:
    """Return when a process began, in ticks since the boot.

    Empty if it has ended, also if its parent has not noticed yet, and without /proc.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    state, *rest = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]


def end_jvm() -> int:
    """End the JVM of this process, which must have no Spark any more, and return its exit code."""
    gateway: Any = pyspark.SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    return int(gateway.proc.wait())


def forget_ended_jvm(seconds: float) -> int | None:
    """Return the exit code of this process's JVM if it has ended, or ends within this number of seconds.

    This process can then start another JVM. Return None if the JVM is alive or was never started.
    """
    jvm = find_jvm()
    if jvm is None:
        return None
    try:
        code = jvm.wait(seconds)
    except TimeoutExpired:
        return None
    pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None
    return code


class _TestingTools(ModuleType):
    """A substitute for `pyspark.testing.utils`, until a program uses more of the module than `have_numpy`.

    pyspark checks `have_numpy` for every literal and for every argument to the JVM. The real module loads pandas, which
    takes half a second. If NumPy is not loaded, no value can be NumPy's.
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
    """Return whether a thread of this process has made a classic Spark. Import nothing."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)  # another thread may be importing it
    return context is not None and context._active_spark_context is not None


def find_jvm() -> Popen[bytes] | None:
    """Return the JVM that this process started; None if it started none."""
    gateway = pyspark.SparkContext._gateway
    # py4j treats a name that this process did not set on the gateway as one of the JVM's
    return vars(gateway).get("proc") if gateway is not None else None


def find_jvm_number() -> int | None:
    """Return the process number of the JVM that this process started; None without a JVM."""
    jvm = find_jvm()
    return jvm.pid if jvm is not None else None


def get_jvm(spark: SparkSession) -> Any:
    return spark._jvm


def get_java_session(spark: SparkSession) -> Any:
    return spark._jsparkSession  # type: ignore[attr-defined,unused-ignore]


def get_hadoop_settings(spark: SparkSession) -> Any:
    """Return Hadoop's settings in a classic session, which has no public access to them."""
    jvm_context: Any = spark.sparkContext._jsc
    return jvm_context.hadoopConfiguration()


def keeps_threads_apart(spark: SparkSession) -> bool:
    """Return whether each thread of this process has a separate thread in the JVM.

    That thread owns the locks that it takes.
    """
    from py4j.clientserver import ClientServer

    return isinstance(spark.sparkContext._gateway, ClientServer)


def list_frames() -> Mapping[int, FrameType]:
    """Return the current frame of each thread, by the thread's number.

    Python collects no garbage meanwhile. It holds a lock in this call, and an object that is collected may wait for it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_on:
            gc.enable()


def cut_calls(threads: Collection[int]) -> None:
    """Let the calls to the JVM fail for which these threads wait. The JVM may go on with these calls.

    The next call of such a thread has another thread in the JVM. A thread in `keep_connection` is spared.
    """
    with _CUTTING:
        for thread, frame in list_frames().items():
            connection = _find_connection(frame) if thread in threads and thread not in _SPARED else None
            if connection is not None:
                if not _CUT:
                    logging.getLogger().addFilter(_is_not_cut)
                _CUT.add(thread)
                connection.initiated_from_client = False  # or the call would be sent again
                with suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RDWR)


def _find_connection(frame: FrameType | None) -> Any:
    """Return the connection to the JVM on which this frame waits for an answer; None if it does not."""
    kind = getattr(sys.modules.get("py4j.clientserver"), "ClientServerConnection", ())
    while frame is not None:
        if frame.f_code.co_name == "send_command" and isinstance(frame.f_locals.get("self"), kind):
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


@contextmanager
def keep_connection() -> Iterator[None]:
    """In this block, spare this thread from `cut_calls`. Its thread in the JVM may own a lock, and must release it."""
    thread = threading.get_ident()
    with _CUTTING:
        again = thread in _SPARED
        _SPARED.add(thread)
    try:
        yield
    finally:
        if not again:
            _SPARED.discard(thread)


_CUTTING = threading.Lock()
_SPARED: set[int] = set()
_CUT: set[int] = set()


def _is_not_cut(record: logging.LogRecord) -> bool:
    """Whether to log the record. py4j logs the stack of a call that was cut."""
    return not (record.thread in _CUT and str(record.msg).startswith("Exception while sending command"))


def cut_client(session: SparkSession) -> None:
    """Let all calls of a Connect session fail, now and later. Its server may go on with them."""
    session.client._channel.close()


def name_jobs(spark: SparkSession, group: str, pool: str) -> None:
    """Set the group of the jobs that this thread starts in a classic session, and their pool if it is not empty."""
    spark.sparkContext.setJobGroup(group, group, interruptOnCancel=True)
    if pool:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)


def cancel_jobs(spark: SparkSession, group: str) -> None:
    """Cancel the jobs of this group in a classic session, including those that begin later."""
    jvm_context: Any = spark.sparkContext._jsc
    jvm_context.sc().cancelJobGroupAndFutureJobs(group)


def is_unasked(session: SparkSession) -> bool:
    """Return whether a Connect session has sent no request to its server yet."""
    return getattr(session.client, "_server_session_id", "") is None


def end_in_silence(session: SparkSession) -> None:
    """Let a program end without another request to the server of this Connect session."""
    ending = getattr(session.client, "_on_exit", None)  # some clients have none
    if ending is not None:
        atexit.unregister(ending)


def keep_client_threads() -> None:
    """Let the threads of Connect clients live as long as this process.

    Python may collect a session at any moment, also in one of these threads, or while a client gives them work. A
    client before Spark 4.2 then ends the threads: it waits for itself for ever, or no later call of the process works.
    """
    calls = importlib.import_module("pyspark.sql.connect.client.reattach").ExecutePlanResponseReattachableIterator
    if hasattr(calls, "shutdown"):
        calls.shutdown = lambda: None


def make_client(session: SparkSession) -> Any:
    """Return a client of the same server and user, with a new session."""
    connection = copy.deepcopy(session.client._builder)
    connection.set(connection.PARAM_SESSION_ID, str(uuid.uuid4()))
    return type(session.client)(connection, user_id=session.client._user_id)


def put_client(session: SparkSession, client: Any) -> None:
    """Make a Connect session use this client from now on."""
    weakref.finalize(session, client.close)
    session._client, session._session_id = client, client._session_id  # type: ignore[attr-defined,unused-ignore]


def list_context_settings() -> dict[str, str]:
    """Return the settings of the classic Spark of this process, or else the settings given to spark-submit.

    They are empty without either, or while another thread still starts Spark. It imports nothing, except under
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
    """Return the settings in the JVM that started this process."""
    pyspark.SparkContext._ensure_initialized()
    return dict(pyspark.SparkConf().getAll())


def forget_context_settings() -> None:
    """Read Spark's settings again at the next use, because a program may have changed Hadoop's settings."""
    _OF_CONTEXTS.clear()


def _list_hadoop_settings(context: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of file systems from Hadoop's files on this machine, and the settings of a program.

    Hadoop's files are, for example, `core-site.xml`. A program sets them in `hadoopConfiguration`. Both are empty if
    the JVM lets Python call only some classes.
    """
    try:
        hadoop, written = context._jsc.hadoopConfiguration(), context._jvm.java.io.StringWriter()
        context._jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(hadoop, written)
        known = [each for each in json.loads(written.toString())["properties"] if each["key"].startswith("fs.")]

        def find(pattern: str) -> dict[str, str]:
            names = (each["key"] for each in known if re.search(pattern, each["resource"]))
            return {name: hadoop.get(name) for name in names}  # a dump hides secrets

        return find(r"-site\.xml$"), find("^programmatically$")
    except (py4j_errors.Py4JError, TypeError):
        return {}, {}


_OF_CONTEXTS: weakref.WeakKeyDictionary[object, Mapping[str, str]] = weakref.WeakKeyDictionary()
"""The settings of each context. To read them takes three calls to the JVM, and a tenth of a second for Hadoop's."""


def delete_folder(spark: SparkSession, folder: str) -> None:
    """Delete a folder and everything in it, on any file system that a classic Spark's Hadoop reaches."""
    path = get_jvm(spark).org.apache.hadoop.fs.Path(folder)
    path.getFileSystem(get_hadoop_settings(spark)).delete(path, True)  # noqa: FBT003 -- recursively


def count_executors(spark: SparkSession) -> int:
    """Return how many executors a classic Spark has now."""
    jvm_context: Any = spark.sparkContext._jsc
    return int(jvm_context.sc().getExecutorIds().size())
