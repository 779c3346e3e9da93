"""The columns of files that a written schema leaves out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from origins.files import Files
from origins.origin import Progress
from tests.origins.files.test_stored_files import make_url, put_objects
from tests.stores.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)
SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id"}, {"name": "Name"}]})


def make_parquet(folder: Path) -> bytes:
    """Return a parquet file with one more column."""
    pq.write_table(pa.table({"id": [1], "name": ["a"], "tip": [1.5]}), folder / "made")
    return (folder / "made").read_bytes()


def find(files: Files) -> list[str]:
    """Return the columns of the waiting files that the schema leaves out."""
    return list(files.list_left_out(files.survey(NO_SPARK, Progress()), SCHEMA))


HEADS: Mapping[str, tuple[str, bytes, dict[str, Any], list[str]]] = {
    "keys of JSON": ("json", b'{"id": 1}\n{"ID": 2, "tip": 1, "at": {"zip": 1}}\n{"Tip"', {}, ["tip", "at"]),
    "an array of JSON": ("json", b'[{"id": 1},\n{"tip": 2}]', {"multiLine": True}, ["tip"]),
    "another encoding": ("json", '{"Grün": 2}\n'.encode("latin-1"), {"encoding": "ISO-8859-1"}, ["Grün"]),
    "no JSON": ("json", b"{tip: 1", {}, []),
    "a header of CSV": ("csv", b"name;tip;id\na;1;2\n", {"sep": ";"}, ["tip"]),
    "no header": ("csv", b"1,2,3\n", {"header": False}, []),
    "all columns": ("csv", b"NAME,id\na,1\n", {}, []),
    "text": ("text", b"tip\n", {}, []),
    "no parquet": ("parquet", b"tip", {}, []),
}


@pytest.mark.parametrize(("kind", "content", "options", "columns"), HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("packed", [False, True])
def test_columns_that_the_schema_lacks_are_found(
    tmp_path: Path, kind: str, content: bytes, options: dict[str, Any], columns: list[str], packed: bool
) -> None:
    """Names are compared without the case of letters. A file that cannot be read gives none."""
    name, put = ("a.gz", gzip.compress(content)) if packed else ("a", content)
    (tmp_path / name).write_bytes(put)
    assert find(Files(path=f"{tmp_path}/a*", format=kind, schema="id int", options=options)) == columns


def test_the_footer_of_parquet_is_read(tmp_path: Path) -> None:
    """It has the names of all columns."""
    (tmp_path / "a.parquet").write_bytes(make_parquet(tmp_path))
    assert find(Files(path=f"{tmp_path}/*.parquet", format="parquet", schema="id int")) == ["tip"]


@pytest.mark.parametrize(
    "given", [{"schema": None}, {"on_change": {"extra": "ignore"}}, {"on_change": {"extra": "evolve"}}]
)
def test_a_decision_of_a_person_is_respected(tmp_path: Path, given: dict[str, Any]) -> None:
    """Such columns are not left out, or not without a word."""
    (tmp_path / "a").write_text('{"tip": 1}\n')
    assert find(Files(**{"path": str(tmp_path), "format": "json", "schema": "id int", **given})) == []


def test_the_newest_of_many_files_is_looked_at(tmp_path: Path) -> None:
    """A new column begins in a new file."""
    for number in range(50):
        (tmp_path / f"{number:02}").write_text("id\n1\n" if number < 49 else "id,tip\n1,2\n")
    assert find(Files(path=str(tmp_path), format="csv", schema="id int")) == ["tip"]


def test_the_newest_file_in_a_store_is_looked_at(s3: S3) -> None:
    """One request is enough, and the batch of a small file then needs none."""
    put_objects(s3, "in/a", content="id\n1\n")
    put_objects(s3, "in/b", content="id,tip\n1,2\n")
    files = Files(path=make_url(s3, "in"), format="csv", schema="id int")
    backlog = files.survey(NO_SPARK, Progress())
    s3.proxy.reset_counts()
    assert files.list_left_out(backlog, SCHEMA) == ["tip"]
    read = backlog.place.read(backlog.files)
    assert read is not None
    assert {name: content for name, (_, content) in read.items()} == {"a": b"id\n1\n", "b": b"id,tip\n1,2\n"}
    assert s3.proxy.count() == {"GET": 2}
    assert backlog.place.read(backlog.files) == read
    assert s3.proxy.count() == {"GET": 4}
