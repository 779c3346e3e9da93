"""The audit reports a file that differs from its table's log, and how it differs."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from destinations.delta import data_files
from destinations.delta.data_files import find_harm, find_untouched
from destinations.delta.history import find_newest, make_account
from destinations.delta.log import LocalLog
from origins.delta_actions import AddedFile, VersionLog
from origins.object_store import ObjectStore
from origins.store_access import StoreUrl
from tests.stores.s3 import S3

SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("name", pyarrow.string()), ("share", pyarrow.float64())])
ROWS: Sequence[dict[str, Any]] = [{"id": 1, "name": "a", "share": 0.5}, {"id": 2, "name": None, "share": 1.5}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table with one file."""
    return write_table(tmp_path / "table", ROWS)


def write_table(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write a table with these rows."""
    write_deltalake(folder, pyarrow.Table.from_pylist(list(rows), schema=SCHEMA))
    return folder


def list_files(folder: Path) -> list[AddedFile]:
    """Return the files in the table's log."""
    return [file for version in VersionLog(str(folder)).list_after(cast("Any", None), -1) for file in version.added]


def list_losses(folder: Path) -> list[str]:
    """Return the losses that the audit finds in them."""
    return [f"{loss.code} {loss.reason}" for loss in find_harm(folder, list_files(folder)).values()]


def test_an_unchanged_file_is_not_reported(folder: Path) -> None:
    """This holds for columns of several types."""
    assert list_losses(folder) == []


@pytest.mark.parametrize(
    ("rows", "differs"),
    [
        ([{"id": 1, "name": "a", "share": 0.5}, {"id": 2, "name": "b", "share": 1.5}], "bytes instead of"),
        (
            [{"id": 1, "name": "a", "share": 0.5}, {"id": 3, "name": None, "share": 1.5}],
            "highest value of column id is 3",
        ),
        (
            [{"id": 0, "name": "a", "share": 0.5}, {"id": 2, "name": None, "share": 1.5}],
            "least value of column id is 0",
        ),
        (
            [{"id": 1, "name": "b", "share": 0.5}, {"id": 2, "name": None, "share": 1.5}],
            "column name is 'b' instead of 'a'",
        ),
    ],
)
def test_a_file_replaced_by_another_is_reported(
    folder: Path, tmp_path: Path, rows: Sequence[dict[str, Any]], differs: str
) -> None:
    """The audit compares the size, and the statistics of the columns in the footer."""
    other = write_table(tmp_path / "other", rows)
    shutil.copy(other / list_files(other)[0].path, folder / list_files(folder)[0].path)
    (told,) = list_losses(folder)
    assert told.startswith("FILE_CHANGED")
    assert differs in told


@pytest.mark.parametrize(
    ("harmed", "told"),
    [
        (lambda file: file.unlink(), "is missing, though the table needs it"),
        (lambda file: file.write_bytes(bytes(file.stat().st_size)), "it is not a whole parquet file"),
    ],
)
def test_a_missing_or_damaged_file_is_reported(folder: Path, harmed: Callable[[Path], None], told: str) -> None:
    """The audit reports which of the two it is."""
    harmed(folder / list_files(folder)[0].path)
    assert told in list_losses(folder)[0]


def test_another_number_of_rows_than_the_log_records_is_reported(folder: Path) -> None:
    """The log records 3 rows, and the file has 2."""
    (file,) = list_files(folder)
    noted = AddedFile(path=file.path, size=file.size, rows=3, plain=True)
    assert "2 rows instead of 3" in find_harm(folder, [noted])[file.path].reason


def test_another_number_of_nulls_than_the_log_records_is_reported(folder: Path) -> None:
    """The log records no NULL, and the file has one."""
    (file,) = list_files(folder)
    stats = json.dumps({"nullCount": {"name": 0}})
    noted = AddedFile(path=file.path, size=file.size, rows=2, plain=True, stats=stats)
    assert "1 NULLs in column name instead of 0" in find_harm(folder, [noted])[file.path].reason


@pytest.mark.parametrize(
    "values",
    [
        pyarrow.array([0, 3_000_000], pyarrow.int32()).cast(pyarrow.date32()),
        pyarrow.array([253_402_300_800_000_000], pyarrow.timestamp("us", "UTC")),
        pyarrow.array([b"\xff"]).cast(pyarrow.string(), safe=False),
    ],
    ids=["a day", "a moment", "a text"],
)
def test_a_value_that_python_cannot_represent_is_not_compared(tmp_path: Path, values: pyarrow.Array) -> None:
    """Spark writes days after 9999 and bytes that are no text. The other columns of such a file are compared."""
    file = tmp_path / "part.parquet"
    parquet.write_table(pyarrow.table({"id": [1] * len(values), "v": values}), file, row_group_size=1)
    stats = json.dumps({"nullCount": {"id": 0, "v": 0}, "minValues": {"id": 1}, "maxValues": None})
    noted = AddedFile(path=file.name, size=file.stat().st_size, rows=len(values), plain=True, stats=stats)
    assert find_harm(tmp_path, [noted]) == {}
    other = dataclasses.replace(noted, stats=stats.replace(": 1", ": 2"))
    assert "least value of column id is 1" in find_harm(tmp_path, [other])[file.name].reason


def test_a_file_outside_this_machine_is_not_checked(folder: Path) -> None:
    """The files of a shallow clone may be in a store, for example."""
    assert find_harm(folder, [AddedFile(path="s3://bucket/file.parquet", size=1, rows=1, plain=False)]) == {}


def test_the_account_of_a_missing_table_has_no_batches(tmp_path: Path) -> None:
    """Spark is not asked."""
    found = make_account("t", tmp_path / "gone", "append", cast("Any", None), "orders")
    assert (found.there, found.brought) == (False, ())


def test_the_account_of_a_table_in_a_store_reads_the_versions_of_its_log(s3: S3) -> None:
    """Of the checkpoints, only the newest is fetched, for the table's id.

    A missing version is reported, as on a disk.
    """
    url = StoreUrl(s3.make_url("orders"), s3.spark_settings)
    for number in range(4):
        rows = pyarrow.table({"id": [number]})
        write_deltalake(str(url), rows, mode="append", storage_options=s3.storage_options)
        DeltaTable(str(url), storage_options=s3.storage_options).create_checkpoint()
    s3.proxy.reset_counts()
    found = make_account("t", url, "append", cast("Any", None), "orders")
    fetched = {request.key for request in s3.proxy.list_requests() if ".checkpoint." in request.key}
    assert {key.rpartition("/")[2][:20] for key in fetched} == {f"{3:020}"}
    assert found.id == str(DeltaTable(str(url), storage_options=s3.storage_options).metadata().id)
    assert (found.place, found.proof, found.losses) == (str(url), "commit and row count", [])
    ObjectStore(url).delete([f"_delta_log/{2:020}.json"])
    assert [loss.code for loss in make_account("t", url, "append", cast("Any", None), "orders").losses] == [
        "LOG_BROKEN"
    ]


def test_files_of_deleted_versions_are_checked_in_folders_of_any_name(tmp_path: Path) -> None:
    """The log holds a folder's name encoded as in a URL. An existing file is not reported, and a missing file is."""
    folder = tmp_path / "table"
    for number in range(2):
        rows = pyarrow.table({"id": [number], "name": ["a b=50%é"]})
        write_deltalake(folder, rows, mode="append", partition_by=["name"])
    first = list_files(folder)[0]
    DeltaTable(folder).create_checkpoint()
    (folder / "_delta_log" / f"{0:020}.json").unlink()
    assert make_account("t", folder, "append", cast("Any", None), "orders").losses == []
    (folder / first.path).unlink()
    assert [loss.code for loss in make_account("t", folder, "append", cast("Any", None), "orders").losses] == [
        "FILE_GONE"
    ]


def test_a_table_without_tags_has_no_newest_batch(folder: Path) -> None:
    """None of its commits belongs to a batch."""
    assert find_newest(LocalLog(folder), 0, "orders") is None


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("abxy", "abxz", True),
        ("abxy", "abx", True),
        ("abxy", "axy", False),
        ("abxa", "abx", None),
        ("abxa", "bx", False),
        ("axy", "axy", None),
    ],
    ids=["his changed", "his went", "ours went", "one of two alike went", "both went", "ours were never there"],
)
def test_rows_are_found_in_the_file_that_replaced_theirs(
    tmp_path: Path, before: str, after: str, found: bool | None
) -> None:
    """Wherry brought a and b. Another writer brought all others, and may have brought an a as well."""
    for name, rows in {"mine": "ab", "before": before, "after": after}.items():
        parquet.write_table(pyarrow.table({"value": list(rows)}), tmp_path / name)
    assert find_untouched(tmp_path, ["before"], ["after"], ["mine"]) == {"mine": found}


def test_files_that_are_missing_or_too_large_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result for them is None."""
    parquet.write_table(pyarrow.table({"value": ["a", "b"]}), tmp_path / "mine")
    assert find_untouched(tmp_path, ["gone"], ["mine"], ["mine"]) == {"mine": None}
    assert find_untouched(tmp_path, ["mine"], ["mine"], ["mine"]) == {"mine": True}
    monkeypatch.setattr(data_files, "_MOST_ROWS", 1)
    assert find_untouched(tmp_path, ["mine"], ["mine"], ["mine"]) == {"mine": None}
