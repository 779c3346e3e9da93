"""The search: runs, batches and refused rows by their words."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from destinations.dead_letters import format_moment
from runners.pipeline import Pipeline
from runners.service.search.indexer import Indexer
from runners.service.serving import make_indexer
from runners.state.location import StateLocation
from runners.state.run_history import RunRow
from tests.manual_clock import ManualClock
from tests.runners.service.served import Served, serve, write_pipeline


@pytest.fixture(params=["sqlite", "postgres"])
def served(pipelines: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server of three definitions, one of which is broken."""
    shutil.copytree(pipelines, tmp_path, dirs_exist_ok=True)
    address = request.getfixturevalue("postgres") if request.param == "postgres" else ""
    with serve(tmp_path, index_address=address) as found:
        yield found


def find(served: Served, query: str, *, by: str = "owner") -> list[str]:
    """Return the kind and the pipeline of what a search finds."""
    return [f"{hit['kind']} {hit['pipeline']}" for hit in served.get(f"/v1/search?{query}", by=by)["hits"]]


@pytest.mark.usefixtures("indexer")
def test_runs_batches_and_rows_are_found(served: Served) -> None:
    """All conditions count. The beginning of a word is enough, and case does not matter."""
    assert sorted(find(served, "")) == ["batch orders", "row orders", "row orders", "run orders"]
    assert find(served, "kind=run&status=succeeded") == ["run orders"]
    assert find(served, "status=failed") == []
    assert find(served, "text=BIGINT+x2") == ["row orders"]
    assert find(served, "text=0.json&kind=batch") == ["batch orders"]
    assert find(served, "text=amou&pipeline=items") == []
    assert find(served, "until=2026-01-02") == ["row orders", "row orders"]
    assert find(served, "since=2026-01-02&kind=row") == []
    assert served.ask("GET", "/v1/search?since=tomorrow").status == 422
    assert served.ask("GET", "/v1/search?cursor=x").status == 422


@pytest.mark.usefixtures("indexer")
def test_a_cursor_leads_through_the_list(served: Served) -> None:
    """The last answer has none. Nothing comes twice."""
    seen, cursor = [], ""
    for _ in range(3):
        found = served.get(f"/v1/search?limit=2&cursor={cursor}")
        seen += [hit["name"] for hit in found["hits"]]
        cursor = found["cursor"]
    assert (len(seen), len({*seen}), cursor) == (4, 4, "")


def test_a_cursor_leads_through_the_runs(served: Served) -> None:
    """The last answer has none. An unknown cursor finds nothing."""
    for _ in range(3):
        Pipeline.load(served.folder / "orders.yaml").run()
    every = [run["run"] for run in served.get("/v1/pipelines/orders/runs")["runs"]]
    first = served.get("/v1/pipelines/orders/runs?limit=3")
    rest = served.get(f"/v1/pipelines/orders/runs?limit=3&cursor={first['cursor']}")
    assert [run["run"] for run in first["runs"] + rest["runs"]] == every
    assert (len(every), rest["cursor"]) == (4, "")
    assert served.get("/v1/pipelines/orders/runs?cursor=nowhere")["runs"] == []


def test_a_short_list_of_runs_has_archived_ones(served: Served) -> None:
    """They come after all others."""
    pipeline = served.service.find("orders").pipeline
    history = StateLocation.of(pipeline).open_history(pipeline, served.service.spark.open)
    assert history is not None
    row = RunRow.make_running("orders", "old", "", datetime(2025, 1, 1, tzinfo=timezone.utc))
    history.archive.add([vars(replace(row, status="failed"))])
    assert [run["run"] for run in served.get("/v1/pipelines/orders/runs")["runs"]][1:] == ["old"]


@pytest.mark.usefixtures("indexer")
def test_a_caller_finds_nothing_of_other_pipelines(served: Served) -> None:
    """Not even by name."""
    served.add_caller("sam", "read", "items")
    assert find(served, "", by="sam") == []
    assert served.ask("GET", "/v1/search?pipeline=orders", by="sam").status == 403


def test_what_is_new_is_taken_in_by_the_next_look(served: Served, indexer: Indexer) -> None:
    """What is gone from the DLQ, and a pipeline that is gone, are found no longer."""
    write_pipeline(served.folder, "orders", rows={5: 50})
    Pipeline.load(served.folder / "orders.yaml").run()
    indexer.look()
    assert (len(find(served, "kind=run")), len(find(served, "kind=batch"))) == (2, 2)
    DeltaTable(served.folder / ".wherry" / "orders" / "dlq").delete("id = 'plan/1'")
    indexer.look()
    assert [hit["name"] for hit in served.get("/v1/search?kind=row")["hits"]] == ["plan/2"]
    (served.folder / "broken.yaml").unlink()
    (served.folder / "orders.yaml").unlink()
    indexer.look()
    write_pipeline(served.folder, "orders")
    assert find(served, "") == []


