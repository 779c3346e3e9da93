"""An edited file is compared with the DLQ before anything is written. Without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest

from origins.batch import Span
from origins.codec import decode, encode
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.operations import correct_rows
from runners.operations.printing_state import format_corrected, format_exported
from runners.operations.row_files import ID
from runners.pipeline import Pipeline
from runners.running.choice import Choice
from runners.running.fix import Fix, GivenRows, find_given
from runners.running.replay import Replay
from runners.state.journal import Journal
from tests.runners.running.letterbox import append_letters, make_letters
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.runners.state.ledger.test_progress import DECISION, make_planned

FIELDS = {"id": "long", "email": "string", "amount": "string"}
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS.items()],
    }
)
UNREAD = '{"type":"struct","fields":[{"name":"raw","type":"string","nullable":true,"metadata":{}}]}'
DEFINITION = """
name: orders
origin: {files: {path: x, format: json, schema: "id long, email string, amount string"}}
destinations: [{delta: {path: t}}]
"""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the code asks for Spark."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise AssertionError("asked for Spark")

    monkeypatch.setattr("runners.state.location.obtain_for", fail)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path for exported rows. A pipeline beside it has four refused rows, one of them an unread line."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    rows = []
    for place in (1, 2, 3):
        values = {"id": place, "email": f"ann{place}@shop.example", "amount": f"{place},50"}
        rows += make_letters(
            place,
            original=json.dumps(values),
            row=json.dumps(values),
            original_schema=SCHEMA,
            message=f"amount '{place},50' of ann{place}@shop.example is no number",
        )
    rows += make_letters(4, original='{"raw": "{"}', original_schema=UNREAD, stage="origin")
    append_letters(tmp_path / ".wherry/orders/dlq", rows)
    return tmp_path / "rows.csv"


def load_beside(file: Path, more: str = "") -> Pipeline:
    """Return the pipeline beside the file."""
    (file.parent / "orders.yaml").write_text(DEFINITION + more)
    return Pipeline.load(file.parent / "orders.yaml")


def discard_rows(file: Path, *ids: str) -> None:
    """Discard these rows."""
    load_beside(file).refused.discard(Choice(ids=ids), reason="a test")


def test_an_export_has_the_waiting_rows_and_counts_the_others(file: Path) -> None:
    """A discarded row is not exported. An unread line has no columns, so it is counted as left out."""
    discard_rows(file, "p/2")
    exported = load_beside(file).refused.export(file)
    assert (exported.rows, exported.masked) == (2, False)
    assert [*exported.left.values()] == [1]
    assert "could not read these lines" in next(iter(exported.left))
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    assert lines[0] == "_wherry_id,_wherry_code,_wherry_message,id,email,amount"
    assert lines[1] == 'p/1,CAST,"amount \'1,50\' of ann1@shop.example is no number",1,ann1@shop.example,"1,50"'
    assert load_beside(file).refused.export(file.with_suffix(".json"), choice=Choice(ids=("p/3",))).rows == 1


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice(code="NOPE"), "No row that waits meets the choice, so no file was written."),
        (
            Choice(ids=("p/4",)),
            "None of the chosen rows can be corrected, so no file was written.\n1 row ",
        ),
    ],
)
def test_an_export_without_a_row_writes_no_file(file: Path, choice: Choice, words: str) -> None:
    """The output states the reason."""
    exported = load_beside(file).refused.export(file, choice=choice)
    assert (exported.rows, exported.json()["file"], file.exists()) == (0, None, False)
    assert format_exported(exported, "orders.yaml").startswith(words)


@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_an_unedited_file_changes_nothing(file: Path, ending: str) -> None:
    """With `unchanged=True` the rows are replayed as they were read."""
    file = file.with_suffix(ending)
    load_beside(file).refused.export(file)
    same = load_beside(file).refused.correct(file)
    assert (same.changed, same.unchanged, bool(same.rows)) == (0, 3, False)
    every = load_beside(file).refused.correct(file, unchanged=True)
    assert json.loads(every.rows.texts["p/2"]) == {"id": 2, "email": "ann2@shop.example", "amount": "2,50"}
    assert [*every.rows.texts] == ["p/1", "p/2", "p/3"]


def edit_and_read(file: Path, change: Callable[[str], str]) -> correct_rows.CorrectedRows:
    """Export the rows, change the file's text, and return what Wherry finds in it."""
    load_beside(file).refused.export(file)
    text = file.read_text(encoding="utf-8-sig")
    assert change(text) != text
    file.write_text(change(text), encoding="utf-8")
    return load_beside(file).refused.correct(file)


