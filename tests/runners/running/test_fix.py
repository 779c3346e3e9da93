"""Fixes of refused rows before a replay, and how an interrupted replay keeps its fix."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn

import pytest

from destinations.delta import Delta
from destinations.memory import Memory
from origins.codec import decode, encode
from origins.functions import FunctionMissing
from runners.command_line import cli
from runners.model.entry import Entry
from runners.model.errors import Refusal
from runners.model.pipeline_state import PipelineState
from runners.running.choice import Choice, Letter
from runners.running.fix import MOST_BYTES, Fix, is_fix
from runners.running.replay import Replay, sort
from runners.state.journal import Journal
from runners.ways.stage_chain import StageChain
from stages.cast import Cast
from stages.conditions import Filter
from stages.sql import Sql
from tests.runners.running.letterbox import append_letters, make_letters
from tests.runners.state.ledger.memory_ledger import MemoryLedger
from tests.runners.state.ledger.test_progress import DECISION, make_planned

A, B = Fix(columns={"amount": "1"}), Fix(columns={"amount": "2"})
BRANCHES = {"a": Memory(name="a"), "b": Memory(name="b", stages=[Filter("id > 1")])}
CHAIN = StageChain.of([Filter("true"), Cast({"amount": "int"})], BRANCHES)
PYTHON = "def helper(row):\n    return row\n\ndef fix(rows: list[dict]) -> list[dict]:\n    return rows\n"


def refuse_spark() -> NoReturn:
    """Fail if the code asks for Spark."""
    raise AssertionError("asked for Spark")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": {"amount": "sum(amount) over ()"}}, "amount"),
        ({"columns": {"": "1"}}, "expected the name of a column"),
        ({"columns": {"_wherry_at": "1"}}, "are reserved"),
        ({"columns": {"a": "1"}, "sql": "select * from rows"}, "takes one fix"),
        ({"sql": "update rows set a = 1"}, "expected one SELECT over rows"),
        ({"python": "x = 1"}, "has no function"),
        ({"python": "def a(rows): ...\ndef b(rows): ..."}, "has these functions: a, b"),
        ({"python": "import nowhere_at_all\ndef fix(rows): ..."}, "nowhere_at_all"),
        ({"python": "raise SystemExit(3)\ndef fix(rows): ..."}, "raises SystemExit"),
        ({"sql": f"select '{'x' * MOST_BYTES}' as a from rows"}, f"at most {MOST_BYTES:,} bytes"),
    ],
)
def test_an_invalid_fix_is_refused_before_a_replay_begins(given: Any, message: str) -> None:
    """Its text alone shows that it is invalid."""
    with pytest.raises((Refusal, FunctionMissing), match=message.replace("(", r"\(")):
        Fix(**given)


def test_a_fix_is_read_from_a_file(tmp_path: Path) -> None:
    """The file's ending sets the kind. The function has the name `fix`, or is the only public function."""
    (tmp_path / "fix.sql").write_text("select * from rows;\n")
    (tmp_path / "fix.py").write_text(PYTHON)
    (tmp_path / "empty.sql").write_text("\n")
    (tmp_path / "binary.sql").write_bytes(b"\xff\xfe")
    assert Fix.read(tmp_path / "fix.sql").sql == "select * from rows;\n"
    assert Fix.read(tmp_path / "fix.py", start="refused").describe() == "fix.py"
    for name, message in {
        "fix.txt": "is a .sql or a .py file",
        "none.sql": "cannot be read",
        "empty.sql": "is empty",
        "binary.sql": "cannot be read",
    }.items():
        with pytest.raises(Refusal, match=message):
            Fix.read(tmp_path / name)


def test_a_fix_is_read_unchanged_from_the_ledger(tmp_path: Path) -> None:
    """Its file may be gone. The same text in another file is the same fix."""
    file = tmp_path / "fix.py"
    file.write_text(PYTHON)
    fix = Fix.read(file, start="refused")
    file.unlink()
    again = decode(Fix, json.loads(json.dumps(encode(fix))))
    assert again == fix
    assert dataclasses.replace(again, file="/elsewhere/fix.py").key == fix.key
    assert len({fix.key, A.key, B.key, Fix(columns={"amount": "1"}, start="refused").key}) == 4
    assert (bool(Fix()), bool(A)) == (False, True)


