"""Rows as files in an object store, where a manifest publishes each batch."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from destinations.batch_manifests import MANIFESTS, BatchManifests
from destinations.conformance import RememberingConformance, Row, make_label
from destinations.destination import DestinationError, Identity, Unsure, Written
from destinations.files import Files, OpenFiles
from destinations.labels import Label
from origins.batch_rows import BatchRows
from origins.memory import Memory
from origins.object_store import ObjectStore, open_bucket
from origins.store_access import StoreError, StoreUrl, get_key
from runners.definitions.definition import definition_of
from runners.operations.validate import explain
from runners.pipeline import Pipeline
from tests.stores.azure import Azure
from tests.stores.fault_proxy import Effect, Fault
from tests.stores.s3 import S3

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NO_SPARK = cast("SparkSession", None)
MANIFEST = f"exports/{MANIFESTS}/"
REFUSED: tuple[Effect, ...] = ("refuse", "collide_late")


class OpenUnsparked(OpenFiles):
    """An open destination that puts numbers into the store without Spark, as one file with a line of text for each."""

    def _save(self, rows: Any, target: str) -> None:
        for number in rows.numbers:
            open_bucket(self.destination.path).put_new(f"{get_key(target)}/part-{uuid.uuid4().hex}", b"%d\n" % number)
        open_bucket(self.destination.path).put_new(f"{get_key(target)}/_SUCCESS", b"done")

    def _count_rows(self, spark: SparkSession, target: str, schema: StructType) -> int:
        found = list(open_bucket(self.destination.path).list_objects(get_key(target)))
        return sum(each.size > 0 and "/part-" in each.key for page in found for each in page)


def make_rows(*numbers: int) -> BatchRows:
    frame = SimpleNamespace(numbers=numbers, schema=None)
    return cast(BatchRows, SimpleNamespace(frame=lambda: frame))


@dataclass
class Exports:
    """A folder in a store."""

    store: S3 | Azure

    @property
    def url(self) -> StoreUrl:
        return StoreUrl(self.store.make_url("exports"), self.store.spark_settings)

    @property
    def bucket(self) -> ObjectStore:
        return open_bucket(self.url)

    def open(self) -> OpenUnsparked:
        return OpenUnsparked(Files(path=self.url))

    def make(self) -> tuple[OpenUnsparked, Identity]:
        opened = self.open()
        return opened, opened.ensure_place(NO_SPARK, None)

    def read(self) -> list[int]:
        """Return the rows in the files that the manifests name."""
        manifests = [key for page in self.bucket.list_pages(MANIFEST.rstrip("/")) for key in page]
        assert not any(key.removeprefix(MANIFEST).startswith(("_", ".")) for key in manifests)
        files = [line for key in manifests for line in self.bucket.read(key).decode().splitlines()]
        return sorted(int(self.bucket.read(get_key(file))) for file in files)

    def list_leftovers(self) -> list[str]:
        """Return all objects that belong neither to the folder nor to a visible batch."""
        keys = {key for page in self.bucket.list_pages("exports") for key in page}
        manifests = [key for key in keys if key.startswith(MANIFEST)]
        files = [get_key(line) for key in manifests for line in self.bucket.read(key).decode().splitlines()]
        folders = {file.rpartition("/")[0] for file in files}
        own = {*manifests, "exports/_wherry.json", "exports/_taken", *files}
        own |= {f"{folder}/{name}" for folder in folders for name in ("_wherry.json", "_SUCCESS")}
        return sorted(keys - own)


@pytest.fixture
def exports(s3: S3) -> Exports:
    return Exports(s3)


@pytest.fixture(params=["s3", "azure"])
def everywhere(request: pytest.FixtureRequest) -> Exports:
    """A folder in a store of each kind, for the tests of what the stores do differently."""
    return Exports(request.getfixturevalue(request.param))


def test_a_reader_of_the_manifests_sees_each_batch_once(everywhere: Exports) -> None:
    """Each manifest has a line for each file. A second write of a batch is refused."""
    opened, identity = everywhere.make()
    first, second = make_label(lane="a/b", number=1), make_label(number=2)
    assert opened.write(NO_SPARK, make_rows(1, 2), [first]) == Written(rows=2, bytes=4)
    assert opened.write(NO_SPARK, make_rows(3), [second]) == Written(rows=1, bytes=2)
    with pytest.raises(DestinationError, match="the batch is there already"):
        everywhere.open().write(NO_SPARK, make_rows(1, 2), [first])
    assert (everywhere.read(), everywhere.list_leftovers()) == ([1, 2, 3], [])
    assert everywhere.open().find(NO_SPARK, first, identity) == Written(rows=2, bytes=4)


def test_the_files_of_a_batch_are_found_by_its_label(exports: Exports) -> None:
    """Files of other batches are in other folders."""
    opened, _ = exports.make()
    mine, other = make_label(number=1), make_label(number=2)
    opened.write(NO_SPARK, make_rows(1, 2), [mine])
    opened.write(NO_SPARK, make_rows(3), [other])
    manifests = BatchManifests(exports.url)
    folder = manifests.locate(mine)
    assert folder is not None
    files = [each.key for page in exports.bucket.list_objects(get_key(folder)) for each in page]
    assert sorted(exports.bucket.read(each) for each in files if "/part-" in each) == [b"1\n", b"2\n"]
    assert manifests.locate(make_label(number=1)) is None


def test_a_batch_without_rows_leaves_no_object(everywhere: Exports) -> None:
    """It has no manifest either."""
    opened, identity = everywhere.make()
    mine = make_label()
    assert opened.write(NO_SPARK, make_rows(), [mine]).rows == 0
    assert (everywhere.read(), everywhere.list_leftovers()) == ([], [])
    assert opened.find(NO_SPARK, mine, identity) is None


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize(
    ("owner", "step", "afterwards", "lands"),
    [
        (OpenUnsparked, "_save", False, False),
        (OpenUnsparked, "_save", True, False),
        (BatchManifests, "list_files", True, False),
        (BatchManifests, "publish", False, False),
        (ObjectStore, "take", False, False),
        (ObjectStore, "take", True, True),
        (BatchManifests, "publish", True, True),
    ],
)
def test_a_writer_killed_between_two_steps_leaves_a_whole_batch_or_none(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, afterwards: bool, lands: bool
) -> None:
    """The next run fences, looks for the batch, and writes it if it is missing.

    It deletes files of unpublished attempts.
    """
    (dying, identity), mine = exports.make(), make_label(number=3)
    with monkeypatch.context() as patched:
        kill_at(patched, owner, step, afterwards=afterwards)
        with pytest.raises(KeyboardInterrupt):
            dying.write(NO_SPARK, make_rows(1, 2, 3), [mine])
    assert exports.read() == ([1, 2, 3] if lands else [])
    after = exports.open()
    after.fence(NO_SPARK, uuid.uuid4().hex)
    found = after.find(NO_SPARK, mine, identity)
    assert (found is not None) == lands
    written = found or after.write(NO_SPARK, make_rows(1, 2, 3), [mine])
    assert written == Written(rows=3, bytes=6)
    assert (exports.read(), exports.list_leftovers()) == ([1, 2, 3], [])


def kill_at(patched: pytest.MonkeyPatch, owner: type, step: str, *, afterwards: bool) -> None:
    """Kill the process at this step, without any cleanup. A step of the store is that of the manifest."""
    does = getattr(owner, step)

    def die(*args: Any) -> Any:
        if owner is ObjectStore and MANIFESTS not in args[1]:
            return does(*args)
        if afterwards:
            does(*args)
        raise KeyboardInterrupt

    patched.setattr(owner, step, die)
    patched.setattr(ObjectStore, "delete", lambda *_: None)


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("effect", ["lose_answer", "deny"])
def test_a_manifest_whose_answer_was_lost_counts_once(everywhere: Exports, effect: Effect) -> None:
    """The write succeeds, since the manifest shows which writer made it."""
    (opened, identity), mine = everywhere.make(), make_label()
    fault = everywhere.store.proxy.add(Fault(effect, "PUT", MANIFEST))
    assert opened.write(NO_SPARK, make_rows(1), [mine]).rows == 1
    assert (fault.hits, everywhere.read(), everywhere.list_leftovers()) == (1, [1], [])
    assert opened.find(NO_SPARK, mine, identity) == Written(rows=1, bytes=2)


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("effect", REFUSED)
@pytest.mark.parametrize("key", ["exports/_taken", "exports/_wherry.json", "/_writing/", "=.*/_wherry.json", MANIFEST])
def test_a_refused_request_loses_and_doubles_nothing(everywhere: Exports, key: str, effect: Effect) -> None:
    """The store may refuse any object of a batch, without or after writing it."""
    fault, mine = everywhere.store.proxy.add(Fault(effect, "PUT", key)), make_label()
    opened, identity = everywhere.make()
    assert opened.write(NO_SPARK, make_rows(1, 2), [mine]) == Written(rows=2, bytes=4)
    assert (fault.hits, everywhere.read(), everywhere.list_leftovers()) == (1, [1, 2], [])
    assert everywhere.open().find(NO_SPARK, mine, identity) == Written(rows=2, bytes=4)
    account = everywhere.open().destination.account(lambda: NO_SPARK, "conformance")
    assert account is not None
    assert [(each.rows, each.loss) for each in account.brought] == [(2, None)]


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("effect", REFUSED)
def test_a_fence_stops_an_attempt_whose_record_was_refused(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, effect: Effect
) -> None:
    """The attempt has its record before its first file."""
    (zombie, _), taker = exports.make(), exports.open()
    exports.store.proxy.add(Fault(effect, "PUT", "/_writing/"))
    with pause_before(monkeypatch, BatchManifests, "publish") as (come, let_go), ThreadPoolExecutor(1) as pool:
        write = pool.submit(zombie.write, NO_SPARK, make_rows(1), [make_label()])
        assert come.wait(60)
        taker.fence(NO_SPARK, "token")
        let_go()
        assert isinstance(write.exception(60), DestinationError)
    assert (exports.read(), exports.list_leftovers()) == ([], [])


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("effect", REFUSED)
def test_a_fence_whose_claim_was_refused_stops_the_attempt(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, effect: Effect
) -> None:
    """The fence claims the manifest of the attempt, and asks again."""
    (zombie, _), taker = exports.make(), exports.open()
    with pause_before(monkeypatch, BatchManifests, "publish") as (come, let_go), ThreadPoolExecutor(1) as pool:
        write = pool.submit(zombie.write, NO_SPARK, make_rows(1), [make_label()])
        assert come.wait(60)
        fault = exports.store.proxy.add(Fault(effect, "PUT", MANIFEST))
        taker.fence(NO_SPARK, "token")
        assert fault.hits == 1
        let_go()
        assert isinstance(write.exception(60), DestinationError)
    assert (exports.read(), exports.list_leftovers()) == ([], [])


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("effect", REFUSED)
def test_a_claim_that_was_refused_keeps_an_earlier_writer_away(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, effect: Effect
) -> None:
    """No fence is needed for that. The run that claimed the batch writes it once."""
    (zombie, identity), mine, taker = exports.make(), make_label(), exports.open()
    with pause_before(monkeypatch, BatchManifests, "publish") as (come, let_go), ThreadPoolExecutor(1) as pool:
        write = pool.submit(zombie.write, NO_SPARK, make_rows(1), [mine])
        assert come.wait(60)
        fault = exports.store.proxy.add(Fault(effect, "PUT", MANIFEST))
        assert (taker.find(NO_SPARK, mine, identity), fault.hits) == (None, 1)
        let_go()
        assert isinstance(write.exception(60), DestinationError)
    assert taker.write(NO_SPARK, make_rows(1), [mine]).rows == 1
    assert exports.read() == [1]


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("landed", [True, False])
def test_a_store_that_fails_during_the_manifest_leaves_the_batch_in_doubt(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """The write fails. A later search shows whether the batch exists, and a missing batch is written."""
    (opened, identity), mine, take = exports.make(), make_label(), ObjectStore.take

    def go_away(store: ObjectStore, key: str, content: bytes) -> str | None:
        if MANIFESTS in key:
            if landed:
                take(store, key, content)
            raise StoreError("the store does not answer", is_away=True)
        return take(store, key, content)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "take", go_away)
        with pytest.raises(StoreError, match="does not answer"):
            opened.write(NO_SPARK, make_rows(1), [mine])
    found = opened.find(NO_SPARK, mine, identity)
    assert (found is not None) == landed
    assert (found or opened.write(NO_SPARK, make_rows(1), [mine])).rows == 1
    opened.fence(NO_SPARK, "token")
    assert (exports.read(), exports.list_leftovers()) == ([1], [])


@pytest.mark.promise("CD-22")
def test_only_one_of_several_writers_of_a_batch_succeeds(everywhere: Exports) -> None:
    """The others report that the batch exists, and delete their files."""
    mine, start = make_label(), threading.Barrier(6)
    openeds = [everywhere.make()[0] for _ in range(6)]

    def write(number: int) -> bool:
        start.wait()
        try:
            openeds[number].write(NO_SPARK, make_rows(7, 8), [mine])
        except DestinationError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(write, range(6))) == [False] * 5 + [True]
    assert (everywhere.read(), everywhere.list_leftovers()) == ([7, 8], [])


@contextmanager
def pause_before(
    patched: pytest.MonkeyPatch, owner: type, step: str
) -> Iterator[tuple[threading.Event, Callable[[], None]]]:
    """Pause the first call of this step. Yield the event of the pause, and a function that ends the pause."""
    does, come, go = getattr(owner, step), threading.Event(), threading.Event()

    def wait(*args: Any) -> Any:
        if not come.is_set():
            come.set()
            assert go.wait(60)
        return does(*args)

    patched.setattr(owner, step, wait)
    try:
        yield come, go.set
    finally:
        go.set()


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (OpenUnsparked, "_save"),
        (BatchManifests, "list_files"),
        (BatchManifests, "publish"),
    ],
)
@pytest.mark.parametrize("asks", [True, False])
def test_an_attempt_from_before_a_fence_publishes_nothing(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, asks: bool
) -> None:
    """It may continue at any later time. The run that fenced it may write the batch."""
    (zombie, identity), mine, taker = exports.make(), make_label(number=7), exports.open()
    with pause_before(monkeypatch, owner, step) as (come, let_go), ThreadPoolExecutor(1) as pool:
        write = pool.submit(zombie.write, NO_SPARK, make_rows(1), [mine])
        assert come.wait(60)
        taker.fence(NO_SPARK, "token")
        if asks:
            assert taker.find(NO_SPARK, mine, identity) is None
            assert taker.write(NO_SPARK, make_rows(2), [mine]).rows == 1
        let_go()
        assert isinstance(write.exception(60), DestinationError)
    assert (exports.read(), exports.list_leftovers()) == ([2] if asks else [], [])


@pytest.mark.promise("CD-22")
@pytest.mark.parametrize("asks", [True, False])
def test_a_manifest_request_delayed_past_a_fence_is_refused(s3: S3, asks: bool) -> None:
    """The request reaches the store after the other run has claimed the name."""
    exports = Exports(s3)
    (zombie, identity), mine, taker = exports.make(), make_label(), exports.open()
    held = s3.proxy.add(Fault("hold", "PUT", MANIFEST))
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(zombie.write, NO_SPARK, make_rows(1), [mine])
        assert held.reached.wait(60)
        taker.fence(NO_SPARK, "token")
        assert not asks or taker.find(NO_SPARK, mine, identity) is None
        held.let_go()
        assert isinstance(write.exception(60), DestinationError)
    assert (exports.read(), exports.list_leftovers()) == ([], [])


def test_a_fence_keeps_the_files_of_a_published_attempt(everywhere: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt's writer has not yet deleted its note of the attempt."""
    (opened, _), taker = everywhere.make(), everywhere.open()
    with pause_before(monkeypatch, ObjectStore, "delete") as (come, let_go), ThreadPoolExecutor(1) as pool:
        write = pool.submit(opened.write, NO_SPARK, make_rows(1), [make_label()])
        assert come.wait(60)
        taker.fence(NO_SPARK, "token")
        let_go()
        assert write.result(60).rows == 1
    assert (everywhere.read(), everywhere.list_leftovers()) == ([1], [])