def test_the_rows_of_an_edited_file_are_counted(file: Path) -> None:
    """The counts are of changed, unchanged, duplicate and decided rows."""
    load_beside(file).refused.export(file)
    discard_rows(file, "p/3")
    lines = file.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    file.write_text("".join([*lines, lines[2]]).replace("3,50", "3.50"), encoding="utf-8")
    found = load_beside(file).refused.correct(file)
    counts = {"changed": 1, "unchanged": 2, "replayed": 0, "discarded": 1, "duplicated": 1}
    assert found.json() == {"file": str(file), **counts}
    words = "1 row changed, 2 unchanged. Of these, 1 was discarded before. 1 row is in the file twice."
    assert format_corrected(found) == words
    assert found.rows.texts == {"p/3": '{"id": 3, "email": "ann3@shop.example", "amount": "3.50"}'}


def test_a_column_that_the_file_lacks_keeps_its_value(file: Path) -> None:
    """The file's columns may be in any order, in upper or lower case."""
    file.write_text(f"AMOUNT,{ID}\n1.50,p/1\n")
    assert json.loads(load_beside(file).refused.correct(file).rows.texts["p/1"]) == {
        "id": 1,
        "email": "ann1@shop.example",
        "amount": "1.50",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("p/2", "p/9"), "row 3, the DLQ has no row p/9"),
        (lambda text: text.replace("p/2", ""), "row 3, it has no id"),
        (lambda text: text.replace("p/2", "p/4"), "row 3, it cannot be replayed: the origin could not read"),
        (lambda text: text.replace(",2,ann2", ",2.5,ann2"), r"row 3, column id: 2\.5 is not a bigint"),
        (lambda text: text.replace("p/3", "p/2"), "row 4, it has the id of row 3, and other values"),
        (lambda text: text.replace(",amount\n", ",amout\n").replace("e,amount", "e,amout"), "column amout: this row"),
        (
            lambda text: text.replace("email,amount\n", "AMOUNT,amount\n"),
            "column amount and column AMOUNT are the same",
        ),
        (lambda text: text.replace("p/", "q/"), "row 2.*\n.*row 3.*\n.*row 4"),
    ],
)
def test_an_invalid_row_is_named_before_anything_is_written(
    file: Path, change: Callable[[str], str], message: str
) -> None:
    """The message names the row's number, as a spreadsheet counts, and its column."""
    with pytest.raises(Refusal, match=re.compile(message, re.DOTALL)) as refused:
        edit_and_read(file, lambda text: change(text.replace("\r\n", "\n")))
    assert "rows.csv was not taken, and nothing was written" in str(refused.value)


