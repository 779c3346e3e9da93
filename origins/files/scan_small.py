"""A look at files without Spark: up to how many bytes it is quicker than to have Spark scan them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from origins.files.file_systems import ReadableFile

SMALL = 1 << 20
"""Line by line."""
MODERATE = 256 << 20
"""By counting what stands there, which shows of most clean files that they are."""
_PIECE = 8 << 20


def is_small(files: Sequence[ReadableFile]) -> bool:
    """Whether each of their lines may be looked at."""
    return _sum_sizes(files) <= SMALL


def is_moderate(files: Sequence[ReadableFile]) -> bool:
    """Whether things may be counted in them. Of another machine only small files are fetched for that."""
    return _sum_sizes(files) <= (MODERATE if all(isinstance(file, Path) for file in files) else SMALL)


def read_pieces(files: Sequence[ReadableFile], encoding: str) -> Iterator[str]:
    """Their text: each of small files as a whole, larger ones in pieces of whole lines. Raises what reading raises.

    An empty one is one empty piece. Lines end with a line feed, and where Spark sees an end: also at a carriage return.
    """
    most = -1 if is_small(files) else _PIECE
    for file in files:
        with file.open("r", encoding=encoding) as opened:
            yield opened.read(most) + opened.readline()
            while piece := opened.read(most):
                yield piece + opened.readline()


def _sum_sizes(files: Sequence[ReadableFile]) -> int:
    return sum(int(file.stat().st_size) for file in files)
