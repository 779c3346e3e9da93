"""Columns of the origin `files` from the names of folders and from a file's metadata."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from origins.batch import Batch, Limits
from origins.errors import OriginError
from origins.files import Files
from origins.files.file_scan import FILE, list_folder_columns, make_index_sql, read_folder_columns
from origins.nack import REFUSED
from origins.origin import PLACE, Progress
from tests.origins.files.test_files import make_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_file(folder: Path, name: str, content: str) -> None:
    """Write a file."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


def plan_batch(spark: SparkSession, files: Files) -> Batch:
    """Return all files that wait in lane 0, as one batch."""
    backlog = files.survey(spark, Progress())
    span, schema = backlog.take("0", None, Limits()), files.columns(spark, backlog)
    assert span is not None
    assert schema is not None
    return make_batch(span, files.complete_schema(schema))


def read_rows(spark: SparkSession, files: Files) -> list[dict[str, Any]]:
    """Return the rows read straight. Check that they equal the rows that are decided one by one."""
    plan = plan_batch(spark, files)
    names = [field["name"] for field in json.loads(plan.schema)["fields"]]
    ways = [files.fetch(spark, [plan], places=places).frame() for places in (False, True)]
    assert [frame.drop(REFUSED, PLACE).columns for frame in ways] == [names, names]
    one, other = (sorted(map(str, frame.drop(PLACE).collect())) for frame in ways)
    assert [row.partition(f", {REFUSED}")[0] for row in one] == [row.partition(f", {REFUSED}")[0] for row in other]
    return [row.asDict() for row in ways[0].drop(REFUSED).collect()]


def test_folders_give_columns_by_their_names() -> None:
    """The column's name is before the first `=`. The file's name gives none, and `%` is decoded as Spark encodes it."""
    name = "in/Day=2026-01-01/k=a=b/=x/none=__HIVE_DEFAULT_PARTITION__/city=K%C3%B6ln%2F1/f=1.json"
    assert read_folder_columns(name) == {"day": "2026-01-01", "k": "a=b", "none": None, "city": "Köln/1"}
    assert list_folder_columns(["day=1/a", "DAY=2/b", "x/c", "day=1/hour=2/a"]) == ["day", "hour"]


@pytest.mark.spark
@pytest.mark.connect
def test_a_file_outside_all_batches_is_reported_by_name(spark: SparkSession) -> None:
    """No row is left uncounted."""
    index = make_index_sql("/in", [["a.json"], [], ["b.json", "sub/c.json"]])
    paths = spark.createDataFrame([("file:/in/b.json",), ("file:/in/a.json",), ("file:/in/sub/c.json",)], "path string")
    files = paths.selectExpr(f"named_struct('file_path', path) as {FILE}")
    assert [row.found for row in files.selectExpr(f"{index} as found").collect()] == [2, 0, 2]
    strangers = spark.sql(f"select named_struct('file_path', 'file:/in/d.json') as {FILE}")
    with pytest.raises(Exception, match=r"d\.json was read, but it belongs to none of the batches"):
        strangers.selectExpr(f"{index} as found").collect()


