"""Rows of the DLQ are discarded, shown, searched and counted. Without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from destinations.memory import Memory
from origins.codec import encode
from origins.memory import Memory as Rows
from runners.command_line import cli
from runners.model.causes import CauseCounter
from runners.model.entry import Entry
from runners.model.errors import Owned, Refusal
from runners.model.run_report import Report
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.state.journal import Journal, list_decided
from runners.state.location import StateLocation
from runners.state.process_locks import StateLock, identify_host
from tests.runners.running.letterbox import append_letters, make_letters
from tests.runners.state.ledger.test_progress import make_planned, make_settle_entry


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline with four refused rows that is not running."""
    made = Pipeline(
        name="orders",
        origin=Rows(name="origin", schema="id long"),
        destinations=[Memory(name="a")],
        state=str(tmp_path / "state"),
    )
    acquire_journal(made)
    open_journal(made).ledger.append(
        [Entry(kind="release", body={"status": "succeeded"})], after=open_journal(made).state.seq
    )
    append_letters(tmp_path / "state" / "dlq", make_letters(1, 2, code="CAST") + make_letters(3, 4, code="PARSE"))
    return made


def open_journal(pipeline: Pipeline) -> Journal:
    """Return the pipeline's ledger, as another process reads it."""
    return Journal(StateLocation.of(pipeline).open_ledger(None))


def acquire_journal(pipeline: Pipeline, **body: object) -> Journal:
    """Return the ledger after a run acquired it."""
    owner = open_journal(pipeline)
    owner.acquire({**vars(identify_host()), "pipeline": "orders", "run": "r", **body})
    return owner


def test_discarded_rows_no_longer_wait(pipeline: Pipeline) -> None:
    """The DLQ still has the rows, and a second discard finds none. The ledger keeps the user and the reason."""
    assert pipeline.refused.discard(Choice(code="PARSE"), reason="test files") == 2
    assert pipeline.refused.discard(Choice(code="PARSE"), reason="test files") == 0
    assert [row["discarded"] for row in pipeline.refused.list()] == [False, False, True, True]
    assert pipeline.status()["dlq"] == {"rows": 4, "unreplayed": 2, "fallback": 0}
    (settled,) = open_journal(pipeline).list_settled()
    assert settled.counts.discards["reason"] == "test files"
    assert "@" in settled.counts.discards["who"]
    assert pipeline.status()["lanes"] == {}


def test_a_decision_is_kept_when_entries_are_compacted(pipeline: Pipeline) -> None:
    """The compacted ledger still lists the discarded row."""
    pipeline.refused.discard(Choice(ids=("p/2",)), reason="a test")
    acquire_journal(pipeline).compact(every=1)
    assert list_decided(open_journal(pipeline)).discarded == {"p/2"}
    assert list_decided(open_journal(pipeline)).replayed == frozenset()


def test_a_discard_does_not_stop_a_run(pipeline: Pipeline) -> None:
    """The run's next entry comes after the discard in the ledger."""
    owner = acquire_journal(pipeline)
    assert pipeline.refused.discard(reason="a test") == 4
    owner.record(Entry(kind="plan", lane="0", plan="p1", body=encode(make_planned(1))))
    assert len(list_decided(owner).discarded) == 4


def test_nothing_is_discarded_during_a_replay(pipeline: Pipeline) -> None:
    """This includes a dead process's replay that left an open batch. If it left none, rows can be discarded."""
    lock = StateLock(StateLocation.of(pipeline).lock)
    owner = acquire_journal(pipeline, replay={"reason": "a test"})
    assert lock.acquire()
    with pytest.raises(Owned, match="a replay of the DLQ of orders is under way"):
        pipeline.refused.discard(reason="a test")
    lock.release()
    batch = replace(make_planned(1).batch, lane="dlq/origin")
    body = encode(replace(make_planned(1), batch=batch))
    owner.record(Entry(kind="plan", lane="dlq/origin", plan="p1", body=body))
    with pytest.raises(Owned, match="a replay of the DLQ of orders is under way"):
        pipeline.refused.discard(reason="a test")
    owner.record(Entry(kind="cancel", lane="dlq/origin", plan="p1"))
    assert pipeline.refused.discard(reason="a test") == 4


def test_a_discard_needs_a_reason(pipeline: Pipeline) -> None:
    """A blank reason is refused."""
    with pytest.raises(Refusal, match="needs a reason"):
        pipeline.refused.discard(reason=" ")


