"""A scheduler over days, with a manual clock and simulated runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from runners.definitions.definition import Definition
from runners.model.schedule_events import (
    Began,
    Broken,
    Draining,
    Ended,
    LeftOut,
    Mended,
    Scheduled,
    Unscheduled,
    Waits,
)
from runners.schedules.run_marks import ClaimResult
from runners.schedules.scheduler import RunOutcome, Scheduler
from tests.runners.pretend import BODY, World, make_moved, parse_utc

Start = Callable[[str], World]
NOON = "2026-06-01T12:00"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A function that makes an empty directory at a moment. APScheduler uses its manual clock too."""

    def world(start: str = NOON) -> World:
        made = World(tmp_path, start)
        monkeypatch.setattr("apscheduler.schedulers.base.datetime", make_moved(made.clock))
        return made

    return world


def list_moments(*minutes: int, of: str = "2026-06-01T12") -> list[datetime]:
    return [parse_utc(f"{of}:{minute:02}") for minute in minutes]


def list_steps(start: str, minutes: int) -> list[datetime]:
    """Return the moments of the day after the start that are a multiple of these minutes after midnight in UTC."""
    moments = [parse_utc(start) + timedelta(minutes=number) for number in range(1, 24 * 60 + 1)]
    return [moment for moment in moments if (moment.hour * 60 + moment.minute) % minutes == 0]


@pytest.mark.parametrize(
    ("start", "half_past_two", "midnight"),
    [
        ("2026-03-28T12:00", "2026-03-29T01:00", "2026-03-28T23:00"),
        ("2026-10-24T12:00", "2026-10-25T00:30", "2026-10-24T22:00"),
    ],
)
def test_a_change_of_clocks_loses_and_doubles_no_run(
    world: Start, start: str, half_past_two: str, midnight: str
) -> None:
    """Each due run begins once and on time. The time zone is Europe/Berlin, where the clocks change on this day."""
    here = world(start)
    here.define("night", '{cron: "30 2 * * *", time_zone: Europe/Berlin}')
    here.define("daily", '{cron: "@daily", time_zone: Europe/Berlin}')
    here.define("hourly", '{cron: "30 * * * *", time_zone: Europe/Berlin}')
    here.define("quarters", '{cron: "*/15 * * * *", time_zone: Europe/Berlin}')
    here.define("steps", "{every: 6m}")
    here.define("behind", "{after: night}")
    here.go(here.scheduler(at_once=6), 24 * 3600 + 60)
    assert here.runs("night") == [parse_utc(half_past_two)]
    assert here.runs("daily") == [parse_utc(midnight)]
    assert here.runs("hourly") == [moment for moment in list_steps(start, 30) if moment.minute == 30]
    assert here.runs("quarters") == list_steps(start, 15)
    assert here.runs("steps") == list_steps(start, 6)
    assert here.runs("behind") == [parse_utc(half_past_two) + timedelta(seconds=2)]
    assert here.list_events(LeftOut) == []


def test_fifty_pipelines_run_every_minute_for_an_hour(world: Start) -> None:
    """Each has 60 runs, at most four run at a time, and none is left out."""
    here = world(NOON)
    for number in range(50):
        here.define(f"p{number:02}", "{every: 1m}")
    here.go(here.scheduler(at_once=4), 3_600 + 40)
    assert Counter(ran.name for ran in here.run_workers[0].ran) == {f"p{number:02}": 60 for number in range(50)}
    assert here.run_workers[0].most == 4
    assert here.list_events(LeftOut) == []


def test_a_second_scheduler_does_not_repeat_an_active_run(world: Start) -> None:
    """The first one holds the lock of the run, so that it was not interrupted."""
    here = world(NOON)
    here.define("orders", "{every: 1d, on_overlap: queue}")
    here.takes["orders"] = 600
    first = here.scheduler()
    here.go(first, "2026-06-02T00:01")
    second = here.scheduler()
    for _ in range(40):
        for scheduler, run_workers in zip((first, second), here.run_workers, strict=True):
            scheduler.take_turn(run_workers.finished())
        here.clock.move(30)
    assert len(here.runs()) == 1
    assert [event.status for event in here.list_events(Ended)] == ["succeeded"]


