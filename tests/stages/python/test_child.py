"""A process in which a function may do anything."""

from __future__ import annotations

import os
import signal
import time

import pytest

from stages.python_worker import WorkerLost, WorkerProcess


def echo(question: bytes) -> bytes:
    """Return the question and the number of this process, or end the process."""
    if question == b"die":
        os._exit(3)
    if question == b"hang":
        time.sleep(3600)
    return question + str(os.getpid()).encode()


@pytest.mark.promise("HP-15")
def test_a_lost_process_is_started_again() -> None:
    """The new process answers as usual. A living process is kept."""
    child = WorkerProcess(echo)
    first, again = child.ask(b"a", 20), child.ask(b"a", 20)
    for question, seconds in ((b"die", 20), (b"hang", 0.05)):
        with pytest.raises(WorkerLost):
            child.ask(question, seconds)
    later = child.ask(b"a", 20)
    child.end()
    assert first == again != later


def test_a_process_ends_with_its_parent() -> None:
    """It ends even if it hangs and the parent is killed."""
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


def test_an_ended_process_is_gone() -> None:
    """Ending it twice has no further effect."""
    child = WorkerProcess(echo)
    number = int(child.ask(b"", 20))
    child.end()
    child.end()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
