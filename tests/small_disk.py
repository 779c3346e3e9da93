"""Provide a small disk that a test may fill or make read-only. It needs the right to mount a file system."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class SmallDisk:
    """A file system in memory, mounted in a folder."""

    folder: Path

    def fill(self) -> None:
        """Fill the disk until no space is left."""
        filler = os.open(self.folder / "filler", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(filler, bytes(4096)):
                pass
        os.close(filler)

    def empty(self) -> None:
        """Free the space that `fill` used."""
        (self.folder / "filler").unlink()

    def resize(self, size: str) -> None:
        """Make the disk larger, or smaller down to the size of its contents."""
        _mount("-o", f"remount,size={size}", str(self.folder))

    def read_only(self) -> None:
        """Make the disk read-only."""
        _mount("-o", "remount,ro", str(self.folder))

    def writable(self) -> None:
        """Make the disk writable again."""
        _mount("-o", "remount,rw", str(self.folder))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Provide a disk of 4 MiB. The test is skipped unless it runs as root and the disk can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.decode().strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)
