"""The stage `lookup` adds columns from a table or a file, and never adds a row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from stages.conformance import StageConformance, begin, begin_straight, collect_decided
from stages.lookup import Lookup
from stages.pinned_table import TableError
from stages.rows import VERDICT, enter_stage, take_clean
from stages.stage import Stage
from tests.stages.checks import KEEPS, REFUSALS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]

COUNTRIES = """
select * from values
  ('DE', 1, 'Germany', date'2020-01-01', map('eu', true)),
  ('FR', 1, 'France', date'2020-01-01', map('eu', true)),
  ('FR', 1, 'Frankreich', date'2021-01-01', null),
  ('FR', 1, 'Gallien', null, null),
  ('CH', 1, null, null, null),
  (null, 1, 'Nowhere', null, null)
as t(`code.2`, version, name, since, facts)
"""


@pytest.fixture
def countries(spark: SparkSession, tmp_path: Path) -> str:
    """A Delta table in which one key occurs three times, and one is NULL."""
    path = f"{tmp_path}/countries"
    spark.sql(COUNTRIES).write.format("delta").save(path)
    return path


class ThatNacks(StageConformance):
    """Two keys, one with another width, new names, NULL on both sides, and the first of several matches."""

    schema = "id int, Land string, v bigint, `größe` string"
    rows: ClassVar[list[tuple[Any, ...]]] = [
        (1, "DE", 1, "a"),
        (2, "FR", 1, None),
        (3, "FR", 2, "b"),
        (4, "CH", 1, None),
        (5, None, 1, "c"),
        (6, "XX", None, None),
    ]

    def __init__(self, path: str) -> None:
        self.path = path

    def stage(self) -> Stage:
        return Lookup(
            path=self.path,
            on={"land": "CODE.2", "v": "version"},
            columns={"country.name": "name", "since": "Since", "facts": "facts"},
            unmatched="nack",
            duplicates="first",
            order_by="since desc",
        )


@pytest.mark.parametrize("check", [*KEEPS, *REFUSALS, "test_nothing_is_evaluated_on_a_refused_row"])
def test_a_lookup_that_refuses_rows_keeps_the_promises_of_a_stage(
    spark: SparkSession, countries: str, check: str
) -> None:
    """The table is read in both ways."""
    getattr(ThatNacks(countries), check)(spark)


def test_every_row_has_its_match_or_a_reason(spark: SparkSession, countries: str) -> None:
    """Each row appears once, however often its key occurs in the table."""
    marked = ThatNacks(countries)._run_marked(spark, ThatNacks.rows)
    kept, _, _ = collect_decided(marked)
    assert sorted((row["id"], row["country.name"]) for row in kept) == [(1, "Germany"), (2, "Frankreich"), (4, None)]
    said = marked.frame.where(f"{VERDICT} is not null").orderBy("id").select(f"{VERDICT}.*").collect()
    assert {nack.code for nack in said} == {"LOOKUP"}
    assert [nack.message.removeprefix(f"{countries} has no row with ") for nack in said] == [
        "code.2 = FR, version = 2",
        "code.2 = NULL, version = 1",
        "code.2 = XX, version = NULL",
    ]


def test_a_row_without_a_match_may_count_as_filtered(spark: SparkSession, countries: str) -> None:
    """NULL has no match. Both ways keep the same rows."""
    stage = Lookup(path=countries, on=["code.2"], unmatched="filter")
    frame = spark.createDataFrame([("DE",), ("XX",), (None,)], "`code.2` string")
    assert collect_decided(stage.apply(enter_stage(begin(frame), "it", 1))) == ([("DE",)], [], 2)
    assert take_clean(stage.apply(enter_stage(begin_straight(frame), "it", 1))).collect() == [("DE",)]


def test_a_row_without_a_match_in_a_file_has_nulls(spark: SparkSession, tmp_path: Path) -> None:
    """The columns of a match are text. Both ways give the same rows."""
    file = tmp_path / "countries [1].csv"
    file.write_text('code,name\nDE,"Ger""many"\nFR,France\n')
    stage = Lookup(file=str(file), on=["code"], columns={"Name": "NAME"})
    frame = spark.createDataFrame([("DE", 1), ("DE", 2), ("XX", 3), (None, 4)], "code string, x int")
    kept, _, _ = collect_decided(stage.apply(enter_stage(begin(frame), "it", 1)))
    for rows in (kept, take_clean(stage.apply(begin_straight(frame))).collect()):
        found = sorted((row["x"], row["Name"]) for row in rows)
        assert found == [(1, 'Ger"many'), (2, 'Ger"many'), (3, None), (4, None)]


@pytest.mark.parametrize(
    ("order_by", "name"),
    [
        ("since", "France"),
        (["version", "since is null desc"], "Gallien"),
        ("case when :number = 7 then length(name) end desc", "Frankreich"),
        ("version", "Gallien"),
    ],
)
def test_the_order_decides_which_match_is_first(spark: SparkSession, countries: str, order_by: Any, name: str) -> None:
    """NULL comes last. The content decides between equal matches."""
    on, columns = {"c": "code.2"}, ["name"]
    stage = Lookup(path=countries, on=on, columns=columns, duplicates="first", order_by=order_by)
    [row] = take_clean(stage.apply(begin_straight(spark.sql("select 'FR' as c")))).collect()
    assert row.name == name


def test_a_duplicate_key_fails_only_a_batch_that_uses_it(spark: SparkSession, countries: str) -> None:
    """The error has the value and the remedy. A batch with other keys passes."""
    stage = Lookup(path=countries, on={"c": "code.2"}, columns=["name"])
    for begun in (begin_straight, begin):
        rows: Any = begun(spark.sql("select explode(array('DE', 'CH', null)) as c"))
        assert stage.apply(enter_stage(rows, "countries", 1)).frame.count() == 3
        rows = begun(spark.sql("select explode(array('DE', 'FR')) as c"))
        said = re.escape(f"stage 'countries': {countries} has several rows with code.2 = FR; make the key unique there")
        with pytest.raises(Exception, match=said):
            stage.apply(enter_stage(rows, "countries", 1)).frame.collect()


def test_the_lookup_uses_the_pinned_version(spark: SparkSession, countries: str) -> None:
    """A later change does not affect a planned batch. A lookup in a file is not repeatable."""
    stage = Lookup(path=countries, on={"c": "code.2"}, columns=["name"])
    pin = stage.pin(spark)
    spark.sql(f"update delta.`{countries}` set name = 'Deutschland' where name = 'Germany'").collect()
    for pinned, name in ((pin, "Germany"), (stage.pin(spark), "Deutschland"), (None, "Deutschland")):
        rows = stage.apply(enter_stage(begin_straight(spark.sql("select 'DE' as c")), "it", 1, pin=pinned))
        assert [row.name for row in take_clean(rows).collect()] == [name]
    assert stage.repeatable
    assert not Lookup(file="x.csv", on=["id"], columns=["x"]).repeatable
    assert not Lookup(path="x", on=["id"], columns=["x"], duplicates="first", order_by="rand()").repeatable


@pytest.mark.parametrize(
    ("name", "content", "options", "rows"),
    [
        ("a.json", '{"id": 1, "v": "x"}\n', {}, [(1, "x")]),
        (
            "a.txt",
            "1,x\n",
            {"format": "csv", "options": {"header": False}, "schema": {"id": "int", "v": "string"}},
            [(1, "x")],
        ),
    ],
)
def test_files_are_read_in_their_format(
    spark: SparkSession, tmp_path: Path, name: str, content: str, options: dict[str, Any], rows: list[tuple[Any, ...]]
) -> None:
    """The format comes from the ending of the name or from the options."""
    (tmp_path / name).write_text(content)
    stage = Lookup(file=f"{tmp_path}/{name}", on=["id"], columns=["v"], **options)
    assert take_clean(stage.apply(begin_straight(spark.sql("select 1 as id")))).collect() == rows


@pytest.mark.parametrize(
    ("content", "schema", "says"),
    [
        ("id,v\n1,x,y\n", "id int, v string", "MALFORMED|FAILFAST"),
        ("v,id\nx,1\n", "id int, v string", "header"),
    ],
)
def test_a_file_with_an_unreadable_line_fails_the_batch(
    spark: SparkSession, tmp_path: Path, content: str, schema: str, says: str
) -> None:
    """This holds even if no column of the file is used."""
    (tmp_path / "a.csv").write_text(content)
    stage = Lookup(file=f"{tmp_path}/a.csv", on=["id"], unmatched="filter", schema=schema)
    with pytest.raises(Exception, match=says):
        take_clean(stage.apply(begin_straight(spark.sql("select 1 as id")))).collect()


def test_a_missing_table_or_file_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """A missing table is found by the analysis and by the planning of a batch."""
    rows = begin_straight(spark.sql("select 1 as id"))
    table = Lookup(path=f"{tmp_path}/nowhere", on=["id"], columns=["x"])
    for ask in (lambda: table.apply(rows), lambda: table.pin(spark)):
        with pytest.raises(TableError, match=r"The Delta table .*/nowhere was not found\."):
            ask()
    with pytest.raises(TableError, match=r"The file .*/nowhere\.csv was not found\."):
        Lookup(file=f"{tmp_path}/nowhere.csv", on=["id"], columns=["x"]).apply(rows)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"on": {"contry": "code.2"}}, "there is no column 'contry'; did you mean 'country'?"),
        ({"on": {"country": "code2"}}, "has no column 'code2'; did you mean 'code.2'?"),
        ({"on": {"id": "code.2"}}, "column id is int, and code.2 of {} is string; cast it before"),
        ({"columns": ["nmae"]}, "has no column 'nmae'; did you mean 'name'?"),
        (
            {"columns": {"ID": "name"}},
            "the rows have a column 'id' already; give it another name, such as columns: {other_ID: name}",
        ),
    ],
)
def test_columns_that_do_not_fit_are_an_error(
    spark: SparkSession, countries: str, given: dict[str, Any], says: str
) -> None:
    """The error is raised before a row is read."""
    stage = Lookup(**{"path": countries, "on": {"country": "code.2"}, "columns": ["name"], **given})
    with pytest.raises(ValueError, match=re.escape(says.replace("{}", countries))):
        stage.apply(begin_straight(spark.sql("select 1 as id, 'DE' as country")))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"path": None}, "path: expected one of path, table and file, got none"),
        ({"file": "x.csv"}, "path: expected one of path, table and file, got path and file"),
        ({"path": None, "table": "a b"}, "table: expected a name such as catalog.schema.table, got 'a b'"),
        ({"path": None, "file": "x.xml"}, "format: expected csv or json or parquet, got 'xml'"),
        ({"format": "csv"}, "format: expected it with `file` only; a Delta table knows its own schema"),
        ({"path": None, "file": "x.csv", "options": {"mode": "x"}}, "options: 'mode' cannot be set"),
        ({"on": "id"}, "on: expected a list of columns, or a mapping from the rows' columns to the table's, got 'id'"),
        ({"on": []}, "on: expected a list of columns, or a mapping from the rows' columns to the table's, got []"),
        ({"on": {"id": 5}}, "on: expected the name of a column, got 5"),
        ({"columns": ["a", "A"]}, "columns: 'A' is there twice"),
        (
            {"columns": []},
            "columns: expected columns to take, got none; without columns, set unmatched to filter or nack",
        ),
        ({"unmatched": "drop"}, "unmatched: expected keep or filter or nack, got 'drop'"),
        ({"duplicates": "last"}, "duplicates: expected error or first, got 'last'"),
        ({"duplicates": "first"}, "order_by: expected an expression that orders the matches, got nothing"),
        ({"order_by": "x"}, "order_by: expected it with duplicates: first only, got it with duplicates: error"),
        ({"duplicates": "first", "order_by": ["(select 1)"]}, "order_by: a query needs more than one row"),
    ],
)
def test_an_invalid_option_of_lookup_is_refused(given: dict[str, Any], says: str) -> None:
    """The message begins with the option."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the message is compared below
        Lookup(**{"path": "t", "on": ["id"], "columns": ["x"], **given})
    assert str(error.value).startswith(says)
