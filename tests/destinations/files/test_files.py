"""Rows as files, a folder a batch."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.batch_folders import BatchFolders
from destinations.conformance import (
    DestinationConformance,
    RememberingConformance,
    Row,
    make_label,
    start_paused_write,
)
from destinations.destination import DestinationError, Identity, Misfit, Unsure, Written
from destinations.files import Files, OpenFiles
from origins.batch_rows import FrameRows
from origins.memory import Memory
from runners.definitions.definition import definition_of
from runners.operations.validate import explain
from runners.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class Watched(Files):
    """Knows with which schema it was opened, so that its rows can be read again."""

    def open(self) -> OpenFiles:
        return OpenWatched(self)


class OpenWatched(OpenFiles):
    """It is open, and notes the schema in the options."""

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        self.destination.__dict__["schema"] = schema
        return super().ensure_place(spark, schema)


def content(spark: SparkSession, destination: Files) -> Sequence[Row]:
    """What a reader finds who knows nothing of us, but for the schema where the format has none."""
    schema = destination.__dict__["schema"]
    reader = spark.read.schema(schema).options(**destination.options)
    rows = (
        reader.format(destination.format)
        .load(destination.path)
        .select(*[f"`{n.replace('`', '``')}`" for n in schema.names])
    )
    return [row.asDict(recursive=True) for row in rows.collect()]


@pytest.mark.spark
@pytest.mark.connect
@pytest.mark.promise("CD-22")
class TestParquet(RememberingConformance):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Files:
        return Watched(path=str(tmp_path / "files"))

    def content(self, spark: SparkSession, destination: Files) -> Sequence[Row]:
        return content(spark, destination)


@pytest.mark.spark
@pytest.mark.variant
class TestJson(RememberingConformance):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Files:
        times = {"timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
        return Watched(path=str(tmp_path / "files"), format="json", options=times)

    def content(self, spark: SparkSession, destination: Files) -> Sequence[Row]:
        return content(spark, destination)


class InAStore(Watched):
    """Lies where there are no folders to rename."""

    @property
    def folder(self) -> Path | None:
        return None


@pytest.mark.spark
@pytest.mark.variant
class TestInAStore(DestinationConformance):
    @pytest.fixture
    def destination(self, tmp_path: Path) -> Files:
        return InAStore(path=str(tmp_path / "files"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


def visible(folder: Path) -> list[str]:
    """The files that a reader looks at."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in paths if not any(hidden(part) for part in path.parts))


def hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@pytest.mark.spark
def test_an_old_writer_that_goes_on_cannot_spoil_what_the_asker_wrote(spark: SparkSession, folder: Path) -> None:
    """Its write was neither seen to end nor fenced; the batch was claimed, so that only the asker can publish it."""
    mine = make_label(number=7)
    old, asker = Files(path=str(folder)).open(), Files(path=str(folder)).open()
    identity = old.ensure_place(spark, spark.createDataFrame([], "id bigint, text string").schema)
    with start_paused_write(spark, old, mine) as (write, let_go):
        assert asker.find(spark, mine, identity) is None
        written = asker.write(spark, FrameRows(spark.range(3)), [mine])
        let_go()
        assert isinstance(write.exception(), DestinationError)
    assert written.rows == 3
    assert spark.read.parquet(str(folder)).count() == 3
    assert Files(path=str(folder)).open().find(spark, mine, identity) == written


@pytest.mark.spark
def test_who_asks_last_may_fill(spark: SparkSession, folder: Path) -> None:
    """One that claimed the batch, and then slept while another claimed it, is kept out as the first one is."""
    mine = make_label()
    first, second, third = (Files(path=str(folder)).open() for _ in range(3))
    identity = first.ensure_place(spark, spark.range(1).schema)
    assert second.find(spark, mine, identity) is None
    assert third.find(spark, mine, identity) is None
    for late in (first, second):
        with pytest.raises(DestinationError, match="claimed the batch"):
            late.write(spark, FrameRows(spark.range(1)), [mine])
    third.write(spark, FrameRows(spark.range(2)), [mine])
    with pytest.raises(DestinationError, match="the batch is there already"):
        third.write(spark, FrameRows(spark.range(2)), [mine])
    assert spark.read.parquet(str(folder)).count() == 2


