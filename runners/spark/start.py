"""Starting a Spark on this machine: its settings, its JARs, its JVM, and where the noise of that goes."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from origins.errors import WherryError, list_spark_errors
from origins.spark_private import JvmEnded, find_jvm, forget_ended_jvm, get_jvm, launch_jvm
from runners.spark.quick_start import (
    OPTIONS_OF_THE_JVM,
    QuickStart,
    find_quick_start,
    list_environment,
    make_archive_later,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The JARs that delta-spark 4.4.0 needs beside it, for Spark 4.2."""

KEPT = "~/.ivy2.5.2"
"""Where Spark keeps JARs by default."""

_AT_LAUNCH = ("spark.driver.", "spark.jars", "spark.files", "spark.archives", "spark.submit.", "spark.log.")
"""The settings that a JVM must be started with; Spark takes all others when it starts in it."""

_LARGE_METHODS = "-XX:-DontCompileHugeMethods"
"""What Spark makes of a few stages that may refuse rows is soon more than the JVM compiles by itself; interpreted, it
takes several times as long."""

_OPTIMISED_LATER = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
"""The JVM's second compiler begins after four times as many calls. Most methods that a start calls are not called much
more often afterwards."""

_NOISE = "wherry-spark-"
"""The prefix of a JVM's unwanted files."""

_MOST_NOISE = 20
"""So many of them are kept at most."""

_DYING = 1.0
"""So many seconds after an error of a start the end of its JVM is seen."""

_SHORT_OF_MEMORY = (
    "Linux kills a program like this where memory is short. Free some, or set `spark.driver.memory` under `spark.conf` "
    "to less. "
)

DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_LOCAL = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
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


class SparkMissing(WherryError):
    """Spark cannot be started here."""

    code = "SPARK"


_STARTS: set[object] = set()


@contextlib.contextmanager
def note_start() -> Iterator[None]:
    """What is done in here is a part of the start of a Spark."""
    mark = object()
    _STARTS.add(mark)
    try:
        yield
    finally:
        _STARTS.discard(mark)


def is_starting() -> bool:
    """Whether this process is starting a Spark now."""
    return bool(_STARTS)


@note_start()
def start(conf: Mapping[str, str], packages: Sequence[str] = (), *, connect: bool = False) -> SparkSession:
    """A local session tuned for one machine. Its own noise goes to a log file that an error names."""
    settings, java = list_local_settings(conf, packages), find_java()
    quick = None if connect else find_quick_start(str(java) if java else None, settings)
    if quick is None or quick.recipe is None:
        check_java()
    silence_loggers()
    is_new = False
    with (
        fetch_one_at_a_time(settings),
        _divert_noise(connect=connect) as (log, noise),
        use_our_python(),
        warnings.catch_warnings(),
    ):
        # The Connect client asks its own server again for what the server was started with, and is told no.
        warnings.filterwarnings("ignore", "Failed to set .* due to \\[CANNOT_MODIFY", UserWarning)
        try:
            is_new = not connect and _launch(settings, quick, noise)
            session = build_session(settings, connect=connect)
        except list_spark_errors(RuntimeError) as error:
            ended = forget_ended_jvm(_DYING) if is_new else None
            code = error.code if isinstance(error, JvmEnded) else ended
            hint = _SHORT_OF_MEMORY if code == -signal.SIGKILL else ""
            raise SparkMissing(
                _explain_failure(log.read_text(errors="replace"), error, code), hint=f"{hint}Spark's own words: {log}"
            ) from error
    if quick is not None and is_new:
        _prepare_next_start(session, settings, quick)
    return session


def _launch(settings: Mapping[str, str], quick: QuickStart | None, noise: int) -> bool:
    """Start the JVM, the quick way if that is known and leads anywhere; False if there is one."""
    # What a JVM is started with stands in everybody's list of processes, where no secret belongs.
    at_launch = {key: settings[key] for key in settings if key.startswith(_AT_LAUNCH)}
    if quick is not None and quick.recipe is not None:
        try:
            command = quick.build_command(at_launch)
            return launch_jvm(at_launch, _delay_interrupt(), noise, command, list_environment())
        except list_spark_errors(RuntimeError):
            quick.forget()
            check_java()
    return launch_jvm(at_launch, _delay_interrupt(), noise)


def _prepare_next_start(session: SparkSession, settings: Mapping[str, str], quick: QuickStart) -> None:
    """Keep what this start found out. The archive is made after the second one: many a machine sees no third."""
    with contextlib.suppress(*list_spark_errors(ValueError, RuntimeError)):
        if quick.recipe is None:
            quick.learn(settings, str(session.conf.get("spark.jars", "")), get_jvm(session))
        else:
            quick.note_use()
            if quick.lacks_archive:
                atexit.register(make_archive_later, quick, settings["spark.driver.memory"], os.getpid())


