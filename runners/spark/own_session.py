"""The session of a run, in which a definition has the same meaning as everywhere.

It is a session beside the given one, made by `newSession` or `cloneSession`. Where neither works, it is the given
session itself. Its settings are then put back at the end of the run.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import cast

from destinations.delta.lock import set_commits
from origins.errors import clean_up_by, list_spark_errors
from origins.lazy import SparkSession, spark_errors
from origins.names import declare_one_disk
from origins.spark_private import end_in_silence, keep_client_threads
from origins.spark_settings import ANSI, CASE, SETTINGS, TIME_ZONE, Setting, begin_sharing, put_back_all
from origins.spark_versions import Platform, check_given, find_platform, is_connect
from runners.model.errors import Refusal
from runners.spark.jvm_commits import JvmCommits
from runners.spark.late import LateCommits, LateSession
from runners.spark.session import find_default_scheme, is_here, note_session, reconnect
from runners.spark.start import SparkMissing

log = logging.getLogger("wherry")


def make_own_session(spark: SparkSession, time_zone: str = "UTC") -> SparkSession:
    """Return a session in which a definition has the same meaning as everywhere.

    It begins in the catalog and the database of the given session. If it is the given session itself, and a block of
    `put_settings_back` in another thread needs other settings there, that block ends first.
    """
    if isinstance(spark, LateSession):
        return _make_own_late_session(spark, time_zone)
    check_given(spark)
    wanted = {each: each.value for each in SETTINGS if each.value} | {TIME_ZONE: time_zone}
    wanted = {each: value for each, value in wanted.items() if each.can_be_touched(spark)}
    session = _make_beside(spark)
    if session is spark:
        _share(spark, wanted)
    else:
        for setting, value in wanted.items():
            _insist(session, setting, value)
    _check_case(spark, session)
    if is_connect(spark):
        if session is not spark:
            note_session(session, {setting.key: value for setting, value in wanted.items()}, of=spark)
    elif find_platform(spark) is Platform.ANY:
        set_commits(session, JvmCommits(session))
        if is_here(spark) and find_default_scheme(spark) == "file":
            declare_one_disk(session)
    return session


def _make_own_late_session(spark: LateSession, time_zone: str) -> SparkSession:
    late = LateSession(spark.late, lambda given: make_own_session(given, time_zone))
    session = cast("SparkSession", late)
    TIME_ZONE.write(session, time_zone)
    set_commits(session, LateCommits(late))
    if is_here(session) and spark.late.settings.get("spark.hadoop.fs.defaultFS", "file:").startswith("file:"):
        declare_one_disk(session)
    return session


def _make_beside(spark: SparkSession) -> SparkSession:
    """Return a session beside the given one, or the given session if there is no way to make another one."""
    if not is_connect(spark):
        return _go_to_its_place(spark.newSession(), spark)
    keep_client_threads()
    reconnect(spark)  # a server does not know a session before its first request
    if spark in _WAYS:
        return _WAYS[spark](spark)
    for make in (_start_new, _clone):
        try:
            session = make(spark)
            ANSI.read(session)  # a client may make an object that no server accepts
        except (AttributeError, TypeError, NotImplementedError):
            continue
        except list_spark_errors():
            reconnect(spark)  # raises if the server is away
            continue
        _WAYS[spark] = _WAYS[session] = make
        return session
    _WAYS[spark] = lambda given: given
    return spark


def _start_new(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    end_in_silence(session)
    return _go_to_its_place(session, spark)


def _clone(spark: SparkSession) -> SparkSession:
    session: SparkSession = spark.cloneSession()  # type: ignore[attr-defined,unused-ignore]
    # An open channel waits forever for a thread of Python if Python has ended its other threads.
    weakref.finalize(session, session.client.close)
    end_in_silence(session)
    return _go_to_its_place(session, spark)  # a clone has the database, but not another catalog


_WAYS: weakref.WeakKeyDictionary[SparkSession, Callable[[SparkSession], SparkSession]] = weakref.WeakKeyDictionary()
"""The way that has worked, by the given session. The clients of some versions have a method that raises."""


def _go_to_its_place(session: SparkSession, given: SparkSession) -> SparkSession:
    """Let a new session begin in the catalog and the database in which the given session is."""
    catalog, database = given.catalog.currentCatalog(), given.catalog.currentDatabase()
    if session.catalog.currentCatalog() != catalog:
        session.catalog.setCurrentCatalog(catalog)
    if session.catalog.currentDatabase() != database:
        session.catalog.setCurrentDatabase(database)
    return session


def _insist(session: SparkSession, setting: Setting, value: str) -> None:
    try:
        setting.write(session, value)
    except list_spark_errors() as error:
        found = setting.read(session, "") or ""
        if found.lower() != value.lower():
            raise SparkMissing(
                f"This Spark has {setting.key} = {found}, but the definition needs {value}.",
                hint="Use a session that can change this setting; with another value the rows would differ.",
            ) from error


def _check_case(given: SparkSession, session: SparkSession) -> None:
    """Raise `SparkMissing` if upper and lower case distinguish columns, and Wherry may not change that."""
    if CASE.can_be_touched(given):
        return
    if given not in _IGNORE_CASE:
        try:
            _ = session.sql("SELECT A FROM (SELECT 1 AS a)").schema
        except spark_errors.AnalysisException as error:
            raise SparkMissing(
                f"This Spark has {CASE.key} = true, but the definition needs {CASE.value}.",
                hint=f"Wherry cannot change it on {find_platform(given).value}. Use a cluster, or ask an administrator "
                "of the workspace.",
            ) from error
    _IGNORE_CASE.update((given, session))


_IGNORE_CASE: weakref.WeakSet[SparkSession] = weakref.WeakSet()
"""The sessions that were asked, and in which names differ by more than upper and lower case."""


@dataclass(eq=False)
class _Scope:
    """A block at whose end the settings of given sessions are put back."""

    sessions: set[SparkSession] = field(default_factory=set)


_SCOPE: ContextVar[_Scope | None] = ContextVar("scope", default=None)
_ENDED = threading.Condition()
_USERS: weakref.WeakKeyDictionary[SparkSession, set[_Scope]] = weakref.WeakKeyDictionary()
"""The blocks that use a given session now."""


@contextlib.contextmanager
def put_settings_back() -> Iterator[None]:
    """Put back, at the end of the outermost such block, what Wherry has changed in given sessions."""
    if _SCOPE.get() is not None:
        yield
        return
    scope = _Scope()
    before = _SCOPE.set(scope)
    with clean_up_by(functools.partial(_end, scope)):
        try:
            yield
        finally:
            _SCOPE.reset(before)


def _end(scope: _Scope) -> None:
    with _ENDED:
        for session in scope.sessions:
            users = _USERS[session]
            users.remove(scope)
            if not users:
                with contextlib.suppress(*list_spark_errors()):  # the server is away, and so are the settings
                    put_back_all(session)
        _ENDED.notify_all()


def _share(spark: SparkSession, wanted: Mapping[Setting, str]) -> None:
    """Take part in the use of a given session. Wait for the end of other blocks if they need other settings."""
    scope = _SCOPE.get()
    begin_sharing(spark)
    with _ENDED:
        users = _USERS.setdefault(spark, set())
        while scope and users - {scope} and any(setting.read(spark) != value for setting, value in wanted.items()):
            log.info("This session has other settings for another run. It is used after that run has ended.")
            _ENDED.wait()
        if scope is not None:
            users.add(scope)
            scope.sessions.add(spark)
        for setting, value in wanted.items():
            if setting.read(spark) != value:
                _insist(spark, setting, value)


@contextlib.contextmanager
def use_alone(spark: SparkSession) -> Iterator[None]:
    """Let no run begin in this session during this block, if it is a given session. Raise `Refusal` if one is there."""
    with _ENDED:
        if _USERS.get(spark, set()) - {_SCOPE.get()}:
            raise Refusal(
                "Another run works in the given session, and this command has to change a setting of it.",
                hint="Wait for the end of that run. Then try again.",
            )
        yield
