"""A process in which a function may do anything."""

from __future__ import annotations

import os
import subprocess
import sys
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


HANGING = """
import os, sys, time
from stages.python_worker import WorkerProcess

def serve(question):
    os.write(int(sys.argv[1]), b"x")
    time.sleep(3600)

WorkerProcess(serve).ask(b"", 3600)
"""
"""A program whose worker process writes a letter into a given pipe and hangs."""


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
    parent = subprocess.Popen([sys.executable, "-c", HANGING, str(there)], pass_fds=[there])
    os.close(there)
    with open(here, "rb") as letters, parent:
        assert letters.read(1) == b"x"
        parent.kill()
        assert letters.read(1) == b""


def test_an_ended_process_is_gone() -> None:
    """Ending it twice has no further effect."""
    child = WorkerProcess(echo)
    number = int(child.ask(b"", 20))
    child.end()
    child.end()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
