"""The rows that Spark will compute for a batch, described in steps of SQL text."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from origins.errors import clean_up_by
from origins.lazy import Column, DataFrame, F, T, pyspark
from origins.names import HIDDEN
from origins.spark_versions import is_connect

Schemas: TypeAlias = "MutableMapping[bytes, T.StructType]"
"""The columns that steps give, by a digest of the columns of their source and of their text."""

MOST_SCHEMAS = 100
"""How many schemas are kept. Expressions with the number of a batch are other steps in each batch."""

LONG = 50_000
"""The length from which a text is analysed alone. Spark goes over all steps of a text once for each of them."""


@dataclass(frozen=True)
class Query:
    """Steps over a frame. Spark analyses them together, when `frame` is asked for.

    Each call to Spark takes longer than the rows of a small batch. So steps are text, and the columns after steps that
    were analysed before, perhaps for an earlier batch, are known without a call. A SQL function that someone replaces
    meanwhile must keep its type.
    """

    source: DataFrame
    steps: tuple[Sequence[str] | str, ...] = ()
    """The columns that each step selects, or the condition by which it filters."""
    schemas: Schemas = field(default_factory=dict, repr=False)
    key: bytes | None = field(default=None, repr=False)
    """The key in `schemas`; None if the same text may give other columns."""
    observed: bool = False
    """Whether the source is observed. Spark does not find observations below the text of a query."""

    @staticmethod
    def of(source: DataFrame, schemas: Schemas | None = None) -> Query:
        """Return a query without steps. It knows the columns that earlier queries left in `schemas`."""
        return Query(source) if schemas is None else Query(source, (), schemas, _digest(b"", source.schema.json()))

    @property
    def frame(self) -> DataFrame:
        """Return the rows as a lazy frame of Spark."""
        known: DataFrame | None = self.__dict__.get("_frame")
        if known is None:
            known = self.__dict__["_frame"] = self._build()
        return known

    @property
    def schema(self) -> T.StructType:
        """Return the columns."""
        if self.key is None:
            return self.frame.schema
        known = self.schemas.get(self.key)
        if known is None:
            if len(self.schemas) >= MOST_SCHEMAS:
                self.schemas.clear()
            known = self.schemas[self.key] = self.frame.schema
        return known

    def select(self, *columns: Column | str) -> Query:
        """Return these columns. Text is SQL."""
        texts = [column for column in columns if isinstance(column, str)]
        if len(texts) == len(columns):
            return self._add(texts)
        chosen = [F.expr(column) if isinstance(column, str) and column != "*" else column for column in columns]
        return Query(self.frame.select(*chosen), observed=self.observed)

    def where(self, condition: str) -> Query:
        """Return the rows for which the condition, in SQL, is true."""
        return self._add(condition)

    def observe(self, observation: pyspark.sql.Observation, *figures: Column) -> Query:
        """Return the same rows. The observation gets these figures of them."""
        return Query(self.frame.observe(observation, *figures), (), self.schemas, self.key, observed=True)

    def _add(self, step: Sequence[str] | str) -> Query:
        key = None if self.key is None else _digest(self.key, repr(step))
        built: DataFrame | None = self.__dict__.get("_frame")
        if built is not None:
            return Query(built, (step,), self.schemas, key, observed=self.observed)
        return Query(self.source, (*self.steps, step), self.schemas, key, observed=self.observed)

    def _build(self) -> DataFrame:
        if not self.steps:
            return self.source
        spark = self.source.sparkSession
        if self.observed or is_connect(spark):  # on Spark Connect a step is no call, but a view is one
            frame = self.source
            for step in self.steps:
                frame = frame.where(step) if isinstance(step, str) else frame.selectExpr(*step)
            return frame
        frame, view = self.source, f"{HIDDEN}{uuid.uuid4().hex}"
        text = view
        for step in self.steps:
            what = f"* FROM {text} WHERE {step}" if isinstance(step, str) else f"{', '.join(step)} FROM {text}"
            text = f"(SELECT {what}\n)"
            if len(text) > LONG:
                frame, text = _analyse(frame, view, text), view
        return frame if text == view else _analyse(frame, view, text)


def _analyse(source: DataFrame, view: str, text: str) -> DataFrame:
    """Return the rows of a query. The source has this name in it."""
    spark = source.sparkSession
    # To drop a view drops what anybody cached of the same plan. Nobody has a plan with this name in it.
    source.where(f"'{view}' IS NOT NULL").createOrReplaceTempView(view)
    with clean_up_by(lambda: spark.catalog.dropTempView(view)):
        return spark.sql(text)


def _digest(before: bytes, text: str) -> bytes:
    return hashlib.blake2b(before + text.encode(), digest_size=16).digest()
