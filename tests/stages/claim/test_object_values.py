"""Large values in an object store, without Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from origins.store_access import StoreUrl
from stages.claim import open_store
from stages.claim_store import ObjectFiles, ValueClaims, ValueStore
from stages.python_call import FunctionCannotRun
from tests.stores.fault_proxy import Effect, Fault
from tests.stores.s3 import S3

VALUE = b"x" * 2_000


@pytest.fixture(params=["files", "delta"])
def store(s3: S3, request: pytest.FixtureRequest) -> ValueStore:
    """A store in S3."""
    return open_store(StoreUrl(s3.make_url("claims"), s3.spark_settings), request.param)


def store_value(store: ValueStore) -> str:
    """Store the value, and return its reference."""
    claims = ValueClaims(store)
    reference = claims.store_value(VALUE)
    store.settle()
    return reference


def test_a_value_is_stored_once_and_read_by_another_process(store: ValueStore, s3: S3) -> None:
    """The pickled store is enough to reach the values."""
    sent = pickle.dumps(store)
    reference = store_value(store)
    s3.proxy.reset_counts()
    other = ValueClaims(pickle.loads(sent))  # noqa: S301 -- it was made here
    assert store_value(other.store) == reference
    assert "PUT" not in {request.kind for request in s3.proxy.list_requests()}
    assert other.find_value(reference.encode()) == VALUE
    assert [value.name for value in store.list_values()] == [reference.split(":")[1]]


def test_a_missing_value_is_a_problem_of_its_row(store: ValueStore) -> None:
    """Removing it twice has no further effect."""
    reference = store_value(store)
    for _ in range(2):
        store.delete_values([reference.split(":")[1]])
    assert "the store does not have" in str(ValueClaims(store).find_value(reference.encode()))


def test_the_key_of_a_store_is_created_once(store: ValueStore) -> None:
    """A second writer gets the first writer's key."""
    store.files.create("key", b"first")
    store.files.create("key", b"second")
    assert store.files.read("key") == b"first"
    store.files.write("key", b"third")
    assert store.files.read("key") == b"third"


def test_a_store_that_refuses_access_fails_the_batch(store: ValueStore, s3: S3) -> None:
    """The batch is not tried again, and no row is refused."""
    s3.proxy.add(Fault("forbid", times=None))
    with pytest.raises(FunctionCannotRun, match=r"the store of large values at s3a://.*/claims failed: "):
        store_value(store)


def test_a_busy_store_is_tried_again_later(store: ValueStore, s3: S3) -> None:
    """The error is temporary, and shows no secret."""
    files = store.files
    assert isinstance(files, ObjectFiles)
    quick = replace(files, arguments={**files.arguments, "retry_config": {"max_retries": 0}})
    s3.proxy.add(Fault("slow_down", times=None))
    with pytest.raises(ConnectionError, match="failed: "):
        store_value(replace(store, files=quick))
    assert "secret" not in repr(store)


@pytest.mark.parametrize("store", ["delta"], indirect=True)
@pytest.mark.parametrize("version", [0, 1], ids=["the table", "its first values"])
def test_a_commit_that_collides_with_another_request_is_repeated(store: ValueStore, s3: S3, version: int) -> None:
    """The store answers 409 although the version is free."""
    collision = s3.proxy.add(Fault("collide", "PUT", f"{version}[.]json"))
    reference = store_value(store)
    assert collision.hits == 1
    assert ValueClaims(store).find_value(reference.encode()) == VALUE
    assert [value.name for value in store.list_values()] == [reference.split(":")[1]]


@pytest.mark.parametrize("effect", ["refuse", "collide_late"])
def test_a_key_that_was_refused_is_written(store: ValueStore, s3: S3, effect: Effect) -> None:
    """A value is then found by its reference."""
    fault = s3.proxy.add(Fault(effect, "PUT", "claims/key$"))
    reference = store_value(store)
    assert fault.hits == 1
    assert ValueClaims(store).find_value(reference.encode()) == VALUE
