"""Files of CSV in the manner of csv-spectrum: their fields are as Spark and Python read them, or they are refused."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from origins.files import Files
from origins.nack import REFUSED
from tests.origins.test_on_change import plan_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Tables = Mapping[str, list[tuple[str | None, ...]]]

pytestmark = pytest.mark.spark
SCHEMA = "a string, b string, c string"
HEAD = "a,b,c\n"
ON_LINES = {
    "simple": "1,2,3\n",
    "no end": "1,2,3",
    "a comma in quotes": 'John,"120 any st.","Anytown, WW"\n',
    "empty fields": '1,"",""\n2,3,4\n,,\n"",,""\n',
    "escaped quotes": '1,"ha ""ha"" ha",3\n"""","""a","b"""\n"""""","a""",""","""\n',
    "json": '1,"{""type"": ""Point"", ""coordinates"": [102.0, 0.5]}",x\n',
    "utf8": "1,2,3\n4,5,ʤ\n語,ä,😀\n",
    "locations": '"37.7", "not led by a quote",-122.4\n',
    "blanks": " 1 ,  2,3  \n\t4\t, ,5\n",
    "quotes in the middle": 'a"b,c""d,e"\n5" x,6,7\n',
    "long fields": f'{"x" * 5_000},"{"y," * 3_000}",z\n',
    "blank lines": "1,2,3\n\n\n4,5,6\n\n",
    "equal lines": "1,2,3\n1,2,3\na,b,c\n",
    "formulas": "=1+2,@x,+3\n-1,'q,#z\n",
    "backslashes": '\\,"\\",c\\\n\\",a,\\n\n',
    "only commas": ",,\n,,\n",
    "other ends of lines": "a\u2028b,c\u0085d,e\x0bf\n\x0c,\x1e,g\n",
    "null words": 'null,NULL,"null"\nNA,\\N,nan\n',
}
"""Rows behind the header, in which no field has an end of a line."""
OVER_LINES = {
    "newlines": '1,2,3\n"Once upon \na time",5,6\n7,8,9\n',
    "quotes and newlines": '1,"ha \n""ha"" \nha",3\n3,4,5\n',
    "a blank line in quotes": '1,"\n\n",3\n',
    "only a newline": '"\n","\n","\n"\n',
    "a newline and a comma": '"a,\nb","c\n,d",",\n,"\n',
    "a header in quotes": '1,"\na,b,c\n",3\n',
    "quotes at both ends": '"""\n""","\n""","""\n"\n',
}
"""Rows behind the header, in which a quoted field goes over lines."""
MALFORMED = {
    "too few fields": "1,2\n3,4,5\n",
    "too many fields": "1,2,3,4\n5,6,7\n",
    "an open quote": '1,"2,3\n4,5,6\n',
    "an open quote at the end": '1,2,3\n4,5,"6',
    "text behind a quote": '1,"2"x,3\n"4" ,5,6\n',
    "a quote and a half": '1,"""2,3\n4,"""",6\n',
    "no text": "1,\udcff,3\n4,\udcc3(,6\n7,8,9\n",
    "NUL": "1,\0,3\n\0,\0\0,\n",
    "one field": "x\n1,2,3\n",
    "a blank among quotes": '1, "2,3",4\n5, "6" ,7\n',
}
"""Rows behind the header that are broken, or that readers read differently."""
ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}


def write_tables(folder: Path, tables: Mapping[str, str], ends: Mapping[str, str]) -> Path:
    """Write a file for each table and each kind of line end."""
    folder.mkdir()
    for name, rows in tables.items():
        for kind, end in ends.items():
            content = (HEAD + rows).encode(errors="surrogateescape").replace(b"\n", end.encode())
            (folder / f"{name} {kind}.csv".replace(" ", "_")).write_bytes(content)
    return folder


def read_by_spark(spark: SparkSession, folder: Path, **options: Any) -> Tables:
    """Return the rows that Spark's own reader gives without a complaint, by file."""
    given = {"header": True, "escape": '"', "columnPruning": False, **options}
    frame = spark.read.schema(f"{SCHEMA}, _corrupt_record string").options(**given).csv(str(folder))
    frame = frame.where("_corrupt_record is null").select("_metadata.file_name", "a", "b", "c")
    return group([*map(tuple, frame.collect())])


