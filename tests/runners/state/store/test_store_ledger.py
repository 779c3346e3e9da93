"""The ledger in an object store keeps the contract that it keeps in a folder."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from origins.object_store import ObjectStore, StoreUrl
from runners.model.entry import Entry
from runners.state.delta_ledger import CHECKPOINT_EVERY, DeltaLedger
from runners.state.ledger import Conflict, Ledger, LedgerError
from tests.runners.state.ledger.conformance import LedgerConformance
from tests.stores.azure import Azure
from tests.stores.fault_proxy import Effect, Fault, Kind
from tests.stores.s3 import S3, make_bucket, make_spark_settings


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


def test_an_append_whose_answer_was_lost_has_landed(s3: S3, url: StoreUrl) -> None:
    """The entries' own ids tell; nothing is there twice."""
    ledger = DeltaLedger(url)
    append(ledger, "a")
    s3.proxy.add(Fault("lose_answer", kind="PUT", key=r"/ledger/_delta_log/0+2\.json"))
    append(ledger, "b", after=1)
    assert list_ids(DeltaLedger(url)) == ["a", "b"]


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
