"""The rows of a table, one for each key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from origins.names import HIDDEN, quoted
from stages.ordering import by_content

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FOUND = HIDDEN + "found"
"""True, so that NULL beside a row says that nothing met it."""
TWICE = HIDDEN + "twice"
"""Whether the table has more rows with this key."""
_NUMBER = HIDDEN + "number"
_ORDER = re.compile(r"(?P<sql>.+?)(?:\s+(?P<way>asc|desc))?\s*", re.IGNORECASE | re.DOTALL)


def expression_of(order: str) -> str:
    """The expression of what a table is ordered by, without `asc` or `desc`."""
    found = _ORDER.fullmatch(order)
    return found.group("sql") if found else order


def unique_rows(
    table: DataFrame, keys: Mapping[str, str], taken: Mapping[str, str], order_by: Sequence[str]
) -> DataFrame:
    """Columns of the table under other names, from each to what it is called there, with `FOUND` and `TWICE`.

    Of rows with the same keys it is the first by `order_by`, and of those that are equal in that their content decides;
    any one where nothing is said.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = {f"{HIDDEN}order{index}": order for index, order in enumerate(order_by)}
    chosen = table.select(
        *[F.col(quoted(theirs)).alias(name) for name, theirs in {**keys, **taken}.items()],
        *[F.expr(expression_of(order)).alias(name) for name, order in ordered.items()],
    )
    for key in keys:
        chosen = chosen.where(F.col(key).isNotNull())
    order = [_ordered(name, sql) for name, sql in ordered.items()]
    if order and taken:
        order += by_content(chosen.select(*taken).schema)
    window = Window.partitionBy(*keys).orderBy(*(order or keys))
    numbered = chosen.select(
        "*",
        F.row_number().over(window).alias(_NUMBER),
        F.lead(F.lit(True)).over(window).isNotNull().alias(TWICE),
    )
    return numbered.where(F.col(_NUMBER) == 1).select(*keys, *taken, TWICE, F.lit(True).alias(FOUND))


def _ordered(name: str, order: str) -> Column:
    """NULL comes last in either way."""
    from pyspark.sql import functions as F

    found = _ORDER.fullmatch(order)
    down = found is not None and (found.group("way") or "").lower() == "desc"
    return F.desc_nulls_last(name) if down else F.asc_nulls_last(name)
