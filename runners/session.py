"""The Spark session: the one that is there, or a local one of our own.

The only file that touches what classic Spark has and Spark Connect has not.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from destinations.table_lock import SparkCommits, say_commits
from origins.errors import WherryError
from origins.one_disk import say_one_disk
from runners.jars import KEPT, fetched_by_one
from runners.reconnecting import impatient, is_blank, made, reconnect, unbound
from stages.halving import FAILS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The JARs that delta-spark 4.4.0 needs beside it, for Spark 4.2."""

_MEANING = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
}
"""What decides what a definition means; the same on every Spark."""

_ROOM = {"spark.sql.analyzer.maxIterations": "1000"}
"""Room for long lines of stages: Spark Connect analyses all of them at once. A Spark that refuses it keeps its own."""

_AT_LAUNCH = ("spark.driver.", "spark.jars", "spark.files", "spark.archives", "spark.submit.", "spark.log.")
"""The settings that a JVM must be started with; Spark takes all others when it starts in it."""

_OF_THE_JVM = "spark.driver.extraJavaOptions"
_LARGE_METHODS = "-XX:-DontCompileHugeMethods"
"""What Spark makes of a few stages that may refuse rows is soon more than the JVM compiles by itself; interpreted, it
takes several times as long."""

_NOISE = "wherry-spark-"
"""How the files begin into which a JVM writes what nobody asks for."""
_MOST_NOISE = 20
"""So many of them are kept at most."""

_WORKER = "An exception was thrown from the Python worker"
"""How Spark begins to tell of an error in a Python function; what the function raised stands at the end."""

_AWAY = re.compile(r'^\s*status = StatusCode\.(?P<status>\w+)\n\s*details = "(?P<details>[^"\n]+)"', re.MULTILINE)
"""How a Connect client tells that its server does not answer: among other lines."""

_LOCAL = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "FATAL",
}
"""One machine, small batches: few partitions, no web page and little kept for it, no console bar over ours. And no
line numbers of ours in Spark's errors: noting them costs more than all else that is done to describe a batch. The two
classes write Delta's log and its checksums with the guarantees of those that they stand for; but those start a process
(`readlink`) for each file that they look at on a local disk, thirty in a commit."""


_STORES = tuple(
    f"{package}.{name}LogStore"
    for package in ("io.delta.storage", "org.apache.spark.sql.delta.storage")
    for name in ("Local", "HDFS")
)
_LOCKED = {
    "spark.databricks.delta.commitLock.enabled": ("true",),
    "spark.delta.logStore.class": ("", *_STORES),
    "spark.delta.logStore.file.impl": ("", *_STORES),
}
"""The settings with which Delta locks a table's log in its JVM for a commit on a local disk, each as it is by default
first."""
_PATIENCE = 60
"""How long a commit waits for another one of the JVM, in seconds."""


class SparkMissing(WherryError):
    """Spark cannot be started here."""

    code = "SPARK"


def obtain(conf: Mapping[str, str] | None = None, packages: Sequence[str] = ()) -> SparkSession:
    """The active session, the one that `SPARK_REMOTE` or spark-submit names, or else a local one with Delta."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(
            "Spark is not installed in this environment.",
            hint='Install it with:  pip install "wherry[spark]"',
        ) from error
    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    if os.environ.get("SPARK_REMOTE") or "PYSPARK_GATEWAY_PORT" in os.environ:
        _quiet_loggers()
        session = SparkSession.builder.getOrCreate()
        return _greeted(session) if is_connect(session) and is_blank(session) else session
    return start(conf or {}, packages)


def _greeted(session: SparkSession) -> SparkSession:
    """The session of a server elsewhere, once that has answered."""
    made(session, {})
    impatient(session)
    try:
        session.conf.get("spark.sql.ansi.enabled")
    except Exception as error:
        session.client.close()
        raise SparkMissing(
            f"The Spark Connect server that SPARK_REMOTE names does not answer: {in_short(error)}.",
            hint="Is it running, and is that its address? Then run again.",
        ) from error
    made(session, {})
    return session


def is_given() -> bool:
    """Whether there is a Spark to use, so that none is started."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    named = os.environ.get("SPARK_REMOTE") or "PYSPARK_GATEWAY_PORT" in os.environ
    return bool(named) or SparkSession.getActiveSession() is not None


