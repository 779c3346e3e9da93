"""`generate`: orders that nobody placed, the same ones every time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from origins.batch import JSON, Batch, Limits, Span
from origins.names import text
from origins.origin import PLACE, Backlog, Origin, Progress, check_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, at timestamp, email string, country string, item string, quantity int, amount string"
_BYTES = 150
"""An order, about."""


@dataclass(frozen=True, kw_only=True)
class Generate(Origin):
    """Orders of a shop, made up from their numbers: each is the same in every run, however they are batched.

    Lane 0 of 2 has every second order from the first, lane 1 the others. The offset is how many orders of its lane
    were carried.
    """

    binds: ClassVar[frozenset[str]] = frozenset({"rows"})
    regroups: ClassVar[bool] = False
    whole_by: ClassVar[str] = "batch: whole"

    rows: int = 1_000
    """How many orders there are."""
    seed: int = 7
    """Another seed gives other orders."""
    bad: float = 0.0
    """The share of orders, from 0 to 1, that have an amount which is no number or is negative, or no email."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows < 0:
            raise ValueError(f"rows: expected 0 or more, got {self.rows}")
        if not 0 <= self.bad <= 1:
            raise ValueError(f"bad: expected a share from 0 to 1, got {self.bad}")

    @property
    def place(self) -> str:
        return f"orders made up from seed {self.seed}, of which {self.bad:g} are bad"

    def check_offset(self, lane: str, offset: JSON) -> None:
        check_count(offset, len(range(int(lane), self.rows, self.lanes)), "orders of the lane that are behind it")

    def survey(self, spark: SparkSession, progress: Progress) -> Orders:
        return Orders(self.rows, self.lanes)

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        return str(spark.createDataFrame([], SCHEMA).schema.json())

    def fetch(self, spark: SparkSession, batch: Batch, *, places: bool = False) -> DataFrame:
        start, end = batch.span.start or 0, batch.span.end
        frame = spark.range(start, end).selectExpr("id as row", f"id * {self.lanes} + {int(batch.lane)} + 1 as id")
        place = [f"named_struct('part', '', 'block', 0L, 'row', row) as {PLACE}"] if places else []
        return frame.selectExpr(*self._order(), *place)

    def _order(self) -> list[str]:
        """Each column from the order's number alone."""

        def dice(what: str, sides: int) -> str:
            return f"pmod(xxhash64(id, {self.seed}L, '{what}'), {sides})"

        def one_of(what: str, words: str) -> str:
            values = [text(word) for word in words.split()]
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


class Orders(Backlog):
    """How many orders each lane has."""

    def __init__(self, rows: int, lanes: int) -> None:
        self._rows = rows
        self._lanes = lanes

    def take(self, lane: str, start: JSON, limits: Limits) -> Span | None:
        begin, there = start or 0, self._in(lane)
        end = there if limits.rows is None else min(there, begin + limits.rows)
        if end <= begin:
            return None
        return Span(start=start, end=end, label=f"orders {begin + 1} to {end}", bytes=(end - begin) * _BYTES)

    def behind(self, lane: str, start: JSON) -> str:
        waiting = max(0, self._in(lane) - (start or 0))
        return f"{waiting:,} orders" if waiting else ""

    def _in(self, lane: str) -> int:
        return len(range(int(lane), self._rows, self._lanes))
