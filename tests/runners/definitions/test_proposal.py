"""What `init --from` finds in the heads of files, and the definition that it proposes. Without Spark."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from origins.files import Files
from origins.origin import Progress
from runners.command_line import cli
from runners.definitions.definition import load
from runners.definitions.first_pipeline import begin
from runners.definitions.proposal import MOST_LINES, Proposal, list_findings, propose
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from stages.cast import Cast
from stages.columns import WithColumns
from stages.conditions import Require
from tests.five_months import write_months
from tests.pace import measure_pace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)
PLAIN = "id,name\n1,Ada\n2,Bo\n"


def make_folder(directory: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write a folder with these files."""
    folder = directory / "in"
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def load_definition(proposal: Proposal, directory: Path) -> PipelineSpec:
    """Write the proposed definition, load it, and return the pipeline."""
    (file,) = begin(directory / "made", "sales", own=proposal)
    return load(file).pipeline


def get_origins(pipeline: PipelineSpec) -> list[Files]:
    """Return the pipeline's origins."""
    return [origin for origin in pipeline.given_origins if isinstance(origin, Files)]


CSV = {
    "alike": ({"a.csv": PLAIN, "b.csv": PLAIN}, {}, {"extra": "stop", "missing": "stop"}, "2 CSV files: 2 columns."),
    "another order": (
        {"a.csv": PLAIN, "b.csv": PLAIN, "c.csv": "name,id\nCy,3\n"},
        {},
        {"extra": "stop", "missing": "stop"},
        "The columns have another order in c.csv.",
    ),
    "one more column": (
        {"a.csv": PLAIN, "b.csv": PLAIN, "c.csv": "id,name,tip\n3,Cy,1\n"},
        {},
        {"extra": "evolve", "missing": "evolve"},
        "tip is only in c.csv.",
    ),
    "one column less": (
        {"a.csv": PLAIN, "b.csv": PLAIN, "c.csv": "id\n3\n"},
        {},
        {"extra": "evolve", "missing": "evolve"},
        "name is not in c.csv.",
    ),
    "a line break in quotes": (
        {"a.csv": PLAIN, "b.csv": 'id,name\n1,"Ada\nof Rome"\n2,Bo\n'},
        {"multiLine": "true"},
        {"extra": "stop", "missing": "stop"},
        "Quoted text goes over several lines in b.csv",
    ),
    "a quote that is left open": (
        {"a.csv": 'id,name\n1,"Ada\n2,Bo\n3,Cy\n'},
        {},
        {"extra": "stop", "missing": "stop"},
        "rows in the head of the file do not look like the others.",
    ),
    "semicolons": (
        {"a.csv": "id;name;fee\n1;Ada;2,5\n"},
        {"sep": ";"},
        {"extra": "stop", "missing": "stop"},
        "Fields are separated by semicolons.",
    ),
    "no header": (
        {"a.csv": "1,Ada,2026-01-01\n2,Bo,2026-01-02\n"},
        {"header": "false"},
        {},
        "The first line is no header.",
    ),
    "years as names": (
        {"a.csv": "country,2019,2020\nDE,5,6\nFR,7,8\n"},
        {},
        {"extra": "stop", "missing": "stop"},
        "1 CSV file: 3 columns.",
    ),
    "a byte order mark": (
        {"a.csv": b"\xef\xbb\xbf" + PLAIN.encode()},
        {},
        {"extra": "stop", "missing": "stop"},
        "A byte order mark begins a.csv.",
    ),
    "Latin 1": (
        {"a.csv": PLAIN, "b.csv": "id,name\n3,Zoë\n".encode("latin-1")},
        {"encoding": "ISO-8859-1"},
        {"extra": "stop", "missing": "stop"},
        "The text is encoded as ISO-8859-1.",
    ),
    "UTF-16": (
        {"a.csv": PLAIN.encode("utf-16")},
        {"encoding": "UTF-16", "multiLine": "true"},
        {"extra": "stop", "missing": "stop"},
        "The text is encoded as UTF-16.",
    ),
    "an empty file": (
        {"a.csv": PLAIN, "b.csv": ""},
        {},
        {"extra": "stop", "missing": "stop"},
        "Empty: b.csv.",
    ),
    "a packed file that is cut": (
        {"a.csv": PLAIN, "b.csv.gz": gzip.compress(PLAIN.encode())[:-9]},
        {},
        {"extra": "evolve", "missing": "evolve"},
        "Cannot be read, and would fail a run: b.csv.gz",
    ),
    "a column without a name": (
        {"a.csv": ",id\n0,5\n"},
        {},
        {"extra": "ignore", "missing": "stop"},
        "A column has no name.",
    ),
    "a column twice": (
        {"a.csv": "id,ID\n1,2\n"},
        {},
        {"extra": "stop", "missing": "stop"},
        "A column is there twice in a.csv.",
    ),
    "a folder with a name": (
        {"day=2026-01-01/a.csv": PLAIN, "day=2026-01-02/a.csv": PLAIN},
        {},
        {"extra": "stop", "missing": "stop"},
        "2 CSV files: 2 columns.",
    ),
}