def forgotten(spark: SparkSession, tables: Sequence[str]) -> list[str]:
    """Those of these tables that this Spark does not know any more when it is started anew: its own catalog is in its
    memory."""
    default = spark.conf.get("spark.sql.defaultCatalog", "spark_catalog")
    kept = spark.conf.get("spark.sql.catalogImplementation", "in-memory") != "in-memory"
    ours = spark.conf.get("spark.sql.catalog.spark_catalog", "") == _LOCAL["spark.sql.catalog.spark_catalog"]
    if kept or not ours:
        return []
    return [each for each in tables if (each.split(".")[0] if each.count(".") > 1 else default) == "spark_catalog"]


def start(conf: Mapping[str, str], packages: Sequence[str] = (), *, connect: bool = False) -> SparkSession:
    """A local session tuned for one machine. Its own noise goes to a log file that an error names."""
    check_java()
    from pyspark.sql import SparkSession

    _quiet_loggers()

    cores = os.cpu_count() or 2
    settings = {
        **_LOCAL,
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.memory": f"{_memory()}m",
        "spark.jars.packages": ",".join([DELTA, *packages]),
        **conf,
        _OF_THE_JVM: f"{_LARGE_METHODS} {conf.get(_OF_THE_JVM, '')}".strip(),
    }
    place = f"local[{cores}]"
    builder = SparkSession.builder.remote(place) if connect else SparkSession.builder.master(place)
    builder = builder.appName("wherry")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with fetched_by_one(settings), _noise_in_a_file() as log, _workers_like_us(), warnings.catch_warnings():
        # The Connect client asks its own server again for what the server was started with, and is told no.
        warnings.filterwarnings("ignore", "Failed to set .* due to \\[CANNOT_MODIFY", UserWarning)
        try:
            if not connect:
                _launch({key: value for key, value in settings.items() if key.startswith(_AT_LAUNCH)})
            return builder.getOrCreate()
        except Exception as error:
            raise SparkMissing(
                _why(log.read_text(errors="replace"), error), hint=f"Spark's own words: {log}"
            ) from error


def _launch(settings: Mapping[str, str]) -> None:
    """Start the JVM with these settings; Spark starts in it later. What it is started with stands in everybody's list
    of processes, where no secret among the other settings belongs.

    A signal for all of our process group, as a terminal and `timeout` send it, is not for the JVM: it has to live until
    what is in flight has finished. It ends with us, when its standard input does.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False, _jvm=None)
        conf.setAll(list(settings.items()))
        with _uninterrupted():
            gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """The first Ctrl-C in here is heard at its end: a JVM that was interrupted before it could say where it is to be
    found has nobody who ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def hear(number: int, frame: object) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _memory() -> int:
    """A quarter of this machine's memory, in MiB: Spark's own default of 1 GiB is soon full where one JVM does all."""
    return max(1_024, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (4 << 20))


def own(spark: SparkSession, time_zone: str = "UTC") -> SparkSession:
    """A session of our own beside the given one, in which a definition means what it means everywhere."""
    session = spark.newSession() if hasattr(spark, "newSession") and not is_connect(spark) else _cloned(spark)
    settings = {**_MEANING, "spark.sql.session.timeZone": time_zone}
    for key, value in settings.items():
        _insist(session, key, value)
    for key, value in _ROOM.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
            settings[key] = value
    if is_connect(spark):
        made(session, settings, of=spark)
    else:
        say_commits(session, _JvmCommits(session))
        if is_here(spark) and _default_files(spark) == "file":
            say_one_disk(session)
    return session


