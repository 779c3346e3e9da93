"""Files that differ from their schema, under every policy: which rows are delivered, rescued or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from origins.batch import Batch, Limits
from origins.files import Files, file_systems
from origins.files.changes import STOPS, SchemaChanged
from origins.nack import REFUSED
from origins.origin import PLACE, Progress
from tests.origins.files.test_files import make_batch

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "id int, note string, s struct<x: int>"
LINES = {
    "fits": '{"id": 1, "note": "a", "s": {"x": 1}}',
    "missing": '{"id": 2, "s": null}',
    "extra": '{"id": 3, "note": "b", "s": {"x": 1}, "new": {"k": [1, "Note"]}}',
    "inside": '{"id": 4, "note": "c", "s": {"x": 1, "y": 2}}',
    "wider": '{"id": 3000000000, "note": "d", "s": {"x": 1}}',
    "other": '{"id": "six", "note": "e", "s": {"x": 1}}',
    "case": '{"id": 7, "Note": "f", "s": {"x": 1}}',
    "other inside": '{"id": 8, "note": "g", "s": {"x": "no"}}',
    "broken": '{"id": 10, "note": "h"',
    "tail": '{"id": 11, "note": "i", "s": {"x": 1}} {"id": 12}',
    "list": '[{"id": 13, "note": "j", "s": {"x": 1}}]',
}
NOTHING = (None, None, None)


def plan_batch(spark: SparkSession, files: Files) -> Batch:
    """Return all that waits in lane 0 as one batch, with the evolved schema."""
    backlog = files.survey(spark, Progress())
    span, schema = backlog.take("0", None, Limits()), files.columns(spark, backlog)
    assert span is not None
    assert schema is not None
    return make_batch(span, files.complete_schema(files.evolve_schema(spark, backlog, schema, None)))


def read_decided(spark: SparkSession, plan: Batch, files: Files) -> list[Row]:
    """Return the decided rows in order."""
    frame = files.fetch(spark, [plan], places=True).frame()
    return frame.orderBy(f"{PLACE}.part", f"{PLACE}.block", f"{PLACE}.row").drop(PLACE).collect()


def describe_row(row: Row) -> Any:
    """Return the code of a refused row, or the values of another row with its rescued values."""
    values = row.asDict(recursive=True)
    refused, rescued = values.pop(REFUSED, None), values.pop("_rescued", None)
    if refused is not None:
        return refused["code"]
    some = tuple(value["x"] if name == "s" and value else value for name, value in values.items())
    return (*some, json.loads(rescued)) if rescued is not None else some


def read_both_ways(spark: SparkSession, files: Files) -> list[Row]:
    """Return the decided rows. Check that the straight rows are equal, or that both ways refuse a row."""
    plan = plan_batch(spark, files)
    rows = read_decided(spark, plan, files)
    straight = [describe_row(row) for row in files.fetch(spark, [plan]).frame().collect()]
    refuses = [any(isinstance(each, str) for each in way) for way in (straight, map(describe_row, rows))]
    assert refuses[0] == refuses[1]
    if not refuses[0]:
        assert sorted(map(str, straight)) == sorted(str(describe_row(row)) for row in rows)
    return rows


def make_files(folder: Path, names: Sequence[str], **options: Any) -> Files:
    (folder / "a.json").write_text("".join(f"{LINES[name]}\n" for name in names))
    return Files(**{"path": str(folder), "format": "json", "schema": SCHEMA, **options})


EVERY = tuple(LINES)
RESCUED = [
    (1, "a", 1),
    (2, None, None),
    (3, "b", 1, {"new": {"k": [1, "Note"]}}),
    (4, "c", 1, {"s": {"x": 1, "y": 2}}),
    (None, "d", 1, {"id": 3000000000}),
    (None, "e", 1, {"id": "six"}),
    (7, None, 1, {"Note": "f"}),
    (8, "g", None, {"s": {"x": "no"}}),
    *((*NOTHING, {"_line": LINES[name]}) for name in ("broken", "tail", "list")),
]
NACK = dict.fromkeys(("missing", "extra", "wider", "other", "corrupt"), "nack")
RESCUE = dict.fromkeys(("extra", "wider", "other", "corrupt"), "rescue")
JSON: dict[str, tuple[Mapping[str, str], list[Any]]] = {
    "what holds by itself": (
        {},
        [(1, "a", 1), (2, None, None), (3, "b", 1), (4, "c", 1), "PARSE", "PARSE", "SCHEMA", *["PARSE"] * 4],
    ),
    "all is refused": (NACK, [(1, "a", 1), *["SCHEMA"] * 3, *["PARSE"] * 2, "SCHEMA", *["PARSE"] * 4]),
    "all is rescued": (RESCUE, RESCUED),
    "only wide numbers are rescued": (
        {"wider": "rescue", "extra": "nack"},
        [(1, "a", 1), (2, None, None), "SCHEMA", "SCHEMA", RESCUED[4], "PARSE", "SCHEMA", *["PARSE"] * 4],
    ),
}


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("case", JSON)
def test_every_json_line_follows_its_policy(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """It is delivered, delivered with rescued values, or refused unchanged. No value becomes NULL."""
    changes, expected = JSON[case]
    rows = read_both_ways(spark, make_files(tmp_path, EVERY, on_change=changes))
    assert [describe_row(row) for row in rows] == expected
    for name, row in zip(EVERY, rows, strict=True):
        refused = row.asDict(recursive=True).get(REFUSED)
        assert refused is None or (refused["raw"], refused["message"][:8]) == (LINES[name], "a.json: "), name


SAID = {
    "missing": "there is no note",
    "extra": "the schema has no new",
    "inside": "the schema has no s.y",
    "wider": "column id: '3000000000' is not an int",
    "other": "column id: 'six' is not an int",
    "case": "Note is spelled differently from the column, and keys must match exactly; there is no note",
}


def test_a_refusal_names_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    """It names the file, the key or column, and the value, also when lines are rescued."""
    for changes in (NACK, {**NACK, "corrupt": "rescue"}):
        files = make_files(tmp_path, list(SAID), on_change=changes)
        rows = read_decided(spark, plan_batch(spark, files), files)
        assert [row[REFUSED].message for row in rows] == [f"a.json: {said}" for said in SAID.values()]


@pytest.mark.parametrize(("name", "kind"), [("missing", "missing"), ("wider", "wider"), ("broken", "corrupt")])
def test_a_json_line_stops_the_run_under_that_policy(spark: SparkSession, tmp_path: Path, name: str, kind: str) -> None:
    """The straight reading refuses it. The decided reading raises with the file and the reason."""
    files = make_files(tmp_path, ["fits", name], on_change={kind: "stop"})
    plan = plan_batch(spark, files)
    assert any(row[REFUSED] for row in files.fetch(spark, [plan]).frame().collect())
    with pytest.raises(Exception, match=f"{STOPS}a.json: "):
        read_decided(spark, plan, files)


def test_a_json_schema_grows_by_keys_and_wider_numbers(spark: SparkSession, tmp_path: Path) -> None:
    """This includes keys in a struct. A value of another type, or a key in another case, is still refused."""
    files = make_files(tmp_path, EVERY, on_change={"extra": "evolve", "wider": "evolve"})
    plan = plan_batch(spark, files)
    rows = read_decided(spark, plan, files)
    kinds = files.fetch(spark, [plan]).frame().dtypes
    assert kinds[:4] == [
        ("id", "bigint"),
        ("note", "string"),
        ("s", "struct<x:int,y:bigint>"),
        ("new", "struct<k:array<string>>"),
    ]
    assert [row.asDict(recursive=True)["new"] for row in rows[:3]] == [None, None, {"k": ["1", "Note"]}]
    assert (rows[3].s.y, rows[4].id) == (2, 3000000000)
    refused = [row[REFUSED].code if row[REFUSED] else None for row in rows]
    assert refused == [None] * 5 + ["PARSE", "SCHEMA", "PARSE", "PARSE", "PARSE", "PARSE"]


def test_a_json_schema_grows_beside_a_doubled_key(spark: SparkSession, tmp_path: Path) -> None:
    """An object with a doubled key adds no column and is refused, and so is a broken line."""
    doubled = ['{"id": 1, "id": 2}', '{"s": {"x": 1, "x": 2}, "other": 1}']
    (tmp_path / "a.json").write_text("\n".join([*doubled, LINES["broken"], LINES["extra"]]))
    files = Files(path=str(tmp_path), format="json", schema=SCHEMA, on_change={"extra": "evolve"})
    *refused, grown = read_decided(spark, plan_batch(spark, files), files)
    assert [row[REFUSED].code for row in refused] == ["SCHEMA", "SCHEMA", "PARSE"]
    assert grown.asDict(recursive=True)["new"] == {"k": ["1", "Note"]}
    inferred = Files(path=str(tmp_path), format="json", on_change={"extra": "nack"})
    *refused, grown = read_decided(spark, plan_batch(spark, inferred), inferred)
    assert [row[REFUSED].code for row in refused] == ["SCHEMA", "SCHEMA", "PARSE"]
    assert grown.id == 3


DEEP = '{"id": 5, "note": "} ]", "s": {"x": 1}, "new": {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}}}'
IN_FILES = {
    "a.json": "[" + ",\n ".join(LINES[name] for name in EVERY[:8]) + "]\n",
    "b.json": json.dumps(json.loads(LINES["extra"]), indent=2),
    "c.json": f"{LINES['fits']}\n{LINES['fits']}",
    "d.json": f'[{LINES["fits"]}, "{{}}"]',
    "e.json": f"[{LINES['fits']}, {DEEP}]",
    "f.json": f"[{LINES['fits']}, {LINES['broken']}",
    "g.json": "[]",
    "h.json": f"[[{LINES['fits']}]]",
}
OF_A = [LINES[name] for name in EVERY[:8]]
WHOLE: dict[str, tuple[bool, Mapping[str, str], list[Any]]] = {
    "all is rescued": (
        False,
        RESCUE,
        [
            *RESCUED[:8],
            RESCUED[2],
            *((*NOTHING, {"_line": IN_FILES[name]}) for name in ("c.json", "d.json")),
            RESCUED[0],
            (5, "} ]", 1, {"new": json.loads(DEEP)["new"]}),
            *((*NOTHING, {"_line": IN_FILES[name]}) for name in ("f.json", "h.json")),
        ],
    ),
    "only broken files are rescued": (
        True,
        {"corrupt": "rescue", "extra": "nack"},
        [
            *RESCUED[:2],
            *OF_A[2:8],
            json.dumps(json.loads(LINES["extra"]), indent=2),
            *((*NOTHING, {"_line": IN_FILES[name]}) for name in ("c.json", "d.json")),
            RESCUED[0],
            '{"id":5,"new":{"a":{"b":{"c":{"d":{"e":{"f":{"g":1}}}}}}},"note":"} ]","s":{"x":1}}',
            *((*NOTHING, {"_line": IN_FILES[name]}) for name in ("f.json", "h.json")),
        ],
    ),
}


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("case", WHOLE)
def test_the_objects_of_a_whole_file_are_rescued_separately(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """With `multiLine`, one object is refused, or a file that is neither an object nor an array of objects."""
    looked_at, changes, expected = WHOLE[case]
    if not looked_at:
        monkeypatch.setattr(file_systems, "_sum_sizes", lambda _: 1 << 40)
    for name, content in IN_FILES.items():
        (tmp_path / name).write_text(content)
    files = Files(path=str(tmp_path), format="json", schema=SCHEMA, options={"multiLine": True}, on_change=changes)
    rows = read_both_ways(spark, files)
    assert [row[REFUSED].raw if row[REFUSED] else describe_row(row) for row in rows] == expected


def test_numbers_in_a_whole_file_keep_all_digits(spark: SparkSession, tmp_path: Path) -> None:
    """This holds for delivered and for rescued numbers."""
    digits = "1234567890123456789.12"
    (tmp_path / "a.json").write_text(f'[{{"id": {digits}, "x": "six"}}, {{"id": 1.5, "x": {digits}}}]')
    files = Files(
        path=str(tmp_path),
        format="json",
        schema="id decimal(38,2), x int",
        options={"multiLine": True},
        on_change={"other": "rescue"},
    )
    first, second = read_both_ways(spark, files)
    assert (str(first.id), first["_rescued"]) == (digits, '{"x":"six"}')
    assert (str(second.id), second["_rescued"]) == ("1.50", f'{{"x":{digits}}}')


FINE = {
    "lines": ("json", {}, '{"amount": 1.500}\n{"amount": 1.505}\n{"amount": 22.5e-1}\n', '{"amount": 1.505}'),
    "a file": ("json", {"multiLine": True}, '[{"amount": 1.500}, {"amount": 1.505}, {"amount": 22.5e-1}]', None),
    "fields": ("csv", {}, "amount\n1.500\n1.505\n22.5e-1\n", "1.505"),
    "fields over lines": ("csv", {"multiLine": True}, "amount\n1.500\n1.505\n22.5e-1\n", "1.505"),
}


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize(
    ("case", "policy", "looked_at"),
    [
        ("lines", "nack", False),
        ("lines", "rescue", True),
        ("a file", "nack", True),
        ("fields", "rescue", False),
        ("fields over lines", "nack", True),
    ],
)
def test_a_decimal_with_too_many_digits_is_not_rounded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, policy: str, looked_at: bool
) -> None:
    """It is refused or rescued like a number that is too large. Trailing zeros do not count as digits."""
    if not looked_at:
        monkeypatch.setattr(file_systems, "_sum_sizes", lambda _: 1 << 40)
    kind, options, content, raw = FINE[case]
    (tmp_path / "a").write_text(content)
    files = Files(
        path=str(tmp_path),
        format=kind,
        schema="amount decimal(10,2)",
        options=options,
        on_change={"wider": policy},
    )
    rows = read_both_ways(spark, files)
    if policy == "rescue":
        assert [
            (str(row.amount), row["_rescued"] and float(json.loads(row["_rescued"])["amount"])) for row in rows
        ] == [
            ("1.50", None),
            ("None", 1.505),
            ("2.25", None),
        ]
    elif raw is None:
        assert [row[REFUSED].raw for row in rows] == [content]
    else:
        assert [row[REFUSED].raw if row[REFUSED] else str(row.amount) for row in rows] == ["1.50", raw, "2.25"]


FIELDS = ["1,a,x", "3000000000,b,x", "six,c,x", "7,d", "8,e,x,y"]
CSV: dict[str, tuple[Mapping[str, str], list[Any]]] = {
    "what holds by itself": ({}, [(1, "a"), *["PARSE"] * 4, "stop"]),
    "all is rescued": (
        RESCUE,
        [
            (1, "a", {"new": "x"}),
            (None, "b", {"id": "3000000000", "new": "x"}),
            (None, "c", {"id": "six", "new": "x"}),
            (None, None, {"_line": "7,d"}),
            (None, None, {"_line": "8,e,x,y"}),
            "stop",
        ],
    ),
    "only extra columns are rescued": (
        {"extra": "rescue", "missing": "nack"},
        [(1, "a", {"new": "x"}), *["PARSE"] * 4, "SCHEMA"],
    ),
    "only wide numbers are rescued": (
        {"wider": "rescue", "missing": "evolve"},
        [(1, "a"), (None, "b", {"id": "3000000000"}), *["PARSE"] * 3, (9, None)],
    ),
    "the schema grows": (
        {"extra": "evolve", "wider": "evolve"},
        [(1, "a", "x"), (3000000000, "b", "x"), *["PARSE"] * 3, (9, None, None)],
    ),
}


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("case", CSV)
def test_every_csv_line_follows_its_policy(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """Values and lines are judged one by one. A missing or extra column counts for all lines of its file."""
    changes, expected = CSV[case]
    (tmp_path / "a.csv").write_text("\n".join(["id,note,new", *FIELDS]) + "\n")
    csv = Files(path=str(tmp_path / "*"), format="csv", schema="id int, note string", on_change=changes)
    if expected[-1] != "stop":
        (tmp_path / "b.csv").write_text("id\n9\n")
    rows = read_both_ways(spark, csv)
    found = [describe_row(row) for row in rows]
    assert found == [each for each in expected if each != "stop"]
    raw = [row[REFUSED].raw for row in rows if row[REFUSED]]
    assert raw == [line for line, each in zip([*FIELDS, "9"], found, strict=False) if isinstance(each, str)]
    if expected[-1] == "stop":
        (tmp_path / "b.csv").write_text("id\n9\n")
        with pytest.raises(SchemaChanged, match=r"b\.csv has no column note"):
            read_both_ways(spark, csv)


def test_a_csv_line_stops_the_run_under_that_policy(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the file, the column and the value. A line that is refused for another reason stops nothing."""
    (tmp_path / "a.csv").write_text("id,note\n1,a\nsix,c\n")
    csv = {"path": str(tmp_path), "format": "csv", "schema": "id int, note string"}
    for kind, stops in (("wider", False), ("corrupt", False), ("other", True)):
        files = Files(**csv, on_change={kind: "stop"})  # type: ignore[arg-type]
        plan = plan_batch(spark, files)
        if stops:
            with pytest.raises(Exception, match=f"{STOPS}a.csv: column id: 'six' is not an int"):
                read_decided(spark, plan, files)
        else:
            assert [describe_row(row) for row in read_decided(spark, plan, files)] == [(1, "a"), "PARSE"]


