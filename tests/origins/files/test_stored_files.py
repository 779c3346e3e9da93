"""This process lists, reads, moves and deletes files in an object store with few requests."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from origins.batch import Batch, Limits
from origins.errors import OriginError
from origins.files import Files, file_systems, stored_files
from origins.files.csv_header import are_quotes_closed, read_header
from origins.files.file_systems import File
from origins.files.in_process import are_lines_plain
from origins.files.listing import FileBacklog, parse_pattern
from origins.files.options import complete_options
from origins.files.parquet_rows import read_footers
from origins.names import declare_one_disk
from origins.object_store import ObjectStore, open_bucket
from origins.origin import Progress
from origins.store_access import StoreError, StoreUrl
from tests.origins.files.test_files import make_batch
from tests.origins.files.test_listing import FOUND, TREE
from tests.stores.azure import Azure
from tests.stores.fault_proxy import Effect, Fault
from tests.stores.s3 import S3, make_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)
SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})


class Settings:
    """A session that has only settings."""

    def __init__(self) -> None:
        self.conf = self
        self._set: dict[str, str] = {}

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._set.get(key, default)

    def set(self, key: str, value: str) -> None:
        self._set[key] = value


@pytest.fixture
def session() -> SparkSession:
    """A session on this machine that starts nothing."""
    spark = cast("SparkSession", Settings())
    declare_one_disk(spark)
    return spark


def make_url(s3: S3, key: str) -> StoreUrl:
    """Return a place in the store with its access settings."""
    return StoreUrl(s3.make_url(key, "s3"), s3.spark_settings)


def put_objects(s3: S3, *keys: str, content: str = "1") -> None:
    """Put objects with this content. A key that ends with `/` gets an empty object, as a store marks a folder."""
    client = make_client(s3.behind)
    for key in keys:
        client.put_object(Bucket=s3.bucket, Key=key, Body=b"" if key.endswith("/") else content.encode())


def fill_folder(s3: S3, folder: str, count: int) -> None:
    """Make many objects on the server."""
    endpoint = urlsplit(s3.behind)
    connection = http.client.HTTPConnection(endpoint.hostname or "", endpoint.port, timeout=300)
    connection.request("PUT", f"/_fill/{s3.bucket}/{folder}", str(count))
    assert connection.getresponse().status == 204
    connection.close()


def read_objects(s3: S3) -> dict[str, str]:
    """Return the contents of all objects in the bucket."""
    store = open_bucket(StoreUrl(f"s3://{s3.bucket}", s3.spark_settings))
    keys = [found.key for page in store.list_objects() for found in page]
    return {key: store.read(key).decode() for key in keys}


def list_names(s3: S3, path: str) -> list[str]:
    """Return the names of the files that a path selects, in alphabetical order."""
    spark = cast("SparkSession", object())
    return sorted(file.name for file in parse_pattern(make_url(s3, path)).list_files(spark))


def plan_batch(files: Files, schema: str = "{}") -> Batch:
    """Return all files that wait in lane 0, as one batch."""
    span = files.survey(NO_SPARK, Progress()).take("0", None, Limits())
    assert span is not None
    return make_batch(span, schema)


def survey_files(files: Files, parts: Sequence[Any] = ()) -> FileBacklog:
    """Return what waits after these parts."""
    return files.survey(NO_SPARK, Progress(parts=parts))


def test_a_path_selects_the_same_files_as_on_a_disk(s3: S3) -> None:
    """A wildcard matches within a name, and `**` matches folders. Hidden files and files being copied are left out."""
    put_objects(s3, *(f"tree/{name}" for name in TREE), "tree/empty/")
    expected = {pattern: names for pattern, names in FOUND if pattern != "/a.json"}
    assert {pattern: list_names(s3, f"tree{pattern}") for pattern in expected} == expected


IN_FOLDERS = {
    "*.json": ["a.json"],
    "**": ["a.json", "day=1/hour=1/c.json", "day=1/hour=2/c.json", "day=2/b.json", "day=2/hour=1/c.json"],
    "day=*/hour=1/*.json": ["day=1/hour=1/c.json", "day=2/hour=1/c.json"],
    "*/hour=1/c.json": ["day=1/hour=1/c.json", "day=2/hour=1/c.json"],
    "day=*/**/c.json": ["day=1/hour=1/c.json", "day=1/hour=2/c.json", "day=2/hour=1/c.json"],
    "day=[2]": ["day=2/b.json"],
}


@pytest.mark.parametrize("folder", ["", "landing/"])
def test_folders_that_give_columns_are_searched(s3: S3, folder: str) -> None:
    """This holds for a whole bucket and for one of its folders."""
    put_objects(s3, *(f"{folder}{key}" for key in IN_FOLDERS["**"]), f"{folder}_carried/day=2/c.json")
    assert {pattern: list_names(s3, f"{folder}{pattern}") for pattern in IN_FOLDERS} == IN_FOLDERS


ODD = ["a b.json", "50%.json", "a%20b.json", "ü+#&.json", "~{}=;,.json", "br[1].json", "back\\slash.json", "'\".json"]


def test_a_name_may_have_any_characters(s3: S3, session: SparkSession) -> None:
    """The file is listed, checked, read, moved and deleted under exactly this name."""
    put_objects(s3, *(f"in put/{name}" for name in ODD), content='{"id": 1}')
    files = Files(path=make_url(s3, "in put/*.json"), format="json", schema="id long", after="move")
    carried = plan_batch(files, SCHEMA)
    assert sorted(files.parts(carried)) == sorted(ODD)
    table = files.fetch(session, [carried]).table()
    assert table is not None
    assert table.num_rows == len(ODD)
    files.committed(NO_SPARK, carried)
    assert sorted(read_objects(s3)) == sorted(f"in put/_carried/{name}" for name in ODD)
    again = Files(path=make_url(s3, "in put/_carried"), format="json", after="delete")
    again.committed(NO_SPARK, plan_batch(again))
    assert read_objects(s3) == {}


@pytest.mark.parametrize("key", ["in//a.json", "in/x/./a.json"])
def test_a_name_that_cannot_be_read_is_reported_with_a_remedy(s3: S3, key: str) -> None:
    """Such an object is not skipped without a message."""
    put_objects(s3, key)
    with pytest.raises(StoreError, match=f"the name of the object {key} cannot be read") as error:
        parse_pattern(make_url(s3, "in/**"), changes=True).list_files(NO_SPARK)
    assert "Rename or delete it" in error.value.hint


@pytest.mark.parametrize("pattern", ["*.json", "**"])
def test_files_are_listed_in_pages(s3: S3, pattern: str) -> None:
    """A page has a thousand files. A survey that finds only processed files makes no other request."""
    fill_folder(s3, "landing/new", 2_500)
    fill_folder(s3, "landing/new/_old/deep" if pattern == "*.json" else "landing/other", 1_001)
    files = Files(path=make_url(s3, f"landing/new/{pattern}"), format="json")
    first = survey_files(files)
    assert (len(first.files), s3.proxy.count()) == (2_500, {"LIST": 3})
    carried = [[file.name, file.size, file.modified] for file in first.files]
    s3.proxy.reset_counts()
    second = survey_files(files, carried)
    third = second.again(NO_SPARK, {})
    assert (second.files, third.take("0", None, Limits()), second.notices) == ([], None, [])
    assert s3.proxy.count() == {"LIST": 6}


@pytest.mark.long
def test_a_hundred_thousand_files_are_listed(s3: S3) -> None:
    """This takes a hundred requests, each of which takes the test server half a second."""
    fill_folder(s3, "landing", 100_000)
    waiting = survey_files(Files(path=make_url(s3, "landing/*.json"), format="json", lanes=4))
    assert (len(waiting.files), s3.proxy.count()) == (100_000, {"LIST": 100})


def test_objects_below_a_large_hidden_folder_are_not_listed(s3: S3) -> None:
    """So moved files do not make a listing slower. Folders that sort after the hidden one are found."""
    fill_folder(s3, "in/_carried/day=1", 2_500)
    put_objects(s3, "in/Z.json", "in/_carried-not/x.json", "in/_carried0/x.json", "in/a.json", "in/day=1/b.json")
    s3.proxy.reset_counts()
    assert list_names(s3, "in/**") == ["Z.json", "a.json", "day=1/b.json"]
    assert s3.proxy.count() == {"LIST": 2}


def test_only_matching_folders_are_listed(s3: S3) -> None:
    """Each takes one request. The content of other folders does not matter."""
    days = [f"2026-{month}-0{day}" for month in (10, 11) for day in (1, 2)]
    put_objects(
        s3, *(f"landing/{day}/x.json" for day in days), "landing/2026-11-01/deep/y.json", "other/2026-11-03/x.json"
    )
    s3.proxy.reset_counts()
    assert list_names(s3, "landing/2026-11-*/x.json") == ["2026-11-01/x.json", "2026-11-02/x.json"]
    listed = sorted(request.key.removeprefix(s3.bucket) for request in s3.proxy.list_requests())
    assert listed == ["/landing/", "/landing/2026-11-01/", "/landing/2026-11-02/"]


def test_an_empty_object_is_no_file(s3: S3) -> None:
    """Stores mark folders with empty objects, and they have no rows."""
    put_objects(s3, "in/", "in/empty/", "in/full/", "in/full/a.json", "in/b.json")
    assert (list_names(s3, "in"), list_names(s3, "in/**"), list_names(s3, "in/*")) == (
        ["b.json"],
        ["b.json", "full/a.json"],
        ["b.json"],
    )


def test_a_place_without_files_is_an_error_until_a_file_was_processed(s3: S3) -> None:
    """A misspelled path is an error. In a store, deleting the last file may remove its folder."""
    put_objects(s3, "in/a.json")
    with pytest.raises(OriginError, match=r"There is nothing at s3a://.*/inn\."):
        list_names(s3, "inn/*.json")
    files = Files(path=make_url(s3, "in"), format="json", after="delete")
    carried = plan_batch(files)
    files.committed(NO_SPARK, carried)
    assert survey_files(files, carried.span.parts).files == []
    put_objects(s3, "empty/")
    assert list_names(s3, "empty") == []


def test_the_url_of_a_single_file_is_an_error_with_a_remedy(s3: S3) -> None:
    """The pattern in the message finds the file."""
    put_objects(s3, "in/a.json")
    with pytest.raises(OriginError, match=r"in/a\.json is a file") as error:
        list_names(s3, "in/a.json")
    assert f"s3a://{s3.bucket}/in/[a].json" in error.value.hint
    assert list_names(s3, "in/[a].json") == ["a.json"]


@pytest.mark.parametrize("ahead", [-7_200, 7_200])
def test_the_age_of_a_file_is_measured_by_the_clock_of_the_store(
    s3: S3, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """This machine's clock may be hours off. One more request asks for the time."""
    put_objects(s3, "in/a.json")
    here = time.time
    monkeypatch.setattr(time, "time", lambda: here() + ahead)
    s3.proxy.reset_counts()
    young, old = (survey_files(Files(path=make_url(s3, "in"), format="json", min_age=age)) for age in ("1h", "0s"))
    assert (young.files, young.notices) == ([], ["1 file younger than min_age will be read later"])
    assert [file.name for file in old.files] == ["a.json"]
    assert s3.proxy.count() == {"LIST": 2, "HEAD": 1}


