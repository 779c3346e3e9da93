"""The policies for changes of each kind, and their defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from origins.capabilities import EvolvesSchema
from origins.files import Files
from origins.files.changes import STOPS, Changes, SchemaChanged, find_schema_stop
from origins.files.csv_header import Header, match_header
from origins.protection import Protection
from runners.definitions.definition import load
from tests.spark_errors import make_raised_error


def make_files(**options: Any) -> Files:
    return Files(**{"path": "x", "format": "csv", **options})


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("csv", False, ("stop", "stop", "nack", "nack", "nack")),
        ("csv", True, ("stop", "ignore", "nack", "nack", "nack")),
        ("json", False, ("evolve", "stop", "nack", "nack", "nack")),
        ("json", True, ("evolve", "ignore", "nack", "nack", "nack")),
        ("parquet", False, ("evolve", "stop", "stop", "stop", "stop")),
        ("parquet", True, ("stop", "ignore", "stop", "stop", "stop")),
    ],
)
def test_no_default_drops_a_value(kind: str, given: bool, expected: tuple[str, ...]) -> None:
    """Only a given schema leaves columns out, and only an inferred one lets a file lack a column."""
    found = Changes.of(kind, {}, given=given)
    assert (found.missing, found.extra, found.wider, found.other, found.corrupt) == expected


def test_a_schema_that_grows_lets_older_files_lack_later_columns() -> None:
    """The definition can override this."""
    assert Changes.of("csv", {"extra": "evolve"}, given=True).missing == "evolve"
    assert Changes.of("csv", {"extra": "evolve", "missing": "nack"}, given=True).missing == "nack"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"on_change": {"extr": "nack"}},
            "on_change: expected missing, extra, wider, other, corrupt, doubled, got 'extr'",
        ),
        (
            {"format": "json", "on_change": {"doubled": "keep"}},
            "on_change.doubled: expected nack, keep_last, got 'keep'",
        ),
        ({"on_change": {"doubled": "nack"}}, "on_change.doubled: expected format: json beside it, got csv"),
        ({"on_change": {"extra": "drop"}}, "on_change.extra: expected stop, evolve, nack, rescue, ignore, got 'drop'"),
        ({"on_change": {"other": "evolve"}}, "on_change.other: expected stop, nack, rescue, got 'evolve'"),
        ({"on_change": {"missing": "rescue"}}, "on_change.missing: expected stop, evolve, nack, got 'rescue'"),
        ({"format": "text", "on_change": {"extra": "nack"}}, "on_change: text has one column"),
        (
            {"format": "parquet", "on_change": {"corrupt": "nack"}},
            "on_change.corrupt: expected stop, since a broken parquet file",
        ),
        (
            {
                "format": "json",
                "on_change": {"other": "rescue"},
                "options": {"multiLine": True, "allowComments": True},
            },
            "expected no rescue beside multiLine and allowcomments",
        ),
    ],
)
def test_an_unknown_policy_is_refused(options: dict[str, Any], said: str) -> None:
    """The error names the valid policies."""
    with pytest.raises(ValueError, match=said.replace("{", r"\{")):
        make_files(**options)


@pytest.mark.parametrize(
    ("changes", "evolves", "rescues"),
    [
        ({}, False, False),
        ({"missing": "evolve"}, False, False),
        ({"extra": "evolve"}, True, False),
        ({"wider": "evolve"}, True, False),
        ({"corrupt": "rescue"}, False, True),
    ],
)
def test_tables_grow_if_columns_evolve_or_are_rescued(changes: dict[str, str], evolves: bool, rescues: bool) -> None:
    """A column that may be missing adds no column."""
    found = Changes(**changes)
    assert (found.evolves, found.rescues) == (evolves, rescues)
    assert make_files(on_change=changes).evolves == (evolves or rescues)


def test_rescued_values_have_a_separate_column_after_the_others() -> None:
    """It comes from the definition, and is not pinned with the schema."""
    read = '{"type": "struct", "fields": [{"name": "id", "type": "integer", "nullable": true, "metadata": {}}]}'
    whole = make_files(on_change={"other": "rescue"}, metadata=["file_name"]).complete_schema(read)
    assert [name in whole for name in ('"_rescued"', '"file_name"', '"id"')] == [True, True, True]
    assert "_rescued" not in make_files().complete_schema(read)


def test_a_header_is_matched_by_name() -> None:
    """The order and case do not matter. A column outside the schema gets a reserved name."""
    header = match_header(["NOTE", " id ", "x"], ["id", "note"], "a.csv", Changes(extra="ignore"))
    assert (header.columns, dict(header.others)) == (("note", "id", "_wherry_other_2"), {"_wherry_other_2": "x"})
    assert match_header(["id", "day"], ["id"], "a.csv", Changes(), besides=["Day"]).others == {}


@pytest.mark.parametrize(
    ("found", "policy", "wrong"),
    [
        (["id"], {"missing": "nack"}, "the file has no column note"),
        (["id"], {"missing": "evolve"}, ""),
        (["id", "note", "x", "y"], {"extra": "nack"}, "the file has the column x, y, which the schema does not have"),
        (["id", "note", "x"], {"extra": "evolve"}, "the file has the column x, which the schema does not have"),
        (["id", "note", "x"], {"extra": "rescue"}, ""),
        (["id", "x"], {"missing": "nack", "extra": "rescue"}, "the file has no column note"),
    ],
)
def test_a_header_that_differs_is_judged_by_the_policies(found: list[str], policy: dict[str, str], wrong: str) -> None:
    """New columns were added to the schema before, so a column that is still unknown is refused."""
    assert match_header(found, ["id", "note"], "a.csv", Changes(**policy)).wrong == wrong


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (["id"], "a.csv has no column note. Its header is: id"),
        (["id", "note", "x"], "a.csv has the column x, which the schema does not have. Its header is: id, note, x"),
        (["id", "x"], "a.csv has no column note and has the column x, which the schema does not have."),
        (["id", "note", "Id"], "a.csv has the column id more than once."),
    ],
)
def test_a_header_that_differs_stops_the_run_by_default(found: list[str], said: str) -> None:
    """The error names the file and its header, and has the code SCHEMA."""
    with pytest.raises(SchemaChanged) as caught:
        match_header(found, ["id", "note"], "a.csv", Changes())
    assert (caught.value.message[: len(said)], caught.value.code) == (said, "SCHEMA")


@pytest.mark.parametrize(
    ("found", "ways"),
    [
        (["id"], ["on_change: {missing: evolve}", "on_change: {missing: nack}"]),
        (["id", "x"], ["on_change: {missing: evolve, extra: evolve}", "on_change: {missing: nack, extra: nack}"]),
        (["id", "note", "Id"], []),
    ],
)
def test_a_header_that_stops_the_run_names_the_remedy(found: list[str], ways: list[str]) -> None:
    """No option helps if a column occurs twice."""
    with pytest.raises(SchemaChanged) as caught:
        match_header(found, ["id", "note"], "a.csv", Changes())
    assert re.findall("`(.*?)`", caught.value.hint) == ways


def test_two_unknown_columns_with_one_name_are_both_kept() -> None:
    """Each gets a separate name."""
    header = match_header(["id", "x", "x"], ["id"], "a.csv", Changes(extra="rescue"))
    assert len({*header.others.values()}) == 2
    assert isinstance(header, Header)


def test_the_reason_is_extracted_from_a_query_that_stopped() -> None:
    """The text of Spark before and after it is removed."""
    error = make_raised_error(f"{STOPS}a.json: the schema has no x {STOPS.strip()}\n at org.apache")
    found = find_schema_stop(error, Protection())
    assert found is not None
    assert (found.message, found.code) == ("a.json: the schema has no x", "SCHEMA")
    quoting = make_raised_error(f"{STOPS}a.json: column x: 'sieben' is not a long{STOPS.strip()}")
    masked = find_schema_stop(quoting, Protection(["x"]))
    assert masked is not None
    assert masked.message == "a.json: column x: *** is not a long"
    assert find_schema_stop(make_raised_error(f"a row that says {STOPS}"), Protection()) is None


def test_every_policy_is_documented() -> None:
    """The table in the documentation has the policies for each kind of change."""
    readme = (Path(__file__).parents[3] / "origins/docs/files-that-change.md").read_text()
    table = {row.split("`")[1]: row for row in readme.splitlines() if row.startswith("| `") and "`stop`" in row}
    for change, policies in {
        "missing": ["stop", "evolve", "nack"],
        "extra": ["stop", "evolve", "nack", "rescue", "ignore"],
        "wider": ["stop", "evolve", "nack", "rescue"],
        "other": ["stop", "nack", "rescue"],
        "corrupt": ["stop", "nack", "rescue"],
    }.items():
        assert " ".join(f"`{policy}`" for policy in policies) in table[change]
        for policy in policies:
            make_files(on_change={change: policy})


def test_the_example_in_the_documentation_is_valid(tmp_path: Path) -> None:
    """The example loads, and its schema can grow."""
    readme = (Path(__file__).parents[3] / "origins/docs/files-that-change.md").read_text()
    example, *_ = re.findall(r"^```yaml\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    file = tmp_path / "orders.yaml"
    file.write_text(example)
    (origin,) = load(file).pipeline.every_origin
    assert isinstance(origin, EvolvesSchema)
    assert origin.evolves
