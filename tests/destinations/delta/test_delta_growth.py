"""The statements that make a Delta table fit rows with more columns or wider types."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, LongType, MapType, StringType, StructType

from destinations.delta.schema import list_growth_statements
from tests.origins.files.test_growth import make_struct

INT, LONG, TEXT = IntegerType(), LongType(), StringType()
WIDENS = "ALTER TABLE t SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"


@pytest.mark.parametrize(
    ("rows", "table", "statements"),
    [
        (make_struct(Id=INT), make_struct(iD=INT, more=TEXT), []),
        (make_struct(id=INT, a=TEXT, b=INT), make_struct(id=INT), ["ALTER TABLE t ADD COLUMNS (`a` string, `b` int)"]),
        (
            make_struct(
                s=make_struct(a=INT, b=INT), items=ArrayType(make_struct(c=INT)), tags=MapType(TEXT, make_struct(d=INT))
            ),
            make_struct(s=make_struct(A=INT), items=ArrayType(make_struct()), tags=MapType(TEXT, make_struct())),
            ["ALTER TABLE t ADD COLUMNS (`s`.`b` int, `items`.element.`c` int, `tags`.value.`d` int)"],
        ),
        (make_struct(id=LONG), make_struct(id=INT), [WIDENS, "ALTER TABLE t ALTER COLUMN `id` TYPE bigint"]),
        (
            make_struct(items=ArrayType(DecimalType(12, 2))),
            make_struct(items=ArrayType(DecimalType(10, 2))),
            [WIDENS, "ALTER TABLE t ALTER COLUMN `items`.element TYPE decimal(12,2)"],
        ),
        (make_struct(id=TEXT), make_struct(id=INT), []),
        (make_struct(id=INT), make_struct(id=LONG), []),
    ],
)
def test_a_table_gets_missing_columns_and_wider_types(
    rows: StructType, table: StructType, statements: list[str]
) -> None:
    """It gets columns, fields in columns, and wider types. Other differences lead to no statement."""
    assert list_growth_statements(rows, table, "t") == statements
