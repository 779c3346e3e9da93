"""Rows of the DLQ are discarded, shown, searched and compared. Without Spark."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from destinations.delta.delta import Delta
from destinations.memory import Memory
from origins.memory import Memory as Rows
from runners.command_line import cli
from runners.model.entry import Entry
from runners.model.errors import Owned, Refusal
from runners.model.pipeline_state import PipelineState
from runners.model.run_report import Report
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.state.journal import Journal, list_decided
from runners.state.location import StateLocation
from runners.state.process_locks import StateLock, identify_host
from runners.state.run_history import RunHistory, RunRow
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
    owner.acquire({**identify_host(), "pipeline": "orders", "run": "r", **body})
    return owner


def test_discarded_rows_no_longer_wait(pipeline: Pipeline) -> None:
    """The DLQ still has the rows, and a second discard finds none. The ledger keeps the user and the reason."""
    assert pipeline.discard_dead_letters(Choice(code="PARSE"), reason="test files") == 2
    assert pipeline.discard_dead_letters(Choice(code="PARSE"), reason="test files") == 0
    assert [row["discarded"] for row in pipeline.dead_letters()] == [False, False, True, True]
    assert pipeline.status()["dlq"] == {"rows": 4, "unreplayed": 2, "fallback": 0}
    (settled,) = open_journal(pipeline).list_settled()
    assert settled.counts["discards"]["reason"] == "test files"
    assert "@" in settled.counts["discards"]["who"]
    assert pipeline.status()["lanes"] == {}


def test_a_decision_is_kept_when_entries_are_compacted(pipeline: Pipeline) -> None:
    """The compacted ledger still lists the discarded row."""
    pipeline.discard_dead_letters(Choice(ids=("p/2",)), reason="a test")
    acquire_journal(pipeline).compact(every=1)
    assert list_decided(open_journal(pipeline)).discarded == {"p/2"}
    assert list_decided(open_journal(pipeline)).replayed == frozenset()


def test_a_discard_does_not_stop_a_run(pipeline: Pipeline) -> None:
    """The run's next entry comes after the discard in the ledger."""
    owner = acquire_journal(pipeline)
    assert pipeline.discard_dead_letters(reason="a test") == 4
    owner.record(Entry(kind="plan", lane="0", plan="p1", body=make_planned(1).json()))
    assert len(list_decided(owner).discarded) == 4


def test_nothing_is_discarded_during_a_replay(pipeline: Pipeline) -> None:
    """This includes a dead process's replay that left an open batch. If it left none, rows can be discarded."""
    lock = StateLock(StateLocation.of(pipeline).lock)
    owner = acquire_journal(pipeline, replay={"reason": "a test"})
    assert lock.acquire()
    with pytest.raises(Owned, match="a replay of the DLQ of orders is under way"):
        pipeline.discard_dead_letters(reason="a test")
    lock.release()
    batch = replace(make_planned(1).batch, lane="dlq/origin")
    body = replace(make_planned(1), batch=batch).json()
    owner.record(Entry(kind="plan", lane="dlq/origin", plan="p1", body=body))
    with pytest.raises(Owned, match="a replay of the DLQ of orders is under way"):
        pipeline.discard_dead_letters(reason="a test")
    owner.record(Entry(kind="cancel", lane="dlq/origin", plan="p1"))
    assert pipeline.discard_dead_letters(reason="a test") == 4


def test_a_discard_needs_a_reason(pipeline: Pipeline) -> None:
    """A blank reason is refused."""
    with pytest.raises(Refusal, match="needs a reason"):
        pipeline.discard_dead_letters(reason=" ")


def test_causes_are_counted_with_first_last_and_example(pipeline: Pipeline) -> None:
    """The cause with the most waiting rows comes first. The example is a waiting row, if the cause has one."""
    pipeline.discard_dead_letters(Choice(ids=("p/4",)), reason="a test")
    cast, parse = pipeline.dead_letter_causes()
    assert (cast["code"], cast["stage"], cast["rows"], cast["waiting"]) == ("CAST", "cast", 2, 2)
    assert (cast["first"], cast["last"]) == ("2026-01-01T12:01:00.000+00:00", "2026-01-01T12:02:00.000+00:00")
    assert (parse["code"], parse["rows"], parse["waiting"], parse["example"]["id"]) == ("PARSE", 2, 1, "p/3")
    assert parse["example"]["row"] == {"id": 7}