class _JvmCommits(SparkCommits):
    """Each commit of Delta's holds the lock of its table's `DeltaLog`, from the look whether a version is free until it
    has taken it. A JVM keeps one `DeltaLog` for a folder, for all its sessions, once somebody has asked for the table.

    A table that nobody in the JVM has asked for is not asked for here: that takes two seconds in a JVM that is new.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._context: Any = spark.sparkContext
        self._session: Any = spark._jsparkSession  # type: ignore[attr-defined,unused-ignore]

    def can_be_held(self) -> bool:
        said = self._session.sessionState().conf()
        known = all(said.getConfString(key, values[0]) in values for key, values in _LOCKED.items())
        return known and self._logs is not None and self._writes_plainly()

    @contextlib.contextmanager
    def held(self, table: Path) -> Iterator[None]:
        log = self._log(table)
        with self._locked(log, table):
            yield
        newer = self._log(table)
        if newer is not None and (log is None or not newer.equals(log)):
            with self._locked(newer, table):  # who began meanwhile has ended; who begins now sees what was done in here
                pass

    def _writes_plainly(self) -> bool:
        """Whether the settings of Hadoop, which a session does not show, leave files as they are by default."""
        hadoop = self._context._jsc.hadoopConfiguration()
        plain = hadoop.getPropsWithPrefix("parquet.").isEmpty()
        return bool(plain and hadoop.get("fs.permissions.umask-mode") in ("022", "0022"))

    @functools.cached_property
    def _logs(self) -> Any:
        """The logs that Delta has open in the JVM, by their places. None where threads of this process change threads
        of the JVM, which own its locks, and where Delta is another one than is known here."""
        from py4j.clientserver import ClientServer
        from py4j.protocol import Py4JError

        if not isinstance(self._context._gateway, ClientServer):
            return None
        try:
            delta = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaLog$")
            return getattr(delta, "MODULE$").getOrCreateCache(self._session.sessionState().conf())
        except (Py4JError, TypeError):
            return None

    def _log(self, table: Path) -> Any:
        """The table's log, if it is open in the JVM."""
        return self._logs.getIfPresent(self._place(table))

    @functools.cached_property
    def _places(self) -> dict[Path, Any]:
        return {}

    def _place(self, table: Path) -> Any:
        if table not in self._places:
            key = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaLog$DeltaLogCacheKey")
            none = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(self._jvm.java.util.HashMap())
            self._places[table] = key(self._jvm.org.apache.hadoop.fs.Path(f"file:{table}/_delta_log"), none)
        return self._places[table]

    @contextlib.contextmanager
    def _locked(self, log: Any, table: Path) -> Iterator[None]:
        if log is None:
            yield
            return
        lock = log.snapshotLock()
        if not lock.tryLock(_PATIENCE, self._jvm.java.util.concurrent.TimeUnit.SECONDS):
            raise TimeoutError(f"a commit of Spark's into {table} has not ended for {_PATIENCE} seconds")
        try:
            yield
        finally:
            lock.unlock()


def _default_files(spark: SparkSession) -> str:
    """The scheme of a path that names none, for a classic Spark."""
    place = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")
    return str(place).partition(":")[0]


def life(spark: SparkSession) -> object:
    """Another thing once the session was given another one's place on its server (`reconnecting.py`)."""
    return spark.client if is_connect(spark) else None


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a Spark Connect client."""
    return "pyspark.sql.connect" in type(spark).__module__


def is_here(spark: SparkSession) -> bool:
    """Whether Spark surely works on this machine, and finds what this process writes to its disk."""
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


@contextlib.contextmanager
def named_work(spark: SparkSession, group: str, pool: str = "") -> Iterator[None]:
    """What this thread starts on Spark in here can be cancelled by its name, from another thread.

    What is done in different pools shares the cores fairly where Spark is told to (`spark.scheduler.mode`); the server
    of Spark Connect knows no pools.
    """
    if is_connect(spark):
        spark.addTag(group)
        try:
            yield
        finally:
            if group in spark.getTags():  # a session that took another one's place has none
                spark.removeTag(group)
    else:
        spark.sparkContext.setJobGroup(group, group, interruptOnCancel=True)
        if pool:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        yield


def cancel(spark: SparkSession, group: str) -> None:
    """Cancel what `named_work` named; nothing is left running of it. On classic Spark nothing of it can begin later."""
    if is_connect(spark):
        if not spark.client.is_closed:  # of one that its server has forgotten nothing is left running
            spark.interruptTag(group)
    else:
        spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)


def is_alive(spark: SparkSession) -> bool:
    """Whether this Spark still does anything; a server that was started anew does."""
    try:
        if is_connect(spark):
            reconnect(spark)
        return bool(spark.range(1).count() == 1)
    except Exception:
        return False


def answers(spark: SparkSession) -> None:
    """Return as soon as the JVM of this Spark says anything, which takes well under a millisecond; one that is frozen
    does not. A server elsewhere is not asked: it may be away for a while, and its runs live on."""
    if not is_connect(spark):
        with contextlib.suppress(Exception):  # one that is gone says so, and whoever works with it hears it as well
            spark.conf.get("spark.sql.ansi.enabled")


def ahead(spark: SparkSession) -> float:
    """How many seconds Spark's clock is ahead of this machine's; less by as long as the question took."""
    ((micros,),) = spark.sql("select unix_micros(current_timestamp())").collect()
    return float(micros / 1_000_000 - time.time())


def jvm_process(spark: SparkSession) -> int | None:
    """The id of the JVM's process if this Python started it; None where it did not."""
    if is_connect(spark):
        return None
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return int(process.pid) if process is not None else None


