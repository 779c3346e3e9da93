"""Which changes between two runs are allowed, and which need an option."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

import pytest

from destinations.capabilities import KnowsNewest
from destinations.delta import Delta
from destinations.destination import Identity, StatelessDestination, Written
from destinations.labels import BatchLabel, Label
from destinations.memory import Memory
from origins.batch import JSON, Batch, Span
from origins.batch_rows import BatchRows
from origins.capabilities import KnowsPlace
from origins.codec import decode, encode
from origins.delta import Delta as Table
from origins.files import Files
from origins.generate import Generate
from origins.names import GivenPath
from origins.origin import Origin
from runners.model.entry import Entry, OpenBody
from runners.model.errors import Refusal
from runners.model.nack_window import NackWindow
from runners.model.planned_batch import Counts, DecidedBatch, PlannedBatch
from runners.pipeline import Pipeline
from runners.running.compatibility import (
    OperatorOverrides,
    check_layout,
    check_newest,
    mark_salts,
    resolve_names,
    start_over,
    waive,
)
from runners.running.opening import RunOpening, list_unchanged
from runners.state.journal import Journal
from runners.state.ledger import LedgerError
from runners.ways.stage_chain import name_destinations
from stages.columns import WithColumns
from stages.lookup import Lookup
from stages.mask import Mask
from tests.runners.state.ledger.memory_ledger import MemoryLedger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def make_pipeline(**changes: Any) -> Pipeline:
    """Return a pipeline from the files `landing` into the table `orders`, with these changes."""
    usual: dict[str, Any] = {
        "name": "orders",
        "origin": Files(name="landing", path="/landing", format="json"),
        "destinations": [Delta(name="orders", path="/tables/orders")],
    }
    return Pipeline(**{**usual, **changes})


def open_journal(before: Pipeline) -> Journal:
    """Return the journal after a run opened with this definition."""
    journal = Journal(MemoryLedger())
    journal.acquire({"pipeline": before.name})
    body = {
        "pipeline": before.name,
        "salts": mark_salts(before),
        "state": before.state.given if isinstance(before.state, GivenPath) else None,
        "origins": {
            origin.name: {
                "lanes": list(before.lanes_of(origin)),
                "place": origin.place,
                "given": list(origin.given_paths),
                "schema": None,
            }
            for origin in before.every_origin
        },
        "destinations": {name: each.describe() for name, each in name_destinations(before.destinations).items()},
    }
    journal.record(Entry(kind="open", body=body))
    return journal


def check_run(before: Pipeline, now: Pipeline, **ruling: Any) -> None:
    """Check a run of `now` after a run of `before`. Raise what the run would raise."""
    told = OperatorOverrides(**ruling, reason="a test") if ruling else OperatorOverrides()
    check_layout(now, name_destinations(now.destinations), open_journal(before).state, told)


class Told(Memory, KnowsNewest):
    """A destination that reports batch 2 as its newest batch."""

    def newest(self, pipeline: str) -> BatchLabel | None:
        if pipeline != "orders":
            return None
        return BatchLabel(pipeline=pipeline, lane="0", number=2, plan="p2", destination="orders", key="p2/orders")


def test_a_ledger_without_the_destinations_newest_batch_is_refused() -> None:
    """The option `--fresh` allows it. A ledger that has planned the batch is accepted."""
    told = {"orders": Told(name="orders")}
    journal = open_journal(make_pipeline())
    with pytest.raises(
        LedgerError, match=r"'orders' has batch 2 of lane 0 of this pipeline, .* has planned none"
    ) as refused:
        check_newest(journal, "orders", told, told, OperatorOverrides())
    assert refused.value.hint.startswith("If `state:` was changed, change it back")
    check_newest(journal, "orders", told, told, OperatorOverrides(fresh=("orders",), reason="it was emptied"))
    check_newest(journal, "invoices", told, told, OperatorOverrides())
    new = {"new": Told(name="new")}
    check_newest(journal, "orders", new, new, OperatorOverrides())
    journal.record(make_plan())
    journal.record(Entry(kind="release", body={"status": "failed"}))
    journal.acquire({"pipeline": "orders"})
    with pytest.raises(LedgerError, match="has planned up to 1") as older:
        check_newest(journal, "orders", told, told, OperatorOverrides())
    assert older.value.hint.startswith("Put the newest ledger back")
    journal.record(
        Entry(kind="cancel", lane="0", plan="p"), replace(make_plan(), body={**make_plan().body, "number": 2})
    )
    check_newest(journal, "orders", told, told, OperatorOverrides())


def test_a_plan_of_another_process_is_read_first() -> None:
    """Wherry reads the ledger again before it refuses it as old."""
    told = {"orders": Told(name="orders")}
    journal = open_journal(make_pipeline())
    late = replace(make_plan(), body={**make_plan().body, "number": 2})
    journal.ledger.append([late], after=journal.state.seq)
    check_newest(journal, "orders", told, told, OperatorOverrides())


def make_plan(lane: str = "0", *, destinations: tuple[str, ...] = ("orders",)) -> Entry:
    """Return the plan of the lane's first batch."""
    batch = Batch(
        pipeline="orders",
        run="r",
        origin="landing",
        lane=lane,
        number=1,
        plan="p",
        span=Span(start=None, end=5),
        schema="{}",
        time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )
    body = encode(PlannedBatch(batch=batch, destinations=destinations, straight=False))
    return Entry(kind="plan", lane=lane, plan="p", body=body)