def test_a_store_that_does_not_report_its_time_is_an_error(s3: S3) -> None:
    """No file is read too early."""
    put_objects(s3, "in/a.json")
    s3.proxy.add(Fault("reset", kind="HEAD", times=None))
    with pytest.raises(StoreError, match="does not give its time"):
        survey_files(Files(path=make_url(s3, "in"), format="json", min_age="1s"))


@pytest.mark.promise("CD-13")
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, {"in/a.json": "1", "in/x/b.json": "1"}),
        ({"after": "delete"}, {}),
        ({"after": "move"}, {"in/_carried/a.json": "1", "in/_carried/x/b.json": "1"}),
        ({"after": "move", "move_to": "s3://{}/done"}, {"done/a.json": "1", "done/x/b.json": "1"}),
    ],
)
def test_files_are_kept_deleted_or_moved_after_their_batch_is_committed(
    s3: S3, options: dict[str, Any], left: dict[str, str]
) -> None:
    """They keep their names below the path's part before the first wildcard. A second notification changes nothing."""
    put_objects(s3, "in/a.json", "in/x/b.json")
    given = {name: value.format(s3.bucket) for name, value in options.items()}
    files = Files(path=make_url(s3, "in/**"), format="json", **given)
    carried = plan_batch(files)
    assert read_objects(s3) == {"in/a.json": "1", "in/x/b.json": "1"}
    for _ in range(2):
        files.committed(NO_SPARK, carried)
        assert read_objects(s3) == left
    assert survey_files(files, carried.span.parts).files == []


