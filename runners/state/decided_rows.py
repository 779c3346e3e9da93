"""The rows of a decided batch, as destinations, the DLQ and the table of filtered rows read them from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from origins.batch_rows import BatchRows, FrameRows, compute_once
from origins.lazy import DataFrame, F, SparkSession, pa, pc
from origins.names import HIDDEN
from runners.model.planned_batch import DecidedBatch
from runners.state.prepared_store import PreparedStore
from stages.rows import STATE

NACKED = "nack"
APART = "apart"
"""The name of the way that writes rows apart by their states."""
WHY = HIDDEN + "why"
"""The column of rows that were written apart with the place, the verdict and the notes. It is NULL for live rows."""
LIVE = "-live"
"""The ending of a batch's name for live rows that are stored separately."""


def read_apart(frame: DataFrame) -> DataFrame:
    """Return rows that were written apart, with a `state` and the fields of `WHY`, as other ways write them."""
    return frame.selectExpr(f"{STATE} AS state", f"{WHY}.*")


def _read_section(spark: SparkSession, store: PreparedStore, decision: DecidedBatch, number: int) -> DataFrame:
    """Return a section's rows with their state and their verdict."""
    section = store.read(spark, f"{decision.path}-{number}")
    return read_apart(section) if decision.way == APART else section


def scan_apart(store: PreparedStore, name: str, wanted: Callable[[int], bool]) -> pa.Table | None:
    """Return rows that were written apart with these states, as `read_apart` does; None if Spark must read them."""
    found = []
    for folder in store.list_folders(name):
        state = int(folder.partition("=")[2])
        pieces = store.scan(f"{name}/{folder}", WHY.__eq__) if wanted(state) else ()
        if pieces is None:
            return None
        for piece in pieces:
            table = pa.Table.from_struct_array(piece[WHY])
            found.append(table.append_column("state", pa.repeat(pa.scalar(state, pa.int32()), table.num_rows)))
    return pa.concat_tables(found) if found else None


def select_rows_for(spark: SparkSession, store: PreparedStore, decision: DecidedBatch, name: str) -> BatchRows:
    """Return the rows that were decided for one destination. Spark reads the rows of a batch that is decided again."""
    rows = _LiveRows(spark, store, decision, name)
    return FrameRows(rows.frame()) if decision.again else rows


