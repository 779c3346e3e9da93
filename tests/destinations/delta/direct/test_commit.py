"""An append without Spark, as one file in a table's log: which version it gets, and when it fails."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from destinations.conformance import make_label
from destinations.delta.data_files import describe_files, write
from destinations.delta.direct_append import DirectTable, _is_plain_setting
from destinations.delta.direct_commit import (
    FolderPlace,
    MetadataChanged,
    Overwritten,
    find_staged,
)
from destinations.delta.lock import SparkCommits
from destinations.delta.log import LocalLog, OwnCommits, make_tag
from destinations.delta.versions import FolderVersions, LogHead
from destinations.destination import DestinationError
from origins.delta_actions import FileBody, NestedBody
from tests.destinations.delta.features import demand_feature

SCHEMA = pa.schema([("id", pa.int64())])
COLUMNS: NestedBody = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A table without rows."""
    DeltaTable.create(str(tmp_path / "orders"), Schema.from_json(json.dumps(COLUMNS)))
    return tmp_path / "orders"


def write_file(folder: Path, number: int) -> list[FileBody]:
    """Write a file with this number to the folder, and return its description for the log."""
    name = f"part-{number}.snappy.parquet"
    write([pa.table({"id": [number]}, SCHEMA)], SCHEMA, json.dumps(COLUMNS), folder / name)
    return describe_files({name: folder / name}, COLUMNS)


def read_head(folder: Path) -> LogHead:
    return FolderVersions(folder).open_head()[1]


def append(
    folder: Path, began: LogHead, files: list[FileBody], tag: str, check: Callable[[], None] = lambda: None
) -> LogHead:
    return FolderPlace(folder).append(began, files, tag, check)


def append_number(folder: Path, number: int) -> int:
    """Append the number, as a process that has just opened the table."""
    return append(folder, read_head(folder), write_file(folder, number), f"tag {number}").version


def read_numbers(folder: Path) -> list[int]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table()["id"].to_pylist())


def list_litter(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder / "_delta_log") if not name.endswith(".json")]


def test_other_readers_find_the_appended_rows(orders: Path) -> None:
    """`deltalake` finds the rows, the tag and the metrics, and appends after them."""
    assert [append_number(orders, 1), append_number(orders, 2)] == [1, 2]
    write_deltalake(str(orders), pa.table({"id": [3]}, SCHEMA), mode="append")
    assert append_number(orders, 4) == 4
    assert read_numbers(orders) == [1, 2, 3, 4]
    newest = DeltaTable(str(orders)).history()[0]
    assert (newest["operation"], newest["userMetadata"]) == ("WRITE", "tag 4")
    assert newest["operationMetrics"]["numOutputRows"] == "1"
    assert list_litter(orders) == []


def test_a_staging_table_that_is_gone_is_an_error(orders: Path) -> None:
    """Without its log, it is unknown which files Spark has written there."""
    place = FolderPlace(orders)
    place.make_staging("spark", json.dumps(COLUMNS), {})
    assert place.read_staged("spark", "token", 0) == (0, ())
    shutil.rmtree(orders / "spark")
    with pytest.raises(DestinationError, match=r"spark/_delta_log/0+\.json is missing"):
        place.read_staged("spark", "token", 0)


def test_an_append_takes_the_next_free_version(orders: Path) -> None:
    """Versions that came after the write began do not matter."""
    began = read_head(orders)
    append_number(orders, 1)
    append_number(orders, 2)
    assert append(orders, began, write_file(orders, 3), "tag").version == 3
    assert read_numbers(orders) == [1, 2, 3]


def rename(folder: Path) -> None:
    DeltaTable(str(folder)).alter.set_table_properties({"mine": "x"}, raise_if_not_exists=False)


def replace_table(folder: Path) -> None:
    write_deltalake(str(folder), pa.table({"name": ["x"]}), mode="overwrite", schema_mode="overwrite")