@pytest.mark.spark
@pytest.mark.promise("CD-22")
@pytest.mark.parametrize(
    ("owner", "step", "afterwards", "lands"),
    [
        (OpenFiles, "_save", False, False),
        (OpenFiles, "_save", True, False),
        (OpenFiles, "_count_written", True, False),
        (BatchFolders, "publish", False, False),
        (BatchFolders, "publish", True, True),
    ],
)
def test_killed_between_two_steps_it_has_the_batch_whole_or_not_at_all(
    spark: SparkSession,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    afterwards: bool,
    lands: bool,
) -> None:
    """Whoever comes after fences, asks, and writes what is not there; nobody ever reads half a batch."""
    mine, rows = make_label(number=3), spark.range(0, 20, 1, 4)
    dying, after = Files(path=str(folder)).open(), Files(path=str(folder)).open()
    identity = dying.ensure_place(spark, rows.schema)
    with monkeypatch.context() as patched:
        killed_at(patched, owner, step, afterwards=afterwards)
        with pytest.raises(KeyboardInterrupt):
            dying.write(spark, FrameRows(rows), [mine])
    assert bool(visible(folder)) == lands
    after.fence(spark, uuid.uuid4().hex)
    found = after.find(spark, mine, identity)
    assert (found is not None) == lands
    written = found or after.write(spark, FrameRows(rows), [mine])
    assert written.rows == 20
    assert spark.read.parquet(str(folder)).count() == 20
    assert list(folder.glob("_fenced*")) == list(folder.glob("_writing/*")) == []


def killed_at(patched: pytest.MonkeyPatch, owner: type, step: str, *, afterwards: bool) -> None:
    """At this step the process is gone, and tidies nothing up."""
    does = getattr(owner, step)

    def dies(*args: Any) -> None:
        if afterwards:
            does(*args)
        raise KeyboardInterrupt

    patched.setattr(owner, step, dies)
    patched.setattr(shutil, "rmtree", lambda *_, **__: None)


