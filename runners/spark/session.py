"""The Spark session of a run: the existing session, or a local session that Wherry starts.

If a Spark Connect server has lost the session, Wherry makes another one. Only this file uses what classic Spark has and
Spark Connect lacks; `spark_private.py` accesses it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from origins.errors import WherryError, list_spark_errors
from origins.gone import describe_gone
from origins.lazy import F, SparkSession, pyspark, spark_errors
from origins.object_store import check_credentials
from origins.spark_private import (
    end_in_silence,
    find_jvm_number,
    get_hadoop_settings,
    has_context,
    is_unasked,
    make_client,
    put_client,
)
from origins.spark_settings import ANSI, CASE, CATALOG, CATALOG_KIND, DEFAULT_CATALOG, LOCAL_FOLDERS, read_all
from origins.spark_versions import check_client, check_pyspark_of_databricks, check_start, is_connect, is_on_databricks
from origins.store_access import StoreUrl, canonicalise, is_store_url
from runners.model.error_kinds import classify
from runners.model.spec import MASTER, PipelineSpec, SparkOptions
from runners.model.text import summarise_error
from runners.spark.late import LateSession, LateSpark
from runners.spark.start import (
    DELTA_CATALOG,
    NAMES_JARS,
    SparkMissing,
    is_one_machine,
    is_set_elsewhere,
    list_connectors,
    list_settings,
    silence_loggers,
    start,
)

log = logging.getLogger("wherry")


def obtain(options: SparkOptions | None = None) -> SparkSession:
    """Return the active session, the session of `SPARK_REMOTE` or spark-submit, or else a new session with Delta.

    The new session is on this machine, or on the cluster that the options name. It starts its JVM when it is first
    used.
    """
    if os.environ.get(_WARM):
        _log_gone(_WARM)
    options = options or SparkOptions()
    conf, packages = options.settings, options.packages
    if is_given() or is_set_elsewhere():
        is_ours = not is_given()
        session = obtain_now(conf, packages)
        if not is_ours:
            _warn_of_ignored(session, conf, packages)
        return session
    check_start()
    late = LateSpark(
        lambda: obtain_now(conf, packages),
        {**list_settings(conf, packages), ANSI.key: ANSI.value, CASE.key: CASE.value},
    )
    return cast("SparkSession", LateSession(late, lambda given: given))


def _warn_of_ignored(spark: SparkSession, conf: Mapping[str, str], packages: Sequence[str]) -> None:
    """Warn of the settings of a definition that a given session does not have, as far as it may be asked."""
    known = read_all(spark) or {}
    started = list_settings(conf, packages) if known else {}
    ignored = [key for key, value in conf.items() if known.get(key, "") not in (value, started.get(key))]
    if ignored:
        _log_ignored(", ".join(sorted(ignored)))


@functools.cache
def _log_ignored(keys: str) -> None:
    """Log once for a process which settings do not count."""
    log.warning("The Spark session was given, so these settings of `spark` do not count: %s.", keys)


_WARM = "WHERRY_WARM"


@functools.cache
def _log_gone(variable: str) -> None:
    """Log once for a process that a variable of the environment is gone."""
    log.warning("%s %s", variable, describe_gone(variable))


def obtain_for(pipeline: PipelineSpec) -> SparkSession:
    """Return the same session, with the pipeline's settings and the JARs for the object stores that it names."""
    return obtain(dataclasses.replace(pipeline.spark, packages=list_packages(pipeline)))


def list_packages(pipeline: PipelineSpec) -> list[str]:
    """Return the JARs that Wherry's Spark needs beside Delta: those that the pipeline names, and those for stores."""
    schemes = {canonicalise(place).partition(":")[0] for place in _list_stores(_list_parts(pipeline))}
    given, conf = list(pipeline.spark.packages), pipeline.spark.conf
    return [*given, *list_connectors(schemes, [*given, *(conf.get(key, "") for key in NAMES_JARS)])]


def check_store_access(pipeline: PipelineSpec) -> None:
    """Raise `StoreError` if a Spark that Wherry starts would have no credentials for a store of the pipeline."""
    if is_given() or is_set_elsewhere():
        return
    buckets: dict[str, StoreUrl] = {}
    for place in _list_stores(_list_parts(pipeline)):
        settings = {**pipeline.spark.settings, **getattr(place, "settings", {})}
        bucket = "/".join(canonicalise(place).split("/")[:3])
        buckets.setdefault(bucket, StoreUrl(place, settings))
    for place in buckets.values():
        check_credentials(place)


def _list_parts(pipeline: PipelineSpec) -> Sequence[object]:
    return pipeline.state, pipeline.given_origins, pipeline.stages, pipeline.destinations, pipeline.dlq