def test_only_the_last_run_that_claimed_a_batch_may_write_it(exports: Exports) -> None:
    """A writer that begins after another run has claimed the batch is refused, even without a fence."""
    mine = make_label()
    (first, identity), second, third = exports.make(), exports.open(), exports.open()
    assert second.find(NO_SPARK, mine, identity) is None
    assert third.find(NO_SPARK, mine, identity) is None
    for late in (first, second):
        with pytest.raises(DestinationError, match="claimed the batch"):
            late.write(NO_SPARK, make_rows(1), [mine])
    third.write(NO_SPARK, make_rows(2), [mine])
    assert (exports.read(), exports.list_leftovers()) == ([2], [])


def test_another_folder_in_the_same_place_proves_nothing(exports: Exports) -> None:
    """The result is neither yes nor no, and nothing is written there."""
    opened, identity = exports.make()
    exports.bucket.delete(["exports/_wherry.json"])
    with pytest.raises(Unsure, match="is missing"):
        opened.find(NO_SPARK, make_label(), identity)
    known = exports.open()
    known.expects(identity)
    with pytest.raises(DestinationError, match="is missing, and this pipeline has delivered to it"):
        known.ensure_place(NO_SPARK, None)
    exports.make()
    with pytest.raises(DestinationError, match="was replaced after the run opened it"):
        opened.write(NO_SPARK, make_rows(1), [make_label()])


