"""Files of rows for editing. Each value is read back unchanged, and an invalid value is refused with a message."""

from __future__ import annotations

import base64
import csv
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origins.batch import Json
from runners.model.errors import Refusal
from runners.model.row_values import BadValue, Number, check_value, keep_if_same, parse_cell, show_cell, write_json
from runners.operations.row_files import ID, EditableRow, find_format, read_rows, write_rows

ENDINGS = ["csv", "json"]


def make_struct(*fields: tuple[str, Json]) -> dict[str, Any]:
    """Return a struct type with these fields."""
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def make_array(kind: Json) -> dict[str, Json]:
    return {"type": "array", "elementType": kind}


def make_mapping(key: Json, value: Json) -> dict[str, Json]:
    return {"type": "map", "keyType": key, "valueType": value}


TRICKY = [
    *("", '""', "'", "''", '\'""', "=1+1", "'=1", "+5", "-3,50", "@x", "=", "base64:", "00123", " spaced ", "NULL"),
    *("\t", "\r\n", "a\nb", 'say "no"', "ä€😀", "a\x01b", "a;b,c", "\ufeffx", "\u2028"),
    "\0" + base64.b64encode(b"\xff\xfe").decode(),
]
"""Text that a spreadsheet or a CSV reader may misread. The last one is bytes that are no text, as the DLQ stores
them.
"""
TEXTS = st.sampled_from(TRICKY) | st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def draw_decimals(precision: int, scale: int) -> st.SearchStrategy[Number]:
    """Numbers as Spark writes them, with all digits after the point."""

    def write(digits: int) -> Number:
        whole, part = divmod(abs(digits), 10**scale)
        return Number(f"{'-' if digits < 0 else ''}{whole}.{part:0{scale}d}")

    return st.integers(-(10**precision) + 1, 10**precision - 1).map(write)


SCALARS: list[tuple[Json, st.SearchStrategy[Any]]] = [
    ("string", TEXTS),
    ("boolean", st.booleans()),
    ("byte", st.integers(-128, 127).map(Number)),
    ("long", st.integers(-(2**63), 2**63 - 1).map(Number)),
    ("double", st.floats(allow_nan=False, allow_infinity=False).map(repr).map(Number)),
    ("double", st.sampled_from(["NaN", "Infinity", "-Infinity"])),
    ("float", st.sampled_from(["0.1", "1.0E10", "3.4028235E38", "-0.0"]).map(Number)),
    ("decimal(10,2)", draw_decimals(10, 2)),
    ("decimal(38,18)", draw_decimals(38, 18) | st.just(Number("11641532182.693481445312499995"))),
    ("date", st.dates().map(str)),
    ("timestamp", st.datetimes().map(lambda at: at.isoformat(timespec="microseconds") + "Z")),
    ("timestamp_ntz", st.datetimes().map(lambda at: at.isoformat(timespec="microseconds"))),
    ("binary", st.binary().map(base64.b64encode).map(bytes.decode)),
]


