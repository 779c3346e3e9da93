"""This process reads a number exactly, or leaves it to Spark."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

from origins.files.in_process import parse_rows
from tests.values.json_cases import DECIMALS, NUMBERS, make_number

KINDS = StructType(
    [StructField("text", StringType()), *(StructField(name, DecimalType(*size)) for name, size in DECIMALS.items())]
)


@pytest.mark.parametrize("name", ["text", *DECIMALS])
def test_this_process_reads_a_value_exactly_or_leaves_it_to_spark(name: str) -> None:
    """It also ends: some numbers made Arrow read outside its memory."""
    chance = random.Random(23)
    tokens = [*NUMBERS, *(make_number(chance) for _ in range(5_000))]
    schema, read = StructType([KINDS[name]]), 0
    for token in tokens:
        table = parse_rows(f'{{"{name}": {token}}}'.encode(), schema, extra=True, missing=True, zone=lambda: "UTC")
        value = None if table is None else table.column(0)[0].as_py()
        assert value is None or value == Decimal(token), token
        read += value is not None
    assert read > 100 or name == "text"
