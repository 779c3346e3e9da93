"""The way for a batch whose live rows are in parquet files: this process copies them from there.

Spark only looks for rows that are refused, filtered or noted otherwise. No stage changes a column, so all other rows
leave exactly as the files have them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from origins.batch import JSON
from origins.files.parquet_rows import count_rows
from origins.lazy import DataFrame, F, pa
from origins.quick_dataclass import dataclass
from runners.model.tasks import Declined, Prepared
from runners.state.prepared_store import PreparedStore, fetch_table
from runners.ways.deciding import BatchDecision
from runners.ways.one_pass import explain_not_apart, find_noting_step, is_short
from runners.ways.row_outcomes import PLACE_COLUMNS, PickedRows, RowOutcomes
from runners.ways.stage_chain import StageChain
from runners.ways.way import Candidate, Thresholds, Way
from stages.rows import STATE, VERDICT, MarkedRows, select_columns


class CopyFiles(Way[BatchDecision, Prepared]):
    """This process copies the live rows from the parquet files in which they were read."""

    name = "copy_files"

    def why_not(self, batch: Candidate) -> str:
        because, read = explain_not_apart(batch), getattr(batch.origin, "format", "")
        if because or read == "parquet" or (not read and batch.plan is not None):
            return because
        return f"{batch.origin.name} reads no parquet files"

    def carry(self, batches: Sequence[Candidate], work: BatchDecision) -> Prepared | Declined:
        (batch,) = batches
        if work.passed is None or not work.passed.as_read:
            return Declined(reason="a stage changes a column")
        files = (batch.rows.files() if batch.rows else None) or {}
        copying = FileCopy.of(work.passed, batch.chain, files, batch.thresholds)
        if copying is None:
            return Declined(reason="its rows are not in parquet files of this machine exactly as they are read")
        picked = copying.pick_live(work.store, work.live)
        work.check()
        prepared = None if picked is None else work.decide_apart(picked)
        if prepared is None:
            work.remove_live()
            most = batch.thresholds.copied_others
            why = f"more than {most:,} of its rows differ from the others, or it cannot be copied safely"
            return Declined(reason=why, remember=True)
        return prepared


@dataclass(frozen=True)
class FileCopy:
    """One query over a batch, and one pass over its files."""

    _rows: MarkedRows
    _usual: Mapping[str, JSON]
    """The usual note of each column with notes."""
    _files: Mapping[str, Path]
    """The files by their parts."""
    _there: Mapping[str, int]
    """How many rows each part has."""
    _limits: Thresholds

    @staticmethod
    def of(rows: MarkedRows, chain: StageChain, files: Mapping[str, Path], limits: Thresholds) -> FileCopy | None:
        """Make it if all rows after the stages are in these files; None if copying them is not enough."""
        usual = {name: find_noting_step(name, chain.common).stage.usual_note for name in rows.notes}
        try:
            size = sum(file.stat().st_size for file in files.values())
            if not files or size > limits.copied_bytes or None in usual.values():
                return None
            return FileCopy(rows, usual, files, {part: count_rows(file) for part, file in files.items()}, limits)
        except (pa.ArrowException, OSError):  # removed or changed meanwhile; Spark gets this error too
            return None

    def pick_live(self, store: PreparedStore, name: str) -> PickedRows | None:
        """Write the live rows to the store under this name, and return what was found.

        It is None if that is not certain, or if more rows than `copied_others` are refused, filtered or noted
        otherwise.
        """
        table = fetch_table(self._select_others())
        others: Sequence[Mapping[str, JSON]] = [] if table is None else table.to_pylist()
        if table is None or len(others) > self._limits.copied_others or not all(map(self._has_all_facts, others)):
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
        notes = {column: self._count_notes_in(column, others, there) for column in self._rows.notes}
        return PickedRows(
            verdicts=RowOutcomes(states=states + Counter({0: there - lost})),
            refused=[row for row in others if row["state"] < 0],
            blocks=[
                {"part": part, "block": 0, "rows": rows, "first": 0, "state": 0, "refused": []}
                for part, rows in self._there.items()
            ],
            notes=notes,
        )

    def _select_others(self) -> DataFrame:
        """Return the rows that are not live, or that have another note than most rows.

        It returns at most one row more than `copied_others`. A row that is too long has no reason beside it.
        """
        other = F.col(STATE) != 0
        for name, usual in self._usual.items():
            other = other | ~F.col(name).eqNullSafe(F.lit(usual))
        why = F.when(is_short(self._limits.picked_row_bytes), F.col(VERDICT)).alias("nack")
        found = select_columns(
            self._rows.frame.where(other), *PLACE_COLUMNS, f"{STATE} AS state", why, *self._rows.notes
        )
        return found.limit(self._limits.copied_others + 1)

    def _has_all_facts(self, row: Mapping[str, JSON]) -> bool:
        """Whether the row's file is known, and the reason too if the row is refused."""
        return row["part"] in self._files and (row["state"] >= 0 or row["nack"] is not None)

    def _count_notes_in(self, column: str, others: Sequence[Mapping[str, JSON]], rows: int) -> Mapping[str, int]:
        found = Counter(row[column] for row in others if row[column] is not None)
        return found + Counter({self._usual[column]: rows - len(others)})