SETTLE = Entry(
    kind="settle", lane="0", plan="p", body={"offset": 5, "counts": {}, "window": None, "clean": 1, "owed": []}
)
MOVED = Delta(name="orders", path="/elsewhere/orders")
READ_ELSEWHERE = Files(name="landing", path="/elsewhere", format="json")


@pytest.mark.parametrize(
    ("name", "change"), [("orders", {"destinations": [MOVED]}), ("landing", {"origin": READ_ELSEWHERE})]
)
def test_a_changed_place_is_refused_without_an_option(name: str, change: dict[str, Any]) -> None:
    """The option states whether the place has the same content or other content."""
    with pytest.raises(Refusal, match=f"'{name}' was .* and is now /elsewhere") as refused:
        check_run(make_pipeline(), make_pipeline(**change))
    assert f"--moved {name}" in refused.value.hint
    assert f"--fresh {name}" in refused.value.hint
    check_run(make_pipeline(), make_pipeline(**change), moved=(name,))
    check_run(make_pipeline(), make_pipeline(**change), fresh=(name,))


def test_s3_and_s3a_are_the_same_place() -> None:
    """A state written with one scheme continues with the other."""
    before, now = (
        make_pipeline(
            origin=Table(name="landing", paths=[f"{scheme}://b/x", f"{scheme}://b/y"]),
            destinations=[Delta(name="orders", path=f"{scheme}://b/tables/orders")],
        )
        for scheme in ("s3", "s3a")
    )
    check_run(before, now)


def test_a_renamed_destination_is_compared_with_its_old_name() -> None:
    """Its place must equal the place under the old name."""
    check_run(make_pipeline(), make_pipeline(destinations=[Delta(name="sales", path="/tables/orders", was="orders")]))
    with pytest.raises(Refusal, match="'sales' was /tables/orders"):
        check_run(
            make_pipeline(), make_pipeline(destinations=[Delta(name="sales", path="/tables/sales", was="orders")])
        )


def test_destinations_may_be_added_and_removed() -> None:
    """A new destination gets rows from the next batch."""
    check_run(make_pipeline(), make_pipeline(destinations=[Delta(name="other", path="/tables/other")]))


def test_the_only_origin_may_be_renamed() -> None:
    """It must read the same place with the same lanes."""
    check_run(make_pipeline(), make_pipeline(origin=Files(name="files", path="/landing", format="json")))
    with pytest.raises(Refusal, match="'files' was /landing and is now /other"):
        check_run(make_pipeline(), make_pipeline(origin=Files(name="files", path="/other", format="json")))