def fence_and_restore(folder: Path) -> None:
    """Write a fence, and then the former metadata again."""
    first = (folder / "_delta_log" / f"{0:020}.json").read_text(encoding="utf-8").splitlines()
    rename(folder)
    (before,) = [line for line in first if "metaData" in json.loads(line)]
    back = folder / "_delta_log" / f"{DeltaTable(str(folder)).version() + 1:020}.json"
    back.write_text(f"{json.dumps({'commitInfo': {'operation': 'RESTORE'}})}\n{before}\n", encoding="utf-8")


def recreate(folder: Path) -> None:
    """Put another table in the same place, which has more versions than the one before."""
    version = DeltaTable(str(folder)).version()
    shutil.rmtree(folder)
    DeltaTable.create(str(folder), Schema.from_json(json.dumps(COLUMNS)))
    for number in range(version + 2):
        append_number(folder, 100 + number)


def test_a_table_with_only_a_checkpoint_left_is_left_to_spark(orders: Path) -> None:
    """Wherry could not find out whether its newest version is still the newest."""
    append_number(orders, 1)
    there = DeltaTable(str(orders))
    there.create_checkpoint()
    assert DirectTable(FolderPlace(orders), str(there.metadata().id)).begin() is not None
    (orders / "_delta_log" / f"{1:020}.json").unlink()
    assert read_numbers(orders) == [1]
    assert DirectTable(FolderPlace(orders), str(there.metadata().id)).begin() is None


@pytest.mark.parametrize("change", [rename, replace_table, recreate, fence_and_restore, demand_feature])
@pytest.mark.parametrize("behind", [0, 1])
def test_an_append_after_a_metadata_change_fails(orders: Path, change: Any, behind: int) -> None:
    """The change is the next version or a later one. A fence is such a change."""
    began = read_head(orders)
    for number in range(behind):
        append_number(orders, number)
    change(orders)
    version = DeltaTable(str(orders)).version()
    with pytest.raises(MetadataChanged, match="metadata changed"):
        append(orders, began, write_file(orders, 9), "tag")
    assert DeltaTable(str(orders)).version() == version
    assert list_litter(orders) == []