@pytest.mark.parametrize(("files", "options", "on_change", "line"), CSV.values(), ids=CSV)
def test_csv(
    tmp_path: Path,
    files: Mapping[str, str | bytes],
    options: Mapping[str, object],
    on_change: Mapping[str, str],
    line: str,
) -> None:
    """Each property of a head gives options, policies and a line of text."""
    proposal = propose(make_folder(tmp_path, files))
    (origin,) = get_origins(load_definition(proposal, tmp_path))
    assert (dict(origin.options), dict(origin.on_change)) == (options, on_change)
    assert [found for found in list_findings(proposal) if line in found] != []


JSON = {
    "nothing odd": (['{"id": 1}', '{"id": 2, "at": {"zip": "1"}}'], {}, {"extra": "evolve"}, "1 JSON file: 2 columns."),
    "a key that some objects have twice": (
        ['{"id": 1, "id": 2}', *['{"id": 3}'] * 20],
        {},
        {"extra": "evolve", "doubled": "nack"},
        "Objects have a key twice: id. Such rows go to the DLQ.",
    ),
    "a key that all objects have twice": (
        ['{"id": 1, "deep": {"a": 1, "A": 2}}'] * 5,
        {},
        {"extra": "evolve", "doubled": "keep_last"},
        "The last value is read, and the others are lost.",
    ),
    "a key in other letters": (
        ['{"id": 1}', '{"ID": 2}', '{"id": 3}'],
        {},
        {"extra": "evolve", "other": "rescue"},
        "Keys differ from columns only in case: ID.",
    ),
    "an array": (["[", '{"id": 1},', '{"id": 2}', "]"], {"multiLine": "true"}, {"extra": "evolve"}, "such as an array"),
    "one object over lines": (["{", '"id": 1', "}"], {"multiLine": "true"}, {"extra": "evolve"}, "such as an array"),
}


@pytest.mark.parametrize(("lines", "options", "on_change", "line"), JSON.values(), ids=JSON)
def test_json(
    tmp_path: Path, lines: list[str], options: Mapping[str, object], on_change: Mapping[str, str], line: str
) -> None:
    """Each property of a head gives options, policies and a line of text."""
    proposal = propose(make_folder(tmp_path, {"a.json": "\n".join(lines)}))
    (origin,) = get_origins(load_definition(proposal, tmp_path))
    assert (dict(origin.options), dict(origin.on_change)) == (options, on_change)
    assert proposal.columns["id"] == "bigint"
    assert [found for found in list_findings(proposal) if line in found] != []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5], "double"),
        ([10**15, 2.5], "string"),
        ([1, "a"], "string"),
        ([*range(30), "a"], "bigint"),
        ([None, None], None),
        ([True, None], "boolean"),
        ([[1], []], "array<bigint>"),
        ([{"a b": 1}, {"c": None}, {"d": "x"}], "struct<`a b`: bigint, `d`: string>"),
        ([1 << 70], "decimal(38,0)"),
        ([{}, []], "string"),
    ],
)
def test_a_column_of_json_has_the_widest_type(tmp_path: Path, values: list[object], kind: str | None) -> None:
    """A column without a common type is text. A column without any value is omitted, and the run learns it."""
    lines = [json.dumps({"id": 1, "value": value}) for value in values]
    proposal = propose(make_folder(tmp_path, {"a.json": "\n".join(lines)}))
    assert {**proposal.columns, **proposal.casts}.get("value") == kind