def kill_first(here: World, first: Scheduler) -> None:
    """End the process of a scheduler that has others beside it."""
    for name in [name for name, owner in here.owners.items() if owner is first.run_workers]:
        del here.owners[name]
    first.marks.close()


def test_a_run_is_not_left_out_for_a_run_of_another_scheduler_that_has_ended(world: Start) -> None:
    """The scheduler was busy with another pipeline, and the run that waited there has ended elsewhere."""
    here = world(NOON)
    here.define("busy", '{cron: "3 * * * *"}')
    here.define("orders", "{every: 10m}")
    here.takes["busy"] = 1_100
    second = here.scheduler(at_once=1)
    here.go(second, 550)
    first = here.scheduler()
    here.owners["orders"] = first.run_workers
    assert first.marks.claim("orders", list_moments(10)[0]) is ClaimResult.GRANTED
    first.marks.note_ended("orders", succeeded=list_moments(11)[0])
    kill_first(here, first)
    here.go(second, 1_000)
    assert here.runs("orders") == [parse_utc("2026-06-01T12:21:20")]


def test_a_clock_that_jumps_back_repeats_no_run(world: Start) -> None:
    """The definition changes while the clock is behind, so that due times are counted once more."""
    here = world(NOON)
    here.define("orders", "{every: 5m}")
    scheduler = here.scheduler()
    here.go(scheduler, 660)
    here.clock.time -= timedelta(minutes=8)
    here.define("orders", "{every: 5m, jitter: 1s}")
    here.go(scheduler, 900)
    begun = [event.due for event in here.list_events(Began)]
    assert begun == list_moments(5, 10, 15)


def test_a_run_of_another_process_is_not_begun_twice(world: Start) -> None:
    """It is left out, or with `queue` tried again until the other process has ended."""
    here = world(NOON)
    here.define("skips", "{every: 5m}")
    here.define("queues", "{every: 5m, on_overlap: queue}")
    by_hand = object()
    here.owners.update(skips=by_hand, queues=by_hand)
    scheduler = here.scheduler()
    here.go(scheduler, 340)
    here.kill()
    here.go(scheduler, 60)
    assert here.runs("skips") == []
    assert here.runs("queues") == list_moments(6)
    assert [event.status for event in here.list_events(Ended) if event.name == "skips"] == ["owned"]
    assert here.list_events(Ended)[0].message.endswith(("The run is left out.", "The run is tried again soon."))
    here.go(here.scheduler(), 100)
    assert here.runs("skips") == []


@pytest.mark.parametrize(
    ("how", "began", "left"),
    [
        ("skip", [5, 20, 35], 5),
        ("queue", [5, 17, 29, 41], 0),
    ],
)
def test_a_run_that_is_due_during_another_is_left_out_or_waits(
    world: Start, how: str, began: list[int], left: int
) -> None:
    """A run takes twelve minutes here, and is due every five."""
    here = world(NOON)
    here.define("slow", f"{{every: 5m, on_overlap: {how}}}")
    here.takes["slow"] = 12 * 60
    here.go(here.scheduler(), 45 * 60 - 1)
    assert here.runs("slow") == list_moments(*began)
    assert sum(len(event.due) for event in here.list_events(LeftOut)) == left


