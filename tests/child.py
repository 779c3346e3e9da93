"""Start the servers of a test as processes that end with the test's process."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

WHERRY = (sys.executable, "-c", "from runners.command_line.cli import main; main()")
"""The command line of Wherry, run in a separate process."""
LONGEST = 300.0
"""The longest time in seconds that a server may take to start on a busy machine."""


class Child:
    """A program that a test started. On Linux, the kernel kills it when the thread that started it ends for any
    reason."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*tie(), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
            )
        self.pid = self._process.pid

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match of this pattern in the log. Raise `RuntimeError` with the log if there is no match in
        time."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            ended = not self.is_alive()
            found = re.search(pattern, self.read_log())
            if found:
                return found
            if ended:
                break
            time.sleep(0.05)
        how = f"has said nothing for {LONGEST:.0f} s" if self.is_alive() else f"ended with {self._process.returncode}"
        self.end()
        raise RuntimeError(f"{self.log.name} {how}, and {pattern!r} was expected. Its log:\n{self.read_log()}")

    def read_log(self) -> str:
        """Return what the program has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def is_alive(self) -> bool:
        """Whether the program is still running."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the program and wait until it has ended."""
        self._process.kill()
        self._process.wait()


def run(
    command: Sequence[str], env: Mapping[str, str], seconds: float = 2 * LONGEST
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. It is killed after this many seconds, or when the thread that started it ends."""
    return subprocess.run(
        [*tie(), *command], capture_output=True, text=True, env=dict(env), timeout=seconds, check=False
    )


def list_descendants(pid: int) -> list[int]:
    """Return the processes below this one. The nearest descendants come first."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = list(parents.get(pid, []))
    for each in found:
        found += parents.get(each, [])
    return found


def tie() -> list[str]:
    """Return the words to put before a command so that the kernel kills it when its parent thread ends."""
    return ["setpriv", "--pdeathsig", "KILL"] if sys.platform == "linux" and shutil.which("setpriv") else []


def clean_environment(**others: str) -> dict[str, str]:
    """Return the environment of this process without the variables of Spark and AWS, plus the given variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "AWS_"))}
    return {**kept, **others}


def find_free_ports(count: int) -> list[int]:
    """Return ports of the loopback address at which no server listens.

    They are below the ports that the system gives to connections. So no connection takes one before its server begins.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    return [
        *itertools.islice(filter(_is_free, random.SystemRandom().sample(range(10_000, below), below - 10_000)), count)
    ]


def _is_free(port: int) -> bool:
    with socket.socket() as tried, contextlib.suppress(OSError):
        tried.bind(("127.0.0.1", port))
        return True
    return False