def test_an_account_shows_each_batch_and_its_losses(everywhere: Exports) -> None:
    """It compares the sizes of the files in each manifest. Files of other writers do not count."""
    opened, identity = everywhere.make()
    labels = [make_label(number=number) for number in (1, 2, 3)]
    for number, label in enumerate(labels):
        opened.write(NO_SPARK, make_rows(number, number), [label])
    everywhere.bucket.put_new("exports/_lane=0/_batch=00000001-0/part-0", b"9\n")
    gone, changed = (list_files(everywhere, label) for label in labels[:2])
    everywhere.bucket.delete(gone)
    everywhere.bucket.delete(changed[:1])
    account = everywhere.open().destination.account(lambda: NO_SPARK, "conformance")
    assert account is not None
    shown = {batch.label.number: (batch.rows, batch.loss and batch.loss.code) for batch in account.brought}
    assert shown == {1: (2, "FILE_GONE"), 2: (2, "FILE_CHANGED"), 3: (2, None)}
    assert (account.there, account.id, account.whole) == (True, identity.id, True)
    assert account.proof == "manifest, row count and size in bytes"


def test_the_labels_of_a_folder_begin_with_the_highest_number(exports: Exports) -> None:
    """A batch without its note has none."""
    (opened, _), labels = exports.make(), [make_label(number=number) for number in (1, 2, 3)]
    for label in labels:
        opened.write(NO_SPARK, make_rows(1), [label])
    exports.bucket.delete([f"{list_files(exports, labels[1])[0].rpartition('/')[0]}/_wherry.json"])
    found = exports.open().destination.list_labels(NO_SPARK)
    assert [each.key for each in found] == [labels[2].key, labels[0].key]


