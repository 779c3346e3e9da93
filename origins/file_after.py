"""What becomes of a file when its rows are carried: it is deleted, or moved to where nobody looks for new ones."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import itertools
import os
import shutil
from collections.abc import Iterator

from origins.errors import OriginError

_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""How a file system says that a file cannot have a second name there."""


def delete(path: str) -> None:
    """Delete the file. One that is gone is deleted."""
    with _told(path, "deleted"):
        os.unlink(path)


def move(path: str, target: str) -> None:
    """Give the file another place, under a name that no other file has there. At every moment it is whole in one of
    the two; one that is in both, since a process died in between, is moved by moving it again."""
    with _told(path, f"moved to {target}"):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        for name in itertools.chain([target], (f"{target}~{number}" for number in itertools.count(2))):
            if not os.path.lexists(name):
                _put(path, name)
                break
            if filecmp.cmp(path, name, shallow=False):
                break
        os.unlink(path)


def _put(path: str, target: str) -> None:
    if os.path.islink(path):
        os.symlink(os.path.realpath(path), target)
        return
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        half = os.path.join(os.path.dirname(target), f"_half-{os.path.basename(target)}")
        shutil.copy2(path, half)
        os.rename(half, target)


@contextlib.contextmanager
def _told(path: str, what: str) -> Iterator[None]:
    """Raise `OriginError` for what the operating system refuses; a file that is gone is done with."""
    try:
        yield
    except OSError as error:
        if not os.path.lexists(path):
            return
        raise OriginError(
            f"{path} was carried, and cannot be {what}: {error.strerror}.",
            hint="Nothing is lost or read twice. Give this user the right to do it; the next run tries again.",
        ) from error
