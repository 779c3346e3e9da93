"""Which rows of the DLQ are replayed, in which batches, and which are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from destinations.delta import Delta
from destinations.memory import Memory
from origins.batch import Json, Span
from origins.nack import RAW
from origins.protection import Protection
from runners.model.entry import Entry, Settled
from runners.model.errors import Refusal
from runners.model.planned_batch import SettledCounts
from runners.operations.dlq import summarise_causes
from runners.running.choice import Choice, Letter, count_causes_of_run
from runners.running.replay import MOST, leave_to_backfills, sort
from runners.state.journal import DecidedLetters, Journal
from runners.ways.stage_chain import StageChain
from stages.conditions import Filter
from stages.sql import Sql
from tests.runners.running.letterbox import NOON, append_letters, make_letters
from tests.runners.state.ledger.memory_ledger import MemoryLedger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = {"origin": StageChain.of([Filter("id > 1")], {"a": Memory(name="a"), "b": Memory(name="b")})}


def refuse_spark() -> NoReturn:
    """Fail if the code asks for Spark."""
    raise AssertionError("asked for Spark")


@pytest.fixture
def dlq(tmp_path: Path) -> Delta:
    """Five rows: `cast` refused two, a rule refused two, and a destination refused one."""
    queue = Delta(path=str(tmp_path / "dlq"), name="dlq")
    append_letters(tmp_path / "dlq", make_letters(4, stage="b/delta", code="CHECK", destination="b"))
    append_letters(tmp_path / "dlq", make_letters(2, 1) + make_letters(5, 3, stage="require", code="positive"))
    return queue


def list_places(found: Sequence[Letter]) -> list[int]:
    """Return the places of the rows in their batch."""
    return [int(letter.id.partition("/")[2]) for letter in found]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (Choice(), [1, 2, 3, 4, 5]),
        (Choice(ids=("p/4", "p/2")), [2, 4]),
        (Choice(code="CAST"), [1, 2]),
        (Choice(stage="require"), [3, 5]),
        (Choice(stage="b"), [4]),
        (Choice(stage="require", ids=("p/5", "p/1")), [5]),
        (Choice(since=NOON + timedelta(minutes=2), until=NOON + timedelta(minutes=4)), [2, 3]),
        (Choice(since=datetime(2026, 1, 1, 12, 5)), [5]),
    ],
)
def test_rows_are_chosen_by_id_code_stage_and_time(dlq: Delta, choice: Choice, found: list[int]) -> None:
    """All conditions must hold. The oldest rows come first, and Spark is not started."""
    assert list_places(choice.select_letters(dlq, refuse_spark, ())) == found


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (Choice(file="a.csv"), [1]),
        (Choice(file="file:///landing/a.csv"), [1]),
        (Choice(file="*.csv"), [1, 2]),
        (Choice(file="b c.csv"), [2]),
        (Choice(file="[ab].csv"), []),
        (Choice(file="landing/*.csv"), []),
        (Choice(file="file:///*.csv"), [1, 2]),
        (Choice(file="*.csv", text="column tip:"), [2]),
    ],
)
def test_rows_are_chosen_by_file(tmp_path: Path, choice: Choice, found: list[int]) -> None:
    """The file is given by its name, its path or a pattern."""
    fare, both = "column fare: '1,5' is not an int", "column fare: 'x' is not an int; column tip: 'y' is not an int"
    append_letters(tmp_path / "dlq", make_letters(1, message=fare, part="file:///landing/a.csv"))
    append_letters(tmp_path / "dlq", make_letters(2, message=both, part="file:///landing/b%20c.csv"))
    append_letters(tmp_path / "dlq", make_letters(3, message="no"))
    queue = Delta(path=str(tmp_path / "dlq"), name="dlq")
    assert list_places(choice.list_letters(queue, refuse_spark)) == found


@pytest.fixture
def sales(tmp_path: Path) -> Delta:
    """Rows with all kinds of values. The last row could not be read."""
    rows: list[tuple[Json, Json]] = [
        ({"id": 7, "mail": "Anna@shop.example", "price": 10.50, "buyer": {"city": "Köln"}}, {"id": "seven"}),
        ({"id": 70, "mail": None, "price": 1, "paid": True, "tags": ["new", "7"]}, {"id": 70}),
        ({"id": 8, "mail": "bob@home.example", "items": [{"sku": "a-7"}, {"sku": 'say "x"'}]}, None),
        ({"raw": '{"id": 7, rubbish'}, {"raw": '{"id": 7, rubbish'}),
    ]
    for place, (row, original) in enumerate(rows, start=1):
        text = json.dumps(row, ensure_ascii=False).replace('"price": 1,', '"price": 1.25E7,')  # as Spark writes it
        texts = {"row": text, "original": original and json.dumps(original)}
        append_letters(
            tmp_path / "dlq",
            make_letters(place, message="id is 'seven', not a number" if place == 1 else "no", **texts),
        )
    return Delta(path=str(tmp_path / "dlq"), name="dlq")


TEXTS = [
    ("seven", [1]),
    ("NOT A NUMBER", [1]),
    ("KÖLN", [1]),
    ("shop.", [1]),
    ('say "x"', [3]),
    ('"mail": null', [2]),
    ("price", [1, 2]),
    ("12", []),
]


@pytest.mark.parametrize(("text", "found"), TEXTS)
def test_rows_are_chosen_by_a_text(sales: Delta, text: str, found: list[int]) -> None:
    """The text may be in the message, or in the JSON of the row with the names of its columns, in any case."""
    assert list_places(Choice(text=text).list_letters(sales, refuse_spark)) == found


def test_the_newest_chosen_rows_are_found(sales: Delta) -> None:
    """Some rows may be excluded."""
    every = ["p/4", "p/3", "p/2", "p/1"]
    assert Choice(code="CAST").list_newest(sales, refuse_spark, 2) == every[:2]
    assert Choice().list_newest(sales, refuse_spark, 2, but=frozenset({"p/4", "p/2"})) == ["p/3", "p/1"]
    assert Choice(text="price").list_newest(sales, refuse_spark, 1, but=frozenset({"p/2"})) == ["p/1"]


def test_many_rows_are_chosen_by_their_ids(dlq: Delta, tmp_path: Path) -> None:
    """A query lists no more than 1,000 ids. Other rows of the same batch are not chosen."""
    append_letters(tmp_path / "dlq", make_letters(*range(6, 2_000)))
    ids = tuple(f"p/{place}" for place in range(2, 1_500))
    assert list_places(Choice(ids=ids).list_letters(dlq, refuse_spark)) == [*range(2, 1_500)]
    assert Choice(ids=ids).list_newest(dlq, refuse_spark, 2) == ["p/1499", "p/1498"]


ODD = 'it\'s \\ "{x}"'
"""A text with all characters that SQL, JSON or a pattern treats specially."""
LETTERS: Sequence[Mapping[str, Any]] = [
    {"message": "column fare: '1,5' is not an int", "part": "file:///in/a%20b.csv"},
    {"message": "column Größe: NULL is not an int; column tip: 'x' is not a date", "part": "s3://in/2026-01/ä.json"},
    {"message": "c has no row with ID = 7, Shop = it's", "part": "changes of versions 3 to 4"},
    {"message": "e: column a.b: 5***, expected 1", "part": "orders/0"},
    {"message": "the column fare: is odd", "part": None},
    {"message": None, "row": '{"Stadt": "ΟΔΟΣ İzmir", "raw": "STRASSE"}', "original": None},
    {"code": ODD, "destination": ODD, "stage": None, "message": f"column {ODD}: '{ODD}' is not an int"},
    {"row": json.dumps({"note": ODD}), "part": f"file:///in/{ODD}.csv"},
    {"message": "column note: 'column fare: 'x' is not an int' is not a date", "part": "file:///in/a.1.csv"},
    {"message": "a.json: column fare: 'x' is not an int", "part": "file:///in/a-1.csv"},
]
ALIKE = [
    (Choice(text="column FARE:"), [1, 5, 9, 10]),
    (Choice(file="a.1.csv"), [9]),
    (Choice(text="column größe:"), [2]),
    (Choice(text="column a.b:"), [4]),
    (Choice(text="column a_b:"), []),
    (Choice(file="a b.csv"), [1]),
    (Choice(file="?.json"), [2]),
    (Choice(file="s3://in/*"), [2]),
    (Choice(file="changes of versions 3 to 4"), [3]),
    (Choice(file="orders/0"), [4]),
    (Choice(file=f"{ODD}.csv"), [8]),
    (Choice(file="in/*.csv"), []),
    (Choice(text="οδος"), [6]),
    (Choice(text="İZMIR"), [6]),
    (Choice(text="straße"), []),
    (Choice(text=ODD), [7, 8]),
    (Choice(code=ODD, stage=ODD), [7]),
    (Choice(since=NOON + timedelta(minutes=2), until=datetime(2026, 1, 1, 12, 4)), [2, 3]),
    (Choice(ids=("p/2", "p/3"), text="column tip:"), [2]),
]


@pytest.mark.spark
def test_spark_chooses_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Spark is needed for a DLQ in a catalog, and for a condition in SQL."""
    for place, columns in enumerate(LETTERS, start=1):
        append_letters(tmp_path / "dlq", make_letters(place, **columns))
    queue = Delta(path=str(tmp_path / "dlq"), name="dlq")
    for choice, found in ALIKE:
        assert (choice, list_places(choice.list_letters(queue, refuse_spark))) == (choice, found)
        through_spark = replace(choice, where="id > ''").list_letters(queue, lambda: spark)
        assert (choice, list_places(through_spark)) == (choice, found)
    before = Choice(where="nacked_at < timestamp '2026-01-01T12:04:00Z'")
    assert list_places(before.list_letters(queue, lambda: spark)) == [1, 2, 3]


