"""A batch: the rows of one lane after `start` up to and including `end`, always the same span under its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, TypeAlias

from origins.quick_dataclass import dataclass

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value that `json.dumps` takes. An offset is one, and only its origin understands it."""
JSON: TypeAlias = Any
"""A part of a document that a command prints, whose shape the documentation of the command gives."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one batch may hold. None is no limit; which limits bind, each origin says in `Origin.binds`."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, kw_only=True)
class Span:
    """What an origin planned as a lane's next batch. All that is needed to read exactly these rows again."""

    start: Json
    """The offset before the first row, exclusive; None at the lane's beginning."""
    end: Json
    """The offset of the last row, inclusive."""
    parts: tuple[Json, ...] = ()
    """What the rows are read from, in the order of their rows (files with size and time); kept in the ledger."""
    label: str = ""
    """The span as a person would name it."""
    full: bool = field(default=True, compare=False)
    """Whether the batch is complete; without a limit it may grow while the run waits for more."""
    bytes: int | None = field(default=None, compare=False)
    """About how many bytes its rows are, once nothing of them is packed; None where that is not known."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A planned batch, as an origin reads it and stages and destinations name it."""

    pipeline: str
    run: str
    origin: str
    lane: str
    number: int
    plan: str
    """The plan's id: random, never reused. It is what destinations remember."""
    span: Span
    schema: str
    """The schema of the rows as read, pinned when the batch was planned (Spark's JSON)."""
    time: datetime
    """`:batch_time`, the clock for expressions: when the batch was planned, in UTC."""
    first: bool = False
    """Whether it is the first of a load, which a run begins that finds all carried that was there before. A run that
    goes on where another one died or was stopped begins none."""
    definition: str = field(default="", repr=False)
    """The hash of the definition that planned it."""
    instead: Mapping[str, str] = field(default_factory=dict, hash=False)
    """For a destination, by its name, the condition for the rows that make room for the batch's, in the same commit."""