def test_a_renamed_origin_among_several_is_refused() -> None:
    """It may be another origin, so the option `--fresh` is needed."""
    old, new, third = (Files(name=name, path=f"/{name}", format="json") for name in ("old", "new", "third"))
    before, now = make_pipeline(origin=None, origins=[old, third]), make_pipeline(origin=None, origins=[new, third])
    with pytest.raises(Refusal, match="The origin old is gone and new is new"):
        check_run(before, now)
    check_run(before, now, fresh=("new",))
    check_run(before, make_pipeline(origin=None, origins=[old, third, new]))


def test_lanes_may_change_if_progress_is_kept_by_part() -> None:
    """Files are assigned to lanes by name. Generated orders always stay in one lane."""
    check_run(make_pipeline(), make_pipeline(origin=Files(name="landing", path="/landing", format="json", lanes=3)))
    with pytest.raises(Refusal, match="The lanes of 'made' were 0 and are now 0, 1"):
        check_run(make_pipeline(origin=Generate(name="made")), make_pipeline(origin=Generate(name="made", lanes=2)))


def test_one_origin_that_becomes_one_of_several_is_refused() -> None:
    """Its lanes would get other names, and its rows would be processed again."""
    (origin,) = make_pipeline().every_origin
    several = make_pipeline(origin=None, origins=[origin, Generate(name="made")])
    with pytest.raises(Refusal, match="The lanes of 'landing' were 0 and are now landing/0"):
        check_run(make_pipeline(), several)


def test_an_open_batch_waits_for_a_missing_destination() -> None:
    """It waits until the destination is back or `--forget` is given."""
    journal = open_journal(make_pipeline())
    journal.record(make_plan(destinations=("orders", "other")))
    destinations = name_destinations(make_pipeline().destinations)
    with pytest.raises(Refusal, match="waits for the destination 'other'") as refused:
        waive(journal, destinations, OperatorOverrides())
    assert "--forget other" in refused.value.hint
    waive(journal, destinations, OperatorOverrides(forget=("other",), reason="it was sold"))
    assert journal.state.open_plans[0].destinations == ("orders",)


def test_a_decided_batch_can_be_settled_without_a_destination() -> None:
    """At least one destination must be left. A batch that was not decided keeps all, and is planned again."""
    journal = open_journal(make_pipeline())
    destinations = name_destinations([Memory(name="orders"), Memory(name="other")])
    forget = OperatorOverrides(forget=("other",), reason="it refuses a row")
    journal.record(make_plan(destinations=("orders", "other")))
    waive(journal, destinations, forget)
    assert journal.state.open_plans[0].destinations == ("orders", "other")
    decision = DecidedBatch(path="p-a", counts=Counts(read=1), window=NackWindow())
    journal.record(Entry(kind="prepared", lane="0", plan="p", body=encode(decision)))
    waive(journal, destinations, OperatorOverrides(forget=("orders", "other"), reason="neither"))
    assert journal.state.open_plans[0].destinations == ("orders", "other")
    waive(journal, destinations, forget)
    (left,) = journal.state.open_plans
    assert left.destinations == ("orders",)


def test_a_batch_whose_destinations_are_all_forgotten_is_planned_again() -> None:
    """Its number is not used again."""
    journal = open_journal(make_pipeline())
    journal.record(make_plan(destinations=("other",)))
    waive(
        journal,
        name_destinations(make_pipeline().destinations),
        OperatorOverrides(forget=("other",), reason="it was sold"),
    )
    assert journal.state.open_plans == ()
    assert journal.state.get_lane("0").number == 1


def test_an_open_batch_finds_a_renamed_destination() -> None:
    """The destination is asked and written with the label of its old name."""
    renamed = name_destinations([Memory(name="sales", was="orders")])
    journal = open_journal(make_pipeline())
    journal.record(make_plan())
    waive(journal, renamed, OperatorOverrides())
    assert resolve_names(renamed) == {"orders": "sales", "sales": "sales"}


