"""Limits of size up to which a check of files without Spark is quicker than a scan by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from origins.files.file_systems import ReadableFile

SMALL = 1 << 20
"""The limit of bytes for a check line by line."""
MODERATE = 256 << 20
"""The limit of bytes for counting characters, which shows that most clean files are clean."""
_PIECE = 8 << 20


def is_small(files: Sequence[ReadableFile]) -> bool:
    """Return whether the files are small enough for a check of each line."""
    return _sum_sizes(files) <= SMALL


def is_moderate(files: Sequence[ReadableFile]) -> bool:
    """Return whether the files are small enough to count characters in them.

    From elsewhere only small files are fetched.
    """
    return _sum_sizes(files) <= (MODERATE if all(isinstance(file, Path) for file in files) else SMALL)


def read_pieces(files: Sequence[ReadableFile], encoding: str) -> Iterator[str]:
    """Yield the text of the files: small files whole, larger ones in pieces of whole lines.

    Errors of reading are raised. An empty file gives one empty piece. Lines end with a line feed, also where the file
    has a carriage return, as in Spark.
    """
    most = -1 if is_small(files) else _PIECE
    for file in files:
        with file.open("r", encoding=encoding) as opened:
            yield opened.read(most) + opened.readline()
            while piece := opened.read(most):
                yield piece + opened.readline()


def _sum_sizes(files: Sequence[ReadableFile]) -> int:
    return sum(int(file.stat().st_size) for file in files)