@pytest.mark.parametrize(
    ("values", "kind", "share"),
    [
        ([*range(30), "12,50"], "decimal(18,2)", 0),
        ([*range(30), "abc"], "bigint", 1 / 31),
        ([1.5, 2, "3.25"] * 10 + ["12,50", "abc"], "decimal(18,2)", 2 / 32),
        ([True, False] * 20 + ["maybe"], "boolean", 1 / 41),
        (["1.5"] * 30 + [2], "decimal(18,2)", 0),
        ([1, "a"] * 20, None, 0),
        ([{"a": 1}] * 20 + ["a"], None, 0),
    ],
)
def test_a_column_of_json_with_numbers_and_text_is_read_as_text_and_cast(
    tmp_path: Path, values: list[object], kind: str | None, share: float
) -> None:
    """The cast then refuses a value that does not fit, so the row can be replayed."""
    lines = [json.dumps({"id": 1, "value": value}) for value in values]
    proposal = propose(make_folder(tmp_path, {"a.json": "\n".join(lines)}))
    pipeline = load_definition(proposal, tmp_path)
    (origin,) = get_origins(pipeline)
    assert proposal.casts.get("value") == kind
    assert [stage.columns for stage in pipeline.stages if isinstance(stage, Cast)] == (
        [{"value": kind}] if kind else []
    )
    assert isinstance(origin.schema, dict)
    assert kind is None or origin.schema["value"] == "string"
    assert proposal.bad_share == pytest.approx(share)


def test_the_share_of_bad_rows_names_its_rows(tmp_path: Path) -> None:
    """These are all rows that were read, or the rows of the file with the largest share."""
    few = "id,n\n1,2\n" + "1,2\n" * 22 + "1,x\n"
    proposal = propose(make_folder(tmp_path, {"a.csv": few, "b.csv": few}))
    assert "# About 4 % of the 48 rows in the heads of 2 files look bad.\n" in proposal.write_definition(tmp_path, "s")
    many = "id,n\n" + "1,2\n" * 190 + "1,x\n" * 10
    found = list_findings(propose(make_folder(tmp_path, {"a.csv": few, "b.csv": many})))
    assert [line for line in found if line.startswith("About 5 % of the first 200 rows of b.csv do not look")] != []


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["true", "FALSE"], "boolean"),
        (["7", "-8"], "bigint"),
        (["7", "8.25"], "decimal(18,2)"),
        (["7", "8.125"], "double"),
        (["2026-01-31"], "date"),
        (["2026-01-31 10:00:00"], "timestamp"),
        (["007", "8"], None),
        (["7", "x"], None),
        (["1,5", "2,125"], "double"),
        (["1,234", "2,125"], None),
        (["1,234.5", "2.5"], None),
    ],
)
def test_a_column_of_csv_has_the_widest_type(tmp_path: Path, values: list[str], kind: str | None) -> None:
    """Codes that begin with 0 stay text. So do values whose comma may separate thousands."""
    folder = make_folder(tmp_path, {"a.csv": "x;y\n" + "".join(f"a;{value}\n" for value in values * 5)})
    assert propose(folder).casts.get("y") == kind


