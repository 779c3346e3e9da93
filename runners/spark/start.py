"""Starts a Spark from this machine: its settings, its JARs, its JVM, and the file for its output."""

from __future__ import annotations

import atexit
import contextlib
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
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from origins.errors import WherryError, list_spark_errors
from origins.lazy import SparkSession, pyspark
from origins.secret import SECRET
from origins.spark_private import JvmEnded, find_jvm, forget_ended_jvm, get_jvm, launch_jvm
from origins.spark_settings import JARS
from origins.spark_versions import find_kafka_package, find_parts
from origins.store_access import make_spark_settings
from runners.model.spec import MASTER
from runners.spark.jars import KEPT, PACKAGES, check_jars, fetch_one_at_a_time, find_kept, list_local_jars
from runners.spark.quick_start import (
    OPTIONS_OF_THE_JVM,
    QuickStart,
    find_private_folder,
    find_quick_start,
    list_environment,
    make_archive_later,
)

_AMAZON = ("s3", "sts", "s3-transfer-manager", "apache-client")
"""The few JARs of Amazon's that Spark needs for S3, 18 MB. Hadoop's default is a bundle of all services, 690 MB."""

_NETTY = ("buffer", "codec", "codec-http", "codec-http2", "common", "handler", "resolver", "transport")

EXCLUDED = (
    *("software.amazon.awssdk:bundle", "com.microsoft.azure:azure-storage"),
    *("org.apache.httpcomponents:httpclient", "org.apache.httpcomponents:httpcore"),
    *("commons-codec:commons-codec", "commons-logging:commons-logging"),
    *(f"io.netty:netty-{part}" for part in (*_NETTY, "transport-classes-epoll")),
)
"""Dependencies of these packages that Spark does not need. Spark includes those from the second line on."""

_YARN, _YARN_ENVIRONMENT = "spark.yarn.", "spark.yarn.appMasterEnv."

_AT_LAUNCH = (
    *("spark.master", "spark.driver.", "spark.jars", "spark.files", "spark.archives", "spark.submit.", "spark.log."),
    *(_YARN, "spark.kerberos."),
)
"""The settings with which a JVM must be started. Spark takes all others when it starts in the JVM."""

_JARS = "spark.jars"
"""The setting to which a JVM adds the packages when it starts.

Setting it again would remove Delta from the executors.
"""

NAMES_JARS = (_JARS, PACKAGES)
"""The settings in which a definition may name JARs for stores."""

_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"

_LARGE_METHODS = "-XX:-DontCompileHugeMethods"
"""Compiles large methods too.

Spark's code for a few stages that may refuse rows soon exceeds the JVM's limit. Without compilation, it takes several
times as long.
"""

_OPTIMISED_LATER = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
"""Makes the JVM's second compiler begin after four times as many calls.

Most methods that a start calls are rarely called afterwards.
"""

_NOISE = "wherry-spark-"
"""The prefix of a JVM's unwanted files."""

_MOST_NOISE = 20
"""How many of these files are kept at most."""

_DYING = 1.0
"""For how many seconds after an error during a start Wherry waits for the end of the JVM."""

_SHORT_OF_MEMORY = (
    "Linux kills such a program if memory is short. Free some memory, or set `spark.driver.memory` under `spark.conf` "
    "to less. "
)

DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_ANYWHERE = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.log.level": "FATAL",
}
"""Settings for small batches, without Spark's progress bar beside Wherry's.

Spark's errors get no line numbers of Wherry, because recording them costs more than everything else in the description
of a batch.
"""

_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_ONE_MACHINE = {
    **_LOOPBACK,
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
}
"""Settings for few partitions, without a web page and with little history for it.

`LocalLogStore` writes the log, and a class in `list_settings` writes checksums. Both give the guarantees of the classes
that they replace. The replaced classes start a process (`readlink`) for each file on a local disk, thirty in a commit.
"""


class SparkMissing(WherryError):
    """Spark cannot be started here."""

    code = "SPARK"


_STARTS: set[object] = set()


