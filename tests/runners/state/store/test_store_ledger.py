"""The ledger in an object store keeps the contract that it keeps in a folder."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from origins.object_store import ObjectStore
from origins.store_access import StoreUrl
from runners.model.entry import Entry, Settled
from runners.state import delta_ledger
from runners.state import ledger as table_ledger
from runners.state.delta_ledger import CHECKPOINT_EVERY, STORE_CHECKPOINT_EVERY, DeltaLedger, StoreHome
from runners.state.ledger import Conflict, Ledger, LedgerError
from tests.runners.state.ledger.conformance import NOWHERE, LedgerConformance
from tests.stores.azure import Azure
from tests.stores.fault_proxy import Effect, Fault, Kind
from tests.stores.s3 import S3, make_bucket, make_client, make_spark_settings


class TestStoreLedger(LedgerConformance):
    """Every handle is opened anew, and nothing but the store connects two of them."""

    @pytest.fixture(autouse=True)
    def _place(self, s3_server: str) -> None:
        bucket = f"test-{uuid.uuid4().hex[:12]}"
        make_bucket(s3_server, bucket)
        self.url = StoreUrl(f"s3://{bucket}/state/orders/ledger", make_spark_settings(s3_server))

    def ledger(self) -> Ledger:
        return DeltaLedger(self.url)


@pytest.fixture
def url(s3: S3) -> StoreUrl:
    """Where a ledger may be."""
    return StoreUrl(s3.make_url("state/ledger"), s3.spark_settings)


def append(ledger: Ledger, *ids: str, after: int = 0) -> None:
    ledger.append([Entry(kind="plan", id=name) for name in ids], after=after)


def list_ids(ledger: Ledger) -> list[str]:
    return [entry.id for entry in ledger.read()]


def test_reading_makes_nothing(s3: S3, url: StoreUrl) -> None:
    """Who asks for the status of a pipeline that never ran leaves no trace."""
    assert DeltaLedger(url).read() == []
    assert {request.kind for request in s3.proxy.list_requests()} <= {"LIST", "GET", "HEAD"}


def test_an_append_is_two_requests(s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file, and the version that it takes. Some seconds after the last look the log is listed too."""
    ledger, now = DeltaLedger(url), 100.0
    monkeypatch.setattr(delta_ledger, "read_clock", lambda: now)
    append(ledger, "a")
    s3.proxy.reset_counts()
    append(ledger, "b", after=1)
    assert s3.proxy.count() == {"PUT": 2}
    now += StoreHome.sure
    append(ledger, "c", after=2)
    append(ledger, "d", after=3)
    assert s3.proxy.count() == {"PUT": 6, "LIST": 1}
    assert list_ids(DeltaLedger(url)) == ["a", "b", "c", "d"]


def test_opening_a_ledger_is_one_request_for_each_append_and_few_for_the_log(s3: S3, url: StoreUrl) -> None:
    """A checkpoint sums up the log before it is long."""
    ledger = DeltaLedger(url)
    for number in range(2 * STORE_CHECKPOINT_EVERY):
        append(ledger, str(number), after=number)
    s3.proxy.reset_counts()
    assert len(DeltaLedger(url).read()) == 2 * STORE_CHECKPOINT_EVERY
    rows = [request for request in s3.proxy.list_requests() if "/ledger/part-" in request.key]
    log = [request for request in s3.proxy.list_requests() if "/ledger/_delta_log/" in request.key]
    assert (len(rows), len(log) <= 15) == (2 * STORE_CHECKPOINT_EVERY, True)