@pytest.mark.parametrize(
    ("values", "kind", "share"),
    [
        ([str(10**18 + at) for at in range(60)], "bigint", 0),
        ([str(2**63 - 1), str(-(2**63))] * 9, "bigint", 0),
        ([str(10**18)] * 60 + [str(2**63)] * 3, None, 0),
        (["1.5e3"] * 60 + ["1000000000000001"] * 3, None, 0),
        (["1"] * 95 + ["12.50"] * 5, "decimal(18,2)", 0),
        (["1"] * 95 + ["12,50"] * 5, "decimal(18,2)", 0),
        (["1.25"] * 60 + ["3.14159"] * 3, "double", 0),
        (["1,25"] * 60 + ["3,14159"] * 3, "double", 0),
        (["1.25"] * 60 + ["x"] * 3, "decimal(18,2)", 3 / 63),
        (["2026-01-31"] * 60 + ["2026-01-31 10:00:00"] * 3, "timestamp", 0),
        (["2026-01-31 10:00:00"] * 60 + ["2026-01-31"] * 3, "timestamp", 0),
        (["31.01.2026"] * 60 + ["2026-01-31 10:00:00"] * 3, None, 0),
        (["2026-01-31"] * 60 + ["x"] * 3, "date", 3 / 63),
        (["+4912345"] * 60, None, 0),
        (["+1.5", "-2"] * 30, "decimal(18,2)", 0),
    ],
)
def test_a_type_keeps_every_value_whole(tmp_path: Path, values: list[str], kind: str | None, share: float) -> None:
    """No cast rounds or cuts a value. Of several such types, Wherry takes the one with the fewest misfits."""
    folder = make_folder(tmp_path, {"a.csv": "x;y\n" + "".join(f"a;{value}\n" for value in values)})
    proposal = propose(folder)
    assert proposal.casts.get("y") == kind
    assert proposal.bad_share == pytest.approx(share)


@pytest.mark.parametrize(
    "files",
    [{"a.csv": "\n\n"}, {"a.json": "[]"}, {"a.json": "\n\n"}, {"a.csv": ""}, {"a.json": '{"id": null}'}],
    ids=str,
)
def test_a_definition_without_a_schema_is_reported(tmp_path: Path, files: Mapping[str, str]) -> None:
    """The findings state what is missing, and what to do."""
    proposal = propose(make_folder(tmp_path, files))
    (origin,) = get_origins(load_definition(proposal, tmp_path))
    assert origin.schema is None
    found = list_findings(proposal)
    assert "Wherry found no column with a value, so the definition has no schema." in found
    assert [line for line in found if "add a `schema`" in line] != []


def test_a_type_must_fit_every_file(tmp_path: Path) -> None:
    """If most values of one file have another type, the column is text. It does not matter how many files fit."""
    numbers, words = ("x,y\n" + "1,1\n" * 40, "x,y\n" + "1,one\n" * 40)
    files = {f"{at:02}.csv": numbers for at in range(30)}
    assert propose(make_folder(tmp_path, files)).casts == {"x": "bigint", "y": "bigint"}
    assert propose(make_folder(tmp_path, {**files, "30.csv": words})).casts == {"x": "bigint"}


def test_an_ambiguous_number_is_refused_if_files_differ_in_the_decimal_sign(tmp_path: Path) -> None:
    """Values with a comma are converted, and the others stay the same."""
    point, comma = "x,y\n" + "1,7.50\n" * 30, "x,y\n" + '1,"1.007,50"\n' * 30
    pipeline = load_definition(propose(make_folder(tmp_path, {"a.csv": point, "b.csv": comma})), tmp_path)
    require, put, cast = pipeline.stages
    assert isinstance(require, Require)
    assert [*require.rules] == ["clear_y"]
    assert isinstance(put, WithColumns)
    assert put.columns["y"].startswith("if(`y` like '%,%'")
    assert isinstance(cast, Cast)
    assert cast.columns == {"x": "bigint", "y": "decimal(18,2)"}


