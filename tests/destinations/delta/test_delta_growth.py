"""The statements that make a Delta table fit rows with more columns or wider types."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, LongType, MapType, StringType, StructType

from destinations.delta.schema import list_growth_statements
from tests.origins.files.test_growth import struct

INT, LONG, TEXT = IntegerType(), LongType(), StringType()
WIDENS = "ALTER TABLE t SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"


@pytest.mark.parametrize(
    ("rows", "table", "statements"),
    [
        (struct(Id=INT), struct(iD=INT, more=TEXT), []),
        (struct(id=INT, a=TEXT, b=INT), struct(id=INT), ["ALTER TABLE t ADD COLUMNS (`a` string, `b` int)"]),
        (
            struct(s=struct(a=INT, b=INT), items=ArrayType(struct(c=INT)), tags=MapType(TEXT, struct(d=INT))),
            struct(s=struct(A=INT), items=ArrayType(struct()), tags=MapType(TEXT, struct())),
            ["ALTER TABLE t ADD COLUMNS (`s`.`b` int, `items`.element.`c` int, `tags`.value.`d` int)"],
        ),
        (struct(id=LONG), struct(id=INT), [WIDENS, "ALTER TABLE t ALTER COLUMN `id` TYPE bigint"]),
        (
            struct(items=ArrayType(DecimalType(12, 2))),
            struct(items=ArrayType(DecimalType(10, 2))),
            [WIDENS, "ALTER TABLE t ALTER COLUMN `items`.element TYPE decimal(12,2)"],
        ),
        (struct(id=TEXT), struct(id=INT), []),
        (struct(id=INT), struct(id=LONG), []),
    ],
)
def test_a_table_gets_missing_columns_and_wider_types(
    rows: StructType, table: StructType, statements: list[str]
) -> None:
    """It gets columns, fields in columns, and wider types. Other differences lead to no statement."""
    assert list_growth_statements(rows, table, "t") == statements
