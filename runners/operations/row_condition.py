"""A condition on rows in SQL that no value of a row can make fail."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from origins.errors import list_spark_errors
from origins.lazy import Column, DataFrame, F, SparkSession
from origins.names import HIDDEN, quote_name
from origins.spark_settings import ANSI
from runners.model.error_kinds import classify
from runners.spark.own_session import use_alone

MATCHES = HIDDEN + "matches"
"""Whether the condition is true for a row; NULL if a value of the row cannot be compared."""
_AMONG = HIDDEN + "among"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RowCondition:
    """A condition, and its level of tolerance for rows at which it raises.

    `PLAIN` lets it raise, and Spark may use it to skip files. `TRIED` converts text as `try_cast` does. `LENIENT`
    switches ANSI off for this condition only, so that everything else that would raise gives NULL.
    """

    PLAIN, TRIED, LENIENT = range(3)

    text: str
    level: int = PLAIN
    views: list[str] = field(default_factory=list)
    """The temporary views that the condition made in a session."""

    def ask(self, query: Callable[[RowCondition], T]) -> tuple[RowCondition, T]:
        """Run the query at the first level at which no row raises. Return that level's condition, and the result."""
        try:
            return self, query(self)
        except list_spark_errors() as error:
            if self.level == self.LENIENT or not classify(error).is_row:
                raise
        return replace(self, level=self.level + 1).ask(query)

    def select(self, frame: DataFrame) -> DataFrame:
        """Return the rows that match or cannot be compared, with `MATCHES`."""
        if self.level == self.PLAIN:
            return frame.where(F.expr(self.text)).withColumn(MATCHES, F.lit(True))
        return self.mark(frame, F.lit(True)).where(F.coalesce(F.col(MATCHES), F.lit(True)))

    def mark(self, frame: DataFrame, among: Column) -> DataFrame:
        """Return all rows with `MATCHES`. It is false for a row if `among` is not true."""
        frame = frame.withColumn(_AMONG, F.coalesce(among, F.lit(False)))
        if self.level == self.LENIENT:
            return self._judge_without_ansi(frame).drop(_AMONG)
        if self.level == self.TRIED:
            return self._judge_tried(frame).drop(_AMONG)
        return frame.withColumn(MATCHES, F.expr(self._sql)).drop(_AMONG)

    def drop_views(self, spark: SparkSession) -> None:
        """Drop the condition's views in the session. Its frames cannot be used afterwards."""
        while self.views:
            spark.catalog.dropTempView(self.views.pop())

    @property
    def _sql(self) -> str:
        return f"CASE WHEN {_AMONG} THEN coalesce((\n{self.text}\n), false) ELSE false END"

    def _judge_tried(self, frame: DataFrame) -> DataFrame:
        """Judge with NULL in place of each text that is not a value of the type with which it is compared."""
        wrong = {name: _is_no_value(name, kinds) for name, kinds in self._find_casts(frame).items()}
        if not wrong:
            return frame.withColumn(MATCHES, F.expr(self._sql))
        kept = {name: f"{HIDDEN}kept{at}" for at, name in enumerate(wrong)}
        is_wrong = functools.reduce(lambda one, other: one | other, wrong.values(), F.lit(False))
        frame = frame.withColumns({f"{HIDDEN}wrong": F.col(_AMONG) & is_wrong})
        frame = frame.withColumns({kept[name]: F.col(quote_name(name)) for name in wrong})
        frame = frame.withColumns({name: F.when(~each, F.col(quote_name(name))) for name, each in wrong.items()})
        sure = F.when(~F.col(f"{HIDDEN}wrong"), F.lit(False))
        frame = frame.withColumn(MATCHES, F.when(F.expr(self._sql), F.lit(True)).otherwise(sure))
        frame = frame.withColumns({name: F.col(kept[name]) for name in wrong})
        return frame.drop(f"{HIDDEN}wrong", *kept.values())

    def _find_casts(self, frame: DataFrame) -> Mapping[str, Sequence[str]]:
        """Return the text columns that the condition converts, with the types. Spark's plan for one row shows them.

        The values of that row are random. Otherwise Spark would compute the condition during planning.
        """
        value = F.raise_error(F.rand().cast("string"))
        columns = [value.cast(each.dataType).alias(each.name) for each in frame.schema]
        spark = frame.sparkSession
        model = spark.range(1).select(*columns).where(F.expr(self.text))
        plan = spark.sql("EXPLAIN EXTENDED SELECT * FROM {model}", model=model).collect()[0][0]
        texts = {name.lower(): name for name, kind in frame.dtypes if kind == "string"}
        named = "|".join(map(re.escape, texts))
        pattern = re.compile(rf"\bcast\(({named})#\d+ as ([a-z_]+(?:\(\d+, ?\d+\))?)\)", re.IGNORECASE)
        found: dict[str, list[str]] = {}
        for name, kind in dict.fromkeys(pattern.findall(plan)) if texts else ():
            found.setdefault(texts[name.lower()], []).append(kind)
        return found

    def _judge_without_ansi(self, frame: DataFrame) -> DataFrame:
        """Judge with ANSI off. A view keeps the settings from its creation for its expressions, and for no others."""
        spark, name = frame.sparkSession, f"{HIDDEN}{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(f"{name}_of")
        with use_alone(spark), ANSI.change(spark, "false", shared=True):
            query = f"SELECT *, {self._sql} AS {MATCHES} FROM {name}_of"
            spark.sql(f"CREATE TEMPORARY VIEW {name} AS {query}").collect()
        self.views.extend((name, f"{name}_of"))
        return spark.table(name)


def _is_no_value(name: str, kinds: Sequence[str]) -> Column:
    """Whether the column has a text that is not a value of one of these types."""
    column = F.col(quote_name(name))
    tried = [column.try_cast(kind).isNull() for kind in kinds]
    return column.isNotNull() & functools.reduce(lambda one, other: one | other, tried)