def test_causes_are_counted_with_first_last_and_example(pipeline: Pipeline) -> None:
    """The cause with the most waiting rows comes first. The example is a waiting row, if the cause has one."""
    pipeline.refused.discard(Choice(ids=("p/4",)), reason="a test")
    cast, parse = pipeline.refused.causes()
    assert (cast["code"], cast["stage"], cast["rows"], cast["waiting"]) == ("CAST", "cast", 2, 2)
    assert (cast["first"], cast["last"]) == ("2026-01-01T12:01:00.000+00:00", "2026-01-01T12:02:00.000+00:00")
    assert (parse["code"], parse["rows"], parse["waiting"], parse["example"]["id"]) == ("PARSE", 2, 1, "p/3")
    assert parse["example"]["row"] == {"id": 7}


def test_rows_of_a_cause_are_grouped_by_column_and_form(pipeline: Pipeline, tmp_path: Path) -> None:
    """A choice limits the grouped rows. The same choice limits the rows that are shown."""
    queue = tmp_path / "state" / "dlq"
    append_letters(queue, make_letters(5, 6, 7, message="column fare: '1,5' is not an int", part="landing/a.csv"))
    append_letters(queue, make_letters(8, message="column fare: 'n/a' is not an int", part="landing/b.csv"))
    chosen = Choice(text="column fare:")
    (cause,) = pipeline.refused.causes(chosen)
    assert [(each["form"], each["rows"], each["files"]) for each in cause["forms"]] == [("9,9", 3, 1), ("a/a", 1, 1)]
    assert cause["rows"] == 4
    assert "id is" not in str(cause["forms"])
    rows = pipeline.refused.list(choice=chosen)
    assert [(row["id"], row["part"]) for row in rows][2:] == [("p/7", "landing/a.csv"), ("p/8", "landing/b.csv")]
    assert [row["id"] for row in pipeline.refused.list(1, choice=Choice(file="a.csv"))] == ["p/7"]
    assert pipeline.refused.list(choice=Choice(text="column none:")) == []
    assert pipeline.refused.causes(Choice(text="column none:")) == []


VALUES = ("1", "22", "n/a", "it's", "a; column b: 'x' is not", "x = 1, y = 2", "é7", "", "NULL", "abc")
WORDS = (
    *(
        "column a1: '{}' is not an int",
        "column a1: NULL is not an int",
        "column a2: '{}' is not an int; column b: '{}', no",
    ),
    *("zones has no row with id = {}, b = {}", "line {} is bad", "'{}' has no row with", "{}", "column {}"),
    f"{'1 ' * 60}{{}}",
)
PLACES = ("", "{}: ", "{} offset 7: ")