def test_thousands_beside_long_decimals_stay_text(tmp_path: Path) -> None:
    """No rule can separate 1.234 from 1234 there."""
    point, comma = "x,y\n" + "1,1.234\n" * 30, "x,y\n" + '1,"1.007,5"\n1,"1.007"\n' * 30
    proposal = propose(make_folder(tmp_path, {"a.csv": point, "b.csv": comma}))
    assert proposal.casts == {"x": "bigint"}
    assert [found for found in list_findings(proposal) if found.startswith("y may be 1234 or 1.234")] != []


def list_waiting(origin: Files) -> list[str]:
    """Return the names of the files that a first run reads."""
    return sorted(file.name for file in origin.survey(NO_SPARK, Progress(offsets={}, parts=())).files)


def test_files_with_another_separator_are_another_origin(tmp_path: Path) -> None:
    """Each origin reads only its files. The rows of both pass the same cast."""
    folder = write_months(tmp_path / "in", semicolons=True, rows=100).folder
    pipeline = load_definition(propose(folder), tmp_path)
    first, second = get_origins(pipeline)
    assert (dict(first.options), dict(second.options)) == ({}, {"sep": ";"})
    assert list_waiting(first) == [f"trips-2026-0{month}.csv" for month in (1, 2, 3, 5)]
    assert list_waiting(second) == ["trips-2026-04.csv"]
    assert (len(first.stages), len(second.stages), len(pipeline.stages)) == (0, 1, 1)


@pytest.mark.parametrize(
    ("odd", "later"),
    [
        (["trips-2026-09.csv"], ["trips-2026-10.csv", "trips-2027-09.csv"]),
        (["trips-2026-03.csv", "trips-2026-09.csv"], ["trips-2027-03.csv", "other.csv"]),
        (["vienna.csv", "vienna-2.csv"], ["paris.csv", "trips-2027-03.csv"]),
        (["april/trips-2026-04.csv"], ["may/trips-2026-05.csv", "may/trips-2026-04.csv"]),
    ],
)
def test_later_files_are_read_like_most_files(tmp_path: Path, odd: list[str], later: list[str]) -> None:
    """The origin of most files leaves out only the odd ones, so each file is read exactly once."""
    deep = "all/" if "/" in odd[0] else ""
    usual = {f"{deep}trips-2026-{month:02}.csv": PLAIN for month in range(1, 10)}
    folder = make_folder(tmp_path, {**usual, **dict.fromkeys(odd, PLAIN.replace(",", ";"))})
    proposal = propose(folder)
    most, others = get_origins(load_definition(proposal, tmp_path))
    assert (dict(most.options), dict(others.options)) == ({}, {"sep": ";"})
    assert [line for line in list_findings(proposal) if line.startswith(f"{', '.join(sorted(odd))}: an origin")] != []
    make_folder(tmp_path, dict.fromkeys(later, PLAIN))
    assert list_waiting(others) == sorted(Path(name).name for name in odd)
    assert list_waiting(most) == sorted({*usual, *later}.difference(odd))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_only_the_utf_16_file_is_read_as_utf_16(tmp_path: Path, encoding: str) -> None:
    """ASCII is no UTF-16. The definition does not claim that values go over several lines."""
    files = {f"{month:02}.csv": PLAIN for month in range(1, 12)}
    proposal = propose(make_folder(tmp_path, {**files, "12.csv": PLAIN.encode(encoding)}))
    plain, wide = get_origins(load_definition(proposal, tmp_path))
    assert (dict(plain.options), list_waiting(plain)) == ({}, sorted(files))
    assert (str(wide.options["encoding"]).replace("-", ""), wide.options["multiLine"]) == (
        encoding.replace("-", "").upper(),
        "true",
    )
    assert list_waiting(wide) == ["12.csv"]
    assert "several lines" not in proposal.write_definition(tmp_path, "s")