@pytest.mark.parametrize(
    ("how", "began"),
    [
        ("none", []),
        ("once", [33]),
        ("all", [33, 33, 33, 33, 33]),
    ],
)
@pytest.mark.parametrize("gone", ["off", "asleep", "paused", "broken"])
def test_runs_missed_during_a_gap_are_made_up_as_the_schedule_says(
    world: Start, how: str, began: list[int], gone: str
) -> None:
    """The scheduler was off, its machine was suspended, or the pipeline was paused or broken. Five runs were due."""
    here = world(NOON)
    good = here.define("nightly", f"{{every: 5m, catch_up: {how}}}")
    scheduler = here.scheduler()
    here.go(scheduler, 330)
    stop_for_a_minute(here, scheduler, gone)
    here.clock.move(33 * 60 - 390)
    if gone in ("paused", "broken"):
        here.marks.pause("nightly", None, here.clock.now())
        here.define("nightly", f"{{every: 5m, catch_up: {how}}}", file=good.name)
    here.go(here.scheduler() if gone == "off" else scheduler, 110)
    behind = [moment.replace(second=0, microsecond=0) for moment in here.runs("nightly")]
    assert behind == list_moments(5, *began)


def stop_for_a_minute(here: World, scheduler: Scheduler, gone: str) -> None:
    """Let a minute pass in which the scheduler or the pipeline stops."""
    if gone == "paused":
        here.marks.pause("nightly", "by hand", here.clock.now())
    elif gone == "broken":
        (here.folder / "nightly.yaml").write_text("name: [")
    if gone in ("paused", "broken"):
        here.go(scheduler, 60)
    else:
        here.clock.move(60)


def test_a_run_that_is_a_little_late_is_not_missed(world: Start) -> None:
    """This holds also with `catch_up: none`. The scheduler was busy for half a minute."""
    here = world(NOON)
    here.define("nightly", "{every: 5m, catch_up: none}")
    scheduler = here.scheduler()
    here.go(scheduler, 290)
    here.clock.move(40)
    here.go(scheduler, 10)
    assert here.runs("nightly") == [parse_utc("2026-06-01T12:05:30")]


def test_a_new_pipeline_has_missed_no_run(world: Start) -> None:
    """Its due times count from the moment when it was first seen."""
    here = world(NOON)
    here.define("nightly", '{cron: "@daily", catch_up: all}')
    here.go(here.scheduler(), 60)
    assert here.runs() == []


def test_a_pipeline_runs_after_another_that_succeeded(world: Start) -> None:
    """It does not run after a failed or stopped run."""
    here = world(NOON)
    here.define("prices", "{every: 5m}")
    here.define("orders", "{after: prices}")
    ends = iter(["succeeded", "failed", "stopped", "succeeded"])
    here.ends["prices"] = lambda name: RunOutcome(name=name, status=next(ends), message="")
    here.go(here.scheduler(), 21 * 60)
    assert here.runs("orders") == [moment + timedelta(seconds=2) for moment in list_moments(5, 20)]


def test_a_run_after_another_is_made_up_by_the_next_scheduler(world: Start) -> None:
    """The process was killed between the two runs."""
    here = world(NOON)
    here.define("prices", "{every: 1h}")
    here.define("orders", "{after: prices}")
    here.takes["orders"] = 60
    here.go(here.scheduler(at_once=1), 3_601.9)
    here.marks.note_ended("prices", succeeded=here.clock.now())
    here.kill()
    here.go(here.scheduler(), 90)
    here.go(here.scheduler(), 90)
    assert here.runs("orders") == [parse_utc("2026-06-01T13:00:01.900")]
    assert here.list_events(LeftOut) == []


@pytest.mark.parametrize(("how", "again"), [("none", False), ("once", True), ("all", True)])
def test_a_killed_run_is_repeated_once(world: Start, how: str, again: bool) -> None:
    """The next scheduler repeats it, unless `catch_up` is `none`. If it is killed again, it waits for its next due
    time.
    """
    here = world(NOON)
    here.define("nightly", f"{{every: 1d, catch_up: {how}}}")
    here.takes["nightly"] = 600
    here.go(here.scheduler(), "2026-06-02T00:05")
    for _ in range(3):
        here.kill()
        here.clock.move(120)
        here.go(here.scheduler(), 60)
    here.go(here.scheduler(), "2026-06-02T23:00")
    assert len(here.runs()) == 1 + again


