"""Fetch the JARs for the servers of tests from Maven once, into the cache of the tests."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wherry-tests"


@contextlib.contextmanager
def fetch_once(folder: Path) -> Iterator[bool]:
    """Yield whether the folder must be filled. Other processes wait meanwhile. The folder counts as whole if the block
    ends without an error."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        missing = not (folder / "whole").exists()
        yield missing
        (folder / "whole").touch()
    finally:
        os.close(handle)


def copy_jars(folder: Path, name: str, packages: Sequence[str], *, alone: bool) -> None:
    """Copy the JARs of these packages into a folder. The JARs of their dependencies are copied too, unless `alone` is
    set."""
    every = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    parts = ""
    for group, artifact, version in (package.split(":") for package in packages):
        known = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        parts += f"<dependency>{known}{every if alone else ''}</dependency>"
    head = "<modelVersion>4.0.0</modelVersion><groupId>wherry</groupId><artifactId>tests</artifactId>"
    file = folder / f"{name}.xml"
    file.write_text(f"<project>{head}<version>1</version><dependencies>{parts}</dependencies></project>")
    options = ["-q", "-B", "-f", str(file), "dependency:copy-dependencies", f"-DoutputDirectory={folder / name}"]
    done = subprocess.run(["mvn", *options], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"Maven could not fetch the JARs of {name}:\n{done.stdout}{done.stderr}")


def say_why_not(server: str, folder: Path) -> str | None:
    """Return why the server cannot run here, or None if it can."""
    missing = [each for each in ("java", "mvn") if shutil.which(each) is None]
    if not missing or (missing == ["mvn"] and (folder / "whole").exists()):
        return None
    return f"{server} needs {' and '.join(missing)}: install Java 17 or 21, and Maven, which fetches it"


def skip_without(server: str, folder: Path) -> None:
    """Skip the test if the server cannot run here. In CI, do not skip it, so that it fails."""
    why = say_why_not(server, folder)
    if why and not os.environ.get("CI"):
        pytest.skip(why)