def test_a_writer_that_slept_past_a_checkpoint_lands_nothing(
    s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version is free again, for the log was cleaned up, and no table has what is written there."""
    now, sleeper, other = 100.0, DeltaLedger(url), DeltaLedger(url)
    monkeypatch.setattr(delta_ledger, "read_clock", lambda: now)
    append(sleeper, "a")
    for number in range(1, STORE_CHECKPOINT_EVERY + 1):
        append(other, str(number), after=number)
    client = make_client(s3.behind)
    for number in range(STORE_CHECKPOINT_EVERY):
        client.delete_object(Bucket=s3.bucket, Key=f"state/ledger/_delta_log/{number:020}.json")
    now += StoreHome.sure
    with pytest.raises(Conflict):
        append(sleeper, "late", after=1)
    assert "late" not in list_ids(DeltaLedger(url))


def test_an_append_by_an_older_version_of_wherry_is_seen(s3: S3, url: StoreUrl) -> None:
    """It commits by `deltalake`, and each of the two refuses what the other was quicker with."""
    ledger = DeltaLedger(url)
    append(ledger, "a")
    assert list_ids(ledger) == ["a"]
    older = DeltaTable(str(url), storage_options=s3.storage_options)
    entry = older.to_pyarrow_table().to_pylist()[0]
    rows = pa.Table.from_pylist([{**entry, "seq": 2, "id": "b"}], pa.schema(older.schema().to_arrow()))
    once = CommitProperties(max_commit_retries=0)
    write_deltalake(older, rows, mode="append", commit_properties=once)
    with pytest.raises(Conflict):
        append(ledger, "late", after=1)
    append(ledger, "c", after=2)
    with pytest.raises(CommitFailedError):
        write_deltalake(older, rows, mode="append", commit_properties=once)
    assert list_ids(DeltaLedger(url)) == ["a", "b", "c"]


def test_an_append_whose_answer_was_lost_has_landed(s3: S3, url: StoreUrl) -> None:
    """The entries' own ids tell; nothing is there twice."""
    ledger = DeltaLedger(url)
    append(ledger, "a")
    s3.proxy.add(Fault("lose_answer", kind="PUT", key=r"/ledger/_delta_log/0+2\.json"))
    append(ledger, "b", after=1)
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


def test_a_ledger_goes_on_with_credentials_that_were_renewed(
    s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append asks the environment for them. A table that is open asks once the store refuses the old ones."""
    given = {key: value for key, value in url.settings.items() if not key.endswith((".access.key", ".secret.key"))}
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "word")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    ledger = DeltaLedger(StoreUrl(str(url), given))
    append(ledger, "a")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    s3.proxy.reset_counts()
    refused = s3.proxy.add(Fault("forbid", times=2))
    append(ledger, "b", after=1)
    signed = [request.headers["authorization"].partition("Credential=")[2][:4] for request in s3.proxy.list_requests()]
    assert (refused.hits, signed[0], signed.count("old/"), signed[-1]) == (2, "new/", 1, "new/")
    assert list_ids(ledger) == ["a", "b"]


def test_one_of_two_that_append_at_the_same_moment_loses(s3: S3, url: StoreUrl) -> None:
    """The second one commits between the first one's look and its commit."""
    first, second = DeltaLedger(url), DeltaLedger(url)
    append(first, "a")
    assert list_ids(second) == ["a"]
    held = s3.proxy.add(Fault("hold", kind="PUT", key=r"/ledger/_delta_log/0+2\.json"))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(append, first, "late", after=1)
        assert held.reached.wait(60)
        append(second, "b", after=1)
        held.let_go()
        with pytest.raises(Conflict):
            late.result()
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


@pytest.mark.parametrize("effect", ["disregard", pytest.param("lack", marks=pytest.mark.long)])
def test_a_store_that_lets_a_key_be_replaced_is_refused(s3: S3, url: StoreUrl, effect: Effect) -> None:
    """Whether it takes no notice of the condition, or does not know it. The first append looks, and writes no entry."""
    s3.proxy.add(Fault(effect, kind="PUT", times=None))
    with pytest.raises(LedgerError, match="lets a new object replace another one") as raised:
        append(DeltaLedger(url), "a")
    assert "conditional writes" in raised.value.hint
    assert DeltaLedger(url).read() == []


@pytest.mark.parametrize("kind", ["PUT", None])
@pytest.mark.parametrize(
    ("effect", "words"),
    [
        ("forbid", r"these credentials have no right to do that in test-.* \(AccessDenied\)"),
        ("distrust", "the clock of this machine differs too much from the store's"),
        ("send_away", "the bucket test-.* is in eu-west-1, not in us-east-1"),
    ],
)
def test_what_a_store_refuses_is_said_and_nothing_is_lost(
    s3: S3, url: StoreUrl, kind: Kind | None, effect: Effect, words: str
) -> None:
    """Whether it refuses to write or anything at all. Once it agrees again, the ledger goes on."""
    append(DeltaLedger(url), "a")
    s3.proxy.add(Fault(effect, kind=kind, times=None))
    with pytest.raises(LedgerError, match=words):
        append(DeltaLedger(url), "b", after=1)
    s3.proxy.clear()
    append(DeltaLedger(url), "b", after=1)
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


def test_a_version_that_is_not_seen_yet_is_not_replaced(s3: S3, url: StoreUrl) -> None:
    """A store that answers 404 for what it has just taken hides it from another writer, whose entry does not land."""
    append(DeltaLedger(url), "a")
    append(DeltaLedger(url), "b", after=1)
    s3.proxy.add(Fault("hide", key=r"/ledger/_delta_log/0+2\.json", times=None))
    with pytest.raises(LedgerError):
        append(DeltaLedger(url), "late", after=1)
    s3.proxy.clear()
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


def test_the_history_stays_in_few_files(s3: S3, url: StoreUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones are put together there too, and each batch is in it once."""
    monkeypatch.setattr(table_ledger, "FILES", 3)
    ledger = DeltaLedger(url)
    append(ledger, "a")
    for end in range(1, 8):
        batch = Settled(lane="0", number=end, plan=f"p{end}", run="r", at="", span=NOWHERE, counts={})
        ledger.compact(Entry(kind="snapshot"), [batch], after=end)
    history = DeltaTable(f"{url}_history", storage_options=s3.storage_options)
    assert len(history.file_uris()) <= 3
    assert sorted(each.number for each in DeltaLedger(url).history()) == [*range(1, 8)]


def test_a_versioned_bucket_is_a_store_like_any(s3: S3) -> None:
    """What was removed there is gone for the ledger and for prepared rows, though the bucket keeps it."""
    make_bucket(s3.behind, f"{s3.bucket}-kept", versioned=True)
    url = StoreUrl(f"s3://{s3.bucket}-kept/state", s3.spark_settings)
    ledger, prepared = DeltaLedger(url / "ledger"), ObjectStore(url / "prepared")
    append(ledger, "a", "b")
    ledger.compact(Entry(kind="snapshot", id="s"), [], after=2)
    assert [entry.id for entry in DeltaLedger(url / "ledger").read()] == ["s"]
    assert [prepared.put_new("p/part", b"") for _ in range(2)] == [True, False]
    prepared.delete_folder("p")
    assert ([*prepared.list_pages()], prepared.put_new("p/part", b"")) == ([], True)


def test_a_writer_that_slept_past_a_checkpoint_did_not_land(url: StoreUrl) -> None:
    """What it wrote below a newer checkpoint is in no table."""
    ledger = DeltaLedger(url)
    for number in range(CHECKPOINT_EVERY + 2):
        append(ledger, str(number), after=number)
    assert not ledger._entries._has_checkpoint_above(CHECKPOINT_EVERY)
    assert ledger._entries._has_checkpoint_above(1)


def test_a_bucket_that_does_not_exist_is_named(s3: S3) -> None:
    """In words, before anything is written."""
    with pytest.raises(LedgerError, match="the bucket nowhere-there does not exist") as raised:
        DeltaLedger(StoreUrl("s3://nowhere-there/x/ledger", s3.spark_settings)).read()
    assert "Create it" in raised.value.hint


def test_a_ledger_is_kept_on_azure_too(azure: Azure) -> None:
    """Its conditional write holds there as well."""
    url = StoreUrl(azure.make_url("state/ledger"), azure.spark_settings)
    append(DeltaLedger(url), "a")
    stale = DeltaLedger(url)
    assert list_ids(stale) == ["a"]
    append(DeltaLedger(url), "b", after=1)
    with pytest.raises(Conflict):
        append(stale, "late", after=1)
    assert list_ids(DeltaLedger(url)) == ["a", "b"]