@pytest.mark.parametrize("ended", ["stopped", "spark is gone"])
def test_a_run_that_was_stopped_with_the_scheduler_is_repeated(world: Start, ended: str) -> None:
    """This holds also if its Spark died. A run that was stopped by hand is not repeated."""
    here = world(NOON)
    here.define("nightly", "{every: 1d}")
    here.define("by_hand", "{every: 1d}")
    here.takes["nightly"] = 600
    here.ends["by_hand"] = lambda name: RunOutcome(name=name, status="stopped", message="")
    gone, status = ended == "spark is gone", "failed" if ended == "spark is gone" else "stopped"
    here.ends["nightly"] = lambda name: RunOutcome(name=name, status=status, message="", spark_is_gone=gone)
    first = here.scheduler()
    here.go(first, "2026-06-02T00:05")
    if not gone:
        first.stop("signal SIGTERM")
    here.go(first, "2026-06-02T00:20")
    assert first.take_turn() is None
    del here.ends["nightly"]
    here.go(here.scheduler(), "2026-06-02T01:00")
    here.go(here.scheduler(), "2026-06-02T02:00")
    assert [moment.strftime("%H:%M") for moment in here.runs("nightly")] == ["00:00", "00:10"]
    assert len(here.runs("by_hand")) == 1


def test_a_run_that_fails_affects_no_other(world: Start) -> None:
    """It fails each time and still runs again. The other pipeline runs on time."""
    here = world(NOON)
    here.define("bad", "{every: 5m}")
    here.define("good", "{every: 5m}")
    here.ends["bad"] = lambda name: RunOutcome(name=name, status="failed", message="the disk is full")
    here.go(here.scheduler(), 16 * 60)
    assert here.runs("good") == here.runs("bad") == list_moments(5, 10, 15)
    assert {(event.name, event.message) for event in here.list_events(Ended) if event.status == "failed"} == {
        ("bad", "the disk is full")
    }


def test_added_changed_and_deleted_files_are_noticed(world: Start) -> None:
    """An active run keeps the definition with which it began."""
    here = world(NOON)
    scheduler = here.scheduler()
    first = here.define("orders", "{every: 5m}")
    here.takes["orders"] = 6 * 60
    here.go(scheduler, 320)
    here.define("orders", "{every: 8m}", more="dlq: {window: 7}\n")
    here.go(scheduler, 900)
    first.unlink()
    here.go(scheduler, 1_800)
    assert here.runs("orders") == list_moments(5, 16)
    assert ["window" in ran.text for ran in here.run_workers[0].ran] == [False, True]
    assert [event.status for event in here.list_events(Ended)] == ["succeeded", "succeeded"]
    assert here.list_events(Unscheduled) == [Unscheduled(name="orders", why="its definition is missing")]
    assert len(here.list_events(Scheduled)) == 2


def test_a_definition_that_breaks_begins_no_run_until_it_is_mended(world: Start) -> None:
    """Its active run ends normally, and others continue. The error is reported once."""
    here = world(NOON)
    here.define("other", "{every: 5m}")
    file = here.define("orders", "{every: 5m, catch_up: none}")
    here.takes["orders"] = 120
    scheduler = here.scheduler()
    here.go(scheduler, 310)
    good = file.read_text()
    file.write_text(good.replace("every: 5m", "every: often"))
    here.go(scheduler, 960 - 310)
    file.write_text(good)
    here.go(scheduler, 300)
    assert here.runs("orders") == list_moments(5, 20)
    assert here.runs("other") == list_moments(5, 10, 15, 20)
    assert {event.status for event in here.list_events(Ended)} == {"succeeded"}
    (broken,) = here.list_events(Broken)
    assert broken.file == "orders.yaml"
    assert "schedule.every: expected a duration such as 500ms" in broken.message
    assert here.list_events(Mended) == [Mended(file="orders.yaml")]