def test_rows_of_a_cause_are_grouped_by_column_and_form(pipeline: Pipeline, tmp_path: Path) -> None:
    """A choice limits the grouped rows. The same choice limits the rows that are shown."""
    queue = tmp_path / "state" / "dlq"
    append_letters(queue, make_letters(5, 6, 7, message="column fare: '1,5' is not an int", part="landing/a.csv"))
    append_letters(queue, make_letters(8, message="column fare: 'n/a' is not an int", part="landing/b.csv"))
    chosen = Choice(column="fare")
    (cause,) = pipeline.dead_letter_causes(chosen)
    assert [(each["form"], each["rows"], each["files"]) for each in cause["forms"]] == [("9,9", 3, 1), ("a/a", 1, 1)]
    assert cause["rows"] == 4
    assert "id is" not in str(cause["forms"])
    rows = pipeline.dead_letters(choice=chosen)
    assert [(row["id"], row["part"]) for row in rows][2:] == [("p/7", "landing/a.csv"), ("p/8", "landing/b.csv")]
    assert [row["id"] for row in pipeline.dead_letters(1, choice=Choice(file="a.csv"))] == ["p/7"]
    assert pipeline.dead_letters(choice=Choice(column="none")) == []
    assert pipeline.dead_letter_causes(Choice(column="none")) == []


def test_a_row_that_was_refused_again_counts_once(pipeline: Pipeline, tmp_path: Path) -> None:
    """It counts under the cause of its last refusal, where it waits."""
    queue = tmp_path / "state" / "dlq"
    append_letters(queue, make_letters(1, plan="r", code="RULE", stage="rules", replays="p/1", message="too small"))
    cast, parse, rule = sorted(pipeline.dead_letter_causes(), key=lambda cause: str(cause["code"]))
    assert [cause["rows"] for cause in (cast, parse, rule)] == [1, 2, 1]
    pipeline.discard_dead_letters(Choice(ids=("p/3",)), reason="a test")
    (parse,) = pipeline.dead_letter_causes(Choice(code="PARSE"))
    assert [(each["rows"], each["waiting"]) for each in parse["forms"]] == [(2, 1)]
    assert [cause["rows"] for cause in pipeline.dead_letter_causes(Choice(ids=("p/1",)))] == [1]


