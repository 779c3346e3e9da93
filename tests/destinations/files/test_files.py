"""The destination that writes rows as files, with a folder for each batch."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from destinations.batch_folders import BatchFolders, NoteBody
from destinations.conformance import (
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
from runners.model.error_kinds import classify
from runners.model.spec import BatchOptions, RetryOptions, RunOptions
from runners.operations.validate import explain
from runners.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class Watched(Files):
    """Remembers the schema of its opening, so that its rows can be read again."""

    def open(self) -> OpenFiles:
        return OpenWatched(self)


class OpenWatched(OpenFiles):
    """The open destination, which records the schema in the options."""

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        self.destination.__dict__["schema"] = schema
        return super().ensure_place(spark, schema)


def read_content(spark: SparkSession, destination: Files) -> Sequence[Row]:
    """Read the rows as any reader would, with the schema if the format has none."""
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
        return read_content(spark, destination)


@pytest.mark.spark
@pytest.mark.parametrize(
    "check",
    [
        TestParquet.test_values_keep_their_type_and_value,
        TestParquet.test_columns_may_have_any_name,
        TestParquet.test_a_written_batch_is_found_with_its_count,
    ],
)
def test_json_keeps_the_promises_that_depend_on_the_format(
    spark: SparkSession, tmp_path: Path, check: Callable[..., None]
) -> None:
    """Its rows are counted, and have the same values."""
    times = {"timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
    check(TestParquet(), spark, Watched(path=str(tmp_path / "files"), format="json", options=times))


class InAStore(Watched):
    """Behaves like a place without folders that can be renamed."""

    @property
    def folder(self) -> Path | None:
        return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


def list_visible(folder: Path) -> list[str]:
    """Return the files that a reader sees."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in paths if not any(is_hidden(part) for part in path.parts))


def is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@pytest.mark.spark
def test_an_old_writer_cannot_change_a_batch_that_another_run_claimed(spark: SparkSession, folder: Path) -> None:
    """Its write neither ended nor was fenced. The other run claimed the batch, so only that run can publish it."""
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
def test_only_the_last_run_that_claimed_a_batch_may_write_it(spark: SparkSession, folder: Path) -> None:
    """A run that claimed the batch before another run did is refused like the first writer."""
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
        (OpenFiles, "_save", True, False),
        (BatchFolders, "publish", False, False),
        (BatchFolders, "publish", True, True),
    ],
)
def test_a_writer_killed_between_two_steps_leaves_a_whole_batch_or_none(
    spark: SparkSession,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    afterwards: bool,
    lands: bool,
) -> None:
    """The next run fences, looks for the batch, and writes it if it is missing. No reader sees a part of a batch."""
    mine, rows = make_label(number=3), spark.range(0, 20, 1, 4)
    dying, after = Files(path=str(folder)).open(), Files(path=str(folder)).open()
    identity = dying.ensure_place(spark, rows.schema)
    with monkeypatch.context() as patched:
        kill_at(patched, owner, step, afterwards=afterwards)
        with pytest.raises(KeyboardInterrupt):
            dying.write(spark, FrameRows(rows), [mine])
    assert bool(list_visible(folder)) == lands
    after.fence(spark, uuid.uuid4().hex)
    found = after.find(spark, mine, identity)
    assert (found is not None) == lands
    written = found or after.write(spark, FrameRows(rows), [mine])
    assert written.rows == 20
    assert spark.read.parquet(str(folder)).count() == 20
    assert list(folder.glob("_fenced*")) == list(folder.glob("_writing/*")) == []


def kill_at(patched: pytest.MonkeyPatch, owner: type, step: str, *, afterwards: bool) -> None:
    """Kill the process at this step, without any cleanup."""
    does = getattr(owner, step)

    def dies(*args: Any) -> None:
        if afterwards:
            does(*args)
        raise KeyboardInterrupt

    patched.setattr(owner, step, dies)
    patched.setattr(shutil, "rmtree", lambda *_, **__: None)


