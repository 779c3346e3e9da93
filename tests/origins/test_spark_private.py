"""A thread that waits for the JVM gets an error in place of an answer, if another thread wants that."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
from collections.abc import Iterator

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError

from origins.spark_private import cut_calls, keep_client_threads, keep_connection, list_frames


class SilentJvm:
    """A server in place of a JVM. It takes calls, and answers when a test lets it."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        port = self._server.getsockname()[1]
        python = PythonParameters(port=0, eager_load=False)
        self.gateway = ClientServer(java_parameters=JavaParameters(port=port), python_parameters=python)
        self.outcomes: list[str] = []
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []

    def begin(self, *, keep: bool = False) -> tuple[threading.Thread, socket.socket]:
        """Let a thread call the JVM. Return the thread and its connection once the call has arrived."""

        def call() -> None:
            with keep_connection() if keep else contextlib.nullcontext():
                try:
                    self.outcomes.append(str(self.gateway.jvm.java.lang.System.nanoTime()))
                except (Py4JError, OSError) as error:
                    self.outcomes.append(type(error).__name__)

        thread = threading.Thread(target=call, daemon=True)
        self._threads.append(thread)
        thread.start()
        self._server.settimeout(60)
        connection, _ = self._server.accept()
        connection.settimeout(60)
        connection.recv(1)
        self._connections.append(connection)
        return thread, connection

    def has_other_call(self) -> bool:
        """Whether another connection waits to be accepted."""
        self._server.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._server.accept()
            return True
        return False

    def close(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.close()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def jvm() -> Iterator[SilentJvm]:
    """Provide a JVM that does not answer."""
    silent = SilentJvm()
    yield silent
    silent.close()


def test_a_call_is_cut_and_not_sent_again(jvm: SilentJvm, caplog: pytest.LogCaptureFixture) -> None:
    """The thread gets an error, and nothing is logged. A second call would do the work twice."""
    thread, _ = jvm.begin()
    cut_calls([thread.ident or 0])
    thread.join(60)
    assert not thread.is_alive()
    assert jvm.outcomes in (["Py4JError"], ["Py4JNetworkError"])
    assert not jvm.has_other_call()
    assert not caplog.records


def test_only_the_named_threads_are_cut_and_none_that_keeps_its_connection(jvm: SilentJvm) -> None:
    """Such a thread may own a lock in the JVM."""
    other, _ = jvm.begin()
    keeper, connection = jvm.begin(keep=True)
    cut_calls([keeper.ident or 0])
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while chunk := connection.recv(100):
            pass
        assert chunk, "the connection is closed"
    assert other.is_alive()
    assert keeper.is_alive()
    assert jvm.outcomes == []


def test_garbage_is_collected_again_after_frames_are_listed() -> None:
    """It is not collected meanwhile, since an object could then wait for a lock of Python for ever."""
    frames = list_frames()
    caller = frames[threading.get_ident()].f_back
    assert caller is not None
    assert caller.f_code.co_name == "test_garbage_is_collected_again_after_frames_are_listed"
    assert gc.isenabled()


def test_a_connect_client_works_after_one_of_its_threads_closed_a_session() -> None:
    """Python may collect a session in any thread. Only clients before Spark 4.2 need help then."""
    reattach = pytest.importorskip("pyspark.sql.connect.client.reattach")
    calls = reattach.ExecutePlanResponseReattachableIterator
    if not hasattr(calls, "shutdown"):
        pytest.skip("this client does not wait for its threads")
    keep_client_threads()
    threads = calls._get_or_create_release_thread_pool()
    threads.submit(calls.shutdown).result()
    assert calls._get_or_create_release_thread_pool() is threads
    assert threads.submit(int).result() == 0
