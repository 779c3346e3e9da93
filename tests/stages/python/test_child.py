"""A process in which a function may do as it likes."""

from __future__ import annotations

import os
import signal
import time

import pytest

from stages.python_worker import WorkerLost, WorkerProcess


def echo(question: bytes) -> bytes:
    """The same; or the end."""
    if question == b"die":
        os._exit(3)
    if question == b"hang":
        time.sleep(3600)
    return question + str(os.getpid()).encode()


@pytest.mark.promise("HP-15")
def test_a_process_that_was_lost_is_made_anew() -> None:
    """And asked as if nothing had been; while it lives, it is the same one."""
    child = WorkerProcess(echo)
    first, again = child.ask(b"a", 20), child.ask(b"a", 20)
    for question, seconds in ((b"die", 20), (b"hang", 0.05)):
        with pytest.raises(WorkerLost):
            child.ask(question, seconds)
    later = child.ask(b"a", 20)
    child.end()
    assert first == again != later


def test_a_process_ends_with_the_one_that_asks_it() -> None:
    """Though it hangs, and though that one is killed."""
    here, there = os.pipe()
    asking = os.fork()
    if asking == 0:

        def serve(question: bytes) -> bytes:
            os.write(there, b"x")
            time.sleep(3600)
            return question

        WorkerProcess(serve).ask(b"hang", 3600)
    os.close(there)
    assert os.read(here, 1) == b"x"
    os.kill(asking, signal.SIGKILL)
    os.waitpid(asking, 0)
    assert os.read(here, 1) == b""
    os.close(here)


def test_a_process_that_is_not_needed_any_more_is_gone() -> None:
    """Twice is once."""
    child = WorkerProcess(echo)
    number = int(child.ask(b"", 20))
    child.end()
    child.end()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
