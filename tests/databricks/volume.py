"""A folder that behaves as a volume of Databricks for the processes that get `make_volume_environment`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("volume.c")


def compile_library(folder: Path) -> Path:
    """Compile the library that is preloaded. Skip the test where there is no compiler for Linux."""
    if shutil.which("cc") is None or not Path("/proc/self/fd").is_dir():
        pytest.skip("a volume needs Linux and a C compiler")
    library = folder / "volume.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def make_volume_environment(library: Path, volume: Path, *, locks: bool = True, now: str = "") -> dict[str, str]:
    """Return the variables of a process for which a folder is a volume. Without `locks`, `flock` is refused there.

    `now` is `full` if no file can grow there, or `read-only`.
    """
    there = {"LD_PRELOAD": str(library), "VOLUME": str(volume), "VOLUME_IS": now}
    return there if locks else {**there, "VOLUME_WITHOUT_LOCKS": "1"}