def test_lines_of_json_in_utf_16_are_left_out_with_the_reason(tmp_path: Path) -> None:
    """Spark cannot split them. The other files are read."""
    lines = '{"id": 1}\n{"id": 2}\n'
    proposal = propose(make_folder(tmp_path, {"a.json": lines, "b.json": lines, "c.json": lines.encode("utf-16")}))
    (origin,) = get_origins(load_definition(proposal, tmp_path))
    assert (dict(origin.options), list_waiting(origin)) == ({}, ["a.json", "b.json"])
    assert proposal.look.left_out == {"c.json": "is UTF-16 with one object a line; convert it to UTF-8"}
    alone = make_folder(tmp_path / "alone", {"c.json": lines.encode("utf-16")})
    with pytest.raises(Refusal, match="UTF-16 with one object a line"):
        propose(alone)


def test_one_object_of_json_in_utf_16_is_read(tmp_path: Path) -> None:
    """So is an array. Such a file is one value."""
    files = {"a.json": '{"id": 1}'.encode("utf-16"), "b.json": '[{"id": 1},\n{"id": 2}]'.encode("utf-16")}
    (origin,) = get_origins(load_definition(propose(make_folder(tmp_path, files)), tmp_path))
    assert dict(origin.options) == {"encoding": "UTF-16", "multiLine": "true"}


def test_a_file_that_no_pattern_separates_is_named(tmp_path: Path) -> None:
    """The definition reads the other files, and the findings name this one."""
    files = {"abx.csv": PLAIN, "bay.csv": PLAIN, "aay.csv": PLAIN.replace(",", ";"), "bbx.csv": PLAIN.replace(",", ";")}
    proposal = propose(make_folder(tmp_path, {**files, "c.csv": PLAIN}))
    (origin,) = get_origins(load_definition(proposal, tmp_path))
    assert list_waiting(origin) == ["abx.csv", "bay.csv", "c.csv"]
    line = "aay.csv, bbx.csv would need other options (sep: semicolons). No pattern fits only such files."
    assert line in list_findings(proposal)


LEFT_OUT: Mapping[str, tuple[str | bytes, str]] = {
    "README.txt": ("x", "is no CSV, JSON or parquet by its name"),
    "_SUCCESS": ("", "begins with _ or ."),
    "a.csv.gz": (gzip.compress(PLAIN.encode()), "is a.csv, packed"),
    "b.csv.gz": (gzip.compress(b"id,name\n9,Else\n"), "may not be b.csv: it begins otherwise"),
    "c.json": ('{"id": 1}', "is json"),
    "old/d.csv": (PLAIN, "is a folder"),
}


def test_files_that_the_pattern_leaves_out_are_named(tmp_path: Path) -> None:
    """Each has a reason. A packed copy of a file is left out too."""
    files = {"a.csv": PLAIN, "b.csv": PLAIN, **{name: content for name, (content, _) in LEFT_OUT.items()}}
    proposal = propose(make_folder(tmp_path, files))
    expected = {name.replace("/d.csv", "/"): why for name, (_, why) in LEFT_OUT.items()}
    assert dict(proposal.look.left_out) == expected
    (origin,) = get_origins(load_definition(proposal, tmp_path))
    assert Path(origin.path).name == "*.csv"
    assert list_findings(proposal)[-1].startswith("The definition leaves out: README.txt (is no CSV")


def test_the_limit_of_the_dlq_is_above_the_share_of_bad_rows(tmp_path: Path) -> None:
    """It is three times the share in the worst file, from 100 to 500 of 1,000 rows."""
    lines = [f"{at},{'x' if at % 20 == 0 else at}\n" for at in range(1, 401)]
    pipeline = load_definition(propose(make_folder(tmp_path, {"a.csv": "id,n\n" + "".join(lines)})), tmp_path)
    assert (pipeline.dlq.window, pipeline.dlq.threshold) == (1000, 150)