def test_a_broken_definition_keeps_what_is_known(served: Served, indexer: Indexer) -> None:
    """It is perhaps being written."""
    file = served.folder / "orders.yaml"
    text = file.read_text()
    file.write_text("name: orders\n")
    indexer.look()
    file.write_text(text)
    assert len(find(served, "")) == 4


def test_a_row_that_was_refused_earlier_is_taken_in_later(served: Served, indexer: Indexer) -> None:
    """Several batches refuse rows at the same time, and their commits come in another order."""
    place = served.folder / ".wherry" / "orders" / "dlq"
    rows = DeltaTable(place).to_pyarrow_table()
    first = rows.to_pylist()[0]
    late = {**first, "id": "late/1", "nacked_at": first["nacked_at"] - timedelta(minutes=5)}
    write_deltalake(place, pa.Table.from_pylist([late], rows.schema), mode="append")
    indexer.look()
    assert [hit["name"] for hit in served.get("/v1/search?kind=row")["hits"]] == ["plan/2", "plan/1", "late/1"]


def test_batches_are_found_after_their_entries_were_compacted(served: Served, indexer: Indexer) -> None:
    """Those that were settled between the last look and the compaction are found too."""
    write_pipeline(served.folder, "orders", rows={5: 50})
    Pipeline.load(served.folder / "orders.yaml").run()
    pipeline = served.service.find("orders").pipeline
    journal = StateLocation.of(pipeline).open_journal(pipeline)
    journal.acquire({"host": "elsewhere", "pipeline": "orders", "run": "another"})
    journal.compact(every=1)
    indexer.look()
    assert len(find(served, "kind=batch")) == 2


def test_a_state_that_begins_again_is_read_again(served: Served, indexer: Indexer) -> None:
    """What the deleted state had is forgotten."""
    shutil.rmtree(served.folder / ".wherry" / "orders")
    indexer.look()
    assert find(served, "") == []
    assert served.get("/v1/search")["behind"] == ""


def test_a_run_that_another_one_ended_is_found_once(served: Served, indexer: Indexer) -> None:
    """The run that took over may tell an earlier beginning of it."""
    pipeline = served.service.find("orders").pipeline
    history = StateLocation.of(pipeline).open_history(pipeline, served.service.spark.open)
    assert history is not None
    began = RunRow.make_running("orders", "dead", "", datetime.now(timezone.utc))
    history.write([began])
    indexer.look()
    earlier = began.started_at - timedelta(minutes=1)
    history.write([replace(began, status="killed", reason="taken over", started_at=earlier)])
    indexer.look()
    assert [hit["at"] for hit in served.get("/v1/search?text=dead")["hits"]] == [format_moment(earlier)]


def test_a_state_that_cannot_be_read_is_named(
    served: Served, indexer: Indexer, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and named until it can be read. A caller of other pipelines does not see its name."""
    served.add_caller("sam", "read", "items")
    place = served.folder / ".wherry" / "orders" / "ledger"
    whole = place.rename(place.with_name("whole"))
    write_deltalake(place, pa.table({"another": [1]}))
    for _ in range(2):
        indexer.look()
        assert served.get("/v1/search")["behind"] == "The index misses what is new in orders."
    assert served.get("/v1/search", by="sam")["behind"] == ""
    assert len([line for line in caplog.messages if "misses what is new in orders" in line]) == 1
    shutil.rmtree(place)
    whole.rename(place)
    indexer.look()
    assert served.get("/v1/search")["behind"] == ""


def test_a_secret_is_not_in_the_index(served: Served) -> None:
    """Not even in the names of files."""
    served.service.hidden["0.json"] = "${secret:KEY}"  # type: ignore[index]
    make_indexer(served.service).look()
    assert find(served, "kind=batch") == ["batch orders"]
    assert find(served, "kind=batch&text=json") == []


def test_a_protected_value_is_not_in_the_index(served: Served, indexer: Indexer) -> None:
    """This holds also if the column is protected later."""
    assert find(served, "text=x2") == ["row orders"]
    write_pipeline(served.folder, "orders", "protect: [amount]\n")
    found = served.get("/v1/search")
    assert (found["hits"], found["behind"]) == ([], "The index misses what is new in orders.")
    indexer.look()
    assert (find(served, "text=x2"), len(find(served, "kind=row"))) == ([], 2)


def test_an_index_says_since_when_it_is_behind(served: Served, indexer: Indexer) -> None:
    """It does so half a minute after the last whole look."""
    assert served.get("/v1/search")["behind"] == ""
    served.service.clock = ManualClock(time=datetime.now(timezone.utc) + timedelta(minutes=1))
    assert served.get("/v1/search")["behind"].startswith("The index is behind since 20")


def test_any_moment_can_be_asked_for(served: Served) -> None:
    """So can a cursor that no answer had."""
    for query in ("since=2150-01-01", "until=2150-01-01", f"cursor={'9' * 19}"):
        served.get(f"/v1/search?{query}")