@contextlib.contextmanager
def note_start() -> Iterator[None]:
    """Mark this block as a part of the start of a Spark."""
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
def start(conf: Mapping[str, str], packages: Sequence[str] = ()) -> SparkSession:
    """Start a session on this machine, or with its driver here on the cluster that `spark.master` names.

    Spark's output goes to a log file, which errors name.
    """
    settings, java = list_settings(conf, packages), find_java()
    quick = find_quick_start(str(java) if java else None, settings)
    is_new, is_known = False, quick is not None and quick.recipe is not None
    if not is_known:
        check_java()
    silence_loggers()
    with fetch_one_at_a_time(settings), _divert_noise() as (log, noise), use_python(settings):
        if not is_known:
            check_jars(find_kept(settings).glob("jars/*.jar"))
        try:
            is_new = _launch(settings, quick, noise)
            if is_new:
                settings.pop(_JARS, None)
            session = build_session(settings)
        except list_spark_errors(RuntimeError) as error:
            ended = forget_ended_jvm(_DYING) if is_new else None
            code = error.code if isinstance(error, JvmEnded) else ended
            hint = _SHORT_OF_MEMORY if code == -signal.SIGKILL else ""
            raise SparkMissing(
                _explain_failure(log.read_text(errors="replace"), error, code), hint=f"{hint}Spark's own words: {log}"
            ) from error
    if is_new and not is_known:
        check_jars(map(Path, list_local_jars(str(JARS.read(session, "")))))
    if quick is not None and is_new:
        _prepare_next_start(session, settings, quick)
    return session


def _launch(settings: Mapping[str, str], quick: QuickStart | None, noise: int) -> bool:
    """Start the JVM, the quick way if possible. Return False if this process already has a JVM."""
    at_launch = list_launch_settings(settings)
    if quick is not None and quick.recipe is not None:
        try:
            command = quick.build_command(at_launch)
            return launch_jvm(at_launch, _delay_interrupt(), noise, command, list_environment())
        except list_spark_errors(RuntimeError):
            quick.forget()
            check_java()
    return launch_jvm(at_launch, _delay_interrupt(), noise)


def list_launch_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which a JVM is started. The system's list of processes shows them to all users.

    So the secrets of YARN are not among them. Spark takes them, like all other settings, when it starts in the JVM.
    """
    return {
        key: value
        for key, value in settings.items()
        if key.startswith(_AT_LAUNCH)
        and not key.startswith(_YARN_ENVIRONMENT)
        and not (key.startswith(_YARN) and isinstance(value, SECRET))
    }


def _prepare_next_start(session: SparkSession, settings: Mapping[str, str], quick: QuickStart) -> None:
    """Store what this start found out.

    The archive is made after the second start, since many machines have no third one.
    """
    with contextlib.suppress(*list_spark_errors(ValueError, RuntimeError)):
        if quick.recipe is None:
            quick.learn(settings, str(JARS.read(session, "")), get_jvm(session))
        else:
            quick.note_use()
            if quick.lacks_archive:
                atexit.register(make_archive_later, quick, settings["spark.driver.memory"], os.getpid())


def build_session(settings: Mapping[str, str]) -> SparkSession:
    """Return a session with these settings, in the JVM of this process if it has one."""
    master = settings.get(MASTER, f"local[{_count_cores()}]")
    builder = pyspark.sql.SparkSession.builder.master(master).appName("wherry")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def list_store_packages() -> Mapping[str, Sequence[str]]:
    """Return the JARs for the stores of each scheme.

    Google's connector is not part of Hadoop, so a definition names it.
    """
    spark = find_parts()
    amazon = [f"software.amazon.awssdk:{part}:{spark.sdk}" for part in _AMAZON]
    s3 = [f"org.apache.hadoop:hadoop-aws:{spark.hadoop}", *amazon]
    azure = [f"org.apache.hadoop:hadoop-azure:{spark.hadoop}"]
    return {"s3a": s3, "abfs": azure, "abfss": azure}


def list_connectors(schemes: Collection[str], named: Sequence[str]) -> list[str]:
    """Return the JARs for the stores of these schemes, except for a store whose main JAR is in `named`."""
    found: dict[str, None] = {}
    for scheme in sorted(schemes):
        jars = list_store_packages().get(scheme, ())
        if jars and not any(jars[0].split(":")[1] in name for name in named):
            found.update(dict.fromkeys(jars))
    return list(found)


def list_settings(conf: Mapping[str, str], packages: Sequence[str] = ()) -> dict[str, str]:
    """Return the settings that `start` gives to a session."""
    master, spark = conf.get(MASTER, "local"), find_parts()
    here = is_one_machine(master)
    if here:
        own = {
            **_ONE_MACHINE,
            "spark.sql.streaming.checkpointFileManagerClass": spark.checkpoints,
            "spark.sql.shuffle.partitions": str(_count_cores()),
        }
    else:
        own = _LOOPBACK if _is_on_loopback(master) else {}
    s3 = any("hadoop-aws" in name for name in (*packages, *(conf.get(key, "") for key in NAMES_JARS)))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        **_ANYWHERE,
        **own,
        **_place_warehouse(conf),
        **(make_spark_settings(conf, here=here) if s3 else {}),
        **({"spark.jars.excludes": ",".join(EXCLUDED)} if PACKAGES not in conf and _are_ours(packages) else {}),
        "spark.driver.memory": f"{max(1_024, memory // (4 << 20))}m",  # one JVM does everything
        PACKAGES: ",".join([spark.delta, *packages]),
        **conf,
        OPTIONS_OF_THE_JVM: f"{_LARGE_METHODS} {_OPTIMISED_LATER} {conf.get(OPTIONS_OF_THE_JVM, '')}".strip(),
        **({} if here else {_EXECUTOR_OPTIONS: f"{_LARGE_METHODS} {conf.get(_EXECUTOR_OPTIONS, '')}".strip()}),
    }


def _place_warehouse(conf: Mapping[str, str]) -> dict[str, str]:
    """Keep the empty warehouse of a catalog in memory out of the folder in which a person works.

    If anything configures a catalog, its warehouse stays where that puts it.
    """
    folder = find_private_folder()
    if folder is None or is_set_elsewhere() or any(_CATALOG.match(key) for key in conf):
        return {}
    return {"spark.sql.warehouse.dir": f"file:{folder / 'warehouse'}"}


_CATALOG = re.compile(r"spark\.sql\.(catalog|warehouse|hive)|spark\.hadoop\.(hive|javax)|spark\.hive")


def _are_ours(packages: Sequence[str]) -> bool:
    """Whether these are exactly the JARs for stores that Wherry chooses, perhaps with Spark's own for Kafka."""
    whole = {jar for jars in list_store_packages().values() if {*jars} <= {*packages} for jar in jars}
    return bool(whole) and whole == {*packages} - {find_kafka_package()}


