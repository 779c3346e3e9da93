"""Large values in an object store, without Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from origins.object_store import StoreUrl
from stages.claim import open_store
from stages.claim_store import ObjectValues, ValueClaims, find_value
from stages.python_call import FunctionCannotRun
from tests.stores.fault_proxy import Fault
from tests.stores.s3 import S3

VALUE = b"x" * 2_000


@pytest.fixture
def store(s3: S3) -> ObjectValues:
    """A store in S3."""
    made = open_store(StoreUrl(s3.make_url("claims"), s3.spark_settings))
    assert isinstance(made, ObjectValues)
    return made


def test_a_value_is_stored_once_and_comes_back_in_another_process(store: ObjectValues, s3: S3) -> None:
    """What another process gets is enough to reach the store."""
    reference = ValueClaims(store).store_value(VALUE)
    s3.proxy.reset_counts()
    other = ValueClaims(pickle.loads(pickle.dumps(replace(store))))  # noqa: S301 -- it was made here
    assert other.store_value(VALUE) == reference
    assert "PUT" not in {request.kind for request in s3.proxy.list_requests()}
    assert other.find_value(reference.encode()) == VALUE
    assert [value.name for value in store.list_names("values")] == [reference.split(":")[1]]


def test_a_value_that_is_gone_is_a_problem_of_its_row(store: ObjectValues) -> None:
    """To remove it twice is once."""
    claims = ValueClaims(store)
    reference = claims.store_value(VALUE)
    for _ in range(2):
        store.delete(find_value(reference.split(":")[1]))
    assert "the store does not have" in str(claims.find_value(reference.encode()))


def test_the_key_of_a_store_is_made_once(store: ObjectValues) -> None:
    """Whoever comes second gets the first one's."""
    store.create("key", b"first")
    store.create("key", b"second")
    assert store.read("key") == b"first"
    store.write("key", b"third")
    assert store.read("key") == b"third"


def test_a_store_that_refuses_is_no_rows_fault(store: ObjectValues, s3: S3) -> None:
    """The batch fails, and is not tried again."""
    s3.proxy.add(Fault("forbid", times=None))
    with pytest.raises(FunctionCannotRun, match=r"the store of large values at s3a://.*/claims failed: "):
        ValueClaims(store).store_value(VALUE)


def test_a_store_that_is_busy_is_asked_again_later(store: ObjectValues, s3: S3) -> None:
    """The error is one that passes by itself."""
    quick = {**store.arguments, "retry_config": {"max_retries": 0}}
    s3.proxy.add(Fault("slow_down", times=None))
    with pytest.raises(ConnectionError, match="failed: "):
        ValueClaims(ObjectValues(store.place, quick)).store_value(VALUE)
    assert "secret" not in repr(store)