def test_a_definition_that_is_mended_during_its_run_begins_no_second_run(world: Start) -> None:
    """The run is still active, so it was not interrupted."""
    here = world(NOON)
    file = here.define("orders", "{every: 1d}")
    here.takes["orders"] = 600
    scheduler = here.scheduler()
    here.go(scheduler, "2026-06-02T00:01")
    good = file.read_text()
    file.write_text("name: [")
    here.go(scheduler, 100)
    file.write_text(good)
    here.go(scheduler, 3_600)
    assert len(here.list_events(Mended)) == 1
    assert len(here.runs()) == 1


def test_a_file_that_is_being_written_is_not_broken(world: Start) -> None:
    """The scheduler waits until the file no longer changes."""
    here = world(NOON)
    scheduler = here.scheduler(look=10)
    whole = here.define("orders", "{every: 5m}").read_text()
    for length in (5, 30, len(whole)):
        (here.folder / "orders.yaml").write_text(whole[:length])
        here.go(scheduler, 10)
    here.go(scheduler, 300)
    assert here.list_events(Broken) == []
    assert here.runs("orders") == list_moments(5)


def test_a_directory_that_cannot_be_read_for_a_while_changes_nothing(world: Start) -> None:
    """Its pipelines stay scheduled."""
    here = world(NOON)
    here.define("orders", "{every: 5m}")
    scheduler = here.scheduler()
    away = here.folder.with_name("away")
    here.go(scheduler, 60)
    here.folder.rename(away)
    here.go(scheduler, 120)
    away.rename(here.folder)
    here.go(scheduler, 200)
    assert here.runs("orders") == list_moments(5)
    assert here.list_events(Unscheduled) == []


def test_files_named_in_a_definition_are_read_when_its_run_begins(world: Start) -> None:
    """A file with SQL or a schema may change while the definition does not."""
    here = world(NOON)
    (here.folder / "orders.ddl").write_text("id long")
    file = here.define("orders", "{every: 5m}")
    file.write_text(file.read_text().replace("path: landing", "path: landing, schema: {file: orders.ddl}"))
    scheduler = here.scheduler()
    here.go(scheduler, 310)
    (here.folder / "orders.ddl").write_text("id long, amount double")
    here._read.clear()
    here.go(scheduler, 300)
    assert ["amount double" in ran.text for ran in here.run_workers[0].ran] == [False, True]


def test_a_definition_that_cannot_be_read_fails_only_its_run(world: Start) -> None:
    """A user's module may raise any error."""
    here = world(NOON)
    here.define("bad", "{every: 5m}")
    here.define("good", "{every: 5m}")
    scheduler = here.scheduler()
    whole = scheduler.folder.load

    def load(path: Path) -> Definition:
        if path.name == "bad.yaml":
            raise ZeroDivisionError("division by zero")
        return whole(path)

    scheduler.folder.load = load
    here.go(scheduler, 320)
    assert here.runs("good") == list_moments(5)
    assert [(event.name, event.status, event.message) for event in here.list_events(Ended) if event.name == "bad"] == [
        ("bad", "failed", "bad.yaml: ZeroDivisionError: division by zero")
    ]


def test_jitter_delays_runs_but_not_their_due_times(world: Start) -> None:
    """Each run begins later by a random time of at most the jitter. The next due time stays the same."""
    here = world(NOON)
    for number in range(20):
        here.define(f"p{number}", "{every: 10m, jitter: 2m}")
    here.go(here.scheduler(at_once=20), 1_330)
    late = [(began - parse_utc(NOON)).total_seconds() % 600 for began in here.runs()]
    assert len(late) == 40
    assert max(late) <= 121
    assert len({round(seconds) for seconds in late}) > 25
    assert {event.due for event in here.list_events(Began)} == {*list_moments(10, 20)}