def read(spark: SparkSession, folder: Path, *, places: bool, **options: Any) -> tuple[Tables, list[Any]]:
    """Return the rows by file, and why others are refused."""
    files = Files(**{"path": str(folder), "format": "csv", "schema": SCHEMA, "metadata": ["file_name"], **options})
    frame = files.fetch(spark, [plan_batch(spark, files)], places=places).frame()
    rows = frame.select("file_name", "a", "b", "c", REFUSED).collect()
    good = [(row.file_name, row.a, row.b, row.c) for row in rows if row[REFUSED] is None]
    return group(good), [(row.file_name, row[REFUSED]) for row in rows if row[REFUSED] is not None]


def group(rows: list[tuple[Any, ...]]) -> Tables:
    found: dict[str, list[tuple[str | None, ...]]] = {}
    for name, *fields in rows:
        found.setdefault(name, []).append(tuple(fields))
    return {name: sorted(each, key=str) for name, each in found.items()}


def read_by_python(folder: Path) -> Tables:
    """Return the rows that Python's reader gives. It has no NULL. Ends of lines in quotes are as in Spark."""
    return {
        file.name: sorted(
            tuple(each.replace("\r\n", "\n") for each in row)
            for row in list(csv.reader(io.StringIO(file.read_bytes().decode(), newline="")))[1:]
            if row
        )
        for file in folder.glob("*.csv")
    }


def without_null(tables: Tables) -> Tables:
    return {name: sorted(tuple(each or "" for each in row) for row in rows) for name, rows in tables.items()}


@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("over_lines", [False, True])
def test_a_whole_table_is_exact(spark: SparkSession, tmp_path: Path, places: bool, over_lines: bool) -> None:
    """Spark's reader gives the same rows, and so does Python's, which has no NULL. No line is refused."""
    tables = {**ON_LINES, **OVER_LINES} if over_lines else ON_LINES
    ends = {name: end for name, end in ENDS.items() if name != "CR" or not over_lines}
    folder, options = write_tables(tmp_path / "in", tables, ends), {"multiLine": over_lines}
    rows, refused = read(spark, folder, places=places, options=options)
    assert refused == []
    measure = read_by_spark(spark, folder, **options)
    assert {name: (found, measure.get(name)) for name, found in rows.items() if found != measure.get(name)} == {}
    known, ours = read_by_python(folder), without_null(rows)
    assert {name: (known[name], ours.get(name)) for name in known if known[name] != ours.get(name)} == {}


@pytest.mark.parametrize("more", [{}, {"options": {"multiLine": True}}], ids=str)
def test_a_malformed_table_is_exact_or_refused(spark: SparkSession, tmp_path: Path, more: dict[str, Any]) -> None:
    """Each row is one of Spark's rows, and the reason of each refused line is a sentence. No line is lost."""
    folder = write_tables(tmp_path / "in", MALFORMED, {"LF": "\n", "CRLF": "\r\n"})
    rows, refused = read(spark, folder, places=True, **more)
    measure = read_by_spark(spark, folder, **more.get("options", {}))
    strange = {name: [row for row in found if row not in measure.get(name, [])] for name, found in rows.items()}
    assert {name: found for name, found in strange.items() if found} == {}
    assert [why for _, why in refused if why.code != "PARSE" or "\n" in why.message or len(why.message) < 20] == []
    if "options" not in more:
        counts = {name: len(found) for name, found in rows.items()}
        for name, _ in refused:
            counts[name] = counts.get(name, 0) + 1
        lines = {file.name: len(file.read_bytes().split()[1:]) for file in folder.glob("no_text*")}
        assert {name: counts[name] for name in lines} == lines
        assert {name: counts[name] for name in counts if re.match("too|an_open", name)} == {
            f"{name} {end}.csv".replace(" ", "_"): 2
            for name in MALFORMED
            if re.match("too|an open", name)
            for end in ("LF", "CRLF")
        }