@dataclass(frozen=True)
class _LiveRows(BatchRows):
    """The rows of a batch that were not refused, in the branch of one destination."""

    spark: SparkSession
    store: PreparedStore
    decision: DecidedBatch
    name: str

    @compute_once
    def frame(self) -> DataFrame:
        frame = self.store.read(self.spark, self._section)
        if self._is_apart:
            return frame.where(f"{STATE} = 0").drop(STATE, WHY)
        if _is_without_live(frame.columns):
            return self.store.read(self.spark, self._by_themselves)
        if f"b{self._branch}" not in frame.columns:
            return frame.where("state = 0").select("live.*")
        return frame.where(f"state = 0 and f{self._branch} = 0").select(f"b{self._branch}.*")

    @compute_once
    def table(self) -> pa.Table | None:
        own, filters = f"b{self._branch}", f"f{self._branch}"
        if self._is_apart:
            found = self.store.scan(self._live_folder, lambda column: column != WHY)
            return None if found is None else found.read_all()
        found = self.store.scan(self._section, lambda column: column in ("state", "live", own, filters))
        if found is not None and _is_without_live(found.schema.names):
            found = self.store.scan(self._by_themselves, lambda _: True)
            return None if found is None else found.read_all()
        if found is None:
            return None
        parted = own in found.schema.names
        rows = own if parted else "live"

        def select_live(pieces: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
            for piece in pieces:
                stays = pc.equal(piece["state"], 0)
                if parted:
                    stays = pc.and_(stays, pc.equal(piece[filters], 0))
                yield pa.RecordBatch.from_struct_array(piece.filter(stays)[rows])

        return pa.Table.from_batches(select_live(found), pa.schema(list(found.schema.field(rows).type)))

    def files(self) -> Mapping[str, Path] | None:
        place = self._live_folder if self._is_apart else self._by_themselves
        return {file.name: file for file in self.store.list_files(place)} or None

    def count(self) -> int:
        return self.decision.counts.branches[self.name].expected

    @property
    def _branch(self) -> int:
        return list(self.decision.counts.branches).index(self.name)

    @property
    def _section(self) -> str:
        return f"{self.decision.path}-{self.decision.sections - 1}"

    @property
    def _is_apart(self) -> bool:
        return self.decision.way == APART

    @property
    def _live_folder(self) -> str:
        return f"{self._section}/{STATE}=0"

    @property
    def _by_themselves(self) -> str:
        return f"{self.decision.path}{LIVE}-0"


@dataclass(frozen=True)
class RefusedRows(BatchRows):
    """The refused rows of a decided batch: `nack`, `part`, and `position`, their place in the batch from 1."""

    spark: SparkSession
    store: PreparedStore
    decision: DecidedBatch
    most: int = 10_000
    """How many rows at most are read in this process."""

    @compute_once
    def frame(self) -> DataFrame:
        frames = []
        for number in range(self.decision.sections):
            bases = self._get_bases(number)
            if bases:
                # Reading starts Spark, which a column needs.
                frame = _read_section(self.spark, self.store, self.decision, number).where("state < 0")
                key = F.concat_ws("#", F.col("block").cast("string"), F.col("part"))
                base = F.create_map(*[F.lit(part) for pair in bases.items() for part in pair])[key]
                position = (base + F.col("row")).cast("bigint").alias("position")
                frames.append(frame.select(F.col(NACKED), F.col("part"), position))
        return reduce(lambda above, below: above.unionByName(below), frames)

    @compute_once
    def table(self) -> pa.Table | None:
        if self.decision.again or self.count() > self.most:
            return None
        rows = self._scan()
        if rows is None:
            return None
        bases, places = self._get_bases(0), rows.select(["part", "block", "row"]).to_pylist()
        positions = [bases[make_block_key(place["part"], place["block"])] + place["row"] for place in places]
        return rows.select([NACKED, "part"]).append_column("position", pa.array(positions, pa.int64()))

    def count(self) -> int:
        return self.decision.counts.nacked

    def _scan(self) -> pa.Table | None:
        name = f"{self.decision.path}-0"
        if self.decision.sections > 1:
            return None
        if self.decision.way == APART:
            return scan_apart(self.store, name, lambda state: state < 0)
        found = self.store.scan(name, (NACKED, "part", "block", "row", "state").__contains__)
        if found is None:
            return None
        return pa.Table.from_batches((piece.filter(pc.less(piece["state"], 0)) for piece in found), found.schema)

    def _get_bases(self, number: int) -> Mapping[str, int]:
        """Return for each block of a section the number to add to a row's number to get its place."""
        prefix = f"{number}:"
        bases = self.decision.bases.items()
        return {key.removeprefix(prefix): base for key, base in bases if key.startswith(prefix)}


@dataclass(frozen=True)
class FilteredRows(BatchRows):
    """The rows of a decided batch that stages filtered: `nack` and `part`.

    A row that several destinations filtered occurs once for each.
    """

    spark: SparkSession
    store: PreparedStore
    decision: DecidedBatch
    most: int = 10_000
    """How many rows at most are read in this process."""

    def frame(self) -> DataFrame:
        frames = []
        for number in range(self.decision.sections):
            section = _read_section(self.spark, self.store, self.decision, number)
            frames.append(section.where("state > 0").select(NACKED, "part"))
            for kept, by in _list_kept(section.columns):
                filtered = section.where(f"state = 0 and {by} <> 0")
                frames.append(filtered.select(filtered[kept].alias(NACKED), "part"))
        return reduce(lambda above, below: above.unionByName(below), frames)

    @compute_once
    def table(self) -> pa.Table | None:
        if not 0 < self.count() <= self.most:
            return None
        if self.decision.way == APART:
            apart = scan_apart(self.store, f"{self.decision.path}-0", lambda state: state > 0)
            return None if apart is None else apart.select([NACKED, "part"])
        found = self.store.scan(f"{self.decision.path}-0", lambda _: True) if self.decision.sections == 1 else None
        if found is None:
            return None
        rows = []
        for piece in found:
            rows.append(piece.filter(pc.greater(piece["state"], 0)).select([NACKED, "part"]))
            for kept, by in _list_kept(found.schema.names):
                filtered = piece.filter(pc.and_(pc.equal(piece["state"], 0), pc.not_equal(piece[by], 0)))
                rows.append(filtered.select([kept, "part"]).rename_columns([NACKED, "part"]))
        return pa.Table.from_batches(rows)

    def count(self) -> int:
        return self.decision.filtered


def _list_kept(columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the columns with rows that a destination's stages filtered, each with the column that names the stage."""
    return ((name, f"f{name[1:]}") for name in columns if name[0] == "k" and name[1:].isdigit())


def make_block_key(part: str, block: int) -> str:
    """Return the key of a block of rows, under which its place in the batch is stored."""
    return f"{block}#{part}"


def _is_without_live(columns: Sequence[str]) -> bool:
    """Whether the live rows are stored separately, so that these columns contain none."""
    return not any(column == "live" or (column[0] == "b" and column[1:].isdigit()) for column in columns)