OVER_LINES: dict[str, tuple[Mapping[str, str], list[Any]]] = {
    "all is rescued": (
        RESCUE,
        [
            (1, "a\nb", {"new": "x"}),
            (None, "c", {"id": "3000000000", "new": "y"}),
            (None, None, {"_line": "7,d"}),
            (None, None, {"_line": 'id,note\n8,"e\n'}),
        ],
    ),
    "only wide numbers are rescued": (
        {"wider": "rescue"},
        [(1, "a\nb"), (None, "c", {"id": "3000000000"}), "7,d", 'id,note\n8,"e\n'],
    ),
}


@pytest.mark.promise("CD-16")
@pytest.mark.parametrize("case", OVER_LINES)
def test_fields_over_several_lines_are_rescued_like_others(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """With `multiLine`, a file whose last quote is not closed is rescued or refused as a whole."""
    changes, expected = OVER_LINES[case]
    (tmp_path / "a.csv").write_text('id,note,new\n1,"a\nb",x\n3000000000,c,y\n7,d\n')
    (tmp_path / "b.csv").write_text('id,note\n8,"e\n')
    files = Files(
        path=str(tmp_path / "*"),
        format="csv",
        schema="id int, note string",
        options={"multiLine": True},
        on_change=changes,
    )
    rows = read_both_ways(spark, files)
    assert [row[REFUSED].raw if row[REFUSED] else describe_row(row) for row in rows] == expected


PARQUET: dict[str, tuple[Mapping[str, str], list[Any]]] = {
    "both are refused": ({"missing": "nack", "extra": "nack"}, [(1, "a"), "SCHEMA", "SCHEMA"]),
    "extra columns are rescued": (
        {"missing": "nack", "extra": "rescue"},
        [(1, "a"), (2, "b", {"new": {"k": 5}}), "SCHEMA"],
    ),
    "the schema grows": (
        {"missing": "evolve", "extra": "evolve"},
        [(1, "a", None), (2, "b", {"k": 5}), (3, None, None)],
    ),
}


@pytest.mark.parametrize("case", PARQUET)
def test_every_parquet_row_follows_its_policy(spark: SparkSession, tmp_path: Path, case: str) -> None:
    """The columns of its file decide. A refused row is shown as JSON."""
    changes, expected = PARQUET[case]
    parquet.write_table(pa.table({"id": pa.array([1], pa.int32()), "note": ["a"]}), tmp_path / "a")
    more = {"id": pa.array([2], pa.int32()), "note": ["b"], "new": [{"k": 5}]}
    parquet.write_table(pa.table(more), tmp_path / "b")
    parquet.write_table(pa.table({"id": pa.array([3], pa.int32())}), tmp_path / "c")
    files = Files(path=str(tmp_path), format="parquet", schema="id int, note string", on_change=changes)
    rows = read_both_ways(spark, files)
    assert [describe_row(row) for row in rows] == expected
    refused = [row.asDict().get(REFUSED) for row in rows]
    raw = [json.loads(each.raw) for each in refused if each]
    written: list[Any] = [{"id": 1, "note": "a"}, {"id": 2, "note": "b", "new": {"k": 5}}, {"id": 3}]
    assert raw == [each for each, row in zip(written, expected, strict=True) if row == "SCHEMA"]


def test_a_parquet_file_without_a_column_stops_the_run(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the file, since its rows would have NULL there. Wider numbers are read if the schema may grow."""
    parquet.write_table(pa.table({"id": pa.array([3], pa.int64())}), tmp_path / "c")
    files = Files(path=str(tmp_path), format="parquet", schema="id int, note string")
    with pytest.raises(SchemaChanged, match="c has no column note"):
        read_both_ways(spark, files)
    wide = Files(path=str(tmp_path), format="parquet", schema="id int", on_change={"wider": "evolve"})
    assert [describe_row(row) for row in read_both_ways(spark, wide)] == [(3,)]