def test_a_published_batch_without_its_note_is_reported(exports: Exports) -> None:
    """The account has the loss. The batch does not count as missing."""
    (opened, identity), mine, other = exports.make(), make_label(number=1), make_label(number=2)
    for label in (mine, other):
        opened.write(NO_SPARK, make_rows(1), [label])
    folder = list_files(exports, mine)[0].rpartition("/")[0]
    exports.bucket.delete([f"{folder}/_wherry.json"])
    with pytest.raises(Unsure, match=rf"{folder}, and _wherry\.json is missing there") as raised:
        exports.open().find(NO_SPARK, mine, identity)
    assert "--assume delivered" in raised.value.hint
    account = exports.open().destination.account(lambda: NO_SPARK, "conformance")
    assert account is not None
    assert [(loss.code, folder in loss.reason) for loss in account.losses] == [("LOG_BROKEN", True)]
    assert [each.label.number for each in account.brought] == [2]


def list_files(exports: Exports, label: Label) -> list[str]:
    keys = [key for page in exports.bucket.list_pages("exports/_lane=0") for key in page if "/part-" in key]
    return [key for key in keys if f"_batch={label.batch.number:08}-" in key]


def test_an_account_ignores_batches_from_before_manifests(s3: S3) -> None:
    """It reports that it is not complete."""
    exports = Exports(s3)
    exports.bucket.put_new("exports/_lane=0/_batch=00000001-0/part-0", b"9\n")
    exports.make()
    account = exports.open().destination.account(lambda: NO_SPARK, "conformance")
    assert account is not None
    assert (account.there, account.whole, account.brought) == (True, False, [])


