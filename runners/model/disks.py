"""How full disks are, in words for the person who has to make room."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from origins.names import SCHEME

_LITTLE = 0.02
"""A disk with a smaller share of room is taken for full: what failed to be written may be gone meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A file system of this machine."""

    mount: str
    free: int
    """How many bytes this user may still write."""
    size: int
    files: bool = True
    """Whether it takes another file at all."""

    @staticmethod
    def of(place: str) -> Disk | None:
        """The disk of this path, or of the nearest folder above that exists; None for what is elsewhere."""
        local = place.removeprefix("file:")
        if SCHEME.match(local):
            return None
        path = os.path.realpath(local)
        while not os.path.exists(path):
            path = os.path.dirname(path)
        try:
            found = os.statvfs(path)
        except OSError:
            return None
        while not os.path.ismount(path):
            path = os.path.dirname(path)
        return Disk(
            mount=path,
            free=found.f_bavail * found.f_frsize,
            size=found.f_blocks * found.f_frsize,
            files=not found.f_files or found.f_favail > 0,
        )

    @property
    def is_full(self) -> bool:
        """Whether next to nothing can be written there."""
        return self.free < _LITTLE * self.size or not self.files

    def __str__(self) -> str:
        inodes = "" if self.files else ", and it takes no more files (0 inodes are free)"
        return f"{format_bytes(self.free)} of {format_bytes(self.size)} are free{inodes}"


def describe_full_disks(places: Mapping[str, str]) -> str:
    """Name the full disk, its free space, and what is on it. `places` are paths by what is there; those
    that have room are named only where none is full."""
    disks: dict[str, tuple[Disk, list[str]]] = {}
    for what, place in places.items():
        disk = Disk.of(place)
        if disk is not None:
            disks.setdefault(disk.mount, (disk, []))[1].append(f"{what} ({place})")
    full = [each for each in disks.values() if each[0].is_full]
    return " ".join(_describe(full or list(disks.values()), full=bool(full)))


def _describe(disks: list[tuple[Disk, list[str]]], *, full: bool) -> Iterator[str]:
    if not full:
        yield "A disk was full, and has room again or is on another machine."
    for disk, what in disks:
        is_full = " is full" if full else ""
        yield f"The disk at {disk.mount}{is_full}: {disk}. It holds {', '.join(what)}."


def format_bytes(count: int) -> str:
    """A number of bytes, as a person reads it."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