def test_a_stop_begins_no_run_and_waits_for_active_runs(world: Start) -> None:
    """The runs are asked to stop. A second stop forces them."""
    here = world(NOON)
    here.define("orders", "{every: 1m}")
    here.define("other", '{cron: "3 * * * *"}')
    here.takes["orders"] = 300
    scheduler = here.scheduler()
    here.go(scheduler, 90)
    scheduler.stop("signal SIGTERM")
    here.go(scheduler, 120)
    assert set(here.run_workers[0].stopped) == {("signal SIGTERM", False)}
    scheduler.stop("signal SIGTERM", force=True)
    here.go(scheduler, 1)
    assert here.run_workers[0].stopped[-1] == ("signal SIGTERM", True)
    here.go(scheduler, 1_000)
    assert scheduler.take_turn() is None
    assert here.runs() == list_moments(1)
    assert here.list_events(Draining) == [Draining(reason="signal SIGTERM")]
    assert [event.name for event in here.list_events(Ended)] == ["orders"]


def test_the_scheduler_ends_when_spark_is_gone(world: Start) -> None:
    """Nothing else could run in this process. It can be started again."""
    here = world(NOON)
    here.define("orders", "{every: 1m}")
    here.ends["orders"] = lambda name: RunOutcome(name=name, status="failed", message="no answer", spark_is_gone=True)
    scheduler = here.scheduler()
    here.go(scheduler, 600)
    assert here.runs() == list_moments(1)
    assert (scheduler.error, scheduler.take_turn()) == ("no answer", None)


