"""Which disk is full, and how full it is."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from runners.model.errors import CarryFailed, Disk, describe_full_disks, format_bytes, wrap_file_error
from runners.model.run_report import RunError
from tests.small_disk import SmallDisk


def test_the_full_disk_is_named_with_the_data_on_it(small_disk: SmallDisk, tmp_path: Path) -> None:
    """It is named by its mount point, with its free space and its size. A disk with room is omitted."""
    small_disk.fill()
    table = str(small_disk.folder / "tables" / "orders")
    said = describe_full_disks({"'orders'": table, "the state": "/"})
    assert said == f"The disk at {small_disk.folder} is full: 0 bytes of 4.0 MiB are free. It holds 'orders' ({table})."


def test_an_error_of_a_run_names_the_disk_and_a_remedy(small_disk: SmallDisk) -> None:
    """The hint begins with the disk, and ends with the hint about the batch."""
    small_disk.fill()
    failed = CarryFailed("batch 1 of lane 0: no", hint="Its offset stays.")
    failed.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    error = RunError.of(failed, places={"'orders'": str(small_disk.folder)})
    assert error.hint.startswith(f"The disk at {small_disk.folder} is full: 0 bytes of 4.0 MiB are free.")
    assert error.hint.endswith("Free disk space, then run again. Its offset stays.")


def test_an_error_about_a_file_names_its_disk_once(small_disk: SmallDisk) -> None:
    """It names no other disk of the run."""
    small_disk.fill()
    given = OSError(errno.ENOSPC, "No space left on device", str(small_disk.folder / "lock"))
    error = RunError.of(given, places={"the state": "/"})
    assert (error.code, error.hint.count("The disk at "), error.hint.count("Free disk space")) == ("ACCESS", 1, 1)
    told = wrap_file_error(given)
    assert told is not None
    assert told.hint == error.hint


def test_a_remote_place_has_no_local_disk() -> None:
    """A missing local path has the disk of its parent folder."""
    assert Disk.of("s3://shop/orders") is None
    given, parent = Disk.of("file:/nowhere/at/all"), Disk.of("/nowhere")
    assert given is not None
    assert parent is not None
    assert (given.mount, given.size) == (parent.mount, parent.size)  # other processes change what is free


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 bytes"), (1023, "1023 bytes"), (4 << 20, "4.0 MiB"), (3 << 40, "3.0 TiB")]
)
def test_a_size_is_shown_in_a_fitting_unit(count: int, said: str) -> None:
    """It has at most one decimal place."""
    assert format_bytes(count) == said
