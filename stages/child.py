"""A process beside this one, in which a function may raise, hang or die."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe

_DYING = 2.0
"""So many seconds may pass between the moment at which a process lets go of its pipe and its end."""


class Lost(Exception):
    """The process has died, or did not answer in time."""


class Child:
    """Asks `serve` in a process of its own, which is forked when it is first asked and again after it was lost.

    It ends with this process, whatever it does then.
    """

    def __init__(self, serve: Callable[[bytes], bytes]) -> None:
        self._serve = serve
        self._process = 0
        self._pipe: Connection | None = None
        self._life = -1

    def ask(self, question: bytes, seconds: float) -> bytes:
        """What `serve` answers. Raises `Lost` if there is no answer within so many seconds, or never will be."""
        pipe = self._pipe or self._begin()
        try:
            pipe.send_bytes(question)
            if pipe.poll(seconds):
                return pipe.recv_bytes()
        except (EOFError, OSError):
            raise Lost(f"ended its process ({self.end(patience=_DYING)})") from None
        self.end()
        raise Lost(f"did not come back within {seconds:g} s")

    def end(self, *, patience: float = 0.0) -> str:
        """End the process, which has so many seconds to end by itself; how it ended, in words."""
        if self._pipe is None:
            return ""
        last = time.monotonic() + patience
        ended, status = os.waitpid(self._process, os.WNOHANG)
        while not ended and time.monotonic() < last:
            time.sleep(0.002)
            ended, status = os.waitpid(self._process, os.WNOHANG)
        if not ended:
            os.kill(self._process, signal.SIGKILL)
            _, status = os.waitpid(self._process, 0)
        self._pipe.close()
        os.close(self._life)
        self._pipe = None
        code = os.waitstatus_to_exitcode(status)
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _begin(self) -> Connection:
        here, there = Pipe()
        living, life = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # nothing else runs here while a function is asked
            process = os.fork()
        if process == 0:
            try:
                here.close()
                os.close(life)
                self._work(there, living)
            finally:
                os._exit(70)
        there.close()
        os.close(living)
        self._process, self._pipe, self._life = process, here, life
        return here

    def _work(self, pipe: Connection, living: int) -> None:
        def follow() -> None:
            os.read(living, 1)
            os._exit(0)

        os.dup2(2, 1)
        threading.Thread(target=follow, daemon=True).start()
        while True:
            pipe.send_bytes(self._serve(pipe.recv_bytes()))