def test_marks_that_cannot_be_written_stop_no_run(world: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline's lock still prevents two runs at once."""
    here = world(NOON)
    here.define("orders", "{every: 5m}")
    scheduler = here.scheduler()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(here.marks, "put", full)
    here.go(scheduler, 660)
    assert here.runs("orders") == list_moments(5, 10)


SHOP, WAREHOUSE = "run: {group: shop}\n", "run: {group: warehouse}\n"


def test_a_group_has_only_so_many_runs_at_a_time(world: Start) -> None:
    """A run after another counts too. A pipeline outside of the group is on time. The log has each wait once."""
    here = world(NOON)
    for name in ("a", "b", "c"):
        here.define(name, '{cron: "10 12 * * *"}', more=WAREHOUSE)
        here.takes[name] = 120
    here.define("d", "{after: a}", more=WAREHOUSE)
    here.define("outside", '{cron: "10 12 * * *"}')
    here.go(here.scheduler(at_once=9, limits={"warehouse": 2}), 1_000)
    assert here.runs("outside") == list_moments(10)
    assert [here.runs(name) for name in "abcd"] == [list_moments(each) for each in (10, 10, 12, 12)]
    assert [(event.name, event.due, event.group) for event in here.list_events(Waits)] == [
        ("c", *list_moments(10), "warehouse")
    ]


def test_a_group_without_a_number_has_one_run_at_a_time(world: Start) -> None:
    """Its runs begin in the order in which they were due."""
    here = world(NOON)
    for minute, name in ((12, "a"), (11, "b"), (10, "c")):
        here.define(name, f'{{cron: "{minute} 12 * * *"}}', more=WAREHOUSE)
        here.takes[name] = 300
    here.go(here.scheduler(), 1_500)
    assert [here.runs(name) for name in "cba"] == [list_moments(each) for each in (10, 15, 20)]


def test_a_run_stays_in_the_group_in_which_it_began(world: Start) -> None:
    """Its definition names another group meanwhile, which the next run counts in."""
    here = world(NOON)
    for name in ("moves", "stays"):
        here.define(name, "{every: 10m}", more=SHOP)
    here.define("other", '{cron: "*/10 * * * *"}', more=WAREHOUSE)
    here.takes.update(moves=60, stays=60, other=180)
    scheduler = here.scheduler()
    here.go(scheduler, 610)
    here.define("moves", "{every: 10m}", more=WAREHOUSE)
    here.go(scheduler, 1_000)
    assert here.runs("stays") == list_moments(11, 20)
    assert here.runs("other") == list_moments(10, 21)
    assert here.runs("moves") == list_moments(10, 20)


def test_a_run_counts_in_the_group_of_the_definition_with_which_it_begins(world: Start) -> None:
    """The group changed after the last look at the folder. The run waits for its new group."""
    here = world(NOON)
    here.define("moves", "{every: 10m}", more=SHOP)
    here.define("other", '{cron: "9 12 * * *"}', more=WAREHOUSE)
    here.takes["other"] = 300
    scheduler = here.scheduler(look=500)
    here.go(scheduler, 595)
    here.define("moves", "{every: 10m}", more=WAREHOUSE)
    here.go(scheduler, 400)
    assert here.runs("other") == list_moments(9)
    assert here.runs("moves") == list_moments(14)
    assert [each.text.count("warehouse") for each in here.run_workers[0].ran] == [1, 1]


def test_a_paused_pipeline_does_not_wait_for_its_group(world: Start) -> None:
    """The next one of the group begins in its place."""
    here = world(NOON)
    for minute, name in ((10, "first"), (11, "paused"), (12, "last")):
        here.define(name, f'{{cron: "{minute} 12 * * *"}}', more=SHOP)
    here.takes["first"] = 300
    scheduler = here.scheduler()
    here.go(scheduler, 800)
    here.marks.pause("paused", "by hand", here.clock.now())
    here.go(scheduler, 400)
    assert here.runs("paused") == []
    assert here.runs("last") == list_moments(15)


def test_what_waits_for_its_group_does_not_begin_after_a_stop(world: Start) -> None:
    """The next scheduler makes up for it."""
    here = world(NOON)
    for name in ("first", "second"):
        here.define(name, '{cron: "10 12 * * *"}', more=SHOP)
    here.takes["first"] = 300
    scheduler = here.scheduler()
    here.go(scheduler, 700)
    scheduler.stop("asked to end")
    here.go(scheduler, 900)
    assert scheduler.take_turn() is None
    assert here.runs("second") == []
    began = here.clock.now()
    here.go(here.scheduler(), 60)
    assert here.runs("second") == [began]


def test_two_schedulers_share_the_limit_of_a_group(world: Start) -> None:
    """Each run begins once. A run that another scheduler has begun does not count as waiting."""
    here = world(NOON)
    for name in ("a", "b", "c"):
        here.define(name, '{cron: "10 12 * * *"}', more=SHOP)
        here.takes[name] = 120
    schedulers = [here.scheduler(look=10) for _ in range(2)]
    for _ in range(200):
        for scheduler, run_workers in zip(schedulers, here.run_workers, strict=True):
            scheduler.take_turn(run_workers.finished())
        here.clock.move(10)
    assert [here.runs(name) for name in "abc"] == [list_moments(each) for each in (10, 12, 14)]
    assert "a" not in {event.name for event in here.list_events(Waits)}


def test_a_run_that_another_scheduler_began_takes_no_room(world: Start) -> None:
    """The next one of its group begins on time."""
    here = world(NOON)
    here.define("taken", '{cron: "10 12 * * *"}', more=SHOP)
    here.define("next", '{cron: "11 12 * * *"}', more=SHOP)
    scheduler = here.scheduler()
    assert here.marks.claim("taken", *list_moments(10)) is ClaimResult.GRANTED
    here.go(scheduler, 700)
    assert here.runs() == here.runs("next") == list_moments(11)


def test_a_limit_for_a_group_of_no_pipeline_is_logged(world: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The names with which pipelines join a group are there to compare, also that of a pipeline without a schedule."""
    here = world(NOON)
    here.define("orders", "{every: 10m}", more=SHOP)
    (here.folder / "items.yaml").write_text(f"name: items\n{BODY}{WAREHOUSE}")
    here.scheduler(limits={"shop": 2, "Shop": 2, "warehouse": 2})
    assert caplog.messages == [
        "The limit of the group Shop has no effect: no pipeline names it. Groups here: shop, warehouse"
    ]