def test_a_run_counts_the_causes_of_its_refused_rows(tmp_path: Path) -> None:
    """Values of protected columns are masked, also if another column repeats them."""
    append_letters(
        tmp_path / "dlq", make_letters(1, 2, message="column id: '77777' is not an int", run="r", part="a.csv")
    )
    append_letters(
        tmp_path / "dlq",
        make_letters(3, message="column other: 'secret' is not an int", run="r", original='{"id": "secret"}'),
    )
    append_letters(tmp_path / "dlq", make_letters(4, message="no", run="another"))
    queue = Delta(path=str(tmp_path / "dlq"), name="dlq")
    assert count_causes_of_run(queue, refuse_spark, "r").describe() == [
        "CAST, cast: id is not an int: 2 rows like '77777' in a.csv",
        "CAST, cast: other is not an int: 1 row like 'secret'",
    ]
    assert count_causes_of_run(queue, refuse_spark, "r", Protection(("id",))).describe() == [
        "CAST, cast: id is not an int: 2 rows like *** in a.csv",
        "CAST, cast: other is not an int: 1 row like 's***'",
    ]


def test_a_protected_value_in_a_message_is_masked_in_causes(tmp_path: Path) -> None:
    """This holds for the report and the summary. Messages that are equal after masking are one cause."""
    for place, mail in ((1, "anna@example.com"), (2, "alan@example.com"), (3, "anna@example.com")):
        row = json.dumps({"mail": mail})
        rows = make_letters(
            place, message=f"no such mail {mail} in list", part=f"{place}.csv", row=row, original=row, run="r"
        )
        append_letters(tmp_path / "dlq", rows)
    queue, protection = Delta(path=str(tmp_path / "dlq"), name="dlq"), Protection(("mail",))
    (summary,) = summarise_causes(queue, refuse_spark, DecidedLetters(), protection=protection)
    masked = "no such mail a*** in list"
    for (cause,) in (count_causes_of_run(queue, refuse_spark, "r", protection).json(), summary["forms"]):
        assert (cause["problem"], cause["example"], cause["rows"], cause["files"]) == (masked, masked, 3, 3)
    assert "example.com" not in json.dumps(summary)