@pytest.mark.spark
def test_a_fence_stops_a_writer_after_spark_has_finished(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is time for a fence between the end of Spark's job and the rename."""
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
    assert list_visible(folder) == []


@pytest.mark.spark
@pytest.mark.parametrize(("kind", "step"), [("parquet", "_save"), ("json", "_count_written afterwards")])
def test_a_run_writes_a_batch_again_that_a_fence_stopped(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, step: str
) -> None:
    """The fence of another lane removes what a run has written of a batch, at any moment before it is published."""
    name, _, afterwards = step.partition(" ")
    does, writes = getattr(OpenFiles, name), iter([1, 2])
    fences: list[int] = []

    def fence_once(self: OpenFiles, *args: Any) -> Any:
        write, found = next(writes, None), does(self, *args) if afterwards else None
        if write == 2:  # the first one is a trial without rows, or the first batch
            Files(path=str(folder)).open().fence(spark, "another-lane")
            fences.append(write)
        return found if afterwards else does(self, *args)

    monkeypatch.setattr(OpenFiles, name, fence_once)
    pipeline = Pipeline(
        name="fenced",
        origin=Memory(items=[{"id": number} for number in range(6)], schema="id long"),
        destinations=[Files(path=str(folder), format=kind)],
        run=RunOptions(batch=BatchOptions(rows=3), retry=RetryOptions(attempts=1, wait="0s")),
        state=str(tmp_path / "state"),
    )
    report = pipeline.run()
    assert (report.status, report.batches, report.delivered, fences) == ("succeeded", 2, {"files": 6}, [2])
    read = spark.read.schema("id long").format(kind).load(str(folder))
    assert sorted(row.id for row in read.collect()) == list(range(6))


@pytest.mark.spark
def test_a_fence_stops_a_writer_while_spark_writes(spark: SparkSession, folder: Path) -> None:
    """Spark fails at a missing file. The error still says that a fence came, so the run writes again."""
    destination = Files(path=str(folder)).open()
    destination.ensure_place(spark, spark.range(1).schema)

    def fence(batches: Iterable[Any]) -> Iterator[Any]:
        (folder / "_writing").rename(folder / "_fenced")
        yield from batches

    rows = spark.range(0, 20, 1, 1).mapInPandas(fence, "id long")
    with pytest.raises(DestinationError, match="another run has fenced this one") as failed:
        destination.write(spark, FrameRows(rows), [make_label()])
    assert classify(failed.value).is_conflict
    assert list_visible(folder) == []


@pytest.mark.spark
def test_a_fence_stops_a_writer_whose_folder_spark_made_again(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks that run after a fence make their folders again, which then hold only a part of the rows."""
    destination = Files(path=str(folder)).open()
    destination.ensure_place(spark, spark.range(1).schema)
    save = OpenFiles._save

    def fenced_before(self: OpenFiles, *args: Any) -> None:
        self.fence(spark, "token")
        save(self, *args)

    monkeypatch.setattr(OpenFiles, "_save", fenced_before)
    with pytest.raises(DestinationError, match="another run has fenced this one") as failed:
        destination.write(spark, FrameRows(spark.range(1)), [make_label()])
    assert list_visible(folder) == []
    assert classify(failed.value).is_conflict, "the run asks for the batch, and writes it again"


@pytest.mark.spark
def test_batches_are_stored_side_by_side_for_all_names_of_lanes(spark: SparkSession, folder: Path) -> None:
    """A reader sees lane and batch as columns, with partitions below. `files_per_batch` limits the number of files."""
    destination = Files(path=str(folder), partition_by=["day"], files_per_batch=1).open()
    destination.ensure_place(spark, spark.range(1).selectExpr("id", "'x' as day").schema)
    for lane in ("a/b", "ü=%", "0"):
        rows = spark.range(0, 4, 1, 4).selectExpr("id", "if(id < 2, 'mo', 'tu') as day")
        assert destination.write(spark, FrameRows(rows), [make_label(lane=lane, number=412)]).rows == 4
    found = spark.read.parquet(str(folder)).select("_lane", "day", "id").collect()
    assert sorted(map(tuple, found)) == sorted(
        (lane, "mo" if number < 2 else "tu", number) for lane in ("a/b", "ü=%", "0") for number in range(4)
    )
    assert len(list_visible(folder)) == 6
    assert all("_batch=00000412-" in path for path in list_visible(folder))


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_rows_with_any_text_are_counted(spark: SparkSession, folder: Path, kind: Any) -> None:
    """The text has line breaks, quotes, backslashes, NULL or nothing. A reader finds the same values."""
    values = ["a\nb", 'say "no"', "back\\", "\\", "a,b\r\n", " padded ", None, "ä"]
    rows = spark.createDataFrame([(number, value) for number, value in enumerate(values)], "id bigint, text string")
    destination = Files(path=str(folder), format=kind, options={"compression": "gzip"}).open()
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
        ({"format": "csv"}, "id int, many array<int>", "as csv: .*ARRAY<INT>"),
        ({"format": "csv"}, "text string", "a NULL would be an empty line"),
        ({"options": {"compression": "nosuch"}}, "id int", "as parquet: .*nosuch"),
    ],
)
def test_rows_that_do_not_fit_are_reported_before_a_row_is_read(
    spark: SparkSession, folder: Path, options: dict[str, Any], columns: str, told: str
) -> None:
    """The format cannot hold a type, or a column's name is reserved or unknown."""
    with pytest.raises(Misfit, match=told):
        Files(path=str(folder), **options).open().ensure_place(spark, spark.createDataFrame([], columns).schema)
    assert list_visible(folder) == []


@pytest.mark.spark
def test_another_folder_in_the_same_place_proves_nothing(spark: SparkSession, folder: Path) -> None:
    """The result is neither yes nor no, and nothing is written there."""
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
def test_an_invalid_option_is_named(options: dict[str, Any], message: str) -> None:
    """The error names the option, the expected values and the given value."""
    with pytest.raises(ValueError, match=message):
        Files(**{"path": "files", **options})


def test_explain_describes_the_guarantee_of_files(folder: Path) -> None:
    """The notes about Delta on a local disk do not apply to folders."""
    pipeline = Pipeline(name="orders", origin=Memory(schema="id long"), destinations=[Files(path=str(folder))])
    said = explain(definition_of(pipeline))
    assert (said.way, said.notes) == ("straight", ())
    assert said.destinations[0]["guarantee"].startswith("effectively once on a disk")


def test_a_disk_that_cannot_keep_two_writers_apart_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a disk could not decide which writer has published a batch."""
    monkeypatch.setattr(Path, "rename", lambda *_: None)
    with pytest.raises(DestinationError, match="Wherry cannot keep two writers apart"):
        BatchFolders(folder).make()


def test_only_one_of_several_concurrent_claims_succeeds(folder: Path) -> None:
    """Eight threads claim the batch at the same time."""
    folders = BatchFolders(folder)
    folders.make()
    start = threading.Barrier(8)

    def take(number: int) -> bool:
        start.wait()
        return folders.claim("_lane=0/_batch=1", NoteBody(number=number))

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(take, range(8))) == [False] * 7 + [True]


def test_a_folder_that_cannot_be_made_is_reported_in_plain_words(tmp_path: Path) -> None:
    """A file is in its place."""
    (tmp_path / "file").touch()
    with pytest.raises(DestinationError, match=r"cannot be written: .*/file \("):
        BatchFolders(tmp_path / "file").make()


def test_a_fence_waits_for_the_claims_of_another_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that finishes several lanes at once fences and claims in several threads."""
    folders, publish, pool = BatchFolders(tmp_path / "files"), BatchFolders.publish, ThreadPoolExecutor(1)
    folders.make()

    def publish_beside_a_fence(folders: BatchFolders, rows: Path, name: str) -> None:
        fence = pool.submit(folders.fence, "token")
        with pytest.raises(NotYet):
            fence.result(timeout=0.2)
        publish(folders, rows, name)

    monkeypatch.setattr(BatchFolders, "publish", publish_beside_a_fence)
    assert folders.claim("_lane=0/_batch=1", NoteBody())
    pool.shutdown()
    assert not (folders.root / "_writing").exists()