def _list_stores(value: object) -> list[str]:
    """Return the places in object stores that are named anywhere in a value."""
    return [text for text in list_texts(value) if is_store_url(text)]


def list_texts(value: object) -> list[str]:
    """Return the texts anywhere in a value."""
    if isinstance(value, str):
        return [value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner: Iterable[object] = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        inner = value.values()
    else:
        inner = value if isinstance(value, list | tuple) else ()
    return [text for each in inner for text in list_texts(each)]


def obtain_now(conf: Mapping[str, str], packages: Sequence[str] = ()) -> SparkSession:
    """Return the same session, started."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(
            "Spark is not installed in this environment.", hint='Install it with:  pip install "wherry[spark]"'
        ) from error
    check_client()
    found = _find_active()
    if found is not None:
        return found
    if is_on_databricks():
        check_pyspark_of_databricks()
        return SparkSession.builder.getOrCreate()
    if os.environ.get("SPARK_REMOTE") or "PYSPARK_GATEWAY_PORT" in os.environ:
        silence_loggers()
        session = SparkSession.builder.getOrCreate()
        return _greet_server(session) if is_connect(session) and is_unasked(session) else session
    check_start()
    return start(conf, packages)


def _greet_server(session: SparkSession) -> SparkSession:
    """Return the session of a remote server, after the server has answered."""
    note_session(session, {})
    make_impatient(session)
    try:
        ANSI.read(session)
    except list_spark_errors() as error:
        session.client.close()
        raise SparkMissing(
            f"The Spark Connect server that SPARK_REMOTE names does not answer: {summarise_error(error)}.",
            hint="Check the address, and that the server is running. Then run again.",
        ) from error
    note_session(session, {})
    return session


def is_given() -> bool:
    """Whether there is a Spark to use, so that Wherry starts none. It imports pyspark only if that is necessary."""
    if os.environ.get("SPARK_REMOTE") or "PYSPARK_GATEWAY_PORT" in os.environ:
        return importlib.util.find_spec("pyspark") is not None
    if has_context() or is_on_databricks():
        return True
    if "pyspark.sql" not in sys.modules:
        return False
    return _find_active() is not None


def _find_active() -> SparkSession | None:
    """Return the session that this process uses; None if there is none.

    A session of Spark Connect is active only in the thread that made it. Other threads find it as the default one.
    """
    found = pyspark.sql.SparkSession.getActiveSession()
    if found is None and pyspark.sql.utils.is_remote():
        with contextlib.suppress(spark_errors.PySparkRuntimeError):
            return pyspark.sql.SparkSession.active()
    return found


def list_forgotten_tables(spark: SparkSession, tables: Sequence[str]) -> list[str]:
    """Return the tables that this Spark loses at a restart, because its catalog is in memory."""
    default = DEFAULT_CATALOG.read(spark, "spark_catalog")
    kept = CATALOG_KIND.read(spark, "in-memory") != "in-memory"
    ours = CATALOG.read(spark, "") == DELTA_CATALOG
    if kept or not ours:
        return []
    return [each for each in tables if (each.split(".")[0] if each.count(".") > 1 else default) == "spark_catalog"]


def find_default_scheme(spark: SparkSession) -> str:
    """Return the scheme of a path without a scheme, for a classic Spark."""
    place = get_hadoop_settings(spark).get("fs.defaultFS")
    return str(place).partition(":")[0]


def get_session_identity(spark: SparkSession) -> object:
    """Return an object that changes when the session gets another session's place on its server."""
    return spark.client if is_connect(spark) else None


def is_here(spark: SparkSession) -> bool:
    """Whether Spark surely runs on this machine, and finds what this process writes to its disk."""
    if isinstance(spark, LateSession):
        return is_one_machine(spark.late.settings.get(MASTER, "local"))
    return not is_connect(spark) and not is_on_databricks() and is_one_machine(find_master(spark))


def find_master(spark: SparkSession) -> str:
    """Return the machine or the cluster on which a classic Spark works, as `spark.master` names it."""
    return str(spark.sparkContext.master)


def count_slots(spark: SparkSession) -> int:
    """Return how many tasks a classic Spark works on at a time by default."""
    return int(spark.sparkContext.defaultParallelism)


def is_late(spark: SparkSession) -> bool:
    """Whether the JVM of this session has not been started yet."""
    return isinstance(spark, LateSession) and not spark.late.is_up


@contextlib.contextmanager
def give_up_waiting(spark: SparkSession, group: str, stops: Callable[[], bool]) -> Iterator[None]:
    """In this block, let work of groups with this prefix stop waiting for a starting Spark once `stops` is true."""
    gives_up = spark.late.gives_up if isinstance(spark, LateSession) else {}
    gives_up[group] = stops
    try:
        yield
    finally:
        del gives_up[group]


def start_ahead(spark: SparkSession) -> None:
    """Start the JVM of this session in another thread, for work that will need it."""
    if isinstance(spark, LateSession):
        spark.late.start_ahead()


def stop(spark: SparkSession) -> None:
    """End this Spark, if it was started."""
    if not is_late(spark):
        spark.stop()


def is_alive(spark: SparkSession) -> bool:
    """Whether this Spark still answers. A restarted server counts, and so does a Spark that was not started yet."""
    if is_late(spark):
        return True
    try:
        if is_connect(spark):
            reconnect(spark)
        return bool(spark.range(1).count() == 1)
    except _list_gone_errors(WherryError):
        return False


def check_alive(spark: SparkSession) -> None:
    """Return as soon as the JVM of this Spark answers, in well under a millisecond. A frozen JVM does not answer.

    A remote server is not asked. It may be away for a while, and its runs continue.
    """
    if not is_connect(spark):
        with contextlib.suppress(*_list_gone_errors()):  # a JVM that has ended also raises in the code that uses it
            ANSI.read(spark)


def _list_gone_errors(*also: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors of a Spark that has ended. pyspark also raises errors of its code for a stopped context."""
    return list_spark_errors(AssertionError, AttributeError, *also)


def measure_clock_offset(spark: SparkSession) -> float:
    """Return how many seconds Spark's clock is ahead of this machine's, minus the time that the question took."""
    ((micros,),) = spark.range(1).select(F.unix_micros(F.current_timestamp())).collect()
    return float(micros / 1_000_000 - time.time())


def list_local_folders(spark: SparkSession) -> Sequence[str]:
    """Return the folders of this machine for shuffled and spilled data, as far as Spark reports them."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "")
    with contextlib.suppress(*list_spark_errors()):  # a Spark that has ended does not report them
        given = given or LOCAL_FOLDERS.read(spark, "") or ""
    return [folder for folder in given.split(",") if folder]


def find_jvm_process(spark: SparkSession) -> int | None:
    """Return the id of the JVM's process, if this Python process started or borrowed the JVM; else None."""
    return None if is_connect(spark) or is_late(spark) else find_jvm_number()


_MADE: weakref.WeakKeyDictionary[SparkSession, Mapping[str, str]] = weakref.WeakKeyDictionary()
"""The sessions that have only these settings."""
_ONE_AT_A_TIME = threading.Lock()

_QUICKLY, _CALMLY = (6, 4_000), (15, 10_000)
"""How often a client asks a server that is away, and the longest pause in milliseconds.

The first pair takes about twelve seconds, the second two minutes. By default a client asks for ten minutes.
"""


class SessionForgotten(WherryError):
    """The server no longer has the session, and its content is unknown."""

    code = "SESSION"


def note_session(session: SparkSession, settings: Mapping[str, str], *, of: SparkSession | None = None) -> None:
    """Record that a session with these settings can replace this one.

    If the session was cloned, it must be a clone `of` such a session, because the content of others is unknown. From
    now on the session reports within minutes that its server is away.
    """
    if of is None or of in _MADE:
        _MADE[session] = settings
        _ask(session.client, *_CALMLY)
        end_in_silence(session)


def make_impatient(session: SparkSession) -> None:
    """Let a session of Wherry fail within seconds if its server is away, for callers that retry."""
    if session in _MADE:
        _ask(session.client, *_QUICKLY)


def _ask(client: Any, times: int, longest: int) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]", UserWarning)  # it is also raised as an error
    client.set_retry_policies([DefaultPolicy(max_retries=times, max_backoff=longest)])


def reconnect(session: SparkSession) -> None:
    """Give the session a new place on the server, if the server forgot it.

    Raises `SessionForgotten` if Wherry did not make the session. The session object stays the same. Frames that were
    described before are useless.
    """
    with _ONE_AT_A_TIME:
        try:
            ANSI.read(session)
        except list_spark_errors() as error:
            if not classify(error).is_session_lost:
                raise
            _replace(session, error)


def _replace(session: SparkSession, error: Exception) -> None:
    if session not in _MADE:
        raise SessionForgotten(
            "The Spark Connect server no longer has the given session: the server was restarted, or it ended an idle "
            "session.",
            hint="Settings, views and functions of the session are lost, so Wherry does not use another one. Create a "
            "session and run again: the next run finishes open batches first.",
        ) from error
    from pyspark.sql.connect.conf import RuntimeConf

    client = make_client(session)
    _ask(client, *_CALMLY)
    for key, value in _MADE[session].items():
        RuntimeConf(client).set(key, value)
    RuntimeConf(client).get(ANSI.key)  # a server does not know a session before its first request
    put_client(session, client)
    end_in_silence(session)