@pytest.mark.parametrize("after", ["move", "delete"])
def test_a_file_that_changed_after_its_batch_is_left_unchanged(s3: S3, after: Any) -> None:
    """Its new content was not read."""
    put_objects(s3, "in/a.json")
    files = Files(path=make_url(s3, "in"), format="json", after=after)
    carried = plan_batch(files)
    put_objects(s3, "in/a.json", content="12")
    files.committed(NO_SPARK, carried)
    assert read_objects(s3) == {"in/a.json": "12"}
    changed = survey_files(files, carried.span.parts)
    assert changed.notices == ["a.json changed after it was processed; Wherry does not read it again"]
    assert files.find_changed(carried.span.parts) == {"a.json": "it had 1 bytes and now has 2"}


def test_a_moved_file_does_not_overwrite_one_with_the_same_name(s3: S3) -> None:
    """A producer that uses a name again loses none of its earlier files."""
    files = Files(path=make_url(s3, "in"), format="json", after="move", move_to=f"s3a://{s3.bucket}/done/")
    for text in ("1", "2", "3"):
        put_objects(s3, "in/a.json", content=text)
        files.committed(NO_SPARK, plan_batch(files))
    assert read_objects(s3) == {"done/a.json": "1", "done/a.json~2": "2", "done/a.json~3": "3"}