def test_a_link_that_is_wrongly_reported_as_failed_counts_once(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may repeat a request whose answer was lost."""
    link = os.link

    def lost(file: Path, name: Path) -> None:
        link(file, name)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", lost)
    assert append_number(orders, 1) == 1
    monkeypatch.undo()
    assert (read_numbers(orders), DeltaTable(str(orders)).version()) == ([1], 1)


def test_a_version_below_the_newest_whose_name_is_free_is_not_taken(orders: Path) -> None:
    """After a cleanup of old versions, a writer that paused finds a free name far below the newest version."""
    for number in range(3):
        append_number(orders, number)
    began = read_head(orders)
    append_number(orders, 3)
    DeltaTable(str(orders)).create_checkpoint()
    for version in range(5):
        (orders / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(MetadataChanged, match="cleaned up"):
        append(orders, began, write_file(orders, 9), "tag")
    assert read_numbers(orders) == [0, 1, 2, 3]
    assert list_litter(orders) == [name for name in list_litter(orders) if "checkpoint" in name]
    assert FolderVersions(orders).find_head(began).version == 4


def test_an_append_into_a_log_with_a_gap_fails(orders: Path) -> None:
    """A cleanup deletes versions in any order, and may stop in the middle.

    The version that a write knows may then exist although the next ones are missing.
    """
    for number in range(3):
        append_number(orders, number)
    known = read_head(orders)
    long_ago = replace(known, seen=known.seen - 3_600)
    for number in range(3, 9):
        append_number(orders, number)
    DeltaTable(str(orders)).create_checkpoint()
    for version in {*range(9)} - {known.version}:
        (orders / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(MetadataChanged):
        append(orders, long_ago, write_file(orders, 99), "tag")
    assert not (orders / "_delta_log" / f"{4:020}.json").exists()
    newest = FolderVersions(orders).find_head(long_ago)
    assert append(orders, newest, write_file(orders, 9), "tag").version == 10
    assert read_numbers(orders) == list(range(10))


def test_a_writer_paused_before_the_link_fills_no_gap(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause comes after all checks. A checkpoint that another process makes after the link does no harm."""
    append_number(orders, 1)
    began, link = read_head(orders), os.link

    def slept(file: Path, name: Path) -> None:
        monkeypatch.undo()
        for number in range(2, 5):
            append_number(orders, number)
        DeltaTable(str(orders)).create_checkpoint()
        for version in (0, 2, 3):
            (orders / "_delta_log" / f"{version:020}.json").unlink()
        monkeypatch.setattr("destinations.delta.versions.read_clock", lambda: began.seen + 3_600)
        link(file, name)

    monkeypatch.setattr(os, "link", slept)
    with pytest.raises(MetadataChanged, match="cleaned up"):
        append(orders, began, write_file(orders, 99), "tag")
    assert read_numbers(orders) == [1, 2, 3, 4]
    assert not (orders / "_delta_log" / f"{2:020}.json").exists()
    monkeypatch.undo()
    began = read_head(orders)

    def overtaken(file: Path, name: Path) -> None:
        monkeypatch.undo()
        link(file, name)
        append_number(orders, 6)
        DeltaTable(str(orders)).create_checkpoint()
        monkeypatch.setattr("destinations.delta.versions.read_clock", lambda: began.seen + 3_600)

    monkeypatch.setattr(os, "link", overtaken)
    assert append(orders, began, write_file(orders, 5), "tag").version == 5
    assert read_numbers(orders) == [1, 2, 3, 4, 5, 6]


def test_another_table_in_the_same_place_gets_no_append(orders: Path) -> None:
    """This holds even if it appears at the last moment and has as many versions."""
    append_number(orders, 1)
    began = read_head(orders)

    def anew() -> None:
        shutil.rmtree(orders)
        DeltaTable.create(str(orders), Schema.from_json(json.dumps(COLUMNS)))
        append_number(orders, 2)

    with pytest.raises(MetadataChanged):
        append(orders, began, write_file(orders, 99), "tag", anew)
    assert read_numbers(orders) == [2]
    began = read_head(orders)

    def put_back() -> None:
        file = orders / "_delta_log" / f"{1:020}.json"
        text = file.read_text(encoding="utf-8")
        file.rename(orders / "kept")
        file.write_text(text, encoding="utf-8")

    with pytest.raises(MetadataChanged):
        append(orders, began, write_file(orders, 99), "tag", put_back)
    assert (read_numbers(orders), DeltaTable(str(orders)).version()) == ([2], 1)


@pytest.mark.parametrize(
    ("kept", "is_open"),
    [("interval 30 days", True), ("interval 1 week", True), ("365 days", False), ("interval 5 seconds", False)],
)
def test_a_table_with_a_short_or_unknown_log_retention_is_left_to_spark(orders: Path, kept: str, is_open: bool) -> None:
    """The retention is less than a day, or `deltalake`, which cleans up the log, would not understand it."""
    DeltaTable(str(orders)).alter.set_table_properties({"delta.logRetentionDuration": kept})
    assert (DirectTable(FolderPlace(orders), str(DeltaTable(str(orders)).metadata().id)).begin() is not None) == is_open


@pytest.mark.parametrize("of_readers", [False, True])
def test_a_table_that_demands_an_unknown_feature_is_left_to_spark(orders: Path, *, of_readers: bool) -> None:
    """Spark refuses it, if it does not know the feature either."""
    plain = DirectTable(FolderPlace(orders), str(DeltaTable(str(orders)).metadata().id))
    assert plain.begin() is not None
    demand_feature(orders, of_readers=of_readers)
    assert plain.begin() is None


@pytest.mark.parametrize("name", ["delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"])
def test_a_table_that_sets_the_columns_of_its_statistics_is_left_to_spark(orders: Path, name: str) -> None:
    """Wherry writes statistics of the first columns, as Delta does by default."""
    plain = DirectTable(FolderPlace(orders), str(DeltaTable(str(orders)).metadata().id))
    assert plain.begin() is not None
    value = "id" if name.endswith("StatsColumns") else "0"
    DeltaTable(str(orders)).alter.set_table_properties({name: value})
    assert plain.begin() is None


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        ("spark.sql.parquet.compression.codec", "snappy", True),
        ("spark.databricks.delta.snapshotPartitions", "1", True),
        ("spark.databricks.delta.properties.defaults.appendOnly", "true", True),
        ("spark.databricks.delta.autoCompact.enabled", "false", True),
        ("spark.sql.parquet.compression.codec", "zstd", False),
        ("spark.sql.files.maxRecordsPerFile", "1", False),
        ("spark.databricks.delta.autoCompact.enabled", "true", False),
        ("spark.databricks.delta.optimizeWrite.enabled", "true", False),
        ("parquet.crypto.factory.class", "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory", False),
        ("spark.hadoop.parquet.block.size", "1048576", False),
        ("spark.databricks.delta.writeChecksumFile.enabled", "false", False),
        ("spark.sql.parquet.outputTimestampType", "INT96", False),
        ("spark.hadoop.fs.permissions.umask-mode", "077", False),
    ],
)
def test_only_a_setting_that_keeps_the_default_way_of_writing_is_plain(key: str, value: str, plain: bool) -> None:
    """It does not concern writing, or it sets what Wherry does anyway."""
    assert _is_plain_setting(key, value) == plain