@pytest.mark.parametrize(
    ("start", "refuser", "names"),
    [
        ("beginning", "cast", ["fix", "filter", "cast", "b/filter"]),
        ("refused", "cast", ["filter", "fix", "cast", "b/filter"]),
        ("refused", "b/filter", ["filter", "cast", "fix", "b/filter"]),
    ],
)
def test_a_fix_is_put_before_all_stages_or_before_the_refusing_stage(
    start: Any, refuser: str, names: list[str]
) -> None:
    """The stages keep their order, and get new numbers."""
    chain = Fix(columns={"amount": "1"}, start=start).put_into(CHAIN, refuser)
    assert [step.name for step in chain.steps] == names
    assert [step.number for step in chain.steps] == [1, 2, 3, 4]
    assert Fix().put_into(CHAIN, refuser) is CHAIN


def test_a_stage_of_the_definition_may_have_the_name_fix() -> None:
    """The fix then gets another name."""
    chain = A.put_into(StageChain.of([Filter("true", name="fix")], BRANCHES), "")
    assert [step.name for step in chain.common] == ["fix#2", "fix"]
    assert [is_fix(name) for name in ("fix#2", "fix", "fixed", "")] == [True, True, False, False]


def sort_letters(chain: StageChain, fix: Fix, **columns: Any) -> Mapping[str, int]:
    """Return why a replay leaves out a row with these columns."""
    letter = Letter(id="p/1", origin="origin", **{"stage": "cast", "kind": "k", **columns})
    return sort([letter], {"origin": chain}, fix=fix).left


def test_a_row_that_no_stage_refused_cannot_be_fixed_before_a_stage() -> None:
    """It can be fixed at the beginning."""
    there = Fix(columns={"amount": "1"}, start="refused")
    assert list(sort_letters(CHAIN, there, stage="gone")) == [
        "the definition has no stage 'gone' now; apply the fix at the beginning"
    ]
    assert list(sort_letters(CHAIN, there, stage="b/delta", destination="b")) == [
        "the destination 'b' refused them, not a stage; apply the fix at the beginning"
    ]
    assert (sort_letters(CHAIN, there), sort_letters(CHAIN, A, stage="gone")) == ({}, {})


def test_a_row_that_a_fix_refused_can_be_replayed_before_a_stage_that_changes_rows() -> None:
    """It is a whole row of the origin. A row refused after such a stage is not."""
    chain = StageChain.of([Sql("select * from batch")], BRANCHES)
    assert sort_letters(chain, A, stage="fix", replays="o/1") == {}
    assert sum(sort_letters(chain, A, stage="cast", replays="o/1").values()) == 1
    assert sum(sort_letters(chain, A, stage="fix").values()) == 1


def test_rows_of_different_stages_are_fixed_in_separate_batches() -> None:
    """This applies if the fix is before the refusing stage. Each batch records its stage."""
    found = [Letter(id=f"p/{n}", origin="origin", stage=s, kind="k") for n, s in enumerate(("cast", "filter", "cast"))]
    there = sort(found, {"origin": CHAIN}, fix=Fix(columns={"amount": "1"}, start="refused"))
    assert [span.parts for span, _ in there.batches["origin"]] == [("p/0", "p/2"), ("p/1",)]
    assert dict(there.refusers) == {"p/2": "cast", "p/1": "filter"}
    assert len(sort(found, {"origin": CHAIN}, fix=A).batches["origin"]) == 1


@pytest.fixture
def dlq(tmp_path: Path) -> Delta:
    """Three waiting rows."""
    append_letters(tmp_path / "dlq", make_letters(1, 2) + make_letters(3, code="PARSE"))
    return Delta(path=str(tmp_path / "dlq"), name="dlq")


