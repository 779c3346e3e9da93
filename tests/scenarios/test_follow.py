"""A run that follows its origin delivers new files until it is stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from destinations.capabilities import NoticesPauses
from destinations.labels import Label
from destinations.memory import Memory
from runners.model.events import BatchSettled, Event, RunStarted
from runners.pipeline import Pipeline
from tests.scenarios.conftest import ORDERS, Place, make_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]


def make_step_listener(*steps: Callable[[], object]) -> Callable[[Event], None]:
    """Return a listener that performs the first step when the run begins, and another one after each batch. Then it
    stops the run."""
    waiting: list[Callable[[], object]] = [*steps, lambda: signal.raise_signal(signal.SIGINT)]

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted | BatchSettled):
            waiting.pop(0)()

    return listen


@pytest.mark.connect
@pytest.mark.promise("SS-04", "CD-32")
def test_a_following_run_delivers_new_files_until_it_is_stopped(place: Place) -> None:
    """Each file is delivered once, also a file whose name sorts before earlier ones. The folder is empty at first."""
    (place.folder / "landing").mkdir()

    def late() -> None:
        place.land("b.json", [make_order(2)])
        place.land("a.json", [make_order(3)])

    text = ORDERS.replace("run: {", 'run: {poll: "50ms", ')
    pipeline = place.load(text)
    report = pipeline.run(
        follow=True, listeners=[make_step_listener(lambda: place.land("c.json", [make_order(1)]), late, str)]
    )
    assert (report.status, report.reason, report.batches) == ("stopped", "signal SIGINT", 3)
    assert place.ids("tables/orders") == [1, 2, 3]
    assert place.load(text).run().batches == 0


def test_an_origin_without_a_schema_is_opened_once_it_has_a_file(place: Place) -> None:
    """The columns are inferred from the first file."""
    (place.folder / "landing").mkdir()
    text = ORDERS.replace(', schema: "id long, email string, amount string"', "").replace(
        "run: {", 'run: {poll: "50ms", '
    )
    report = place.load(text).run(
        follow=True, listeners=[make_step_listener(lambda: place.land("a.json", [make_order(1)]))]
    )
    assert (report.batches, place.ids("tables/orders")) == (1, [1])


@pytest.mark.promise("SS-03", "SS-04")
def test_a_batch_waits_for_more_files_until_it_is_full(place: Place) -> None:
    """One existing file and two that arrive meanwhile form one batch."""
    place.land("a.json", [make_order(1)])
    text = ORDERS.replace("run: {batch: {files: 1}}", 'run: {poll: "50ms", batch: {files: 3, wait: 1h}}')
    pipeline: Pipeline = place.load(text)

    def two_more() -> None:
        place.land("b.json", [make_order(2)])
        place.land("c.json", [make_order(3)])

    report = pipeline.run(follow=True, listeners=[make_step_listener(two_more)])
    assert (report.batches, place.ids("tables/orders")) == (1, [1, 2, 3])


@dataclass(frozen=True, kw_only=True)
class Heard(Memory, NoticesPauses):
    """A destination that stops the run at the first empty batch."""

    ticks: list[tuple[str, ...]] = field(default_factory=list)

    def tick(self, spark: SparkSession, rows: DataFrame, label: Label) -> None:
        self.ticks.append(tuple(rows.columns))
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.connect
@pytest.mark.promise("X7", "SS-19")
def test_an_idle_run_sends_an_empty_batch_through_all_stages(place: Place) -> None:
    """The batch has the columns that rows have after the stages. Nothing is written, and no offset moves."""
    place.land("a.json", [make_order(1)])
    text = ORDERS.replace("run: {", 'run: {poll: "50ms", idle: "100ms", ')
    heard = Heard(name="orders")
    report = replace(place.load(text), destinations=[heard]).run(follow=True)
    assert (report.status, report.batches, len(heard.rows)) == ("stopped", 1, 1)
    assert heard.ticks[0] == ("id", "email", "amount")


def test_an_origin_that_opens_late_does_not_restart_another(place: Place) -> None:
    """An origin that is read whole is read once in a run, also if a second origin gets its first file meanwhile."""
    place.land("a.json", [make_order(1)])
    (place.folder / "till").mkdir()
    origins = (
        "origins:\n"
        '  - files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}\n'
        "    name: shop\n    read: whole\n"
        '  - files: {path: "till/*.json", format: json}\n    name: till\n'
    )
    start, end = ORDERS.index("origin:"), ORDERS.index("stages:")
    text = (ORDERS[:start] + origins + ORDERS[end:]).replace("run: {", 'run: {poll: "50ms", ')
    steps = make_step_listener(str, lambda: place.land("t.json", [make_order(2)], folder="till"))
    report = place.load(text).run(follow=True, listeners=[steps])
    assert (report.status, place.ids("tables/orders")) == ("stopped", [1, 2])