def test_a_moved_file_does_not_overwrite_a_file_that_appears_meanwhile(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store copies only to a new name."""
    put_objects(s3, "in/a.json")
    exists = ObjectStore.exists

    def look_late(store: ObjectStore, key: str) -> bool:
        found = exists(store, key)
        put_objects(s3, "in/_carried/a.json", content="2")
        return found

    monkeypatch.setattr(ObjectStore, "exists", look_late)
    files = Files(path=make_url(s3, "in"), format="json", after="move")
    files.committed(NO_SPARK, plan_batch(files))
    assert read_objects(s3) == {"in/_carried/a.json": "2", "in/_carried/a.json~2": "1"}


@pytest.mark.promise("CD-13")
@pytest.mark.parametrize("call", ["exists", "copy_new", "delete"])
def test_a_process_that_dies_while_it_moves_a_file_loses_nothing(
    s3: S3, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The file is complete in one of the two places. After a second notification it is only in the new one."""

    def die(*_: object, **__: object) -> None:
        raise SystemExit

    put_objects(s3, "in/a.json")
    put_objects(s3, "in/b.json", content="2")
    files = Files(path=make_url(s3, "in"), format="json", after="move", move_to=f"s3://{s3.bucket}/done")
    carried = plan_batch(files)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, call, die)
        with pytest.raises(SystemExit):
            files.committed(NO_SPARK, carried)
    assert set(read_objects(s3).values()) == {"1", "2"}
    files.committed(NO_SPARK, carried)
    assert read_objects(s3) == {"done/a.json": "1", "done/b.json": "2"}