@pytest.mark.spark
def test_a_fence_hits_a_writer_that_spark_has_finished(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between Spark's last word and the rename there is time enough for a fence."""
    mine, other = make_label(), Files(path=str(folder)).open()
    destination = Files(path=str(folder)).open()
    destination.ensure_place(spark, spark.range(1).schema)
    counted = OpenFiles._count_written

    def fenced_behind(self: OpenFiles, *args: Any) -> Written:
        found = counted(self, *args)
        other.fence(spark, "token")
        return found

    monkeypatch.setattr(OpenFiles, "_count_written", fenced_behind)
    with pytest.raises(DestinationError, match="another run has fenced this one"):
        destination.write(spark, FrameRows(spark.range(1)), [mine])
    assert visible(folder) == []


@pytest.mark.spark
def test_a_writer_whose_folder_spark_made_again_is_fenced_all_the_same(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that come after a fence make the folders that they write to; half of the rows are in them."""
    destination = Files(path=str(folder)).open()
    destination.ensure_place(spark, spark.range(1).schema)
    save = OpenFiles._save

    def fenced_before(self: OpenFiles, *args: Any) -> None:
        self.fence(spark, "token")
        save(self, *args)

    monkeypatch.setattr(OpenFiles, "_save", fenced_before)
    with pytest.raises(DestinationError, match="another run has fenced this one"):
        destination.write(spark, FrameRows(spark.range(1)), [make_label()])
    assert visible(folder) == []


@pytest.mark.spark
def test_batches_lie_beside_one_another_whatever_their_lanes_are_called(spark: SparkSession, folder: Path) -> None:
    """A reader sees lane and batch as columns, partitions within, and at most as many files as were asked for."""
    destination = Files(path=str(folder), partition_by=["day"], files_per_batch=1).open()
    destination.ensure_place(spark, spark.range(1).selectExpr("id", "'x' as day").schema)
    for lane in ("a/b", "ü=%", "0"):
        rows = spark.range(0, 4, 1, 4).selectExpr("id", "if(id < 2, 'mo', 'tu') as day")
        assert destination.write(spark, FrameRows(rows), [make_label(lane=lane, number=412)]).rows == 4
    found = spark.read.parquet(str(folder)).select("_lane", "day", "id").collect()
    assert sorted(map(tuple, found)) == sorted(
        (lane, "mo" if number < 2 else "tu", number) for lane in ("a/b", "ü=%", "0") for number in range(4)
    )
    assert len(visible(folder)) == 6
    assert all("_batch=00000412-" in path for path in visible(folder))


@pytest.mark.spark
@pytest.mark.parametrize(("kind", "compression"), [("csv", "gzip"), ("json", "gzip"), ("parquet", "zstd")])
def test_rows_are_counted_whatever_stands_in_them(
    spark: SparkSession, folder: Path, kind: Any, compression: str
) -> None:
    """Line breaks, quotes, backslashes, NULLs and nothing at all; a reader finds the same values."""
    values = ["a\nb", 'say "no"', "back\\", "\\", "a,b\r\n", " padded ", None, "ä"]
    rows = spark.createDataFrame([(number, value) for number, value in enumerate(values)], "id bigint, text string")
    destination = Files(path=str(folder), format=kind, options={"compression": compression}).open()
    destination.ensure_place(spark, rows.schema)
    assert destination.write(spark, FrameRows(rows), [make_label()]).rows == len(values)
    reader = spark.read.schema(rows.schema).options(header=True, escape='"', multiLine=kind == "csv")
    found = reader.format(kind).load(str(folder)).select("id", "text").collect()
    assert sorted(map(tuple, found)) == list(enumerate(values))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "columns", "told"),
    [
        ({}, "id int, _Batch int", "_Batch: Wherry uses this name for folders here"),
        (
            {"partition_by": ["dya"]},
            "id int, day string",
            "partition_by: there is no column 'dya'; did you mean 'day'?",
        ),
        ({"partition_by": ["id"]}, "id int", "ALL_PARTITION_COLUMNS_NOT_ALLOWED"),
        ({"format": "csv"}, "id int, many array<int>", "as csv: .*ARRAY<INT>"),
        ({"format": "csv"}, "text string", "a NULL would be an empty line"),
        ({"options": {"compression": "nosuch"}}, "id int", "as parquet: .*nosuch"),
    ],
)
def test_rows_that_do_not_fit_are_told_before_a_row_is_read(
    spark: SparkSession, folder: Path, options: dict[str, Any], columns: str, told: str
) -> None:
    """What the format cannot hold, and names that are taken or none."""
    with pytest.raises(Misfit, match=told):
        Files(path=str(folder), **options).open().ensure_place(spark, spark.createDataFrame([], columns).schema)
    assert visible(folder) == []


@pytest.mark.spark
def test_another_folder_in_its_place_is_no_answer(spark: SparkSession, folder: Path) -> None:
    """Neither yes nor no; and nothing is written there."""
    destination = Files(path=str(folder)).open()
    identity = destination.ensure_place(spark, spark.range(1).schema)
    folder.rename(folder.with_name("moved"))
    with pytest.raises(Unsure, match="is missing"):
        destination.find(spark, make_label(), identity)
    Files(path=str(folder)).open().ensure_place(spark, spark.range(1).schema)
    with pytest.raises(Unsure, match="is missing or was replaced"):
        destination.find(spark, make_label(), identity)
    with pytest.raises(DestinationError, match="was replaced after the run opened it"):
        destination.write(spark, FrameRows(spark.range(1)), [make_label()])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format: expected parquet, json, csv, got 'xml'"),
        ({"files_per_batch": 0}, "files_per_batch: expected at least 1, got 0"),
        ({"partition_by": "day"}, "partition_by: expected a list, got 'day'"),
        ({"format": "json", "options": {"Pretty": "true"}}, "options.Pretty: cannot be set, since Wherry counts rows"),
        ({"path": ""}, "path: expected a path, got nothing"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    """What was expected and what came, under the option's name."""
    with pytest.raises(ValueError, match=message):
        Files(**{"path": "files", **options})


def test_a_run_explains_what_holds(folder: Path) -> None:
    """What is said of Delta on a local disk does not hold for folders."""
    pipeline = Pipeline(name="orders", origin=Memory(schema="id long"), destinations=[Files(path=str(folder))])
    said = explain(definition_of(pipeline))
    assert (said.way, said.notes) == ("straight", ())
    assert said.destinations[0]["guarantee"].startswith("effectively once on a disk")


def test_a_disk_that_keeps_no_two_writers_apart_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would decide there who has published a batch."""
    monkeypatch.setattr(Path, "rename", lambda *_: None)
    with pytest.raises(DestinationError, match="Wherry cannot keep two writers apart"):
        BatchFolders(folder).make()


def test_one_of_many_that_publish_or_claim_at_once_has_the_name(folder: Path) -> None:
    """Whoever comes at the same time."""
    folders = BatchFolders(folder)
    folders.make()
    start = threading.Barrier(8)

    def take(number: int) -> bool:
        start.wait()
        return folders.claim("_lane=0/_batch=1", {"number": number})

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(take, range(8))) == [False] * 7 + [True]


def test_a_folder_that_cannot_be_made_is_said_in_plain_words(tmp_path: Path) -> None:
    """A file stands in its place."""
    (tmp_path / "file").touch()
    with pytest.raises(DestinationError, match=r"cannot be written: .*/file \("):
        BatchFolders(tmp_path / "file").make()


def test_a_fence_of_one_lane_waits_for_what_another_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that finishes several lanes at once fences and claims in several threads."""
    folders, publish, pool = BatchFolders(tmp_path / "files"), BatchFolders.publish, ThreadPoolExecutor(1)
    folders.make()

    def publish_beside_a_fence(folders: BatchFolders, rows: Path, name: str) -> None:
        fence = pool.submit(folders.fence, "token")
        with pytest.raises(NotYet):
            fence.result(timeout=0.2)
        publish(folders, rows, name)

    monkeypatch.setattr(BatchFolders, "publish", publish_beside_a_fence)
    assert folders.claim("_lane=0/_batch=1", {})
    pool.shutdown()
    assert not (folders.root / "_writing").exists()
