"""`cast`: gives columns another type, and refuses rows whose values cannot have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from origins.nack import reason, shown
from origins.names import HIDDEN
from stages.expressions import check_row_expressions
from stages.stage import Stage, check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Cast(Stage):
    """Gives columns another type. A row with a value that cannot have it is refused; NULL stays NULL."""

    columns: Mapping[str, str] = field(kw_only=False)
    """From each column's name to its new type, as in SQL."""

    def __post_init__(self) -> None:
        check_row_expressions("columns", self.columns)

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F

        check_columns(self.columns, rows)
        kinds = {rows.spelled(name): kind.strip() for name, kind in self.columns.items()}
        put = {name: f"{HIDDEN}{index}" for index, name in enumerate(kinds)}
        tried = {put[name]: rows.column(name).try_cast(kind) for name, kind in kinds.items()}
        wrong = [
            F.when(_is_lost(rows, name, kind, F.col(put[name])), _said(name, kind, rows.column(name)))
            for name, kind in kinds.items()
        ]
        why = F.when(F.coalesce(*wrong).isNotNull(), reason("CAST", F.concat_ws("; ", *wrong)))
        return rows.attempt(tried, why, put)


def _said(name: str, kind: str, value: Column) -> Column:
    from pyspark.sql import functions as F

    article = "an" if kind[0].lower() in "aeiou" else "a"
    return F.concat(F.lit(f"column {name}: "), shown(value), F.lit(f" is not {article} {kind}"))


def _is_lost(rows: Rows, name: str, kind: str, after: Column) -> Column:
    """Whether the cast made NULL of a value, or of one inside it."""
    from pyspark.sql.types import DataType

    before = rows.column(name)
    if "<" not in kind:
        return before.isNotNull() & after.isNull()
    return _lost_inside(before, rows.schema[name].dataType, after, DataType.fromDDL(kind))


def _lost_inside(before: Column, old: DataType, after: Column, new: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    lost = before.isNotNull() & after.isNull()
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        inner = old.elementType, new.elementType
        each = F.zip_with(before, after, lambda one, other: _lost_inside(one, inner[0], other, inner[1]))
        return lost | F.coalesce(F.exists(each, lambda is_lost: is_lost), F.lit(False))
    if isinstance(old, MapType) and isinstance(new, MapType):
        values = (F.map_values(before), ArrayType(old.valueType), F.map_values(after), ArrayType(new.valueType))
        return lost | _lost_inside(*values)
    if isinstance(old, StructType) and isinstance(new, StructType):
        for one, other in zip(old, new, strict=True):
            lost = lost | _lost_inside(before[one.name], one.dataType, after[other.name], other.dataType)
    return lost