def test_a_request_whose_answer_is_lost_is_not_repeated(s3: S3) -> None:
    """The result of a copy or a deletion is looked up again."""
    put_objects(s3, "in/a.json")
    files = Files(path=make_url(s3, "in"), format="json", after="move")
    carried = plan_batch(files)
    s3.proxy.add(Fault("lose_answer", kind="POST", key="_carried", skip=1))
    s3.proxy.add(Fault("lose_answer", kind="DELETE"))
    files.committed(NO_SPARK, carried)
    assert read_objects(s3) == {"in/_carried/a.json": "1"}


@pytest.mark.parametrize("effect", ["refuse", "collide_late"])
def test_a_file_whose_copy_is_refused_is_moved_once(s3: S3, effect: Effect) -> None:
    """The store refuses the end of the copy without doing it, or after doing it."""
    put_objects(s3, "in/a.json")
    files = Files(path=make_url(s3, "in"), format="json", after="move")
    carried = plan_batch(files)
    fault = s3.proxy.add(Fault(effect, kind="POST", key="_carried", skip=1))
    files.committed(NO_SPARK, carried)
    assert (read_objects(s3), fault.hits) == ({"in/_carried/a.json": "1"}, 1)


@pytest.mark.parametrize(("after", "done"), [("move", r"moved to s3a://.*_carried/a\.json"), ("delete", "deleted")])
def test_a_refused_move_or_deletion_is_reported_with_a_remedy(s3: S3, after: Any, done: str) -> None:
    """The file remains in its place."""
    put_objects(s3, "in/a.json")
    files = Files(path=make_url(s3, "in"), format="json", after=after)
    carried = plan_batch(files)
    s3.proxy.add(Fault("forbid", kind="DELETE", times=None))
    with pytest.raises(OriginError, match=rf"a\.json was processed, but it cannot be {done}: .*no right") as error:
        files.committed(NO_SPARK, carried)
    assert "The next run tries again" in error.value.hint
    assert read_objects(s3)["in/a.json"] == "1"


CONTENTS = [b'{"id": 1}\n', b'{"id": 2}\r\n{"id": 3}']
"""The contents of two small files."""


@pytest.mark.parametrize("effect", [None, "slow_down"])
def test_small_files_are_read_with_one_request_each(
    s3: S3, session: SparkSession, tmp_path: Path, effect: Effect | None
) -> None:
    """The request returns the content, and shows that the file is the planned one.

    The same files on a disk give equal rows. A failed request is repeated.
    """
    for number, content in enumerate(CONTENTS):
        make_client(s3.behind).put_object(Bucket=s3.bucket, Key=f"in/{number}", Body=content)
        (tmp_path / str(number)).write_bytes(content)
    stored, local = Files(path=make_url(s3, "in"), format="json"), Files(path=str(tmp_path), format="json")
    carried = plan_batch(stored, SCHEMA)
    s3.proxy.reset_counts()
    fails = [s3.proxy.add(Fault(each, kind="GET")) for each in (effect,) if each is not None]
    rows, table = stored.fetch(session, [carried]), local.fetch(session, [plan_batch(local, SCHEMA)]).table()
    assert table is not None
    assert rows.table() == table
    assert rows.size() == table.nbytes
    assert [fault.hits for fault in fails] == [1] * len(fails)
    assert s3.proxy.count() == {"GET": 3 if effect else 2}


@pytest.mark.parametrize(
    ("now", "says"),
    [("[[]]", r"has changed \(it had [0-9,]+ bytes and now has 4\)"), (None, "is gone")],
    ids=["changed", "gone"],
)
def test_a_file_that_changed_after_planning_is_an_error(
    s3: S3, session: SparkSession, now: str | None, says: str
) -> None:
    """The error is raised before this process or Spark reads its rows."""
    make_client(s3.behind).put_object(Bucket=s3.bucket, Key="in/a.json", Body=CONTENTS[0])
    files = Files(path=make_url(s3, "in"), format="json")
    carried = plan_batch(files, SCHEMA)
    files.check(NO_SPARK, carried)
    replace_object(s3, "in/a.json", now)
    with pytest.raises(OriginError, match=says):
        files.fetch(session, [carried]).table()
    with pytest.raises(OriginError, match=says):
        files.check(NO_SPARK, carried)


