"""The search index in PostgreSQL: servers share it, and it may be gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from runners.model.errors import Refusal
from runners.pipeline import Pipeline
from runners.service.search.index import IndexUnusable, Wanted
from runners.service.search.postgres_index import PostgresIndex
from runners.service.serving import make_indexer
from tests.runners.service.search.entries import list_names, make_entry
from tests.runners.service.served import Served, serve, write_pipeline


def test_many_servers_make_the_tables_at_the_same_time(postgres: str) -> None:
    """One makes them, and the others use them."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: PostgresIndex(postgres).put([make_entry(number)]), range(16)))
    assert len(list_names(PostgresIndex(postgres))) == 16


@pytest.mark.parametrize(("version", "found"), [(1, 1), (99, 0)])
def test_tables_of_another_version_are_not_used(postgres: str, version: int, found: int) -> None:
    """Older ones are made again. Newer ones stay, because a newer server may use them."""
    index = PostgresIndex(postgres)
    index.put([make_entry(1)])
    with psycopg.connect(postgres) as connection:
        connection.execute("UPDATE marks SET mark = %s WHERE source = 'version'", (str(version),))
    if found:
        index.put([make_entry(2)])
        assert list_names(index) == ["p/2"]
    else:
        with pytest.raises(IndexUnusable, match="newer version"):
            index.put([make_entry(2)])


def test_a_search_that_takes_too_long_is_given_up(postgres: str) -> None:
    """So a caller cannot keep the server busy."""
    index = PostgresIndex(postgres)
    index.put([make_entry(1)])
    with psycopg.connect(postgres) as connection:
        connection.execute("LOCK TABLE entries")
        with pytest.raises(IndexUnusable, match="narrow it"):
            index.search(Wanted(pipelines=["orders"]), longest=0.1)
        with pytest.raises(IndexUnusable, match="lock timeout"):
            index.put([make_entry(2)])


def test_the_address_and_its_password_are_in_no_error(tmp_path: Path) -> None:
    """An address that is none is refused before the server starts."""
    with pytest.raises(Refusal) as refused:
        PostgresIndex("user:hunter2@nowhere")
    with pytest.raises(IndexUnusable) as unusable:
        list_names(PostgresIndex(f"postgresql://anna:hunter2@/db?host={tmp_path}"))
    assert "hunter2" not in f"{refused.value} {refused.value.hint} {unusable.value}"


def test_without_the_database_runs_go_on(pipelines: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The look is logged once, and answers say that the index cannot be used."""
    write_pipeline(tmp_path, "orders", rows={1: 1})
    with serve(tmp_path, index_address=f"postgresql:///db?host={tmp_path}") as served:
        indexer = make_indexer(served.service)
        indexer.look()
        indexer.look()
        assert len([line for line in caplog.messages if "search index cannot be filled" in line]) == 1
        assert served.get("/v1/search")["behind"].startswith("The index cannot be used")
        assert Pipeline.load(tmp_path / "orders.yaml").run().status == "succeeded"


def test_servers_on_two_machines_share_the_index(pipelines: Path, tmp_path: Path, postgres: str) -> None:
    """What one of them takes in, the other finds."""
    write_pipeline(tmp_path, "orders", rows={1: 1})
    Pipeline.load(tmp_path / "orders.yaml").run()
    with serve(tmp_path, index_address=postgres) as one, serve(tmp_path, index_address=postgres) as other:
        make_indexer(one.service).look()
        found: list[Served] = [one, other]
        assert [len(each.get("/v1/search")["hits"]) for each in found] == [2, 2]
        make_indexer(other.service).look()
        assert [len(each.get("/v1/search")["hits"]) for each in found] == [2, 2]
