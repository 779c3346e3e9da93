"""The ledger in an object store has the same contract as in a folder."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from origins.object_store import ObjectStore
from origins.store_access import StoreUrl
from runners.model.entry import Entry
from runners.state import delta_ledger
from runners.state.delta_ledger import STORE_CHECKPOINT_EVERY, DeltaLedger, StoreHome
from runners.state.ledger import Conflict, Ledger, LedgerError
from tests.runners.state.ledger.conformance import LedgerConformance
from tests.stores.azure import Azure
from tests.stores.fault_proxy import Effect, Fault, Kind
from tests.stores.s3 import S3, make_bucket, make_client, make_spark_settings


class TestStoreLedger(LedgerConformance):
    """Each handle is opened separately, and only the store connects two handles."""

    @pytest.fixture(autouse=True)
    def _place(self, s3_server: str) -> None:
        bucket = f"test-{uuid.uuid4().hex[:12]}"
        make_bucket(s3_server, bucket)
        self.url = StoreUrl(f"s3://{bucket}/state/orders/ledger", make_spark_settings(s3_server))

    def ledger(self) -> Ledger:
        return DeltaLedger(self.url)


@pytest.fixture
def url(s3: S3) -> StoreUrl:
    """Return the URL of a ledger."""
    return StoreUrl(s3.make_url("state/ledger"), s3.spark_settings)


def append_plans(ledger: Ledger, *ids: str, after: int = 0) -> None:
    ledger.append([Entry(kind="plan", id=name) for name in ids], after=after)


def list_ids(ledger: Ledger) -> list[str]:
    return [entry.id for entry in ledger.read()]


def test_an_append_needs_two_requests(s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are its file and its version. Some seconds after the last listing, the log is listed too."""
    ledger, now = DeltaLedger(url), 100.0
    monkeypatch.setattr(delta_ledger, "read_clock", lambda: now)
    append_plans(ledger, "a")
    s3.proxy.reset_counts()
    append_plans(ledger, "b", after=1)
    assert s3.proxy.count() == {"PUT": 2}
    now += StoreHome.sure
    append_plans(ledger, "c", after=2)
    append_plans(ledger, "d", after=3)
    assert s3.proxy.count() == {"PUT": 6, "LIST": 1}
    assert list_ids(DeltaLedger(url)) == ["a", "b", "c", "d"]


def test_opening_a_ledger_needs_one_request_for_each_append_and_few_for_the_log(s3: S3, url: StoreUrl) -> None:
    """A checkpoint replaces the log before it is long."""
    ledger = DeltaLedger(url)
    for number in range(2 * STORE_CHECKPOINT_EVERY):
        append_plans(ledger, str(number), after=number)
    s3.proxy.reset_counts()
    assert len(DeltaLedger(url).read()) == 2 * STORE_CHECKPOINT_EVERY
    rows = [request for request in s3.proxy.list_requests() if "/ledger/part-" in request.key]
    log = [request for request in s3.proxy.list_requests() if "/ledger/_delta_log/" in request.key]
    assert (len(rows), len(log) <= 15) == (2 * STORE_CHECKPOINT_EVERY, True)


def test_a_writer_that_slept_past_a_checkpoint_appends_nothing(
    s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version is free again after the cleanup of the log, but a file of that version is in no table."""
    now, sleeper, other = 100.0, DeltaLedger(url), DeltaLedger(url)
    monkeypatch.setattr(delta_ledger, "read_clock", lambda: now)
    append_plans(sleeper, "a")
    for number in range(1, STORE_CHECKPOINT_EVERY + 1):
        append_plans(other, str(number), after=number)
    client = make_client(s3.behind)
    for number in range(STORE_CHECKPOINT_EVERY):
        client.delete_object(Bucket=s3.bucket, Key=f"state/ledger/_delta_log/{number:020}.json")
    now += StoreHome.sure
    with pytest.raises(Conflict):
        append_plans(sleeper, "late", after=1)
    assert "late" not in list_ids(DeltaLedger(url))


def test_an_append_by_an_older_version_of_wherry_is_read(s3: S3, url: StoreUrl) -> None:
    """The older version commits with `deltalake`. Each version refuses an append if the other was faster."""
    ledger = DeltaLedger(url)
    append_plans(ledger, "a")
    assert list_ids(ledger) == ["a"]
    older = DeltaTable(str(url), storage_options=s3.storage_options)
    entry = older.to_pyarrow_table().to_pylist()[0]
    rows = pa.Table.from_pylist([{**entry, "seq": 2, "id": "b"}], pa.schema(older.schema().to_arrow()))
    once = CommitProperties(max_commit_retries=0)
    write_deltalake(older, rows, mode="append", commit_properties=once)
    with pytest.raises(Conflict):
        append_plans(ledger, "late", after=1)
    append_plans(ledger, "c", after=2)
    with pytest.raises(CommitFailedError):
        write_deltalake(older, rows, mode="append", commit_properties=once)
    assert list_ids(DeltaLedger(url)) == ["a", "b", "c"]


def test_an_append_with_a_lost_answer_has_landed(s3: S3, url: StoreUrl) -> None:
    """The ids of the entries show it, so no entry is appended twice."""
    ledger = DeltaLedger(url)
    append_plans(ledger, "a")
    s3.proxy.add(Fault("lose_answer", kind="PUT", key=r"/ledger/_delta_log/0+2\.json"))
    append_plans(ledger, "b", after=1)
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


def test_a_ledger_continues_with_renewed_credentials(s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append reads them from the environment. An open table reads them when the store refuses the old ones."""
    given = {key: value for key, value in url.settings.items() if not key.endswith((".access.key", ".secret.key"))}
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "word")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    ledger = DeltaLedger(StoreUrl(str(url), given))
    append_plans(ledger, "a")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    s3.proxy.reset_counts()
    refused = s3.proxy.add(Fault("forbid", times=2))
    append_plans(ledger, "b", after=1)
    signed = [request.headers["authorization"].partition("Credential=")[2][:4] for request in s3.proxy.list_requests()]
    assert (refused.hits, signed[0], signed.count("old/"), signed[-1]) == (2, "new/", 1, "new/")
    assert list_ids(ledger) == ["a", "b"]