def in_short(error: BaseException) -> str:
    """An error in one line, in the words of its cause, without Java's stack."""
    if isinstance(error, (ArithmeticError, AttributeError, LookupError, TypeError)):
        return f"{type(error).__name__}: {error}"
    away = _AWAY.search(str(error))
    if away:
        return f"{away['status']}: {away['details']}"
    lines = [line for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    if _WORKER in str(error):
        return next((line for line in reversed(lines) if re.match(r"[A-Za-z_][\w.]*: ", line)), lines[-1])
    causes = [line for line in lines if line.startswith("Caused by: ")]
    said = (causes or lines or [type(error).__name__])[-1 if causes else 0]
    said = re.sub(r"^Caused by: ", "", said.strip())
    said = re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", said)
    said = said.replace(f"[USER_RAISED_EXCEPTION] {FAILS}", "[USER_RAISED_EXCEPTION] ")
    return re.sub(r"\s*SQLSTATE: \w+.*$", "", said)


def check_java() -> str:
    """The Java that Spark runs on here. Raises `SparkMissing`, with the way out, unless there is one that fits."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if not java or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no `java` on the PATH"
        raise SparkMissing(
            f"Java is missing: {where}.",
            hint="Spark needs Java 17 or 21. Debian: apt-get install openjdk-17-jre-headless; "
            "macOS: brew install openjdk@17.",
        )
    said = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    if found is None or int(found.group(1)) not in (17, 21):
        version = found.group(1) if found else "something that does not say its version"
        raise SparkMissing(
            f"Java 17 or 21 is needed, and {java} is {version}.",
            hint="Set JAVA_HOME to a Java 17 or 21.",
        )
    return f"Java {found.group(1)} ({java})"


def _cloned(spark: SparkSession) -> SparkSession:
    reconnect(spark)  # and a server knows no session that has asked it for nothing yet
    session = spark.cloneSession()  # type: ignore[attr-defined,unused-ignore]
    # A channel that is still open when Python has ended its other threads waits for one of them for ever.
    weakref.finalize(session, session.client.close)
    unbound(session)
    return session  # type: ignore[no-any-return,unused-ignore]


def _insist(session: SparkSession, key: str, value: str) -> None:
    try:
        session.conf.set(key, value)
    except Exception as error:
        if (session.conf.get(key, "") or "").lower() != value.lower():
            raise SparkMissing(
                f"This Spark has {key} = {session.conf.get(key, '')}, and a definition needs {value}.",
                hint="Ask for a session in which it can be set; rows would come out differently otherwise.",
            ) from error


def _quiet_loggers() -> None:
    """pyspark logs each error that it raises, with Java's whole stack; whoever catches one says it in a line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _workers_like_us() -> Iterator[None]:
    """A Spark that starts in here gives Python functions the Python that runs us, unless the environment names
    another; by itself it takes the first `python3` on the PATH."""
    given = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = given or sys.executable
    try:
        yield
    finally:
        if given is None:
            del os.environ["PYSPARK_PYTHON"]


@contextlib.contextmanager
def _noise_in_a_file() -> Iterator[Path]:
    """The JVM inherits our standard error; while it starts, that is a file. It stays where Spark did not start, and
    where the JVM ended before this process; else it is removed at the end."""
    _remove_old_noise()
    handle, name = tempfile.mkstemp(prefix=_NOISE, suffix=".log")
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(handle, 2)
    try:
        yield Path(name)
        atexit.register(_remove_noise, Path(name), os.getpid())
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(handle)


def _remove_noise(log: Path, process: int) -> None:
    """Remove the log at the end of the process that began it, unless the JVM has ended before it."""
    from pyspark import SparkContext

    jvm = getattr(SparkContext._gateway, "proc", None)
    if os.getpid() == process and (jvm is None or jvm.poll() is None):
        log.unlink(missing_ok=True)


def _remove_old_noise() -> None:
    """Remove this user's oldest logs of processes that were killed or failed, so that they do not pile up."""
    mine = []
    for log in Path(tempfile.gettempdir()).glob(f"{_NOISE}*.log"):
        with contextlib.suppress(OSError):
            found = log.lstat()
            mine += [(found.st_mtime, log)] if found.st_uid == os.getuid() else []
    for _, log in sorted(mine)[: 1 - _MOST_NOISE]:
        with contextlib.suppress(OSError):
            log.unlink()


def _why(log: str, error: Exception) -> str:
    missing = re.findall(r":: (\S+?#\S+?;\S+?): not found", log)
    if missing:
        return (
            f"Spark's JARs could not be fetched: {', '.join(sorted(set(missing)))}. "
            f"They come from Maven Central at the first start and are kept in {KEPT}; is there a network?"
        )
    return f"Spark did not start: {error}"