@pytest.mark.parametrize(
    ("origin", "fresh", "offset"),
    [
        (Files(name="landing", path="/landing", format="json"), (), 5),
        (Files(name="landing", path="/landing", format="json"), ("landing",), None),
        (Files(name="landing", path="/landing", format="json", read="whole"), (), None),
        (Table(name="landing", path="/landing"), (), 5),
        (Table(name="landing", path="/landing", read="whole"), (), None),
        (Generate(name="landing"), (), 5),
        (Generate(name="landing", read="whole"), (), None),
    ],
)
def test_an_origin_that_is_new_or_read_whole_starts_at_the_beginning(
    origin: Origin, fresh: tuple[str, ...], offset: int | None
) -> None:
    """Batch numbers continue, and earlier batches no longer count."""
    journal = open_journal(make_pipeline())
    journal.record(make_plan())
    journal.record(SETTLE)
    start_over(make_pipeline(origin=origin), journal, OperatorOverrides(fresh=fresh, reason="a test"))
    lane = journal.state.get_lane("0")
    assert (lane.offset, lane.number) == (offset, 1)
    assert len(journal.list_settled()) == (1 if offset else 0)


def make_masked(salt: str, name: str = "mask") -> Pipeline:
    return make_pipeline(stages=[Mask(columns={"email": "hash"}, salt=salt, name=name), Mask(columns={"a": "redact"})])


def test_a_changed_salt_is_refused_without_an_option() -> None:
    """Equal values would get other hashes, so joins would not match."""
    with pytest.raises(Refusal, match="The salt of the stage 'mask' has changed since the last run") as refused:
        check_run(make_masked("hunter2hunter2"), make_masked("hunter3hunter3"))
    assert 'wherry run FILE --fresh mask.salt --reason "…"' in refused.value.hint
    check_run(make_masked("hunter2hunter2"), make_masked("hunter3hunter3"), fresh=("mask.salt",))
    check_run(make_masked("hunter2hunter2"), make_masked("hunter2hunter2"))
    check_run(make_pipeline(), make_masked("hunter2hunter2"))
    check_run(make_masked("hunter2hunter2"), make_pipeline())


def test_a_state_keeps_no_salt_and_no_unique_hash() -> None:
    """It keeps a mark that is so short that many other salts have the same mark."""
    ((mark,),) = mark_salts(make_masked("hunter2hunter2")).values()
    assert len(mark) == 8
    assert "hunter2" not in str(open_journal(make_masked("hunter2hunter2")).state)


def make_project(folder: str, *, state: str = ".wherry/orders", landing: str = "landing") -> Pipeline:
    """Return the same definition in this folder, with relative paths."""
    return make_pipeline(
        origin=Files(name="landing", path=GivenPath(f"{folder}/{landing}", landing), format="json"),
        destinations=[Delta(name="orders", path=GivenPath(f"{folder}/tables/orders", "tables/orders"))],
        state=state if state.startswith("/") else GivenPath(f"{folder}/{state}", state),
    )


def test_a_project_may_be_moved_with_its_state() -> None:
    """Relative paths are compared as they were given."""
    check_run(make_project("/a"), make_project("/b/c"))
    with pytest.raises(Refusal, match="'landing' was /a/landing and is now /b/other"):
        check_run(make_project("/a"), make_project("/b", landing="other"))


def test_a_project_that_was_moved_without_its_state_is_refused() -> None:
    """Its paths now lead to other files. One message names all parts, and one command allows them."""
    shared = "/var/wherry/orders"
    said = "'landing' was /a/landing and is now /b/landing; 'orders' was /a/tables/orders and is now /b/tables/orders"
    with pytest.raises(Refusal, match=said) as refused:
        check_run(make_project("/a", state=shared), make_project("/b", state=shared))
    assert 'wherry run FILE --moved landing --moved orders --reason "…"' in refused.value.hint
    assert 'wherry run FILE --fresh landing --fresh orders --reason "…"' in refused.value.hint
    check_run(make_project("/a", state=shared), make_project("/b", state=shared), moved=("landing", "orders"))
    with pytest.raises(Refusal, match=r"^'orders' was"):
        check_run(make_project("/a", state=shared), make_project("/b", state=shared), moved=("landing",))


