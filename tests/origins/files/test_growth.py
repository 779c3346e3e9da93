"""How a schema grows, and how JSON is scanned without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from origins.files import file_systems
from origins.files.changes import Changes, grow_schema, is_wider
from origins.files.in_process import are_lines_plain
from origins.schema import format_ddl

INT, LONG, TEXT = IntegerType(), LongType(), StringType()
ALL = Changes(extra="evolve", wider="evolve")


def make_struct(**fields: DataType) -> StructType:
    found = StructType()
    for name, kind in fields.items():
        found.add(name, kind)
    return found


def test_new_columns_follow_the_known_ones_at_any_depth() -> None:
    """Known columns keep their places. Names that differ only in case are one column."""
    known = make_struct(
        id=INT, s=make_struct(a=INT), items=ArrayType(make_struct(b=INT)), tags=MapType(TEXT, make_struct(c=INT))
    )
    found = make_struct(
        ID=INT,
        tags=MapType(TEXT, make_struct(d=INT)),
        items=ArrayType(make_struct(e=INT)),
        s=make_struct(f=INT, A=TEXT),
        new=TEXT,
    )
    assert format_ddl(grow_schema(known, found, ALL)) == (
        "id int, s struct<`a`: int, `f`: int>, items array<struct<`b`: int, `e`: int>>, "
        "tags map<string, struct<`c`: int, `d`: int>>, new string"
    )
    assert grow_schema(known, found, Changes(extra="nack")) == known


def test_a_type_grows_only_with_that_policy() -> None:
    """It becomes a wider type of the same kind."""
    known, found = (
        make_struct(id=INT, note=INT, s=make_struct(a=INT)),
        make_struct(id=LONG, note=TEXT, s=make_struct(a=LONG)),
    )
    assert format_ddl(grow_schema(known, found, ALL)) == "id bigint, note int, s struct<`a`: bigint>"
    assert grow_schema(known, found, Changes(extra="evolve")) == known


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        (INT, LONG, True),
        (ByteType(), ShortType(), True),
        (LONG, INT, False),
        (INT, INT, False),
        (INT, DecimalType(10, 0), True),
        (INT, DecimalType(10, 1), False),
        (LONG, DecimalType(19, 0), False),
        (LONG, DecimalType(20, 0), True),
        (DecimalType(10, 2), DecimalType(12, 3), True),
        (DecimalType(10, 2), DecimalType(10, 3), False),
        (DecimalType(10, 2), DecimalType(10, 2), False),
        (FloatType(), DoubleType(), True),
        (LONG, DoubleType(), False),
        (INT, TEXT, False),
    ],
)
def test_a_wider_type_holds_every_value_of_the_narrower_one(narrow: DataType, wide: DataType, expected: bool) -> None:
    """No digit is lost, and Delta can widen the type."""
    assert is_wider(wide, narrow) is expected


SCHEMA = make_struct(
    id=INT, s=make_struct(a=INT), items=ArrayType(make_struct(b=INT)), tags=MapType(TEXT, make_struct(c=INT))
)
WHOLE = {"id": 1, "s": {"a": 1}, "items": [{"b": 1}], "tags": {"x": {"c": 1}}}


@pytest.mark.parametrize(
    ("changed", "extra", "missing", "clean"),
    [
        ({}, True, True, True),
        ({"x": 1}, True, False, False),
        ({"x": 1}, False, True, True),
        ({"s": {"a": 1, "x": 1}}, True, False, False),
        ({"items": [{"b": 1}, {"b": 2, "x": 1}]}, True, False, False),
        ({"tags": {"y": {"c": 1, "x": 1}}}, True, False, False),
        ({"ID": 1}, False, False, False),
        ({"x": "ID"}, False, False, True),
        ({"x": 1, "\u00fc": 1}, False, False, True),
        ({"s": {"A": 1}}, False, False, False),
        ({"s": {}}, False, True, False),
        ({"s": None}, False, True, True),
        ({"s": {}}, True, False, True),
    ],
)
def test_a_scan_finds_keys_that_differ(
    tmp_path: Path, changed: dict[str, Any], extra: bool, missing: bool, clean: bool
) -> None:
    """They may be at any depth. A name in another case always counts."""
    file = tmp_path / "a.json"
    file.write_text(f"{json.dumps(WHOLE)}\n\n{json.dumps({**WHOLE, **changed})}\n")
    assert are_lines_plain([file], SCHEMA, extra=extra, missing=missing, doubled=False, whole_file=False) is clean
    file.write_text(json.dumps([WHOLE, {**WHOLE, **changed}], indent=1))
    assert are_lines_plain([file], SCHEMA, extra=extra, missing=missing, doubled=False, whole_file=True) is clean


def test_a_scan_understands_keys_with_escapes(tmp_path: Path) -> None:
    """The decoded key counts."""
    file = tmp_path / "a.json"
    for key, clean in (("\\u0069d", True), ("\\u0049d", False)):
        file.write_text(f'{{"{key}": 1}}\n')
        assert are_lines_plain([file], SCHEMA, extra=False, missing=False, doubled=False, whole_file=False) is clean


def test_content_that_was_not_scanned_does_not_count_as_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is a broken line, or a file that is too large."""
    file = tmp_path / "a.json"
    file.write_text('{"id": 1}\n{"id"\n')
    assert are_lines_plain([file], SCHEMA, extra=True, missing=False, doubled=False, whole_file=False) is False
    file.write_text('{"id": 1}\n')
    assert are_lines_plain([file], SCHEMA, extra=False, missing=False, doubled=False, whole_file=False) is True
    monkeypatch.setattr(file_systems, "SMALL", 1)
    assert are_lines_plain([file], SCHEMA, extra=False, missing=False, doubled=False, whole_file=False) is False


def test_a_schema_is_written_so_that_it_can_be_pasted() -> None:
    """Names that are not plain are quoted."""
    columns = make_struct(**{"id": INT, "two words": TEXT, "s": make_struct(**{"a-b": DecimalType(10, 2)})})
    assert format_ddl(columns) == "id int, `two words` string, s struct<`a-b`: decimal(10,2)>"