def replace_object(s3: S3, key: str, content: str | None) -> None:
    """Write the object again, or delete it."""
    client = make_client(s3.behind)
    client.delete_object(Bucket=s3.bucket, Key=key)
    for each in (content,) if content is not None else ():
        client.put_object(Bucket=s3.bucket, Key=key, Body=each.encode())


def test_parts_of_a_second_count_only_if_both_answers_have_them(s3: S3) -> None:
    """Some stores give them in listings only."""
    place = parse_pattern(make_url(s3, "in"))
    file = File(5_000, "a", 1)
    assert [place.is_same(each, file._replace(modified=5_250)) for each in (file, file._replace(size=2), None)] == [
        True,
        False,
        False,
    ]
    assert not place.is_same(file._replace(modified=5_100), file._replace(modified=5_250))
    assert not replace(place, local=True).is_same(file, file._replace(modified=5_250))


def test_a_scan_of_small_files_takes_one_request_each(s3: S3, tmp_path: Path) -> None:
    """This process reads CSV headers, JSON lines and parquet footers without a Spark job.

    Content that was read before is not fetched again.
    """
    put_objects(s3, "in/a.csv", content='id,name\n1,"x\n')
    put_objects(s3, "in/a.json", content='{"id": 1}\n')
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    make_client(s3.behind).upload_file(str(tmp_path / "a.parquet"), s3.bucket, "in/a.parquet")
    place = survey_files(Files(path=make_url(s3, "in"), format="json")).place
    s3.proxy.reset_counts()
    options = complete_options("csv", {})
    assert read_header(NO_SPARK, place, "a.csv", options) == ("id", "name")
    assert not are_quotes_closed([place.find_file("a.csv")], options)
    schema = next(schema for _, schema in read_footers(NO_SPARK, place, ["a.parquet"]))
    assert schema is not None
    assert schema.names == ["id"]
    counts = {"extra": False, "missing": False, "doubled": False, "whole_file": False}
    assert are_lines_plain([place.find_file("a.json")], schema, **counts)
    assert s3.proxy.count() == {"GET": 3}
    other = replace(place)
    found = other.read(list(other.stat(NO_SPARK, ["a.csv"]).values()))
    assert found is not None
    assert other.find_file("a.csv").read_bytes() == found["a.csv"][1]
    assert s3.proxy.count() == {"GET": 4, "HEAD": 1}


