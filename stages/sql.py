"""`sql`: one statement over the rows of a batch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from stages.expressions import check_expression, plain_select, put_in, repeatable, tables_in
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from stages.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Sql(Stage):
    """Puts in the place of a batch's rows what one statement over `rows` gives; it may join, group and unfold them."""

    changes_rows: ClassVar[bool] = True
    gathers: ClassVar[bool] = True

    statement: str = field(kw_only=False)
    """A query, for example `select *, date(at) as day from rows`."""

    def __post_init__(self) -> None:
        check_expression("statement", self.statement)

    @property
    def takes_all(self) -> bool:
        """A query within a query may stop early."""
        return plain_select(self.statement)

    @property
    def repeatable(self) -> bool:
        """Other tables may change between two tries, so that a statement that asks one is not."""
        return repeatable(self.statement) and tables_in(self.statement) <= {"rows"}

    def apply(self, rows: Rows) -> Rows:
        statement = put_in(self.statement, rows.labels).rstrip()
        statement = re.sub(r";\s*$", "", statement).replace("{", "{{").replace("}", "}}")

        def ask(frame: DataFrame) -> DataFrame:
            return frame.sparkSession.sql(f"with rows as (select * from {{source}}) (\n{statement}\n)", source=frame)

        return rows.change(ask)