def test_too_many_rows_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger keeps the id of each row."""
    monkeypatch.setattr(correct_rows, "MOST_CORRECTED", 1)
    with pytest.raises(Refusal, match=r"changes 3 rows; Wherry takes at most 1 at once"):
        edit_and_read(file, lambda text: text.replace("shop.", "the."))


PROTECT = "protect: [email]\n"


@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_protected_values_are_masked_and_masks_are_never_replayed(file: Path, ending: str) -> None:
    """With `--reveal` the values are exported, and can be replayed."""
    file = file.with_suffix(ending)
    assert load_beside(file, PROTECT).refused.export(file).masked
    assert b"shop.example" not in file.read_bytes()
    with pytest.raises(Refusal, match="was exported with masked values"):
        load_beside(file, PROTECT).refused.correct(file)
    file.unlink()
    load_beside(file, PROTECT).refused.export(file, reveal=True)
    assert load_beside(file, PROTECT).refused.correct(file).unchanged == 3


@pytest.mark.parametrize("mask", ["a***", "b***", "***"])
def test_a_mask_is_not_taken_from_a_file_without_its_mark(file: Path, mask: str) -> None:
    """The mask of another row is refused too, and the message has no protected value. A new value is accepted."""
    pipeline = load_beside(file, PROTECT)
    for given in (mask, 7):
        with pytest.raises(Refusal, match="row 1, column email") as refused:
            pipeline.refused.correct({"p/1": {"email": given}})
        assert "shop.example" not in str(refused.value)
    assert pipeline.refused.correct({"p/1": {"email": "new@shop.example"}}).changed == 1
    assert load_beside(file).refused.correct({"p/1": {"email": mask}}).changed == 1


def test_the_ledger_keeps_a_key_of_the_fix_and_no_value(file: Path) -> None:
    """The same values make the same fix, wherever the file is. Another value makes another fix."""
    first = load_beside(file).refused.correct({"p/1": {"amount": "1.50"}})
    again = load_beside(file).refused.correct({"p/1": {"amount": "1.50"}})
    other = load_beside(file).refused.correct({"p/1": {"amount": "1.51"}})
    replay = first.make_replay(reason="by hand")
    body = json.loads(json.dumps(replay.json()))
    assert "1.50" not in json.dumps(body)
    assert decode(Fix, body["fix"]).key == replay.fix.key == again.make_replay(reason="x").fix.key
    assert other.make_replay(reason="x").fix.key != replay.fix.key
    assert (replay.choice.ids, replay.fix.describe()) == (("p/1",), "1 edited row")
    with pytest.raises(Refusal, match="needs a reason"):
        first.make_replay(reason=" ")


def test_a_replay_of_edited_rows_is_pinned_like_any_fix(file: Path) -> None:
    """The fix stays in the state until a run succeeds, even if the same file is given again."""
    rows = GivenRows.of({"p/1": "{}", "p/2": "{}"})
    replay = Replay(choice=Choice(ids=("p/1", "p/2")), fix=Fix(rows=rows, file="/a/rows.csv"), reason="x")
    moved = Replay(choice=replay.choice, fix=Fix(rows=rows, file="/b/rows.csv"), reason="y")
    journal = Journal(MemoryLedger())
    for each in (replay, moved):
        journal.acquire({"pipeline": "orders", "replay": json.loads(json.dumps(each.json()))})
        pinned = Replay.resume(journal.state)
        assert (pinned.fix.key, pinned.reason, pinned.choice.ids) == (replay.fix.key, "x", ("p/1", "p/2"))
    journal.record(Entry(kind="release", body={"status": "succeeded"}))
    assert journal.state.replay is None


def test_the_state_keeps_corrected_rows_until_all_are_settled() -> None:
    """If the fix of a replay is a function, it is not loaded to find this out."""
    journal = Journal(MemoryLedger())
    assert not find_given(journal)
    rows = GivenRows.of({"p/1": "{}", "p/2": "{}"})
    replay = Replay(choice=Choice(ids=("p/1", "p/2")), fix=Fix(rows=rows), reason="x")
    journal.acquire({"pipeline": "orders", "replay": json.loads(json.dumps(replay.json()))})
    assert find_given(journal).name == rows.name
    for number, id_ in enumerate(("p/1", "p/2"), 1):
        batch = replace(
            make_planned(number).batch, lane="dlq/origin", span=Span(start=None, parts=(id_,), end=id_, label="")
        )
        journal.record(
            Entry(
                kind="plan",
                lane="dlq/origin",
                plan=f"p{number}",
                body=encode(replace(make_planned(number), batch=batch)),
            )
        )
        counts = {**encode(DECISION.counts), "delivered": {"orders": 1}, "discarded": 0, "balanced": True}
        body = {"offset": id_, "counts": counts, "window": {"rows": 1, "nacks": []}, "clean": 0, "owed": []}
        journal.record(Entry(kind="settle", lane="dlq/origin", plan=f"p{number}", body=body))
        assert bool(find_given(journal)) is (number == 1)
    python = {"python": "import nowhere_at_all", "file": "gone.py", "start": "beginning"}
    journal.acquire({"pipeline": "orders", "replay": {**replay.json(), "fix": python}})
    assert not find_given(journal)


INSIDE = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
PYTHON_VALUES: list[tuple[Any, Any, str]] = [
    ("long", 7.0, "7"),
    ("double", 7.0, "7.0"),
    ("double", float("-inf"), '"-Infinity"'),
    ("boolean", False, "false"),
    ("decimal(10,2)", Decimal("1.25"), "1.25"),
    ("date", date(2026, 1, 31), '"2026-01-31"'),
    ("timestamp", datetime(2026, 1, 31, 6, tzinfo=timezone.utc), '"2026-01-31T06:00:00.000000Z"'),
    ("binary", b"ab", '"YWI="'),
    ({"type": "array", "elementType": "long", "containsNull": True}, [1, None], "[1, null]"),
    ({"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}, {"a": 1}, '{"a": 1}'),
    ({"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}, [("a", 1)], '{"a": 1}'),
    ({"type": "array", "elementType": "long", "containsNull": True}, (5.0,), "[5]"),
    (INSIDE, {"n": 5.0}, '{"n": 5}'),
    (INSIDE, '{"n": 5}', '{"n": 5}'),
]


@pytest.mark.parametrize(("kind", "value", "text"), PYTHON_VALUES)
def test_a_python_value_becomes_json_of_the_dlq(file: Path, kind: Any, value: Any, text: str) -> None:
    """It is checked as a cell of a file is."""
    schema = {"type": "struct", "fields": [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]}
    row = make_letters(1, plan="q", original='{"x": null}', original_schema=json.dumps(schema))
    append_letters(file.parent / ".wherry/orders/dlq", row)
    found = load_beside(file).refused.correct({"q/1": {"x": value}}).rows.texts["q/1"]
    assert found == f'{{"x": {text}}}'
    with pytest.raises(Refusal, match="row 1, column x"):
        load_beside(file).refused.correct({"q/1": {"x": object()}})