def test_only_the_needed_part_of_a_large_file_is_fetched(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A parquet footer is at the end of its file, and a CSV header at the beginning."""
    monkeypatch.setattr(stored_files, "SMALL", 100)
    monkeypatch.setattr(stored_files, "_BUFFER", 1_000)
    pq.write_table(pa.table({"id": range(50_000)}), tmp_path / "a.parquet", compression="none")
    size = (tmp_path / "a.parquet").stat().st_size
    make_client(s3.behind).upload_file(str(tmp_path / "a.parquet"), s3.bucket, "in/a.parquet")
    put_objects(s3, "in/a.csv", content="id,name\n" + "1,x\n" * 50_000)
    place = survey_files(Files(path=make_url(s3, "in"), format="csv")).place
    s3.proxy.reset_counts()
    assert read_header(NO_SPARK, place, "a.csv", complete_options("csv", {})) == ("id", "name")
    assert [schema and schema.names for _, schema in read_footers(NO_SPARK, place, ["a.parquet"])] == [["id"]]
    fetched = sum(map(count_bytes, (request.headers["range"] for request in s3.proxy.list_requests())))
    assert fetched < size / 2


def count_bytes(asked: str) -> int:
    """Return how many bytes the header asks for."""
    first, last = asked.removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


def test_a_file_that_is_missing_during_a_scan_is_left_to_spark(s3: S3) -> None:
    """Spark then reports it."""
    put_objects(s3, "in/a.json")
    place = survey_files(Files(path=make_url(s3, "in"), format="json")).place
    replace_object(s3, "in/a.json", None)
    counts = {"extra": False, "missing": False, "doubled": False, "whole_file": False}
    from pyspark.sql.types import StructType

    assert not are_lines_plain([place.find_file("a.json")], StructType(), **counts)


class Elsewhere(file_systems.SparkFiles):
    """A Spark with access that this process does not have."""

    def list_files(self, *_: Any, **__: Any) -> Iterator[File]:
        yield File(1, "by_spark.json", 1)


def test_without_access_this_process_asks_spark(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes no further request to the store after the first refusal. Without Spark it is an error."""
    monkeypatch.setattr("origins.files.listing.SparkFiles", Elsewhere)
    put_objects(s3, "in/a.json")
    s3.proxy.add(Fault("forbid", kind="LIST", times=None))
    with pytest.raises(StoreError, match="no right"):
        survey_files(Files(path=make_url(s3, "in"), format="json"))
    s3.proxy.reset_counts()
    for _ in range(2):
        assert list_names(s3, "in") == ["by_spark.json"]
    assert s3.proxy.count() == {"LIST": 1}
    with pytest.raises(StoreError, match="no right"):
        survey_files(Files(path=make_url(s3, "in"), format="json", after="delete"))


@pytest.mark.parametrize(("name", "value"), [("SPARK_REMOTE", "sc://host"), ("DATABRICKS_RUNTIME_VERSION", "17")])
def test_a_remote_spark_lists_with_its_access(s3: S3, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Files that will be moved or deleted are listed by this process, since Spark cannot do that."""
    monkeypatch.setenv(name, value)
    monkeypatch.setattr("origins.files.listing.SparkFiles", Elsewhere)
    put_objects(s3, "in/a.json")
    assert list_names(s3, "in") == ["by_spark.json"]
    assert [
        file.name for file in survey_files(Files(path=make_url(s3, "in"), format="json", after="delete")).files
    ] == ["a.json"]


def test_without_a_library_for_stores_spark_is_asked(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other URL is handled in the same way."""
    monkeypatch.setattr("origins.files.listing.can_reach_stores", lambda: False)
    monkeypatch.setattr("origins.files.listing.SparkFiles", Elsewhere)
    assert list_names(s3, "in") == ["by_spark.json"]


def test_files_in_azure_are_handled_like_files_in_s3(azure: Azure, session: SparkSession) -> None:
    """They are found, dated by the store's clock, read, moved without loss, and deleted."""
    place = StoreUrl(azure.make_url("in"), azure.spark_settings)
    store = open_bucket(place)
    for key in ("in/a b%20.json", "in/day=1/b.json", "in/_hidden/c.json"):
        store.put_new(key, CONTENTS[0])
    store.put_new("done/a b%20.json", b"other")
    files = Files(path=StoreUrl(f"{place}/*.json", azure.spark_settings), format="json", after="move")
    files = replace(files, move_to=azure.make_url("done"))
    assert survey_files(replace(files, min_age="1h")).files == []
    carried = plan_batch(files, SCHEMA)
    table = files.fetch(session, [carried]).table()
    assert table is not None
    assert table["id"].to_pylist() == [1]
    for _ in range(2):
        files.committed(NO_SPARK, carried)
    rest = Files(path=StoreUrl(f"{place}/**", azure.spark_settings), format="json", after="delete")
    rest.committed(NO_SPARK, plan_batch(rest))
    left = sorted(found.key for page in store.list_objects() for found in page)
    assert left == ["done/a b%20.json", "done/a b%20.json~2", "in/_hidden/c.json"]
