"""The parts of a benchmark: ways to do the same work, timed side by side, and the bars that a way must meet."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Taken: TypeAlias = Mapping[str, Sequence[float]]
"""The measurements of each way: one figure for each batch, pair or try, mostly in seconds."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A limit for the median of one way: a multiple of another way's median, or a fixed value."""

    most: float
    of: str = "Wherry"
    to: str | None = None

    def find_figure(self, taken: Taken) -> float | None:
        """Return the figure to compare with `most`, or None if one of the ways was not measured."""
        if not all(taken.get(name) for name in (self.of, self.to or self.of)):
            return None
        own = statistics.median(taken[self.of])
        return own if self.to is None else own / statistics.median(taken[self.to])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question that a benchmark answers, and how it is measured."""

    name: str
    says: str
    """What is timed. It is the heading of the case's table."""
    measure: Callable[[Path, int], Taken]
    """Times all ways in the given folder, in about as many turns as given."""
    bars: Sequence[Bar]
    turns: int = 3
    unit: str = "ms"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a case."""

    case: str
    taken: Taken

    def json(self) -> dict[str, Any]:
        """Return the result in the form in which a file keeps it."""
        return asdict(self)


Way: TypeAlias = "Callable[[Path, int], Iterable[float]]"
"""Does its work in a given folder, in the turn with the given number. Returns the seconds of each batch."""


def measure_in_turns(
    ways: Mapping[str, Way], place: Path, turns: int, *, warm: Mapping[str, Way] | None = None
) -> Taken:
    """Run the ways in turns, in reversed order every second turn. Before that, run each way once without counting it,
    so that the JVM is warm. If a whole turn takes too long for that, the ways in `warm` are run instead."""
    for name, way in (ways if warm is None else warm).items():
        list(way(_make_folder(place / "warm", name), 0))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns):
        order = list(ways)[:: 1 if turn % 2 == 0 else -1]
        for name in order:
            taken[name] += ways[name](_make_folder(place, name), turn)
    return taken


def open_session(conf: Mapping[str, str] | None = None, packages: Sequence[str] = ()) -> SparkSession:
    """Return the session that all ways share, started as Wherry starts it."""
    from runners.spark.own_session import make_own_session
    from runners.spark.start import start

    return make_own_session(start(conf or {}, packages))


def _make_folder(place: Path, name: str) -> Path:
    folder = place / "".join(letter if letter.isalnum() else "-" for letter in name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