def test_a_row_that_failed_repeatedly_names_its_first_entry(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` and `search` print it as text, and `show` in JSON. If that entry was deleted, the next entry is named."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    again = [("r", "p/1", "r is not the first"), ("s", "r/1", "third"), ("t", "s/1", "fourth")]
    again += [("u", "gone/1", "after retain")]
    for batch, before, why in again:
        append_letters(tmp_path / "state" / "dlq", make_letters(1, plan=batch, replays=before, message=why))
    names = {row["id"]: (row["replays"], row["first"]) for row in pipeline.dead_letters()}
    assert (names["r/1"], names["s/1"], names["t/1"]) == (("p/1", "p/1"), ("r/1", "p/1"), ("s/1", "p/1"))
    assert names["u/1"] == ("gone/1", "gone/1")
    assert names["p/1"] == (None, None)
    assert cli.execute(["dlq", "search", "third"]) == 0
    assert "waiting  id s/1  first refused as p/1" in capsys.readouterr().out
    assert cli.execute(["dlq", "show", "--id", "t/1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["first"] == "p/1"


def test_waiting_rows_are_shown_alone(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--limit` counts only waiting rows. If none waits, the output states it."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    pipeline.discard_dead_letters(Choice(ids=("p/2", "p/4")), reason="a test")
    assert [row["id"] for row in pipeline.dead_letters(waiting=True)] == ["p/1", "p/3"]
    assert [row["id"] for row in pipeline.dead_letters(1, waiting=True, choice=Choice(code="CAST"))] == ["p/1"]
    assert cli.execute(["dlq", "show", "orders.yaml", "--waiting"]) == 0
    shown = capsys.readouterr().out
    assert ("waiting  id p/1" in shown, "id p/2" in shown) == (True, False)
    pipeline.discard_dead_letters(reason="a test")
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
    every = ["--code", "CAST", "--stage", "cast", "--column", "fare", "--file", "*.csv", "--id", "p/9"]
    every += ["--since", "2026-01-01T12:09", "--until", "2026-01-01T12:10"]
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
        (["IS NOT AN"], ["p/9"]),
        (["kim@"], ["p/8"]),
        (["orders.yaml", "n/a", "--column", "fare"], ["p/9"]),
        (["--column", "mail=kim@*", "--column", "id=8"], ["p/8"]),
        (["--column", "mail=kim@*", "--column", "id=9"], []),
        (["--since", "2026-01-01T12:08"], ["p/8", "p/9"]),
        (["--since", "2026-01-01T12:08", "--until", "2026-01-01T12:09"], ["p/8"]),
        (["is not", "--until", "2026-01-01T12:09"], []),
    ],
)
def test_refused_rows_are_searched_by_text_column_and_time(
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
    assert cli.execute(["dlq", "search", *search, "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["rows"]] == found
    assert cli.execute(["dlq", "search", *search]) == 0
    assert (capsys.readouterr().out == "No such row is in the DLQ.\n") == (not found)


def test_the_newest_of_many_rows_that_match_are_found(pipeline: Pipeline, tmp_path: Path) -> None:
    """This holds with any number of newer rows, or rows with the same time. Older rows are read only if rows are
    lacking.
    """
    queue, noon = tmp_path / "state" / "dlq", datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
    append_letters(queue, make_letters(10, 11, 12, plan="old", message="column fare: 'n/a' is not an int"))
    append_letters(queue, make_letters(*range(1, 15_001), plan="q", nacked_at=noon))
    append_letters(queue, make_letters(*range(1, 15_001), plan="r", nacked_at=noon + timedelta(hours=1)))
    append_letters(queue, make_letters(1, 2, plan="s", message="column fare: 'n/a' is not an int", nacked_at=noon))
    for choice in (Choice(column="fare"), Choice(text="n/a")):
        ids = [row["id"] for row in pipeline.dead_letters(4, choice=choice)]
        assert ids == ["old/11", "old/12", "s/1", "s/2"]
        assert [row["id"] for row in pipeline.dead_letters(choice=choice)] == ["old/10", *ids]
    newest = [row["id"] for row in pipeline.dead_letters(2, choice=Choice(values=("id=7",)))]
    assert newest == ["r/14999", "r/15000"]


def test_only_the_wanted_rows_of_many_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DLQ may have millions of rows."""
    in_memory: set[int] = set()
    most = 0

    class Row(dict[str, int | str]):
        """A row that a weak reference can watch."""

    def list_rows(*_: object, **__: object) -> Iterator[Row]:
        nonlocal most
        for number in range(100):
            row = Row(id=str(number), nacked_at=number, lane=0, number=0, position=0)
            in_memory.add(number)
            weakref.finalize(row, in_memory.remove, number)
            most = max(most, len(in_memory))
            yield row

    monkeypatch.setattr(Choice, "list_rows", list_rows)
    newest = Choice(file="*.csv").list_newest(Delta(path="x"), lambda: pytest.fail("asked for Spark"), 2)
    assert newest == ["99", "98"]
    assert most < 10


def test_an_empty_search_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A search for two columns without values is refused too."""
    file = tmp_path / "orders.yaml"
    file.write_text(DEFINITION)
    assert cli.execute(["dlq", "search", str(file)]) == 2
    assert "Say what to search for: TEXT, --column NAME=VALUE" in capsys.readouterr().err
    assert cli.execute(["dlq", "search", str(file), "--column", "id", "--column", "mail"]) == 2
    assert "expected one NAME, and any number of NAME=VALUE, got id and mail" in capsys.readouterr().err


def test_a_choice_without_rows_is_not_reported_as_an_empty_dlq(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`summary` states that no such row is in the DLQ."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    assert cli.execute(["dlq", "summary", "--code", "NOPE"]) == 0
    assert capsys.readouterr().out == "No such row is in the DLQ.\n"


def test_protected_values_can_be_searched_and_stay_masked(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search for the value finds its row. A search for `=VALUE` without a column is refused."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(f"{DEFINITION}protect: [mail]\n")
    row = json.dumps({"id": 9, "mail": "anna@shop.example"})
    append_letters(
        tmp_path / "state" / "dlq", make_letters(9, row=row, original=row, message="no such mail anna@shop.example")
    )
    by_value, by_text = ["show", "--column", "mail=anna@shop.example"], ["show", "--text", "ANNA@shop"]
    for search in (by_value, by_text, ["search", "ANNA@shop"]):
        assert cli.execute(["dlq", *search]) == 0
        shown = capsys.readouterr().out
        assert "id p/9" in shown
        assert "anna" not in shown
        assert shown.endswith("Explain a row:  wherry dlq explain orders.yaml p/9\n")
    assert cli.execute(["dlq", "show", "orders.yaml", "--column", "=anna"]) == 2
    assert "expected NAME=VALUE, got '=anna'" in capsys.readouterr().err


def record_run(pipeline: Pipeline, run: str, at: str, *, read: int, lane: str = "0") -> None:
    """Record a run that settles one batch at this time."""
    owner = acquire_journal(pipeline, run=run)
    name, number = f"plan of {run}", owner.state.get_lane(lane).number + 1
    batch = replace(make_planned(number).batch, run=run, lane=lane, plan=name)
    counts = {**make_settle_entry().body["counts"], "read": read}
    owner.record(Entry(kind="plan", lane=lane, plan=name, body=replace(make_planned(1), batch=batch).json(), at=at))
    owner.record(
        replace(make_settle_entry(), lane=lane, plan=name, body={**make_settle_entry().body, "counts": counts}, at=at)
    )
    report = Report(pipeline="orders", run=run, status="succeeded", batches=1, read=read)
    owner.record(Entry(kind="release", body=report.json()))


@pytest.fixture
def runs(pipeline: Pipeline, tmp_path: Path) -> Pipeline:
    """The pipeline with four runs. The second refused no row, the third is a replay, the last is on another day."""
    moments = {
        run: datetime(2026, 2, day, 6, tzinfo=timezone.utc) for run, day in zip("abcd", (1, 1, 2, 3), strict=True)
    }
    record_run(pipeline, "a", moments["a"].isoformat(timespec="milliseconds"), read=10)
    record_run(pipeline, "b", "2026-02-01T07:00:00.000+00:00", read=20)
    record_run(pipeline, "c", "2026-02-02T06:00:00.000+00:00", read=2, lane="dlq/origin")
    record_run(pipeline, "d", "2026-02-03T06:00:00.000+00:00", read=40)
    for run, places, columns in (
        ("a", (1, 2, 3), {"code": "CAST"}),
        ("a", (4,), {"code": "RULE", "stage": "rules"}),
        ("c", (5,), {"code": "CAST", "lane": "dlq/origin", "replays": "plan of a/1"}),
        ("d", (6,), {"code": "CAST"}),
        ("d", (7, 8), {"code": "LOOKUP", "stage": "lookup"}),
    ):
        rows = make_letters(*places, plan=f"plan of {run}", run=run, nacked_at=moments[run], **columns)
        append_letters(tmp_path / "state" / "dlq", rows)
    return pipeline


def test_causes_are_compared_by_run(runs: Pipeline) -> None:
    """A run without refused rows counts, and a replay does not."""
    compared = runs.compare_causes(Choice(since=datetime(2026, 2, 1)))
    assert [(each["run"], each["read"], each["refused"]) for each in compared["periods"]] == [
        ("a", 10, 4),
        ("b", 20, 0),
        ("d", 40, 3),
    ]
    facts = [(each["code"], each["counts"], each["change"], each["share"]) for each in compared["causes"]]
    assert facts == [
        ("LOOKUP", [0, 0, 2], "new", 0.05),
        ("CAST", [3, 0, 1], None, 0.025),
        ("RULE", [1, 0, 0], None, 0),
    ]
    assert [(each["now"], each["before"]) for each in compared["causes"]] == [(2, 0), (1, 0), (0, 0)]


def test_causes_are_compared_by_day(runs: Pipeline) -> None:
    """Only the chosen rows are compared."""
    compared = runs.compare_causes(Choice(since=datetime(2026, 2, 1), stage="rules"), by="day")
    assert [(each["day"], each["read"]) for each in compared["periods"]] == [("2026-02-01", 30), ("2026-02-03", 40)]
    (cause,) = compared["causes"]
    assert (cause["stage"], cause["counts"], cause["change"]) == ("rules", [1, 0], "gone")


def test_a_cause_is_not_gone_while_the_last_run_is_active(runs: Pipeline) -> None:
    """The run may refuse such rows later."""
    owner = acquire_journal(runs, run="e")
    batch = replace(make_planned(4).batch, run="e", plan="e")
    counts = {**make_settle_entry().body["counts"], "read": 1}
    owner.record(Entry(kind="plan", lane="0", plan="e", body=replace(make_planned(4), batch=batch).json()))
    owner.record(replace(make_settle_entry(), plan="e", body={**make_settle_entry().body, "counts": counts}))
    compared = runs.compare_causes()
    assert compared["periods"][-1] | {"began": ""} == {
        "run": "e", "began": "", "read": 1, "refused": 0, "under_way": True,
    }  # fmt: skip
    assert {each["change"] for each in compared["causes"]} == {None}


def test_the_summary_has_a_chart_of_the_runs(
    runs: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With only one run it has no chart."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    assert cli.execute(["dlq", "summary", "orders.yaml", "--since", "2026-02-01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "The last run with rows began at 2026-02-03 06:00:00 (UTC). It read 40 rows."
    assert [line.split() for line in lines[2:6]] == [
        ["cause", "last", "run", "before", "of", "rows", "read", "the", "last", "3", "runs"],
        ["LOOKUP,", "lookup", "2", "0", "5.00%", "··█", "new"],
        ["CAST,", "cast", "1", "0", "2.50%", "█·▃"],
        ["RULE,", "rules", "0", "0", "0.00%", "█··"],
    ]
    assert lines[7] == "CAST, cast"
    assert cli.execute(["dlq", "summary", "orders.yaml", "--until", "2026-01-02"]) == 0
    assert capsys.readouterr().out.startswith("CAST, cast\n")
    assert cli.execute(["dlq", "summary", "orders.yaml", "--by", "day", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["compared"]["by"] == "day"


def test_the_summary_says_when_the_last_run_with_rows_began(
    runs: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run begins before it settles its first batch. A later run without new rows has no causes."""
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(DEFINITION)
    history = RunHistory(tmp_path / "state" / "runs", timedelta(days=9_999))
    for run, began in (("d", "2026-02-03T05:58:21+00:00"), ("nothing new", "2026-02-04T06:00:00+00:00")):
        history.write([RunRow.make_running("orders", run, "", datetime.fromisoformat(began))])
    assert runs.compare_causes()["periods"][-1]["began"] == "2026-02-03T05:58:21.000+00:00"
    assert cli.execute(["dlq", "summary", "orders.yaml"]) == 0
    said = capsys.readouterr().out.splitlines()[0]
    assert said == "The last run with rows began at 2026-02-03 05:58:21 (UTC). It read 40 rows."
    assert cli.execute(["dlq", "summary", "orders.yaml", "--by", "day"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "The last day with rows is 2026-02-03. It read 40 rows."


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


def test_an_empty_state_has_no_causes(tmp_path: Path) -> None:
    """The state is not created."""
    made = Pipeline(
        name="orders", origin=Rows(schema="id long"), destinations=[Memory()], state=str(tmp_path / "nowhere")
    )
    assert made.dead_letter_causes() == []
    assert made.discard_dead_letters(reason="a test") == 0
    assert not (tmp_path / "nowhere").exists()
    assert PipelineState().config == {}
