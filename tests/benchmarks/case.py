"""What a benchmark is: ways to do the same thing, timed side by side, and the bars that one of them is held to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Taken: TypeAlias = Mapping[str, Sequence[float]]
"""What each way took: seconds, one figure for each batch, pair or try."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The median of one way is at most so many times that of another, or at most so much by itself."""

    most: float
    of: str = "Wherry"
    to: str | None = None

    def figure(self, taken: Taken) -> float | None:
        """What is compared with `most`; None where one of the ways could not be measured."""
        if not all(taken.get(name) for name in (self.of, self.to or self.of)):
            return None
        own = statistics.median(taken[self.of])
        return own if self.to is None else own / statistics.median(taken[self.to])


@dataclass(frozen=True, kw_only=True)
class Case:
    """One question, and how it is answered."""

    name: str
    says: str
    """What is timed, for the table's heading."""
    measure: Callable[[Path, int], Taken]
    """Times all ways in a folder of its own, in about so many turns."""
    bars: Sequence[Bar]
    turns: int = 3
    unit: str = "ms"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a case gave."""

    case: str
    taken: Taken

    def json(self) -> dict[str, Any]:
        """As it is kept in a file."""
        return asdict(self)


Way: TypeAlias = "Callable[[Path, int], Iterable[float]]"
"""Does its work in a folder of its own, for the turn of this number; gives what each batch took."""


def in_turns(ways: Mapping[str, Way], place: Path, turns: int, *, warm: Mapping[str, Way] | None = None) -> Taken:
    """Each way in its turn, the order reversed every other time. Before that each way once, uncounted, so that the
    JVM is warm; with `warm` in their place where a whole turn is too long for that."""
    for name, way in (ways if warm is None else warm).items():
        list(way(_folder(place / "warm", name), 0))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns):
        order = list(ways)[:: 1 if turn % 2 == 0 else -1]
        for name in order:
            taken[name] += ways[name](_folder(place, name), turn)
    return taken


def session(conf: Mapping[str, str] | None = None) -> SparkSession:
    """The one session of all ways, as Wherry starts it."""
    from runners.spark.session import make_own_session
    from runners.spark.start import start

    return make_own_session(start(conf or {}))


def _folder(place: Path, name: str) -> Path:
    folder = place / "".join(letter if letter.isalnum() else "-" for letter in name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