@pytest.mark.promise("CD-30")
def test_a_decided_row_is_not_chosen_again(dlq: Delta) -> None:
    """This holds also if it is named."""
    assert list_places(Choice(code="CAST").select_letters(dlq, refuse_spark, {"p/1"})) == [2]
    assert Choice(ids=("p/1",)).select_letters(dlq, refuse_spark, {"p/1"}) == []


def test_an_unknown_id_is_refused(dlq: Delta) -> None:
    """No other row is replayed either."""
    with pytest.raises(Refusal, match="has no row p/9"):
        Choice(ids=("p/1", "p/9")).select_letters(dlq, refuse_spark, ())


def make_letter(**columns: Any) -> Letter:
    """Return a row that can be replayed."""
    return Letter(**{"id": "p/1", "origin": "origin", "stage": "filter", "kind": "k", **columns})


def find_reason(found: Letter, lines: Mapping[str, StageChain] = LINES) -> str:
    """Return why a replay leaves out the row, or empty text if it does not."""
    return "".join(sort([found], lines).left)


def test_a_row_that_cannot_be_replayed_has_a_reason() -> None:
    """The original row is needed, and a destination that lacks it."""
    import hashlib

    raw = hashlib.md5(RAW.encode()).hexdigest()  # noqa: S324
    assert find_reason(make_letter()) == ""
    assert "did not keep the original rows" in find_reason(make_letter(kind=None))
    assert "could not read these lines" in find_reason(make_letter(kind=raw))
    assert "the origin 'gone' no longer exists" in find_reason(make_letter(origin="gone"))
    assert "has them already" in find_reason(make_letter(delivered_to=("b", "a")))
    assert sort([make_letter(kind=None, id=f"p/{n}") for n in (1, 2)], LINES).plan.notices == [
        "2 rows in the DLQ cannot be replayed: the DLQ did not keep the original rows (dlq.original is false)"
    ]