def build_session(settings: Mapping[str, str], *, connect: bool = False) -> SparkSession:
    """A session with these settings, in the JVM of this process if it has one."""
    from pyspark.sql import SparkSession

    place = f"local[{_count_cores()}]"
    builder = SparkSession.builder.remote(place) if connect else SparkSession.builder.master(place)
    builder = builder.appName("wherry")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def list_local_settings(conf: Mapping[str, str], packages: Sequence[str] = ()) -> dict[str, str]:
    """The settings that `start` gives to a session."""
    return {
        **_LOCAL,
        "spark.sql.shuffle.partitions": str(_count_cores()),
        "spark.driver.memory": f"{_default_memory()}m",
        "spark.jars.packages": ",".join([DELTA, *packages]),
        **conf,
        OPTIONS_OF_THE_JVM: f"{_LARGE_METHODS} {_OPTIMISED_LATER} {conf.get(OPTIONS_OF_THE_JVM, '')}".strip(),
    }


def is_set_elsewhere() -> bool:
    """Whether files beside the definition may set something for Spark or Hadoop, so that its settings are not known
    before it is started."""
    if any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS")):
        return True
    found = importlib.util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (found and found.origin and os.path.dirname(found.origin)) or ""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"))
    return (folder / "spark-defaults.conf").exists() or any(folder.glob("*-site.xml"))


def _count_cores() -> int:
    return os.cpu_count() or 2


def find_java() -> Path | None:
    """The program that starts the JVM here; None if it is missing."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    return Path(java) if java and Path(java).exists() else None


def check_java() -> str:
    """The Java that Spark runs on here. Raises `SparkMissing`, with the way out, unless there is one that fits."""
    java = find_java()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, but bin/java is missing there" if home else "there is no `java` on the PATH"
        raise SparkMissing(
            f"Java is missing: {where}.",
            hint="Spark needs Java 17 or 21. Debian: apt-get install openjdk-17-jre-headless; "
            "macOS: brew install openjdk@17.",
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if found is None or int(found.group(1)) not in (17, 21):
        version = found.group(1) if found else "a program that does not print its version"
        raise SparkMissing(
            f"Java 17 or 21 is needed, and {java} is {version}.",
            hint="Set JAVA_HOME to a Java 17 or 21.",
        )
    return f"Java {found.group(1)} ({java})"


def silence_loggers() -> None:
    """pyspark logs each error that it raises, with Java's whole stack; our messages say it in a line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _delay_interrupt() -> Iterator[None]:
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


def _default_memory() -> int:
    """A quarter of this machine's memory, in MiB: Spark's own default of 1 GiB is soon full where one JVM does all."""
    return max(1_024, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (4 << 20))


@contextlib.contextmanager
def fetch_one_at_a_time(settings: Mapping[str, str]) -> Iterator[None]:
    """A start of Spark with these settings. One that may have to fetch JARs waits until no other one does: two that
    fetch the same JARs take each other's half-written files for whole ones."""
    kept = Path(settings.get("spark.jars.ivy") or KEPT).expanduser()
    packages = settings.get("spark.jars.packages", "").split(",")
    if all((kept / "jars" / _name_file(each)).exists() for each in packages if each):
        yield
        return
    try:
        kept.mkdir(parents=True, exist_ok=True)
        handle = os.open(kept, os.O_RDONLY)
    except OSError:  # Spark says what is wrong with the folder
        yield
        return
    try:
        with contextlib.suppress(OSError):  # a disk that knows no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _name_file(package: str) -> str:
    """How Spark names the file of `group:artifact:version`."""
    group, _, rest = package.partition(":")
    return f"{group}_{rest.replace(':', '-')}.jar"


@contextlib.contextmanager
def use_our_python() -> Iterator[None]:
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
def _divert_noise(*, connect: bool) -> Iterator[tuple[Path, int]]:
    """A file for what the JVM prints, and its open handle. It stays where Spark did not start, and where the JVM ended
    before this process; else it is removed at the end. A Connect server inherits our standard error, which is that file
    while the server starts."""
    _remove_old_noise()
    handle, name = tempfile.mkstemp(prefix=_NOISE, suffix=".log")
    sys.stderr.flush()
    kept = os.dup(2)
    if connect:
        os.dup2(handle, 2)
    try:
        yield Path(name), handle
        atexit.register(_remove_noise, Path(name), os.getpid())
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(handle)


def _remove_noise(log: Path, process: int) -> None:
    """Remove the log at the end of the process that began it, unless the JVM has failed before it."""
    jvm = find_jvm()
    if os.getpid() == process and (jvm is None or not jvm.poll()):
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


def _explain_failure(log: str, error: Exception, code: int | None) -> str:
    missing = re.findall(r":: (\S+?#\S+?;\S+?): not found", log)
    if missing:
        return (
            f"Spark's JARs could not be fetched: {', '.join(sorted(set(missing)))}. "
            f"Spark downloads them from Maven Central at its first start and keeps them in {KEPT}; check the network."
        )
    if code is None:
        return f"Spark did not start: {error}"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"Spark did not start: its JVM {how} before it was up."