def test_many_messages_are_grouped_as_if_each_was_read(pipeline: Pipeline, tmp_path: Path) -> None:
    """The origin wrote the file, or the partition and the offset, in front of some of them."""
    counters, letters = {"A": CauseCounter(), "B": CauseCounter()}, []
    for number, (words, value, other, place) in enumerate(product(WORDS, VALUES, VALUES[:2], PLACES), 1):
        part, code = f"{number % 7 * 'x'}.csv", "AB"[number % 2]
        message = place.format(part) + words.format(value, other)
        letters += make_letters(number, code=code, message=message, part=part)
        counters[code].add({"code": code, "stage": "cast", "message": message}, files=[part], waiting=1, rank=message)
    append_letters(tmp_path / "state" / "dlq", letters)
    found = {cause["code"]: cause for cause in pipeline.refused.causes()}
    for code, counter in counters.items():
        assert (found[code]["rows"], found[code]["waiting"]) == (len(letters) // 2, len(letters) // 2)
        assert sort_forms(found[code]["forms"]) == sort_forms(counter.count().json())


def sort_forms(forms: Any) -> list[Any]:
    """Return the forms in an order of their own, because those with as many rows have none."""
    return sorted(forms, key=lambda form: (form["problem"], form["form"]))


def test_a_row_that_was_refused_again_counts_once(pipeline: Pipeline, tmp_path: Path) -> None:
    """It counts under the cause of its last refusal, where it waits."""
    queue = tmp_path / "state" / "dlq"
    append_letters(queue, make_letters(1, plan="r", code="RULE", stage="rules", replays="p/1", message="too small"))
    cast, parse, rule = sorted(pipeline.refused.causes(), key=lambda cause: str(cause["code"]))
    assert [cause["rows"] for cause in (cast, parse, rule)] == [1, 2, 1]
    pipeline.refused.discard(Choice(ids=("p/3",)), reason="a test")
    (parse,) = pipeline.refused.causes(Choice(code="PARSE"))
    assert [(each["rows"], each["waiting"]) for each in parse["forms"]] == [(2, 1)]
    assert [cause["rows"] for cause in pipeline.refused.causes(Choice(ids=("p/1",)))] == [1]


def test_a_row_that_failed_repeatedly_names_its_first_entry(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` prints it as text and in JSON. If that entry was deleted, the next entry is named."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    again = [("r", "p/1", "r is not the first"), ("s", "r/1", "third"), ("t", "s/1", "fourth")]
    again += [("u", "gone/1", "after retain")]
    for batch, before, why in again:
        append_letters(tmp_path / "state" / "dlq", make_letters(1, plan=batch, replays=before, message=why))
    names = {row["id"]: (row["replays"], row["first"]) for row in pipeline.refused.list()}
    assert (names["r/1"], names["s/1"], names["t/1"]) == (("p/1", "p/1"), ("r/1", "p/1"), ("s/1", "p/1"))
    assert names["u/1"] == ("gone/1", "gone/1")
    assert names["p/1"] == (None, None)
    assert cli.execute(["dlq", "show", "--text", "third"]) == 0
    assert "waiting  id s/1  first refused as p/1" in capsys.readouterr().out
    assert cli.execute(["dlq", "show", "--id", "t/1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["first"] == "p/1"


def test_waiting_rows_are_shown_alone(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--limit` counts only waiting rows. If none waits, the output states it."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    pipeline.refused.discard(Choice(ids=("p/2", "p/4")), reason="a test")
    assert [row["id"] for row in pipeline.refused.list(waiting=True)] == ["p/1", "p/3"]
    assert [row["id"] for row in pipeline.refused.list(1, waiting=True, choice=Choice(code="CAST"))] == ["p/1"]
    assert cli.execute(["dlq", "show", "orders.yaml", "--waiting"]) == 0
    shown = capsys.readouterr().out
    assert ("waiting  id p/1" in shown, "id p/2" in shown) == (True, False)
    pipeline.refused.discard(reason="a test")
    assert cli.execute(["dlq", "show", "orders.yaml", "--waiting"]) == 0
    assert capsys.readouterr().out == "No row waits in the DLQ.\n"


def test_the_same_options_choose_rows_for_each_command(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` prints the id and file, and `summary` the forms. An invalid time is refused."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    append_letters(
        tmp_path / "state" / "dlq", make_letters(9, message="column fare: '1,5' is not an int", part="landing/a.csv")
    )
    every = ["--code", "CAST", "--stage", "cast", "--text", "column fare:", "--file", "*.csv", "--id", "p/9"]
    every += ["--since", "2026-01-01T12:09"]
    assert cli.execute(["dlq", "show", "orders.yaml", *every]) == 0
    assert "id p/9  file a.csv" in capsys.readouterr().out
    assert cli.execute(["dlq", "summary", "orders.yaml", *every]) == 0
    assert "  fare is not an int: 1 row like '1,5' in a.csv" in capsys.readouterr().out
    assert cli.execute(["dlq", "discard", "orders.yaml", *every, "--reason", "a test", "--yes"]) == 0
    assert "Discarded: 1 row." in capsys.readouterr().out
    assert cli.execute(["dlq", "show", "orders.yaml", "--since", "soon"]) == 2
    assert "expected a time such as 2026-01-31T06:00, got 'soon'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("search", "found"),
    [
        (["--text", "IS NOT AN"], ["p/9"]),
        (["--text", "kim@"], ["p/8"]),
        (["orders.yaml", "--text", "n/a", "--stage", "cast"], ["p/9"]),
        (["--text", "kim@", "--code", "PARSE"], []),
        (["--since", "2026-01-01T12:08"], ["p/8", "p/9"]),
        (["--text", "kim@", "--since", "2026-01-01T12:09"], []),
    ],
)
def test_refused_rows_are_searched_by_text_and_time(
    pipeline: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    search: list[str],
    found: list[str],
) -> None:
    """Conditions work alone or together. The text may be in the row, in the row as read, or in the reason."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    append_letters(
        tmp_path / "state" / "dlq", make_letters(8, original=json.dumps({"id": 8, "mail": "kim@shop.example"}))
    )
    append_letters(tmp_path / "state" / "dlq", make_letters(9, message="column fare: 'n/a' is not an int"))
    assert cli.execute(["dlq", "show", *search, "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["rows"]] == found
    assert cli.execute(["dlq", "show", *search]) == 0
    assert (capsys.readouterr().out == "No such row is in the DLQ.\n") == (not found)


def test_the_newest_of_many_rows_that_match_are_found(pipeline: Pipeline, tmp_path: Path) -> None:
    """This holds with any number of newer rows, or rows with the same time."""
    queue, noon = tmp_path / "state" / "dlq", datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
    append_letters(queue, make_letters(10, 11, 12, plan="old", message="column fare: 'n/a' is not an int"))
    append_letters(queue, make_letters(*range(1, 15_001), plan="q", nacked_at=noon))
    append_letters(queue, make_letters(*range(1, 15_001), plan="r", nacked_at=noon + timedelta(hours=1)))
    append_letters(queue, make_letters(1, 2, plan="s", message="column fare: 'n/a' is not an int", nacked_at=noon))
    for choice in (Choice(text="column fare:"), Choice(text="n/a")):
        ids = [row["id"] for row in pipeline.refused.list(4, choice=choice)]
        assert ids == ["old/11", "old/12", "s/1", "s/2"]
        assert [row["id"] for row in pipeline.refused.list(choice=choice)] == ["old/10", *ids]
    newest = [row["id"] for row in pipeline.refused.list(2, choice=Choice(text='"id": 7'))]
    assert newest == ["r/14999", "r/15000"]


def test_protected_values_can_be_searched_and_stay_masked(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search for the value finds its row."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(f"{DEFINITION}protect: [mail]\n")
    row = json.dumps({"id": 9, "mail": "anna@shop.example"})
    append_letters(
        tmp_path / "state" / "dlq", make_letters(9, row=row, original=row, message="no such mail anna@shop.example")
    )
    for text in ("ANNA@shop", '"mail": "anna@'):
        assert cli.execute(["dlq", "show", "--text", text]) == 0
        shown = capsys.readouterr().out
        assert "id p/9" in shown
        assert "anna" not in shown
        assert shown.endswith("Explain a row:  wherry dlq explain orders.yaml p/9\n")


def record_run(pipeline: Pipeline, run: str, at: str, *, read: int, lane: str = "0") -> None:
    """Record a run that settles one batch at this time."""
    owner = acquire_journal(pipeline, run=run)
    name, number = f"plan of {run}", owner.state.get_lane(lane).number + 1
    batch = replace(make_planned(number).batch, run=run, lane=lane, plan=name)
    counts = {**make_settle_entry().body["counts"], "read": read}
    owner.record(Entry(kind="plan", lane=lane, plan=name, body=encode(replace(make_planned(1), batch=batch)), at=at))
    owner.record(
        replace(make_settle_entry(), lane=lane, plan=name, body={**make_settle_entry().body, "counts": counts}, at=at)
    )
    report = Report(pipeline="orders", run=run, status="succeeded", batches=1, read=read)
    owner.record(Entry(kind="release", body=report.json()))


DEFINITION = """
name: orders
origin: {memory: {schema: "id long"}, name: origin}
destinations: [{memory: {}}]
state: state
"""


def test_the_dlq_commands_print_what_they_did(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`discard` asks first, and `summary` prints the causes. Both print JSON too."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    words = ["dlq", "discard", "orders.yaml", "--stage", "cast", "--code", "PARSE", "--reason", "a test"]
    assert cli.execute(words) == 2
    assert "2 rows of the DLQ will be discarded" in capsys.readouterr().err
    assert cli.execute([*words, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "discarded": 2}
    assert cli.execute(["dlq", "summary", "orders.yaml"]) == 0
    assert "CAST, cast" in capsys.readouterr().out
    assert cli.execute(["dlq", "summary", "orders.yaml", "--json"]) == 0
    assert [cause["waiting"] for cause in json.loads(capsys.readouterr().out)["causes"]] == [2, 0]
    assert cli.execute(["dlq", "replay", "orders.yaml", "--code", "CAST"]) == 2
    assert "needs a reason" in capsys.readouterr().err
    assert cli.execute(["dlq", "replay", "orders.yaml", "--code", "CAST", "--reason", "a test"]) == 2
    said = capsys.readouterr().err
    assert "without a terminal Wherry cannot ask" in said
    assert "2     1        memory" in said
    assert cli.execute(["dlq", "replay", "orders.yaml", "--code", "PARSE", "--reason", "a test", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batches"] == 0
