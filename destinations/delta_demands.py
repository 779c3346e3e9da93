"""What a Delta destination demands of rows: what its own options need, then what its table does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from destinations.delta_rules import Declared, rules
from destinations.demands import Demands, Rule
from origins.names import quoted
from origins.secret import put_references
from stages.deduplicate import Deduplicate
from stages.expressions import columns_in
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from destinations.delta import Delta


def demanded(delta: Delta, table: Declared, rows: StructType) -> Sequence[Stage]:
    """The stages that rows pass before they are written; none where everything is taken.

    Of a row that only takes another one away the table demands nothing.
    """
    if delta.stamp:
        table = replace(table, identities={**table.identities, delta.stamp.lower(): True})
    theirs = rules(table, delta.written(rows), updates=delta.mode == "merge")
    if delta.apply_as_deletes:
        spared = f"coalesce(({delta.apply_as_deletes}), false)"
        theirs = [replace(rule, holds=f"{spared} OR coalesce({rule.holds}, false)") for rule in theirs]
    found = [*_own(delta, rows), *theirs]
    stages: list[Stage] = [Demands(rules=found)] if found else []
    if delta.mode == "merge":
        stages.append(Deduplicate(keys=delta.keys, sequence_by=_sequence(delta)))
    return stages


def _sequence(delta: Delta) -> str | None:
    """Which of two rows is later, as an expression: of those with one sequence, a row that stays."""
    by = quoted(delta.sequence_by) if delta.sequence_by else None
    if by is None or not delta.apply_as_deletes:
        return by
    return f"struct({by}, NOT coalesce(({delta.apply_as_deletes}), false))"


def _own(delta: Delta, rows: StructType) -> Iterator[Rule]:
    for key in delta.keys:
        says = f"key {key} is NULL, and a merge finds rows by it"
        yield Rule(code="KEY", holds=f"{quoted(key)} IS NOT NULL", says=says)
    if delta.sequence_by:
        says = f"{delta.sequence_by} is NULL, and a merge goes by it (sequence_by)"
        yield Rule(code="SEQUENCE", holds=f"{quoted(delta.sequence_by)} IS NOT NULL", says=says)
    if delta.where:
        asked = columns_in(delta.where)
        shows = [field.name for field in rows if field.name.lower() in asked]
        says = f"the row does not match where ({put_references(delta.where)})"
        yield Rule(code="WHERE", holds=delta.where, says=says, shows=shows)