def test_the_later_of_two_simultaneous_appends_is_refused(s3: S3, url: StoreUrl) -> None:
    """The second writer commits between the listing and the commit of the first."""
    first, second = DeltaLedger(url), DeltaLedger(url)
    append_plans(first, "a")
    assert list_ids(second) == ["a"]
    held = s3.proxy.add(Fault("hold", kind="PUT", key=r"/ledger/_delta_log/0+2\.json"))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(append_plans, first, "late", after=1)
        assert held.reached.wait(60)
        append_plans(second, "b", after=1)
        held.let_go()
        with pytest.raises(Conflict):
            late.result()
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


@pytest.mark.parametrize("effect", ["disregard", "lack"])
def test_a_store_that_overwrites_keys_is_refused(s3: S3, url: StoreUrl, effect: Effect) -> None:
    """Such a store ignores the condition or does not know it. The first append checks it, and writes no entry."""
    s3.proxy.add(Fault(effect, kind="PUT", times=None))
    with pytest.raises(LedgerError, match="lets a new object replace another one") as raised:
        append_plans(DeltaLedger(url), "a")
    assert "conditional writes" in raised.value.hint
    assert DeltaLedger(url).read() == []


@pytest.mark.parametrize(
    ("kind", "effect", "words"),
    [
        ("PUT", "forbid", r"these credentials have no right to do that in test-.* \(AccessDenied\)"),
        (None, "distrust", "the clock of this machine differs too much from the store's"),
        ("PUT", "send_away", "the bucket test-.* is in eu-west-1, not in us-east-1"),
    ],
)
def test_a_refusal_of_the_store_is_reported_and_loses_nothing(
    s3: S3, url: StoreUrl, kind: Kind | None, effect: Effect, words: str
) -> None:
    """The store may refuse writes or all requests. When it accepts them again, the ledger continues."""
    append_plans(DeltaLedger(url), "a")
    s3.proxy.add(Fault(effect, kind=kind, times=None))
    with pytest.raises(LedgerError, match=words):
        append_plans(DeltaLedger(url), "b", after=1)
    s3.proxy.clear()
    append_plans(DeltaLedger(url), "b", after=1)
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


def test_a_version_that_is_not_visible_yet_is_not_replaced(s3: S3, url: StoreUrl) -> None:
    """A store may answer 404 for a new version. An entry of another writer does not land then."""
    append_plans(DeltaLedger(url), "a")
    append_plans(DeltaLedger(url), "b", after=1)
    s3.proxy.add(Fault("hide", key=r"/ledger/_delta_log/0+2\.json", times=None))
    with pytest.raises(LedgerError):
        append_plans(DeltaLedger(url), "late", after=1)
    s3.proxy.clear()
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


def test_a_reader_whose_file_was_deleted_reads_the_snapshot(
    s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process replaced the entries twice while the reader waited for a file."""
    monkeypatch.setattr(delta_ledger, "KEPT_SECONDS", -1.0)
    writer = DeltaLedger(url)
    append_plans(writer, "a", "b")
    held = s3.proxy.add(Fault("hold", kind="GET", key="/ledger/part-"))
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(list_ids, DeltaLedger(url))
        assert held.reached.wait(60)
        for end, name in ((2, "s"), (3, "t")):
            writer.compact(Entry(kind="snapshot", id=name), [], after=end)
        held.let_go()
        assert reader.result(60) == ["t"]


def test_a_versioned_bucket_works_like_any_other(s3: S3) -> None:
    """Removed objects are gone for the ledger and for prepared rows, though the bucket keeps them."""
    make_bucket(s3.behind, f"{s3.bucket}-kept", versioned=True)
    url = StoreUrl(f"s3://{s3.bucket}-kept/state", s3.spark_settings)
    ledger, prepared = DeltaLedger(url / "ledger"), ObjectStore(url / "prepared")
    append_plans(ledger, "a", "b")
    ledger.compact(Entry(kind="snapshot", id="s"), [], after=2)
    assert [entry.id for entry in DeltaLedger(url / "ledger").read()] == ["s"]
    assert [prepared.claim("p/part") for _ in range(2)] == [True, False]
    prepared.delete_folder("p")
    assert ([*prepared.list_pages()], prepared.claim("p/part")) == ([], True)


def test_a_missing_bucket_is_named(s3: S3) -> None:
    """The error comes before anything is written."""
    with pytest.raises(LedgerError, match="the bucket nowhere-there does not exist") as raised:
        DeltaLedger(StoreUrl("s3://nowhere-there/x/ledger", s3.spark_settings)).read()
    assert "Create it" in raised.value.hint


def test_a_ledger_works_on_azure(azure: Azure) -> None:
    """Its conditional write works there too."""
    url = StoreUrl(azure.make_url("state/ledger"), azure.spark_settings)
    append_plans(DeltaLedger(url), "a")
    stale = DeltaLedger(url)
    assert list_ids(stale) == ["a"]
    append_plans(DeltaLedger(url), "b", after=1)
    with pytest.raises(Conflict):
        append_plans(stale, "late", after=1)
    assert list_ids(DeltaLedger(url)) == ["a", "b"]
