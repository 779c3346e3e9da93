"""The process of a command: what it prints on a signal, its exit code, and its end soon after a forced stop."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

FAILED = 1
WRONG = 2
"""The definition or the call is wrong."""
STOPPED = 3
"""Stopped before the end."""
OWNED = 4
"""Another run owns the pipeline."""
INTERRUPTED = 130
BROKEN_PIPE = 141

BY_CODE = {
    **dict.fromkeys(("DEFINITION", "STAGE", "AGGREGATE", "REFUSED"), WRONG),
    **dict.fromkeys(("INVALID", "NOT_FOUND", "FORBIDDEN", "UNAUTHENTICATED"), WRONG),
    "OWNED": OWNED,
}
"""The exit code by the code of an error. Any other error is a failure."""
BY_STATUS = {"succeeded": 0, "stopped": STOPPED, "failed": FAILED}
"""The exit code by how a run ended."""

_OWN = threading.Event()
"""Is set if this process has nothing to do but the command."""
_LEFT = "The process ends, although work of the stopped run goes on. The next run finishes its open batches first.\n"


def own_process() -> None:
    """Note that this process has nothing to do but the command, so that a forced stop may end it."""
    _OWN.set()


def print_stacks_on_signal() -> None:
    """Print the stacks of all threads on standard error on each SIGUSR1, also while one of them hangs in a library.

    A thread does it while no other thread runs Python. `faulthandler.register` does not wait for that: a thread that
    changes its stack meanwhile may crash the process.
    """
    number = getattr(signal, "SIGUSR1", None)
    if number is None:
        return
    numbers, wakeup = os.pipe()
    os.set_blocking(wakeup, False)

    def print_stacks() -> None:
        while came := os.read(numbers, 1):
            if came[0] == number:
                with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:  # a slow reader stops no thread
                    faulthandler.dump_traceback(file, all_threads=True)
                    file.seek(0)
                    os.write(2, file.read())

    threading.Thread(target=print_stacks, name="wherry-stacks", daemon=True).start()
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(number, lambda *_: None)


def end_process(code: int) -> None:
    """End this process with this exit code, after its threads, its exit handlers and its output are done.

    Libraries keep native threads until the end, with or without a JVM: deltalake up to dozens (`tokio-rt-worker`),
    pyarrow some without a name, and both those of their allocator (`jemalloc_bg_thd`). Nothing can end them. While
    Python takes itself apart, such a thread may crash the process, and the exit code would be wrong.
    """
    with contextlib.suppress(KeyboardInterrupt):
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 -- Python has no public way to wait for them
        atexit._run_exitfuncs()  # noqa: SLF001 -- nor to call the handlers
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # the reader may have gone
            stream.flush()
    os._exit(code)


@contextlib.contextmanager
def end_in_time() -> Iterator[Callable[[], None]]:
    """Give a function after which this process ends within seconds, if it has nothing to do but the command.

    A signal handler may call it. The process normally ends before that. It does not if a call of a library never
    returns, since no Python code can interrupt that.
    """
    from runners.running.stop import ENDED

    asked: queue.SimpleQueue[str] = queue.SimpleQueue()  # a signal handler may put something into it

    def leave() -> None:
        if asked.get() == "leave":
            time.sleep(ENDED)
            os.write(2, _LEFT.encode())
            os._exit(STOPPED)

    if _OWN.is_set():
        threading.Thread(target=leave, name="wherry-leave", daemon=True).start()
    try:
        yield lambda: asked.put("leave")
    finally:
        asked.put("stay")


def is_interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt caused the error. A Spark that is interrupted during a call raises other errors."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