@pytest.mark.parametrize(
    "name",
    [
        *("delta.parquet.compression.codec", "delta.randomizeFilePrefixes"),
        *("delta.autoOptimize.autoCompact", "delta.autoOptimize.optimizeWrite"),
    ],
)
def test_a_table_that_sets_how_to_write_is_left_to_spark(orders: Path, name: str) -> None:
    """The property is enough, with any value."""
    DeltaTable(str(orders)).alter.set_table_properties({name: "true"}, raise_if_not_exists=False)
    assert DirectTable(FolderPlace(orders), str(DeltaTable(str(orders)).metadata().id)).begin() is None


def test_a_rule_inside_a_column_is_found(tmp_path: Path) -> None:
    """Old tables have such rules, and Wherry would have to check the rows."""
    rule = {"delta.invariants": json.dumps({"expression": {"expression": "a.b > 0"}})}
    inner: Any = {"type": "struct", "fields": [{"name": "b", "type": "long", "nullable": True, "metadata": rule}]}
    columns = {"type": "struct", "fields": [{"name": "a", "type": inner, "nullable": True, "metadata": {}}]}
    DeltaTable.create(str(tmp_path / "t"), Schema.from_json(json.dumps(columns)))
    assert DirectTable(FolderPlace(tmp_path / "t"), str(DeltaTable(str(tmp_path / "t")).metadata().id)).begin() is None