def test_a_row_refused_after_a_stage_that_changes_rows_is_left_out() -> None:
    """Its original rows are unknown. A row refused before that stage is replayed."""
    line = StageChain.of([Filter("id > 1"), Sql("select id from rows"), Filter("id > 2", name="late")], {"a": Memory()})
    assert "refused after 'sql'" in find_reason(make_letter(stage="late"), {"origin": line})
    assert "refused after 'sql'" in find_reason(make_letter(stage="a/delta", destination="a"), {"origin": line})
    assert find_reason(make_letter(stage="filter"), {"origin": line}) == ""


def test_rows_for_the_same_destinations_share_a_batch() -> None:
    """A destination that has a row already does not get it. Rows with another schema have a separate batch."""
    rows = [
        make_letter(id=f"p/{n}", delivered_to=("b",) if n == 2 else (), kind="k" if n < 4 else "l") for n in range(1, 6)
    ]
    found = sort(rows, LINES)
    assert [(span.parts, names) for span, names in found.batches["origin"]] == [
        (("p/1", "p/3"), ("a", "b")),
        (("p/2",), ("a",)),
        (("p/4", "p/5"), ("a", "b")),
    ]


def test_a_row_that_a_backfill_also_refused_goes_to_each_destination_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old row goes to its first destinations, and the backfill's row to those of the backfill, also after a
    replay.
    """
    brought: dict[str, tuple[str, list[str], list[Json], Json]] = {
        "p": ("0", ["a"], [], 1),
        "q": ("backfill-1/0", ["b"], [], 1),
        "r": ("dlq/origin", ["b"], ["q/7"], "q/7"),
    }
    settled = [
        Settled(
            lane=lane,
            number=1,
            plan=plan,
            run="r",
            at="2026-01-01T00:00:00+00:00",
            span=Span(start=None, end=end, parts=tuple(parts)),
            counts=SettledCounts(delivered=dict.fromkeys(names, 0)),
        )
        for plan, (lane, names, parts, end) in brought.items()
    ]
    monkeypatch.setattr("runners.running.replay.list_settled_ever", lambda _: settled)
    journal = Journal(MemoryLedger())
    body = {"key": "b", "name": "backfill-1", "again": False, "reason": "b is new"}
    journal.acquire({"pipeline": "orders"})
    journal.record(Entry(kind="backfill", body=body))
    rows = [make_letter(id=f"{plan}/7") for plan in brought]
    found = sort(leave_to_backfills(rows, journal, {"a": Memory(name="a"), "b": Memory(name="b")}), LINES)
    assert [(span.parts, names) for span, names in found.batches["origin"]] == [
        (("p/7",), ("a",)),
        (("q/7", "r/7"), ("b",)),
    ]


def test_the_rows_of_a_batch_are_limited() -> None:
    """The limit is that of the definition, and at most ten thousand."""
    rows = [make_letter(id=f"p/{n}") for n in range(MOST + 1)]
    assert [len(span.parts) for span, _ in sort(rows, LINES).batches["origin"]] == [MOST, 1]
    assert [len(span.parts) for span, _ in sort(rows[:5], LINES, 2).batches["origin"]] == [2, 2, 1]


def test_old_rows_are_not_merged_where_the_last_row_wins(tmp_path: Path) -> None:
    """The merge needs `sequence_by` for them."""
    merge = Delta(path=str(tmp_path / "t"), mode="merge", keys=["id"], name="a")
    found = sort([make_letter()], {"origin": StageChain.of([], {"a": merge})})
    with pytest.raises(Refusal, match="'a' keeps the row that arrives last") as error:
        found.check({"a": merge})
    assert "sequence_by" in error.value.hint
    found.check({"a": Delta(path="t", mode="merge", keys=["id"], sequence_by="at", name="a")})
