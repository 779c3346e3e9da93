"""Valid, invalid and doubtful documents of JSON: each is read exactly by every way, or refused with a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from origins.files import Files
from origins.files.changes import Changes
from origins.files.json_lines import LINE, judge_json_text, parse_lines
from origins.files.json_text import JsonChanges
from origins.nack import REFUSED
from tests.origins.test_on_change import plan_batch
from tests.values.json_documents import INVALID, OPEN, VALID
from tests.values.test_json_values import normalize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DOCUMENTS = [*VALID, *INVALID, *OPEN]
KINDS = {"value": "string", "items": "array<string>", "named": "map<string,string>"}
SCHEMA = ", ".join(["id int", *(f"{name} {kind}" for name, kind in KINDS.items())])
WRONG = b'{"id": "wrong"}'
"""A line that is refused. Its batch is decided line by line."""
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "straight": ({}, False),
    "decided": ({}, True),
    "other values are rescued": ({"on_change": {"other": "rescue"}}, True),
    "broken lines are rescued": ({"on_change": {"corrupt": "rescue"}}, True),
    "an encoding is given": ({"options": {"encoding": "UTF-8"}}, False),
}
MARK = b'["\\uFDD0"]'
"""A document with the character that marks numbers. A line with it may be refused."""


class Case(NamedTuple):
    """A line with a document under one of the columns."""

    column: str
    document: bytes

    def write(self, number: int) -> bytes:
        return b'{"id": %d, "%s": %s}' % (number, self.column.encode(), self.document)

    @property
    def must_be_read(self) -> bool:
        """Whether the document is valid, and of the column's type."""
        if self.document not in VALID or self.document == MARK:
            return False
        value = json.loads(self.document)
        return value is None or isinstance(value, {"items": list, "named": dict}.get(self.column, object))


CASES = [Case(column, document) for column in KINDS for document in DOCUMENTS]
IN_LINES = {number: case for number, case in enumerate(CASES) if not {*b"\r\n"} & {*case.document}}
"""The cases that fit on a line."""
IN_FILES = {number: CASES[number] for number in range(0, len(CASES), 3)}
"""A third of the cases, of each column, which get files of their own."""


class Read(NamedTuple):
    """What was read of lines, by number: the rows, why others were refused, and what was rescued."""

    rows: Mapping[int, Mapping[str, Any]]
    refused: Mapping[int, str]
    rescued: Mapping[int, Mapping[str, Any]]


def collect(frame: DataFrame) -> Read:
    """Return what was read. A line that is refused has no row, even if the reader also gave one."""
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    refused = {
        find_number(row[REFUSED]["raw"]): f"{row[REFUSED]['code']}: {row[REFUSED]['message']}"
        for row in rows
        if row[REFUSED] is not None
    }
    good = [row for row in rows if row[REFUSED] is None]
    kept = [
        (row["id"], json.loads(row["_rescued"], parse_float=Decimal, parse_int=Decimal))
        for row in good
        if row.get("_rescued") is not None
    ]
    rescued = {number if "_line" not in values else find_number(values["_line"]): values for number, values in kept}
    rescued.pop(None, None)
    assert [row for row in good if row["id"] is None and row.get("_rescued") is None] == []
    apart = {None, *refused, *rescued}
    return Read({row["id"]: row for row in good if row["id"] not in apart}, refused, rescued)


def find_number(line: str) -> int:
    """Return the number of a line; -1 if it has none."""
    found = re.match(r'\s*\{"id": (\d+),', line)
    return int(found[1]) if found else -1


def read_files(spark: SparkSession, folder: Path, way: str, **options: Any) -> Read:
    more, places = WAYS[way]
    given = {**more.get("options", {}), **options}
    files = Files(**{"path": str(folder), "format": "json", "schema": SCHEMA, **more, "options": given})
    return collect(files.fetch(spark, [plan_batch(spark, files)], places=places).frame())


def read_by_spark(spark: SparkSession, folder: Path, **options: Any) -> Mapping[int, Mapping[str, Any]]:
    """Return the rows that Spark's own reader gives without a complaint."""
    frame = spark.read.schema(f"{SCHEMA}, _corrupt_record string").options(**options).json(str(folder))
    return {row["id"]: row.asDict(recursive=True) for row in frame.collect() if row["_corrupt_record"] is None}


def list_faults(read: Read, measure: Mapping[int, Mapping[str, Any]]) -> list[Any]:
    """Return the cases whose value differs from Spark's, or from the document as Python reads it."""
    faults = []
    for number, row in read.rows.items():
        case = CASES[number]
        value = row[case.column]
        same = number in measure and find_form(value) == find_form(measure[number][case.column])
        other = case.document in VALID and not is_same(value, json.loads(case.document))
        if not same or other or case.document in INVALID:
            faults.append((case, value))
    return faults


def find_form(value: Any) -> Any:
    """Return the value with text of JSON in one form. Spark allows single quotes in it."""
    return normalize(value.replace("'", '"') if isinstance(value, str) and "'" in value[:2] else value)