def test_parquet_files_that_differ_get_a_schema(tmp_path: Path) -> None:
    """A whole number that pandas wrote as a float makes the column double. Values that do not fit are refused."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    folder = make_folder(tmp_path, {})
    folder.mkdir()
    write_table(pa.table({"id": [1], "n": [1]}), folder / "a.parquet")
    write_table(pa.table({"id": [2], "n": [1.5], "more": ["x"]}), folder / "b.parquet")
    (origin,) = get_origins(load_definition(propose(folder), tmp_path))
    assert origin.schema == {"id": "bigint", "n": "double", "more": "string"}
    assert dict(origin.on_change) == {"extra": "evolve", "missing": "evolve", "wider": "nack", "other": "nack"}


def test_a_thousand_files_are_examined_in_less_than_two_seconds(tmp_path: Path) -> None:
    """The more files there are, the less of each is read."""
    write_months(tmp_path / "months", rows=2_000)
    content = (tmp_path / "months" / "trips-2026-01.csv").read_bytes()
    folder = make_folder(tmp_path, {f"trips-{at:04}.csv": content for at in range(1_000)})
    began = time.process_time()
    proposal = propose(folder)
    text = proposal.write_definition(tmp_path, "trips")
    assert list_findings(proposal)[0] == "Looked at the head of 1,000 CSV files: 7 columns."
    assert 'fare: "decimal(18,2)"' in text
    assert time.process_time() - began < 2 * measure_pace()


def test_a_sample_of_very_many_files_is_examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition allows columns that the sample lacks."""
    monkeypatch.setattr("runners.definitions.look_at_files._MOST_FILES", 5)
    proposal = propose(make_folder(tmp_path, {f"{at:02}.csv": PLAIN for at in range(20)}))
    assert [*proposal.look.heads] == ["00.csv", "04.csv", "08.csv", "12.csv", "16.csv"]
    assert list_findings(proposal)[0] == "Looked at the head of 5 of 20 CSV files: 2 columns."
    assert proposal.on_change == {"extra": "evolve", "missing": "evolve"}


def test_the_command_prints_at_most_twenty_lines_of_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--json` it prints all of them, and a version."""
    folder = make_folder(
        tmp_path, {f"{at:02}.csv": f"id,column_{at}\n{at},x\n" for at in range(40)} | {"README.txt": "x"}
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")  # the shell finds `wherry`
    assert cli.execute(["init", "shop", "--from", str(folder)]) == 0
    out = capsys.readouterr().out
    found = out.partition("\nwritten")[0].strip().splitlines()
    assert len(found) == MOST_LINES
    assert found[-1] == "The definition leaves out: README.txt (is no CSV, JSON or parquet by its name)."
    assert found[-2] == "29 more: wherry init --json lists all."
    assert len(out.strip().splitlines()) <= 22
    assert cli.execute(["init", "other", "--from", str(folder), "--json"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert printed["version"] == 1
    assert printed["found"]["left_out"] == {"README.txt": "is no CSV, JSON or parquet by its name"}
    assert len(printed["found"]["says"]) == 42
    assert printed["found"]["columns"]["id"] == {"type": "bigint", "not_in": []}


def test_a_quoted_text_that_the_head_cuts_is_no_bad_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the text before it is examined."""
    monkeypatch.setattr("runners.definitions.look_at_files._MOST_BYTES", 100)
    proposal = propose(make_folder(tmp_path, {"a.csv": "id,name\n" + '1,"Ada\nof Rome"\n' * 20}))
    assert proposal.bad_share == 0
    assert proposal.look.groups[0].options == {"multiLine": True}


def test_a_file_name_is_only_a_comment_in_the_definition(tmp_path: Path) -> None:
    """Line breaks in names of files and columns are escaped, also on the terminal."""
    name = "b\nname: other\x1b[2J.csv"
    proposal = propose(make_folder(tmp_path, {"a.csv": PLAIN, "c.csv": PLAIN, name: "id,name,tip\n1,Ada,2\n"}))
    assert load_definition(proposal, tmp_path).name == "sales"
    assert [line for line in list_findings(proposal) if "\n" in line or "\x1b" in line] == []
