"""Each search index finds the same, in SQLite and in PostgreSQL."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runners.service.search.index import Index, Wanted
from runners.service.search.postgres_index import PostgresIndex
from runners.service.search.sqlite_index import SqliteIndex
from tests.runners.service.search.entries import list_names, make_entry


def test_the_newest_comes_first(index: Index) -> None:
    """A status and a pipeline are not mixed up with words of the text."""
    index.put(make_entry(number) for number in (2, 3, 1))
    index.put([make_entry(4, pipeline="items"), make_entry(5, text="items", status="failed")])
    assert list_names(index) == ["p/5", "p/3", "p/2", "p/1"]
    assert list_names(index, status="failed") == ["p/5"]
    assert list_names(index, text="refused") == []
    assert list_names(index, since=datetime(2026, 1, 1, 0, 0, 2, tzinfo=timezone.utc)) == ["p/5", "p/3", "p/2"]
    assert json.loads(make_entry(1).body)["text"] == "row 1"


def test_a_place_leads_to_the_rest_of_the_list(index: Index) -> None:
    """Entries of the same second come one after another."""
    index.put(make_entry(number // 3) for number in range(9))
    index.put(make_entry(1, name=f"q/{number}") for number in range(5))
    seen, before = [], Wanted(pipelines=()).before
    while found := index.search(Wanted(pipelines=["orders"], before=before, limit=2)):
        seen += [each["name"] for _, each in found]
        before = found[-1][0]
    assert sorted(seen) == ["p/0", "p/1", "p/2", *(f"q/{number}" for number in range(5))]


def test_an_entry_that_comes_again_is_kept_once(index: Index) -> None:
    """Its last form counts. Entries of the same second are kept apart, in all orders."""
    index.put(make_entry(0, name=f"p/{number}") for number in range(3_000))
    index.put([make_entry(0, name="p/7", text="another")])
    assert index.count("orders", "row") == 3_000
    assert list_names(index, text="another") == ["p/7"]
    assert len(list_names(index, limit=5_000)) == 3_000


def test_a_run_with_another_beginning_is_kept_once(index: Index) -> None:
    """A run that took over may tell an earlier beginning of it."""
    index.put([make_entry(5, kind="run", name="r1"), make_entry(6, kind="run", name="r2")])
    index.put([make_entry(1, kind="run", name="r1", status="killed")])
    assert list_names(index, kind="run") == ["r2", "r1"]


def test_an_entry_that_cannot_be_added_leaves_the_others_out(index: Index) -> None:
    """Entries come in together, or not at all."""
    with pytest.raises(ValueError, match="Invalid isoformat"):
        index.put([make_entry(1), make_entry(2, at="someday")])
    assert list_names(index) == []


def test_what_is_forgotten_is_not_found(index: Index) -> None:
    """With a kind, the other kinds and the marks stay. Other pipelines stay in any case."""
    index.put([make_entry(1), make_entry(2, kind="batch"), make_entry(3, pipeline="items")])
    index.mark("orders", {"dlq": "1"})
    index.forget("orders", "row")
    assert (list_names(index), index.read_marks("orders")) == (["p/2"], {"dlq": "1"})
    index.forget("orders")
    assert (list_names(index), index.read_marks("orders"), index.count("items", "row")) == ([], {}, 1)


def test_the_last_mark_of_a_source_counts(index: Index) -> None:
    """Each pipeline has its own."""
    index.mark("orders", {"dlq": "1", "ledger": "a"})
    index.mark("orders", {"dlq": "2"})
    index.mark("items", {"dlq": "3"})
    assert index.read_marks("orders") == {"dlq": "2", "ledger": "a"}
    assert index.read_source("dlq") == {"orders": "2", "items": "3"}


def test_one_process_fills_the_index_at_a_time(index: Index) -> None:
    """The next one can when the first has ended, also by an error."""
    with pytest.raises(ZeroDivisionError):
        fill_twice(index)
    with index.claim() as is_next:
        assert is_next


def fill_twice(index: Index) -> None:
    """Claim the index twice, and fail."""
    with index.claim() as is_first, index.claim() as is_second:
        assert (is_first, is_second) == (True, False)
        raise ZeroDivisionError


def test_a_text_that_is_no_unicode_is_found_by_the_rest(index: Index) -> None:
    """A row may have half of a pair of surrogates."""
    index.put([make_entry(1, text="half \ud800 a pair")])
    ((_, found),) = index.search(Wanted(pipelines=["orders"], text="half pair"))
    assert found["text"] == "half ? a pair"


def test_what_happened_late_is_found(index: Index) -> None:
    """This holds also after 2038."""
    index.put([make_entry(0, at="2050-01-01T00:00:00+00:00"), make_entry(1, at="2199-01-01T00:00:00+00:00")])
    assert list_names(index) == ["p/1", "p/0"]


@pytest.mark.parametrize(
    "text",
    [
        '"',
        "a AND",
        "NOT",
        "text:",
        "(",
        "*",
        "--- row",
        "row -1",
        "\0row",
        "'; DROP TABLE entries",
        "né",
        "a & !b",
        "?%s",
    ],
)
def test_any_text_can_be_searched_for(index: Index, text: str) -> None:
    """No sign has a meaning. A word without letters and digits does not count."""
    index.put([make_entry(1)])
    list_names(index, text=text)
    assert list_names(index, text="--- row") == ["p/1"]


LETTERS = st.text("aÀbé1_-./'\\:&|!<> \n\0日ßx", max_size=12)


@given(texts=st.lists(LETTERS, min_size=1, max_size=4), asked=LETTERS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_databases_find_the_same(tmp_path: Path, postgres: str, texts: list[str], asked: str) -> None:
    """This holds for signs, accents and other scripts."""
    entries = [make_entry(number, text=text) for number, text in enumerate(texts)]
    found = []
    for index in (SqliteIndex(tmp_path / "index.sqlite"), PostgresIndex(postgres)):
        index.forget("orders")
        index.put(entries)
        found.append(list_names(index, text=asked))
    assert found[0] == found[1]