def draw_nested(inner: tuple[Json, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[Json, st.SearchStrategy[Any]]]:
    """Types that contain this type."""
    kind, values = inner
    some, keys = st.none() | values, st.integers(0, 99).map(Number)
    entry = st.fixed_dictionaries({"key": keys, "value": some})
    entries = st.lists(entry, max_size=3, unique_by=lambda each: each["key"])
    return st.sampled_from([
        (make_array(kind), st.lists(some, max_size=3)),
        (make_struct(("a", kind), ("B c", "long")), st.fixed_dictionaries({"a": some, "B c": st.just(Number("7"))})),
        (make_mapping("string", kind), st.dictionaries(TEXTS, some, max_size=3)),
        (make_mapping("long", kind), entries),
    ])  # fmt: skip


COLUMNS = st.recursive(st.sampled_from(SCALARS), lambda inner: inner.flatmap(draw_nested), max_leaves=3)


@st.composite
def draw_rows(draw: st.DrawFn) -> EditableRow:
    """A refused row with a few columns of any type."""
    columns = {f"c{number}": column for number, column in enumerate(draw(st.lists(COLUMNS, min_size=1, max_size=4)))}
    return EditableRow(
        id="p/1",
        code="CAST",
        message=draw(TEXTS.filter(lambda text: "\0" not in text)),
        kinds={name: kind for name, (kind, _) in columns.items()},
        values={name: draw(st.none() | values) for name, (_, values) in columns.items()},
    )


def write_and_read(row: EditableRow, ending: str, folder: Path) -> Mapping[str, Json]:
    """Write a row to a file, read it, and return its values."""
    file = folder / f"rows.{ending}"
    write_rows(file, [row], row.kinds)
    (edited,) = read_rows(file)
    form = find_format(file)
    assert edited.id == row.id
    return {
        name: keep_if_same(form.parse(edited.cells[name], kind, row.values[name]), row.values[name], kind)
        for name, kind in row.kinds.items()
    }


@pytest.mark.parametrize("ending", ENDINGS)
@given(row=draw_rows())
def test_a_row_of_any_type_is_read_back_unchanged(ending: str, row: EditableRow) -> None:
    """This includes all digits, text that looks like a formula, empty text, NULL, and bytes that are no text."""
    with tempfile.TemporaryDirectory() as folder:
        assert write_json(write_and_read(row, ending, Path(folder))) == write_json(row.values)


@given(column=COLUMNS, data=st.data())
def test_a_cell_alone_gives_its_value(column: tuple[Json, st.SearchStrategy[Any]], data: st.DataObject) -> None:
    """The cell is parsed without the original value. Only NULL is an empty cell."""
    kind, values = column
    value = data.draw(values)
    cell = show_cell(value, kind)
    assert cell != ""
    assert write_json(check_value(parse_cell(cell, kind), kind)) == write_json(check_value(value, kind))


@given(text=TEXTS)
def test_a_cell_never_looks_like_a_formula(text: str) -> None:
    """This holds for any text."""
    assert show_cell(text, "string")[0] not in "=+-@\t\r＝＋－＠"  # noqa: RUF001 -- full-width forms count too


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (Number("1.5"), "long", "1.5 is not a bigint"),
        (Number("300"), "byte", "out of range"),
        ("7", "long", "'7' is not a bigint"),
        (Number("1.234"), "decimal(10,2)", "more than 2 digits behind the point"),
        (Number("1e99999999"), "decimal(10,2)", "out of range"),
        (Number("123456789"), "decimal(10,2)", "out of range"),
        (Number("1e400"), "double", "out of range"),
        (True, "string", "true is not a string"),
        (Number("1"), "boolean", "1 is not a boolean"),
        ("2026-02-30", "date", "there is no such day"),
        ("31.01.2026", "date", "write it as 2026-01-31"),
        ("2026-01-31T25:00:00Z", "timestamp", "there is no such time"),
        ("2026-01-31T06:00:00.1234567Z", "timestamp", "at most 6 digits"),
        ("2026-01-31T06:00:00Z", "timestamp_ntz", "it has no time zone"),
        ("x", "binary", "in base64"),
        ("\ud800", "string", "half of a pair"),
        ([Number("1"), "x"], make_array("long"), r"^\[2\]: 'x' is not a bigint"),
        ({"a": Number("1"), "z": None}, make_struct(("a", "long")), "there is no field 'z'"),
        ({"a": {"b": "x"}}, make_struct(("a", make_struct(("b", "long")))), r"^\.a\.b: 'x'"),
        ({"k": "x"}, make_mapping("long", "string"), "a list of"),
        ([{"key": Number("1")}, {"key": Number("01")}], make_mapping("long", "string"), "the same key twice"),
        ([{"value": "x"}], make_mapping("long", "string"), "needs a key"),
        ("x", "interval day to second", "can only stay as it is"),
    ],
)
def test_a_value_of_another_type_is_refused(value: Json, kind: Json, message: str) -> None:
    """The message has the given value and the expected type."""
    with pytest.raises(BadValue, match=message):
        check_value(value, kind)


@pytest.mark.parametrize(
    ("value", "original", "kind", "same"),
    [
        (Number("1.1"), Number("1.10"), "decimal(10,2)", True),
        (Number("1.11"), Number("1.10"), "decimal(10,2)", False),
        (Number("11641532182.693481445312499995"), Number("11641532182.693481445312500000"), "decimal(38,18)", False),
        (Number("0.05"), Number("5e-2"), "decimal(10,2)", True),
        (Number("1e3"), Number("1000.0"), "double", True),
        ("2026-01-31 07:00+01:00", "2026-01-31T06:00:00.000000Z", "timestamp", True),
        ("2026-01-31 06:00", "2026-01-31T06:00:00.000000Z", "timestamp", True),
        ("2026-01-31 06:01", "2026-01-31T06:00:00.000000Z", "timestamp", False),
        ("1", Number("1"), make_array("long"), None),
        ([Number("01")], [Number("1")], make_array("long"), True),
        ("INTERVAL '1' DAY", "INTERVAL '1' DAY", "interval day", True),
        ("", None, "string", False),
        (None, "", "string", False),
    ],
)
def test_another_notation_of_a_value_is_no_change(value: Json, original: Json, kind: Json, same: bool | None) -> None:
    """A spreadsheet removes zeros, and writes times in another format."""
    if same is None:
        with pytest.raises(BadValue):
            keep_if_same(value, original, kind)
    else:
        assert (keep_if_same(value, original, kind) is original) is same


@pytest.mark.parametrize(
    ("cell", "kind", "message"),
    [
        ("1.23457E+15", "long", "a spreadsheet may have rounded it"),
        ("1E+3", "decimal(38,0)", "a spreadsheet may have rounded it"),
        ("2,50", "decimal(10,2)", "'2,50' is not a decimal"),
        ("[1,", make_array("long"), "it is not JSON"),
        ('{"a": 1, "a": 2}', make_struct(("a", "long")), "there twice"),
        ("[NaN]", make_array("double"), "NaN is not JSON"),
        ("[" * 100_000, make_array("long"), "too deep"),
        ("base64:?", "string", "is not base64"),
        (" ", "long", "' ' is not a bigint"),
    ],
)
def test_a_cell_that_a_spreadsheet_damaged_is_refused(cell: str, kind: Json, message: str) -> None:
    """It is not read as another value."""
    with pytest.raises(BadValue, match=message):
        check_value(parse_cell(cell, kind), kind)


