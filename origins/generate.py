"""`generate`: invented orders of a shop, the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from origins.batch import Backlog, Batch, Json, Limits, Span
from origins.batch_rows import FrameRows
from origins.capabilities import TakesOffsets
from origins.lazy import SparkSession
from origins.names import quote_text
from origins.origin import PLACE, Origin, Progress, check_count, read_count

SCHEMA = "id long, at timestamp, email string, country string, item string, quantity int, amount string"
_BYTES = 150
"""The approximate size of an order in bytes."""


@dataclass(frozen=True, kw_only=True)
class Generate(Origin, TakesOffsets):
    """Makes up orders of a shop, for trials. Each order is the same in every run and for any batches.

    The order's number decides what is in it. Of two lanes, lane 0 has every second order from the first on, and lane 1
    has the others. An offset is the number of orders that were read in its lane.

    Example:
        generate: {rows: 100000, bad: 0.01}
    """

    binds: ClassVar[frozenset[str]] = frozenset({"rows"})
    whole_by: ClassVar[str] = "batch: whole"

    rows: int = 1_000
    """How many orders there are."""
    seed: int = 7
    """The number from which the orders are made. Another seed gives other orders."""
    bad: float = 0.0
    """The share of bad orders, from 0 to 1. A bad order has no email, or an amount that is negative or no number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows < 0:
            raise ValueError(f"rows: expected 0 or more, got {self.rows}")
        if not 0 <= self.bad <= 1:
            raise ValueError(f"bad: expected a share from 0 to 1, got {self.bad}")

    @property
    def place(self) -> str:
        return f"orders made up from seed {self.seed}, with a share of {self.bad:g} bad"

    def check_offset(self, lane: str, offset: Json) -> None:
        check_count(offset, len(range(int(lane), self.rows, self.lanes)), "orders of the lane that follow")

    def survey(self, spark: SparkSession, progress: Progress) -> OrderBacklog:
        return OrderBacklog(self.rows, self.lanes)

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        return str(spark.createDataFrame([], SCHEMA).schema.json())

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> FrameRows:
        (batch,) = batches
        start, end = read_count(batch.span.start), read_count(batch.span.end)
        frame = spark.range(start, end).selectExpr("id as row", f"id * {self.lanes} + {int(batch.lane)} + 1 as id")
        place = [f"named_struct('part', '', 'block', 0L, 'row', row) as {PLACE}"] if places else []
        return FrameRows(frame.selectExpr(*self._list_columns(), *place))

    def _list_columns(self) -> list[str]:
        """Return the SQL of each column. It depends only on the order's number."""

        def dice(what: str, sides: int) -> str:
            return f"pmod(xxhash64(id, {self.seed}L, '{what}'), {sides})"

        def one_of(what: str, words: str) -> str:
            values = [quote_text(word) for word in words.split()]
            return f"element_at(array({', '.join(values)}), cast({dice(what, len(values))} + 1 as int))"

        is_bad = f"{dice('bad', 1_000_000)} < {round(self.bad * 1_000_000)}"
        how = dice("how", 4)
        name = one_of("name", "ada björn chloé dmitri emeka fatima gül")
        amount = f"cast(cast(({dice('amount', 49_900)} + 100) / 100 as decimal(10,2)) as string)"
        return [
            "id",
            f"timestamp_seconds(1767225600 + id * 20 + {dice('at', 20)}) as at",
            f"case when {is_bad} and {how} = 3 then null else concat({name}, id, '@example.org') end as email",
            f"{one_of('country', 'DE FR IN JP NG TR US')} as country",
            f"{one_of('item', 'lamp chair mug rug desk clock')} as item",
            f"cast({dice('quantity', 9)} + 1 as int) as quantity",
            f"case when not ({is_bad}) or {how} = 3 then {amount} when {how} = 0 then 'sieben' "
            f"when {how} = 1 then '' else concat('-', {amount}) end as amount",
        ]


@dataclass(frozen=True)
class OrderBacklog(Backlog):
    """The number of orders of each lane."""

    rows: int
    lanes: int

    def take(self, lane: str, start: Json, limits: Limits) -> Span | None:
        begin, there = read_count(start), len(range(int(lane), self.rows, self.lanes))
        end = there if limits.rows is None else min(there, begin + limits.rows)
        if end <= begin:
            return None
        return Span(start=start, end=end, label=f"orders {begin + 1} to {end}", bytes=(end - begin) * _BYTES)