@pytest.mark.spark
@pytest.mark.connect
class TestFolders:
    """Folders named `column=value`."""

    def test_folders_become_text_columns_if_the_schema_is_inferred(self, spark: SparkSession, tmp_path: Path) -> None:
        """Values are kept as written, and no value becomes a number."""
        write_file(tmp_path, "day=01/city=K%C3%B6ln a+b/x y.json", '{"id": 1}')
        write_file(tmp_path, "day=02/city=__HIVE_DEFAULT_PARTITION__/a.json", '{"id": 2}')
        found = read_rows(spark, Files(path=f"{tmp_path}/**/*.json", format="json"))
        assert sorted((row["id"], row["day"], row["city"]) for row in found) == [(1, "01", "Köln a+b"), (2, "02", None)]

    @pytest.mark.parametrize(
        ("kind", "content"),
        [("json", '{"id": "7"}'), ("text", "7")],
    )
    def test_a_schema_column_is_taken_from_the_folder_with_its_type(
        self, spark: SparkSession, tmp_path: Path, kind: str, content: str
    ) -> None:
        """This holds for every format, in the order of the schema.

        Folders that the schema does not name are left out.
        """
        write_file(tmp_path, "Day=2026-01-31/other=1/a", content)
        files = Files(path=f"{tmp_path}/**", format=kind, schema="day date, id string")
        assert read_rows(spark, files) == [{"day": datetime.date(2026, 1, 31), "id": "7"}]

    def test_parquet_files_get_columns_from_their_folders(self, spark: SparkSession, tmp_path: Path) -> None:
        """Spark writes such folders with `partitionBy`."""
        spark.sql("select 7 as id, 'a b/%' as note, 3 as n").write.partitionBy("n", "note").parquet(f"{tmp_path}/out")
        assert read_rows(spark, Files(path=f"{tmp_path}/out/**", format="parquet")) == [
            {"id": 7, "n": "3", "note": "a b/%"}
        ]

    def test_the_folder_overrides_the_line(self, spark: SparkSession, tmp_path: Path) -> None:
        """A file without such a folder takes the column from its lines."""
        write_file(tmp_path, "day=1/a.json", '{"day": 2, "id": 1}')
        write_file(tmp_path, "b.json", '{"day": 3, "id": 2}')
        found = read_rows(spark, Files(path=f"{tmp_path}/**", format="json", schema="day int, id int"))
        assert sorted((row["id"], row["day"]) for row in found) == [(1, 1), (2, 3)]

    def test_a_csv_header_may_contain_the_column_of_a_folder(self, spark: SparkSession, tmp_path: Path) -> None:
        """It need not contain it. If it does, the folder overrides the line."""
        write_file(tmp_path, "day=1/a.csv", "id,day\n1,2\n")
        write_file(tmp_path, "day=2/b.csv", "id\n2\n")
        found = read_rows(spark, Files(path=f"{tmp_path}/**", format="csv"))
        assert sorted((row["id"], row["day"]) for row in found) == [("1", "1"), ("2", "2")]

    def test_a_folder_whose_value_does_not_fit_the_type_is_an_error(self, spark: SparkSession, tmp_path: Path) -> None:
        """No row is refused for it. The error names the file and the value, and no value becomes NULL."""
        write_file(tmp_path, "day=1/a.json", '{"id": 1}')
        write_file(tmp_path, "day=it's/b.json", '{"id": 2}')
        files = Files(path=f"{tmp_path}/**", format="json", schema="id int, day int")
        with pytest.raises(OriginError, match=r"""b\.json is in the folder day=it's, but "it's" is not of type int"""):
            files.fetch(spark, [plan_batch(spark, files)]).frame()

    def test_a_folder_that_came_later_is_an_error_if_the_schema_was_inferred(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Its column would be lost without a message."""
        write_file(tmp_path, "day=1/a.json", '{"id": 1}')
        files = Files(path=f"{tmp_path}/**", format="json")
        before = plan_batch(spark, files)
        write_file(tmp_path, "day=1/hour=2/b.json", '{"id": 1}')
        with pytest.raises(OriginError, match=r"b\.json is in a folder that adds the column hour"):
            files.fetch(spark, [make_batch(plan_batch(spark, files).span, before.schema)]).frame()

    def test_folders_before_the_first_wildcard_give_no_column(self, spark: SparkSession, tmp_path: Path) -> None:
        """Names are relative to that part of the path."""
        write_file(tmp_path, "day=1/a.json", '{"day": 2}')
        files = Files(path=f"{tmp_path}/day=1/*.json", format="json", schema="day int")
        assert read_rows(spark, files) == [{"day": 2}]

    def test_json_needs_a_column_from_its_lines(self, spark: SparkSession, tmp_path: Path) -> None:
        """Without one, a valid line could not be recognized."""
        write_file(tmp_path, "day=1/a.json", "{}")
        files = Files(path=f"{tmp_path}/**", format="json", schema="day int")
        with pytest.raises(OriginError, match="names only columns that folders give; none is in the lines"):
            files.fetch(spark, [plan_batch(spark, files)]).frame()


@pytest.mark.spark
def test_rows_that_this_process_reads_have_the_names_of_their_files(spark: SparkSession, tmp_path: Path) -> None:
    """For any other fact about a file, Spark reads the batch."""
    write_file(tmp_path, "day 1/x 100%41+ü:1.json", '{"id": 1}\n{"id": 2}')
    write_file(tmp_path, "day 2/b.json", '{"id": 3}')
    files = Files(path=f"{tmp_path}/**", format="json", schema="id long", metadata=["file_name"])
    batch = plan_batch(spark, files)
    table = files.fetch(spark, [batch]).table()
    assert table is not None
    names = {row["id"]: row["file_name"] for row in table.to_pylist()}
    assert names == {1: "x 100%41+ü:1.json", 2: "x 100%41+ü:1.json", 3: "b.json"}
    assert sorted(read_rows(spark, files), key=lambda row: row["id"]) == [
        {"id": number, "file_name": name} for number, name in sorted(names.items())
    ]
    more = Files(path=files.path, format="json", schema="id long", metadata=["file_name", "file_size"])
    assert more.fetch(spark, [plan_batch(spark, more)]).table() is None


@pytest.mark.spark
@pytest.mark.connect
class TestMetadata:
    """Metadata of a file."""

    def test_metadata_of_a_file_becomes_columns(self, spark: SparkSession, tmp_path: Path) -> None:
        """They follow the columns of the lines. The path is written plainly, not as in a URL."""
        name, content = "x 100%41+ü:1.json", "id\n1\n"
        write_file(tmp_path, name, content)
        os.utime(tmp_path / name, (1_700_000_000, 1_700_000_000))
        asked = ["file_size", "file_path", "file_modification_time", "file_name"]
        (row,) = read_rows(spark, Files(path=str(tmp_path), format="csv", schema="id string", metadata=asked))
        assert row.pop("file_path").removeprefix("file:").lstrip("/") == f"{tmp_path}/{name}".lstrip("/")
        assert row.pop("file_modification_time").timestamp() == 1_700_000_000
        assert row == {"id": "1", "file_size": len(content), "file_name": name}

    def test_a_bad_line_is_refused_beside_metadata_columns(self, spark: SparkSession, tmp_path: Path) -> None:
        """These columns change no verdict."""
        write_file(tmp_path, "day=1/a.json", '{"id": 1}\n{"id": "x"}\n')
        files = Files(path=f"{tmp_path}/**", format="json", schema="id int, day int", metadata=["file_name"])
        refused = (
            files.fetch(spark, [plan_batch(spark, files)], places=True)
            .frame()
            .where(f"{REFUSED} is not null")
            .collect()
        )
        assert [(row[REFUSED].raw, row.file_name, row.day) for row in refused] == [('{"id": "x"}', "a.json", 1)]

    def test_a_metadata_column_does_not_hide_a_column_with_its_name(self, spark: SparkSession, tmp_path: Path) -> None:
        """Two columns with one name are an error."""
        write_file(tmp_path, "a.json", '{"file_name": 1}')
        files = Files(path=str(tmp_path), format="json", metadata=["file_name"])
        with pytest.raises(OriginError, match="file_name more than once"):
            plan_batch(spark, files)