ROW = EditableRow(
    id="p/1", code="CAST", message="no", values={"n": Number("7"), "t": "x"}, kinds={"n": "long", "t": "string"}
)
KINDS: dict[str, list[Json]] = {"n": ["long"], "t": ["string"]}


def test_a_csv_file_of_another_locale_is_read(tmp_path: Path) -> None:
    """It has semicolons or tabs, no byte order mark, empty rows, and empty cells after the last column."""
    for delimiter in ";\t":
        file = tmp_path / "rows.csv"
        lines = [[ID, "n", "t", ""], ["p/1", "8", "a,b", ""], ["", "", "", ""], ["p/2", "9", "", ""]]
        with file.open("w", newline="") as target:
            csv.writer(target, delimiter=delimiter).writerows(lines)
        assert [(row.number, row.id, row.cells["t"]) for row in read_rows(file)] == [(2, "p/1", "a,b"), (4, "p/2", "")]


def test_json_is_read_as_a_list_or_as_lines(tmp_path: Path) -> None:
    """The digits of its numbers are kept."""
    file = tmp_path / "rows.json"
    for text in (f'[{{"{ID}": "p/1", "n": 1.10}}]', f'{{"{ID}": "p/1", "n": 1.10}}\n{{"{ID}": "p/2"}}\n'):
        file.write_text(text)
        assert read_rows(file)[0].cells["n"] == "1.10"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.parquet", b"", r"ends with \.csv or \.json, got rows\.parquet"),
        ("rows.csv", b"", "has no column _wherry_id"),
        ("rows.csv", b"id,n\n1,2\n", r"has no column _wherry_id.*id, n"),
        ("rows.csv", b"_wherry_id,n,n\n", "has the column n twice"),
        ("rows.csv", b"_wherry_id,n,,t\n", "a column without a name, number 3"),
        ("rows.csv", b"_wherry_id,n\np/1\n", "Row 2 of rows.csv has 1 cells"),
        ("rows.csv", b"_wherry_id,n\np/1,1,2\n", "has 3 cells, but its header has 2"),
        ("rows.csv", b"_wherry_id,_wherry_masked\n", "was exported with masked values"),
        ("rows.csv", b"_wherry_id,n\np/1,\xe4\n", "is not text in UTF-8: byte 18"),
        ("rows.csv", b'_wherry_id,n\np/1,"x\n', "is not CSV"),
        ("rows.json", b"[1]", "Row 1 of rows.json is not an object"),
        ("rows.json", b'[{"n": 1}]', "has no column _wherry_id"),
        ("rows.json", b'[{"_wherry_id": 1}]', "not the id of a refused row"),
        ("rows.json", b'[{"_wherry_id": "p/1",', "is not JSON: .* line 1"),
        ("rows.json", b'[{"_wherry_id": "p/1", "n": 1, "n": 2}]', "'n' is there twice"),
        ("rows.json", b"[" * 100_000, "too deep"),
        ("none.csv", None, "There is no file"),
    ],
)
def test_an_unreadable_file_is_refused(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    """The message states what is wrong."""
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Refusal, match=message):
        read_rows(file)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_is_written_once_and_only_for_its_owner(ending: str, tmp_path: Path) -> None:
    """An existing file is not overwritten. If the rows end with an error, no file is left."""
    file = tmp_path / f"rows.{ending}"

    def fail() -> Any:
        yield ROW
        raise BadValue("the DLQ is gone")

    with pytest.raises(BadValue):
        write_rows(file, fail(), KINDS)
    assert list(tmp_path.iterdir()) == []
    write_rows(file, [ROW], KINDS)
    assert (oct(file.stat().st_mode)[-3:], list(tmp_path.iterdir())) == ("600", [file])
    before = file.read_bytes()
    with pytest.raises(Refusal, match="exists, and may hold edited rows"):
        write_rows(file, [], KINDS)
    assert file.read_bytes() == before
    with pytest.raises(Refusal, match="cannot be written: No such file"):
        write_rows(tmp_path / "none" / file.name, [ROW], KINDS)


def test_rows_with_different_columns_are_in_one_file(tmp_path: Path) -> None:
    """The cells of missing columns are empty. A column may have several types."""
    other = EditableRow(
        id="p/2", code="", message="", values={"n": "x", "z": "y"}, kinds={"n": "string", "z": "string"}
    )
    write_rows(tmp_path / "rows.csv", [ROW, other], ["n", "t", "z"])
    assert [[*row.cells.values()][3:] for row in read_rows(tmp_path / "rows.csv")] == [["7", "x", ""], ["x", "", "y"]]


def test_a_long_value_that_a_spreadsheet_cut_is_refused() -> None:
    """It is not taken for a change."""
    with pytest.raises(BadValue, match="has cut this value of 40,000 characters"):
        find_format(Path("rows.csv")).parse("x" * 32_767, "string", "x" * 40_000)