def test_a_version_that_others_may_have_read_is_not_removed(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process replaces the version below it at that moment. The append raises, and removes nothing."""
    append_number(orders, 1)
    began, link = read_head(orders), os.link

    def replaced_below(file: Path, name: Path) -> None:
        overwrite(orders, 1)
        link(file, name)

    monkeypatch.setattr(os, "link", replaced_below)
    with pytest.raises(Overwritten, match="version 1 of the table"):
        append(orders, began, write_file(orders, 2), "tag 2")
    assert DeltaTable(str(orders)).history()[0]["userMetadata"] == "tag 2"


def test_a_version_replaced_during_the_append_is_not_reported_as_written(orders: Path) -> None:
    """A process that checks before it renames can replace the version."""
    began = read_head(orders)

    class Checked(SparkCommits):
        @contextlib.contextmanager
        def hold(self, table: Path) -> Iterator[None]:
            yield
            overwrite(table, 1)

    with pytest.raises(Overwritten, match=r"version 1 of the table .* batch 7 of lane 0"):
        FolderPlace(orders, Checked()).append(
            began, write_file(orders, 7), make_tag([make_label(number=7)]), lambda: None
        )


def overwrite(folder: Path, version: int) -> None:
    """Replace an existing version, as a writer that found the version free before."""
    other = folder / "_delta_log" / ".other.tmp"
    other.write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}), encoding="utf-8")
    other.rename(folder / "_delta_log" / f"{version:020}.json")


def test_a_replaced_version_of_the_run_is_reported_once(orders: Path) -> None:
    """The error names the batch. A version that was copied back or cleaned up is not reported."""
    own, log = OwnCommits(), LocalLog(orders)
    for number in (1, 2, 3):
        labels = [make_label(number=number)]
        landed = append(orders, read_head(orders), write_file(orders, number), make_tag(labels))
        own.note(log, landed.version, labels)
    log.path_of(2).with_name("copy").write_bytes(log.path_of(2).read_bytes())
    log.path_of(2).with_name("copy").rename(log.path_of(2))
    log.path_of(3).unlink()
    own.check(log)
    overwrite(orders, 1)
    own.check(log, newest=2)
    with pytest.raises(Overwritten, match=r"version 1 of the table .* batch 1 of lane 0") as raised:
        own.check(log)
    assert raised.value.batch is not None
    assert raised.value.batch.number == 1
    own.check(log)


def test_a_version_replaced_before_it_could_be_noted_is_reported(orders: Path) -> None:
    """Its content shows that another process wrote it."""
    append_number(orders, 1)
    with pytest.raises(Overwritten, match="batch 7"):
        OwnCommits().note(LocalLog(orders), 1, [make_label(number=7)])


def test_rows_and_the_version_are_durable_before_the_version_counts(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are their names. The version's name is durable before the append ends."""
    done: list[str] = []
    link = os.link

    def linked(file: Path, name: Path) -> None:
        done.append("link")
        link(file, name)

    monkeypatch.setattr(
        "destinations.delta.direct_commit._make_durable", lambda path: done.append(path.suffix or path.name)
    )
    monkeypatch.setattr(os, "link", linked)
    append_number(orders, 1)
    assert done == [".tmp", ".parquet", "orders", "link", "_delta_log"]


def test_an_append_to_a_failing_disk_raises(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that cannot sync folders is not a failing disk."""

    def failing(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        append_number(orders, 1)
    assert DeltaTable(str(orders)).version() == 0

    def unknown(handle: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", unknown)
    assert append_number(orders, 1) == 1


def test_an_append_that_fails_leaves_nothing(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves neither a version nor a part of one."""

    def full(file: Path, name: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space"):
        append_number(orders, 1)
    assert DeltaTable(str(orders)).version() == 0
    assert list_litter(orders) == []


def test_parallel_processes_take_separate_versions(orders: Path) -> None:
    """They need no lock. Every number is in the table once, and the versions have no gap."""
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        versions = list(pool.map(partial(append_number, orders), range(48)))
    assert sorted(versions) == list(range(1, 49))
    assert read_numbers(orders) == list(range(48))


def keep_appending(folder: Path) -> None:
    """Append one number after another, from the next one on."""
    for number in itertools.count(len(read_numbers(folder))):
        append_number(folder, number)


def test_a_killed_writer_leaves_only_whole_versions(orders: Path) -> None:
    """It may be killed at any moment.

    The next writer continues after its versions, and no number is lost or doubled.
    """
    spawn = get_context("spawn")
    for turn in range(2):
        process = spawn.Process(target=keep_appending, args=(orders,))
        process.start()
        wanted = 25 * (turn + 1)
        while not (orders / "_delta_log" / f"{wanted:020}.json").exists():
            assert process.is_alive()
        process.kill()
        process.join()
        landed = read_numbers(orders)
        assert len(landed) >= wanted
        assert landed == list(range(DeltaTable(str(orders)).version()))


def test_a_writer_stopped_during_a_fence_writes_nothing_afterwards(orders: Path) -> None:
    """The append in progress fails, and so does every append that starts from the old state."""
    began, done = read_head(orders), orders / "done"
    process = get_context("spawn").Process(target=append_one_by_one, args=(orders, began, done))
    process.start()
    while not (orders / "_delta_log" / f"{20:020}.json").exists():
        assert process.is_alive()
    os.kill(process.pid or 0, signal.SIGSTOP)
    rename(orders)
    fenced = DeltaTable(str(orders)).version()
    os.kill(process.pid or 0, signal.SIGCONT)
    process.join()
    assert done.read_text() == "MetadataChanged"
    assert DeltaTable(str(orders)).version() == fenced
    assert read_numbers(orders) == list(range(fenced - 1))


def append_one_by_one(folder: Path, began: LogHead, done: Path) -> None:
    """Append numbers with the table's state from the beginning, and record the error that ends this."""
    try:
        for number in itertools.count():
            append(folder, began, write_file(folder, number), "tag")
    except MetadataChanged as error:
        done.write_text(type(error).__name__)


def test_a_folder_whose_links_replace_files_does_not_keep_writers_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing folder does not either. The trial leaves no file."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    assert FolderPlace(tmp_path).is_kept_apart()
    monkeypatch.setattr(os, "link", lambda file, name: Path(name).write_bytes(Path(file).read_bytes()))
    assert not FolderPlace(tmp_path).is_kept_apart()
    assert not FolderPlace(tmp_path / "nowhere").is_kept_apart()
    assert (os.listdir(tmp_path), os.listdir(log)) == (["_delta_log"], [])


def test_links_are_tried_in_the_folder_of_the_log(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log on a separate disk may have no links although the table's folder has them."""
    link = os.link

    def elsewhere(file: Path, name: Path) -> None:
        if "_delta_log" in Path(name).parts:
            raise PermissionError(1, "Operation not permitted")
        link(file, name)

    monkeypatch.setattr(os, "link", elsewhere)
    assert DirectTable(FolderPlace(orders), str(DeltaTable(str(orders)).metadata().id)).begin() is None


def test_rows_in_many_pieces_make_few_row_groups(tmp_path: Path) -> None:
    """Spark reads the groups of rows one by one."""
    from pyarrow import parquet

    pieces = [pa.table({"id": [number]}, SCHEMA) for number in range(300)]
    write(iter(pieces), SCHEMA, json.dumps(COLUMNS), tmp_path / "rows.parquet")
    assert parquet.read_metadata(tmp_path / "rows.parquet").num_row_groups == 1
    assert parquet.read_table(tmp_path / "rows.parquet")["id"].to_pylist() == list(range(300))


def test_a_name_with_a_dot_differs_from_a_field_of_a_struct(tmp_path: Path) -> None:
    """Each of them has separate bounds."""
    rows = pa.table({"a": pa.array([{"b": 900.5}]), "a.b": [1.5]})
    inner: Any = {"type": "struct", "fields": [{"name": "b", "type": "double"}]}
    columns: Any = {"fields": [{"name": "a", "type": inner}, {"name": "a.b", "type": "double"}]}
    write([rows], rows.schema, "{}", tmp_path / "rows.parquet")
    (file,) = describe_files({"rows": tmp_path / "rows.parquet"}, columns)
    bounds = {"a": {"b": 900.5}, "a.b": 1.5}
    nulls = {"a": {"b": 0}, "a.b": 0}
    assert json.loads(str(file["stats"])) == {
        "numRecords": 1,
        "minValues": bounds,
        "maxValues": bounds,
        "nullCount": nulls,
    }


ENDS = "a\u2028\u2029\x85b"
"""Characters that end a line for Python, but not for JSON."""


def test_text_in_a_commit_by_spark_may_have_line_separators(tmp_path: Path) -> None:
    """The text is a column's name in the first version, and a value in the statistics of a file."""
    columns = json.dumps(COLUMNS).replace('"id"', json.dumps(ENDS))
    FolderPlace(tmp_path).make_staging("spark", columns, {})
    stats = json.dumps({"numRecords": 1, "minValues": {"v": ENDS}}, ensure_ascii=False)
    added = {"path": "part.parquet", "size": 1, "modificationTime": 0, "stats": stats}
    lines = [{"commitInfo": {"userMetadata": "token"}}, {"add": added}]
    commit = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    found = find_staged(commit, "token", "spark")
    assert found is not None
    assert [(file["path"], file["stats"]) for file in found] == [("spark/part.parquet", stats)]
