"""A Spark Connect server that was started anew knows none of its sessions: those that were made here get another one in
their place, so that a run outlives its server."""

from __future__ import annotations

import atexit
import copy
import threading
import uuid
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from origins.errors import WherryError
from runners.causes import forgotten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MADE: weakref.WeakKeyDictionary[SparkSession, Mapping[str, str]] = weakref.WeakKeyDictionary()
"""The sessions in which there is nothing but these settings."""
_ONE_AT_A_TIME = threading.Lock()

_QUICKLY, _CALMLY = (6, 4_000), (15, 10_000)
"""How often a client asks a server that is away, and after how many milliseconds at most: for some twelve seconds, and
for two minutes. By itself it asks for ten."""


class SessionForgotten(WherryError):
    """The server knows the session no more, and nobody knows all that was in it."""

    code = "SESSION"


def made(session: SparkSession, settings: Mapping[str, str], *, of: SparkSession | None = None) -> None:
    """From now on the session can be replaced by one with these settings. Where it was cloned it must be `of` such a
    session: what else is in another one is not known.

    It says within minutes that its server is away.
    """
    if of is None or of in _MADE:
        _MADE[session] = settings
        _ask(session.client, *_CALMLY)
        unbound(session)


def is_blank(session: SparkSession) -> bool:
    """Whether nobody has asked anything of the session yet, so that there is nothing in it."""
    return getattr(session.client, "_server_session_id", "") is None


def impatient(session: SparkSession) -> None:
    """Let a session that was made here say within seconds that its server is away, for whoever tries again himself."""
    if session in _MADE:
        _ask(session.client, *_QUICKLY)


def _ask(client: Any, times: int, longest: int) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]", UserWarning)  # it is an error as well
    client.set_retry_policies([DefaultPolicy(max_retries=times, max_backoff=longest)])


def unbound(session: SparkSession) -> None:
    """Let a program end with this session without asking its server once more: one that is away is asked for long."""
    ending = getattr(session.client, "_on_exit", None)  # not every client has one
    if ending is not None:
        atexit.unregister(ending)


def reconnect(session: SparkSession) -> None:
    """Give the session another one's place on the server, if the server has forgotten it. Raises `SessionForgotten`
    where it was not made here.

    Whoever has the session has it still; frames that were described before are of no use any more.
    """
    with _ONE_AT_A_TIME:
        try:
            session.conf.get("spark.sql.ansi.enabled")
        except Exception as error:
            if not forgotten(error):
                raise
            _replace(session, error)


def _replace(session: SparkSession, error: Exception) -> None:
    if session not in _MADE:
        raise SessionForgotten(
            "The Spark Connect server knows the session no more that it was given: it was started anew, or has ended "
            "a session that was idle.",
            hint="What was in the session (settings, views, functions) is gone, so nothing is carried in another one "
            "unasked. Make a session again and run again: the next run looks first at what is open.",
        ) from error
    from pyspark.sql.connect.conf import RuntimeConf

    connection = copy.deepcopy(session.client._builder)
    connection.set(connection.PARAM_SESSION_ID, str(uuid.uuid4()))
    client = type(session.client)(connection, user_id=session.client._user_id)
    _ask(client, *_CALMLY)
    for key, value in _MADE[session].items():
        RuntimeConf(client).set(key, value)
    RuntimeConf(client).get("spark.sql.ansi.enabled")  # a server knows no session that has asked it for nothing yet
    weakref.finalize(session, client.close)
    session._client, session._session_id = client, client._session_id  # type: ignore[attr-defined,unused-ignore]
    unbound(session)
