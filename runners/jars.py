"""The JARs that Spark fetches from Maven Central at its first start on a machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

KEPT = "~/.ivy2.5.2"
"""Where Spark keeps them, if it is not told otherwise."""


@contextlib.contextmanager
def fetched_by_one(settings: Mapping[str, str]) -> Iterator[None]:
    """A start of Spark with these settings. One that may have to fetch JARs waits until no other one does: two that
    fetch the same JARs take each other's half-written files for whole ones."""
    kept = Path(settings.get("spark.jars.ivy") or KEPT).expanduser()
    packages = settings.get("spark.jars.packages", "").split(",")
    if all((kept / "jars" / _file(each)).exists() for each in packages if each):
        yield
        return
    try:
        kept.mkdir(parents=True, exist_ok=True)
        handle = os.open(kept, os.O_RDONLY)
    except OSError:  # Spark says what is wrong with the folder
        yield
        return
    try:
        with contextlib.suppress(OSError):  # a disk that knows no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _file(package: str) -> str:
    """How Spark names the file of `group:artifact:version`."""
    group, _, rest = package.partition(":")
    return f"{group}_{rest.replace(':', '-')}.jar"