def test_an_account_of_a_missing_folder_reports_that(s3: S3) -> None:
    """It writes nothing there."""
    account = Exports(s3).open().destination.account(lambda: NO_SPARK, "conformance")
    assert account is not None
    assert (account.there, account.id, s3.proxy.count().get("PUT")) == (False, "", None)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("disregard", "PUT", times=None), "lets a new object replace another one"),
        (Fault("forbid", "PUT", times=None), "no right to do that"),
    ],
)
def test_a_store_that_cannot_publish_once_is_refused(s3: S3, fault: Fault, words: str) -> None:
    """The error names the option with which Spark alone may write there."""
    s3.proxy.add(fault)
    with pytest.raises(DestinationError, match=words) as raised:
        Exports(s3).make()
    assert "Or set `manifest: false`." in raised.value.hint


def test_validate_promises_only_what_the_place_can_keep() -> None:
    """A destination does not remember batches if nothing publishes a batch once."""
    once, alone = Files(path="s3://b/out", name="once"), Files(path="s3://b/out", name="alone", manifest=False)
    unknown = Files(path="viewfs://h/out", name="unknown")
    pipeline = Pipeline(name="orders", origin=Memory(schema="id long"), destinations=[once, alone, unknown])
    promised = {each["name"]: str(each["guarantee"]) for each in explain(definition_of(pipeline)).destinations}
    assert promised.pop("once").startswith("effectively once for readers of its manifests;")
    forgets = "at least once: after a crash Wherry writes the open batch again"
    assert promised == {"alone": forgets, "unknown": forgets}
    assert [each.remembers for each in (once, alone, unknown)] == [True, False, False]