def test_a_recognised_table_needs_no_option() -> None:
    """Its id shows that it is the same table."""
    before, now = make_project("/a", state="/var/orders"), make_project("/b", state="/var/orders")
    state = open_journal(before).state
    check_layout(now, name_destinations(now.destinations), state, OperatorOverrides(), lambda name: True)
    with pytest.raises(
        Refusal, match=r"^'landing' was /a/landing and is now /b/landing; the state belongs to the old place"
    ):
        check_layout(
            now, name_destinations(now.destinations), state, OperatorOverrides(), lambda name: name == "orders"
        )


@pytest.mark.parametrize(
    ("kept", "same"), [("/a/.wherry/orders", True), ("/a/elsewhere", False), ("/x/.wherry/orders", False)]
)
def test_a_state_without_given_paths_is_understood(kept: str, same: bool) -> None:
    """The old state's path shows where the definition was."""
    journal = open_journal(make_project("/a"))
    body: Any = encode(journal.state.opened)
    del body["state"]
    body["definition"] = json.dumps({"state": kept})
    for ends in (body["origins"], body["destinations"]):
        for each in ends.values():
            del each["given"]
    older = decode(OpenBody, body)
    now = make_project("/b")
    with contextlib.nullcontext() if same else pytest.raises(Refusal):
        check_layout(
            now, name_destinations(now.destinations), replace(journal.state, opened=older), OperatorOverrides()
        )


@dataclass(frozen=True, kw_only=True)
class Still(Generate, KnowsPlace):
    """An origin that has nothing new after the offset 5."""

    def is_still(self, spark: SparkSession, offsets: Sequence[JSON]) -> bool:
        raise NotImplementedError

    def stands(self, spark: SparkSession, offsets: Mapping[str, JSON]) -> bool:
        return offsets == {"0": 5}


@dataclass(frozen=True, kw_only=True)
class Found(StatelessDestination):
    """A table that exists and has an id."""

    path: str
    id: str = "t"

    @property
    def place(self) -> str:
        return self.path

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        raise NotImplementedError

    def ensure_place(self, spark: SparkSession, schema: StructType | None) -> Identity:
        return Identity(place=self.place, id=self.id)


@pytest.mark.parametrize(
    ("origin", "beside", "stand"),
    [
        ({}, {}, True),
        ({"read": "new"}, {}, False),
        ({"stages": [WithColumns({"a": "id + 1"})]}, {}, True),
        ({"stages": [WithColumns({"a": "rand()"})]}, {}, False),
        ({"stages": [Lookup(path="/tables/other", on=["id"], columns=["name"])]}, {}, False),
        ({}, {"id": "another"}, False),
        ({}, {"hash": "another"}, False),
        ({}, {"text": "with_columns: {a: ':batch_time'}"}, False),
        ({}, {"ruling": OperatorOverrides(fresh=("orders",), reason="a test")}, False),
    ],
)
def test_an_origin_read_whole_keeps_its_offset_only_if_it_would_give_the_same_rows(
    origin: dict[str, Any], beside: dict[str, Any], stand: bool
) -> None:
    """It needs the same table, the same definition, and stages that give the same rows again."""
    table = Found(name="orders", path="/tables/orders", id=beside.pop("id", "t"))
    now = make_pipeline(origin=Still(**{"name": "landing", "read": "whole", **origin}), destinations=[table])
    journal = open_journal(make_pipeline())
    known = {"orders": {**table.describe(), "id": "t", "version": 3}}
    journal.record(Entry(kind="open", body={**encode(journal.state.opened), "hash": "h", "destinations": known}))
    journal.record(make_plan())
    journal.record(SETTLE)
    ends: dict[str, Any] = {key: {"orders": table} for key in ("destinations", "ends", "opened")}
    usual: dict[str, Any] = {"run": "r", "text": "", "hash": "h", **ends}
    found = list_unchanged(RunOpening(pipeline=now, **{**usual, **beside}), journal, cast("SparkSession", None))
    assert list(found) == (["landing"] if stand else [])
    start_over(now, journal, OperatorOverrides(), stand=found)
    assert journal.state.get_lane("0").offset == (5 if stand or origin.get("read") == "new" else None)
