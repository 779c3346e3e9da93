"""`sql`: one statement over the rows of a batch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from origins.lazy import DataFrame
from stages.expressions import check_expression, is_plain_select, is_repeatable_sql, list_tables, put_in
from stages.rows import Rows
from stages.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Sql(Stage):
    """Replaces the rows of a batch by the result of one statement over `rows`. It may join, group and unfold rows.

    Example:
        sql: "select id, item.sku, item.quantity from rows lateral view explode(items) as item"
    """

    changes_rows: ClassVar[bool] = True
    gathers: ClassVar[bool] = True

    statement: str = field(kw_only=False)
    """A query over `rows`, which are the rows of one batch."""

    def __post_init__(self) -> None:
        check_expression("statement", self.statement)

    @property
    def takes_all(self) -> bool:
        """Whether the statement certainly reads all rows. A query within a query may stop early."""
        return is_plain_select(self.statement)

    @property
    def repeatable(self) -> bool:
        """Whether the result is repeatable.

        A statement that reads other tables is not, since they may change between attempts.
        """
        return is_repeatable_sql(self.statement) and list_tables(self.statement) <= {"rows"}

    def apply(self, rows: Rows) -> Rows:
        statement = put_in(self.statement, rows.labels).rstrip()
        statement = re.sub(r";\s*$", "", statement).replace("{", "{{").replace("}", "}}")

        def ask(frame: DataFrame) -> DataFrame:
            return frame.sparkSession.sql(f"with rows as (select * from {{source}}) (\n{statement}\n)", source=frame)

        return rows.change(ask)