def is_one_machine(master: str) -> bool:
    """Whether Spark's executors are on this machine with such a master, and see its disk."""
    return master.startswith("local")


def _is_on_loopback(master: str) -> bool:
    return re.match(r"spark://(localhost|127\.[\d.]+|\[::1\])[:,]", master) is not None


def is_set_elsewhere() -> bool:
    """Whether files or variables outside the definition may configure Spark or Hadoop.

    Their settings are then not known before Spark is started.
    """
    if any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS")):
        return True
    found = importlib.util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (found and found.origin and os.path.dirname(found.origin)) or ""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"))
    return (folder / "spark-defaults.conf").exists() or any(folder.glob("*-site.xml"))


def _count_cores() -> int:
    return os.cpu_count() or 2


def find_java() -> Path | None:
    """Return the program that starts the JVM here; None if it is missing."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    return Path(java) if java and Path(java).exists() else None


def check_java() -> str:
    """Return the Java on which Spark runs here.

    Raises `SparkMissing`, with the solution, if there is no suitable Java.
    """
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
            f"Java 17 or 21 is needed, and {java} is {version}.", hint="Set JAVA_HOME to a Java 17 or 21."
        )
    return f"Java {found.group(1)} ({java})"


def silence_loggers() -> None:
    """Silence pyspark's loggers.

    They log each raised error with its Java stack, and Wherry's messages have it in one line.
    """
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _delay_interrupt() -> Iterator[None]:
    """Delay the first Ctrl-C in this block until its end.

    A JVM that is interrupted before it reports its address would keep running, since no process could end it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note_signal(number: int, frame: object) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def find_executor_python(settings: Mapping[str, str]) -> str:
    """Return the Python program for Python functions: from the environment or the settings, or else the current one.

    Other machines may not have the current one. There it is the first `python3` on their PATH.
    """
    master = settings.get(MASTER, "local")
    ours = sys.executable if is_one_machine(master) or _is_on_loopback(master) else "python3"
    return os.environ.get("PYSPARK_PYTHON") or settings.get("spark.pyspark.python", ours)


@contextlib.contextmanager
def use_python(settings: Mapping[str, str]) -> Iterator[None]:
    """Let a Spark that starts in this block use the right Python for Python functions."""
    given = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = find_executor_python(settings)
    try:
        yield
    finally:
        if given is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = given


@contextlib.contextmanager
def _divert_noise() -> Iterator[tuple[Path, int]]:
    """Give a file for what the JVM prints, and its open handle.

    The file is kept if Spark did not start, or if the JVM ended before this process. Otherwise it is removed at the
    end.
    """
    _remove_old_noise()
    handle, name = tempfile.mkstemp(prefix=_NOISE, suffix=".log")
    try:
        yield Path(name), handle
        atexit.register(_remove_noise, Path(name), os.getpid())
    finally:
        os.close(handle)


def _remove_noise(log: Path, process: int) -> None:
    """Remove the log at the end of the process that created it, unless the JVM has failed before."""
    jvm = find_jvm()
    if os.getpid() == process and (jvm is None or not jvm.poll()):
        log.unlink(missing_ok=True)


def _remove_old_noise() -> None:
    """Remove this user's oldest logs of processes that were killed or failed, so that they do not accumulate."""
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
    return f"Spark did not start: its JVM {describe_end(code)} before it was up."


def describe_end(code: int) -> str:
    """Return how a process with this exit code ended, in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