class Cut:
    """A ledger in which replays begin, decide a batch, settle it, and end."""

    def __init__(self) -> None:
        self.journal = Journal(MemoryLedger())
        self.number = 0

    def begin(self, dlq: Delta, replay: Replay) -> None:
        """Acquire the pipeline for a replay, as a run does."""
        replay.check(self.journal, dlq, refuse_spark)
        self.journal.acquire({"pipeline": "orders", "replay": json.loads(json.dumps(replay.json()))})

    def decide(self, *ids: str, settles: bool = True) -> None:
        """Record that a batch of these rows is decided, and by default settled."""
        self.number += 1
        batch = make_planned(self.number).batch
        lane, name = "dlq/origin", f"p{self.number}"
        span = dataclasses.replace(batch.span, start=None, parts=ids, end=ids[-1])
        batch = dataclasses.replace(batch, lane=lane, span=span)
        plan = dataclasses.replace(make_planned(self.number), straight=False, batch=batch)
        self.journal.record(Entry(kind="plan", lane=lane, plan=name, body=encode(plan)))
        self.journal.record(Entry(kind="prepared", lane=lane, plan=name, body=encode(DECISION)))
        if settles:
            counts = {**encode(DECISION.counts), "delivered": {"orders": 2}, "discarded": 0, "balanced": True}
            window = {"rows": 3, "nacks": [2]}
            settled = {"offset": ids[-1], "counts": counts, "window": window, "clean": 0, "owed": []}
            self.journal.record(Entry(kind="settle", lane=lane, plan=name, body=settled))

    def end(self, status: str) -> None:
        """Record that the run releases the pipeline."""
        self.journal.record(Entry(kind="release", body={"status": status}))

    def resumed(self) -> Replay:
        """Return the replay to resume, from a snapshot of the state, as in a later process."""
        body = json.loads(json.dumps(encode(self.journal.state)))
        return Replay.resume(decode(PipelineState, body).name_pipeline())


def test_an_interrupted_replay_is_resumed_only_with_its_fix(dlq: Delta) -> None:
    """Another fix, or none, is refused while rows wait for it. The message names the fix and the options."""
    cut = Cut()
    cut.begin(dlq, Replay(fix=A, reason="first"))
    cut.decide("p/1")
    for other in (
        Replay(fix=B, reason="x"),
        Replay(reason="x"),
        Replay(fix=B, reason="x", choice=Choice(ids=("p/3",))),
    ):
        with pytest.raises(Refusal, match="with the fix amount=1 was cut short") as refused:
            other.check(cut.journal, dlq, refuse_spark)
        assert "left 2 rows without that fix" in str(refused.value)
        assert "--resume" in str(refused.value.hint)
        assert "--give-up" in str(refused.value.hint)
    again = cut.resumed()
    assert (again.fix, again.reason, again.choice.ids) == (A, "first", ())
    cut.begin(dlq, again)
    cut.decide("p/2", "p/3")
    cut.end("succeeded")
    assert cut.journal.state.replay is None
    with pytest.raises(Refusal, match="none to resume"):
        cut.resumed()
    cut.begin(dlq, Replay(fix=B, reason="x"))


def test_a_replay_that_decided_nothing_blocks_no_other(dlq: Delta) -> None:
    """No row has its fix, so another replay may begin. That one is then resumed."""
    cut = Cut()
    cut.begin(dlq, Replay(fix=A, reason="first"))
    cut.end("failed")
    assert cut.resumed().fix == A
    cut.begin(dlq, Replay(fix=B, reason="second"))
    assert cut.resumed().fix == B
    cut.begin(dlq, Replay(reason="as they were read"))
    cut.decide("p/1")
    cut.begin(dlq, Replay(fix=A, reason="not of the one before"))
    assert cut.resumed().fix == A