class OpenUploaded(OpenFiles):
    """An open destination whose Spark writes to this machine, and whose files the test uploads to the store.

    The Spark of the tests has no JARs for stores.
    """

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        self.destination.__dict__["schema"] = schema
        return super().ensure_place(spark, schema)

    def _save(self, rows: DataFrame, target: str) -> None:
        folder = self._find_folder(target)
        super()._save(rows, str(folder))
        for file in (file for file in folder.rglob("*") if file.is_file()):
            key = f"{get_key(target)}/{file.relative_to(folder)}"
            open_bucket(self.destination.path).put_file(key, file)

    def _count_rows(self, spark: SparkSession, target: str, schema: StructType) -> int:
        return super()._count_rows(spark, str(self._find_folder(target)), schema)

    def _find_folder(self, target: str) -> Path:
        return Path(self.destination.__dict__["local"], target.rpartition("/")[2])


@dataclass(frozen=True, kw_only=True)
class Uploaded(Files):
    def open(self) -> OpenFiles:
        return OpenUploaded(self)


class Manifests(RememberingConformance):
    def content(self, spark: SparkSession, destination: Files) -> Sequence[Row]:
        """Return the rows in the files that the manifests name."""
        bucket, folder = open_bucket(destination.path), Path(destination.__dict__["local"], "read")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for key in [key for page in bucket.list_pages(MANIFEST.rstrip("/")) for key in page]:
            for line in bucket.read(key).decode().splitlines():
                (folder / f"{uuid.uuid4().hex}.parquet").write_bytes(bucket.read(get_key(line)))
        found = spark.read.schema(destination.__dict__["schema"]).parquet(str(folder)).collect()
        return [row.asDict(recursive=True) for row in found]


@pytest.mark.spark
@pytest.mark.promise("CD-22")
@pytest.mark.parametrize(
    "check",
    [
        Manifests.test_every_row_of_every_partition_arrives_and_is_counted,
        Manifests.test_a_write_that_fails_leaves_nothing,
        Manifests.test_a_write_that_began_before_a_fence_does_not_land,
    ],
)
def test_files_that_spark_writes_keep_the_promises_of_a_folder(
    spark: SparkSession, tmp_path: Path, s3: S3, check: Callable[..., None]
) -> None:
    """The manifests name the files of Spark's tasks."""
    made = Uploaded(path=Exports(s3).url)
    made.__dict__["local"] = tmp_path
    check(Manifests(), spark, made)