def is_kept(case: Case, rescued: Mapping[str, Any]) -> bool:
    """Return whether what was rescued has the document."""
    if case.document in OPEN:
        return True
    if "_line" in rescued:
        return case.document.decode() in rescued["_line"]
    return rescued.keys() == {case.column} and is_same_in_text(
        rescued[case.column], json.loads(case.document, parse_float=Decimal, parse_int=Decimal)
    )


def is_same_in_text(read: Any, written: Any) -> bool:
    """Return whether two values are the same, where a rescued number may be text."""
    if isinstance(read, list):
        return all(map(is_same_in_text, read, written)) and len(read) == len(written)
    if isinstance(read, str) and not isinstance(written, str):
        return bool(Decimal(read) == written)
    if isinstance(read, Mapping):
        return read.keys() == written.keys() and all(is_same_in_text(read[key], each) for key, each in written.items())
    return bool(read == written)


def is_same(read: Any, written: Any) -> bool:
    """Return whether a text column has this value of JSON, with each of its parts."""
    if isinstance(read, list):
        return all(map(is_same, read, written)) and len(read) == len(written)
    if isinstance(read, Mapping):
        return read.keys() == written.keys() and all(is_same(read[key], each) for key, each in written.items())
    return bool(read == written if written is None or isinstance(written, str) else json.loads(read) == written)


def list_unclear(refused: Mapping[int, str]) -> list[str]:
    """Return the reasons that have no code, or more than a sentence for a person."""
    return [why for why in refused.values() if not re.fullmatch(r"(PARSE|SCHEMA): [^\n]{10,300}", why)]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A folder with all cases in one file."""
    folder = tmp_path / "measure"
    folder.mkdir()
    (folder / "a.json").write_bytes(b"\n".join(case.write(number) for number, case in IN_LINES.items()))
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_a_document_in_a_line_is_exact_or_refused(spark: SparkSession, tmp_path: Path, lines: Path, way: str) -> None:
    """No invalid document is read, each valid one of the column's type is, and no line is lost."""
    measure = read_by_spark(spark, lines)
    (folder := tmp_path / "in").mkdir()
    (folder / "a.json").write_bytes((lines / "a.json").read_bytes() + b"\n" + WRONG)
    read = read_files(spark, folder, way)
    check(read, measure, IN_LINES)


def check(read: Read, measure: Mapping[int, Mapping[str, Any]], cases: Mapping[int, Case]) -> None:
    """Check that each case is exact, or refused with a sentence, or rescued. Valid ones of their types are exact."""
    assert list_faults(read, measure) == []
    assert [case for number, case in cases.items() if case.must_be_read and number not in read.rows] == []
    assert [case for number, case in cases.items() if number not in {*read.rows, *read.refused, *read.rescued}] == []
    assert [(CASES[number], kept) for number, kept in read.rescued.items() if not is_kept(CASES[number], kept)] == []
    assert list_unclear(read.refused) == []


@pytest.mark.parametrize("way", ["straight", "decided"])
def test_a_document_in_a_file_of_its_own_is_exact_or_refused(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Such a document may have several lines. A file with a broken one is refused whole."""
    (folder := tmp_path / "in").mkdir()
    for number, case in IN_FILES.items():
        (folder / f"{number:04}.json").write_bytes(case.write(number))
    check(read_files(spark, folder, way, multiLine=True), read_by_spark(spark, folder, multiLine=True), IN_FILES)


def test_a_document_in_a_message_is_exact_or_refused(spark: SparkSession, lines: Path) -> None:
    """Kafka's JSON is always parsed from its text."""
    cases = {number: case for number, case in IN_LINES.items() if is_text(case.document)}
    written = [(case.write(number).decode(),) for number, case in cases.items()]
    frame = spark.createDataFrame(written, f"{LINE} string")
    schema = spark.createDataFrame([], SCHEMA).schema
    wrong = JsonChanges(schema=schema, changes=Changes.of("json", {}, given=True), options={})
    verdict = judge_json_text(wrong)
    refusal = f"named_struct('code', 'PARSE', 'message', {verdict.why}, 'raw', {verdict.raw})"
    parsed = parse_lines(frame, wrong, keep_blank=True)
    columns = [*schema.names, f"case when {verdict.is_bad} then {refusal} end as {REFUSED}"]
    check(collect(parsed.selectExpr(*columns)), read_by_spark(spark, lines), cases)


def is_text(document: bytes) -> bool:
    return document.decode(errors="ignore").encode() == document


@pytest.mark.parametrize("places", [False, True])
def test_only_an_object_is_a_row(spark: SparkSession, tmp_path: Path, places: bool) -> None:
    """A line with another valid document, or an invalid one, is refused. A blank line is none."""
    documents = [each for each in [*VALID, *INVALID] if not {*b"\r\n"} & {*each}]
    (tmp_path / "a.json").write_bytes(b"\n".join(documents))
    files = Files(path=str(tmp_path), format="json", schema="a string, asd string")
    rows = files.fetch(spark, [plan_batch(spark, files)], places=places).frame().collect()
    refused = {row[REFUSED]["raw"] for row in rows if row[REFUSED] is not None}
    lines = [each.decode() for each in documents if each.strip()]
    assert {line for line in lines if line not in refused} == {
        line for line in lines if line.encode() in VALID and isinstance(json.loads(line), dict)
    }