@pytest.mark.parametrize(
    ("older", "option"),
    [
        ({"values": ["id=7"]}, "--column NAME=VALUE"),
        ({"text": "n/a"}, "--text, which looked only at values"),
        ({"column": "fare"}, "--column"),
    ],
)
def test_a_replay_of_an_older_version_is_not_widened(dlq: Delta, older: Mapping[str, Any], option: str) -> None:
    """A condition that is gone is named. The replay can only be given up, or continued by a choice of the same fix."""
    cut = Cut()
    body = {**Replay(fix=A, reason="first").json(), **older}
    cut.journal.acquire({"pipeline": "orders", "replay": body})
    cut.decide("p/1")
    cut.end("failed")
    with pytest.raises(Refusal, match=f"were chosen by {option}, which is gone") as refused:
        cut.resumed()
    assert "--give-up" in str(refused.value.hint)
    with pytest.raises(Refusal, match="which is gone"):
        cut.begin(dlq, Replay(fix=B, reason="another"))
    cut.begin(dlq, Replay(fix=A, reason="the same", choice=Choice(where="id = 'p/2'")))
    cut.begin(dlq, Replay(fix=B, reason="another", give_up=True))
    assert cut.resumed().fix == B


def test_a_resumed_replay_has_only_rows_refused_before_it_began(dlq: Delta, tmp_path: Path) -> None:
    """Rows that were refused again after the fix are not resumed, and may get another fix."""
    cut = Cut()
    cut.begin(dlq, Replay(fix=A, reason="first"))
    cut.decide("p/1")
    later = datetime.now(timezone.utc) + timedelta(minutes=1)
    append_letters(tmp_path / "dlq", make_letters(9, replays="p/1", nacked_at=later))
    waiting = cut.resumed().choice.select_letters(dlq, refuse_spark, {"p/1"})
    assert [each.id for each in waiting] == ["p/2", "p/3"]
    cut.decide("p/2", "p/3")
    cut.begin(dlq, Replay(fix=B, reason="what failed again"))


def test_part_of_a_replay_may_be_continued(dlq: Delta) -> None:
    """It needs the same fix. The other rows still wait for that fix."""
    cut = Cut()
    cut.begin(dlq, Replay(fix=A, reason="first"))
    cut.decide("p/1")
    cut.begin(dlq, Replay(fix=A, reason="one", choice=Choice(ids=("p/2",))))
    cut.decide("p/2")
    cut.end("succeeded")
    with pytest.raises(Refusal, match="left 1 row without"):
        cut.begin(dlq, Replay(fix=B, reason="x"))


def test_a_replay_can_be_given_up_for_another(dlq: Delta) -> None:
    """The option `--give-up` allows it, and the ledger keeps that."""
    cut = Cut()
    cut.begin(dlq, Replay(fix=A, reason="first"))
    cut.decide("p/1")
    cut.begin(dlq, Replay(fix=B, reason="second", give_up=True))
    assert cut.resumed().fix == B
    assert [entry.body["replay"].get("give_up") for entry in cut.journal.tail if entry.kind == "acquire"] == [
        None,
        True,
    ]


def test_a_run_in_between_does_not_lose_the_fix(dlq: Delta) -> None:
    """The run finishes decided batches, and leaves the other rows."""
    cut = Cut()
    cut.begin(dlq, Replay(fix=A, reason="first"))
    cut.decide("p/1")
    cut.journal.acquire({"pipeline": "orders", "replay": None})
    cut.end("succeeded")
    assert cut.resumed().fix == A


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "amount"], "expected COLUMN=EXPR, got 'amount'"),
        (["--set", "=1"], "expected COLUMN=EXPR"),
        (["--set", "amount=1", "--with", "fix.sql"], "not both"),
        (["--set", "amount=1", "--resume"], "and no others"),
        (["--code", "CAST", "--resume"], "and no others"),
        (["--give-up", "--resume"], "and no others"),
        (["--resume"], "there is none to resume"),
        (["--with", "fix.txt"], "is a .sql or a .py file"),
        (["--set", "amount=sum(amount) over ()"], "amount"),
        (["--set", "dlq.windw=1"], "did you mean 'window'?"),
    ],
)
def test_an_invalid_call_is_refused_before_spark_starts(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yaml").write_text(
        "name: orders\norigin: {files: {path: x, format: json, schema: 'amount string'}}\n"
        "destinations: [{delta: {path: t}}]\n"
    )
    (tmp_path / "fix.sql").write_text("select * from rows")
    assert cli.execute(["dlq", "replay", "orders.yaml", *words, "--reason", "x", "--yes"]) == 2
    assert message in capsys.readouterr().err
