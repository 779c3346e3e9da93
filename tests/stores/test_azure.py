"""The Blob Storage of the tests behaves like Azure where deltalake and obstore need it."""

from __future__ import annotations

import deltalake
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError
from obstore.store import AzureStore

from tests.stores.azure import ACCOUNT, KEY, Azure


def test_deltalake_commits_and_reads(azure: Azure) -> None:
    """Each commit is a conditional PUT."""
    url = azure.make_url("table")
    for number in range(3):
        rows = pa.table({"id": [number]})
        deltalake.write_deltalake(url, rows, mode="append", storage_options=azure.storage_options)
    table = deltalake.DeltaTable(url, storage_options=azure.storage_options)
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]
    commits = [each for each in azure.proxy.list_requests() if each.kind == "PUT" and "_delta_log/" in each.key]
    assert [each.headers.get("if-none-match") for each in commits] == ["*"] * 3


def test_obstore_creates_a_key_once(azure: Azure) -> None:
    """A second create fails, and the first content is read."""
    endpoint = azure.storage_options["azure_storage_endpoint"]
    store = AzureStore(
        azure.container,
        client_options={"allow_http": True},
        account_name=ACCOUNT,
        account_key=KEY,
        endpoint=endpoint,
    )
    obstore.put(store, "a", b"1", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a", b"2", mode="create")
    assert bytes(obstore.get(store, "a").bytes()) == b"1"
