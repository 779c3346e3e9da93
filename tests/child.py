"""A server of a test's own: a process that ends with the one that started it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

WHERRY = (sys.executable, "-c", "from runners.command_line.cli import main; main()")
"""The command, in a process of its own."""
LONGEST = 300.0
"""Seconds that a server may take to start on a busy machine."""


class Child:
    """A program that was started. Linux kills it when the thread that started it ends, in whichever way."""

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
        """What the log has said of this pattern. Raises `RuntimeError` with the log where it never does."""
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
        """What it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill it, and return once it is gone."""
        self._process.kill()
        self._process.wait()


def run(
    command: Sequence[str], env: Mapping[str, str], seconds: float = 2 * LONGEST
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. It is killed after so many seconds, and when the thread that started it ends."""
    return subprocess.run(
        [*tie(), *command], capture_output=True, text=True, env=dict(env), timeout=seconds, check=False
    )


def list_descendants(pid: int) -> list[int]:
    """The processes below this one, those nearest to it first."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = list(parents.get(pid, []))
    for each in found:
        found += parents.get(each, [])
    return found


def tie() -> list[str]:
    """Words before a command that tie its life to ours."""
    return ["setpriv", "--pdeathsig", "KILL"] if sys.platform == "linux" and shutil.which("setpriv") else []


def clean_environment(**others: str) -> dict[str, str]:
    """This process's environment without what it says about Spark, and with these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "AWS_"))}
    return {**kept, **others}
