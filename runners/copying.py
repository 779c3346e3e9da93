"""A batch decided by a look for the rows that do not leave as they came: stages that change nothing leave all others as
they lie in parquet files, and this process copies them from there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from destinations.delta_adopted import write
from origins.batch import JSON
from origins.parquet_here import Otherwise, pieces, rows_in
from runners.few_rows import fetched
from runners.line import Line
from runners.picking import MOST, Picked, is_one_pass, is_short, noting
from runners.verdicts import Verdicts, place
from stages.rows import STATE, VERDICT

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from runners.store import Store
    from stages.rows import Marked

MOST_BYTES = 1 << 30
"""Of files with more, Spark writes the rows with all the cores that it has."""
_SHARE = 128 << 20
"""About how many bytes of files become one file."""
_THREADS = 4


@dataclass(frozen=True)
class Copying:
    """One look at a batch, and one pass over its files."""

    _rows: Marked
    _usual: Mapping[str, JSON]
    """The note that most rows have, of each column with notes."""
    _files: Mapping[str, Path]
    """The files by their parts."""
    _there: Mapping[str, int]
    """How many rows each part has."""

    @staticmethod
    def of(rows: Marked, line: Line, lying: Callable[[], Mapping[str, Path]]) -> Copying | None:
        """Of rows behind all stages; None where they are not as they lie in files, or where that does not do. `lying`
        says in which, and is asked only then."""
        from pyarrow import ArrowException

        usual = {name: noting(name, line.common).stage.usual_note for name in rows.notes}
        files = lying() if rows.as_read and is_one_pass(line) and None not in usual.values() else {}
        try:
            if not files or sum(file.stat().st_size for file in files.values()) > MOST_BYTES:
                return None
            return Copying(rows, usual, files, {part: rows_in(file) for part, file in files.items()})
        except (ArrowException, OSError):  # gone or changed meanwhile; Spark is told of it as well
            return None

    def picked(self, store: Store, name: str) -> Picked | None:
        """Write the live rows into the store under this name; what was found. None where that is not sure, or more rows
        than `MOST` are refused, filtered or noted otherwise."""
        table = fetched(self._others())
        others: Sequence[Mapping[str, JSON]] = [] if table is None else table.to_pylist()
        if table is None or len(others) > MOST or not all(map(self._is_told, others)):
            return None
        gone: dict[Path, list[int]] = {file: [] for file in self._files.values()}
        for row in others:
            if row["state"] != 0:
                gone[self._files[row["part"]]].append(row["row"])
        there = sum(self._there.values())
        lost = sum(map(len, gone.values()))
        copied = store.copy(name, {file: sorted(rows) for file, rows in gone.items()}, self._rows.schema)
        if copied != there - lost:
            return None
        states = Counter(row["state"] for row in others if row["state"] != 0)
        notes = {column: self._noted(column, others, there) for column in self._rows.notes}
        return Picked(
            verdicts=Verdicts(states=states + Counter({0: there - lost})),
            refused=[row for row in others if row["state"] < 0],
            notes=notes,
        )

    def notes(self, picked: Picked, columns: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """For each of these columns, how many rows have which note."""
        return {name: picked.notes[name] for name in columns}

    def groups(self, picked: Picked) -> list[Mapping[str, JSON]]:
        """Where the rows stood, as `groups_of` says it of rows that were written."""
        files = [
            {"part": part, "block": 0, "rows": rows, "first": 0, "state": 0, "refused": []}
            for part, rows in self._there.items()
        ]
        return [*files, *({**row, "rows": 0, "first": row["row"], "refused": [row["row"]]} for row in picked.refused)]

    def _others(self) -> DataFrame:
        """The rows that do not live, or that a stage noted otherwise than most; one more than are wanted, if there are
        so many. One that is too long has no reason beside it."""
        other = F.col(STATE) != 0
        for name, usual in self._usual.items():
            other = other | ~F.col(name).eqNullSafe(F.lit(usual))
        why = F.when(is_short(), F.col(VERDICT)).alias("nack")
        found = self._rows.frame.where(other).select(*place(), F.col(STATE).alias("state"), why, *self._rows.notes)
        return found.limit(MOST + 1)

    def _is_told(self, row: Mapping[str, JSON]) -> bool:
        """Whether it is known where the row lies, and why it is refused if it is."""
        return row["part"] in self._files and (row["state"] >= 0 or row["nack"] is not None)

    def _noted(self, column: str, others: Sequence[Mapping[str, JSON]], rows: int) -> Mapping[str, int]:
        found = Counter(row[column] for row in others if row[column] is not None)
        return found + Counter({self._usual[column]: rows - len(others)})


def copy(files: Mapping[Path, Sequence[int]], schema: StructType, folder: Path) -> int | None:
    """Write the rows of these files into the folder, without those at these places in each; how many. None where a
    value is not surely what Spark reads, or cannot be read or written here."""
    from pyarrow import ArrowException
    from pyspark.sql.pandas.types import to_arrow_schema

    def one(number: int, share: Sequence[Path]) -> int:
        rows = 0

        def counted() -> Iterator[pyarrow.Table]:
            nonlocal rows
            for file in share:
                for piece in pieces(file, schema, files[file]):
                    rows += piece.num_rows
                    yield piece

        write(counted(), to_arrow_schema(schema, timezone="UTC"), schema.json(), folder / f"part-{number:05}.parquet")
        return rows

    threads = min(_THREADS, os.cpu_count() or 1)
    try:
        shares = _shares(files, threads)
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(one, range(len(shares)), shares))
    except (Otherwise, ArrowException, OSError, KeyError):
        return None


def _shares(files: Collection[Path], threads: int) -> Sequence[Sequence[Path]]:
    """The files in as many shares as there are threads, or more if they are large: each becomes one file."""
    sizes = {file: file.stat().st_size for file in files}
    most = min(_SHARE, -(-sum(sizes.values()) // threads))
    shares: list[list[Path]] = []
    room = 0
    for file, size in sizes.items():
        if room <= 0:
            shares.append([])
            room = most
        shares[-1].append(file)
        room -= size
    return shares
